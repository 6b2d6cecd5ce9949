"""Who is there: an immutable state of newcomers, with their facts and seats.

Candidates stand in one order: the seen entities by id, then the newcomers by name.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from newcomer.errors import OptionError, shown
from newcomer.graph import UNKNOWN, Ids
from newcomer.predictor.fact_store import FactStore, Group, Names
from newcomer.predictor.slots import Slot, Slots


@dataclass(frozen=True, eq=False)
class State:
    """The newcomers that are there, with their facts and seats."""

    names: Names
    book: FactStore
    seats: Slots

    @property
    def newcomers(self) -> list[str]:
        """By name."""
        return self.seats.names

    def place(self, newcomer: str) -> int:
        """The place of a newcomer that is there among the candidates."""
        return self.names.num_seen + bisect_left(self.newcomers, newcomer)

    @property
    def num_candidates(self) -> int:
        return self.names.num_seen + len(self.seats)

    @cached_property
    def everyone(self) -> Group:
        """All newcomers."""
        return Group.of(self.seats, self.book, self.names)

    @cached_property
    def starts(self) -> tuple[Ids, Ids]:
        """Which oriented relations newcomers have: (relation, place of the newcomer among the candidates)."""
        arrivals = self.seats.arrivals
        first = np.cumsum([0, *(arrival.size for arrival in arrivals)])
        places = np.full(first[-1], UNKNOWN)
        places[self.seats.rows] = np.arange(len(self.seats)) + self.names.num_seen
        found = [np.empty((2, 0), dtype=np.int64)]
        for arrival, row in zip(arrivals, first, strict=False):
            relations, numbers = arrival.starts
            found.append(np.stack([relations, places[row + numbers]]))
        pairs = np.concatenate(found, axis=1).astype(np.int32)
        here = pairs[1] != UNKNOWN  # others have left, or came again later
        return pairs[0, here], pairs[1, here]

    @cached_property
    def latest(self) -> Group:
        """The newcomers whose facts are not those that the model was written with."""
        changed = self.book.facts.changed
        return Group.of((name for name, stated in changed.items() if stated), self.book, self.names)

    @cached_property
    def ids(self) -> Ids:
        """(candidates,): the id of each, as the model's vocabulary and `latest` have them."""
        first, latest = self.seats.first, self.latest
        gone = [bisect_left(first.names, name) for name in self.book.facts.changed if name in first.seats]
        newcomers = np.empty(len(self.seats), dtype=np.int32)
        came = np.zeros(len(newcomers), dtype=bool)
        came[[bisect_left(self.newcomers, name) for name in sorted(latest.names)]] = True
        newcomers[~came] = np.delete(first.ids, gone)
        newcomers[came] = latest.ids[np.argsort(np.array(latest.names, dtype=object))]
        return np.concatenate([np.arange(self.names.num_seen, dtype=np.int32), newcomers])

    def candidate(self, name: str) -> int:
        """The place of an entity among the candidates; an error where it is not there."""
        found = self.names.seen(name) if isinstance(name, str) else UNKNOWN
        if found != UNKNOWN:
            return found
        if name not in self.seats:
            raise OptionError(f"the entity {shown(name)} is not known; add facts of it first")
        return self.place(name)

    def name_of(self, candidate: int) -> str:
        """The name of a candidate."""
        seen = self.names.num_seen
        return self.names.entity(candidate) if candidate < seen else self.newcomers[candidate - seen]

    def seat(self, name: str) -> Slot | None:
        """The seat of a newcomer; None for a seen entity, an error for one that is not there."""
        if isinstance(name, str) and name in self.seats:
            return self.seats[name]
        self.candidate(name)
        return None

    def told_of(self, entity: str) -> Iterator[tuple[int, str]]:
        """What newcomers' facts say of a seen entity: (oriented relation, newcomer)."""
        size = len(self.names.relations)
        for newcomer, (head, relation, _) in self.book.facts.about_seen(entity, self.names.seen(entity)):
            yield (relation if head == entity else relation + size), newcomer
