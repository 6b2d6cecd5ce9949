"""Answers as plain values: what JSON can hold, and the same figures."""

import json
from dataclasses import asdict

import pytest

import newcomer
from newcomer.predictor import Predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(scope="module")
def model() -> Predictor:
    dataset = world()
    changes = ("model.ensemble=yes", "model.graph_statistics=yes")
    found = Predictor(fit(dataset, settings(*changes), threads=1).bundle(dataset))
    found.add([("zoe", "lives_in", "city1"), ("zoe", "knows", "p03")])
    return found


def again(value: object) -> object:
    """What comes back from a text of JSON: the value itself, if it is plain."""
    return json.loads(json.dumps(value))


def test_an_answer_is_plain_with_its_groundings(model):
    for answer in model.tails("zoe", "citizen_of", k=3):
        found = answer.to_dict()
        assert again(found) == found
        assert list(found) == ["entity", "score", "probability", "if_any", "because", "calibrated"]
        assert (found["entity"], found["score"], found["probability"]) == (
            answer.entity,
            answer.score,
            answer.probability,
        )
        assert [one["rule"] for one in found["because"]] == [one.rule for one in answer.because]
        assert [one["premises"] for one in found["because"]] == [[*map(list, one.premises)] for one in answer.because]


def test_a_grounding_has_all_its_fields(model):
    found = [one for answer in model.tails("zoe", "citizen_of", k=9) for one in answer.because]
    assert [again(one.to_dict()) for one in found] == [again(asdict(one)) for one in found] != []


def test_all_reasons_are_plain(model):
    reasons = model.tails("zoe", "citizen_of", k=1)[0].because
    found = reasons.to_dict()
    assert again(found) == found
    evidence = ["groundings", "typical", "parts", "chains", "weighed", "similar", "links", "without"]
    assert list(found) == ["reasons", *evidence]
    assert [one["sentence"] for one in found["reasons"]] == [one.sentence for one in reasons.reasons] != []
    assert found["parts"] == reasons.parts and found["groundings"][0]["support"] == reasons.groundings[0].support
    assert [one["share"] for one in found["weighed"]] == [one.share for one in reasons.weighed] != []
    assert found["without"] == (None if reasons.without is None else list(reasons.without))


def test_suggestions_verdicts_neighbours_and_what_adding_did_are_plain(model):
    added = model.copy().add([("yan", "knows", "zoe")])
    assert added.to_dict() == {"newcomers": ["yan"], "facts": 1, "repeated": 0, "skipped": 0}
    (verdict,) = model.classify([("zoe", "citizen_of", "land1")])
    assert verdict.to_dict()["fact"] == ["zoe", "citizen_of", "land1"] and verdict.to_dict()["is_true"] is True
    for one in [*model.suggest("zoe", k=2), verdict, *model.neighbors("zoe")]:
        found = one.to_dict()
        assert again(found) == found and found["fact"] == list(one.fact)


def test_confidence_is_plain_with_the_likeliest_fact_and_what_to_learn(model):
    confidence = model.confidence("zoe")
    found = confidence.to_dict()
    assert again(found) == found
    assert (found["facts"], found["enough"], found["best"]["fact"]) == (2, True, list(confidence.best.fact))
    far = model.copy()
    far.add([("far", "knows", "away")])  # no fact leads from these to anyone trained on
    assert (found["tied"], far.confidence("far").to_dict()["tied"]) == (True, False)
    assert [one["question"] for one in found["learn"]] == [one.question for one in confidence.learn] != []
    opened = confidence.learn[0].opens[0]
    assert found["learn"][0]["opens"][0] == {"question": opened[0], "confidence": opened[1]}


def test_the_package_shows_its_public_names():
    assert set(newcomer.__all__) <= set(dir(newcomer)) and "load" in dir(newcomer)
