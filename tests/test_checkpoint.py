"""Checkpoints: everything comes back to the bit, damage and foreign files are named, a write is whole or not at all."""

import json
import os
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from conftest import complaint
from newcomer.errors import InputError, OutputError
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.rules.rule import Kind, Rule, RuleSet
from newcomer.training import checkpoint
from newcomer.training.checkpoint import (
    Identity,
    RunState,
    Tensors,
    model_tensors,
    read_checkpoint,
    restore_model,
    restore_trainer,
    trainer_tensors,
    write_checkpoint,
)
from newcomer.training.embedding import Trainer
from newcomer.training.preparation import prepare
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
DATASET, CONFIG = world(), settings("model.dropout=0.2")
IDENTITY = Identity.of(DATASET, CONFIG, None)
PREPARED = prepare(DATASET, CONFIG)
GRAPH = build_graph_tensors(DATASET.observed, PREPARED.num_seen, PREPARED.seen_neighbors, CPU)
STATE = RunState(
    "search", 3, 2, {"mrr": 0.25, "mr": 4.0}, 1, {"queries": 3, "rules": None}, [{"epoch": 1, "loss": 0.1}]
)
TENSORS: Tensors = {
    "model.a": torch.tensor([[1.5, -0.0], [float("nan"), 1e-45]]),
    "optimiser.0.step": torch.tensor(7.0),
    "labels": torch.empty(0),
    "best.é": torch.arange(3),
}


def same(one: Tensors, other: Tensors) -> bool:
    def written(tensors: Tensors) -> dict[str, Any]:
        return {name: (str(v.dtype), tuple(v.shape), v.numpy().tobytes()) for name, v in tensors.items()}

    return written(one) == written(other)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint.safetensors", IDENTITY, STATE, TENSORS)
    return tmp_path / "checkpoint.safetensors"


def refused(path: Path, identity: Identity = IDENTITY) -> str:
    error = complaint(read_checkpoint, path, identity)
    assert isinstance(error, InputError) and Path(error.path) == path
    assert str(error).endswith("start anew with --force")
    return str(error)


def test_everything_comes_back(path):
    state, tensors = read_checkpoint(path, IDENTITY)
    assert state == STATE and same(tensors, TENSORS)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_new_checkpoint_takes_the_place_of_the_old_one(path):
    later = replace(STATE, epoch=4)
    write_checkpoint(path, IDENTITY, later, {"labels": torch.ones(2)})
    state, tensors = read_checkpoint(path, IDENTITY)
    assert state == later and same(tensors, {"labels": torch.ones(2)})


def trained(epochs: range, trainer: Trainer | None = None) -> Trainer:
    trainer = trainer or Trainer(CONFIG, GRAPH, CPU)
    for number in epochs:
        trainer.epoch(number)
    return trainer


def test_a_trainer_goes_on_as_if_it_had_never_stopped(tmp_path):
    assert len(GRAPH.virtual) > 0
    stopped = trained(range(3))
    write_checkpoint(tmp_path / "c", IDENTITY, STATE, trainer_tensors(stopped))
    _, tensors = read_checkpoint(tmp_path / "c", IDENTITY)
    resumed = Trainer(CONFIG, GRAPH, CPU)
    restore_trainer(resumed, tensors)
    assert same(trainer_tensors(trained(range(3, 5), resumed)), trainer_tensors(trained(range(5))))
    forgetful = Trainer(CONFIG, GRAPH, CPU)
    restore_model(forgetful, tensors)  # without the optimiser's state it goes elsewhere
    assert not same(model_tensors(trained(range(3, 5), forgetful)), model_tensors(trained(range(5))))


def test_what_is_kept_does_not_change_when_training_goes_on():
    trainer = trained(range(1))
    kept = trainer_tensors(trainer)
    before = {name: value.clone() for name, value in kept.items()}
    fresh = Trainer(CONFIG, GRAPH, CPU)
    restore_trainer(fresh, kept)
    trained(range(1, 2), trainer)
    trained(range(1, 2), fresh)
    assert same(kept, before)


def test_labels_of_another_graph_are_refused():
    tensors = model_tensors(trained(range(1)))
    with pytest.raises(ValueError, match="labels for"):
        restore_model(Trainer(CONFIG, GRAPH, CPU), {**tensors, "labels": torch.ones(1)})


def test_every_byte_counts(path):
    content = path.read_bytes()
    for place in range(0, len(content), 37):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        refused(path)
    for cut in (b"", content[:5], content[:-1], content + b"\0", content[: len(content) // 2]):
        path.write_bytes(cut)
        assert "is not a whole checkpoint" in refused(path)


class Trap:
    """Leaves a file behind if someone unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path):
    path, trap = tmp_path / "c", Trap(tmp_path / "sprung")
    path.write_bytes(pickle.dumps(trap))
    refused(path)
    torch.save({"labels": trap}, path)
    refused(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("header", [None, "", "[]", "{}", "nonsense", "[" * 100_000, '{"format": "newcomer model"}'])
def test_a_foreign_file_is_refused(tmp_path, header):
    save_file(TENSORS, tmp_path / "c", None if header is None else {"newcomer": header})
    refused(tmp_path / "c")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    refused(tmp_path / "nowhere")
    refused(tmp_path)


def test_a_later_format_is_refused(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 3)
    write_checkpoint(path, IDENTITY, STATE, TENSORS)
    monkeypatch.undo()
    assert "is no checkpoint that this version of newcomer reads" in refused(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("training.lr=0.5", "was written with training.lr = 0.02, not 0.5"),
        ("seed=3", "was written with seed = 0, not 3"),
        ("rules.kinds=one", "was written with rules.kinds = ['one', 'two', 'both'], not ['one']"),
        ("model.decoder=transe", "was written with model.decoder = 'distmult', not 'transe'"),
    ],
)
def test_other_settings_are_named(path, change, problem):
    text = refused(path, Identity.of(DATASET, settings("model.dropout=0.2", change), None))
    assert problem in text and "resume with the same settings" in text


def test_a_setting_that_is_no_more_is_named(path):
    older = json.loads(json.dumps(asdict(IDENTITY)))
    older["settings"]["training"]["patients"] = 3
    write_checkpoint(path, Identity(**older), STATE, TENSORS)
    assert "was written with training.patients = 3, not None" in refused(path)


def test_other_data_rules_and_versions_are_named(path):
    other = Identity.of(world(valid=[("p00", "knows", "p01")]), CONFIG, None)
    assert "belongs to other data ('made') than 'made' is now" in refused(path, other)
    rules = [RuleSet.of([Rule(Kind.ONE, 0, body)], 4) for body in (1, 2)]
    first, second = (Identity.of(DATASET, CONFIG, one) for one in rules)
    assert "was written with rules that it mined, not with the given rules of SHA-256" in refused(path, first)
    write_checkpoint(path, first, STATE, TENSORS)
    assert "was written with the given rules of SHA-256" in refused(path, second)
    assert read_checkpoint(path, first)[0] == STATE
    assert "was written by newcomer" in refused(path, replace(first, version="99"))


@pytest.mark.parametrize("step", ["save_file", "_to_disk", "_checksum"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["killed", "full"])
def test_a_write_that_stops_leaves_the_old_one(path, monkeypatch, step, stop):
    def stopping(*_: Any, **__: Any) -> None:
        raise stop

    monkeypatch.setattr(checkpoint, step, stopping)
    with pytest.raises(BaseException) as caught:
        write_checkpoint(path, IDENTITY, replace(STATE, epoch=9), TENSORS)
    monkeypatch.undo()
    if isinstance(stop, OSError) and step != "_checksum":
        assert isinstance(caught.value, OutputError) and "No space left on device" in str(caught.value)
    assert read_checkpoint(path, IDENTITY)[0] == STATE
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_what_a_kill_left_does_no_harm(path):
    (path.parent / f".{path.name}.partial").write_bytes(b"half of")
    write_checkpoint(path, IDENTITY, replace(STATE, epoch=9), TENSORS)
    assert read_checkpoint(path, IDENTITY)[0].epoch == 9
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_the_new_one_is_on_disk_before_it_takes_the_place(path, monkeypatch):
    steps: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("sync"), real_sync(handle)))
    monkeypatch.setattr(Path, "replace", lambda one, other: (steps.append("replace"), real_replace(one, other)))
    write_checkpoint(path, IDENTITY, STATE, TENSORS)
    assert steps == ["sync", "replace", "sync"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_best_validation_is_the_first_of_the_highest(sequence):
    state, best = RunState(), 0
    for number, mrr in enumerate(sequence, start=1):
        state.epoch = number
        improved = state.validated({"mrr": mrr})
        assert improved == (number == 1 or mrr > max(sequence[: number - 1]))
        best = number if improved else best
        assert (state.best_epoch, state.stale) == (best, number - best)
        assert state.best["mrr"] == max(sequence[:number])


def test_the_best_tells_true_from_false_where_that_is_known_and_else_ranks_best():
    state = RunState(epoch=1)
    assert state.validated({"mrr": 0.5, "auc": 0.6})
    state.epoch = 2
    assert not state.validated({"mrr": 0.9, "auc": 0.6}) and state.stale == 1
    state.epoch = 3
    assert state.validated({"mrr": 0.1, "auc": 0.7}) and state.best_epoch == 3
    plain = RunState(epoch=1)
    assert plain.validated({"mrr": 0.5}) and not plain.validated({"mrr": 0.4})
