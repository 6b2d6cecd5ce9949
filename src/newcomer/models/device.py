"""The device a model computes on, and how many threads torch works on for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from newcomer.errors import OptionError, unknown_name

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> torch.device:
    """The device of this name: ``auto`` takes a GPU where there is one."""
    if name not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise OptionError("there is no GPU that PyTorch can use here; choose the device cpu or auto")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Within the block torch has so many threads; None leaves it as many as it has."""
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """Sums over many numbers by one thread: several would share them out, and so round differently."""
    return limited_threads(1)
