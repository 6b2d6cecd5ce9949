"""Features of a pair of entities in a graph, which need no trained vector of either.

    roles             of each end: by oriented relation, log(1 + number of its facts)
    neighbour roles   of each end: the mean roles of its neighbours
    proximity         log(1 + lift) for random walks of 2, 3, 4, 5 and 6 steps from one end to the other, where the lift
                      is the walk's probability over that of meeting by chance; walks from both ends meet in the
                      middle, so none is longer than 3

Facts between the two ends are no feature of their own, but walks go along them too.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from newcomer.graph import Graph, Ids, Offsets
from newcomer.rules.compiled import compiled

Features = npt.NDArray[np.float32]
Shares = npt.NDArray[np.float64]
STEPS = 3  # of a walk from one end
LENGTHS = 2 * STEPS - 1  # of the walks between both ends


class PairFeatures:
    """A graph, ready for the features of pairs of its entities."""

    def __init__(self, graph: Graph) -> None:
        self.num_relations = graph.num_relations
        adjacency, size = graph.adjacency, graph.num_entities
        ones, owners = np.ones(len(adjacency.tails)), adjacency.owners  # facts of the same place are added up
        roles = csr_array((ones, (owners, adjacency.relations)), shape=(size, 2 * graph.num_relations))
        self.roles = roles.log1p().astype(np.float32)
        self.neighbors = csr_array((ones, (owners, adjacency.tails)), shape=(size, size)).sign().astype(np.float32)

    def of(self, heads: Ids, tails: Ids) -> Features:
        """(pairs, `feature_count`): the features of each pair."""
        found: Features = np.zeros((len(heads), feature_count(self.num_relations)), dtype=np.float32)
        *sides, proximity = np.split(found, np.arange(1, 5) * 2 * self.num_relations, axis=1)
        for ends, own, neighbors in zip((heads, tails), sides[:2], sides[2:], strict=True):
            around = self.neighbors[ends]
            own[:] = self.roles[ends].toarray()
            neighbors[:] = (around @ self.roles).toarray() / np.maximum(np.diff(around.indptr), 1)[:, None]
        _add_proximity(proximity, heads, tails, self.neighbors.indptr, self.neighbors.indices)
        return found


def feature_count(num_relations: int) -> int:
    """How many features a pair has in a graph of so many relations."""
    return 8 * num_relations + LENGTHS


@compiled
def _step(ids: Ids, shares: Shares, rows: Offsets, neighbors: Ids, table: Shares) -> tuple[Ids, Shares]:
    """Where a walk that is at ``ids`` with these shares is one step later; ``table`` is zero before and after."""
    bound = 0
    for entity in ids:
        bound += rows[entity + 1] - rows[entity]
    reached, count = np.empty(min(bound, len(table)), np.int32), 0
    for place, entity in enumerate(ids):
        degree = rows[entity + 1] - rows[entity]
        for neighbor in neighbors[rows[entity] : rows[entity + 1]]:
            if table[neighbor] == 0.0:
                reached[count] = neighbor
                count += 1
            table[neighbor] += shares[place] / degree
    reached = reached[:count]
    found = table[reached]
    table[reached] = 0.0
    return reached, found


@compiled
def _lift(one: Ids, by_one: Shares, other: Ids, by_other: Shares, rows: Offsets, table: Shares, total: int) -> float:
    """How much likelier than by chance two walks are at the same entity; at one of many facts chance is likelier."""
    table[one] = by_one
    lift = 0.0
    for place, entity in enumerate(other):
        if table[entity] > 0.0:
            lift += table[entity] * by_other[place] * total / (rows[entity + 1] - rows[entity])
    table[one] = 0.0
    return lift


@compiled
def _add_proximity(found: Features, heads: Ids, tails: Ids, rows: Offsets, neighbors: Ids) -> None:
    table = np.zeros(len(rows) - 1, np.float64)
    total = len(neighbors)
    for row in range(len(heads)):
        one, by_one = heads[row : row + 1], np.ones(1, np.float64)
        other, by_other = tails[row : row + 1], np.ones(1, np.float64)
        for length in range(1, 2 * STEPS + 1):
            if length % 2:
                one, by_one = _step(one, by_one, rows, neighbors, table)
            else:
                other, by_other = _step(other, by_other, rows, neighbors, table)
            if length > 1:
                found[row, length - 2] = np.log1p(_lift(one, by_one, other, by_other, rows, table, total))


def pair_ids(graph: Graph) -> npt.NDArray[Any]:
    """A number for each fact, the same for all facts between the same two entities."""
    facts, size = graph.triples, graph.num_entities
    low, high = np.minimum(facts.heads, facts.tails), np.maximum(facts.heads, facts.tails)
    _, pair = np.unique(low.astype(np.int64) * size + high, return_inverse=True)
    return pair
