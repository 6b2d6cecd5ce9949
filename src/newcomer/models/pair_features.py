"""What is to be seen around two entities in a graph, as numbers that no entity has to be trained for.

    roles      of each end: by oriented relation, the log of one more than how many facts it has
    company    of each end: the mean roles of its neighbours
    nearness   the log of one more than how much likelier than by chance a random walk of 2, 3, 4, 5, 6 steps leads from
               one end to the other; walks from both ends meet in the middle, so none is longer than 3

The two may not be tied to each other: what joins them is not looked at, and where they are, walks count that too.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.graph import Graph, Ids, Offsets
from newcomer.rules.compiled import compiled

Numbers = npt.NDArray[np.float32]
Shares = npt.NDArray[np.float64]
STEPS = 3  # of a walk from one end
LENGTHS = 2 * STEPS - 1  # of the walks between both ends


class Surroundings:
    """A graph that is looked at around pairs of its entities."""

    def __init__(self, graph: Graph) -> None:
        self.num_relations = graph.num_relations
        adjacency, size = graph.adjacency, graph.num_entities
        row = np.repeat(np.arange(size), np.diff(adjacency.offsets))
        # Rows are sorted by relation, so that equal ones stand together.
        kinds, counts = np.unique(row * (2 * graph.num_relations) + adjacency.relations, return_counts=True)
        self.roles = _offsets(kinds // (2 * graph.num_relations), size)
        self.role_ids = (kinds % (2 * graph.num_relations)).astype(np.int32)
        self.role_sizes = np.log1p(counts).astype(np.float32)
        ties = np.unique(row * size + adjacency.tails)
        self.neighbors = _offsets(ties // size, size)
        self.neighbor_ids = (ties % size).astype(np.int32)

    @property
    def width(self) -> int:
        """How many numbers there are of a pair."""
        return width_of(self.num_relations)

    def of(self, heads: Ids, tails: Ids) -> Numbers:
        """(pairs, width): all numbers."""
        found: Numbers = np.zeros((len(heads), self.width), dtype=np.float32)
        wide = 2 * self.num_relations
        table = self.roles, self.role_ids, self.role_sizes
        for place, ends in enumerate((heads, tails)):
            _roles(found[:, place * wide : (place + 1) * wide], ends, *table)
            company = found[:, (2 + place) * wide : (3 + place) * wide]
            _company(company, ends, self.neighbors, self.neighbor_ids, *table)
        _nearness(found[:, 4 * wide :], heads, tails, self.neighbors, self.neighbor_ids)
        return found


def width_of(num_relations: int) -> int:
    """How many numbers there are of a pair in a graph of so many relations."""
    return 8 * num_relations + LENGTHS


def _offsets(sorted_rows: npt.NDArray[np.integer], size: int) -> Offsets:
    offsets = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(sorted_rows, minlength=size), out=offsets[1:])
    return offsets


@compiled
def _roles(found: Numbers, entities: Ids, offsets: Offsets, ids: Ids, sizes: Numbers) -> None:
    for row, entity in enumerate(entities):
        for place in range(offsets[entity], offsets[entity + 1]):
            found[row, ids[place]] = sizes[place]


@compiled
def _company(
    found: Numbers, entities: Ids, ties: Offsets, neighbors: Ids, offsets: Offsets, ids: Ids, sizes: Numbers
) -> None:
    for row, entity in enumerate(entities):
        for tie in range(ties[entity], ties[entity + 1]):
            one = neighbors[tie]
            for place in range(offsets[one], offsets[one + 1]):
                found[row, ids[place]] += sizes[place]
        count = ties[entity + 1] - ties[entity]
        if count > 0:
            found[row] /= count


@compiled
def _step(ids: Ids, shares: Shares, ties: Offsets, neighbors: Ids, table: Shares) -> tuple[Ids, Shares]:
    """Where a walk that is at ``ids`` with these shares is one step later; ``table`` is zero before and after."""
    bound = 0
    for one in ids:
        bound += ties[one + 1] - ties[one]
    touched, count = np.empty(min(bound, len(table)), np.int32), 0
    for place, one in enumerate(ids):
        first, last = ties[one], ties[one + 1]
        for tie in range(first, last):
            other = neighbors[tie]
            if table[other] == 0.0:
                touched[count] = other
                count += 1
            table[other] += shares[place] / (last - first)
    there = touched[:count]
    reached = np.empty(count, np.float64)
    for place in range(count):
        reached[place] = table[there[place]]
        table[there[place]] = 0.0
    return there, reached


@compiled
def _meeting(one: Ids, by_one: Shares, other: Ids, by_other: Shares, ties: Offsets, table: Shares, total: int) -> float:
    """How much likelier than by chance two walks are at the same place: at one where everybody is often it is less."""
    for place, entity in enumerate(one):
        table[entity] = by_one[place]
    lift = 0.0
    for place, entity in enumerate(other):
        if table[entity] > 0.0:
            lift += table[entity] * by_other[place] * total / (ties[entity + 1] - ties[entity])
    for entity in one:
        table[entity] = 0.0
    return lift


@compiled
def _nearness(found: Numbers, heads: Ids, tails: Ids, ties: Offsets, neighbors: Ids) -> None:
    table = np.zeros(len(ties) - 1, np.float64)
    total = len(neighbors)
    for row in range(len(heads)):
        one, by_one = heads[row : row + 1], np.ones(1, np.float64)
        other, by_other = tails[row : row + 1], np.ones(1, np.float64)
        for length in range(1, 2 * STEPS + 1):
            if length % 2:
                one, by_one = _step(one, by_one, ties, neighbors, table)
            else:
                other, by_other = _step(other, by_other, ties, neighbors, table)
            if length > 1:
                found[row, length - 2] = np.log1p(_meeting(one, by_one, other, by_other, ties, table, total))


def pairs_of(graph: Graph) -> npt.NDArray[Any]:
    """A number for each fact that those between the same two entities share."""
    facts, size = graph.triples, graph.num_entities
    low, high = np.minimum(facts.heads, facts.tails), np.maximum(facts.heads, facts.tails)
    _, pair = np.unique(low.astype(np.int64) * size + high, return_inverse=True)
    return pair
