"""The paper's encoder: structure-aware layers, then one query-aware layer (which an ablation leaves out)."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.embedding.encoder import Edges, Encoder, QueryTable, States, join_edges
from newcomer.models.sparse import Rows, row_softmax, single_rows, weighted_sum
from newcomer.models.vn.layers import SLOPE, QueryLayer, StructureLayer, row_products


class VNEncoder(Encoder):
    """Newcomers start from zero and are encoded by their neighbours, layer by layer."""

    OPTIONS = ("layers", "query_aware", "residual", "relation_shifts")
    batch_invariant = True

    def __init__(
        self,
        num_seen: int,
        num_relations: int,
        dim: int,
        dropout: float,
        generator: torch.Generator,
        layers: int = 3,
        query_aware: bool = True,
        residual: bool = False,
        relation_shifts: bool = False,
    ) -> None:
        super().__init__(num_seen, num_relations, dim, dropout, generator)
        self.structure = nn.ModuleList(
            StructureLayer(num_relations, dim, generator, relation_shifts) for _ in range(layers)
        )
        self.query = QueryLayer(num_relations, dim, generator, residual) if query_aware else None
        self.query_aware = query_aware
        self.hops = layers + query_aware

    def states(self, edges: Edges, nodes: Tensor | None = None) -> States:
        return States(self._layers(edges, self.inputs(nodes)), edges)

    def extend(self, seen: States, edges: Edges, threads: int | None = 1) -> States:
        one_by_one = not self.training and not one_pass_pays(edges)
        arrived = self.vectors.new_zeros(edges.rows.num_rows, self.vectors.shape[1])
        together = [torch.cat([seen.layers[0], arrived])]
        for layer, known in zip(self.structure, seen.layers[1:], strict=True):
            arrived = self._dropped(layer(edges, together[-1], arrived, one_by_one))
            together.append(torch.cat([known, arrived]))
        return States(tuple(together), join_edges(seen.edges, edges), newcomers=edges.rows.num_rows)

    def states_with_newcomers(self, edges: Edges, arriving: Edges, nodes: Tensor | None = None) -> States:
        if not one_pass_pays(edges):
            return super().states_with_newcomers(edges, arriving, nodes)
        joined, inputs = join_edges(edges, arriving), self.inputs(nodes)
        joined = replace(joined, by_relation=single_rows(joined.relations, 2 * self.num_relations))
        inputs = torch.cat([inputs, inputs.new_zeros(arriving.rows.num_rows, inputs.shape[1])])
        return States(self._layers(joined, inputs), joined, newcomers=arriving.rows.num_rows)

    def _layers(self, edges: Edges, inputs: Tensor) -> tuple[Tensor, ...]:
        layers = [inputs]
        for layer in self.structure:
            layers.append(self._dropped(layer(edges, layers[-1], layers[-1])))
        return tuple(layers)

    def _dropped(self, vectors: Tensor) -> Tensor:
        return functional.dropout(vectors, self.dropout, self.training)

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        if self.query is None:
            return self.plain(states, entities)
        vectors: Tensor = self.query(states.edges, states.layers[-1], entities, queries)
        return vectors

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """The last layer before the query-aware one."""
        return functional.embedding(entities, states.layers[-1])

    def query_table(self, states: States, first: int = 0) -> QueryTable | None:
        return None if self.query is None else VNQueryTable(self.query, states, first).vectors_for

    def attention(self, states: States, entity: Tensor, query: Tensor) -> Tensor | None:
        if self.query is None:
            return None
        return VNQueryTable(self.query, states, int(entity), int(entity) + 1).shares(int(query))


def one_pass_pays(edges: Edges) -> bool:
    """Whether fewer, larger operations are cheaper: on a GPU, where starting one costs more than sorting all edges."""
    return edges.weights.is_cuda


class VNQueryTable:
    """Many entities embedded for one query after another: what does not depend on the query is computed once."""

    def __init__(self, layer: QueryLayer, states: States, first: int = 0, last: int | None = None) -> None:
        """The entities from place ``first`` on, up to ``last``."""
        edges, vectors = states.edges, states.layers[-1]
        offsets = edges.rows.offsets[first : None if last is None else last + 1]
        own = slice(int(offsets[0]), int(offsets[-1]))
        self.rows = Rows(offsets - own.start, edges.rows.columns[own], edges.rows.width)
        self.layer, self.vectors, self.own = layer, vectors, vectors[first:last]
        self.weights = edges.weights[own]
        self.of_entity = row_products(self.own, layer.entity_map @ layer.attention[0])
        self.of_query = row_products(layer.queries, layer.query_map @ layer.attention[1])
        self.of_neighbor = row_products(vectors, layer.entity_map @ layer.attention[2])[self.rows.columns]

    def shares(self, query: int) -> Tensor:
        """(edges,): the attention of everyone with a query to each of their edges."""
        logits = (self.of_entity + self.of_query[query])[self.rows.row_ids] + self.of_neighbor
        return row_softmax(self.rows, functional.leaky_relu(logits, SLOPE), self.weights)

    def vectors_for(self, query: int) -> Tensor:
        """(n, d): everyone for a query; the same bits as the layer itself gives."""
        attended = weighted_sum(self.rows, self.shares(query), self.vectors)
        return attended + self.own if self.layer.residual else attended
