"""Candidates drawn for a loss: an unbiased estimate of a softmax over all entities, from a few of them.

Entities are compared in groups: those that one fact joins to the entity asked about, those that answer the relation
somewhere, and all others. The first two are few and score high, so most of them are drawn; of the last group a handful
stands for thousands. A candidate's weight is the log of how many of its group it stands for, and is added to its score.
Other true answers are in no group.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.propagation.edges import Floats, Ids
from newcomer.rules.compiled import compiled

NEAR, ANSWERS, OTHERS = 48, 48, 96  # drawn of each group, at most
DRAWN = NEAR + ANSWERS + OTHERS
ABSENT = -1


Rows = tuple[Ids, Ids, Ids]  # offsets, oriented relations, other ends


class Candidates(NamedTuple):
    """Of each query: the right answer first, then those that it is compared with."""

    entities: Ids  # (queries, 1 + DRAWN); `ABSENT` where there are fewer
    weights: Floats  # the log of how many each stands for; minus infinity of one that is absent


class CandidateSampler:
    """The facts of a graph by which candidates are drawn."""

    def __init__(self, graph: GraphTensors) -> None:
        self.num_entities, oriented = graph.num_entities, 2 * graph.num_relations
        offsets, relations, tails = (
            one.contiguous().numpy() for one in (graph.rows.offsets, graph.relations, graph.rows.columns)
        )
        self._rows: Rows = offsets, relations, tails
        # The row of an entity has its facts as they are asked about: the other end is an answer.
        answers = np.unique(relations * self.num_entities + tails)
        first = np.arange(oriented + 1) * self.num_entities
        self._answers = np.searchsorted(answers, first), answers % self.num_entities

    def draw(self, queries: Ids, generator: np.random.Generator) -> Candidates:
        """Candidates of queries (n, 3): source, oriented relation, right answer."""
        random = generator.random((len(queries), DRAWN))
        return Candidates(*_drawn(queries, self._rows, self._answers, self.num_entities, random))


@compiled
def _drawn(
    queries: Ids, rows: Rows, known: tuple[Ids, Ids], num_entities: int, random: npt.NDArray[np.float64]
) -> tuple[Ids, Floats]:
    offsets, relations, tails = rows
    entities = np.full((len(queries), 1 + DRAWN), ABSENT, dtype=np.int64)
    weights = np.full((len(queries), 1 + DRAWN), -np.inf, dtype=np.float32)
    taken, pool = np.full(num_entities, -1, dtype=np.int64), np.empty(num_entities, dtype=np.int64)
    for number in range(len(queries)):
        source, relation, answer = queries[number]
        own = slice(offsets[source], offsets[source + 1])
        answers = known[1][known[0][relation] : known[0][relation + 1]]
        entities[number, 0], weights[number, 0] = answer, 0.0
        taken[answer] = number
        left = num_entities - 1 - _leave_out(relations[own], tails[own], relation, number, taken)
        drawn = 1
        for group, most in ((tails[own], NEAR), (answers, ANSWERS)):
            size = _pool(group, number, taken, pool)
            left -= size
            count = min(most, size)
            for one in range(count):  # the first steps of a shuffle
                other = one + int(random[number, drawn - 1] * (size - one))
                pool[one], pool[other] = pool[other], pool[one]
                entities[number, drawn], weights[number, drawn] = pool[one], np.log(size / count)
                drawn += 1
        first = drawn
        for one in range(first, first + OTHERS):
            entity = int(random[number, one - 1] * num_entities)
            if taken[entity] != number:
                taken[entity], entities[number, drawn] = number, entity
                drawn += 1
        weights[number, first:drawn] = np.log(left / max(drawn - first, 1))
    return entities, weights


@compiled
def _leave_out(relations: Ids, tails: Ids, relation: int, number: int, taken: Ids) -> int:
    """Take the other true answers; gives how many these are."""
    count = 0
    for place in range(len(tails)):
        if relations[place] == relation and taken[tails[place]] != number:
            taken[tails[place]] = number
            count += 1
    return count


@compiled
def _pool(group: Ids, number: int, taken: Ids, pool: Ids) -> int:
    """Take all of a group who are not taken yet; gives how many these are."""
    size = 0
    for entity in group:
        if taken[entity] != number:
            taken[entity], pool[size] = number, entity
            size += 1
    return size
