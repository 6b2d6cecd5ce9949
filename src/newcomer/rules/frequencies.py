"""How often entities answer relations in a graph."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from newcomer.graph import Graph, Ids, Mask, Offsets
from newcomer.rules.rule_index import Floats


@dataclass(frozen=True, eq=False)
class Frequencies:
    """How often entities answer relations in a graph; those of a relation are found without looking at the others.

    Who answers ``relation``, and how often, stands from ``offsets[relation]`` on. ``num_entities`` may be more than the
    graph has: newcomers answer nothing there.
    """

    num_entities: int
    offsets: Offsets
    answers: Ids
    counts: Offsets
    occurs: Mask  # of each entity of the graph, whether it has a triple

    @classmethod
    def of(cls, observed: Graph) -> "Frequencies":
        """Of a graph; relation ids from R on are inverses."""
        triples, size, width = observed.triples, observed.num_relations, max(observed.num_entities, 1)
        forward = triples.relations.astype(np.int64) * width + triples.tails
        backward = (triples.relations.astype(np.int64) + size) * width + triples.heads
        pairs, counts = np.unique(np.concatenate([forward, backward]), return_counts=True)
        offsets = np.searchsorted(pairs, np.arange(2 * size + 1) * width)
        answers = (pairs % width).astype(np.int32)
        return cls(observed.num_entities, offsets, answers, counts, observed.degrees > 0)

    def row(self, relation: int) -> Floats:
        """(entities,): how often each answers an oriented relation."""
        row, which = np.zeros(self.num_entities), slice(self.offsets[relation], self.offsets[relation + 1])
        row[self.answers[which]] = self.counts[which]
        return row

    def answering(self, relation: int) -> Ids:
        """Who answers an oriented relation."""
        return self.answers[self.offsets[relation] : self.offsets[relation + 1]]

    @cached_property
    def totals(self) -> Offsets:
        """(2 relations,): how many triples each oriented relation has."""
        return np.diff(np.concatenate([[0], np.cumsum(self.counts)])[self.offsets])

    def unseen(self) -> Floats:
        """(entities,): 1 of each that the graph has no triple of."""
        row = np.ones(self.num_entities)
        row[: len(self.occurs)] = ~self.occurs
        return row
