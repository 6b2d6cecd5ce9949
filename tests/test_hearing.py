"""All that is known is heard (newcomer.predictor.hearing), others' facts, too; who is like whom is told by facts."""

import numpy as np
import pytest

from newcomer.predictor import Predictor
from nn_oracle import one_thread
from test_predictor import ATLANTIS, BLENDED, DATASET, HEARING, model
from training_world import FOLDED

on_one_thread = pytest.fixture(autouse=True)(one_thread)
Triple = tuple[str, str, str]


def facts_of(predictor: Predictor) -> set[Triple]:
    book, words = predictor._state.book, predictor._mind.names.words
    told = {words(fact) for name in predictor.newcomers for fact in book.facts[name]}
    return {*DATASET.observed.named(), *told}


def test_an_answer_is_like_known_answers_by_facts_that_both_have():
    predictor, known = model(*FOLDED, *BLENDED, HEARING), {"p05", "p07"}
    predictor.add([*ATLANTIS, ("p07", "knows", "Atlantis")])
    answers, facts = predictor.heads("knows", "Atlantis", k=40), facts_of(predictor)
    assert {one.answer for answer in answers for one in answer.because.alike} == known
    for answer in answers:
        alike, part = answer.because.alike, answer.because.parts["company"]
        assert {one.answer for one in alike} <= known and bool(alike) == (part != 0)
        assert sum(one.share for one in alike) == pytest.approx(1.0 if alike else 0.0)
        for one in alike:
            assert one.facts and set(one.facts) <= facts
            assert {tuple(answer.entity if end == one.answer else end for end in fact) for fact in one.facts} <= facts
            assert all("Atlantis" not in fact for fact in one.facts)


def parts_of(predictor: Predictor) -> dict[str, dict[str, float]]:
    answers = predictor.tails("Atlantis", "citizen_of", k=40)
    return {answer.entity: answer.because.parts for answer in answers if answer.entity.startswith("land")}


def test_others_who_arrive_are_heard_but_change_neither_vector_nor_rules():
    predictor = model(*FOLDED, *BLENDED, HEARING)
    predictor.add(ATLANTIS)
    before, vector = parts_of(predictor), predictor.embed("Atlantis")
    predictor.add([("Lyonesse", "lives_in", "city1"), ("Lyonesse", "citizen_of", "land2")])
    after = parts_of(predictor)
    assert np.array_equal(predictor.embed("Atlantis"), vector)
    differing = {
        (land, voice) for land in before for voice in before[land] if after[land][voice] != before[land][voice]
    }
    assert differing == {("land2", "frequency")} and after["land2"]["frequency"] != 0
    predictor.remove("Lyonesse")
    assert parts_of(predictor) == before


def test_what_a_newcomer_tells_of_seen_entities_makes_them_alike():
    predictor = model(*FOLDED, *BLENDED, HEARING)
    predictor.add(ATLANTIS)
    [before] = [one for one in predictor.heads("knows", "Atlantis", k=40) if one.entity == "land2"]
    assert before.because.alike == ()
    predictor.add([("Lyonesse", "knows", "p05"), ("Lyonesse", "knows", "land2")])
    [after] = [one for one in predictor.heads("knows", "Atlantis", k=40) if one.entity == "land2"]
    assert [(one.answer, one.facts) for one in after.because.alike] == [("p05", (("Lyonesse", "knows", "p05"),))]
    assert after.score > before.score


def test_a_model_that_hears_vectors_and_rules_alone_likens_nobody():
    assert model(*FOLDED, *BLENDED).tails("q0", "citizen_of")[0].because.alike == ()
