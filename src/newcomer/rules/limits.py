"""Checks that all miners share: values in their range, threads by default all cores."""

import os

from newcomer.errors import OptionError, shown


def require(condition: bool, name: str, value: object, wanted: str) -> None:
    """Raise OptionError for a value that is not what is wanted."""
    if not condition:
        raise OptionError(f"{name} is {shown(value)}, but must be {wanted}")


def thread_count(threads: int | None) -> int:
    """The number of threads asked for; the cores there are, if none is."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    require(threads >= 1, "threads", threads, "an integer from 1")
    return threads
