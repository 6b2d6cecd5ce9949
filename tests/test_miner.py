"""Mining by one plan: which kinds, which limits, and the same rules whatever the threads."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import complaint
from newcomer.data import load_dataset
from newcomer.errors import OptionError
from newcomer.graph import Graph
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.mining.constants import ConstantLimits, mine_constants
from newcomer.rules.mining.horn import mine_horn
from newcomer.rules.mining.plan import HORN_KINDS
from newcomer.rules.rule import COLUMNS, UNARY_KINDS, Kind, RuleSet
from rule_oracle import graph_of, random_rows

EVERYTHING = MiningPlan(kinds=tuple(Kind), min_head_coverage=0.0, samples=20_000)


@pytest.fixture(scope="module")
def sample() -> Graph:
    return load_dataset("sample").observed


@pytest.fixture(scope="module")
def all_rules(sample: Graph) -> RuleSet:
    return mine_rules(sample, EVERYTHING).rules


def same(left: RuleSet, right: RuleSet) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in COLUMNS)


def of_kinds(rules: RuleSet, kinds: tuple[Kind, ...]) -> RuleSet:
    return rules.where(np.isin(rules.kinds, kinds))


def test_the_default_plan_is_what_the_horn_miner_finds(sample):
    assert same(mine_rules(sample).rules, mine_horn(sample).rules)
    assert len(mine_horn(sample).rules) > 100


def test_every_kind_is_found_and_stands_in_the_one_order(all_rules):
    assert set(all_rules.kinds.tolist()) == set(Kind)
    assert all_rules.canonical_order().tolist() == list(range(len(all_rules)))


@pytest.mark.parametrize("kinds", [(kind,) for kind in Kind] + [(Kind.EXISTS, Kind.ONE), (Kind.THREE, Kind.BOTH)])
def test_a_plan_for_some_kinds_finds_those_of_the_plan_for_all(sample, all_rules, kinds):
    assert same(mine_rules(sample, replace(EVERYTHING, kinds=kinds)).rules, of_kinds(all_rules, kinds))


def test_parts_are_those_of_the_single_miners(sample, all_rules):
    closed = mine_horn(sample, MiningPlan(min_head_coverage=0.0)).rules
    assert same(of_kinds(all_rules, HORN_KINDS), closed.sorted())
    constants = mine_constants(sample, ConstantLimits(min_support=2))
    assert same(of_kinds(all_rules, UNARY_KINDS), constants.sorted())


def test_head_coverage_is_asked_of_rules_of_one_and_two_atoms_only(sample, all_rules):
    few = mine_rules(sample, replace(EVERYTHING, min_head_coverage=0.5)).rules
    closed = of_kinds(few, HORN_KINDS)
    assert 0 < len(closed) < len(of_kinds(all_rules, HORN_KINDS))
    assert (closed.head_coverage >= 0.5).all()
    assert same(of_kinds(few, UNARY_KINDS), of_kinds(all_rules, UNARY_KINDS))


@pytest.mark.parametrize(
    ("limit", "figure", "value"),
    [
        ("min_support", "support", 12),
        ("min_confidence", "confidence", 0.6),
        ("min_pca", "pca_confidence", 0.7),
    ],
)
def test_a_limit_keeps_exactly_the_rules_that_pass_it(sample, all_rules, limit, figure, value):
    # Chains are sampled and kept by smoothed confidence: for them the limit is a lower bound only.
    exact = tuple(kind for kind in Kind if kind != Kind.THREE)
    found = mine_rules(sample, replace(EVERYTHING, kinds=exact, **{limit: value})).rules
    expected = of_kinds(all_rules, exact)
    expected = expected.where(getattr(expected, figure) >= value)
    assert same(found, expected) and 0 < len(found) < len(all_rules)
    chains = mine_rules(sample, replace(EVERYTHING, kinds=(Kind.THREE,), **{limit: value})).rules
    assert len(chains) and (getattr(chains, figure) >= value).all()


def test_head_size_is_the_number_of_facts_of_the_relation_for_every_kind(sample, all_rules):
    found = mine_rules(sample, replace(EVERYTHING, min_head_size=300)).rules
    large = sample.relation_counts[all_rules.heads % sample.num_relations] >= 300
    assert same(found, all_rules.where(large)) and 0 < len(found) < len(all_rules)


def test_max_constants_keeps_the_most_confident_with_constants_and_all_others(sample, all_rules):
    every, most = of_kinds(all_rules, UNARY_KINDS), 200
    kept = mine_rules(sample, replace(EVERYTHING, max_constants=most)).rules
    found = of_kinds(kept, UNARY_KINDS)
    assert len(found) == most < len(every)
    assert np.array_equal(np.sort(found.smoothed_confidence), np.sort(every.smoothed_confidence)[-most:])
    others = tuple(kind for kind in Kind if kind not in UNARY_KINDS)
    assert same(of_kinds(kept, others), of_kinds(all_rules, others))


@pytest.mark.parametrize("most", [1, 50, 10**9])
def test_max_rules_keeps_the_best_by_pca_then_support(sample, all_rules, most):
    kept = mine_rules(sample, replace(EVERYTHING, max_rules=most)).rules
    best = sorted(zip(-all_rules.pca_confidence, -all_rules.support, range(len(all_rules)), strict=True))[:most]
    assert same(kept, all_rules.where(np.array(sorted(row for *_, row in best))))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(sample, all_rules, threads):
    assert same(mine_rules(sample, EVERYTHING, threads=threads).rules, all_rules)


def test_the_seed_decides_what_is_sampled_and_nothing_else(sample, all_rules):
    again = mine_rules(sample, EVERYTHING, seed=0).rules
    other = mine_rules(sample, EVERYTHING, seed=1).rules
    assert same(again, all_rules)
    sampled = (Kind.THREE,)
    assert not same(of_kinds(other, sampled), of_kinds(all_rules, sampled))
    exact = tuple(kind for kind in Kind if kind != Kind.THREE)
    assert same(of_kinds(other, exact), of_kinds(all_rules, exact))


def test_memory_limit_changes_nothing_but_the_way(sample):
    assert same(mine_rules(sample, MiningPlan(memory_limit=100_000)).rules, mine_rules(sample).rules)


def test_a_short_time_leaves_whole_relations_out(sample):
    result = mine_rules(sample, MiningPlan(time_limit=1e-9))
    assert not result.complete and len(result.complete_relations) < sample.num_relations
    # What is there is complete: every rule of a finished relation, no rule of another.
    everything = mine_horn(sample).rules
    finished = np.isin(everything.heads, result.complete_relations)
    assert same(result.rules, everything.where(finished))


def test_enough_time_finishes_every_relation(sample):
    result = mine_rules(sample, MiningPlan(time_limit=1e6))
    assert result.complete and result.complete_relations.tolist() == list(range(sample.num_relations))
    assert result.seconds > 0


def test_without_closed_there_is_no_relation_left_to_finish(sample):
    assert mine_rules(sample, MiningPlan(kinds=(Kind.EXISTS,), time_limit=1e-9)).complete


@pytest.mark.parametrize("graph", [graph_of([], 0, 0), graph_of([], 3, 2), graph_of([(0, 0, 1)], 2, 1)])
def test_a_graph_with_nothing_to_find_has_no_rules(graph):
    for kinds in (HORN_KINDS, UNARY_KINDS, tuple(Kind)):
        result = mine_rules(graph, MiningPlan(kinds=kinds, samples=100))
        assert len(result.rules) == 0 and result.complete


@pytest.mark.parametrize("seed", range(10))
def test_figures_of_small_graphs_can_be_true_together(seed):
    rng = np.random.default_rng(seed)
    graph = graph_of(random_rows(rng, 8, 3, 40), 8, 3)
    rules = mine_rules(graph, replace(EVERYTHING, min_support=1), seed).rules
    assert len(rules)
    assert (rules.support <= rules.pca_body_size).all() and (rules.pca_body_size <= rules.body_size).all()
    assert (rules.support <= rules.head_size).all()


def test_progress_is_reported_to_the_end(sample):
    reported: list[tuple[int, int]] = []
    mine_rules(sample, MiningPlan(), progress=lambda done, total: reported.append((done, total)))
    assert reported and reported[-1][0] == reported[-1][1]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kinds": ()}, "no kind of rule"),
        ({"kinds": (Kind.ONE, 9)}, "9 is no kind of rule"),
        ({"min_support": 0}, "min_support is 0"),
        ({"min_support": 10**30}, "must be at most"),
        ({"min_head_size": -1}, "min_head_size is -1"),
        ({"min_head_coverage": 1.01}, "min_head_coverage is 1.01"),
        ({"min_confidence": -0.5}, "min_confidence is -0.5"),
        ({"min_pca": float("nan")}, "min_pca is nan"),
        ({"max_rules": 0}, "max_rules is 0"),
        ({"max_rules": -3}, "max_rules is -3"),
        ({"max_constants": 0}, "max_constants is 0"),
        ({"memory_limit": 0}, "memory_limit is 0"),
        ({"time_limit": -1.0}, "time_limit is -1.0"),
        ({"samples": 0}, "samples is 0"),
    ],
)
def test_values_out_of_range_are_refused(wrong, named):
    error = complaint(MiningPlan, **wrong)
    assert isinstance(error, OptionError) and named in str(error)


@pytest.mark.parametrize("threads", [0, -1])
@pytest.mark.parametrize("kinds", [HORN_KINDS, UNARY_KINDS, (Kind.THREE,)])
def test_no_threads_are_refused(sample, threads, kinds):
    assert "threads" in str(complaint(mine_rules, sample, MiningPlan(kinds=kinds, samples=100), threads=threads))
