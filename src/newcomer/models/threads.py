"""How many threads torch works on for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


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
