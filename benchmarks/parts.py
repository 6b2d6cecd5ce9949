"""What each part of the default model is worth: its voices and its kinds of rules, left out one at a time.

    PYTHONPATH=src python benchmarks/parts.py DATA --seed N --out FILE.json [--full GRAPH] [--device auto]
    PYTHONPATH=src python benchmarks/parts.py --table FILE.json ...    # the mean over seeds, as docs show it

Newcomers are held out of the observed graph by the seed, as training does it, and test is not looked at. The model is
trained once; then the weights of the voices that are left are learned on the questions about one half of the held-out
newcomers and used on those about the other half, and the other way round: no question is answered by weights that were
learned from it. Leaving out a kind of rules takes what they infer out of all voices that rules have.
"""

import argparse
import json
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from newcomer.models.propagation.wide import path_scorer
from newcomer.rules.similarity import Company

from newcomer.config import Config, load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.evaluation.ranking import Queries, RankingProtocol, evaluate_under
from newcomer.graph import Graph, InductiveDataset, Mask
from newcomer.models.device import DEVICES, choose_device
from newcomer.models.embedding.scorer import ModelScorer
from newcomer.models.ensemble import COMPANY, FEATURES, PATHS, features_of
from newcomer.models.scorer import Scorer
from newcomer.reproduction.cells import commit
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.rule import Kind, RuleSet
from newcomer.training.cost_model import stays_local
from newcomer.training.ensemble import Examples, examples, weights_for
from newcomer.training.holdout import HoldOut, hold_out_newcomers
from newcomer.training.pipeline import Fitted, fit
from newcomer.training.propagation import PropagationTrainer
from newcomer.training.runtime import settled, steady

RULE_VOICES = ("order", "confidence", "odds")
TOGETHER = {  # what is left out at once
    "all": (),
    "without network": ("network",),
    "without rules": RULE_VOICES,
    "without order": ("order",),
    "without confidence and odds": ("confidence", "odds"),
    "without link": ("link",),
    "without frequency": ("frequency",),
    "without newcomer": ("newcomer",),
    "without company": (COMPANY,),
    "without paths": (PATHS,),
    "network and newcomer alone": tuple({*FEATURES, COMPANY, PATHS} - {"network", "newcomer"}),
}
METRICS = ("mrr", "hits@1", "hits@10", "mr")


class Recorded:
    """A scorer that says again what it has been found to say, query by query."""

    def __init__(self, queries: Queries, scores: npt.NDArray[np.float32]) -> None:
        asked = zip(queries.entity.tolist(), queries.relation.tolist(), strict=True)
        self.rows = dict(zip(asked, scores, strict=True))

    def scores(self, entities: npt.NDArray[Any], relations: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        return np.stack([self.rows[question] for question in zip(entities.tolist(), relations.tolist(), strict=True)])


def network_of(fitted: Fitted) -> ModelScorer:
    model = fitted.config.model  # the default hears no virtual neighbours
    return ModelScorer(
        fitted.model, fitted.graph, fitted.labels, fitted.dataset, None, model.labels, model.soft_label_c
    )


def ranker_of(rules: RuleSet, dataset: InductiveDataset, threads: int, hears_all: bool) -> RuleRanker:
    company = None
    if hears_all:
        company = Company.of(dataset.observed, dataset.auxiliary.triples, int(dataset.is_seen.sum()))
    return RuleRanker.build(rules, dataset.own_facts, dataset.observed, threads=threads, company=company)


def rows_of(batch: Examples, chosen: Mask) -> Examples:
    """Some of the queries."""
    return Examples(*(part[torch.from_numpy(chosen)] for part in batch))


def cross_scores(
    batches: list[Examples], names: Collection[str], first: Mask, silent: Collection[str]
) -> npt.NDArray[np.float32]:
    """(queries, entities): scores by weights learned on the other half of the queries."""
    ends = np.cumsum([0] + [len(batch.answers) for batch in batches])
    parts = [slice(start, end) for start, end in pairwise(ends.tolist())]
    found: npt.NDArray[np.float32] = np.empty((len(first), batches[0].voices.shape[1]), dtype=np.float32)
    for half in (first, ~first):
        learned = weights_for([rows_of(b, ~half[part]) for b, part in zip(batches, parts, strict=True)], names, silent)
        for batch, part in zip(batches, parts, strict=True):
            found[part][half[part]] = rows_of(batch, half[part]).scores(*torch.from_numpy(learned)).numpy()
    return found


def graded(exam: HoldOut, scores: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Figures under each filter, and of pairs that no known fact ties yet."""
    filters = ("known",) if exam.full is None else ("known", "full")
    protocols = [RankingProtocol(filter=name) for name in filters]
    scorer, figures = Recorded(exam.queries, scores), {}
    results = evaluate_under(exam.dataset, scorer, protocols, exam.full, exam.queries)
    apart = np.flatnonzero(~linked(exam))
    unlinked = evaluate_under(exam.dataset, scorer, protocols, exam.full, exam.queries.take(apart))
    for name, result, far in zip(filters, results, unlinked, strict=True):
        figures[name] = {metric: result.metrics()[metric] for metric in METRICS}
        figures[f"{name}, unlinked"] = {metric: far.metrics()[metric] for metric in METRICS}
    return figures


def linked(exam: HoldOut) -> Mask:
    """Whether a query's entity is tied to its answer already."""
    facts = exam.dataset.own_facts
    pairs = zip(exam.queries.entity.tolist(), exam.queries.answer.tolist(), strict=True)
    return np.array([bool((facts.of(entity)[1] == answer).any()) for entity, answer in pairs], dtype=bool)


def first_half(queries: Queries, seed: int) -> Mask:
    """Of the queries those about one half of the newcomers."""
    who = np.unique(queries.entity)
    drawn = np.random.default_rng([seed, 17]).permutation(who)[: len(who) // 2]
    half: Mask = np.isin(queries.entity, drawn)
    return half


def paths_of(exam: HoldOut, config: Config, device: torch.device) -> Scorer | None:
    """What paths say, where they have a say."""
    if not config.model.propagation:
        return None
    observed, seen = exam.dataset.observed, int(exam.dataset.is_seen.sum())
    with steady(device, 1):
        silent = device.type == "cpu" and stays_local(observed, seen)  # as a training decides it
        trainer = PropagationTrainer(observed, seen, config.training.propagation_steps, config.seed, device, silent)
        for number in range(trainer.steps):
            trainer.step(number)
    return path_scorer(trainer.network, exam.dataset, seen, device, config.model.propagates_newcomers)


def unweighed(config: Config) -> Config:
    """The same vectors and rules without weights, which are learned here, by halves; paths come with weights only."""
    return with_overrides(config, ["model.ensemble=false", "model.graph_statistics=false", "model.propagation=false"])


def rows(
    dataset: InductiveDataset, config: Config, full: Graph | None, device: str, threads: int
) -> Iterator[tuple[str, Any]]:
    """Each row of the table as soon as it is known."""
    fitted = fit(dataset, unweighed(config), device=device, full=full, threads=threads)
    yield "validation", fitted.metrics["validation"]
    exam = hold_out_newcomers(dataset, config, full)
    network, half = network_of(fitted), first_half(exam.queries, config.seed)
    everyone, paths = len(exam.dataset.entities), paths_of(exam, config, choose_device(device))
    names = features_of(config.model.graph_statistics, paths is not None)
    ranker = ranker_of(fitted.rules, exam.dataset, threads, config.model.graph_statistics)
    batches = list(examples(network, ranker, exam.dataset, exam.queries, everyone, paths))
    for name, silent in TOGETHER.items():
        if len(silent) != 1 or silent[0] in names:
            yield name, graded(exam, cross_scores(batches, names, half, silent))
    del batches
    if ranker.ties is not None:
        mined = list(examples(network, replace(ranker, ties=None), exam.dataset, exam.queries, everyone, paths))
        yield "without rules counted on arrival", graded(exam, cross_scores(mined, names, half, ()))
        del mined
    for kind in np.unique(fitted.rules.kinds).tolist():
        left = fitted.rules.where(fitted.rules.kinds != kind)
        ranker = ranker_of(left, exam.dataset, threads, config.model.graph_statistics)
        if kind == Kind.ONE:  # counted ones are of this kind
            ranker = replace(ranker, ties=None)
        batches = list(examples(network, ranker, exam.dataset, exam.queries, everyone, paths))
        name = f"without rules of the kind {Kind(kind).name.lower()}"
        yield name, graded(exam, cross_scores(batches, names, half, ()))


def table(files: list[Path]) -> str:
    """MRR / Hits@10 / mean rank under the known filter and MRR of unlinked pairs under the full one, for each set.

    A row that some seed did not come to is of the others, and says so.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in files:
        read = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(read["dataset"], []).append(read["rows"])
    every = dict.fromkeys(name for seeds in found.values() for rows in seeds for name in rows if name != "validation")
    lines = ["| | " + " | ".join(f"{name} ({len(seeds)} seeds)" for name, seeds in found.items()) + " |"]
    lines.append("|---" * (len(found) + 1) + "|")
    lines += ["| " + " | ".join([name, *(cell(seeds, name) for seeds in found.values())]) + " |" for name in every]
    return "\n".join(lines)


def cell(seeds: list[dict[str, Any]], name: str) -> str:
    """Means over the seeds; behind it how far MRR is from that of all parts, seed by seed."""
    there = [rows for rows in seeds if name in rows]
    if not there:
        return ""

    def mean(filtered: str, metric: str) -> float:
        return float(np.mean([rows[name][filtered][metric] for rows in there]))

    known = f"{100 * mean('known', 'mrr'):.1f} / {100 * mean('known', 'hits@10'):.1f} / {mean('known', 'mr'):.0f}"
    figures = f"{known}; {100 * mean('full, unlinked', 'mrr'):.1f}"
    if name == "all":
        return figures
    changes = [f"{100 * (rows[name]['known']['mrr'] - rows['all']['known']['mrr']):+.1f}" for rows in there]
    fewer = "" if len(there) == len(seeds) else f"{len(there)} of the seeds: "
    return f"{figures} ({fewer}{', '.join(changes)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="a data set: its folder or its name")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="show files of results, run nothing")
    parser.add_argument("--full", help="a data set that holds all that is true, for the full filter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--device", default="auto", choices=DEVICES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    options = parser.parse_args()
    if options.table:
        print(table(sorted(options.table)))
        return
    if options.data is None or options.out is None:
        parser.error("name a data set and --out, or files with --table")
    settings = [*options.set, f"seed={options.seed}", "training.final_fit=false"]
    config = with_overrides(load_preset(options.preset), settings)
    dataset = load_dataset(options.data)
    full = None if options.full is None else load_dataset(options.full).known()
    config = settled(config, dataset, choose_device(options.device))
    report: dict[str, Any] = {"dataset": dataset.name, "seed": options.seed, "commit": commit()}
    report |= {"settings": config.to_dict(), "rows": {}}
    start = time.monotonic()
    for name, figures in rows(dataset, config, full, options.device, options.threads):
        report["rows"][name] = figures
        print(f"{time.monotonic() - start:6.0f} s  {name}: {json.dumps(figures)}", flush=True)
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
