"""Propagation: what the paths from the entity asked about say of everyone (the idea of NBFNet).

A question (x, q, ?) is a vector ``z_q`` that starts at x and is handed on along every edge, layer by layer:

    s_v = g * ( start_v + sum over edges (v, r, u) of w_r * h_u )   where g = 1 + tanh(G z_q)
    h_v := h_v + relu( norm( M [ h_v ; sign(s_v) log(1 + |s_v|) ; s_v / (1 + edges of v) ] ) )

with products number by number, and the score of v is a small network of ``h_v`` and ``z_q``. So a candidate is what
the paths that lead to it say, and no entity has a number of its own: a newcomer is asked about as everybody is.

In a network that is *silent*, ``h_v`` stays zero until an edge leads to v from somebody who has heard of the question
(`newcomer.models.propagation.frontier`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from newcomer.models.propagation import gpu as fused
from newcomer.models.propagation import gpu_layer as fused_layer
from newcomer.models.propagation.frontier import Reached, no_edges, padded, reached
from newcomer.models.propagation.frontier import told_on as told_within
from newcomer.models.propagation.nearby import Known, told_on
from newcomer.models.sparse import Rows, row_sums, single_rows, weighted_sum
from newcomer.models.vn.layers import glorot

DIM, LAYERS = 32, 4
HALF = torch.bfloat16  # what a GPU may keep vectors in while learning
Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PropagationEdges:
    """Edges that vectors are handed on along: row v has an entry for each of its edges (v, relation, u), u's place.

    ``weights`` are 1, or 0 of an edge that must not be seen now. There may be fewer rows than there are entities: those
    who follow have no edges here.
    """

    rows: Rows
    relations: Tensor  # (edges,) oriented ids
    weights: Tensor  # (edges,)
    num_relations: int

    @cached_property
    def of_relation(self) -> Rows:
        """For each oriented relation its edges."""
        turned, order = single_rows(self.relations, 2 * self.num_relations).transposed
        return Rows(turned.offsets, order, len(order))

    @cached_property
    def by_place(self) -> Rows:
        """The rows with the edges themselves as entries."""
        every = torch.arange(len(self.relations), device=self.relations.device)
        return Rows(self.rows.offsets, every, len(every)).knowing(self.rows.row_ids(), self.rows.sizes)

    @cached_property
    def by_neighbor(self) -> Rows:
        """For each entity the edges that lead to it."""
        turned, order = self.rows.transposed
        return Rows(turned.offsets, order, len(order))

    @property
    def handing(self) -> fused.Handing:
        """The rows, for kernels."""
        return fused.Handing(self.rows, self.by_place.columns, self.relations, self.weights)

    @property
    def turned_handing(self) -> fused.Handing:
        """The same edges from their other ends."""
        return fused.Handing(*self.rows.transposed, self.relations, self.weights)

    @cached_property
    def arrays(self) -> tuple[Ids, Ids, Ids, Numbers]:
        """Offsets, columns, relations and weights, for compiled loops."""
        return _array(self.rows.offsets), _array(self.rows.columns), _array(self.relations), _array(self.weights)

    @cached_property
    def sizes(self) -> Tensor:
        """(rows,): the sum of a row's weights."""
        if len(self.relations) == 0:
            return self.weights.new_zeros(self.rows.num_rows)
        return row_sums(self.rows, self.weights)

    def seen_with(self, weights: Tensor, sizes: Tensor | None = None) -> "PropagationEdges":
        """The same edges with other weights (and their sums by row, if known); what their places give is kept."""
        other = PropagationEdges(self.rows, self.relations, weights, self.num_relations)
        for name in ("of_relation", "by_place", "by_neighbor"):
            other.__dict__[name] = getattr(self, name)
        if sizes is not None:
            other.__dict__["sizes"] = sizes
        return other


def propagation_edges(
    heads: Tensor, relations: Tensor, tails: Tensor, num_relations: int, num_entities: int
) -> PropagationEdges:
    """The edges of facts, each seen from both of its ends."""
    row, column = torch.cat([heads, tails]), torch.cat([tails, heads])
    oriented = torch.cat([relations, (relations + num_relations) % (2 * num_relations)])
    order = torch.argsort(row, stable=True)
    every = torch.arange(num_entities + 1, device=row.device)
    rows = Rows(torch.searchsorted(row[order], every), column[order], num_entities)
    return PropagationEdges(rows, oriented[order], torch.ones(len(order), device=row.device), num_relations)


class Propagation(nn.Module):
    """The network. ``told`` says which oriented relations it has learned of: of others it knows nothing.

    One that is ``silent`` lives on a processor.
    """

    def __init__(self, num_relations: int, generator: torch.Generator, silent: bool = False) -> None:
        super().__init__()
        kinds = 2 * num_relations

        def drawn(*shape: int, around: float, spread: float) -> nn.Parameter:
            return nn.Parameter(around + spread * torch.randn(*shape, generator=generator))

        self.num_relations = num_relations
        self.queries = drawn(kinds, DIM, around=0.0, spread=1.0)
        self.scales = drawn(LAYERS, kinds, DIM, around=1.0, spread=0.3)
        self.gates = nn.ModuleList(_linear(DIM, DIM, generator) for _ in range(LAYERS))
        self.mixes = nn.ModuleList(_linear(3 * DIM, DIM, generator) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(LAYERS))
        self.first = _linear(2 * DIM, 2 * DIM, generator)
        self.last = nn.Parameter(glorot(1, 2 * DIM, generator))  # what it would add to all alike, nobody would notice
        self.told: Tensor
        self.register_buffer("told", torch.zeros(kinds))
        self.silent: Tensor
        self.register_buffer("silent", torch.tensor(float(silent)))

    @property
    def is_silent(self) -> bool:
        """Whether those whom no path has come to say nothing."""
        return not self.silent.is_cuda and bool(self.silent)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        state_dict.setdefault(f"{prefix}silent", torch.tensor(0.0))  # as all networks were once
        super()._load_from_state_dict(state_dict, prefix, *others)

    def forward(
        self,
        parts: Sequence[PropagationEdges],
        sources: Tensor,
        queries: Tensor,
        num_entities: int,
        kept: torch.dtype = torch.float32,
        unheard: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """(questions, entities): scores of everyone as an answer to (source, oriented relation, ?).

        ``kept`` is what vectors are kept in between layers; with `HALF` there must be kernels for them. ``unheard`` is
        what `unheard_of` says of the parts, if that is known already.
        """
        if self.is_silent:
            reach, scores, apart = self.heard(parts, sources, queries, num_entities)
            places = torch.from_numpy(reach.questions), torch.from_numpy(reach.entities)
            return apart[:, None].repeat(1, num_entities).index_put(places, scores)
        asked = nn.functional.embedding(queries, self.queries)
        sizes = 1 + over_all([one.sizes for one in parts], num_entities)
        if asked.is_cuda:  # which does all at once in less time than it takes to ask for a few of them
            start = asked.new_zeros(num_entities, len(queries), DIM, dtype=kept)
            vectors = start.index_put((sources, torch.arange(len(queries), device=queries.device)), asked.to(kept))
            done = 0
        else:
            vectors, done = self._nearby(parts, sources, asked, sizes, unheard), 2
        for layer in range(done, LAYERS):
            sums = handed_on_by_all(parts, vectors, self.scales[layer], num_entities)
            vectors = self.after(layer, vectors, sums, sources, asked, sizes)
        return self.scored(vectors, asked)

    def scored(self, vectors: Tensor, asked: Tensor) -> Tensor:
        """(questions, entities): the scores of vectors, (entities, questions, d)."""
        # The network of [h_v ; z_q], without a copy of z_q for every v.
        weight, kept = self.first.weight, vectors.dtype
        asked_for = nn.functional.linear(asked, weight[:, DIM:], self.first.bias)
        inner = torch.relu(nn.functional.linear(vectors, weight[:, :DIM].to(kept)) + asked_for.to(kept))
        return nn.functional.linear(inner.to(asked.dtype), self.last)[:, :, 0].T

    def heard(
        self, parts: Sequence[PropagationEdges], sources: Tensor, queries: Tensor, num_entities: int
    ) -> tuple[Reached, Tensor, Tensor]:
        """Of a silent network: whom paths come to, their scores (pairs,), and (questions,) that of everyone else."""
        asked = nn.functional.embedding(queries, self.queries)
        reach = reached(parts, _array(sources), LAYERS, num_entities)
        questions, vectors = torch.from_numpy(reach.questions), asked
        sizes = (1 + over_all([one.sizes for one in parts], num_entities))[torch.from_numpy(reach.entities)]
        for layer, count in enumerate(reach.within[1:].tolist()):
            gain = (1 + torch.tanh(self.gates[layer](asked)))[questions[:count]]
            told = told_within(reach, layer, vectors, self.scales[layer]) + padded(asked, count)
            before = padded(vectors, count)
            news = self.norms[layer](_mixed(self.mixes[layer], before, told * gain, sizes[:count]))
            vectors = before + torch.relu(news)
        weight = self.first.weight
        asked_for = nn.functional.linear(asked, weight[:, DIM:], self.first.bias)
        inner = torch.relu(nn.functional.linear(vectors, weight[:, :DIM]) + asked_for[questions])
        scores, apart = (nn.functional.linear(one, self.last)[:, 0] for one in (inner, torch.relu(asked_for)))
        return reach, scores, apart

    def unheard_of(self, edges: PropagationEdges) -> Tensor:
        """(rows, d): what each would hear in the second layer if nobody had heard of anything."""
        by_relation = Rows(edges.rows.offsets, edges.relations, 2 * self.num_relations)
        return weighted_sum(by_relation, edges.weights, self.scales[1]) * self._nothing()

    def _nothing(self) -> Tensor:
        """(d,): whoever has heard of nothing, after the first layer."""
        mix, norm = self.mixes[0], self.norms[0]
        nothing: Tensor = torch.relu(norm(mix.bias))
        return nothing

    def _nearby(
        self,
        parts: Sequence[PropagationEdges],
        sources: Tensor,
        asked: Tensor,
        sizes: Tensor,
        unheard: Sequence[Tensor] | None,
    ) -> Tensor:
        """(entities, questions, d): the vectors after two layers; only near the sources is there anything to do."""

        def told(layer: int, known: Known) -> list[Known]:
            scales = self.scales[layer]
            return [told_on(one.rows, one.relations, one.weights, scales, known) for one in parts]

        start = Known(sources, torch.arange(len(asked), device=asked.device), asked)
        heard = start.beside(*told(0, start)).summed_up(len(asked))
        begun = (heard.entities == sources[heard.questions])[:, None] * asked[heard.questions]
        gain = (1 + torch.tanh(self.gates[0](asked)))[heard.questions]
        mixed = _mixed(self.mixes[0], begun, heard.numbers * gain, sizes[heard.entities])
        nothing = self._nothing()
        knowing = heard._replace(numbers=begun + torch.relu(self.norms[0](mixed)) - nothing)
        first, *others = told(1, knowing)
        further = first.beside(*others).summed_up(len(asked))
        bases = [self.unheard_of(one) for one in parts] if unheard is None else unheard
        shape = len(sizes), len(asked), DIM
        sums = further.added_to(over_all(list(bases), len(sizes))[:, None].expand(shape))
        return self.after(1, knowing.added_to(nothing.expand(shape)), sums, sources, asked, sizes)

    def after(self, layer: int, vectors: Tensor, sums: Tensor, sources: Tensor, asked: Tensor, sizes: Tensor) -> Tensor:
        """(entities, questions, d): the vectors after a layer."""
        mix, norm = self.mixes[layer], self.norms[layer]
        gain = 1 + torch.tanh(self.gates[layer](asked))
        if sums.is_cuda and fused_layer.pays(len(asked)):
            of_layer = *mix.parameters(), *norm.parameters()
            return fused_layer.updated(vectors, sums, sources, asked, gain, sizes, *of_layer)
        start = sources, torch.arange(len(asked), device=asked.device)
        if torch.is_grad_enabled():
            told = sums.index_put(start, sums[start] + asked) * gain
            return vectors + torch.relu(norm(_mixed(mix, vectors, told, sizes[:, None])))
        # Nobody needs the sums any more: what is written over them takes less time than tables that are made anew.
        told = sums.index_put_(start, sums[start] + asked).mul_(gain)
        return torch.relu_(norm(_mixed(mix, vectors, told, sizes[:, None]))).add_(vectors)


def _mixed(mix: nn.Module, vectors: Tensor, told: Tensor, sizes: Tensor) -> Tensor:
    """(..., d): each vector with what it was told, and by how many, (...,); nothing is copied side by side for it."""
    small = torch.copysign(torch.log1p(told.abs()), told)
    weight, bias = mix.parameters()
    mixed = bias.expand(vectors.numel() // DIM, DIM)
    for part, own in zip((vectors, small, told / sizes[..., None]), weight.chunk(3, dim=1), strict=True):
        mixed = torch.addmm(mixed, part.reshape(-1, DIM), own.T)
    return mixed.view(vectors.shape)


def _linear(given: int, wanted: int, generator: torch.Generator) -> nn.Linear:
    # Else it would draw from everyone's random numbers.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, given, wanted)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        layer.weight.copy_(glorot(wanted, given, generator))
        layer.bias.zero_()
    return layer


def over_all(sums: list[Tensor], num_entities: int) -> Tensor:
    """(entities, ...): the sum of parts, each of the first entities."""
    first, *others = (
        nn.functional.pad(one, (0, 0) * (one.dim() - 1) + (0, num_entities - len(one)))
        if len(one) < num_entities
        else one
        for one in sums
    )
    return sum(others, start=first)


def handed_on(edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
    """(rows, questions, d): for each row the sum of its neighbours' vectors, each scaled as its relation says."""
    if len(edges.relations) == 0:
        return vectors.new_zeros(edges.rows.num_rows, *vectors.shape[1:])
    result: Tensor = _HandedOn.apply(edges, vectors, scales)  # type: ignore[no-untyped-call]
    return result


def handed_on_by_all(parts: Sequence[PropagationEdges], vectors: Tensor, scales: Tensor, num_entities: int) -> Tensor:
    """(entities, questions, d): what `handed_on` gives for several parts, all together."""
    if len(parts) == 2 and not vectors.is_cuda and not torch.is_grad_enabled():
        # Without a table for each part: the second is a newcomer's few edges.
        first, second = (one.arrays for one in parts)
        return torch.from_numpy(_summed(*first, *second, num_entities, _array(vectors), _array(scales)))
    return over_all([handed_on(one, vectors, scales) for one in parts], num_entities)


class _HandedOn(torch.autograd.Function):
    """By compiled loops or kernels, without a vector for each edge; on a GPU that lacks them, with one."""

    @staticmethod
    def forward(ctx: Any, edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(vectors, scales)
        if not vectors.is_cuda:
            rows = edges.rows.num_rows
            return torch.from_numpy(_summed(*edges.arrays, *no_edges(), rows, _array(vectors), _array(scales)))
        if not fused.available():
            return summed_by_edges(edges, vectors, scales)
        return fused.summed(edges.handing, vectors, scales)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (vectors, scales), edges = ctx.saved_tensors, ctx.edges
        if gradients[0].is_cuda and not fused.available():
            return None, *slopes_by_edges(edges, vectors, scales, gradients[0])
        if gradients[0].is_cuda:
            of_vectors = fused.summed(edges.turned_handing, gradients[0], scales)
            graph = edges.of_relation, edges.rows, edges.weights
            return None, of_vectors, fused.scale_slopes(*graph, vectors, gradients[0])
        tables = _array(vectors), _array(scales), _array(gradients[0])
        found = _slopes(*edges.arrays, *tables)  # type: ignore[call-arg]
        return None, *map(torch.from_numpy, found)


def summed_by_edges(edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
    """What `handed_on` gives."""
    said = vectors[edges.rows.columns] * scales[edges.relations][:, None]
    return _sums(edges.by_place, edges.weights, said)


def slopes_by_edges(
    edges: PropagationEdges, vectors: Tensor, scales: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the vectors and of the scales."""
    wanted = gradient[edges.rows.row_ids()] * edges.weights[:, None, None]
    by_edge = (wanted * vectors[edges.rows.columns]).sum(dim=1)
    for_scales = _by_relation(edges, by_edge)
    wanted = wanted * scales[edges.relations][:, None]
    return _sums(edges.by_neighbor, torch.ones_like(edges.weights), wanted), for_scales


def _by_relation(edges: PropagationEdges, by_edge: Tensor) -> Tensor:
    """(relations, d): the sums of what each edge has, (edges, d)."""
    return weighted_sum(edges.of_relation, torch.ones_like(edges.weights), by_edge)


def _sums(rows: Rows, weights: Tensor, said: Tensor) -> Tensor:
    """(rows, questions, d): the weighted sums of what is said along edges, (edges, questions, d)."""
    return weighted_sum(rows, weights[rows.columns], said.flatten(1)).view(-1, *said.shape[1:])


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


@numba.njit(nogil=True, cache=True)
def _summed(
    offsets: Ids,
    columns: Ids,
    relations: Ids,
    weights: Numbers,
    more_offsets: Ids,
    more_columns: Ids,
    more_relations: Ids,
    more_weights: Numbers,
    rows: int,
    vectors: Numbers,
    scales: Numbers,
) -> Numbers:
    """The sums over the edges of two parts."""
    questions, size = vectors.shape[1], vectors.shape[2]
    sums = np.zeros((rows, questions, size), dtype=np.float32)  # made here: elsewhere it might be one of the others
    for part in range(2):
        starts, ends_of, kinds, kept = offsets, columns, relations, weights
        if part == 1:
            starts, ends_of, kinds, kept = more_offsets, more_columns, more_relations, more_weights
        for row in range(len(starts) - 1):
            for entry in range(starts[row], starts[row + 1]):
                if kept[entry] == 0.0:
                    continue
                column, relation, weight = ends_of[entry], kinds[entry], kept[entry]
                for question in range(questions):
                    for one in range(size):
                        sums[row, question, one] += weight * scales[relation, one] * vectors[column, question, one]
    return sums


@numba.njit(nogil=True, cache=True)
def _slopes(
    offsets: Ids,
    columns: Ids,
    relations: Ids,
    weights: Numbers,
    vectors: Numbers,
    scales: Numbers,
    gradient: Numbers,
) -> tuple[Numbers, Numbers]:
    questions, size = vectors.shape[1], vectors.shape[2]
    of_vectors, of_scales = np.zeros_like(vectors), np.zeros_like(scales)
    for row in range(len(offsets) - 1):
        for entry in range(offsets[row], offsets[row + 1]):
            if weights[entry] == 0.0:
                continue
            column, relation, weight = columns[entry], relations[entry], weights[entry]
            for question in range(questions):
                for one in range(size):
                    slope = weight * gradient[row, question, one]
                    of_vectors[column, question, one] += slope * scales[relation, one]
                    of_scales[relation, one] += slope * vectors[column, question, one]
    return of_vectors, of_scales


AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # numbers that are handed on together

KEPT = 12  # vectors of an entity that learning keeps, in tables of the size of one along an edge

PATHS = "propagation."  # the names of the weights begin so


def at_once(edges: PropagationEdges, num_entities: int) -> int:
    """How many questions are asked together, so that their tables are no burden."""
    device = edges.weights.device.type
    kernels = device == "cuda" and fused.available()  # they need no vector for an edge
    along = 0 if kernels else len(edges.relations)
    return max(1, AT_ONCE[device] // (DIM * max(along, KEPT * num_entities, 1)))
