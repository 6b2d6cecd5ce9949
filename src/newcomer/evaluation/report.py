"""A trained model measured on the test part of a data set, and what is written down of it.

Questions about newcomers make the figures; those about seen entities alone are reported apart (where test has no
newcomer at all, they are the figures). Every figure comes with a bootstrap interval over questions.

A report is a table that JSON can hold. Its first names are fixed: ``task``, ``dataset``, ``model``, ``protocol``,
``filter``, ``candidates``, ``seed`` (that of the training) and ``metrics``, in fractions of 1 but for the mean rank
``mr``. A figure that is no number is null.
"""

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from newcomer import __version__
from newcomer.config import Config, config_hash, load_preset
from newcomer.data.cut import CutDataset, FactsCut
from newcomer.errors import DatasetError, OptionError, shown, unknown_name
from newcomer.evaluation.alignment import AlignedModel, AlignedScorer, rule_scorer_for, scorer_for
from newcomer.evaluation.breakdown import breakdown, to_rows
from newcomer.evaluation.calibration import Answers, Probabilities
from newcomer.evaluation.classification import ClassificationResult, RelationThresholds, classified_anew, classify
from newcomer.evaluation.metrics import MEASURED, METRICS, Comparison, Interval, paired_bootstrap
from newcomer.evaluation.ranking import (
    FILTERS,
    Progress,
    Queries,
    RankingProtocol,
    RankingResult,
    align,
    ceiling,
    compare,
    evaluate_under,
    queries_of,
)
from newcomer.evaluation.reliability import (
    calibration_report,
    judged_triples,
    overheard,
    probabilities_of,
    shown_answers,
    triple_probabilities,
    triples_report,
)
from newcomer.evaluation.stored import calibration_of, decides_by_probability, thresholds_in
from newcomer.files import fresh_file
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.bundle import RESULT, Bundle, dataset_hash
from newcomer.models.scorer import Scorer

RANKING, CLASSIFICATION = TASKS = ("link-prediction", "triple-classification")
BREAKDOWN_NAMES = {
    "relation": "relation",
    "class": "relation_class",
    "facts": "known_facts",
    "frequency": "relation_frequency",
    "linked": "linked",
    "evidence": "evidence",
}
ACCURACY = "accuracy"
NEWCOMERS, PROBABILITIES, VALID = THRESHOLDS = ("newcomers", "probabilities", "valid")  # whom thresholds are found on
HALF = RelationThresholds(0.5)  # of probabilities

Report = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A model and the data set it is measured on; the seed is that of resampling and of made-up triples.

    With a ``cut``, newcomers are known by fewer facts than the data set has of them. ``thresholds`` are those for
    newcomers, which the model was stored with, those of valid, or none where a probability of a half makes a triple
    true. Unless stated, test's newcomers are classified by probabilities, where a network has learned them from
    labels, else by the thresholds for newcomers, where the model has any; everyone else by those of valid.
    """

    bundle: Bundle
    dataset: InductiveDataset
    device: torch.device
    threads: int | None = None
    seed: int = 0
    cut: FactsCut | None = None
    thresholds: str | None = None

    @property
    def thresholds_from(self) -> str:
        """Whom the thresholds are from."""
        if self.thresholds is not None:
            return self.thresholds
        stored = thresholds_in(self.bundle, self.dataset.relations) is not None
        if not (stored and len(self.dataset.test_newcomers)):
            return VALID
        return PROBABILITIES if decides_by_probability(self.bundle.metrics, self.bundle.config) else NEWCOMERS

    @property
    def stored_thresholds(self) -> RelationThresholds | None:
        """Those of the model, where they are to be used."""
        if self.thresholds_from == VALID:
            return None
        if self.thresholds_from == PROBABILITIES:
            calibration = calibration_of(self.bundle)
            if calibration is None or calibration.triples is None:
                raise OptionError(
                    "the model's probabilities of triples are not calibrated: it was trained without validation; pass "
                    "--thresholds valid, or train it again"
                )
            return HALF
        stored = thresholds_in(self.bundle, self.dataset.relations)
        if stored is None:
            raise OptionError(
                "the model has no thresholds for newcomers: it was trained without validation, or before there were "
                "any; pass --thresholds valid, or train it again"
            )
        return stored

    @cached_property
    def told(self) -> InductiveDataset:
        """The data set as far as its facts are told to the model."""
        if self.cut is None:
            return self.dataset
        told = self.cut.of(self.dataset)
        _check_untold(self.bundle, told)
        return told

    @property
    def generator(self) -> np.random.Generator:
        """A fresh one: two models are asked the same, and one alone as beside others."""
        return np.random.default_rng(self.seed)


def _check_untold(bundle: Bundle, dataset: CutDataset) -> None:
    """Refuse to withhold from a model what it was trained on."""
    facts = dataset.withheld
    trained_on = align(bundle.observed, dataset).contains(facts.heads, facts.relations, facts.tails)
    if trained_on.any():
        count = f"{int(trained_on.sum()):,} of the {len(facts):,}"
        raise OptionError(
            f"the model was trained on {count} facts that the cut to {dataset.cut.most} would withhold; "
            "leave out --known-facts, or train under the protocol inductive or refreshed"
        )


@dataclass(frozen=True, eq=False)
class Ranked:
    """All questions of test as the model ranks them and, where asked for, its parts by themselves.

    Of the filters the one that was asked for comes first. A model has rules or not; where they have no say in its
    answers, it is the network alone.
    """

    model: list[RankingResult]
    network: list[RankingResult]
    rules: list[RankingResult]
    unknown: int  # questions about newcomers along a relation that the model does not have
    shown: Answers  # what a user would be shown in answer to the questions that make the figures
    probabilities: Probabilities | None  # of these answers, where the model is calibrated


def check_same_data(bundle: Bundle, dataset: InductiveDataset, run: Path, place: str) -> None:
    """Refuse another data set than the one trained on."""
    stated = bundle.manifest
    if dataset_hash(dataset) != stated.dataset_hash:
        raise DatasetError(
            f"{place}: is not the data set {shown(stated.dataset_name)} that {run} was trained on (its content has "
            "another hash); name the place of that one with --data, or pass --any-data to evaluate on this one"
        )


def default_task(dataset: InductiveDataset) -> str:
    """Classification where test says which triples are false, else ranking."""
    return RANKING if dataset.test.labels is None else CLASSIFICATION


def model_name(config: Config) -> str:
    """The short name in tables: the preset ``default`` by that name, all else by its encoder."""
    encoder = config.model.encoder
    return "default" if config.preset == "default" and encoder == load_preset("default").model.encoder else encoder


def rank_test(
    case: Case,
    protocol: RankingProtocol,
    full: Graph | None = None,
    with_parts: bool = False,
    progress: Progress | None = None,
) -> Ranked:
    """Rank the answers of test under a protocol, and with a full graph under the other filter too, in one pass."""
    if full is None and protocol.filter == "full":
        raise OptionError("the filter 'full' needs a graph of all true triples; name it with --full-graph")
    other = "known" if protocol.filter == "full" else "full"
    protocols = [protocol] if full is None else [protocol, replace(protocol, filter=other)]
    dataset, queries = case.told, queries_of(case.dataset)

    def ranked(scorer: Scorer) -> list[RankingResult]:
        return evaluate_under(dataset, scorer, protocols, full, queries, progress)

    with limited_threads(case.threads):
        scorer = scorer_for(case.bundle, dataset, case.device, case.threads)
        heard = overheard(scorer, dataset, FILTERS[protocol.filter](dataset, full))
        by_model, network = ranked(heard), scorer.embedding
        by_network = ranked(network) if with_parts and network is not None else []
    has_rules = len(case.bundle.rules) > 0  # without any, only frequencies would be left to rank by
    by_rules = ranked(rule_scorer_for(case.bundle, dataset, case.threads)) if with_parts and has_rules else []
    asked = headline(by_model[0]).queries
    shown_to_users = shown_answers(heard, scorer, asked)
    probabilities = probabilities_of(shown_to_users, calibration_of(case.bundle), scorer.alignment.relations)
    return Ranked(by_model, by_network, by_rules, _unknown(scorer, asked), shown_to_users, probabilities)


def _unknown(scorer: AlignedScorer, queries: Queries) -> int:
    return int((~scorer.alignment.knows(queries.relation)).sum())


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Within the block torch has so many threads; None leaves it as many as it has."""
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)


def headline(result: RankingResult) -> RankingResult:
    """The questions that make the figures: those about newcomers, or all where there is none."""
    about_newcomers = result.queries.group == "newcomer"
    return _part(result, about_newcomers) if about_newcomers.any() else result


def _part(result: RankingResult, mask: Any) -> RankingResult:
    kept = result.ranks[mask], result.candidates[mask]
    return replace(result, queries=result.queries.take(mask), ranks=kept[0], candidates=kept[1])


def classify_test(case: Case) -> ClassificationResult:
    """The test triples as true or false, by the thresholds of the case."""
    if case.thresholds_from == PROBABILITIES:
        return judge_test(case).result
    with limited_threads(case.threads):
        scorer = scorer_for(case.bundle, case.told, case.device, case.threads)
        return classify(case.told, scorer, case.generator, case.stored_thresholds)


@dataclass(frozen=True, eq=False)
class Judged:
    """Test triples as true or false, and how true each is said to be."""

    result: ClassificationResult
    triples: Answers
    probabilities: Probabilities | None  # of these triples, where the model is calibrated


def judge_test(case: Case) -> Judged:
    """As `classify_test`, with the probabilities of the verdicts."""
    with limited_threads(case.threads):
        scorer = scorer_for(case.bundle, case.told, case.device, case.threads)
        result = classify(case.told, scorer, case.generator, case.stored_thresholds)
        triples = judged_triples(scorer, case.told, result)
    probabilities = triple_probabilities(triples, calibration_of(case.bundle), scorer.alignment.relations)
    if case.thresholds_from == PROBABILITIES and probabilities is not None:
        result = classified_anew(result, _with_unknown(result, scorer, probabilities), HALF, case.generator)
    return Judged(result, triples, probabilities)


def _with_unknown(result: ClassificationResult, scorer: AlignedModel, probabilities: Probabilities) -> Probabilities:
    """The probabilities of all triples: none of those along a relation that the model lacks."""
    known = scorer.alignment.knows(result.triples.relations)
    everything = np.zeros(len(known))
    everything[known] = probabilities
    return everything


def ranking_report(
    case: Case, ranked: Ranked, by: Sequence[str] = (), full: Graph | None = None, seconds: float = 0.0
) -> Report:
    """What was found, as the module says."""
    asked = headline(ranked.model[0])
    others = [headline(other) for other in ranked.model[1:]]
    best = None if full is None else ceiling(case.told, full, queries=asked.queries)
    report: Report = {
        **_core(case, RANKING, asked.protocol),
        **_figures(case, asked),
        "also": next(({**_named(case, one), "breakdowns": rows_by(by, one, case.told, full)} for one in others), None),
        "seen": [_named(case, rest) for rest in map(left_out, ranked.model) if len(rest.queries)],
        "network": [_named(case, headline(result)) for result in ranked.network],
        "rules": [_named(case, headline(result)) for result in ranked.rules],
        "ceiling": None if best is None else {"filter": "known", "candidates": "seen", "metrics": _measured(best)},
        "ties": asked.protocol.ties,
        "unknown_relation_queries": ranked.unknown,
        "breakdowns": rows_by(by, asked, case.told, full),
        "calibration": calibration_report(ranked.shown, ranked.probabilities, case.told),
        **_circumstances(case, seconds),
    }
    return json_ready(report)


def rows_by(by: Sequence[str], result: RankingResult, dataset: InductiveDataset, full: Graph | None) -> list[Report]:
    """A row a group of each of these breakdowns."""
    if not by:
        return []
    groups = breakdown(result, dataset, full)
    return to_rows({name: groups[BREAKDOWN_NAMES[name]] for name in by})


def left_out(result: RankingResult) -> RankingResult:
    """The questions that `headline` leaves out."""
    groups = result.queries.group
    return _part(result, (groups == "seen") & (groups == "newcomer").any())


def _named(case: Case, result: RankingResult) -> Report:
    return {"filter": result.protocol.filter, **_figures(case, result)}


def _figures(case: Case, result: RankingResult) -> Report:
    generator = case.generator
    return {
        "metrics": figures_of(result),
        "intervals": {name: asdict(result.interval(name, generator)) for name in MEASURED},
        "queries": len(result.queries),
    }


def figures_of(result: RankingResult) -> dict[str, float]:
    """The figures that are reported of a ranking."""
    return _measured(result.metrics())


def _measured(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in MEASURED}


def classification_report(
    case: Case,
    result: ClassificationResult,
    by: Sequence[str] = (),
    seconds: float = 0.0,
    judged: Judged | None = None,
) -> Report:
    """What was found, as the module says; the only breakdown is that by relation; probabilities only with ``judged``."""
    found = result.to_dict()
    report: Report = {
        **_core(case, CLASSIFICATION),
        "metrics": found["metrics"],
        "intervals": {ACCURACY: found["accuracy_interval"]},
        "queries": found["triples"],
        "thresholds": case.thresholds_from,
        "made_up_negatives": found["made_up_negatives"],
        "breakdowns": [{"by": "relation", **row} for row in found["relations"]] if "relation" in by else [],
        "calibration": None if judged is None else triples_report(judged.triples, judged.probabilities, case.told),
        **_circumstances(case, seconds),
    }
    return json_ready(report)


def _core(case: Case, task: str, protocol: RankingProtocol | None = None) -> Report:
    config = case.bundle.config
    return {
        "task": task,
        "dataset": case.dataset.name,
        "model": model_name(config),
        "protocol": config.protocol,
        "filter": None if protocol is None else protocol.filter,
        "candidates": None if protocol is None else protocol.candidates,
        "seed": config.seed,
    }


def _circumstances(case: Case, seconds: float) -> Report:
    config = case.bundle.config
    return {
        "known_facts": case.told.summary() if isinstance(case.told, CutDataset) else None,
        "preset": config.preset,
        "encoder": config.model.encoder,
        "decoder": config.model.decoder,
        "trained_on": case.bundle.metrics.get("trained_on"),
        "dataset_sha256": dataset_hash(case.dataset),
        "trained_on_sha256": case.bundle.manifest.dataset_hash,
        "config_sha256": config_hash(config),
        "evaluation_seed": case.seed,
        "versions": {
            "newcomer": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": str(torch.__version__),
        },
        "device": case.device.type,
        "seconds": round(seconds, 1),
    }


def json_ready(report: Report) -> Report:
    """The report with null for figures that are no numbers."""
    return {name: _plain(value) for name, value in report.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def result_path(run: Path, task: str, dataset: InductiveDataset) -> Path:
    """Where a report goes: ``result.json`` in the model's folder, or for a task not the data's own a name with it."""
    return run / (RESULT if task == default_task(dataset) else f"{Path(RESULT).stem}-{task}.json")


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """The report as a file that appears whole or not at all; an older one is replaced."""
    with fresh_file(path) as partial:
        partial.write_bytes((json.dumps(report, indent=2, allow_nan=False) + "\n").encode("ascii"))


def write_ranks(result: RankingResult, path: Path) -> None:
    """A row a question, see `RankingResult.to_table`."""
    import pyarrow.parquet as pq

    with fresh_file(path) as partial, partial.open("wb") as file:
        pq.write_table(result.to_table(), file, compression="zstd")


@dataclass(frozen=True, eq=False)
class Entrant:
    """One of several models: its value of the metric they are compared by, and how far that is above the first's."""

    metrics: Mapping[str, float]
    value: float
    interval: Interval
    comparison: Comparison | None


def metric_task(metric: str) -> str:
    """The task that a metric belongs to."""
    if metric == ACCURACY:
        return CLASSIFICATION
    if metric not in METRICS:
        raise unknown_name("metric", metric, (*METRICS, ACCURACY))
    return RANKING


def compare_rankings(results: Sequence[RankingResult], metric: str, seed: int = 0) -> list[Entrant]:
    """Rankings of the same questions against the first, by resampled questions."""
    generator, entrants = np.random.default_rng(seed), []
    for place, result in enumerate(results):
        value, interval = result.metrics()[metric], result.interval(metric, generator)
        against = compare(result, results[0], metric, generator) if place else None
        entrants.append(Entrant(figures_of(result), value, interval, against))
    return entrants


def compare_classifications(results: Sequence[ClassificationResult], seed: int = 0) -> list[Entrant]:
    """Classifications of the same triples against the first, by resampled triples."""
    generator, entrants = np.random.default_rng(seed), []
    first = _as_ranks(results[0])
    for place, result in enumerate(results):
        against = paired_bootstrap(_as_ranks(result), first, "hits@1", generator) if place else None
        named = None if against is None else replace(against, metric=ACCURACY)
        entrants.append(Entrant(result.metrics(), result.metrics()[ACCURACY], result.interval, named))
    return entrants


def _as_ranks(result: ClassificationResult) -> Any:
    """A triple that is classified rightly as rank 1, else 2: accuracy is then Hits@1."""
    return np.where(result.labels == result.said, 1.0, 2.0)
