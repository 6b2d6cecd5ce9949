"""The two layers of the VN network's encoder.

Structure-aware (after the paper's WGCN): ``h'_i = tanh( W ( sum over edges alpha_r w_ij h_j / deg_i + h_i ) )``, where
``deg_i`` is the sum of the weights ``w_ij``, or 1 without normalisation. With shifts, which the paper does not have,
a neighbour says ``alpha_r h_j + b_r``: else an entity cannot tell by which relations it is tied.
Query-aware: ``h_i|q = sum over edges of p_ij h_j``, where ``p_ij`` is the share of ``w_ij exp(beta_ij)`` in its sum
over the edges of i, and ``beta_ij = LeakyReLU( u . [We h_i; Wq z_q; We h_j] )``.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.sparse import (
    Rows,
    by_column,
    by_row,
    looked_up_sum,
    row_softmax,
    row_sums,
    single_rows,
    weighted_sum,
)

SLOPE = 0.2  # of the LeakyReLU, as attention networks have it


@dataclass(frozen=True, eq=False)
class Edges:
    """The neighbourhoods an encoder works on: for each entity its edges, inverses included.

    ``weights`` are 1 for a fact, the soft label for a virtual edge, 0 for an edge that must not be seen now.
    """

    rows: Rows
    relations: Tensor  # (edges,) oriented ids
    weights: Tensor  # (edges,)
    by_relation: Rows | None = None  # the relations as rows of one entry: found once for edges that are used often

    @cached_property
    def degrees(self) -> Tensor:
        """(rows,): the sum of an entity's weights."""
        return row_sums(self.rows, self.weights)

    @cached_property
    def shares(self) -> Tensor:
        """(edges,): the weight of an edge in the sum of its entity's."""
        return self.weights / self.degrees.clamp_min(1e-6)[self.rows.row_ids()]

    def pick(self, entities: Tensor, width: int, kinds: int) -> "Edges":
        """The edges of some entities, a row each, in a space of that width; there are ``kinds`` oriented relations."""
        rows, entries = self.rows.pick(entities)
        relations = self.relations[entries]
        by_relation = single_rows(relations, kinds)
        picked = Edges(rows.widened(width), relations, self.weights[entries], by_relation)
        if "shares" in self.__dict__:  # an entity's shares are the same in either
            picked.__dict__["shares"] = self.shares[entries]
        return picked


class StructureLayer(nn.Module):
    """One structure-aware layer; a relation (and its inverse) weighs all of its edges alike."""

    def __init__(
        self, num_relations: int, dim: int, normalise: bool, generator: torch.Generator, shifted: bool = False
    ) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(2 * num_relations))
        # Near the identity: what neighbours say is handed on as it is until training knows better.
        self.weight = nn.Parameter(torch.eye(dim) + 0.1 * glorot(dim, dim, generator))
        self.normalise = normalise
        self.shifts = nn.Parameter(0.1 * glorot(2 * num_relations, dim, generator)) if shifted else None

    def forward(self, edges: Edges, vectors: Tensor, own: Tensor) -> Tensor:
        """New vectors for the rows of ``edges``: ``vectors`` are those of all entities, ``own`` those of the rows."""
        lookup = edges.by_relation or single_rows(edges.relations, len(self.alpha))
        weights = edges.shares if self.normalise else edges.weights
        gathered = looked_up_sum(edges.rows, lookup, self.alpha, weights, vectors) + own
        if self.shifts is not None:
            told = Rows(edges.rows.offsets, edges.relations, len(self.shifts))
            gathered = gathered + weighted_sum(
                told.knowing(edges.rows.row_ids(), edges.rows.sizes), weights, self.shifts
            )
        result: Tensor = torch.tanh(gathered @ self.weight)
        return result


class QueryLayer(nn.Module):
    """The query-aware layer. Attention is a sum of three scalars: a query costs a number an edge, not a vector.

    With ``residual`` the entity's own vector is added, as the structure-aware layers do. Without it a candidate is only
    what its neighbours are, and cannot be told from another in the same company.
    """

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator, residual: bool = False) -> None:
        super().__init__()
        self.entity_map = nn.Parameter(glorot(dim, dim, generator))
        self.query_map = nn.Parameter(glorot(dim, dim, generator))
        self.attention = nn.Parameter(glorot(3, dim, generator))
        self.queries = nn.Parameter(glorot(2 * num_relations, dim, generator))
        self.residual = residual

    def forward(self, edges: Edges, vectors: Tensor, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): ``entities[k]`` (a row of ``edges`` and of ``vectors``) as relation ``queries[k]`` asks for it."""
        # Busy entities are asked the same thing often, and cost most: each pair is looked at once.
        keys, places = torch.unique(torch.add(queries, entities, alpha=len(self.queries)), return_inverse=True)
        return functional.embedding(places, self._distinct(edges, vectors, self._questions(keys, len(vectors))))

    def _questions(self, keys: Tensor, num_entities: int) -> Rows:
        """Ascending pairs of an entity and a query, as rows of queries."""
        entities = keys // len(self.queries)
        offsets = torch.searchsorted(entities, torch.arange(num_entities + 1, device=keys.device))
        return Rows(offsets, keys % len(self.queries), len(self.queries)).knowing(entities)

    def _distinct(self, edges: Edges, vectors: Tensor, asked: Rows) -> Tensor:
        """(pairs, d): the vectors of entities (the rows of ``asked``) as their queries ask for them."""
        pairs, entries = edges.rows.pick(asked.row_ids())
        entity, query, neighbor = self.attention.unbind()
        of_entity, of_neighbor = all_row_products(vectors, self.entity_map @ entity, self.entity_map @ neighbor)
        of_query = row_products(self.queries, self.query_map @ query)
        logits = by_row(pairs, by_row(asked, of_entity) + of_query[asked.columns]) + by_column(pairs, of_neighbor)
        shares = row_softmax(pairs, functional.leaky_relu(logits, SLOPE), edges.weights[entries])
        attended = weighted_sum(pairs, shares, vectors)
        return attended + by_row(asked, vectors) if self.residual else attended


def row_products(vectors: Tensor, direction: Tensor) -> Tensor:
    """(n,): each vector times ``direction``.

    A matrix product rounds a row differently with the number of rows: a seen entity's attention would change in its
    last bits whenever someone arrives. Sums of single rows do not.
    """
    return all_row_products(vectors, direction)[0]


def all_row_products(vectors: Tensor, *directions: Tensor) -> tuple[Tensor, ...]:
    """The same for several directions, whose gradients are found together."""
    products: tuple[Tensor, ...] = _RowProducts.apply(vectors, *directions)  # type: ignore[no-untyped-call]
    return products


class _RowProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, *directions: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(vectors, *directions)
        return tuple((vectors * direction).sum(dim=1) for direction in directions)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        vectors, *directions = ctx.saved_tensors
        gradient = torch.stack(gradients)
        return gradient.T @ torch.stack(directions), *(gradient @ vectors).unbind()


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """A matrix drawn uniformly with Glorot's bound."""
    bound = math.sqrt(6.0 / (rows + columns))
    return (torch.rand(rows, columns, generator=generator) * 2 - 1) * bound
