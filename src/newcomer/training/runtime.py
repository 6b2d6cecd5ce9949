"""What a training runs on and under: device, threads, precision, memory; what goes wrong with them is said in words."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from newcomer.config import AUTO, Config
from newcomer.errors import OptionError
from newcomer.graph import InductiveDataset
from newcomer.models.propagation import gpu as fused
from newcomer.training.cost_model import affords_propagation

SMALL = 2_000_000  # numbers: facts times the length of a vector
TOO_LITTLE = ("out of memory", "not enough memory", "allocate memory")  # how torch words it
_FILLING: Any = torch.utils.deterministic


def settled(config: Config, dataset: InductiveDataset, device: torch.device, before: bool | None = None) -> Config:
    """The settings with what they leave to the machine decided: paths are learned where that can be afforded.

    That is where a GPU trains that has kernels for them, and on a processor where the graph is sparse. What was decided
    ``before``, when the same training began, stays.
    """
    if config.model.propagation != AUTO:
        return config
    learns = config.model.ensemble
    if learns and before is not None:
        learns = before
    elif learns:
        learns = fused.keeps_halves() if device.type == "cuda" else affords_propagation(dataset, config)
    return replace(config, model=replace(config.model, propagation=learns))


def torch_threads(dataset: InductiveDataset, config: Config, threads: int | None) -> int | None:
    """How many threads torch gets: those asked for, one for a small graph, else (None) as many as it likes.

    On small tensors threads mostly wait for each other, and for seconds on end where another program wants the cores.
    An LSTM has one in any case: what several make of the gradients of its large matrices is rounded differently on
    some processors.
    """
    if config.model.encoder == "lstm":
        return 1
    small = len(dataset.observed) * config.model.dim < SMALL
    return 1 if threads is None and small else threads


def check_finite(loss: float, where: str, advice: str) -> None:
    """Refuse to go on from a loss that is no number."""
    if not math.isfinite(loss):
        raise OptionError(f"the loss is {loss} after {where}; {advice}")


@contextmanager
def memory_in_words(needed: str) -> Iterator[None]:
    """Too little memory, as a sentence that says what it is ``needed`` for and what needs less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _of_memory(error):
            raise
        raise OptionError(f"there is too little memory {needed}") from None


def _of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what it came about by, is of too little memory."""
    if error is None:
        return False
    said = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in TOO_LITTLE)
    return said or _of_memory(error.__context__)


@contextmanager
def steady(device: torch.device, threads: int | None) -> Iterator[None]:
    """The same numbers in every run; the process's own settings and random numbers are put back afterwards.

    On a GPU some sparse products have no variant that always adds in the same order.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills, cores = _FILLING.fill_uninitialized_memory, torch.get_num_threads()
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    # The first call loads half of torch; it must not be for the first time that a signal cuts it short below.
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    with torch.random.fork_rng(devices=devices):
        try:
            if device.type == "cpu":
                torch.use_deterministic_algorithms(True)
                _FILLING.fill_uninitialized_memory = False  # nothing here reads what it did not write
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            _FILLING.fill_uninitialized_memory = fills
            torch.set_num_threads(cores)
