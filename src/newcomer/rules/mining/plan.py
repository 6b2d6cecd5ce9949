"""All kinds of rules by one plan: exact Horn rules, rules with constants, chains of three atoms by sampling."""

import time
from dataclasses import dataclass, replace

import numpy as np

from newcomer.errors import OptionError, shown
from newcomer.graph import Graph
from newcomer.rules.mining.chains import mine_chains
from newcomer.rules.mining.chains_counting import ChainLimits
from newcomer.rules.mining.constants import ConstantLimits, mine_constants
from newcomer.rules.mining.horn import MINED_KINDS, MiningLimits, MiningResult, Progress, mine
from newcomer.rules.rule import ABOUT_ONE_VARIABLE, Kind, RuleSet, concatenate_rules


@dataclass(frozen=True)
class MiningPlan:
    """Which kinds to look for and which rules to keep.

    Head coverage is asked of walks between two variables only: a rule with a constant explains few of its relation's
    facts by nature. Such rules, and chains, need a standard confidence of ``SIDE_CONFIDENCE`` at least: there are
    millions of weaker ones. ``max_constants`` keeps so many rules about one variable, best by smoothed confidence.
    """

    kinds: tuple[Kind, ...] = MINED_KINDS
    min_support: int = 2
    min_head_coverage: float = 0.01
    min_confidence: float = 0.0
    min_pca: float = 0.0
    min_head_size: int = 1
    max_rules: int | None = None
    max_constants: int | None = None
    memory_limit: int | None = None
    time_limit: float | None = None
    samples: int = 20_000_000

    SIDE_CONFIDENCE = 0.05

    def __post_init__(self) -> None:
        if not self.kinds:
            raise OptionError("no kind of rule is asked for; give at least one")
        if wrong := [kind for kind in self.kinds if kind not in tuple(Kind)]:
            raise OptionError(f"{shown(wrong[0])} is no kind of rule; give some of {', '.join(k.name for k in Kind)}")
        # The limits of the miners know what is allowed, whichever of them will be asked.
        replace(self.horn_limits(self.time_limit), max_rules=self.max_rules)
        ConstantLimits(max_rules=self.max_constants)
        ChainLimits(samples=self.samples)

    def chosen(self, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
        """Those of ``kinds`` that the plan asks for."""
        return tuple(kind for kind in kinds if kind in self.kinds)

    def horn_limits(self, seconds: float | None) -> MiningLimits:
        """The limits of walks of one and two atoms."""
        return MiningLimits(
            min_support=self.min_support,
            min_head_coverage=self.min_head_coverage,
            min_confidence=self.min_confidence,
            min_pca=self.min_pca,
            min_head_size=self.min_head_size,
            memory_limit=self.memory_limit,
            time_limit=seconds,
            kinds=self.chosen(MINED_KINDS) or MINED_KINDS,
        )


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
    if plan.chosen(MINED_KINDS):
        horn = mine(graph, plan.horn_limits(plan.time_limit), threads, progress)
        parts.append(horn.rules)
        complete = horn.complete_relations
    if about := plan.chosen(ABOUT_ONE_VARIABLE):
        parts.append(_with_constants(graph, plan, about, threads, progress))
    if Kind.THREE in plan.kinds:
        parts.append(_chains(graph, plan, started, seed, threads, progress))
    rules = _kept(concatenate_rules(parts, graph.num_relations), plan, graph)
    return MiningResult(rules, complete, time.monotonic() - started)


def _with_constants(
    graph: Graph, plan: MiningPlan, kinds: tuple[Kind, ...], threads: int | None, progress: Progress | None
) -> RuleSet:
    limits = ConstantLimits(
        min_support=plan.min_support,
        min_confidence=max(plan.min_confidence, plan.SIDE_CONFIDENCE),
        max_rules=plan.max_constants,
        kinds=kinds,
    )
    return mine_constants(graph, limits, threads, progress).rules


def _chains(
    graph: Graph, plan: MiningPlan, started: float, seed: int, threads: int | None, progress: Progress | None
) -> RuleSet:
    left = None if plan.time_limit is None else max(plan.time_limit - (time.monotonic() - started), 0.1)
    limits = ChainLimits(
        samples=plan.samples,
        seconds=left,
        min_support=max(plan.min_support, ChainLimits.min_support),
        min_confidence=max(plan.min_confidence, plan.SIDE_CONFIDENCE),
    )
    return mine_chains(graph, limits, seed, threads, progress).rules


def _kept(rules: RuleSet, plan: MiningPlan, graph: Graph) -> RuleSet:
    """The rules that pass every limit, at most ``max_rules`` of them: best by PCA confidence, then support."""
    large = graph.relation_counts[rules.heads % max(graph.num_relations, 1)] >= plan.min_head_size
    rules = rules.where(large & (rules.pca_confidence >= plan.min_pca)).sorted()
    if plan.max_rules is None or len(rules) <= plan.max_rules:
        return rules
    best = np.lexsort((np.arange(len(rules)), -rules.support, -rules.pca_confidence))
    return rules.where(np.sort(best[: plan.max_rules]))
