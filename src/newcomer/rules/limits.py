"""Checks that all rule miners share: values in their range, threads by default all cores."""

import os

from newcomer.errors import OptionError, shown


def require(condition: bool, name: str, value: object, wanted: str) -> None:
    """Raise OptionError for a value that is not what is wanted."""
    if not condition:
        raise OptionError(f"{name} is {shown(value)}, but must be {wanted}")


def require_counts(limits: object, *names: str) -> None:
    """Check attributes that are integers from 1."""
    for name in names:
        require(getattr(limits, name) >= 1, name, getattr(limits, name), "an integer from 1")


def require_shares(limits: object, *names: str) -> None:
    """Check attributes that are numbers from 0 to 1."""
    for name in names:
        require(0.0 <= getattr(limits, name) <= 1.0, name, getattr(limits, name), "a number from 0 to 1")


def require_caps(limits: object, *names: str) -> None:
    """Check attributes that are numbers above 0, or None."""
    for name in names:
        value = getattr(limits, name)
        require(value is None or value > 0, name, value, "a number above 0, or None for no limit")


def thread_count(threads: int | None) -> int:
    """The number of threads asked for; the cores there are, if none is."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    require(threads >= 1, "threads", threads, "an integer from 1")
    return threads
