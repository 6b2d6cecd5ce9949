"""The folder of a training: lines that agree with the checkpoint, one process at a time, nobody else's files."""

import json
import sys
import types
from pathlib import Path

import pytest
import torch

from conftest import complaint, without_rights
from newcomer.errors import InputError, OutputError
from newcomer.training.checkpoint import (
    CHECKPOINT,
    METRICS,
    Identity,
    RunState,
    has_checkpoint,
    in_use,
    opened,
    remove_training,
)
from test_locks import another_process
from training_world import settings, world

IDENTITY = Identity.of(world(), settings(), None)


def record(epoch: int) -> dict[str, object]:
    return {"phase": "search", "epoch": epoch, "loss": epoch / 2}


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def written(folder: Path, epochs: range, resume: bool = False) -> None:
    with opened(folder, IDENTITY, resume) as journal:
        for number in epochs:
            journal.state.epoch = number
            journal.state.history.append(record(number))
            journal.save(record(number), {"labels": torch.full((2,), float(number))})


def test_a_line_an_epoch_and_on_from_there(tmp_path):
    folder = tmp_path / "some" / "run"
    written(folder, range(1, 4))
    assert lines(folder) == [record(1), record(2), record(3)] and has_checkpoint(folder)
    written(folder, range(4, 6), resume=True)
    assert lines(folder) == [record(number) for number in range(1, 6)]
    assert sorted(path.name for path in folder.iterdir()) == [CHECKPOINT, METRICS]


@pytest.mark.parametrize("left", ['{"phase": "search", "epoch": 3, "loss": 1.5}\n{"ph', "", "rubbish"])
def test_lines_follow_the_checkpoint_whatever_a_kill_left(tmp_path, left):
    written(tmp_path, range(1, 3))
    (tmp_path / METRICS).write_text(left)
    with opened(tmp_path, IDENTITY, True) as journal:
        assert lines(tmp_path) == [record(1), record(2)] == journal.state.history
        assert journal.tensors["labels"].tolist() == [2.0, 2.0]


def test_a_training_is_not_overwritten_by_chance(tmp_path):
    written(tmp_path, range(1, 2))
    error = complaint(written, tmp_path, range(1, 2))
    assert isinstance(error, OutputError) and "holds a training that was interrupted" in str(error)


def test_to_resume_what_has_not_begun_is_to_begin(tmp_path):
    with opened(tmp_path, IDENTITY, True) as journal:
        assert journal.state == RunState() and journal.tensors == {}


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(None, IDENTITY, True) as journal:
        journal.save(record(1), {"labels": torch.ones(1)})
        assert journal.tensors["labels"].tolist() == [1.0]
    assert list(tmp_path.iterdir()) == []


def test_one_process_at_a_time(tmp_path):
    with another_process(tmp_path) as other:
        assert in_use(tmp_path)
        assert "another training works here" in str(complaint(written, tmp_path, range(1, 2)))
        assert "another training works here" in str(complaint(remove_training, tmp_path))
        other.communicate("")
    assert not in_use(tmp_path) and not in_use(tmp_path / "nowhere")
    written(tmp_path, range(1, 2))


def test_only_what_a_training_wrote_is_deleted(tmp_path):
    folder = tmp_path / "run.training"
    written(folder, range(1, 2))
    (folder / "thesis.tex").write_text("years of work")
    error = complaint(remove_training, folder)
    assert isinstance(error, InputError) and "holds 'thesis.tex', which no training wrote" in str(error)
    assert has_checkpoint(folder)
    (folder / "thesis.tex").unlink()
    remove_training(folder)
    remove_training(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(public_folder, put):
    (public_folder / "closed").mkdir(mode=0o555)
    with without_rights():
        assert "cannot be written (Permission denied)" in str(complaint(written, public_folder / "closed/x", range(1)))
    assert "cannot be written" in str(complaint(written, put("file", ""), range(1)))


def test_figures_go_to_tensorboard_where_it_is_installed(tmp_path, monkeypatch):
    seen: list[object] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            seen.append((Path(folder).name, purge_step))

        def add_scalar(self, *figures: object) -> None:
            seen.append(figures)

        def close(self) -> None:
            seen.append("closed")

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    written(tmp_path, range(1, 2))
    assert seen == [("tensorboard", 1), ("search/loss", 0.5, 1), "closed"]
