"""The edges of a graph for single queries on a CPU: those between the same two entities as one.

The messages from u to v along edges with the relations r1, r2, ... add up to ``(w_r1 + w_r2 + ...) * h_u``. So v
receives one message from each neighbour, of a *kind*: a relation, or a set of several. In FB15K there are half as many
such messages as edges, and five hundred kinds stand for four fifths of them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Ids as SmallIds
from newcomer.graph import Mask
from newcomer.models.propagation.edges import Floats, Ids, PropagationEdges
from newcomer.models.sparse import Rows, weighted_sum
from newcomer.rules.compiled import compiled

MASKED = -1  # the kind of what is not there
Sizes = npt.NDArray[np.int64]


class Part(NamedTuple):
    """Edges for compiled loops: row v has an entry for each neighbour u, ascending.

    There may be fewer rows than entities: later ones have no edges here.
    """

    offsets: Ids  # (rows + 1,)
    neighbors: SmallIds  # (entries,)
    received: SmallIds  # (entries,): the kind of what the neighbour sends, by the relations as the row sees them
    sent: SmallIds  # (entries,): that of what the row sends to it; both below 0 where there is nothing to go along


@dataclass(frozen=True, eq=False)
class MergedEdges:
    """Edges of which those between the same two entities are one.

    A kind below ``2 * num_relations`` is an oriented relation; those that follow are sets, ``sets`` having the
    relations of each, ascending.
    """

    part: Part
    sets: Rows
    num_relations: int

    @classmethod
    def of(cls, edges: PropagationEdges) -> "MergedEdges":
        """Those of edges that are not masked."""
        size, width = 2 * edges.num_relations, edges.rows.width
        stays = edges.weights != 0
        given = (edges.rows.row_ids[stays] * width + edges.rows.columns[stays]) * size + edges.relations[stays]
        keys: Ids = np.sort(given.numpy())
        pairs, relations = keys // size, keys % size
        first = np.flatnonzero(np.diff(pairs, prepend=-1))
        starts = np.append(first, len(keys)).astype(np.int64)
        kinds, shown = _kinds(starts, relations, size)
        rows, neighbors = pairs[first] // width, (pairs[first] % width).astype(np.int32)
        offsets = np.searchsorted(rows, np.arange(edges.rows.num_rows + 1)).astype(np.int64)
        part = Part(offsets, neighbors, kinds, _turned(offsets, neighbors, kinds))
        sizes = starts[shown + 1] - starts[shown]
        members = np.concatenate([np.empty(0, np.int64), *(relations[starts[one] : starts[one + 1]] for one in shown)])
        ends = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        return cls(part, Rows(ends, torch.from_numpy(members), size), edges.num_relations)

    @cached_property
    def sizes(self) -> Sizes:
        """(kinds,): how many edges each stands for."""
        ones = np.ones(2 * self.num_relations, dtype=np.int64)
        return np.concatenate([ones, self.sets.sizes.numpy()])

    def scales(self, of_relations: Tensor) -> Floats:
        """(kinds, d): the sum over each kind's relations of what these have, (oriented relations, d)."""
        sums = weighted_sum(self.sets, torch.ones(len(self.sets.columns)), of_relations)
        found: Floats = torch.cat([of_relations, sums]).numpy()
        return found

    def without(self, removed: Mask) -> tuple[Part, Floats]:
        """The entries, masked where an entity is removed; and (rows,) how many edges these stand for, each row's."""
        received, sent, degrees = _without(self.part, self.sizes, removed)
        return self.part._replace(received=received, sent=sent), degrees


def plain_part(edges: PropagationEdges) -> Part:
    """Few edges, none of which is masked, as they are: an entry for each of them."""
    columns = edges.rows.columns, edges.relations, (edges.relations + edges.num_relations) % (2 * edges.num_relations)
    return Part(edges.rows.offsets.numpy(), *(column.to(torch.int32).numpy() for column in columns))


@compiled
def _kinds(starts: Ids, relations: Ids, num_relations: int) -> tuple[SmallIds, Ids]:
    """The kind of each pair, whose relations begin at ``starts``; and for each set a pair that has it."""
    count, found = len(starts) - 1, 0
    kinds, shown = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int64)
    slots = 1
    while slots < 2 * count:
        slots *= 2
    taken = np.full(slots, -1, dtype=np.int64)  # by the number of a set
    for pair in range(count):
        first, size = starts[pair], starts[pair + 1] - starts[pair]
        if size == 1:
            kinds[pair] = relations[first]
            continue
        slot = np.int64(size)
        for place in range(first, first + size):
            slot = (slot * 1_000_003 + relations[place]) & (slots - 1)
        while taken[slot] >= 0:
            other = shown[taken[slot]]
            same = starts[other + 1] - starts[other] == size
            place = 0
            while same and place < size:
                same = relations[starts[other] + place] == relations[first + place]
                place += 1
            if same:
                break
            slot = (slot + 1) & (slots - 1)
        if taken[slot] < 0:
            taken[slot], shown[found] = found, pair
            found += 1
        kinds[pair] = num_relations + taken[slot]
    return kinds, shown[:found]


@compiled
def _turned(offsets: Ids, neighbors: SmallIds, received: SmallIds) -> SmallIds:
    """What each row sends: what its neighbours, who have it among theirs, receive."""
    sent, place = np.empty_like(received), offsets[:-1].copy()
    for row in range(len(offsets) - 1):
        for entry in range(offsets[row], offsets[row + 1]):
            neighbor = neighbors[entry]
            sent[place[neighbor]] = received[entry]
            place[neighbor] += 1
    return sent


@compiled
def _without(part: Part, sizes: Sizes, removed: Mask) -> tuple[SmallIds, SmallIds, Floats]:
    received, sent, degrees = part.received.copy(), part.sent.copy(), np.zeros(len(part.offsets) - 1, dtype=np.float32)
    for row in range(len(degrees)):
        for entry in range(part.offsets[row], part.offsets[row + 1]):
            if removed[row] or removed[part.neighbors[entry]]:
                received[entry] = sent[entry] = MASKED
            else:
                degrees[row] += sizes[received[entry]]
    return received, sent, degrees
