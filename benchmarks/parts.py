"""What each part of the default model is worth: its features and its kinds of rules, left out one at a time.

    PYTHONPATH=src python benchmarks/parts.py DATA --seed N --out FILE.json [--full GRAPH] [--device auto]
    PYTHONPATH=src python benchmarks/parts.py --table FILE.json ...    # the mean over seeds, as docs show it

Newcomers are held out of the observed graph by the seed, as training does it, and test is not looked at. The model is
trained once; then the weights of the features that are left are learned on the queries about one half of the held-out
newcomers and used on those about the other half, and the other way round: no query is answered by weights that were
learned from it. Leaving out a kind of rules takes what they infer out of all features that rules have.
"""

import argparse
import json
import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from newcomer.config import Config, load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.evaluation.ranking import Queries, RankingProtocol, evaluate_under
from newcomer.graph import Graph, InductiveDataset, Mask, Overlay
from newcomer.models.device import DEVICES, choose_device
from newcomer.models.ensemble import FEATURES
from newcomer.reproduction.cells import commit
from newcomer.rules.rule import Kind
from newcomer.rules.statistics import GraphStatistics
from newcomer.training.ensemble import EnsembleLearner, weights_for
from newcomer.training.examples import Examples, examples
from newcomer.training.holdout import HoldOut, hold_out_newcomers
from newcomer.training.pipeline import fit
from newcomer.training.preparation import Prepared
from newcomer.training.runtime import settled

TOGETHER = {  # what is left out at once
    "all": (),
    "without embedding": ("embedding",),
    "without rules": ("rule_rank", "rule_confidence", "rule_odds"),
    "without rule_rank": ("rule_rank",),
    "without rule_confidence and rule_odds": ("rule_confidence", "rule_odds"),
    **{f"without {name}": (name,) for name in FEATURES if name != "embedding" and not name.startswith("rule_")},
    "embedding and unobserved alone": tuple({*FEATURES} - {"embedding", "unobserved"}),
}
METRICS = ("mrr", "hits@1", "hits@10", "mr")


class Recorded:
    """A scorer that repeats the scores that were found, query by query."""

    def __init__(self, queries: Queries, scores: npt.NDArray[np.float32]) -> None:
        asked = zip(queries.entity.tolist(), queries.relation.tolist(), strict=True)
        self.rows = dict(zip(asked, scores, strict=True))

    def scores(self, entities: npt.NDArray[Any], relations: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        return np.stack([self.rows[query] for query in zip(entities.tolist(), relations.tolist(), strict=True)])


def rows_of(batch: Examples, chosen: Mask) -> Examples:
    """Some of the queries."""
    return Examples(*(part[torch.from_numpy(chosen)] for part in batch))


def without(batch: Examples, names: Collection[str], left_out: Collection[str]) -> Examples:
    """The same with nothing but zeros for the features that are left out."""
    kept = torch.tensor([float(name not in left_out) for name in names])
    return batch._replace(features=batch.features * kept)


def cross_scores(
    batches: list[Examples], names: Collection[str], first: Mask, left_out: Collection[str]
) -> npt.NDArray[np.float32]:
    """(queries, entities): scores by weights learned on the other half of the queries."""
    ends = np.cumsum([0] + [len(batch.answers) for batch in batches])
    parts = [slice(start, end) for start, end in pairwise(ends.tolist())]
    found: npt.NDArray[np.float32] = np.empty((len(first), batches[0].features.shape[1]), dtype=np.float32)
    batches = [without(batch, names, left_out) for batch in batches]
    for half in (first, ~first):
        learned = weights_for([rows_of(b, ~half[part]) for b, part in zip(batches, parts, strict=True)], names)
        for batch, part in zip(batches, parts, strict=True):
            found[part][half[part]] = rows_of(batch, half[part]).scores(*torch.from_numpy(learned)).numpy()
    return found


def graded(held_out: HoldOut, scores: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Figures under each filter, and of pairs that no known fact links yet."""
    filters = ("known",) if held_out.full is None else ("known", "full")
    protocols = [RankingProtocol(filter=name) for name in filters]
    scorer, figures = Recorded(held_out.queries, scores), {}
    results = evaluate_under(held_out.dataset, scorer, protocols, held_out.full, held_out.queries)
    apart = np.flatnonzero(~linked(held_out))
    unlinked = evaluate_under(held_out.dataset, scorer, protocols, held_out.full, held_out.queries.take(apart))
    for name, result, far in zip(filters, results, unlinked, strict=True):
        figures[name] = {metric: result.metrics()[metric] for metric in METRICS}
        figures[f"{name}, unlinked"] = {metric: far.metrics()[metric] for metric in METRICS}
    return figures


def linked(held_out: HoldOut) -> Mask:
    """Whether a query's entity is linked to its answer already."""
    facts = Overlay.of_dataset(held_out.dataset)
    pairs = zip(held_out.queries.entity.tolist(), held_out.queries.answer.tolist(), strict=True)
    return np.array([bool((facts.facts_of(entity)[1] == answer).any()) for entity, answer in pairs], dtype=bool)


def first_half(queries: Queries, seed: int) -> Mask:
    """Of the queries those about one half of the newcomers."""
    who = np.unique(queries.entity)
    drawn = np.random.default_rng([seed, 17]).permutation(who)[: len(who) // 2]
    half: Mask = np.isin(queries.entity, drawn)
    return half


def examples_of(learner: EnsembleLearner, held_out: HoldOut, online: bool = True) -> list[Examples]:
    """All candidates of the queries; with or without online rules."""
    without = patch.object(GraphStatistics, "online_rules", lambda *_: None)
    with nullcontext() if online else without:
        return list(examples(learner.engine, held_out.dataset, held_out.queries, len(held_out.dataset.entities)))


def rows(
    dataset: InductiveDataset, config: Config, full: Graph | None, device: str, threads: int
) -> Iterator[tuple[str, Any]]:
    """Each row of the table as soon as it is known."""
    fitted = fit(dataset, config, device=device, full=full, threads=threads)
    yield "validation", fitted.metrics["validation"]
    held_out = hold_out_newcomers(dataset, config, full)
    model, half = fitted.model, first_half(held_out.queries, config.seed)
    learner = EnsembleLearner(model, Prepared(fitted.dataset, model.rules, None), threads)
    names = learner.engine.feature_names

    def figures(batches: list[Examples], left_out: Collection[str] = ()) -> dict[str, Any]:
        return graded(held_out, cross_scores(batches, names, half, left_out))

    batches = examples_of(learner, held_out)
    for name, left_out in TOGETHER.items():
        if len(left_out) != 1 or left_out[0] in names:
            yield name, figures(batches, left_out)
    del batches
    if config.model.graph_statistics:
        yield "without online rules", figures(examples_of(learner, held_out, online=False))
    for kind in np.unique(model.rules.kinds).tolist():
        left = replace(learner, model=replace(model, rules=model.rules.where(model.rules.kinds != kind)))
        batches = examples_of(left, held_out, online=kind != Kind.ONE)  # online rules are of this kind
        yield f"without rules of the kind {Kind(kind).name.lower()}", figures(batches)


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
    has_full = all("full, unlinked" in rows[name] for rows in there)
    figures = f"{known}; {100 * mean('full, unlinked', 'mrr'):.1f}" if has_full else known
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
