"""Who is there at one moment: an immutable overlay of facts, and where the vector of each newcomer is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, Mask, Overlay
from newcomer.models.embedding.newcomers import EncodedComponent

ABSENT = -1


class Slot(NamedTuple):
    """Where a newcomer stands: which number it has in which component."""

    encoded: EncodedComponent
    number: int

    @property
    def place(self) -> int:
        """Its place in the states of the component."""
        return len(self.encoded.near) + self.number


@dataclass(frozen=True, eq=False)
class Members:
    """A component in a snapshot: the ids that its newcomers have there, ``ABSENT`` of those who have moved on."""

    encoded: EncodedComponent
    ids: Ids


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All known facts and all newcomers. Entities have ids: the seen ones first, then newcomers.

    Every newcomer's id has a slot; ``is_present`` is false of one that nothing is known of (any longer).
    """

    overlay: Overlay
    members: Sequence[Members]
    is_present: Mask
    num_entities: int = field(init=False)
    num_seen: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_entities", self.overlay.num_entities)
        object.__setattr__(self, "num_seen", self.overlay.num_seen)

    @property
    def components(self) -> list[EncodedComponent]:
        """In the order in which `rows` counts their newcomers."""
        return [one.encoded for one in self.members]

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """(newcomers,): where each stands when the newcomers of all components are written one after the other."""
        ids = np.concatenate([np.empty(0, dtype=np.int32), *(one.ids for one in self.members)])
        there = np.flatnonzero(ids != ABSENT)
        rows = np.zeros(self.num_entities - self.num_seen, dtype=np.int64)
        rows[ids[there] - self.num_seen] = there
        return rows

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(one.encoded.size for one in self.members)])

    def slot(self, entity: int) -> Slot | None:
        """The slot of a newcomer; None for a seen entity."""
        if entity < self.num_seen:
            return None
        row = int(self.rows[entity - self.num_seen])
        place = int(np.searchsorted(self._starts, row, side="right")) - 1
        return Slot(self.members[place].encoded, row - int(self._starts[place]))

    def members_with(self, slot: Slot) -> Members:
        """The component of a slot."""
        return next(one for one in self.members if one.encoded is slot.encoded)
