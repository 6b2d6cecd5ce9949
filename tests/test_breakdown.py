"""Breakdowns of a ranking: groups by hand and by brute force, shares that add up, and paired comparisons of results."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_dataset, needs_data
from newcomer.data import load_dataset
from newcomer.evaluation import metrics
from newcomer.evaluation.breakdown import BREAKDOWNS, Row
from newcomer.evaluation.breakdown import breakdown as all_rows
from newcomer.evaluation.metrics import METRICS, bootstrap_mean, paired_bootstrap, summary
from newcomer.evaluation.ranking import (
    Queries,
    RankingProtocol,
    RankingResult,
    queries_of,
)
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary


def ranked(
    dataset: InductiveDataset, ranks: list[float] | None = None, queries: Queries | None = None, filter: str = "known"
) -> RankingResult:
    """A result with the ranks given (1, 2, 3, ... where none are) among a hundred candidates each."""
    queries = queries_of(dataset) if queries is None else queries
    places = np.arange(1.0, len(queries) + 1) if ranks is None else np.array(ranks, dtype=float)
    counts = np.full(len(queries), 100, dtype=np.int64)
    return RankingResult(queries, places, counts, RankingProtocol(filter), dataset.entities, dataset.relations)


def town() -> InductiveDataset:
    """Two newcomers, new and newer; ``knows`` has no observed fact and ``lives`` has many people for a place."""
    return make_dataset(
        train=[("ann", "lives", "rome"), ("bob", "lives", "rome"), ("cid", "lives", "oslo"), ("ann", "wed", "bob")],
        aux=[("new", "wed", "ann"), ("new", "likes", "rome"), ("cid", "knows", "new"), ("newer", "likes", "oslo")],
        test=[
            ("new", "lives", "rome"),  # linked by likes; n-1; the relation has three facts
            ("ann", "knows", "new"),  # linked by wed; the relation was never observed
            ("newer", "wed", "bob"),  # not linked; 1-1
        ],
    )


def breakdown(result: RankingResult, dataset: InductiveDataset) -> dict[str, list[Row]]:
    """The rows of all breakdowns, by their names."""
    found = defaultdict(list)
    for row in all_rows(result, dataset):
        found[row["by"]].append(row)
    return found


def members(groups: list[Row]) -> dict[str, int]:
    return {group["group"]: group["queries"] for group in groups}


def test_a_worked_example():
    found = breakdown(ranked(town(), [1, 4, 2]), town())
    assert {name: members(groups) for name, groups in found.items()} == {
        "relation": {"knows": 1, "wed": 1, "lives": 1},
        "class": {"n-1": 1, "unseen": 1, "1-1": 1},
        "facts": {"1": 1, "2-5": 2},
        "frequency": {"never": 1, "1-20": 2},
        "linked": {"linked": 2, "not linked": 1},
        "evidence": {"linked": 1, "not linked": 1, "relation never observed": 1},
    }
    linked, not_linked = found["linked"]
    assert (linked["share"], not_linked["share"]) == pytest.approx((2 / 3, 1 / 3))
    assert (linked["lost"], not_linked["lost"]) == pytest.approx((0.75 / 1.25, 0.5 / 1.25))  # 0 + 3/4 and 1/2
    assert {name: linked[name] for name in METRICS} == pytest.approx(
        summary(np.array([1.0, 4.0]), np.array([100, 100]))
    )
    assert linked["amri"] == pytest.approx(1 - 3 / 99)


def test_relations_that_lose_most_come_first():
    found = breakdown(ranked(town(), [1, 4, 2]), town())
    assert [group["group"] for group in found["relation"]] == ["knows", "wed", "lives"]


def test_a_class_is_seen_from_the_entity_that_is_given():
    train = [("a", "r", "x"), ("b", "r", "x"), ("a", "s", "x"), ("a", "t", "x"), ("a", "t", "y"), ("b", "t", "y")]
    seen = [("b", "s", "y"), ("a", "r", "y"), ("b", "t", "x")]
    dataset = make_dataset(train=train, test=seen)
    queries = queries_of(dataset)
    groups = defaultdict(set)
    for place in range(len(queries)):
        (found,) = breakdown(ranked(dataset, queries=queries.take(np.array([place]))), dataset)["class"]
        direction = "?" if queries.relation[place] < 3 else "?-"
        groups[found["group"]].add(f"{dataset.relations[int(queries.relation[place]) % 3]} {direction}")
    assert groups == {"1-1": {"s ?", "s ?-"}, "n-1": {"r ?"}, "1-n": {"r ?-"}, "n-n": {"t ?", "t ?-"}}


@pytest.mark.parametrize(
    ("count", "facts", "frequency"),
    [
        (0, "0", "never"), (1, "1", "1-20"), (2, "2-5", "1-20"), (5, "2-5", "1-20"), (6, "6-20", "1-20"),
        (20, "6-20", "1-20"), (21, "21-100", "21-200"), (100, "21-100", "21-200"), (101, "more than 100", "21-200"),
        (200, "more than 100", "21-200"), (201, "more than 100", "more than 200"),
    ],
)  # fmt: skip
def test_the_ends_of_the_buckets(count, facts, frequency):
    dataset = make_dataset(
        train=[("p", "q", "z"), *(("hub", "r", f"x{i}") for i in range(count))],
        test=[("hub", "r", "z")],
    )
    asks_tail = queries_of(dataset).take(np.array([0]))
    found = breakdown(ranked(dataset, queries=asks_tail), dataset)
    assert members(found["facts"]) == {facts: 1}
    assert members(found["frequency"]) == {frequency: 1}


def test_a_newcomer_counts_auxiliary_facts_and_a_seen_entity_does_not():
    aux = [("new", "r", f"x{i}") for i in range(6)]
    train = [(f"x{i}", "r", "y") for i in range(6)]
    dataset = make_dataset(train=train, aux=aux, test=[("new", "r", "y"), ("x0", "r", "x1")])
    found = breakdown(ranked(dataset), dataset)
    assert members(found["facts"]) == {"1": 2, "6-20": 1}


def test_a_fact_about_oneself_is_one_fact():
    dataset = make_dataset(train=[("a", "r", "b")], aux=[("new", "r", "new")], test=[("new", "r", "a")])
    assert members(breakdown(ranked(dataset), dataset)["facts"]) == {"1": 1}


def test_nothing_lost_is_no_share_of_anything():
    found = breakdown(ranked(town(), [1, 1, 1]), town())
    assert {group["lost"] for groups in found.values() for group in groups} == {0.0}


def test_only_the_breakdowns_named_are_made_a_flat_row_a_group():
    table = all_rows(ranked(town(), [1, 4, 2]), town(), ["linked", "facts"])
    assert list(dict.fromkeys(row["by"] for row in table)) == ["linked", "facts"]
    (row,) = (row for row in table if (row["by"], row["group"]) == ("linked", "not linked"))
    assert (row["queries"], row["mrr"]) == (1, 0.5)
    assert set(row) == {"by", "group", "queries", "share", "lost", *METRICS}


Triple = tuple[int, int, int]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[InductiveDataset, dict[str, list[Triple]], list[float]]:
    entities, relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    triple = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    parts = {role: draw(st.lists(triple, max_size=8)) for role in ("train", "aux")}
    parts["test"] = draw(st.lists(triple, min_size=1, max_size=6))
    names = Vocabulary(f"e{i}" for i in range(entities)), Vocabulary(f"r{i}" for i in range(relations))
    train, aux = (Graph.build(*names, TripleArray.of(parts[role])) for role in ("train", "aux"))
    dataset = InductiveDataset("drawn", train, aux, TripleArray.empty(), TripleArray.of(parts["test"]))
    ranks = st.sampled_from([1.0, 1.5, 2.0, 10.0, 90.0])
    size = len(queries_of(dataset))
    return dataset, parts, draw(st.lists(ranks, min_size=size, max_size=size))


def class_by_hand(train: set[Triple], entity: int, relation: int, size: int) -> str:
    facts = {(h, t) if relation < size else (t, h) for h, r, t in train if r == relation % size}
    if not facts:
        return "unseen"
    entities, answers = ({pair[side] for pair in facts} for side in (0, 1))
    return f"{'n' if len(facts) / len(answers) >= 1.5 else '1'}-{'n' if len(facts) / len(entities) >= 1.5 else '1'}"


def kind_by_hand(parts: dict[str, list[Triple]], size: int, name: str, query: tuple[int, int, int]) -> str:
    entity, relation, answer = query
    train, aux = set(parts["train"]), set(parts["aux"])
    linked = "linked" if any({h, t} == {entity, answer} for h, _, t in train | aux) else "not linked"
    never = not any(r == relation % size for _, r, _ in train)
    is_seen = any(entity in (h, t) for h, _, t in train)
    facts = sum(entity in (h, t) for h, _, t in (train if is_seen else aux))
    return {
        "relation": f"r{relation % size}",
        "class": class_by_hand(train, entity, relation, size),
        "facts": "0" if facts == 0 else "1" if facts == 1 else "2-5" if facts <= 5 else "6-20",
        "frequency": "never" if never else "1-20",
        "linked": linked,
        "evidence": "relation never observed" if never else linked,
    }[name]


@given(worlds())
def test_groups_against_brute_force(world):
    dataset, parts, ranks = world
    result, size = ranked(dataset, ranks), len(dataset.relations)
    queries = result.queries
    asked = list(zip(queries.entity.tolist(), queries.relation.tolist(), queries.answer.tolist(), strict=True))
    found = breakdown(result, dataset)
    assert found.keys() == BREAKDOWNS.keys()
    total = sum(1 - 1 / rank for rank in ranks)
    for name, groups in found.items():
        wanted = defaultdict(list)
        for query, rank in zip(asked, ranks, strict=True):
            wanted[kind_by_hand(parts, size, name, query)].append(rank)
        assert members(groups) == {kind: len(each) for kind, each in wanted.items()}
        for group in groups:
            mine = wanted[group["group"]]
            assert group["mrr"] == pytest.approx(sum(1 / rank for rank in mine) / len(mine))
            assert group["lost"] == pytest.approx(sum(1 - 1 / rank for rank in mine) / total if total else 0.0)
        assert sum(group["share"] for group in groups) == pytest.approx(1.0)
        assert sum(group["lost"] for group in groups) == pytest.approx(1.0 if total else 0.0)


def test_a_paired_comparison_by_its_definition(monkeypatch):
    monkeypatch.setattr(metrics, "SAMPLES", 400)
    monkeypatch.setattr(metrics, "LEVEL", 0.9)
    ranks_a, ranks_b = np.array([1.0, 2.0, 1.0, 5.0, 3.0]), np.array([2.0, 2.0, 4.0, 1.0, 3.0])
    found = paired_bootstrap(ranks_a, ranks_b, "mrr", np.random.default_rng(5), np.full(5, 9))
    drawn = np.random.default_rng(5).integers(5, size=(400, 5))
    each = [float(np.mean(1 / ranks_a[row]) - np.mean(1 / ranks_b[row])) for row in drawn]
    assert found.difference == pytest.approx(float(np.mean(1 / ranks_a - 1 / ranks_b)))
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(np.quantile(each, [0.05, 0.95])))
    share = min(sum(value <= 1e-12 for value in each), sum(value >= -1e-12 for value in each))
    assert found.p_value == pytest.approx(2 * (share + 1) / 401)


def test_pairs_see_what_intervals_of_their_own_would_not():
    generator = np.random.default_rng(0)
    ranks = generator.integers(2, 500, 300).astype(float)
    better = ranks - (generator.random(300) < 0.7)  # a little better on most queries, while queries differ a lot
    found = paired_bootstrap(better, ranks, "mr", generator, np.full(300, 500))
    assert found.interval.low < found.difference < found.interval.high < 0.0
    assert found.p_value == pytest.approx(2 / 1001)
    one, other = (metrics.bootstrap("mr", r, np.full(300, 500), generator) for r in (better, ranks))
    assert one.high > other.low


def test_equal_results_do_not_differ():
    ranks = np.array([1.0, 7.0, 2.5])
    found = paired_bootstrap(ranks, ranks.copy(), "hits@3", np.random.default_rng(0), np.full(3, 9))
    assert (found.difference, found.interval.low, found.interval.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_p_values_of_no_difference_are_spread_evenly(monkeypatch):
    """Under no difference, a p-value below 0.2 comes up in about a fifth of the comparisons."""
    monkeypatch.setattr(metrics, "SAMPLES", 200)
    generator = np.random.default_rng(1)
    few = 0
    for _ in range(200):
        a, b = generator.random((2, 60)) * 9 + 1
        few += paired_bootstrap(a, b, "mr", generator, np.full(60, 9)).p_value < 0.2
    assert 24 <= few <= 60  # 40 expected, standard deviation 5.7


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8), st.sampled_from([*METRICS]))
def test_turned_round_a_comparison_says_the_opposite(pairs, metric):
    a, b = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    candidates = np.full(len(a), 9)
    one = paired_bootstrap(a, b, metric, np.random.default_rng(3), candidates)
    other = paired_bootstrap(b, a, metric, np.random.default_rng(3), candidates)
    assert one.difference == -other.difference
    assert one.p_value == other.p_value
    assert (one.interval.low, one.interval.high) == pytest.approx((-other.interval.high, -other.interval.low))


def test_a_comparison_follows_its_seed_alone(monkeypatch):
    a, b = np.array([1.0, 2.0, 9.0, 4.0]), np.array([3.0, 1.0, 5.0, 4.0])

    def draw(seed: int) -> metrics.Comparison:
        return paired_bootstrap(a, b, "mr", np.random.default_rng(seed), np.full(4, 9))

    at_once = draw(1)
    assert at_once == draw(1)
    assert at_once != draw(2)
    monkeypatch.setattr(metrics, "DRAWS_AT_ONCE", 9)
    assert draw(1) == at_once


def test_of_nothing_there_is_no_p_value():
    nothing = np.empty(0)
    found = paired_bootstrap(nothing, nothing, "mrr", np.random.default_rng(0), nothing.astype(np.int64))
    assert np.isnan(found.p_value)


def test_the_interval_of_a_share():
    found = bootstrap_mean(np.arange(2500) % 5 == 0, np.random.default_rng(0))
    assert (found.low, found.high) == pytest.approx((0.2 - 1.96 * 0.008, 0.2 + 1.96 * 0.008), abs=0.002)
    assert np.isnan(bootstrap_mean(np.empty(0), np.random.default_rng(0)).low)


@needs_data
@pytest.mark.parametrize(("name", "queries"), [("subject-10", (2208, 523, 80)), ("object-10", (2204, 589, 194))])
def test_the_evidence_of_the_published_splits(name, queries):
    dataset = load_dataset(f"fb15k-{name}")
    found = breakdown(ranked(dataset), dataset)["evidence"]
    assert tuple(group.queries for group in found) == queries
