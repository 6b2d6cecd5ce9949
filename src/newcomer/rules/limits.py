"""What all work on rules shares: values in their range, threads by default all cores."""

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from newcomer.errors import OptionError, shown

Item = TypeVar("Item")
Result = TypeVar("Result")
Scratch = TypeVar("Scratch")
MAX_SEED = 2**63 - 1
MOST = 2**62  # that is counted


class OutOfTimeError(Exception):
    """The deadline has passed before all items were taken."""


def require(condition: bool, name: str, value: object, wanted: str) -> None:
    """Raise OptionError for a value that is not what is wanted."""
    if not condition:
        raise OptionError(f"{name} is {shown(value)}, but must be {wanted}")


def require_counts(limits: object, *names: str) -> None:
    """Check attributes that are integers from 1, and such as compiled code can count."""
    for name in names:
        require(getattr(limits, name) >= 1, name, getattr(limits, name), "an integer from 1")
        require(getattr(limits, name) <= MOST, name, getattr(limits, name), f"at most {MOST:,}")


def require_shares(limits: object, *names: str) -> None:
    """Check attributes that are numbers from 0 to 1."""
    for name in names:
        require(0.0 <= getattr(limits, name) <= 1.0, name, getattr(limits, name), "a number from 0 to 1")


def require_caps(limits: object, *names: str) -> None:
    """Check attributes that are numbers above 0, or None."""
    for name in names:
        value = getattr(limits, name)
        require(value is None or value > 0, name, value, "a number above 0, or None for no limit")


def require_seed(seed: int) -> None:
    """Check a seed."""
    require(0 <= seed <= MAX_SEED, "seed", seed, "an integer from 0 to 2**63 - 1")


def thread_count(threads: int | None) -> int:
    """The number of threads asked for; the cores there are, if none is."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    require(threads >= 1, "threads", threads, "an integer from 1")
    return threads


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], threads: int, at_once: int = 1) -> list[Result]:
    """What a function returns for each item, in their order; in this thread alone where there is no use for more.

    A thread takes so many items ``at_once``: handing over costs more than quick work on one.
    """
    slices = [items[start : start + at_once] for start in range(0, len(items), at_once)]
    if min(threads, len(slices)) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(slices))) as pool:
        return [result for part in pool.map(lambda part: [work(item) for item in part], slices) for result in part]


def share_out(
    items: Sequence[Item],
    work: Callable[[Item, Scratch], None],
    scratch: Callable[[], Scratch],
    threads: int,
    deadline: float = math.inf,
) -> None:
    """Work on items, taken in the order given, each thread in scratch space of its own; stop at the first error."""
    queue = iter(list(items))  # next() of a list's iterator is safe between threads
    threads = max(1, min(threads, len(items)))
    stop = threading.Event()

    def take() -> None:
        own = scratch()
        for item in queue:
            if stop.is_set():
                return
            if time.monotonic() > deadline:
                raise OutOfTimeError
            work(item, own)

    with ThreadPoolExecutor(threads) as pool:
        try:
            for future in [pool.submit(take) for _ in range(threads)]:
                future.result()
        finally:
            stop.set()
