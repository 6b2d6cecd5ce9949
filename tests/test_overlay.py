"""The overlay against Python sets: own facts, all facts, answers, starts, counts; deriving one changes no other."""

from collections import Counter
from dataclasses import FrozenInstanceError, fields
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.data import load_dataset
from newcomer.graph import Graph, Overlay, TripleArray
from newcomer.graph.overlay import AnswerCounts, Base, about_newcomers
from newcomer.rules.grounding import anyone
from newcomer.rules.ranking import answer_row
from overlay_world import (
    ENTITIES,
    FACT,
    NOBODY,
    RELATIONS,
    SEEN,
    Change,
    Fact,
    changes,
    ids,
    of_newcomers,
    oriented,
    overlay_of,
    own,
    rows_of,
    triples,
    vocabularies,
)


def pairs(columns: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def check(overlay: Overlay, facts: set[Fact]) -> None:
    """Everything an overlay says of everyone, against the facts that it is of."""
    for entity in range(overlay.num_entities):
        mine = rows_of(own(facts, entity), entity)
        assert pairs(overlay.facts_of(entity)) == mine == pairs(overlay.own_rows.of(entity))
        assert sorted(pairs(overlay.all_facts_of(entity))) == rows_of(facts, entity)
        for relation in range(2 * RELATIONS):
            assert overlay.answers(entity, relation).tolist() == [tail for one, tail in mine if one == relation]
            anyone_says = [tail for one, tail in rows_of(facts, entity) if one == relation]
            assert sorted(overlay.all_answers(entity, relation).tolist()) == anyone_says
        assert overlay.is_unobserved[entity] == (not own(facts - of_newcomers(facts), entity))
    for relation in range(2 * RELATIONS):
        having = [
            entity for entity in range(overlay.num_entities) if relation in dict(rows_of(own(facts, entity), entity))
        ]
        assert sorted(anyone(overlay.arrays, relation).tolist()) == having
    assert len(overlay.own_rows.offsets) == overlay.num_entities + 1 == len(overlay.is_removed) + 1


@given(st.sets(FACT, max_size=40))
def test_an_overlay_is_the_facts_that_it_was_made_of(facts):
    overlay = overlay_of(facts)
    assert (overlay.num_entities, overlay.num_seen, overlay.num_relations) == (ENTITIES, SEEN, RELATIONS)
    check(overlay, facts)


@given(changes())
def test_a_derived_overlay_is_the_facts_of_now(change):
    derived = change.derived
    assert derived.num_entities == change.num_entities
    check(derived, change.now)
    check(overlay_of(change.before), change.before)


@given(changes(), changes())
def test_what_is_derived_again_forgets_the_first_change(first, second):
    overlay = overlay_of(second.before)
    stated = {fact for fact in first.added if max(fact[0], fact[2]) >= ENTITIES and min(fact[0], fact[2]) < SEEN}
    between = overlay.with_delta(triples(stated), NOBODY)
    check(between.with_delta(triples(second.added), ids(*sorted(second.removed))), second.now)
    again = between.with_delta(TripleArray.empty(), NOBODY)
    assert again.num_entities == ENTITIES and again.base is overlay.base
    check(again, second.before)


@given(changes())
def test_deriving_changes_nothing_that_others_read(change):
    overlay = overlay_of(change.before)
    before = [part.tobytes() for part in (*arrays_of(overlay), *overlay.own_rows)]
    derived = overlay.with_delta(triples(change.added), ids(*sorted(change.removed)))
    check(derived, change.now)
    assert [part.tobytes() for part in (*arrays_of(overlay), *overlay.own_rows)] == before
    for part in (*arrays_of(derived), *derived.own_rows):
        with pytest.raises(ValueError, match="read-only"):
            part[:] = 0


def arrays_of(overlay: Overlay) -> list[np.ndarray]:
    tables = [part for part in overlay.arrays if isinstance(part, tuple)]
    return [overlay.arrays.removed, *chain.from_iterable(tables)]


def test_an_overlay_is_frozen():
    overlay = overlay_of({(0, 0, 1)})
    for one in fields(Overlay):
        with pytest.raises(FrozenInstanceError):
            setattr(overlay, one.name, None)


@given(st.sets(FACT, max_size=40))
def test_counts_are_how_often_each_answers(facts):
    base = overlay_of(facts).base
    observed = facts - of_newcomers(facts)
    for counts, known in ((base.counts, facts), (base.observed_counts, observed)):
        answers = Counter((relation, tail) for _, relation, tail in oriented(known))
        for relation in range(2 * RELATIONS):
            row = [answers[relation, entity] for entity in range(ENTITIES)]
            assert answer_row(counts, relation, ENTITIES).tolist() == row
            assert answer_row(counts, relation, ENTITIES + 2).tolist() == [*row, 0, 0]
            assert counts.answering(relation).tolist() == np.flatnonzero(row).tolist()
            assert counts.totals[relation] == sum(row)
    stated = Counter(relation for _, relation, _ in observed)
    assert base.observed_counts.totals.tolist() == 2 * [stated[relation] for relation in range(RELATIONS)]


def test_who_is_new_answers_nothing_in_the_observed_graph():
    observed = Graph.build(*vocabularies(4), TripleArray.of([(0, 0, 1), (2, 0, 1), (1, 1, 1)]))
    overlay = Overlay.of(observed).with_delta(TripleArray.of([(4, 0, 1), (4, 1, 5)]), NOBODY)
    assert [answer_row(overlay.base.observed_counts, relation, 6).tolist() for relation in (0, 1, 3, 4)] == [
        [0, 2, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
    ]
    assert overlay.is_unobserved.tolist() == [False, False, False, True, True, True]


def test_of_two_seen_entities_only_what_was_observed_is_known():
    observed = Graph.build(*vocabularies(), TripleArray.of([(0, 0, 1), (2, 0, 1)]))
    stated = TripleArray.of([(7, 0, 1), (3, 0, 1), (0, 1, 4)])
    assert about_newcomers(stated, SEEN).rows.tolist() == [[7, 0, 1]]
    check(Overlay.of(observed, stated, SEEN), {(0, 0, 1), (2, 0, 1), (7, 0, 1)})


def test_seen_are_those_up_to_the_last_one_that_was_observed_unless_it_is_said():
    observed = Graph.build(*vocabularies(), TripleArray.of([(0, 0, 3)]))
    assert Overlay.of(observed).num_seen == 4 and Overlay.of(observed, num_seen=SEEN).num_seen == SEEN


def test_without_newcomers_the_base_is_the_observed_graph():
    base = overlay_of({(0, 0, 1), (2, 1, 5)}).base
    assert base.counts is base.observed_counts and base.rows.tails is base.observed.tails


def test_the_overlay_of_a_data_set_has_its_own_facts():
    dataset = load_dataset("sample")
    overlay = Overlay.of_dataset(dataset)
    assert overlay.num_seen == int(dataset.is_seen.sum())
    for entity in range(overlay.num_entities):
        graph = dataset.observed if dataset.is_seen[entity] else dataset.auxiliary
        assert pairs(overlay.own_rows.of(entity)) == pairs(graph.adjacency.of(entity))
    known = dataset.known_facts().adjacency
    for entity in range(0, overlay.num_entities, 50):
        assert pairs(overlay.all_facts_of(entity)) == pairs(known.of(entity))


def test_a_graph_of_nobody_is_known_to_nobody():
    nothing = Graph.build(*vocabularies(0), TripleArray.empty())
    overlay = Overlay.of(nothing).with_delta(TripleArray.of([(0, 0, 1)]), NOBODY)
    assert (overlay.num_seen, overlay.num_entities) == (0, 2)
    assert pairs(overlay.facts_of(0)) == [(0, 1)] and pairs(overlay.all_facts_of(1)) == [(RELATIONS, 0)]
    assert answer_row(AnswerCounts.of(nothing.adjacency, RELATIONS), 0, 2).tolist() == [0, 0]
    assert Base.of(nothing, TripleArray.empty(), 0).num_entities == 0
    assert Change(set(), set(), set()).num_entities == ENTITIES
