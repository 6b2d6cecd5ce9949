"""The folder of a training while it runs, from which it goes on as if it had never stopped.

    checkpoint.safetensors   everything that the next epoch depends on
    metrics.jsonl            one JSON object an epoch; always as long as the checkpoint's history
    tensorboard/             the same metrics, where the package tensorboard is installed

One process at a time may work in such a folder. Without a folder nothing is kept.

The checkpoint holds the weights, the optimiser's state, the labels, and the best weights and labels so far; its header,
as JSON, the `RunState` and the `Identity`: which settings, data and rules it belongs to. It is written beside the old
one, brought to disk and then put in its place: a power cut leaves the old one or the new one. Nothing is unpickled.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from newcomer import __version__
from newcomer.config import Config, flat_settings
from newcomer.errors import InputError, OutputError, one_line, shown
from newcomer.files import writing
from newcomer.graph import InductiveDataset
from newcomer.locks import locked
from newcomer.models.bundle import dataset_hash
from newcomer.models.serialisation import under
from newcomer.rules.rule import COLUMNS, RuleSet
from newcomer.training.embedding import Trainer

FORMAT = "newcomer checkpoint"
FORMAT_VERSION = 2
HEADER = "newcomer"
MINED = "mined"
START_ANEW = "start anew with --force"
BEST, OPTIMISER = "best.", "optimiser."
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
OWN = {CHECKPOINT, METRICS, TENSORBOARD, f".{CHECKPOINT}.partial", f".{METRICS}.partial"}

Tensors = dict[str, Tensor]
Figures = dict[str, Any]


@dataclass
class RunState:
    """The progress of a run: finished epochs of its phase, the best validation, and a record an epoch."""

    phase: str = "search"
    epoch: int = 0
    best_epoch: int = 0
    best: Figures = field(default_factory=dict)
    stale: int = 0  # validations since the best one
    validation: Figures = field(default_factory=dict)  # size of the hold-out, and the metrics of the rules alone
    feature_weights: Figures = field(default_factory=dict)  # of the ensemble
    propagation_step: int = 0  # finished steps of training the propagation network
    ensemble: Figures = field(default_factory=dict)  # metrics of the ensemble with the best model
    calibration: Figures = field(default_factory=dict)
    thresholds: Figures = field(default_factory=dict)  # from which score on a triple about a newcomer is true
    history: list[Figures] = field(default_factory=list)
    schedule: Figures | None = None  # settings that were made smaller, to fit time and memory, once that is decided
    cut: dict[str, int] = field(default_factory=dict)  # what ended for lack of time, and after how many epochs or steps

    @property
    def has_sizes(self) -> bool:
        """Whether the sizes of the run are decided: it goes on with them, whatever the limits are now."""
        return self.schedule is not None or bool(self.history)

    def validated(self, figures: Figures) -> bool:
        """Record a validation of the current epoch; whether it is the best so far.

        By the area under the ROC curve where the hold-out has false triples, else by the mean reciprocal rank.
        """
        chosen_by = "auc" if "auc" in figures else "mrr"
        if self.best and figures[chosen_by] <= self.best[chosen_by]:
            self.stale += 1
            return False
        self.best, self.best_epoch, self.stale = dict(figures), self.epoch, 0
        return True


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to: it continues nothing else."""

    settings: Mapping[str, Any]
    dataset: str
    dataset_hash: str
    rules: str
    version: str = __version__

    @classmethod
    def of(cls, dataset: InductiveDataset, config: Config, rules: RuleSet | None) -> "Identity":
        """Of a run; ``rules`` are those given to it, if any."""
        given = MINED
        if rules is not None:
            table = np.stack([getattr(rules, name).astype("<i8") for name in COLUMNS])
            given = hashlib.sha256(table.tobytes()).hexdigest()
        return cls(config.to_dict(), dataset.name, dataset_hash(dataset), given)


def copied(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Copies on the CPU, with names that begin so."""
    return {f"{prefix}{name}": value.detach().cpu().clone() for name, value in tensors.items()}


def model_tensors(trainer: Trainer, prefix: str = "") -> Tensors:
    """Copies of the weights and the labels, on the CPU."""
    return copied(f"{prefix}model.", trainer.model.state_dict()) | copied(prefix, {"labels": trainer.labels})


def trainer_tensors(trainer: Trainer) -> Tensors:
    """Copies of everything that the next epoch depends on."""
    return model_tensors(trainer) | optimiser_tensors(OPTIMISER, trainer.optimiser)


def optimiser_tensors(prefix: str, optimiser: torch.optim.Optimizer) -> Tensors:
    """Copies of an optimiser's state, on the CPU."""
    state = optimiser.state_dict()["state"]
    return copied(prefix, {f"{place}.{name}": value for place, kept in state.items() for name, value in kept.items()})


def restore_optimiser(prefix: str, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser the state of `optimiser_tensors`."""
    state: dict[int, Tensors] = {}
    for key, value in under(prefix, tensors).items():
        place, name = key.split(".", 1)
        state.setdefault(int(place), {})[name] = value.clone()
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def restore_model(trainer: Trainer, tensors: Tensors) -> None:
    """Give a trainer the weights and labels of `model_tensors`."""
    trainer.model.load_state_dict(under("model.", tensors))
    if tensors["labels"].shape != trainer.labels.shape:
        raise ValueError(f"{len(tensors['labels'])} labels for {len(trainer.labels)} virtual triples")
    trainer.labels = tensors["labels"].to(trainer.device, copy=True)


def restore_trainer(trainer: Trainer, tensors: Tensors) -> None:
    """Give a fresh trainer everything of `trainer_tensors`."""
    restore_model(trainer, tensors)
    restore_optimiser(OPTIMISER, trainer.optimiser, tensors)


def write_checkpoint(path: Path, identity: Identity, state: RunState, tensors: Tensors) -> None:
    """Put a new checkpoint in the place of the old one, at once and on disk."""
    content = {"format": FORMAT, "version": FORMAT_VERSION, "identity": asdict(identity), "state": asdict(state)}
    header = json.dumps({**content, "sha256": _checksum(content, tensors)}, allow_nan=False)
    partial = path.with_name(f".{path.name}.partial")  # one name for all: what a kill leaves is overwritten
    try:
        save_file({name: value.contiguous() for name, value in tensors.items()}, partial, {HEADER: header})
        _to_disk(partial)
        partial.replace(path)
        if os.name == "posix":  # elsewhere folders cannot be opened
            _to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise OutputError(f"{path}: cannot be written ({reason}); make room or choose another place") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(content: Mapping[str, Any], tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name].clone(
            memory_format=torch.contiguous_format
        )  # of one number, too: as bytes it has a stride
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_checkpoint(path: Path, identity: Identity) -> tuple[RunState, Tensors]:
    """Read a checkpoint of this very run; one that is damaged, foreign or another run's is refused."""
    content, tensors = _read_file(path)
    if content.get("format") != FORMAT or content.get("version") != FORMAT_VERSION:
        raise InputError(path, "is no checkpoint that this version of newcomer reads", hint=START_ANEW)
    if content.pop("sha256", None) != _checksum(content, tensors):
        raise InputError(path, "was altered after it was written", hint=START_ANEW)
    _check_identity(path, content["identity"], identity)
    return RunState(**content["state"]), tensors


def began_with_propagation(path: Path) -> bool | None:
    """Whether the training of a checkpoint has a propagation network; None where that cannot be read."""
    with suppress(OSError, SafetensorError, ValueError, RecursionError, LookupError, TypeError):
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})[HEADER])
        found = content["identity"]["settings"]["model"]["propagation"]
        return found if isinstance(found, bool) else None
    return None


def _read_file(path: Path) -> tuple[dict[str, Any], Tensors]:
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER, "{}")
            names: list[str] = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        content = json.loads(header)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise InputError(path, f"is not a whole checkpoint ({one_line(error)})", hint=START_ANEW) from None
    if not isinstance(content, dict):
        raise InputError(path, "is no checkpoint of newcomer", hint=START_ANEW)
    return content, tensors


def _check_identity(path: Path, found: Mapping[str, Any], wanted: Identity) -> None:
    """Refuse what differs: first a setting, by its name."""
    then, now = flat_settings(found["settings"]), flat_settings(wanted.settings)
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            problem = f"was written with {name} = {shown(then.get(name))}, not {shown(now.get(name))}"
            raise InputError(path, problem, hint=f"resume with the same settings, or {START_ANEW}")
    data = f"belongs to other data ({shown(found['dataset'])}) than {shown(wanted.dataset)} is now"
    rules = f"was written with {_about_rules(found['rules'])}, not with {_about_rules(wanted.rules)}"
    version = f"was written by newcomer {found['version']}, but this is {wanted.version}"
    same = "what it was started with"
    problems = ("dataset_hash", data, same), ("rules", rules, same), ("version", version, "that version")
    for name, problem, wants in problems:
        if found[name] != getattr(wanted, name):
            raise InputError(path, problem, hint=f"resume with {wants}, or {START_ANEW}")


def _about_rules(rules: str) -> str:
    return "rules that it mined" if rules == MINED else f"the given rules of SHA-256 {rules[:12]}"


@dataclass
class Journal:
    """The state of a run, and the folder that it is saved in, if any."""

    folder: Path | None
    identity: Identity
    state: RunState = field(default_factory=RunState)
    tensors: Tensors = field(default_factory=dict)
    board: Any = None  # of TensorBoard, where that is installed

    def save(self, record: Figures, tensors: Tensors) -> None:
        """Save the state after an epoch; the record of that epoch is the last of its history."""
        self.keep(tensors)
        if self.folder is None:
            return
        with writing(self.folder / METRICS), (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(_line(record))
        for name, value in record.items():
            if self.board is not None and isinstance(value, float):
                self.board.add_scalar(f"{record['phase']}/{name}", value, len(self.state.history))

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
            place = (self.folder or Path()) / CHECKPOINT
            raise InputError(place, f"does not fit what was prepared ({one_line(error)})", hint=START_ANEW) from None


@contextmanager
def opened(folder: Path | None, identity: Identity, resume: bool) -> Iterator[Journal]:
    """The journal of a run: a fresh one, or with ``resume`` that of the checkpoint, if one was written yet."""
    journal = Journal(folder, identity)
    with claimed(folder):
        if folder is not None:
            _begin(journal, folder, resume)
        try:
            yield journal
        finally:
            if journal.board is not None:
                journal.board.close()


def _begin(journal: Journal, folder: Path, resume: bool) -> None:
    """Take over what the folder has, and make its lines of metrics agree with the checkpoint's history."""
    if has_checkpoint(folder):
        if not resume:
            raise OutputError(f"{folder}: holds a training that was interrupted; resume it or choose another place")
        journal.state, journal.tensors = read_checkpoint(folder / CHECKPOINT, journal.identity)
    with writing(folder / METRICS):
        partial = folder / f".{METRICS}.partial"
        partial.write_text("".join(map(_line, journal.state.history)), encoding="utf-8")
        partial.replace(folder / METRICS)
    with suppress(ImportError):  # nothing depends on it
        from torch.utils.tensorboard import SummaryWriter

        journal.board = SummaryWriter(str(folder / TENSORBOARD), purge_step=len(journal.state.history) + 1)


def has_checkpoint(folder: Path) -> bool:
    """Whether a training was interrupted here after its first model or epoch."""
    return (folder / CHECKPOINT).exists()


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Make the folder, and hold it for this process alone."""
    if folder is None:
        yield
        return
    with ExitStack() as stack:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(folder))
            except BlockingIOError:
                problem = "another training works here; wait for it or choose another place"
                raise OutputError(f"{folder}: {problem}") from None
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
