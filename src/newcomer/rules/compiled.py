"""What compiled code shares: how functions are compiled, binary search, inverse relations, tables that grow."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])
Number = TypeVar("Number", bound=np.generic)


def compiled(function: Function) -> Function:
    """Compile on first use, keep the machine code on disk, let other threads run meanwhile."""
    return cast(Function, numba.njit(nogil=True, cache=True)(function))


@compiled
def lower_bound(values: npt.NDArray[np.integer], low: int, high: int, wanted: int) -> int:
    """The first place in sorted ``values[low:high]`` that is not below ``wanted``, or ``high``."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def inverse_of(relation: int, relations: int) -> int:
    """The inverse of an oriented relation, where there are so many plain ones."""
    return relation - relations if relation >= relations else relation + relations


@compiled
def with_room(table: npt.NDArray[Number], used: int, needed: int) -> npt.NDArray[Number]:
    """The table, or a copy of it at least twice as long where it has too few rows."""
    if needed <= len(table):
        return table
    longer = np.empty((max(needed, 2 * len(table)), *table.shape[1:]), table.dtype)
    longer[:used] = table[:used]
    return longer
