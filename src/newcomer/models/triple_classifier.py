"""The triple classifier: small networks that tell from features of a pair whether a relation holds between the two.

The features of two entities in a graph need no trained vector of either:

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
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from newcomer.graph import Graph, Ids, Offsets
from newcomer.rules.compiled import compiled

MEMBERS, HIDDEN, RELATION = 4, 128, 16
DROPPED = 0.1
FURTHEST = 8.0  # standard deviations: features beyond are clipped, as none like them was trained on
BATCH = 4096  # triples whose features are found at once
PREFIX = "triple_classifier."  # of the names of its weights
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


class Member(nn.Module):
    """One of the networks; they differ by their first weights and by dropout."""

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.relations = nn.Embedding(num_relations, RELATION)
        self.first = nn.Linear(width + RELATION, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, features: Tensor, relations: Tensor) -> Tensor:
        """(n,): log odds."""
        hidden = functional.relu(self.first(torch.cat([features, self.relations(relations)], dim=1)))
        hidden = functional.relu(self.second(functional.dropout(hidden, DROPPED, self.training)))
        odds: Tensor = self.last(hidden)
        return odds[:, 0]


class TripleClassifier(nn.Module):
    """Log odds that (head, relation, tail) is true, by features of the pair (head, tail): the mean of the members'."""

    mean: Tensor
    scale: Tensor

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(Member(num_relations, width) for _ in range(MEMBERS))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def standardise_by(self, features: Tensor) -> None:
        """Set mean and scale to those of the features that will be trained on, (n, width)."""
        self.mean = features.mean(dim=0)
        self.scale = features.std(dim=0) + 0.01  # some never differ

    def by_member(self, features: Tensor, relations: Tensor) -> Tensor:
        """(members, n): log odds by each, of features (n, width) and relations (n,)."""
        standardised = ((features - self.mean) / self.scale).clamp(-FURTHEST, FURTHEST)
        return torch.stack([member(standardised, relations) for member in self.members])

    def forward(self, features: Tensor, relations: Tensor) -> Tensor:
        """(n,): log odds by all."""
        return self.by_member(features, relations).mean(dim=0)


class TripleClassifierScorer:
    """Scores triples by a triple classifier and all known facts, newcomers' included."""

    def __init__(self, classifier: TripleClassifier, known: Graph) -> None:
        self.classifier, self.features = classifier, PairFeatures(known)

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float64]:
        """(n,): log odds that each triple is true, each by itself: products of matrices round by the number of rows."""
        found = []
        for start in range(0, len(heads), BATCH):
            part = slice(start, start + BATCH)
            features = torch.from_numpy(self.features.of(heads[part], tails[part]))
            kinds = torch.from_numpy(relations[part].astype(np.int64))
            with torch.no_grad():
                odds = [
                    self.classifier(*one) for one in zip(torch.split(features, 1), torch.split(kinds, 1), strict=True)
                ]
            found.append(torch.cat(odds).double().numpy())
        return np.concatenate(found) if found else np.empty(0)
