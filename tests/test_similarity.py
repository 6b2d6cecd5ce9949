"""Likeness and counts over all that is known, against their definitions; who comes and goes leaves no trace."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules import similarity as module
from newcomer.rules.similarity import Company

ENTITIES, RELATIONS, SEEN = 9, 3, 6
Fact = tuple[int, int, int]
FACT = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))


def company_of(facts: set[Fact]) -> Company:
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)])
    told = {fact for fact in facts if max(fact[0], fact[2]) >= SEEN}
    observed = Graph.build(*names, TripleArray.of(sorted(facts - told)))
    return Company.of(observed, TripleArray.of(sorted(told)), SEEN)


def features(facts: set[Fact], entity: int) -> list[tuple[int, int]]:
    own = [(relation, tail) for head, relation, tail in facts if head == entity]
    return own + [(relation + RELATIONS, head) for head, relation, tail in facts if tail == entity]


def plainly(facts: set[Fact], entity: int, answers: set[int]) -> list[float]:
    """From the definition."""
    every, known = range(ENTITIES), {one: features(facts, one) for one in range(ENTITIES)}
    found = [0.0] * ENTITIES
    for candidate in every:
        for answer in answers:
            for feature in set(known[answer]) & set(known[candidate]):
                having = sum(feature in known[one] for one in every)
                if feature[1] != entity:
                    told = len(known[answer]) * len(known[candidate])
                    found[candidate] += max(0.0, math.log((SEEN + 1) / (having + 1))) / math.sqrt(told)
    return [one / math.sqrt(max(len(answers), 1)) for one in found]


@given(st.sets(FACT, max_size=40), st.integers(0, ENTITIES - 1), st.sets(st.integers(0, ENTITIES - 1), max_size=4))
def test_likeness_is_what_is_shared_with_the_known_answers(facts, entity, answers):
    found = company_of(facts).likeness(entity, np.array(sorted(answers), dtype=np.int32))
    np.testing.assert_allclose(found, plainly(facts, entity, answers), atol=1e-12)


@given(st.sets(FACT, max_size=40))
def test_counts_are_how_often_each_answers(facts):
    company = company_of(facts)
    for relation in range(2 * RELATIONS):
        told = [tail for head in range(ENTITIES) for one, tail in features(facts, head) if one == relation]
        assert company.answered(relation).tolist() == [told.count(entity) for entity in range(ENTITIES)]


@given(
    st.sets(FACT, max_size=30),
    st.sets(st.integers(SEEN, ENTITIES - 1)),
    st.sets(FACT, max_size=20),
    st.integers(0, ENTITIES - 1),
    st.sets(st.integers(0, ENTITIES - 1), max_size=4),
)
def test_what_came_and_went_leaves_what_is_known_now(facts, gone, told, entity, answers):
    more = {fact for fact in told if {fact[0], fact[2]} & gone}
    now = {fact for fact in facts if not {fact[0], fact[2]} & gone} | more
    changed = company_of(facts).since(TripleArray.of(sorted(more)), np.array(sorted(gone), dtype=np.int32))
    asked = entity, np.array(sorted(answers), dtype=np.int32)
    np.testing.assert_allclose(changed.likeness(*asked), company_of(now).likeness(*asked), atol=1e-12)
    for relation in range(2 * RELATIONS):
        assert changed.answered(relation).tolist() == company_of(now).answered(relation).tolist()
    for other, likeness in enumerate(changed.likeness(*asked)):
        shared = changed.shared(*asked, other)
        assert other in answers or sum(one.likeness for one in shared) == pytest.approx(likeness, abs=1e-12)
        assert other not in {one.answer for one in shared}
        assert all(set(one.features) <= set(features(now, one.answer)) & set(features(now, other)) for one in shared)


def test_what_is_told_of_two_seen_entities_was_not_brought_by_newcomers():
    plain = company_of({(0, 0, 1), (2, 0, 1), (7, 0, 1)})
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)])
    observed = Graph.build(*names, TripleArray.of([(0, 0, 1), (2, 0, 1)]))
    found = Company.of(observed, TripleArray.of([(7, 0, 1), (3, 0, 1), (0, 1, 4)]), SEEN)
    answers = np.array([0], dtype=np.int32)
    assert found.likeness(4, answers).tolist() == plain.likeness(4, answers).tolist()
    assert found.answered(0).tolist() == plain.answered(0).tolist()


def test_newcomers_may_have_ids_of_their_own():
    facts = {(0, 0, 1), (2, 0, 1), (3, 1, 4)}
    changed = company_of(facts).since(TripleArray.of([(ENTITIES + 1, 0, 1)]), np.empty(0, dtype=np.int32))
    found = changed.likeness(4, np.array([0], dtype=np.int32))
    assert len(found) == changed.num_entities == ENTITIES + 2
    assert found[ENTITIES + 1] == found[2] > 0 and found[3] == found[ENTITIES] == 0
    assert changed.answered(0)[1] == 3


def test_of_very_many_answers_some_stand_for_all(monkeypatch):
    monkeypatch.setattr(module, "MOST_ANSWERS", 3)
    assert module._some(np.array([9, 1, 5, 7, 3, 5])).tolist() == [1, 5, 9]
    assert module._some(np.array([4, 2])).tolist() == [2, 4]


@pytest.mark.parametrize("answers", [[], [5]])
def test_nobody_is_like_those_of_whom_nothing_is_known(answers):
    assert not company_of({(0, 0, 1)}).likeness(0, np.array(answers, dtype=np.int32)).any()
