"""Whether a relation applies, and is not filled yet: against the same counted by dictionaries, and what must hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.evaluation.applicability import (
    EVIDENCE,
    FACT_POWER,
    LEAST,
    RELATION_POWER,
    RelationProfiles,
    likely_relations,
)
from newcomer.graph import Graph
from overlay_world import (
    ENTITIES,
    FACT,
    RELATIONS,
    SEEN,
    Fact,
    ids,
    of_newcomers,
    oriented,
    own,
    rows_of,
    triples,
    vocabularies,
)

Stated = list[tuple[int, int]]


def profiles_of(facts: set[Fact]) -> RelationProfiles:
    """Of the facts about the seen entities."""
    return RelationProfiles(Graph.build(*vocabularies(), triples(facts - of_newcomers(facts))), SEEN)


def evidence_of(profiles: RelationProfiles, entity: int, stated: Stated) -> np.ndarray:
    relations, tails = (ids(*column) for column in zip(*stated, strict=True)) if stated else (ids(), ids())
    return profiles.evidence(entity, relations, tails)


def share_with_more(answers: list[int], count: int) -> float:
    """Of those with ``count`` answers at least those who have more; ``answers`` has a number for each seen entity."""
    if count == 0:
        return (sum(one > 0 for one in answers) + 0.5) / (SEEN + 1)
    return (sum(one > count for one in answers) + 0.5) / (sum(one >= count for one in answers) + 1)


def scaled(weights: dict[int, float]) -> dict[int, float]:
    top = max(weights.values(), default=0.0)
    return {one: weight / top for one, weight in weights.items()} if top > 0 else weights


def by_hand(facts: set[Fact], entity: int, stated: Stated) -> list[list[float]]:
    """The evidence by its definition."""
    known = {one: rows_of(facts - of_newcomers(facts), one) for one in range(SEEN)}
    others = [one for one in known if one != entity]
    answers = {r: [sum(one == r for one, _ in known[seen]) for seen in known] for r in range(2 * RELATIONS)}
    having = {r: math.log((SEEN + 1) / (sum(one > 0 for one in counts) + 1)) for r, counts in answers.items()}
    mine = {relation for relation, _ in stated}
    total = max(sum(having[one] for one in mine), LEAST)
    shared = {one: sum(having[r] for r in mine if answers[r][one]) / total for one in others}
    alike = {
        one: sum(
            math.log((SEEN + 1) / (sum(fact in rows for rows in known.values()) + 1))
            for fact in stated
            if fact in known[one]
        )
        for one in others
    }
    similar = [
        scaled({one: value**power for one, value in weights.items()})
        for weights, power in ((shared, RELATION_POWER), (alike, FACT_POWER))
    ]
    rows = []
    for relation, counts in answers.items():
        count = sum(one == relation for one, _ in stated)
        base = share_with_more(counts, count)
        row = []
        for weights in similar:
            as_many = sum(weights[one] for one in others if counts[one] >= count)
            row.append((sum(weights[one] for one in others if counts[one] > count) + base) / (as_many + 1))
        odds = [math.log(share) - math.log1p(-share) for share in np.clip([*row, base], LEAST, 1 - LEAST)]
        rows.append([*odds, math.log(1 + len(stated)), float(count > 0)])
    return rows


@given(st.sets(FACT, max_size=30), st.sets(FACT, max_size=6))
def test_evidence_is_what_dictionaries_count(facts, about):
    profiles = profiles_of(facts)
    for entity in range(ENTITIES):
        told = facts | {fact for fact in about if entity >= SEEN}
        stated = rows_of(own(told, entity), entity)
        found = evidence_of(profiles, entity, stated)
        assert found.shape == (2 * RELATIONS, EVIDENCE)
        np.testing.assert_allclose(found, by_hand(facts, entity, stated), rtol=1e-9, atol=1e-9)


@given(st.sets(FACT, max_size=30))
def test_base_rates_count_the_seen_entities(facts):
    profiles, known = profiles_of(facts), facts - of_newcomers(facts)
    for relation in range(2 * RELATIONS):
        counts = [sum(one == relation for one, _ in rows_of(known, entity)) for entity in range(SEEN)]
        for count in range(4):
            assert profiles.share_with_more(relation, count) == pytest.approx(share_with_more(counts, count))
        along = {fact for fact in oriented(known) if fact[1] == relation}
        loops = sum(head == tail for head, _, tail in along)
        for _ in range(2):  # the second time from memory
            assert profiles.loop_share(relation) == pytest.approx((loops + 0.5) / (len(along) + 1))


def excess_by_hand(facts: set[Fact], entity: int, stated: Stated) -> list[float]:
    """How many more answers than known those have who have more, by its definition."""
    known = {one: rows_of(facts - of_newcomers(facts), one) for one in range(SEEN)}
    has = {one: {relation for relation, _ in rows} for one, rows in known.items()}
    own = {
        relation: math.log((SEEN + 1) / (sum(relation in mine for mine in has.values()) + 1)) for relation, _ in stated
    }
    total = max(sum(own.values()), LEAST)
    alike = {
        one: (sum(own[relation] for relation in own if relation in has[one]) / total) ** RELATION_POWER
        for one in known
        if one != entity
    }
    alike, found = scaled(alike), []
    for relation in range(2 * RELATIONS):
        count = sum(one == relation for one, _ in stated)
        beyond = {one: sum(r == relation for r, _ in rows) - count for one, rows in known.items()}
        anybody = 1 / (1 + sum(number >= 0 for number in beyond.values()))
        weight = {one: alike.get(one, 0.0) + anybody for one, number in beyond.items() if number > 0}
        total_weight = sum(weight.values())
        found.append(sum(weight[one] * beyond[one] for one in weight) / total_weight if weight else 1.0)
    return found


@given(st.sets(FACT, max_size=30), st.sets(FACT, max_size=6))
def test_how_many_more_there_are_is_what_dictionaries_count(facts, about):
    profiles = profiles_of(facts)
    for entity in range(ENTITIES):
        stated = rows_of(own(facts | {fact for fact in about if entity >= SEEN}, entity), entity)
        found = profiles.excess(entity, ids(*(relation for relation, _ in stated)))
        np.testing.assert_allclose(found, excess_by_hand(facts, entity, stated), rtol=1e-9)
        assert (found >= 1 - 1e-12).all()  # who has more has one more at least


def test_those_who_are_alike_say_how_many_more_there_are():
    facts = {
        (0, 0, 5),
        (0, 1, 1),
        (0, 1, 2),
        (0, 1, 3),
        (4, 2, 5),
        (4, 1, 2),
    }  # 0 lives with three friends, 4 owns, one
    profiles = profiles_of(facts)
    resident, owner = (profiles.excess(SEEN, ids(relation))[1] for relation in (0, 2))
    assert 1 < owner < 1.5 < 2.5 < resident < 3
    assert profiles.excess(SEEN, ids(0, 1))[1] == pytest.approx(2)  # one of the three is known
    assert profiles.excess(SEEN, ids(0, 1, 1, 1))[1] == 1.0  # nobody has a fourth


LIVES, KNOWS, OWNS = range(RELATIONS)
TOWN = {(0, LIVES, 5), (1, LIVES, 5), (2, LIVES, 5), (0, KNOWS, 1), (0, KNOWS, 2), (1, KNOWS, 2), (1, OWNS, 4)}


def probability(evidence: np.ndarray, relation: int) -> np.ndarray:
    return 1 / (1 + np.exp(-evidence[relation, :3]))


def test_a_relation_that_nobody_has_twice_is_not_filled_twice():
    profiles = profiles_of(TOWN)
    without, once = (evidence_of(profiles, SEEN, stated) for stated in ([(KNOWS, 0)], [(LIVES, 5), (KNOWS, 0)]))
    assert (probability(without, LIVES)[:2] > 0.4).all()  # all who know somebody live somewhere
    assert (probability(once, LIVES) <= 0.5 / (3 + 1) + 1e-12).all() and once[LIVES, 4] == 1 > without[LIVES, 4]
    assert (once[LIVES, :3] < once[KNOWS, :3]).all()  # who knows one may well know another
    assert profiles.share_with_more(LIVES, 1) < profiles.share_with_more(KNOWS, 1)


def test_those_who_are_like_an_entity_count_more_than_others():
    facts = {(0, KNOWS, 3), (0, OWNS, 5), (1, KNOWS, 4), (2, LIVES, 5), (1, LIVES, 5)}
    profiles = profiles_of(facts)
    as_first, as_second = (probability(evidence_of(profiles, SEEN, [(KNOWS, one)]), OWNS) for one in (3, 4))
    assert as_first[1] > as_second[1] and as_first[0] == as_second[0] and as_first[2] == as_second[2]
    resident, owner = (evidence_of(profiles, SEEN, [fact]) for fact in ((LIVES, 5), (OWNS, 5)))
    assert probability(resident, KNOWS)[0] != probability(owner, KNOWS)[0]


@pytest.mark.parametrize("extra", [set(), {(5, KNOWS, 0), (4, KNOWS, 0)}], ids=["alone", "among others"])
def test_a_seen_entity_says_nothing_about_itself(extra):
    facts = {(0, LIVES, 5), (0, OWNS, 4), *extra}
    profiles = profiles_of(facts)
    stated = [row for row in rows_of(facts, 0) if row[0] != OWNS]
    found, base = evidence_of(profiles, 0, stated), profiles.share_with_more(OWNS, 0)
    # Nobody else has what it has in common with owners, so that only the base is left, or less.
    assert (probability(found, OWNS)[:2] <= base + 1e-12).all()
    stranger = evidence_of(profiles, SEEN, stated)
    assert (probability(stranger, OWNS)[:2] > base).all()


def test_of_nobody_nothing_but_the_base_is_known():
    profiles = profiles_of(TOWN)
    found = evidence_of(profiles, SEEN, [])
    np.testing.assert_allclose(found[:, 0], found[:, 2])
    np.testing.assert_allclose(found[:, 1], found[:, 2])
    assert not found[:, 3:].any()
    empty = evidence_of(profiles_of(set()), SEEN, [(LIVES, 5)])
    assert np.isfinite(empty).all()


def test_the_likely_relations_come_first_and_equals_in_their_order():
    evidence = np.zeros((4, EVIDENCE))
    evidence[:, 0], evidence[:, 1] = [1.0, -1.0, 2.0, 0.0], [0.0, 3.0, -1.0, -5.0]
    evidence[:, 2] = [9.0, 0.0, 0.0, 99.0]  # the base does not tell entities apart
    found = likely_relations(evidence, 3)
    assert found.tolist() == [1, 0, 2] and found.dtype == np.int32
    assert likely_relations(evidence, 99).tolist() == [1, 0, 2, 3]


@given(st.sets(FACT, min_size=1, max_size=30))
def test_all_entities_are_seen_unless_it_is_said_how_many_are(facts):
    observed = Graph.build(*vocabularies(), triples(facts))
    profiles = RelationProfiles(observed)
    assert profiles.num_seen == max(max(head, tail) for head, _, tail in facts) + 1
