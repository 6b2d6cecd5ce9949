"""What a training runs on: device, threads, deterministic algorithms, and the errors of too little memory."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from newcomer.config import AUTO, Config
from newcomer.errors import OptionError
from newcomer.graph import InductiveDataset
from newcomer.models.device import limited_threads
from newcomer.models.embedding.model import ENCODERS
from newcomer.models.propagation import gpu as fused
from newcomer.training.propagation import affordable_hubs, teaches_enough

SMALL = 2_000_000  # facts times the length of a vector
# How torch words it.
TOO_LITTLE = ("out of memory", "not enough memory", "allocate memory", "Storage size calculation overflowed")
_FILLING: Any = torch.utils.deterministic


def settled(config: Config, dataset: InductiveDataset, device: torch.device, before: bool | None = None) -> Config:
    """The settings with what they leave open about propagation decided.

    It is on where a GPU has kernels for it, and on a CPU where there are facts enough to learn it from. What was
    decided ``before``, when the same training began, stays. Which hubs send no messages follows from the graph.
    """
    model = config.model
    if model.propagation == AUTO:
        chosen = model.ensemble and before  # None: not decided yet
        if chosen is None:
            chosen = fused.keeps_halves() if device.type == "cuda" else teaches_enough(dataset, config)
        model = replace(model, propagation=chosen)
    if model.propagation and model.propagation_hubs is None:
        model = replace(model, propagation_hubs=affordable_hubs(dataset.observed))
    return config if model is config.model else replace(config, model=model)


def torch_threads(dataset: InductiveDataset, config: Config, threads: int | None) -> int | None:
    """How many threads torch gets: those asked for, one for a small graph, else (None) its own default.

    On small tensors threads mostly wait for each other, and for seconds on end where another program uses the cores.
    Some encoders have one in any case: see `Encoder.trains_on_one_thread`.
    """
    if ENCODERS[config.model.encoder].trains_on_one_thread:
        return 1
    small = len(dataset.observed) * config.model.dim < SMALL
    return 1 if threads is None and small else threads


def check_finite(loss: float, where: str, advice: str) -> None:
    """Refuse to go on from a loss that is not finite."""
    if not math.isfinite(loss):
        raise OptionError(f"the loss is {loss} after {where}; {advice}")


@contextmanager
def memory_in_words(needed: str) -> Iterator[None]:
    """Too little memory, as a sentence that states what it is ``needed`` for and what needs less."""
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
    named = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in TOO_LITTLE)
    return named or _of_memory(error.__context__)


@contextmanager
def deterministic(device: torch.device, threads: int | None) -> Iterator[None]:
    """The same results in every run; torch's settings and random state are restored afterwards.

    On a GPU torch's own flag stays off: some sparse products have no variant that always adds in the same order.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = _FILLING.fill_uninitialized_memory
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    # The first call loads half of torch; it must not be for the first time that a signal cuts it short below.
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    with torch.random.fork_rng(devices=devices), limited_threads(threads):
        try:
            if device.type == "cpu":
                torch.use_deterministic_algorithms(True)
                _FILLING.fill_uninitialized_memory = False  # nothing here reads what it did not write
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            _FILLING.fill_uninitialized_memory = fills
