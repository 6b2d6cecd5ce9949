"""The folder of a training while it runs: its checkpoint, and a line of metrics an epoch.

    checkpoint.safetensors   see `newcomer.training.checkpoint`
    metrics.jsonl            one JSON object an epoch; always as long as the checkpoint's history
    tensorboard/             the same metrics, where the package tensorboard is installed

One process at a time may work in such a folder. Without a folder nothing is kept.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from newcomer.errors import InputError, OutputError, shown
from newcomer.locks import locked
from newcomer.training.checkpoint import (
    START_ANEW,
    Figures,
    Identity,
    RunState,
    Tensors,
    read_checkpoint,
    write_checkpoint,
)

CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
OWN = {CHECKPOINT, METRICS, TENSORBOARD, f".{CHECKPOINT}.partial", f".{METRICS}.partial"}


class Journal:
    """The state of a run, and the folder that it is saved in, if any."""

    def __init__(self, folder: Path | None, identity: Identity, state: RunState, tensors: Tensors) -> None:
        self.folder, self.identity, self.state, self.tensors = folder, identity, state, tensors
        self._board: Any = None

    def open(self) -> None:
        """Make the lines of metrics agree with the checkpoint's history."""
        if self.folder is None:
            return
        partial = self.folder / f".{METRICS}.partial"
        try:
            partial.write_text("".join(map(_line, self.state.history)), encoding="utf-8")
            partial.replace(self.folder / METRICS)
        except OSError as error:
            raise _unwritable(self.folder / METRICS, error) from None
        self._board = _tensorboard(self.folder / TENSORBOARD, len(self.state.history))

    def save(self, record: Figures, tensors: Tensors) -> None:
        """Save the state after an epoch; the record of that epoch is the last of its history."""
        self.keep(tensors)
        if self.folder is None:
            return
        try:
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(_line(record))
        except OSError as error:
            raise _unwritable(self.folder / METRICS, error) from None
        for name, value in record.items():
            if self._board is not None and isinstance(value, float):
                self._board.add_scalar(f"{record['phase']}/{name}", value, len(self.state.history))

    def keep(self, tensors: Tensors) -> None:
        """Save the state between two epochs."""
        self.tensors = tensors
        if self.folder is not None:
            write_checkpoint(self.folder / CHECKPOINT, self.identity, self.state, tensors)

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """A block that restores the checkpoint: random walks may go otherwise with other versions of packages."""
        try:
            yield
        except (ValueError, KeyError, RuntimeError) as error:
            place = Path(CHECKPOINT) if self.folder is None else self.folder / CHECKPOINT
            reason = " ".join(str(error).split())[:160]
            raise InputError(place, f"does not fit what was prepared ({reason})", hint=START_ANEW) from None

    def close(self) -> None:
        """Finish writing."""
        if self._board is not None:
            self._board.close()


@contextmanager
def opened(folder: Path | None, identity: Identity, resume: bool) -> Iterator[Journal]:
    """The journal of a run: a fresh one, or with ``resume`` that of the checkpoint, if one was written yet."""
    with claimed(folder):
        state, tensors = RunState(), Tensors()
        if folder is not None and has_checkpoint(folder):
            if not resume:
                raise OutputError(f"{folder}: holds a training that was interrupted; resume it or choose another place")
            state, tensors = read_checkpoint(folder / CHECKPOINT, identity)
        journal = Journal(folder, identity, state, tensors)
        journal.open()
        try:
            yield journal
        finally:
            journal.close()


def has_checkpoint(folder: Path) -> bool:
    """Whether a training was interrupted here after its first epoch."""
    return (folder / CHECKPOINT).exists()


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Make the folder, and hold it for this process alone."""
    if folder is None:
        yield
        return
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder))
        except BlockingIOError:
            raise OutputError(f"{folder}: another training works here; wait for it or choose another place") from None
        except OSError as error:
            raise _unwritable(folder, error) from None
        yield


def in_use(folder: Path) -> bool:
    """Whether another training works here at the moment."""
    if not folder.is_dir():
        return False
    try:
        with claimed(folder):
            return False
    except OutputError:
        return True


def remove_training(folder: Path) -> None:
    """Delete what a training left, and never anything else."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name not in OWN:
            raise InputError(folder, f"holds {shown(path.name)}, which no training wrote", hint="move it elsewhere")
    with claimed(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _line(record: Figures) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written ({error.strerror}); choose another place")


def _tensorboard(folder: Path, done: int) -> Any:
    """A writer, where the package is installed: nothing depends on it."""
    with suppress(ImportError):
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder), purge_step=done + 1)
    return None
