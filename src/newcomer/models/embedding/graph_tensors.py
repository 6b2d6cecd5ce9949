"""From a data set and its virtual neighbours to the tensors that training and inference work on.

Facts and virtual triples share one set of edges. Every edge knows the triple it comes from, so that hiding a triple, or
giving it a soft label, is a matter of one weight.

A soft label says how far the rules that infer a triple and the current embeddings support it. Rules are read in product
t-norm fuzzy logic (the paper's "Soft Label Prediction"). The labels s solve

    min  1/2 sum over triples x of (s(x) - I(x))^2  +  C sum over groundings f of xi_f
    s.t. lambda_f (1 - pi(f | s)) <= xi_f,   xi_f >= 0,   0 <= s(x) <= 1

where I(x) is the truth of x under the current embeddings, lambda_f the confidence of the rule of f, and pi(f | s) the
truth of "the premises of f imply x" with s(x) as the truth of x. "a and b" is a b, "not a" is 1 - a, and "a implies b"
is "not (a and not b)"; so pi(f | s) = 1 - p_f (1 - s(x)) with p_f, the product of the premises' truths. That is linear
in s(x) and never above 1, so the problem is solved triple by triple and at once:

    s(x) = clip01( I(x) + C * sum over groundings f of x of lambda_f * p_f )
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Graph, Ids, TripleArray, concatenate
from newcomer.models.embedding.encoder import Edges
from newcomer.models.sparse import Rows, row_sums, single_rows
from newcomer.rules.virtual_neighbors import VirtualNeighbors

PREMISES = 3
Numbers = npt.NDArray[np.int64]
Strengths = npt.NDArray[np.float64]


class Groundings(NamedTuple):
    """The groundings of virtual triples: a row a triple, whose entries are groundings of three premises each."""

    rows: Rows
    confidence: Tensor  # (groundings,)
    premises: Tensor  # (3 * groundings, 3) one grounding after the other
    absent: Tensor  # (groundings, 3) where there are fewer premises: the first one stands there again

    def support(self, truths: Tensor) -> Tensor:
        """(n,): `grounding_support` of each triple, with the truths of the premises (3 * groundings,)."""
        known = truths.reshape(self.absent.shape).masked_fill(self.absent, 1.0)
        return grounding_support(self.rows, self.confidence, known)


@dataclass(frozen=True)
class GraphTensors:
    """Triples, the edges they make, and which are inferred from which.

    Triples are numbered facts first, then virtual ones; ``sources`` gives each edge's number. ``dependents`` lists for
    each fact the virtual triples that some grounding infers from it: they are hidden with the fact.
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

    def weights(self, labels: Tensor) -> Tensor:
        """A weight a triple: facts are certain, virtual ones have their labels."""
        return torch.cat([torch.ones(len(self.facts), device=labels.device), labels])

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

    def grounds(self, virtual: Tensor) -> Groundings:
        """The groundings of these virtual triples."""
        rows, chosen = self.groundings.rows.pick(virtual)
        premises = self.groundings.premises.reshape(-1, PREMISES, 3)[chosen].reshape(-1, 3)
        return Groundings(rows, self.groundings.confidence[chosen], premises, self.groundings.absent[chosen])

    def between(self, facts: Tensor) -> Tensor:
        """All facts between the same two entities as one of these, themselves included."""
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
    kept, counts, confidence, premises = _within(virtual, num_entities)
    rows, relations, sources = _edges(concatenate([facts, kept]), num_entities, graph.num_relations, device)
    numbers = _fact_numbers(graph, premises.reshape(-1, 3))
    return GraphTensors(
        num_entities,
        graph.num_relations,
        _tensor(facts.rows, device),
        _tensor(kept.rows, device),
        rows,
        relations,
        sources,
        _groundings(counts, confidence, premises, device),
        _dependents(numbers, counts, len(facts), device),
    )


def _groundings(counts: Numbers, confidence: Strengths, premises: Ids, device: torch.device) -> Groundings:
    offsets, every = np.concatenate([[0], np.cumsum(counts)]), np.arange(len(confidence))
    rows = Rows(_tensor(offsets, device), _tensor(every, device), len(every))
    absent = premises[:, :, 1] < 0
    filled = np.where(absent[:, :, None], premises[:, :1], premises).reshape(-1, 3)
    confidences = torch.tensor(confidence, dtype=torch.float32, device=device)
    return Groundings(rows, confidences, _tensor(filled, device), torch.from_numpy(absent).to(device))


def _within(virtual: VirtualNeighbors | None, num_entities: int) -> tuple[TripleArray, Numbers, Strengths, Ids]:
    """The virtual triples between the first entities; how many groundings each has, their confidence and premises."""
    if virtual is None:
        return TripleArray.empty(), np.empty(0, np.int64), np.empty(0), np.empty((0, PREMISES, 3), np.int32)
    triples, counts = virtual.triples, np.diff(virtual.offsets)
    keep = (triples.heads < num_entities) & (triples.tails < num_entities)
    chosen = np.repeat(keep, counts)
    return triples.take(keep), counts[keep], virtual.grounding_strength[chosen], virtual.premises[chosen]


def _edges(
    triples: TripleArray, num_entities: int, num_relations: int, device: torch.device
) -> tuple[Rows, Tensor, Tensor]:
    """Each triple as an edge of its head and, inverted, of its tail, sorted by row, relation, column."""
    row = np.concatenate([triples.heads, triples.tails])
    relation = np.concatenate([triples.relations, triples.relations + num_relations])
    column = np.concatenate([triples.tails, triples.heads])
    order = np.lexsort((column, relation, row))
    offsets = np.searchsorted(row[order], np.arange(num_entities + 1))
    rows = Rows(_tensor(offsets, device), _tensor(column[order], device), num_entities)
    return rows, _tensor(relation[order], device), _tensor(order % max(len(triples), 1), device)


def _fact_numbers(graph: Graph, triples: Ids) -> Numbers:
    """The number of each triple among the graph's facts; -1 where it is none."""
    facts, size = graph.triples, graph.num_entities
    keys = (facts.heads.astype(np.int64) * graph.num_relations + facts.relations) * size + facts.tails
    wanted = (triples[:, 0].astype(np.int64) * graph.num_relations + triples[:, 1]) * size + triples[:, 2]
    if len(keys) == 0:
        return np.full(len(triples), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[place] == wanted) & (triples[:, 1] >= 0), place, -1)


def _dependents(premise_numbers: Numbers, counts: Numbers, num_facts: int, device: torch.device) -> Rows:
    """For each fact the virtual triples inferred from it, each of which has that many groundings."""
    width, stated = max(len(counts), 1), premise_numbers >= 0
    conclusions = np.repeat(np.arange(len(counts)), PREMISES * counts)
    pairs = np.unique(premise_numbers[stated] * width + conclusions[stated])
    offsets = np.searchsorted(pairs, np.arange(num_facts + 1) * width)
    return Rows(_tensor(offsets, device), _tensor(pairs % width, device), width)


def _tensor(array: npt.NDArray[np.integer], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.int64)).to(device)


@torch.no_grad()
def grounding_support(groundings: Rows, confidence: Tensor, premise_truth: Tensor) -> Tensor:
    """(rows,): for each virtual triple (a row) the sum over its groundings f (the row's entries) of lambda_f * p_f.

    Each of g groundings has the confidence of its rule (g,) and its premises' truths (g, p), 1.0 where it has fewer
    than p premises.
    """
    return row_sums(groundings, (confidence * premise_truth.prod(dim=-1)).to(premise_truth.dtype))


@torch.no_grad()
def soft_labels(truth: Tensor, support: Tensor, c: float = 0.01, mode: str = "soft") -> Tensor:
    """Labels (n,) of n virtual triples; no gradient flows through a label.

    ``truth`` (n,) is that of the triples under the embeddings, ``support`` (n,) that of their groundings.

    Modes: ``soft`` is the formula above; ``hard`` trusts every rule, label 1; ``none`` uses no virtual triples, label
    and so weight 0.
    """
    if mode == "none":
        return torch.zeros_like(truth)
    if mode == "hard":
        return torch.ones_like(truth)
    return (truth + c * support).clamp(0.0, 1.0)
