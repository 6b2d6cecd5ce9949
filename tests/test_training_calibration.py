"""What a model keeps of the worth of its scores: learned on held-out newcomers, stored, resumed, and read again."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from conftest import complaint, evaluate
from newcomer.evaluation.calibration import AnswerRecorder, Answers, fit_curve
from newcomer.evaluation.fact_probability import Calibration, FactCurve, FactExamples
from newcomer.evaluation.stored import CALIBRATION, THRESHOLDS, calibration_of, labelled_curve, thresholds_in
from newcomer.evaluation.suggestions import asked_newcomers
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
from newcomer.models.bundle import read_bundle, write_bundle
from newcomer.training.calibration import (
    MASKED_NEWCOMERS,
    ROUNDS,
    asked_triples,
    calibrate,
    fact_curve,
    first_right,
    masked_examples,
    newcomer_thresholds,
)
from newcomer.training.ensemble import EnsembleLearner
from newcomer.training.holdout import HoldOut, hold_out_newcomers
from newcomer.training.pipeline import Fitted, fit
from nn_oracle import one_thread
from training_world import StopAfter, Stopped, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()


@cache
def fitted(*changes: str) -> Fitted:
    return fit(DATASET, settings(*changes), device="cpu")


class Scores:
    """Every entity by a number of its own, whatever is asked."""

    def __init__(self, dataset: InductiveDataset) -> None:
        self.row = np.random.default_rng(0).normal(size=len(dataset.entities)).astype(np.float32)

    def scores(self, entities, relations):
        return np.tile(self.row, (len(entities), 1))


def exam() -> HoldOut:
    return hold_out_newcomers(DATASET, settings())


def test_the_curve_is_that_of_the_best_answers_with_all_that_the_data_set_states_as_right():
    asked = exam()
    dataset, scorer = asked.dataset, Scores(asked.dataset)
    heard = AnswerRecorder(scorer, dataset, dataset.known(), shares=False)
    evaluate(dataset, heard, queries=asked.queries)
    answers = heard.answers()
    # What the exam lost, facts between two of those held out, is still right.
    names = [list(row) for row in zip(answers.question, answers.entity, answers.relation, strict=True)]
    stated = set(DATASET.observed.named()) | {
        (DATASET.entities[h], DATASET.relations[r], DATASET.entities[t]) for h, r, t in DATASET.valid.rows.tolist()
    }
    lost = stated - set(dataset.known().named())
    assert lost and names
    right = np.zeros(len(answers), dtype=bool)
    size = len(dataset.relations)
    for place, (_, entity, relation) in enumerate(names):
        left_out = dataset.known_facts().contains(
            [entity] * len(dataset.entities),
            [relation % size] * len(dataset.entities),
            np.arange(len(dataset.entities)),
        )
        assert relation < size
        order = [one for one in np.argsort(-scorer.row, kind="stable").tolist() if not left_out[one]]
        answer = order[answers.place[place]]
        right[place] = (dataset.entities[entity], dataset.relations[relation], dataset.entities[answer]) in stated
    found = Calibration.from_dict(calibrate(asked, scorer, DATASET, False, 0), dataset.relations)
    wanted = fit_curve(answers.evidence, right, answers.relation, answers.question)
    assert found.answers.share == wanted.share and found.answers.relations == wanted.relations
    assert right.sum() >= answers.right.sum() > 0


def test_triples_are_learned_from_drawn_and_made_up_ones():
    asked = exam()
    scorer = Scores(asked.dataset)
    triples = asked_triples(asked, scorer, DATASET, 0)
    kept = calibrate(asked, scorer, DATASET, False, 0, asked=triples)
    found = Calibration.from_dict(kept, asked.dataset.relations)
    assert found.triples is not None
    drawn = len(np.unique(asked.queries.triple))
    assert drawn < sum(own.questions for own in found.triples.relations.values()) <= 2 * drawn


def test_the_first_answers_are_counted_by_known_facts():
    asked = exam()
    newcomers = asked.dataset.newcomers[:2]
    answers = Answers(
        np.array([0, 0, 1]),
        np.array([newcomers[0], newcomers[0], newcomers[1]], dtype=np.int32),
        np.zeros(3, dtype=np.int32),
        np.array([0, 1, 0]),
        np.zeros((3, 2)),
        np.zeros(3),
        np.array([True, True, False]),
    )
    found = first_right(answers, asked.dataset)
    assert sum(count for count, _ in found.values()) == 2 and sum(right for _, right in found.values()) == 1


@pytest.mark.parametrize("changes", [(), ("model.ensemble=yes", "model.constrained=no")], ids=["network", "blended"])
def test_a_model_is_stored_with_its_calibration(changes, tmp_path: Path):
    model = fitted(*changes)
    write_bundle(tmp_path / "m", model.bundle(DATASET))
    bundle = read_bundle(tmp_path / "m")
    found = calibration_of(bundle)
    assert found is not None and found.to_dict(bundle.observed.relations) == model.metrics[CALIBRATION]
    assert sum(asked for asked, _ in found.first_right.values()) > 0
    assert calibration_of(replace(bundle, metrics={})) is None


def test_without_validation_there_is_no_calibration():
    assert CALIBRATION not in fitted("training.validation_rate=0").metrics


def test_a_resumed_training_has_the_same_calibration(tmp_path: Path):
    epochs = len(fitted().history)
    with pytest.raises(Stopped):
        fit(DATASET, settings(), device="cpu", folder=tmp_path, report=StopAfter(epochs - 1))
    resumed = fit(DATASET, settings(), device="cpu", folder=tmp_path, resume=True)
    assert resumed.metrics[CALIBRATION] == fitted().metrics[CALIBRATION]


def test_thresholds_are_read_by_name_and_what_nobody_wrote_is_refused(tmp_path: Path):
    model = fitted()
    write_bundle(tmp_path / "m", model.bundle(DATASET))
    bundle = read_bundle(tmp_path / "m")
    stored = model.metrics[THRESHOLDS]
    assert stored["made_up"] and 0 <= stored["accuracy"] <= 1
    other = Vocabulary(["moon_of", "citizen_of"])
    found = thresholds_in(bundle, other)
    assert found is not None and found.overall == stored["overall"]
    assert found.relations == {1: stored["relations"]["citizen_of"]}
    assert thresholds_in(replace(bundle, metrics={}), other) is None
    for damaged in ({}, {"overall": "much", "relations": {}}, {"overall": 1.0, "relations": []}, 3):
        error = complaint(thresholds_in, replace(bundle, metrics={THRESHOLDS: damaged}), other)
        assert "train the model again" in str(error)


def test_everything_stated_leaves_no_thresholds():
    asked = exam()
    everyone, size = np.arange(len(asked.dataset.entities)), len(asked.dataset.relations)
    rows = [(h, r, t) for h in everyone for r in range(size) for t in everyone]
    names = asked.dataset.entities, asked.dataset.relations
    full = replace(asked.dataset, observed=Graph.build(*names, TripleArray.of(rows)))
    assert asked_triples(replace(asked, dataset=full), Scores(full), DATASET, 0) is None
    assert newcomer_thresholds(None, asked, 0) == {}


def bare_learner(exam_: HoldOut, model: Fitted) -> SimpleNamespace:
    """What asks: a model that learned without those held out."""
    return SimpleNamespace(model=model.model, threads=1, prepared=SimpleNamespace(dataset=exam_.dataset))


@cache
def searched() -> Fitted:
    """Trained on the graph without those held out alone."""
    return fit(exam().dataset, settings("training.epochs=1", "training.validation_rate=0"), device="cpu", threads=1)


def examples(**others: object) -> FactExamples | None:
    learner = bare_learner(exam(), searched())
    vars(learner).update(others)
    return masked_examples(cast(EnsembleLearner, learner), None, exam(), DATASET)


def test_facts_of_those_held_out_are_masked_and_asked_about_in_several_rounds():
    found, dataset = examples(), exam().dataset
    assert found is not None
    who = asked_newcomers(dataset, dataset.newcomers, 99, searched().model.config.seed, single=True)
    assert 0 < len(who) < MASKED_NEWCOMERS / ROUNDS and set(found.entity.tolist()) == set(who.tolist())
    assert np.array_equal(found.entity.reshape(ROUNDS, -1)[0], found.entity.reshape(ROUNDS, -1)[1])
    missing = found.missing.reshape(ROUNDS, -1)
    assert len({row.tobytes() for row in missing}) > 1  # other facts are masked each time
    # Right is what the data set states of them: what was masked, and what left the graph with others held out.
    stated = {(h, r, t) for h, r, t in DATASET.observed.named()} | {
        (DATASET.entities[h], DATASET.relations[r], DATASET.entities[t]) for h, r, t in DATASET.valid.rows.tolist()
    }
    size, names = len(dataset.relations), dataset.entities
    assert found.right.any() and not found.right.all() and found.applies.any()
    for question, answer, right in zip(found.question, found.answer, found.right, strict=True):
        entity, relation = found.entity[question], found.relation[question]
        ends = (names[entity], names[answer]) if relation < size else (names[answer], names[entity])
        assert right == ((ends[0], dataset.relations[relation % size], ends[1]) in stated)
    again = examples()
    assert again is not None and all(np.array_equal(*pair) for pair in zip(found, again, strict=True))


def test_where_nothing_can_be_masked_there_are_no_examples():
    assert examples(prepared=SimpleNamespace(dataset=DATASET.reunited())) is None  # all were trained on
    asked = exam()
    facts = asked.dataset.auxiliary.triples
    first = np.unique(np.where(asked.dataset.is_newcomer[facts.heads], facts.heads, facts.tails), return_index=True)[1]
    few = Graph.build(asked.dataset.entities, asked.dataset.relations, facts.take(first))
    bare = replace(asked, dataset=replace(asked.dataset, auxiliary=few))
    assert len(bare.dataset.newcomers) and len(asked_newcomers(bare.dataset, bare.dataset.newcomers, 9, 0, True)) == 0
    learner = bare_learner(asked, searched())
    assert masked_examples(cast(EnsembleLearner, learner), None, bare, DATASET) is None


def test_a_curve_of_facts_needs_right_answers_and_wrong_ones():
    found = examples()
    assert found is not None and fact_curve(None) is None
    for right in (True, False):
        assert fact_curve(found._replace(right=np.full(len(found.right), right))) is None
    assert isinstance(fact_curve(found), FactCurve)
    kept = calibrate(exam(), Scores(exam().dataset), DATASET, False, 0, found)["facts"]
    wanted = fact_curve(found)
    assert wanted is not None and kept == wanted.to_dict(exam().dataset.relations)


def test_triples_have_a_curve_of_their_own_only_where_labels_told_which_are_true(tmp_path: Path):
    write_bundle(tmp_path / "m", fitted().bundle(DATASET))
    bundle = read_bundle(tmp_path / "m")
    assert bundle.metrics[THRESHOLDS]["made_up"] and labelled_curve(bundle) is None
    content = {**bundle.metrics[CALIBRATION], "triples": {**bundle.metrics[CALIBRATION]["answers"], "shift": 0.5}}
    told = {**bundle.metrics[THRESHOLDS], "made_up": False}
    found = labelled_curve(replace(bundle, metrics={CALIBRATION: content, THRESHOLDS: told}))
    assert found is not None and found.shift == 0.5
    for metrics in (
        {},
        {CALIBRATION: content},
        {THRESHOLDS: told},
        {CALIBRATION: content, THRESHOLDS: bundle.metrics[THRESHOLDS]},
        {CALIBRATION: content, THRESHOLDS: {name: value for name, value in told.items() if name != "made_up"}},
        {CALIBRATION: {**content, "triples": None}, THRESHOLDS: told},
    ):
        assert labelled_curve(replace(bundle, metrics=metrics)) is None
