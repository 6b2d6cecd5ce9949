"""What a training ends with, and whom it tells of what it does."""

from dataclasses import replace
from inspect import getmembers, isfunction
from pathlib import Path

import pytest

from newcomer.models.bundle import dataset_hash, read_bundle, write_bundle
from newcomer.training.checkpoint import Figures, RunState
from newcomer.training.fitted import PRELIMINARY, Fitted, Listener
from newcomer.training.pipeline import Limits, fit
from newcomer.training.schedule import Schedule
from nn_oracle import one_thread
from training_world import FOLDED, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
ENSEMBLE = (*FOLDED, "model.ensemble=yes", "training.epochs=1", "training.calibration_questions=40")


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit(DATASET, settings(*ENSEMBLE, "model.propagation=yes", "training.propagation_steps=2"), device="cpu")


def test_a_model_is_preliminary_only_where_it_says_so(fitted):
    assert not fitted.is_preliminary and PRELIMINARY not in fitted.metrics
    assert replace(fitted, metrics={**fitted.metrics, PRELIMINARY: True}).is_preliminary


def test_the_settings_are_those_of_the_model(fitted):
    assert fitted.config is fitted.model.config and fitted.config.training.propagation_steps == 2


def test_learned_propagation_comes_with_the_names_of_its_relations(fitted):
    network, names = fitted.learned_propagation or (None, [])
    assert network is fitted.model.propagation is not None
    assert list(names) == list(DATASET.relations) and len(network.known_relations) == 2 * len(names)
    assert replace(fitted, model=replace(fitted.model, propagation=None)).learned_propagation is None


def test_what_is_written_is_what_was_trained_on_and_measured(fitted, tmp_path):
    bundle = fitted.bundle(DATASET)
    write_bundle(tmp_path / "m", bundle)
    read = read_bundle(tmp_path / "m")
    assert read.config == fitted.config and read.metrics["ensemble"] == fitted.metrics["ensemble"]
    assert (read.dataset_name, read.dataset_hash) == ("made", dataset_hash(DATASET))
    assert len(read.observed) == len(DATASET.observed) and len(read.rules) == len(fitted.model.rules)
    assert read.auxiliary is not None and len(read.auxiliary) == len(DATASET.auxiliary)
    assert read.thresholds is None  # made-up triples: verdicts go by probability


def test_a_data_set_without_newcomers_leaves_none_behind():
    found = fit(world(aux=[], test=[]), settings("training.epochs=1"), device="cpu")
    assert found.bundle(DATASET).auxiliary is None


class Telling(Listener):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def schedule(self, schedule: Schedule, mined: bool) -> None:
        self.told.append(f"schedule {'with rules' if mined else ''}".strip())

    def stage(self, what: str) -> None:
        self.told.append(what)

    def step(self, done: int, total: int) -> None:
        assert 0 <= done <= total

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        assert state.history[-1] is record
        self.told.append(f"{record['phase']} {record['epoch']} of {last}")


def test_a_listener_is_told_everything_in_order():
    listener = Telling()
    fit(DATASET, settings(*ENSEMBLE), device="cpu", report=listener, limits=Limits(1e9))
    timing, mining = "timing a few steps of everything", ("mining rules", "inferring virtual neighbours")
    assert listener.told == [
        *(timing, "schedule", *mining, "rehearsing", timing),
        *("schedule with rules", *mining, "ranking by the rules alone", "search", "search 1 of 1"),
        *("learning the weights of the ensemble", "calibrating probabilities", "final", "final 1 of 1"),
    ]


def test_a_listener_that_overrides_nothing_keeps_it_all_to_itself(fitted, capsys):
    listener = Listener()
    given = {
        "schedule": (None, True),
        "first": (Path("m"),),
        "stage": ("x",),
        "step": (1, 2),
        "epoch": ({}, RunState(), 1),
    }
    assert {name for name, _ in getmembers(Listener, isfunction)} == set(given)
    for name, arguments in given.items():
        assert getattr(listener, name)(*arguments) is None
    assert capsys.readouterr() == ("", "")
