"""What the compiled rooms share: how functions are compiled, and binary search."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from newcomer.graph import Ids

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile on first use, keep the machine code on disk, let other threads run meanwhile."""
    return cast(Function, numba.njit(nogil=True, cache=True)(function))


@compiled
def lower_bound(values: Ids, low: int, high: int, wanted: int) -> int:
    """The first place in sorted ``values[low:high]`` that is not below ``wanted``, or ``high``."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low
