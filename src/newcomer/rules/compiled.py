"""What compiled code shares: how functions are compiled, binary search, rows of edges, tables that grow."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, Offsets

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
def is_among(values: npt.NDArray[np.integer], low: int, high: int, wanted: int) -> bool:
    """Whether sorted ``values[low:high]`` hold a value."""
    place = lower_bound(values, low, high, wanted)
    return place < high and values[place] == wanted


@compiled
def run_of(values: npt.NDArray[np.integer], low: int, high: int, wanted: int) -> tuple[int, int]:
    """Where in sorted ``values[low:high]`` a value begins and ends."""
    first = lower_bound(values, low, high, wanted)
    return first, lower_bound(values, first, high, wanted + 1)


@compiled
def row_of(offsets: Offsets, entity: int) -> tuple[int, int]:
    """Where the edges of an entity begin and end; nowhere, of one that has no row."""
    return (offsets[entity], offsets[entity + 1]) if entity + 1 < len(offsets) else (0, 0)


@compiled
def edges_of(offsets: Offsets, relations: Ids, entity: int, relation: int) -> tuple[int, int]:
    """Where those of one relation do.

    Takes two arrays rather than an `Adjacency`: handing over a tuple of arrays costs more than this search.
    """
    first, end = row_of(offsets, entity)
    return run_of(relations, first, end, relation)


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
