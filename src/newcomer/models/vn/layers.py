"""The two layers of the VN network's encoder.

Structure-aware (after the paper's WGCN): ``h'_i = tanh( W ( sum over edges alpha_r w_ij h_j / deg_i + h_i ) )``, where
``deg_i`` is the sum of the weights ``w_ij``. With shifts, which the paper does not have, the message of a neighbour is
``alpha_r h_j + b_r``: else a vector does not show by which relations its entity is connected.
Query-aware: ``h_i|q = sum over edges of p_ij h_j``, where ``p_ij`` is the share of ``w_ij exp(beta_ij)`` in its sum
over the edges of i, and ``beta_ij = LeakyReLU( u . [We h_i; Wq z_q; We h_j] )``.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.embedding.encoder import Edges
from newcomer.models.sparse import Rows, by_column, by_row, row_softmax, single_rows, weighted_sum

SLOPE = 0.2  # of the LeakyReLU, as attention networks have it


class StructureLayer(nn.Module):
    """One structure-aware layer; a relation (and its inverse) weighs all of its edges alike."""

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator, shifted: bool = False) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(2 * num_relations))
        # Near the identity: messages are passed on as they are until training knows better.
        self.weight = nn.Parameter(torch.eye(dim) + 0.1 * glorot(dim, dim, generator))
        self.shifts = nn.Parameter(0.1 * glorot(2 * num_relations, dim, generator)) if shifted else None

    def forward(self, edges: Edges, vectors: Tensor, own: Tensor, one_by_one: bool = False) -> Tensor:
        """New vectors for the rows of ``edges``: ``vectors`` are those of all entities, ``own`` those of the rows.

        With ``one_by_one`` no bit of a row depends on how many others there are.
        """
        lookup = edges.by_relation or single_rows(edges.relations, len(self.alpha))
        gathered = weighted_sum(edges.rows, by_column(lookup, self.alpha) * edges.shares, vectors) + own
        if self.shifts is not None:
            relations = Rows(edges.rows.offsets, edges.relations, len(self.shifts))
            relations = relations.knowing(edges.rows.row_ids, edges.rows.sizes)
            gathered = gathered + weighted_sum(relations, edges.shares, self.shifts)
        result: Tensor = torch.tanh(products(gathered, self.weight) if one_by_one else gathered @ self.weight)
        return result


class QueryLayer(nn.Module):
    """The query-aware layer. Attention is a sum of three scalars: a query costs a number an edge, not a vector.

    With ``residual`` the entity's own vector is added, as the structure-aware layers do. Without it two candidates with
    the same neighbours have the same vector.
    """

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator, residual: bool = False) -> None:
        super().__init__()
        self.entity_map = nn.Parameter(glorot(dim, dim, generator))
        self.query_map = nn.Parameter(glorot(dim, dim, generator))
        self.attention = nn.Parameter(glorot(3, dim, generator))
        self.queries = nn.Parameter(glorot(2 * num_relations, dim, generator))
        self.residual = residual

    def forward(self, edges: Edges, vectors: Tensor, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): ``entities[k]`` (a row of ``edges`` and of ``vectors``) as seen by the query ``queries[k]``."""
        # Entities of high degree get the same query often, and cost most: each pair is embedded once.
        keys, places = torch.unique(torch.add(queries, entities, alpha=len(self.queries)), return_inverse=True)
        return functional.embedding(places, self._distinct(edges, vectors, self._query_rows(keys, len(vectors))))

    def _query_rows(self, keys: Tensor, num_entities: int) -> Rows:
        """Ascending pairs of an entity and a query, as rows of queries."""
        entities = keys // len(self.queries)
        offsets = torch.searchsorted(entities, torch.arange(num_entities + 1, device=keys.device))
        return Rows(offsets, keys % len(self.queries), len(self.queries)).knowing(entities)

    def _distinct(self, edges: Edges, vectors: Tensor, asked: Rows) -> Tensor:
        """(pairs, d): the vectors of entities (the rows of ``asked``) for their queries."""
        pairs, entries = edges.rows.pick(asked.row_ids)
        entity, query, neighbor = self.attention.unbind()
        of_entity, of_neighbor = all_row_products(vectors, self.entity_map @ entity, self.entity_map @ neighbor)
        of_query = row_products(self.queries, self.query_map @ query)
        logits = by_row(pairs, by_row(asked, of_entity) + of_query[asked.columns]) + by_column(pairs, of_neighbor)
        shares = row_softmax(pairs, functional.leaky_relu(logits, SLOPE), edges.weights[entries])
        attended = weighted_sum(pairs, shares, vectors)
        return attended + by_row(asked, vectors) if self.residual else attended


def products(vectors: Tensor, matrix: Tensor) -> Tensor:
    """(n, k): vectors times a matrix, as a sparse product, which adds up each row by itself: see `row_products`."""
    count, width = vectors.shape
    every = torch.arange(width, device=vectors.device).repeat(count)
    offsets = torch.arange(count + 1, device=vectors.device) * width
    return weighted_sum(Rows(offsets, every, width), vectors.reshape(-1), matrix)


def row_products(vectors: Tensor, direction: Tensor) -> Tensor:
    """(n,): each vector times ``direction``.

    A matrix product rounds a row differently with the number of rows: a seen entity's attention would change in its
    last bits whenever newcomers arrive. Sums of single rows do not.
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
