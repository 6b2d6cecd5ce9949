"""The two layers of the VN network's encoder.

Structure-aware (after the paper's WGCN): ``h'_i = tanh( W ( sum over edges alpha_r w_ij h_j / deg_i + h_i ) )``, where
``deg_i`` is the sum of the weights ``w_ij``, or 1 without normalisation.
Query-aware: ``h_i|q = sum over edges of p_ij h_j``, where ``p_ij`` is the share of ``w_ij exp(beta_ij)`` in its sum
over the edges of i, and ``beta_ij = LeakyReLU( u . [We h_i; Wq z_q; We h_j] )``.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.nn.sparse import Rows, by_column, by_row, row_softmax, row_sums, single_rows, weighted_sum

SLOPE = 0.2  # of the LeakyReLU, as attention networks have it


class Edges(NamedTuple):
    """The neighbourhoods an encoder works on: for each entity its edges, inverses included.

    ``weights`` are 1 for a fact, the soft label for a virtual edge, 0 for an edge that must not be seen now.
    """

    rows: Rows
    relations: Tensor  # (edges,) oriented ids
    weights: Tensor  # (edges,)
    by_relation: Rows | None = None  # the relations as rows of one entry: found once for edges that are used often


class StructureLayer(nn.Module):
    """One structure-aware layer; a relation (and its inverse) weighs all of its edges alike."""

    def __init__(self, num_relations: int, dim: int, normalise: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(2 * num_relations))
        # Near the identity: what neighbours say is handed on as it is until training knows better.
        self.weight = nn.Parameter(torch.eye(dim) + 0.1 * glorot(dim, dim, generator))
        self.normalise = normalise

    def forward(self, edges: Edges, vectors: Tensor, own: Tensor) -> Tensor:
        """New vectors for the rows of ``edges``: ``vectors`` are those of all entities, ``own`` those of the rows."""
        lookup = edges.by_relation or single_rows(edges.relations, len(self.alpha))
        values = by_column(lookup, self.alpha) * edges.weights
        if self.normalise:
            degree = row_sums(edges.rows, edges.weights).clamp_min(1e-6)
            values = values / degree[edges.rows.row_ids()]
        gathered = weighted_sum(edges.rows, values, vectors) + own
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

    def forward(self, edges: Edges, vectors: Tensor, own: Tensor, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): entity ``entities[k]`` (a row of ``edges`` and of ``own``) as relation ``queries[k]`` asks for it."""
        # Busy entities are asked the same thing often, and cost most: each pair is looked at once.
        keys, places = torch.unique(entities * len(self.queries) + queries, return_inverse=True)
        found = self._distinct(edges, vectors, own, keys // len(self.queries), keys % len(self.queries))
        return functional.embedding(places, found)

    def _distinct(self, edges: Edges, vectors: Tensor, own: Tensor, entities: Tensor, queries: Tensor) -> Tensor:
        pairs, entries = edges.rows.pick(entities)
        of_entity = row_products(own, self.entity_map @ self.attention[0])
        of_query = row_products(self.queries, self.query_map @ self.attention[1])
        of_neighbor = row_products(vectors, self.entity_map @ self.attention[2])
        asked = of_entity[entities] + of_query[queries]
        logits = by_row(pairs, asked) + by_column(pairs, of_neighbor)
        shares = row_softmax(pairs, functional.leaky_relu(logits, SLOPE), edges.weights[entries])
        attended = weighted_sum(pairs, shares, vectors)
        return attended + functional.embedding(entities, own) if self.residual else attended


def row_products(vectors: Tensor, direction: Tensor) -> Tensor:
    """(n,): each vector times ``direction``.

    A matrix product rounds a row differently with the number of rows: a seen entity's attention would change in its
    last bits whenever someone arrives. Sums of single rows do not.
    """
    return (vectors * direction).sum(dim=1)


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """A matrix drawn uniformly with Glorot's bound."""
    bound = math.sqrt(6.0 / (rows + columns))
    return (torch.rand(rows, columns, generator=generator) * 2 - 1) * bound
