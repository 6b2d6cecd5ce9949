"""Work that is shared between threads."""

import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


class OutOfTimeError(Exception):
    """The deadline has passed before all items were taken."""


def run_in_threads(
    items: Iterable[Item], make_worker: Callable[[], Callable[[Item], None]], threads: int, deadline: float = math.inf
) -> None:
    """Run one function over many items, taken in the order given; stop at the first error.

    ``make_worker`` is called once a thread, so that each function has scratch space of its own.
    """
    queue = iter(list(items))  # next() of a list's iterator is safe between threads
    stop = threading.Event()

    def work() -> None:
        handle = make_worker()
        for item in queue:
            if stop.is_set():
                return
            if time.monotonic() > deadline:
                raise OutOfTimeError
            handle(item)

    with ThreadPoolExecutor(threads) as pool:
        try:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()
        finally:
            stop.set()
