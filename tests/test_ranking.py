"""The rule-only predictor against lists of confidences compared by Python.

Covers newcomer.rules.voting, newcomer.rules.rule_index and newcomer.rules.grounding.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from newcomer.errors import OptionError
from newcomer.graph import stack_rows
from newcomer.rules.frequencies import Frequencies
from newcomer.rules.grounding import anyone
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.rule_index import surroundings
from rule_oracle import graph_of, groundings, random_rows, random_rules

ENTITIES, RELATIONS = 8, 3


def confidences(rules, entity: int, relation: int, graph) -> dict[int, list[float]]:
    """For each candidate, the strengths of the rules that reach it, best first; known facts do not matter here."""
    facts = set(map(tuple, graph.triples.rows.tolist()))
    own = {f for f in facts if entity in (f[0], f[2])}
    reached: dict[int, list[float]] = {}
    for rule in rules:
        ends = set()
        for (h, r, t), _ in groundings(rule, entity, own, facts, ENTITIES, RELATIONS, known=set()):
            if relation == r and h == entity:
                ends.add(t)
            if relation == r + RELATIONS and t == entity:
                ends.add(h)
        for end in ends:
            reached.setdefault(end, []).append(rule.smoothed_confidence)
    return {end: sorted(values, reverse=True) for end, values in reached.items()}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("by_frequency", [False, True])
def test_order_is_that_of_the_sorted_confidence_lists(seed, by_frequency):
    rng = np.random.default_rng(seed)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 22), ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    ranker = RuleRanker.build(rules, graph.adjacency, graph, by_frequency=by_frequency)
    for entity in range(0, ENTITIES, 3):
        for relation in range(2 * RELATIONS):
            row = ranker.scores(np.array([entity], np.int32), np.array([relation], np.int32))[0]
            lists = confidences(rules, entity, relation, graph)
            known = known_ends(graph, entity, relation)
            frequency = frequencies(graph, relation)
            keys = {
                e: (lists.get(e, []), frequency[e] if by_frequency else 0) for e in range(ENTITIES) if e not in known
            }
            for a in keys:
                for b in keys:
                    expected = (keys[a] > keys[b]) - (keys[a] < keys[b])
                    assert np.sign(row[a] - row[b]) == expected, (entity, relation, a, b, keys[a], keys[b])


def known_ends(graph, entity: int, relation: int) -> set[int]:
    relations, tails = graph.adjacency.of(entity)
    return set(tails[relations == relation].tolist())


def frequencies(graph, relation: int) -> list[int]:
    triples = graph.triples
    chosen = triples.relations == relation % RELATIONS
    ends = triples.tails[chosen] if relation < RELATIONS else triples.heads[chosen]
    return np.bincount(ends, minlength=ENTITIES).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_beside_the_rules_stands_what_is_plain_to_see(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, ENTITIES, RELATIONS, 14)
    facts, told = graph_of(rows, ENTITIES, RELATIONS), [row for row in rows if 0 not in row[::2]]  # 0 has just arrived
    observed = graph_of(told, ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    ranker = RuleRanker.build(rules, facts.adjacency, observed)
    entities, relations = (ids.ravel().astype(np.int32) for ids in np.meshgrid(range(ENTITIES), range(2 * RELATIONS)))
    evidence = ranker.evidence(entities, relations)
    assert np.array_equal(evidence.scores, ranker.scores(entities, relations))
    for place, (entity, relation) in enumerate(zip(entities.tolist(), relations.tolist(), strict=True)):
        best = confidences(rules, entity, relation, facts)
        known = known_ends(facts, entity, relation)
        for one in range(ENTITIES):
            linked = any({entity, one} == {h, t} for h, _, t in rows)
            assert evidence.linked[place, one] == linked
            assert evidence.frequency[place, one] == frequencies(observed, relation)[one]
            assert evidence.unseen[place, one] == (not any(one in (h, t) for h, _, t in told))
            if one not in known:
                assert evidence.confidence[place, one] == pytest.approx(max(best.get(one, [0.0])))
    assert evidence.unseen[:, 0].all() and not evidence.unseen.all() and evidence.linked.any()


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_joined_on_count_like_all_others(seed):
    """The last three entities come later; the graph that they are joined to is not looked at again."""
    rng = np.random.default_rng(seed)
    first, wider = ENTITIES, ENTITIES + 3
    early = random_rows(rng, first, RELATIONS, 20)
    late = [row for row in random_rows(rng, wider, RELATIONS, 40) if max(row[0], row[2]) >= first]
    base = graph_of(early, wider, RELATIONS)
    arrived = graph_of(late, wider, RELATIONS)
    facts = stack_rows(base.adjacency, arrived.adjacency, np.arange(wider) < first)
    rows = np.repeat(np.arange(wider), np.diff(facts.offsets)).astype(np.int32)
    new = rows >= first
    before = surroundings(base.adjacency, RELATIONS)
    joined = before.joined(facts, facts.relations[new], rows[new])
    whole = surroundings(facts, RELATIONS)
    for relation in range(2 * RELATIONS):
        assert anyone(joined, relation).tolist() == anyone(whole, relation).tolist()
    rules = random_rules(rng, first, RELATIONS, 40)
    ranker = RuleRanker.build(rules, facts, base)
    entities, relations = (ids.ravel().astype(np.int32) for ids in np.meshgrid(range(wider), range(2 * RELATIONS)))
    assert np.array_equal(replace(ranker, world=joined).scores(entities, relations), ranker.scores(entities, relations))


def test_newcomers_answer_nothing_in_the_observed_graph():
    graph = graph_of([(0, 0, 1), (2, 0, 1), (1, 1, 1)], 4, 2)
    wide = replace(Frequencies.of(graph), num_entities=6)
    assert [wide.row(relation).tolist() for relation in range(4)] == [
        [0, 2, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
    ]
    assert wide.unseen().tolist() == [0, 0, 0, 1, 1, 1]


def test_noisy_or_is_one_minus_the_product_of_failures():
    rng = np.random.default_rng(0)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 22), ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    ranker = RuleRanker.build(rules, graph.adjacency, graph, "noisy-or", by_frequency=False)
    compared = 0
    for entity in range(ENTITIES):
        for relation in range(2 * RELATIONS):
            row = ranker.scores(np.array([entity], np.int32), np.array([relation], np.int32))[0]
            for end, values in confidences(rules, entity, relation, graph).items():
                if end not in known_ends(graph, entity, relation):
                    assert 1 - math.exp(-row[end]) == pytest.approx(1 - math.prod(1 - v for v in values))
                    compared += 1
    assert compared > 50


def test_threads_and_batches_change_nothing():
    rng = np.random.default_rng(2)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 22), ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    entities, relations = (a.astype(np.int32) for a in (rng.integers(0, ENTITIES, 30), rng.integers(0, 6, 30)))
    one = RuleRanker.build(rules, graph.adjacency, graph, threads=1).scores(entities, relations)
    three = RuleRanker.build(rules, graph.adjacency, graph, threads=3).scores(entities, relations)
    assert np.array_equal(one, three)


@pytest.mark.parametrize("wrong", [{"aggregation": "max"}, {"threads": 0}])
def test_wrong_settings_are_refused(wrong):
    graph = graph_of([(0, 0, 1)], 2, 1)
    with pytest.raises(OptionError):
        RuleRanker.build(random_rules(np.random.default_rng(0), 2, 1, 1), graph.adjacency, graph, **wrong)
