"""What a cell measures that needs no training: figures of a data set, and how rules rank by themselves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from newcomer.config import Config
from newcomer.data.dataset import parts_of
from newcomer.data.describe import describe, neighbours_per_predicted_fact
from newcomer.evaluation.breakdown import breakdown
from newcomer.evaluation.measure import headline
from newcomer.evaluation.ranking import RankingProtocol, evaluate_under
from newcomer.evaluation.report import Report, ceiling_report, figures_of, json_ready, versions
from newcomer.graph import Graph, Ids, InductiveDataset, Overlay
from newcomer.models.grounding import ground
from newcomer.reproduction.plans import Cell
from newcomer.reproduction.sources import Source
from newcomer.rules.limits import thread_count
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.rule import Kind, RuleSet
from newcomer.training.preparation import mined_rules

BY = ("evidence",)  # the breakdown that the page takes a row of


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
        "versions": versions(),
        "device": "cpu",
    }


def statistics_report(cell: Cell, source: Source, threads: int | None) -> Report:
    """Counts of a data set, and a newcomer's neighbours for each fact asked, before and after rules add to them."""
    assert cell.config is not None
    described, dataset = describe(source.loaded), source.dataset
    counts: Report = {role: len(triples) for role, triples in parts_of(dataset).items()}
    counts |= {role: part.rows for role, part in source.loaded.parts.items()}
    counts |= {"newcomers": described.test_newcomers, "entities": described.entities}
    counts |= {"relations": described.relations, "distinct": described.triples}
    return json_ready({**core_of(cell), "counts": counts, **_neighbours(dataset, cell.config, threads)})


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
    others = ({**figures_of(one, 0), "breakdowns": breakdown(one, dataset, BY)} for one in rest)
    report = {
        **core_of(cell),
        **figures_of(known, 0),
        "candidates": known.protocol.candidates,
        "ties": known.protocol.ties,
        "also": next(others, None),
        "ceiling": ceiling_report(dataset, full, known.queries),
        "rule_count": len(rules),
    }
    return json_ready(report)


def _mining_plan(mining: Mapping[str, Any]) -> MiningPlan:
    kinds = tuple(Kind[name.upper()] for name in mining["kinds"])
    return MiningPlan(**{**mining, "kinds": kinds})
