"""What a model keeps of the worth of its scores: learned on held-out newcomers, stored, resumed, and read again."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conftest import complaint, evaluate
from newcomer.evaluation.calibration import AnswerRecorder, Answers, fit_curve
from newcomer.evaluation.fact_probability import Calibration
from newcomer.evaluation.stored import CALIBRATION, THRESHOLDS, calibration_of, thresholds_in
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
from newcomer.models.bundle import read_bundle, write_bundle
from newcomer.training.calibration import calibrate, first_right, newcomer_thresholds
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
    found = Calibration.from_dict(calibrate(asked, Scores(asked.dataset), DATASET, False, 0), asked.dataset.relations)
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
    assert newcomer_thresholds(replace(asked, dataset=full), Scores(full), DATASET, 0) == {}
