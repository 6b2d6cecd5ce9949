"""The contract of encoders: vectors for entities out of their neighbourhoods. Newcomers have no parameters.

``states`` encodes the seen entities (the rows of ``edges``) over each other. ``extend`` adds newcomers, whose rows may
point to anyone; training adds seen entities once more as if they had just arrived. ``embed`` gives the vectors of
entities for queries. What is computed for seen entities never depends on newcomers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.embedding.decoders import Decoder
from newcomer.models.sparse import Rows, row_sums, single_rows

# Many entities, (n, d), for an oriented relation: as `Encoder.embed` gives them to the bit, but what does not depend on
# the query is computed once.
QueryTable = Callable[[int], Tensor]


@dataclass(frozen=True, eq=False)
class Edges:
    """Neighbourhoods: for each entity a row of its edges, inverses included.

    ``weights`` are 1 for a fact, the soft label for a virtual edge, 0 for a hidden one.
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
        return self.weights / self.degrees.clamp_min(1e-6)[self.rows.row_ids]

    def pick(self, entities: Tensor, width: int, kinds: int) -> "Edges":
        """The edges of some entities, a row each, in a space of that width; there are ``kinds`` oriented relations."""
        rows, entries = self.rows.pick(entities)
        relations = self.relations[entries]
        wider = Rows(rows.offsets, rows.columns, width).knowing(rows.row_ids, rows.sizes)
        picked = Edges(wider, relations, self.weights[entries], single_rows(relations, kinds))
        if "shares" in self.__dict__:  # an entity's shares are the same in either
            picked.__dict__["shares"] = self.shares[entries]
        return picked


class States(NamedTuple):
    """An encoded set of entities: the vectors of every layer, and the edges they came from."""

    layers: tuple[Tensor, ...]  # each (entities, d); the first is the input
    edges: Edges
    nodes: Tensor | None = None  # ids of the seen among them, where they are not 0, 1, 2, ...
    newcomers: int = 0  # how many of them, the last ones, have no input vector

    @property
    def num_seen(self) -> int:
        return len(self.layers[0]) - self.newcomers

    def joined(self, vectors: Tensor, edges: Edges) -> "States":
        """With newcomers beside them, by vectors (newcomers, d) of the only layer, and their edges."""
        layers = (torch.cat([self.layers[0], vectors]),)
        return States(layers, join_edges(self.edges, edges), self.nodes, len(vectors))


class Encoder(nn.Module, ABC):
    """Seen entities have a trained input vector each; everything else is shared by all."""

    OPTIONS: ClassVar[tuple[str, ...]] = ()  # settings of the model that its constructor takes
    query_aware = False  # whether an entity's vector depends on the query
    hops = 1  # how many edges away a vector looks
    uses_virtual_edges = True  # whether virtual neighbours have a part in a newcomer's vector
    # Whether, on a CPU, an entity's vector has the same bits whoever else is embedded or arrives with it. Where vectors
    # go through matrix products it has not: their rounding depends on the number of rows.
    batch_invariant = False
    trains_on_one_thread = False  # several wait for each other, or on some CPUs round gradients differently

    def __init__(self, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self.num_relations = num_relations
        # Vectors of length about one, whatever the number of entities: a product of three must not vanish.
        self.vectors = nn.Parameter((torch.rand(num_seen, dim, generator=generator) * 2 - 1) * (3.0 / dim) ** 0.5)
        self.dropout = dropout
        self.sparse_gradient = False  # whether the trained vectors' gradient is kept of those looked up alone

    def attach(self, decoder: Decoder) -> None:
        """Take note of the decoder that scores the vectors; most encoders do not need it."""

    def prepare(self, edges: Edges, seed: int) -> None:
        """Count and draw, before training, what follows from the observed graph and is not learned; mostly nothing."""

    def look_up(self, entities: Tensor, table: Tensor) -> Tensor:
        """(n, d): rows of a table of vectors."""
        return functional.embedding(entities, table, sparse=self.sparse_gradient and table is self.vectors)

    def inputs(self, nodes: Tensor | None = None) -> Tensor:
        """Input vectors of the seen entities, or of some of them."""
        vectors = self.vectors if nodes is None else functional.embedding(nodes, self.vectors)
        return functional.dropout(vectors, self.dropout, self.training)

    def states(self, edges: Edges, nodes: Tensor | None = None) -> States:
        """Encode the seen entities, or some of them: row ``k`` of ``edges`` is then entity ``nodes[k]``.

        By default there is no layer but the input.
        """
        return States((self.inputs(nodes),), edges, nodes)

    @abstractmethod
    def extend(self, seen: States, edges: Edges, threads: int | None = 1) -> States:
        """Encode newcomers beside them: row ``k`` of ``edges`` is entity ``num_seen + k``.

        Where each is worked out by itself, so many ``threads`` share them (None: one a core).
        """

    def states_with_newcomers(self, edges: Edges, arriving: Edges, nodes: Tensor | None = None) -> States:
        """Both at once: the seen entities, and newcomers beside them."""
        return self.extend(self.states(edges, nodes), arriving)

    @abstractmethod
    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` for queries of the oriented relations ``queries``."""

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` without a query."""
        return self.embed(states, entities, torch.zeros_like(entities))

    def query_table(self, states: States, first: int = 0) -> QueryTable | None:
        """The entities from place ``first`` on, to be embedded for many queries; None where that saves nothing."""
        return None

    def attention(self, states: States, entity: Tensor, query: Tensor) -> Tensor | None:
        """(edges,): the share of each edge in the vector of an entity (1,) for a query (1,); None if there is none."""
        return None


def join_edges(first: Edges, second: Edges) -> Edges:
    """The rows of both, one after the other."""
    rows = Rows(
        torch.cat([first.rows.offsets, second.rows.offsets[1:] + first.rows.offsets[-1]]),
        torch.cat([first.rows.columns, second.rows.columns]),
        second.rows.width,
    )
    relations = torch.cat([first.relations, second.relations])
    return Edges(rows, relations, torch.cat([first.weights, second.weights]))
