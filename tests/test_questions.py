"""Questions in a snapshot: the same fact has one probability, known or not, asked from either end, listed or alone."""

from collections.abc import Iterable
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from newcomer.evaluation.applicability import EVIDENCE, RelationProfiles
from newcomer.evaluation.calibration import Curve, RelationCurve, sigmoid
from newcomer.evaluation.fact_probability import APPLIES, Calibration, FactCurve
from newcomer.evaluation.questions import RULELESS, Likely, Prober, Question, Questions, likeliest
from newcomer.graph import Graph, Overlay
from newcomer.models.embedding.scorer import Snapshot
from newcomer.models.engine import InferenceEngine, Scored
from overlay_world import (
    ENTITIES,
    FACT,
    RELATIONS,
    SEEN,
    Fact,
    changes,
    connected,
    ids,
    of_newcomers,
    oriented,
    overlay_of,
    rows_of,
    triples,
    vocabularies,
)

MOST = ENTITIES + 2  # entities, those who come later included
SIZE = 2 * RELATIONS
EVERYONE = np.arange(ENTITIES)
few = settings(max_examples=20)  # of what asks a great deal each time
TABLES = np.random.default_rng(0).normal(size=(MOST, SIZE, MOST)).astype(np.float32)
RULES = np.random.default_rng(1).random((MOST, SIZE, MOST)).astype(np.float32)
RULES[RULES < 0.5] = 0.0  # nobody infers it


class MadeUp:
    """Stands for an engine: scores and rules are drawn, and stay the same whatever is known."""

    def __init__(self, shares: bool) -> None:
        self.model = SimpleNamespace(weights=object() if shares else None)

    def scored(self, snapshot: Snapshot, entity: int, relation: int) -> Scored:
        size = snapshot.num_entities
        rules = None if self.model.weights is None else RULES[entity, relation, :size]
        return Scored(TABLES[entity, relation, :size], rules, {})


def curves() -> Calibration:
    """Each relation has curves of its own, so that it matters from which end a fact is asked for."""
    own = {one: RelationCurve(1 + one / 10, -one / 5, 3) for one in range(SIZE)}
    answers = Curve(0.7, 0.2, -0.5, np.empty((0, 2)), own)
    together = np.array([0.7, 0.2, 0.8, 0.1, 0.6, 0.1, 0.1, -0.3, 0.2])
    facts = FactCurve(np.array([0.3, 0.6, 0.1, 0.2, -0.7, 0.4]), answers, together, np.empty((0, 2)), own)
    return Calibration(answers, None, facts=facts)


CURVES = curves()


def profiles_of(facts: set[Fact]) -> RelationProfiles:
    observed = Graph.build(*vocabularies(), triples(facts - of_newcomers(facts)))
    return RelationProfiles(observed, SEEN)


def present(facts: set[Fact], size: int) -> np.ndarray:
    """Everyone seen, and the newcomers that something is known of."""
    ends = {end for fact in facts for end in fact[::2]}
    return np.array([one < SEEN or one in ends for one in range(size)])


def prober_over(
    overlay: Overlay,
    facts: set[Fact],
    calibration: Calibration | None = CURVES,
    shares: bool = True,
    there: np.ndarray | None = None,
    profiles: RelationProfiles | None = None,
) -> Prober:
    there = present(facts, overlay.num_entities) if there is None else there
    engine = cast(InferenceEngine, MadeUp(shares))
    return Prober(Questions(engine, Snapshot(overlay, (), there), profiles or profiles_of(facts)), calibration)


def prober_of(facts: set[Fact], **others: Any) -> Prober:
    return prober_over(overlay_of(facts), facts, **others)


def every_probability(prober: Prober) -> np.ndarray:
    """(entities, oriented relations, entities)"""
    size, found = prober.questions.overlay.num_entities, prober.questions
    everyone = np.arange(size)
    rows = [[prober.probabilities(found.ask(one, r), everyone) for r in range(SIZE)] for one in range(size)]
    return np.array(rows)


@few
@given(changes(most=25))
def test_a_fact_has_one_probability_from_whichever_end_it_is_asked_for(change):
    found = every_probability(prober_over(change.derived, change.now))
    assert ((found > 0) & (found < 1)).all()
    for relation in range(RELATIONS):
        assert np.array_equal(found[:, relation], found[:, relation + RELATIONS].T)


@few
@given(changes(most=25))
def test_it_is_asked_for_from_the_newcomer_or_from_the_head(change):
    prober = prober_over(change.derived, change.now)
    everyone = np.arange(change.num_entities)
    for entity in (0, SEEN, ENTITIES - 1):
        for relation in range(SIZE):
            question = prober.questions.ask(entity, relation)
            wanted = [
                (other >= SEEN if (entity >= SEEN) != (other >= SEEN) else relation >= RELATIONS)
                for other in everyone.tolist()
            ]
            assert prober.questions.asked_from_answer(question, everyone).tolist() == wanted
            found, plain = prober.probabilities(question, everyone), prober.from_entity(question, everyone)
            for other in everyone.tolist():
                turned = prober.from_answer(entity, relation, other)
                assert found[other] == (turned if wanted[other] else plain[other])


@settings(max_examples=40)
@given(st.sets(FACT, min_size=4, max_size=20), st.data())
def test_a_known_fact_is_as_probable_as_if_it_were_not_known(facts, data):
    about = sorted(of_newcomers(facts))
    assume(about)
    fact = data.draw(st.sampled_from(about))
    there = present(facts, ENTITIES)
    with_it, without = (prober_of(one, there=there, profiles=profiles_of(facts)) for one in (facts, facts - {fact}))
    head, relation, tail = fact
    assume(without.questions.is_tied(head) and without.questions.is_tied(tail))  # else only this fact ties them
    for entity, along, other in ((head, relation, tail), (tail, relation + RELATIONS, head)):
        known, asked = (one.questions.ask(entity, along) for one in (with_it, without))
        assert other in known.known and other not in asked.known
        places = ids(other)
        for method in ("probabilities", "from_entity", "if_any"):
            assert getattr(with_it, method)(known, places) == getattr(without, method)(asked, places), method
        assert np.array_equal(known.evidence(places), asked.evidence(places))


@few
@given(st.sets(FACT, max_size=25), st.integers(0, ENTITIES - 1), st.integers(0, SIZE - 1))
def test_what_is_asked_together_does_not_matter_to_the_bit(facts, entity, relation):
    prober = prober_of(facts)
    together = prober.probabilities(prober.questions.ask(entity, relation), EVERYONE)
    for place in EVERYONE.tolist():
        question = prober_of(facts).questions.ask(entity, relation)
        assert prober.probabilities(question, ids(place))[0] == together[place]


@given(changes(most=25), st.integers(0, ENTITIES - 1), st.integers(0, SIZE - 1))
def test_known_answers_and_the_absent_are_no_candidates(change, entity, relation):
    prober = prober_over(change.derived, change.now)
    question = prober.questions.ask(entity, relation)
    known = {tail for one, tail in rows_of(change.now, entity) if one == relation}
    assert set(question.known.tolist()) == known
    absent = set(np.flatnonzero(~present(change.now, change.num_entities)).tolist())
    assert set(np.flatnonzero(question.left_out).tolist()) == known | absent
    scored = Scored(np.zeros(change.num_entities, dtype=np.float32), None, {})
    assert prober.questions.ask(entity, relation, scored).scored is scored


def counts(facts: set[Fact], relation: int, size: int) -> list[int]:
    """How often each answers an oriented relation, as its entity."""
    return [sum(one == relation for one, _ in rows_of(facts, entity)) for entity in range(size)]


@given(changes(most=25), st.integers(0, ENTITIES - 1), st.integers(0, SIZE - 1))
def test_room_is_the_share_of_those_who_answer_once_more(change, entity, relation):
    prober, now, seen = prober_over(change.derived, change.now), change.now, change.now - of_newcomers(change.now)
    inverse = (relation + RELATIONS) % SIZE
    assert prober.questions.inverse(relation) == inverse
    often, before = counts(now, inverse, change.num_entities), counts(seen, inverse, SEEN)
    along = [fact for fact in oriented(seen) if fact[1] == relation]
    loops = (sum(head == tail for head, _, tail in along) + 0.5) / (len(along) + 1)
    wanted = []
    for answer in range(change.num_entities):
        times = often[answer] - ((relation, answer) in rows_of(now, entity))
        share = (sum(one > times for one in before) + 0.5) / (sum(one >= times for one in before) + 1)
        wanted.append((share if times else 1.0) * (loops if answer == entity else 1.0))
    found = prober.questions.room(prober.questions.ask(entity, relation), np.arange(change.num_entities))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@given(changes(most=15))
def test_tied_is_who_is_connected_to_somebody_seen(change):
    facts, questions = change.now, prober_over(change.derived, change.now).questions
    for entity in range(change.num_entities):
        whole = connected(facts, {entity})  # goes on through newcomers alone
        met = {end for fact in facts if set(fact[::2]) & whole for end in fact[::2]} | {entity}
        assert questions.is_tied(entity) is (min(met) < SEEN)


CHAIN = {(6, 0, 7), (8, 1, 7)}
SEEN_FACTS = {(0, 0, 1), (2, 0, 1), (1, 1, 3), (4, 2, 5)}


def test_who_hangs_on_a_chain_of_newcomers_is_tied_by_its_end():
    for link in ((8, 2, 3), (3, 2, 8), (7, 2, 3)):
        questions = prober_of({*SEEN_FACTS, *CHAIN, link}).questions
        assert [questions.is_tied(one) for one in (6, 7, 8)] == [True] * 3
    for order in ((6, 7, 8), (8, 6, 7)):
        questions = prober_of({*SEEN_FACTS, *CHAIN}).questions
        assert [questions.is_tied(one) for one in order] == [False] * 3 and questions.is_tied(0)


def test_nothing_about_one_who_is_not_tied_is_likelier_than_its_base_rate():
    facts = {*SEEN_FACTS, *CHAIN}
    sure = Calibration(CURVES.answers, None, facts=_surer(cast(FactCurve, CURVES.facts)))
    prober, tied = prober_of(facts, calibration=sure), prober_of({*facts, (8, 2, 3)}, calibration=sure)
    for relation in range(SIZE):
        question = prober.questions.ask(6, relation)
        having = [sum(fact[1:] == (relation, answer) for fact in oriented(SEEN_FACTS)) for answer in EVERYONE]
        rates = (np.array(having) + 0.5) / (SEEN + 1)
        assert [prober.questions.base_rate(relation, one) for one in EVERYONE.tolist()] == pytest.approx(rates)
        found = prober.from_entity(question, EVERYONE)
        assert (found <= rates + 1e-15).all() and np.isclose(found, rates).any()
        assert (tied.from_entity(tied.questions.ask(6, relation), EVERYONE) > rates).any()


def _surer(curve: FactCurve) -> FactCurve:
    return FactCurve(curve.applies, curve.answers, curve.together + np.eye(9)[8] * 5, curve.knots, curve.relations)


def test_the_base_rate_goes_by_what_was_observed():
    more = {(6, 0, 1), (7, 0, 1), (8, 0, 1)}
    questions = prober_of({*SEEN_FACTS, *more}).questions
    assert questions.base_rate(0, 1) == 2.5 / (SEEN + 1) and questions.base_rate(RELATIONS, 6) == 0.5 / (SEEN + 1)


@pytest.mark.parametrize("shares", [True, False])
def test_without_calibration_probabilities_are_those_of_scores(shares):
    facts = {*SEEN_FACTS, (6, 0, 1), (8, 1, 1)}  # 7 is not there
    prober = prober_of(facts, calibration=None, shares=shares)
    question, there = prober.questions.ask(6, 0), np.delete(EVERYONE, 7)
    exact = TABLES[6, 0, :ENTITIES].astype(np.float64)
    wanted = np.exp(exact) / np.exp(exact[there]).sum() if shares else sigmoid(exact)
    np.testing.assert_allclose(prober.if_any(question, there), wanted[there])
    assert np.array_equal(prober.from_entity(question, there), prober.if_any(question, there))


def test_without_a_curve_of_facts_they_are_those_of_answers_from_either_end():
    answers = Calibration(CURVES.answers, None)
    prober = prober_of({*SEEN_FACTS, *CHAIN}, calibration=answers)
    question = prober.questions.ask(6, 1)
    wanted = CURVES.answers.probabilities(question.evidence(EVERYONE), 1)
    assert np.array_equal(prober.from_entity(question, EVERYONE), wanted)
    found = every_probability(prober)
    assert np.array_equal(found[:, 1], found[:, 1 + RELATIONS].T)


def test_the_odds_of_the_best_rule_are_never_endless():
    nobody, known = ids(), np.zeros(3, dtype=bool)
    confidence = np.array([0.0, 0.25, 1.0], dtype=np.float32)
    by_rules, plain = (
        Question(0, 0, Scored(np.zeros(3, dtype=np.float32), rules, {}), nobody, known) for rules in (confidence, None)
    )
    found = by_rules.rule_odds(np.arange(3))
    assert found[0] == RULELESS and found[1] == pytest.approx(-np.log(3)) and found[2] == pytest.approx(-RULELESS)
    assert plain.rule_odds(ids(1, 2)).tolist() == [RULELESS] * 2


def listed(prober: Prober, entity: int, allowed: np.ndarray | None = None) -> dict[tuple[int, int, int], float]:
    """The probability of every fact of an entity that could be suggested, by head, relation and tail."""
    found = {}
    for relation in range(SIZE):
        question = prober.questions.ask(entity, relation)
        free = ~question.left_out if allowed is None else ~question.left_out & allowed
        places = np.flatnonzero(free)
        for place, probability in zip(places.tolist(), prober.probabilities(question, places).tolist(), strict=True):
            found[_fact(entity, relation, place)] = probability
    return found


def asked(prober: Prober, entity: int, relations: Iterable[int]) -> list[Question]:
    """Questions about an entity along these relations."""
    return [prober.questions.ask(entity, relation) for relation in relations]


def _fact(entity: int, relation: int, place: int) -> tuple[int, int, int]:
    return (entity, relation, place) if relation < RELATIONS else (place, relation - RELATIONS, entity)


def check(prober: Prober, entity: int, found: list[Likely]) -> None:
    """What is listed is sorted, and each has its figures."""
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)
    for one in found:
        question, place = prober.questions.ask(entity, one.relation), ids(one.place)
        assert not question.left_out[one.place] and one.score == question.scores[one.place]
        assert one.probability == prober.probabilities(question, place)[0]
        assert one.if_any == max(prober.if_any(question, place)[0], one.probability)
        assert one.from_answer == prober.questions.asked_from_answer(question, place)[0]


@few
@given(changes(most=25))
def test_missing_answers_are_those_of_who_have_more_times_the_probability_that_any_is(change):
    profiles = profiles_of(change.before)
    for calibration in (CURVES, None):
        prober = prober_over(change.derived, change.now, calibration, profiles=profiles)
        weights = np.array(APPLIES if calibration is None else calibration.facts.applies)
        for entity in (0, SEEN):
            applies, missing = prober.missing(entity)
            relations = prober.questions.overlay.all_facts_of(entity)[0]
            assert applies == pytest.approx(sigmoid(prober.questions.applies(entity) @ weights[:-1] + weights[-1]))
            assert missing == pytest.approx(applies * profiles.excess(entity, relations))
            assert (missing >= applies - 1e-12).all()


@few
@given(changes(most=25), st.sampled_from([0, SEEN, ENTITIES - 1]), st.integers(1, 12))
def test_the_likeliest_of_all_are_those_that_asking_everything_gives(change, entity, k):
    prober = prober_over(change.derived, change.now)
    wanted = listed(prober, entity)
    found = likeliest(prober, entity, asked(prober, entity, range(SIZE)), 99)
    facts = [_fact(entity, one.relation, one.place) for one in found]
    assert len(set(facts)) == len(facts) and dict(
        zip(facts, (one.probability for one in found), strict=True)
    ) == pytest.approx(wanted, abs=0)
    check(prober, entity, found)
    some = likeliest(prober, entity, asked(prober, entity, range(SIZE)), k)
    assert len(some) == min(k, len(found))
    check(prober, entity, some)
    assert some == likeliest(prober, entity, asked(prober, entity, range(SIZE)), 20)[:k]  # however few are listed


@few
@given(st.sets(FACT, max_size=25), st.sampled_from([0, SEEN]), st.sets(st.integers(0, ENTITIES - 1)))
def test_only_those_who_are_allowed_are_listed(facts, entity, some):
    prober, allowed = prober_of(facts), np.isin(EVERYONE, sorted(some))
    found = likeliest(prober, entity, asked(prober, entity, range(SIZE)), 99, allowed)
    assert {one.place for one in found} <= some
    facts_found = {_fact(entity, one.relation, one.place): one.probability for one in found}
    assert facts_found == pytest.approx(listed(prober, entity, allowed), abs=0)
    assert len(likeliest(prober, entity, asked(prober, entity, range(SIZE)), 1, allowed)) == min(1, len(found))


def test_a_few_relations_are_asked_about_alone_and_nothing_of_none():
    prober = prober_of({*SEEN_FACTS, (6, 0, 1)})
    assert {one.relation for one in likeliest(prober, 6, asked(prober, 6, [1, 4]), 99)} == {1, 4}
    assert likeliest(prober, 6, asked(prober, 6, []), 5) == []


def test_a_fact_that_joins_one_to_itself_is_listed_once():
    prober = prober_of({*SEEN_FACTS, (6, 0, 1)})
    found = likeliest(prober, 6, asked(prober, 6, range(SIZE)), 99)
    assert sorted(one.relation % RELATIONS for one in found if one.place == 6) == list(range(RELATIONS))
    assert sum(one.place == 2 for one in found) == SIZE


@cache
def applied() -> tuple[Questions, np.ndarray]:
    questions = prober_of({*SEEN_FACTS, (6, 0, 1), (6, 1, 3)}).questions
    return questions, questions.applies(6)


def test_what_is_known_of_an_entity_is_looked_at_once_and_all_of_it():
    questions, found = applied()
    assert found.shape == (SIZE, EVIDENCE) and questions.applies(6) is found
    wanted = questions.profiles.evidence(6, *(ids(*column) for column in ([0, 1], [1, 3])))
    assert np.array_equal(found, wanted)
    without = questions.profiles.evidence(6, ids(1), ids(3))
    assert np.array_equal(questions.applies_without(6, 0, 1), without[0])
    assert np.array_equal(questions.applies_without(6, 0, 4), found[0])


def test_of_one_relation_the_same_is_known_as_of_all():
    everything = {*SEEN_FACTS, (6, 0, 1), (6, 1, 3), (6, 2, 6)}
    for entity, relation in product(range(7), range(SIZE)):
        questions, of_all = (prober_of(everything).questions for _ in range(2))
        first, again = (questions.applies_to(entity, relation) for _ in range(2))
        assert np.array_equal(first, of_all.applies(entity)[relation]) and np.array_equal(again, first)


def test_who_asks_while_another_clears_what_is_kept_has_an_answer():
    questions = prober_of({*SEEN_FACTS, (6, 0, 1)}).questions

    class Cleared(dict[int, np.ndarray]):
        """Another thread clears it after each look."""

        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            self.clear()
            return found

        def get(self, key: int, default: Any = None) -> Any:
            found = super().get(key, default)
            self.clear()
            return found

    first = questions.applies(6)
    questions._applies = Cleared({6: first})
    assert np.array_equal(questions.applies(6), first)


def test_a_fact_that_joins_one_to_itself_is_left_out_in_both_directions():
    facts = {*SEEN_FACTS, (6, 1, 3)}
    questions, others = (prober_of(one).questions for one in ({*facts, (6, 0, 6)}, facts))
    for relation in (0, RELATIONS):
        assert np.array_equal(questions.applies_without(6, relation, 6), others.applies(6)[relation])
