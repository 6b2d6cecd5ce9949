"""Where newcomers are found: those who were there from the start, and the few that came, moved or left since."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from newcomer.predictor.vectors import Arrival


@dataclass(frozen=True, eq=False)
class Slot:
    """Where a newcomer is found: the arrival it came with, and its number there."""

    arrival: Arrival
    number: int

    @property
    def place(self) -> int:
        return len(self.arrival.near) + self.number


class Slots(Mapping[str, Slot]):
    """The seat of each newcomer: that of the first arrival, but for those who came, moved or left since.

    What follows from all seats is found from the first ones and the few that differ: newcomers may be many.
    """

    def __init__(self, first: "FirstSlots", changed: Mapping[str, Slot | None]) -> None:
        self.first = first
        self.changed = changed  # None: has left

    def __getitem__(self, name: str) -> Slot:
        seat = self.changed[name] if name in self.changed else self.first.seats.get(name)
        if seat is None:
            raise KeyError(name)
        return seat

    def __contains__(self, name: object) -> bool:
        return self.changed[name] is not None if name in self.changed else name in self.first.seats  # type: ignore[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def but(self, changes: Mapping[str, Slot | None]) -> "Slots":
        """With other seats for some: for those who leave, None."""
        changed = {**self.changed, **changes}
        for name, seat in changes.items():
            if seat is self.first.seats.get(name):
                del changed[name]
        return Slots(self.first, changed)

    @cached_property
    def arrivals(self) -> list[Arrival]:
        """Everyone's arrivals, each once; the first one in front, whether or not all of it has left."""
        moved = [seat.arrival for seat in self.changed.values() if seat is not None]
        return list(dict.fromkeys([*self.first.arrivals, *moved]))

    @cached_property
    def names(self) -> list[str]:
        """All newcomers by name."""
        return self._in_order[0]

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Where each, by name, stands when the newcomers of all arrivals are written one after the other."""
        return self._in_order[1]

    @cached_property
    def _in_order(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        first, rows = self.first.names, self.first.rows
        if not self.changed:
            return first, rows
        starts = dict(zip(self.arrivals, np.cumsum([0, *(one.size for one in self.arrivals)]).tolist(), strict=False))
        names, gone = (
            first.copy(),
            sorted(bisect_left(first, name) for name in self.changed if name in self.first.seats),
        )
        for place in reversed(gone):
            del names[place]
        came = sorted((name, seat) for name, seat in self.changed.items() if seat is not None)
        places = [bisect_left(names, name) for name, _ in came]
        rows = np.insert(np.delete(rows, gone), places, [starts[seat.arrival] + seat.number for _, seat in came])
        for place, (name, _) in zip(reversed(places), reversed(came), strict=True):
            names.insert(place, name)
        return names, rows


class FirstSlots:
    """The seats of those who were there from the start, all of one arrival."""

    def __init__(self, arrival: Arrival | None) -> None:
        self.arrivals = [] if arrival is None else [arrival]
        self.seats = {} if arrival is None else slots_of(arrival)
        self.names = sorted(self.seats)
        self.rows = np.array([self.seats[name].number for name in self.names], dtype=np.int64)
        self.ids = np.empty(0, dtype=np.int32) if arrival is None else arrival.group.ids[self.rows]


def slots_of(arrival: Arrival) -> dict[str, Slot]:
    """A seat for each newcomer of an arrival."""
    return {name: Slot(arrival, number) for number, name in enumerate(arrival.group.names)}
