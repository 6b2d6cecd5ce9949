"""From a data set and its virtual neighbours to the tensors that training and inference work on.

Facts and virtual triples share one set of edges. Every edge knows the triple it comes from, so that hiding a triple, or
giving it a soft label, is a matter of one weight.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Graph, Ids, TripleArray, concatenate
from newcomer.models.sparse import Rows, single_rows
from newcomer.models.vn.layers import Edges
from newcomer.models.vn.soft_labels import grounding_support
from newcomer.rules.virtual_neighbors import VirtualNeighbors

PREMISES = 3


@dataclass(frozen=True)
class Groundings:
    """Why virtual triples are believed: where each one's begin, confidence, premises (-1 where there are fewer)."""

    offsets: Tensor  # (virtual + 1,)
    confidence: Tensor  # (groundings,)
    premises: Tensor  # (groundings, 3, 3)


class Grounds(NamedTuple):
    """The groundings of some virtual triples: a row a triple, whose entries are groundings of three premises each."""

    rows: Rows
    confidence: Tensor  # (groundings,)
    premises: Tensor  # (3 * groundings, 3) one grounding after the other
    absent: Tensor  # (groundings, 3) where there are fewer premises: the first one stands there again

    def support(self, truths: Tensor) -> Tensor:
        """(n,): the confidences of each triple's groundings, as true as their premises (3 * groundings,), summed."""
        return grounding_support(
            self.rows, self.confidence, truths.reshape(self.absent.shape).masked_fill(self.absent, 1.0)
        )


@dataclass(frozen=True)
class GraphTensors:
    """Triples, the edges they make, and what rests on what.

    Triples are numbered facts first, then virtual ones; ``sources`` gives each edge's number. ``dependents`` lists for
    each fact the virtual triples that some grounding infers from it: they must go when the fact is hidden.
    """

    num_entities: int
    num_relations: int
    facts: Tensor  # (facts, 3)
    virtual: Tensor  # (virtual, 3)
    rows: Rows
    relations: Tensor
    sources: Tensor
    groundings: Groundings
    dependents: Rows

    def edges(self, triple_weights: Tensor) -> Edges:
        """The edges with a weight a triple."""
        return Edges(self.rows, self.relations, triple_weights[self.sources], self.by_relation)

    @cached_property
    def by_relation(self) -> Rows:
        """The edges' relations as rows of one entry, to sum up by relation."""
        return single_rows(self.relations, 2 * self.num_relations)

    def mentioned(self, virtual: Tensor) -> Tensor:
        """The entities of these virtual triples and of the facts they are inferred from."""
        distinct: Tensor = torch.unique(torch.cat([self.virtual[virtual], self.grounds(virtual).premises])[:, ::2])
        return distinct

    def groundings_of(self, virtual: Tensor) -> tuple[Rows, Tensor]:
        """The groundings of these virtual triples: a row a triple, and which each of the rows' entries is."""
        return self._by_conclusion.pick(virtual)

    def grounds(self, virtual: Tensor) -> Grounds:
        """Why these virtual triples are believed."""
        rows, chosen = self.groundings_of(virtual)
        premises = self.groundings.premises[chosen]
        absent = premises[:, :, 1] < 0
        filled = torch.where(absent[:, :, None], premises[:, :1], premises)
        return Grounds(rows, self.groundings.confidence[chosen], filled.reshape(-1, 3), absent)

    @cached_property
    def _by_conclusion(self) -> Rows:
        every = torch.arange(len(self.groundings.confidence), device=self.virtual.device)
        return Rows(self.groundings.offsets, every, len(every))

    def between(self, facts: Tensor) -> Tensor:
        """All facts that tie the same two entities as one of these, themselves included."""
        number, members = self._pairs
        _, found = members.pick(number[facts])
        return members.columns[found]

    @cached_property
    def _pairs(self) -> tuple[Tensor, Rows]:
        """The number of each fact's pair of entities, whichever is the head, and the facts of every pair."""
        low, high = self.facts[:, ::2].sort(dim=1).values.unbind(dim=1)
        keys, number = torch.unique(low * self.num_entities + high, return_inverse=True)
        order = torch.argsort(number, stable=True)
        offsets = torch.searchsorted(number[order], torch.arange(len(keys) + 1, device=number.device))
        return number, Rows(offsets, order, len(number))

    def standing(self, visible: Tensor) -> Tensor:
        """(virtual,): 1.0, or 0.0 of those inferred from a fact that has 0.0 in ``visible`` (facts,) and not 1.0."""
        premises, _ = self.dependents.transposed
        least = torch.segment_reduce(visible[premises.columns], "min", offsets=premises.offsets, initial=1.0)
        return least[: len(self.virtual)]


def build_graph_tensors(
    graph: Graph, num_entities: int, virtual: VirtualNeighbors | None, device: torch.device
) -> GraphTensors:
    """The edges of entities ``0..num_entities``: all facts of the graph and the virtual triples among them."""
    facts = graph.triples
    kept, groundings = _within(virtual, num_entities)
    rows, relations, sources = _edges(concatenate([facts, kept]), num_entities, graph.num_relations, device)
    numbers = _fact_numbers(graph, groundings.premises.reshape(-1, 3)).reshape(-1, PREMISES)
    return GraphTensors(
        num_entities,
        graph.num_relations,
        _tensor(facts.rows, device),
        _tensor(kept.rows, device),
        rows,
        relations,
        sources,
        Groundings(
            _tensor(groundings.offsets, device),
            torch.tensor(groundings.confidence, dtype=torch.float32, device=device),
            _tensor(groundings.premises, device),
        ),
        _dependents(numbers, groundings.rows, len(facts), len(kept), device),
    )


@dataclass(frozen=True)
class _Grounded:
    rows: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    premises: Ids


def _within(virtual: VirtualNeighbors | None, num_entities: int) -> tuple[TripleArray, _Grounded]:
    """The virtual triples both of whose ends are among the first entities, with their groundings."""
    if virtual is None or len(virtual) == 0:
        none = np.empty(0, dtype=np.int64)
        return TripleArray.empty(), _Grounded(
            none, np.zeros(1, np.int64), none.astype(float), np.empty((0, 3, 3), np.int32)
        )
    triples = virtual.triples
    keep = (triples.heads < num_entities) & (triples.tails < num_entities)
    counts = virtual.grounding_counts
    chosen = np.repeat(keep, counts)
    rows = np.repeat(np.arange(int(keep.sum())), counts[keep])
    offsets = np.concatenate([[0], np.cumsum(counts[keep])]).astype(np.int64)
    grounded = _Grounded(rows, offsets, virtual.grounding_strength[chosen], virtual.premises[chosen])
    return triples.take(keep), grounded


def _edges(
    triples: TripleArray, num_entities: int, num_relations: int, device: torch.device
) -> tuple[Rows, Tensor, Tensor]:
    """Each triple as an edge of its head and, inverted, of its tail, sorted by row, relation, column."""
    numbers = np.arange(len(triples))
    row = np.concatenate([triples.heads, triples.tails])
    relation = np.concatenate([triples.relations, triples.relations + num_relations])
    column = np.concatenate([triples.tails, triples.heads])
    order = np.lexsort((column, relation, row))
    offsets = np.zeros(num_entities + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=num_entities), out=offsets[1:])
    rows = Rows(_tensor(offsets, device), _tensor(column[order], device), num_entities)
    return rows, _tensor(relation[order], device), _tensor(np.concatenate([numbers, numbers])[order], device)


def _fact_numbers(graph: Graph, triples: Ids) -> npt.NDArray[np.int64]:
    """The number of each triple among the graph's facts; -1 where it is none."""
    facts, size = graph.triples, graph.num_entities
    keys = (facts.heads.astype(np.int64) * graph.num_relations + facts.relations) * size + facts.tails
    wanted = (triples[:, 0].astype(np.int64) * graph.num_relations + triples[:, 1]) * size + triples[:, 2]
    if len(keys) == 0:
        return np.full(len(triples), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[place] == wanted) & (triples[:, 1] >= 0), place, -1)


def _dependents(
    premise_numbers: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    num_facts: int,
    num_virtual: int,
    device: torch.device,
) -> Rows:
    fact = premise_numbers.reshape(-1)
    conclusion = np.repeat(rows, PREMISES)
    pairs = np.unique(fact[fact >= 0] * max(num_virtual, 1) + conclusion[fact >= 0])
    fact, conclusion = pairs // max(num_virtual, 1), pairs % max(num_virtual, 1)
    offsets = np.zeros(num_facts + 1, dtype=np.int64)
    np.cumsum(np.bincount(fact, minlength=num_facts), out=offsets[1:])
    return Rows(_tensor(offsets, device), _tensor(conclusion, device), max(num_virtual, 1))


def _tensor(array: npt.NDArray[np.integer], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.int64)).to(device)
