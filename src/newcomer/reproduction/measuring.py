"""What a cell measures that needs no training: figures of a data set, and how rules rank by themselves."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from newcomer import __version__
from newcomer.config import Config
from newcomer.data.dataset import parts_of
from newcomer.data.describe import describe, neighbours_per_predicted_fact
from newcomer.evaluation.metrics import MEASURED
from newcomer.evaluation.ranking import RankingProtocol, RankingResult, ceiling, evaluate_under
from newcomer.evaluation.report import Report, figures_of, headline, json_ready, rows_by
from newcomer.graph import Graph, Ids, InductiveDataset, Overlay
from newcomer.models.grounding import ground
from newcomer.reproduction.plans import Cell
from newcomer.reproduction.sources import Source
from newcomer.rules.limits import thread_count
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.rule import Kind, RuleSet
from newcomer.training.preparation import mined_rules

BY = ("class", "facts", "frequency", "evidence")  # breakdowns of few rows


def core_of(cell: Cell) -> Report:
    """The names that every result begins with; those of a ranking and the metrics are filled in later."""
    return {
        "task": cell.task,
        "dataset": cell.dataset,
        "model": cell.model,
        "protocol": cell.protocol,
        "filter": None,
        "candidates": None,
        "seed": cell.seed,
        "metrics": {},
    }


def _circumstances() -> Report:
    versions = {"newcomer": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return {"preset": None, "encoder": None, "decoder": None, "versions": versions, "device": "cpu"}


def statistics_report(cell: Cell, source: Source, threads: int | None) -> Report:
    """Counts of a data set, and a newcomer's neighbours for each fact asked, before and after rules add to them."""
    assert cell.config is not None
    described, dataset = describe(source.loaded), source.dataset
    rows = {role: len(triples) for role, triples in parts_of(dataset).items()}
    rows |= {role: part.rows for role, part in source.loaded.parts.items()}
    report = {
        **core_of(cell),
        "counts": {
            **rows,
            "newcomers": described.test_newcomers,
            "entities": described.entities,
            "relations": described.relations,
            "distinct": described.triples,
        },
        **_neighbours(dataset, cell.config, threads),
        **_circumstances(),
    }
    return json_ready(report)


def _neighbours(dataset: InductiveDataset, config: Config, threads: int | None) -> Report:
    if len(dataset.test_newcomers) == 0:
        return {"neighbours": None, "rule_count": None}
    rules = mined_rules(dataset, config, threads)
    logic_alone = replace(config, rules=replace(config.rules, paths=False))
    found = {
        "before": neighbours_per_predicted_fact(dataset, dataset.auxiliary.degrees),
        "by_logic_rules": _ratio_after(dataset, rules, logic_alone, threads),
        "after": _ratio_after(dataset, rules, config, threads),
    }
    return {"neighbours": found, "rule_count": len(rules)}


def _ratio_after(dataset: InductiveDataset, rules: RuleSet, config: Config, threads: int | None) -> float | None:
    virtual = ground(rules, Overlay.of_dataset(dataset), dataset.test_newcomers, config, threads)
    degrees: Ids = dataset.auxiliary.degrees
    if virtual is not None:
        degrees = degrees + virtual.degrees(len(dataset.entities))
    return neighbours_per_predicted_fact(dataset, degrees)


def rules_report(cell: Cell, dataset: InductiveDataset, full: Graph | None, threads: int | None) -> Report:
    """Test ranked by rules alone, under both filters where the original graph is there."""
    graph = dataset.observed if cell.protocol == "inductive" else dataset.known_facts()
    rules = mine_rules(graph, _mining_plan(cell.mining or {}), cell.seed, threads).rules
    ranker = RuleScorer(RuleRanker.of(rules), Overlay.of_dataset(dataset), thread_count(threads))
    protocols = [RankingProtocol(filter=name) for name in (("known",) if full is None else ("known", "full"))]
    known, *rest = map(headline, evaluate_under(dataset, ranker, protocols, full=full))
    report = {
        **core_of(cell),
        "filter": known.protocol.filter,
        "candidates": known.protocol.candidates,
        **_figures(known),
        "also": next((_named(other, dataset, full) for other in rest), None),
        "ceiling": None if full is None else _ceiling(known, dataset, full),
        "ties": known.protocol.ties,
        "breakdowns": rows_by(BY, known, dataset, full),
        "rule_count": len(rules),
        **_circumstances(),
    }
    return json_ready(report)


def _mining_plan(mining: Mapping[str, Any]) -> MiningPlan:
    kinds = tuple(Kind[name.upper()] for name in mining["kinds"])
    return MiningPlan(**{**mining, "kinds": kinds})


def _named(result: RankingResult, dataset: InductiveDataset, full: Graph | None) -> Report:
    rows = rows_by(BY, result, dataset, full)
    return {"filter": result.protocol.filter, **_figures(result), "breakdowns": rows}


def _figures(result: RankingResult) -> Report:
    generator = np.random.default_rng(0)
    intervals = {name: asdict(result.interval(name, generator)) for name in MEASURED}
    return {"metrics": figures_of(result), "intervals": intervals, "queries": len(result.queries)}


def _ceiling(known: RankingResult, dataset: InductiveDataset, full: Graph) -> Report:
    best = ceiling(dataset, full, queries=known.queries)
    metrics = {name: best[name] for name in MEASURED}
    return {"filter": "known", "candidates": "seen", "metrics": metrics}
