"""Similarity and counts over all facts against their definitions; those of a derived overlay are those of its facts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.graph import Graph, Overlay, TripleArray
from newcomer.rules import statistics as module
from newcomer.rules.statistics import GraphStatistics
from overlay_world import (
    ENTITIES,
    FACT,
    NOBODY,
    RELATIONS,
    SEEN,
    Fact,
    changes,
    ids,
    overlay_of,
    rows_of,
    vocabularies,
)

ANSWERS = st.sets(st.integers(0, ENTITIES - 1), max_size=4)


def statistics_of(facts: set[Fact]) -> GraphStatistics:
    return GraphStatistics(overlay_of(facts))


def plainly(facts: set[Fact], entity: int, answers: set[int], entities: int = ENTITIES) -> list[float]:
    """From the definition."""
    every, known = range(entities), {one: set(rows_of(facts, one)) for one in range(entities)}
    found = [0.0] * entities
    for candidate in every:
        for answer in answers:
            for feature in known[answer] & known[candidate]:
                having = sum(feature in known[one] for one in every)
                if feature[1] != entity:
                    stated = len(rows_of(facts, answer)) * len(rows_of(facts, candidate))
                    found[candidate] += max(0.0, math.log((SEEN + 1) / (having + 1))) / math.sqrt(stated)
    return [one / math.sqrt(max(len(answers), 1)) for one in found]


def answered(facts: set[Fact], relation: int, entities: int = ENTITIES) -> list[int]:
    tails = [tail for head in range(entities) for one, tail in rows_of(facts, head) if one == relation]
    return [tails.count(entity) for entity in range(entities)]


@given(st.sets(FACT, max_size=40), st.integers(0, ENTITIES - 1), ANSWERS)
def test_similarity_is_what_is_shared_with_the_known_answers(facts, entity, answers):
    found = statistics_of(facts).similarity(entity, ids(*sorted(answers)))
    np.testing.assert_allclose(found, plainly(facts, entity, answers), atol=1e-12)


@given(st.sets(FACT, max_size=40))
def test_counts_are_how_often_each_answers(facts):
    statistics = statistics_of(facts)
    for relation in range(2 * RELATIONS):
        assert statistics.answer_counts(relation).tolist() == answered(facts, relation)


@given(changes(30), st.data(), ANSWERS)
def test_what_came_and_went_leaves_what_is_known_now(change, data, answers):
    size, now = change.num_entities, change.now
    derived, fresh = GraphStatistics(change.derived), GraphStatistics(change.fresh)
    entity = data.draw(st.integers(0, size - 1))
    asked = entity, ids(*sorted(answers))
    found = derived.similarity(*asked)
    np.testing.assert_allclose(found, plainly(now, entity, answers, size), atol=1e-12)
    np.testing.assert_allclose(found, fresh.similarity(*asked), atol=1e-12)
    for relation in range(2 * RELATIONS):
        counts = derived.answer_counts(relation).tolist()
        assert counts == fresh.answer_counts(relation).tolist() == answered(now, relation, size)
        one, other = derived.online_rules(relation), fresh.online_rules(relation)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.support.tolist() == other.support.tolist() and one.sizes.tolist() == other.sizes.tolist()
    for other, similarity in enumerate(found):
        shared = derived.shared(*asked, other)
        assert other in answers or sum(one.similarity for one in shared) == pytest.approx(similarity, abs=1e-12)
        assert other not in {one.answer for one in shared}
        assert [one.similarity for one in shared] == sorted((one.similarity for one in shared), reverse=True)
        known = set(rows_of(now, other))
        assert all(set(one.features) <= set(rows_of(now, one.answer)) & known for one in shared)
        first = derived.shared(*asked, other, 1)
        assert first[:1] == shared[:1] and first[1:] == [one._replace(features=()) for one in shared[1:]]


@given(changes(30), st.integers(0, SEEN - 1), ANSWERS)
def test_the_statistics_of_before_stay_what_they_were(change, entity, answers):
    before, asked = statistics_of(change.before), (entity, ids(*sorted(answers)))
    found = before.similarity(*asked).tobytes(), [before.answer_counts(one).tobytes() for one in range(2 * RELATIONS)]
    after = GraphStatistics(change.derived)
    after.similarity(*asked)
    for relation in range(2 * RELATIONS):
        after.answer_counts(relation)
        after.online_rules(relation)
    again = before.similarity(*asked).tobytes(), [before.answer_counts(one).tobytes() for one in range(2 * RELATIONS)]
    assert found == again


def test_what_newcomers_state_of_two_seen_entities_does_not_count():
    plain = statistics_of({(0, 0, 1), (2, 0, 1), (7, 0, 1)})
    observed = Graph.build(*vocabularies(), TripleArray.of([(0, 0, 1), (2, 0, 1)]))
    found = GraphStatistics(Overlay.of(observed, TripleArray.of([(7, 0, 1), (3, 0, 1), (0, 1, 4)]), SEEN))
    assert found.similarity(4, ids(0)).tolist() == plain.similarity(4, ids(0)).tolist()
    assert found.answer_counts(0).tolist() == plain.answer_counts(0).tolist()


def test_newcomers_may_have_ids_of_their_own():
    overlay = overlay_of({(0, 0, 1), (2, 0, 1), (3, 1, 4)}).with_delta(TripleArray.of([(ENTITIES + 1, 0, 1)]), NOBODY)
    statistics = GraphStatistics(overlay)
    found = statistics.similarity(4, ids(0))
    assert len(found) == ENTITIES + 2
    assert found[ENTITIES + 1] == found[2] > 0 and found[3] == found[ENTITIES] == 0
    assert statistics.answer_counts(0)[1] == 3


def test_of_very_many_answers_some_stand_for_all(monkeypatch):
    monkeypatch.setattr(module, "MOST_ANSWERS", 3)
    assert module._some(np.array([9, 1, 5, 7, 3, 5])).tolist() == [1, 5, 9]
    assert module._some(np.array([4, 2])).tolist() == [2, 4]


@pytest.mark.parametrize("answers", [[], [5]])
def test_nobody_is_similar_to_those_of_whom_nothing_is_known(answers):
    assert not statistics_of({(0, 0, 1)}).similarity(0, ids(*answers)).any()
