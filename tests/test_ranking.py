"""Rules alone as a predictor, against lists of confidences compared by Python.

Covers newcomer.rules.grounding.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from newcomer.errors import OptionError
from newcomer.graph import Overlay
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.statistics import GraphStatistics
from overlay_world import ENTITIES as MORE
from overlay_world import RELATIONS as KINDS
from overlay_world import SEEN, Fact, changes, of_newcomers, overlay_of, own, rows_of
from rule_oracle import graph_of, groundings, random_rows, random_rules

ENTITIES, RELATIONS = 8, 3


def confidences(rules, entity: int, relation: int, facts: set[Fact], seen: int = ENTITIES) -> dict[int, list[float]]:
    """For each candidate, the strengths of the rules that reach it, best first; known facts do not matter here."""
    size = 1 + max([ENTITIES - 1, *(max(head, tail) for head, _, tail in facts)])

    def own_of(one: int) -> set[Fact]:
        return {f for f in facts if one in f[::2] and (one >= seen or max(f[0], f[2]) < seen)}

    reached: dict[int, list[float]] = {}
    for rule in rules:
        ends = set()
        for (h, r, t), _ in groundings(rule, entity, own_of, size, rules.num_relations, known=set()):
            if relation == r and h == entity:
                ends.add(t)
            if relation == r + rules.num_relations and t == entity:
                ends.add(h)
        for end in ends:
            reached.setdefault(end, []).append(rule.smoothed_confidence)
    return {end: sorted(values, reverse=True) for end, values in reached.items()}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("by_frequency", [False, True])
def test_order_is_that_of_the_sorted_confidence_lists(seed, by_frequency):
    rng = np.random.default_rng(seed)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 22), ENTITIES, RELATIONS)
    facts = set(map(tuple, graph.triples.rows.tolist()))
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    scorer = RuleScorer(RuleRanker.of(rules, by_frequency=by_frequency), Overlay.of(graph, num_seen=ENTITIES))
    for entity in range(0, ENTITIES, 3):
        for relation in range(2 * RELATIONS):
            row = scorer.scores(np.array([entity], np.int32), np.array([relation], np.int32))[0]
            lists = confidences(rules, entity, relation, facts)
            known = known_ends(facts, entity, relation)
            frequency = frequencies(facts, relation)
            keys = {
                e: (lists.get(e, []), frequency[e] if by_frequency else 0) for e in range(ENTITIES) if e not in known
            }
            for a in keys:
                for b in keys:
                    expected = (keys[a] > keys[b]) - (keys[a] < keys[b])
                    assert np.sign(row[a] - row[b]) == expected, (entity, relation, a, b, keys[a], keys[b])


def known_ends(facts: set[Fact], entity: int, relation: int) -> set[int]:
    return {tail for one, tail in rows_of(facts, entity) if one == relation}


def frequencies(facts: set[Fact], relation: int, entities: int = ENTITIES) -> list[int]:
    ends = [t if relation < RELATIONS else h for h, r, t in facts if r == relation % RELATIONS]
    return [ends.count(entity) for entity in range(entities)]


@pytest.mark.parametrize("seed", range(6))
def test_evidence_is_the_best_rules_confidence_by_each_entitys_own_facts(seed):
    rng, seen = np.random.default_rng(seed), ENTITIES - 2  # the last two have just arrived
    facts = set(random_rows(rng, ENTITIES, RELATIONS, 20))
    observed = {fact for fact in facts if max(fact[0], fact[2]) < seen}
    overlay = Overlay.of(graph_of(sorted(observed), ENTITIES, RELATIONS), graph_of(sorted(facts), ENTITIES, 3).triples)
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    ranker, alone = RuleRanker.of(rules), RuleRanker.of(rules, by_frequency=False)
    seen = overlay.num_seen
    for entity in range(ENTITIES):
        for relation in range(2 * RELATIONS):
            found = ranker.evidence(overlay, entity, relation)
            plain = alone.evidence(overlay, entity, relation)
            best = confidences(rules, entity, relation, facts, seen)
            counts = np.array(frequencies(observed, relation))
            np.testing.assert_allclose(found.scores, plain.scores + counts / (counts.max() + 1.0), atol=1e-12)
            mine = own_ends(facts, entity, relation, seen)
            for one in set(range(ENTITIES)) - mine:
                assert found.confidence[one] == pytest.approx(max(best.get(one, [0.0])))


def own_ends(facts: set[Fact], entity: int, relation: int, seen: int) -> set[int]:
    known = facts if entity >= seen else {fact for fact in facts if max(fact[0], fact[2]) < seen}
    return known_ends(known, entity, relation)


@hypothesis_settings(max_examples=40)
@given(changes(30), st.integers(0, 10_000), st.sampled_from(["maximum", "noisy-or"]))
def test_the_evidence_over_a_derived_overlay_is_that_of_its_facts(change, seed, aggregation):
    ranker = RuleRanker.of(random_rules(np.random.default_rng(seed), MORE, KINDS, 40), aggregation)
    before, derived, fresh = overlay_of(change.before), change.derived, change.fresh
    first = ranker.evidence(before, SEEN, 0)
    counted = [GraphStatistics(overlay) for overlay in (derived, fresh)]
    for entity in range(change.num_entities):
        for relation in range(2 * KINDS):
            for online in ([None, None], [one.online_rules(relation) for one in counted]):
                found, wanted = (
                    ranker.evidence(overlay, entity, relation, rules)
                    for overlay, rules in zip((derived, fresh), online, strict=True)
                )
                if aggregation == "maximum":
                    assert np.array_equal(found.scores, wanted.scores)
                np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-12)  # sums, in another order
                assert np.array_equal(found.confidence, wanted.confidence)
    again = ranker.evidence(before, SEEN, 0)
    assert np.array_equal(first.scores, again.scores) and np.array_equal(first.confidence, again.confidence)


@hypothesis_settings(max_examples=40)
@given(changes(30), st.integers(0, 10_000))
def test_rules_reach_over_a_derived_overlay_whom_they_reach_by_definition(change, seed):
    rules = random_rules(np.random.default_rng(seed), MORE, KINDS, 25)
    ranker, derived, now = RuleRanker.of(rules), change.derived, change.now
    for entity in range(0, change.num_entities, 2):
        for relation in range(2 * KINDS):
            best = confidences(rules, entity, relation, now, SEEN)
            found = ranker.evidence(derived, entity, relation).confidence
            mine = {tail for one, tail in rows_of(own(now, entity), entity) if one == relation}
            for one in set(range(change.num_entities)) - mine:
                assert found[one] == pytest.approx(max(best.get(one, [0.0])))


def test_noisy_or_is_one_minus_the_product_of_failures():
    rng = np.random.default_rng(0)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 22), ENTITIES, RELATIONS)
    facts = set(map(tuple, graph.triples.rows.tolist()))
    rules = random_rules(rng, ENTITIES, RELATIONS, 40)
    ranker, overlay = RuleRanker.of(rules, "noisy-or", by_frequency=False), Overlay.of(graph, num_seen=ENTITIES)
    compared = 0
    for entity in range(ENTITIES):
        for relation in range(2 * RELATIONS):
            row = ranker.evidence(overlay, entity, relation).scores
            for end, values in confidences(rules, entity, relation, facts).items():
                if end not in known_ends(facts, entity, relation):
                    assert 1 - math.exp(-row[end]) == pytest.approx(1 - math.prod(1 - v for v in values))
                    compared += 1
    assert compared > 50


def test_threads_and_batches_change_nothing():
    rng = np.random.default_rng(2)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 22), ENTITIES, RELATIONS)
    ranker, overlay = RuleRanker.of(random_rules(rng, ENTITIES, RELATIONS, 40)), Overlay.of(graph)
    entities, relations = (a.astype(np.int32) for a in (rng.integers(0, ENTITIES, 30), rng.integers(0, 6, 30)))
    one = RuleScorer(ranker, overlay, threads=1).scores(entities, relations)
    three = RuleScorer(ranker, overlay, threads=3).scores(entities, relations)
    assert np.array_equal(one, three)
    alone = [
        ranker.evidence(overlay, *asked).scores for asked in zip(entities.tolist(), relations.tolist(), strict=True)
    ]
    assert np.array_equal(one, alone)


def test_wrong_settings_are_refused():
    rules, overlay = random_rules(np.random.default_rng(0), 2, 1, 1), Overlay.of(graph_of([(0, 0, 1)], 2, 1))
    with pytest.raises(OptionError):
        RuleRanker.of(rules, "max")
    with pytest.raises(OptionError):
        RuleScorer(RuleRanker.of(rules), overlay, threads=0)


def test_only_newcomers_go_by_what_newcomers_state():
    facts = {(0, 0, 1), (6, 0, 1)}
    assert own(facts, 1) == {(0, 0, 1)} and own(facts, 6) == of_newcomers(facts)
