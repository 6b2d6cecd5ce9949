"""All kinds of rules by one plan: exact rules of one and two atoms, rules with constants, sampled chains of three."""

import time

import numpy as np

from newcomer.graph import Graph
from newcomer.rules.mining.chains import ChainLimits, mine_chains
from newcomer.rules.mining.constants import ConstantLimits, mine_constants
from newcomer.rules.mining.horn import mine_horn
from newcomer.rules.mining.plan import HORN_KINDS, MiningPlan, MiningResult, Progress, best_rows
from newcomer.rules.rule import UNARY_KINDS, Kind, RuleSet, concatenate_rules


def mine_rules(
    graph: Graph,
    plan: MiningPlan | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> MiningResult:
    """Mine a graph by a plan; the result names the head relations whose one- and two-atom rules are complete."""
    started = time.monotonic()
    plan = plan or MiningPlan()
    parts, complete = [], np.arange(graph.num_relations, dtype=np.int32)
    confidence = max(plan.min_confidence, plan.SIDE_CONFIDENCE)
    if plan.chosen(HORN_KINDS):
        horn = mine_horn(graph, plan, threads, progress)
        parts.append(horn.rules)
        complete = horn.complete_relations
    if unary := plan.chosen(UNARY_KINDS):
        about = ConstantLimits(plan.min_support, confidence, plan.max_constants, unary)
        parts.append(mine_constants(graph, about, threads, progress))
    if Kind.THREE in plan.kinds:
        left = None if plan.time_limit is None else max(plan.time_limit - (time.monotonic() - started), 0.1)
        support = max(plan.min_support, ChainLimits.min_support)
        sampled = ChainLimits(plan.samples, left, min_support=support, min_confidence=confidence)
        parts.append(mine_chains(graph, sampled, seed, threads, progress))
    rules = _kept(concatenate_rules(parts, graph.num_relations), plan, graph)
    return MiningResult(rules, complete, time.monotonic() - started)


def _kept(rules: RuleSet, plan: MiningPlan, graph: Graph) -> RuleSet:
    """The rules that pass every limit, at most ``max_rules`` of them."""
    large = graph.relation_counts[rules.heads % max(graph.num_relations, 1)] >= plan.min_head_size
    rules = rules.where(large & (rules.pca_confidence >= plan.min_pca)).sorted()
    if plan.max_rules is None or len(rules) <= plan.max_rules:
        return rules
    return rules.where(best_rows(plan.max_rules, rules.pca_confidence, rules.support))
