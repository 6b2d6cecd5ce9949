"""Encoders: vectors for entities out of their neighbourhoods. Newcomers have no parameters.

One contract for all. ``states`` encodes the seen entities (the rows of ``edges``) over each other. ``extend`` adds
newcomers, whose rows may point to anyone; training adds seen entities once more as if they had just arrived. ``embed``
gives the vectors of entities for queries. What is computed for seen entities never depends on newcomers.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.embedding.decoders import Decoder
from newcomer.models.sparse import Rows, row_softmax, row_sums, single_rows, weighted_sum
from newcomer.models.vn.layers import Edges, QueryLayer, StructureLayer, glorot


class States(NamedTuple):
    """What an encoder knows of a set of entities: the vectors of every layer, and the edges they came from."""

    layers: tuple[Tensor, ...]  # each (entities, d); the first is the input
    edges: Edges
    nodes: Tensor | None = None  # who the seen among them are, where they are not 0, 1, 2, ...
    newcomers: int = 0  # how many of them, the last ones, have no input vector

    def names(self, places: Tensor) -> Tensor:
        """What tells seen entities apart, whoever else is embedded: their ids."""
        return places if self.nodes is None else self.nodes[places.clamp_max(len(self.nodes) - 1)]


class Encoder(nn.Module, ABC):
    """Seen entities have a trained input vector each; everything else is shared by all."""

    query_aware = False  # whether an entity's vector depends on what is asked
    hops = 1  # how many edges away a vector looks
    uses_virtual_edges = True  # whether virtual neighbours have a part in a newcomer's vector

    def __init__(self, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self.num_relations = num_relations
        # Vectors of length about one, whatever the number of entities: a product of three must not vanish.
        self.vectors = nn.Parameter((torch.rand(num_seen, dim, generator=generator) * 2 - 1) * (3.0 / dim) ** 0.5)
        self.dropout = dropout
        self.learns_rows = False  # whether the trained vectors' gradient is kept of those looked up alone

    def look_up(self, entities: Tensor, table: Tensor) -> Tensor:
        """(n, d): rows of a table of vectors."""
        return functional.embedding(entities, table, sparse=self.learns_rows and table is self.vectors)

    def inputs(self, nodes: Tensor | None = None) -> Tensor:
        """Input vectors of the seen entities, or of some of them."""
        vectors = self.vectors if nodes is None else functional.embedding(nodes, self.vectors)
        return functional.dropout(vectors, self.dropout, self.training)

    def meet(self, decoder: Decoder) -> None:
        """Get to know the decoder that will score the vectors; most encoders need not."""

    @abstractmethod
    def states(self, edges: Edges, nodes: Tensor | None = None) -> States:
        """Encode the seen entities, or some of them: row ``k`` of ``edges`` is then entity ``nodes[k]``."""

    @abstractmethod
    def extend(self, seen: States, edges: Edges) -> States:
        """Encode newcomers beside them: row ``k`` of ``edges`` is entity ``num_seen + k``."""

    def together(self, edges: Edges, arriving: Edges, nodes: Tensor | None = None) -> States:
        """Both at once: the seen entities, and newcomers beside them."""
        return self.extend(self.states(edges, nodes), arriving)

    @abstractmethod
    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` as the oriented relations ``queries`` ask for them."""

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` when nothing is asked."""
        return self.embed(states, entities, torch.zeros_like(entities))

    def attention(self, states: States, entity: Tensor, query: Tensor) -> Tensor | None:
        """(edges,): how much an entity (1,) asked a query (1,) owes to each of its edges; None where nobody can say."""
        return None


def one_pass_pays(edges: Edges) -> bool:
    """Whether fewer, larger operations are cheaper: on a GPU, where starting one costs more than sorting all edges."""
    return edges.weights.is_cuda


def join_edges(first: Edges, second: Edges) -> Edges:
    """The rows of both, one after the other."""
    rows = Rows(
        torch.cat([first.rows.offsets, second.rows.offsets[1:] + first.rows.offsets[-1]]),
        torch.cat([first.rows.columns, second.rows.columns]),
        second.rows.width,
    )
    relations = torch.cat([first.relations, second.relations])
    return Edges(rows, relations, torch.cat([first.weights, second.weights]))


class VNEncoder(Encoder):
    """The paper's encoder: structure-aware layers, then one query-aware layer (which an ablation leaves out)."""

    def __init__(
        self,
        num_seen: int,
        num_relations: int,
        dim: int,
        dropout: float,
        generator: torch.Generator,
        layers: int = 3,
        query_aware: bool = True,
        normalise: bool = True,
        residual: bool = False,
        relation_shifts: bool = False,
    ) -> None:
        super().__init__(num_seen, num_relations, dim, dropout, generator)
        self.structure = nn.ModuleList(
            StructureLayer(num_relations, dim, normalise, generator, relation_shifts) for _ in range(layers)
        )
        self.query = QueryLayer(num_relations, dim, generator, residual) if query_aware else None
        self.query_aware = query_aware
        self.hops = layers + query_aware

    def states(self, edges: Edges, nodes: Tensor | None = None) -> States:
        layers = [self.inputs(nodes)]
        for layer in self.structure:
            layers.append(functional.dropout(layer(edges, layers[-1], layers[-1]), self.dropout, self.training))
        return States(tuple(layers), edges)

    def extend(self, seen: States, edges: Edges) -> States:
        arrived = [self.vectors.new_zeros(edges.rows.num_rows, self.vectors.shape[1])]
        together = [torch.cat([seen.layers[0], arrived[0]])]
        for layer in self.structure:
            vectors = layer(edges, together[-1], arrived[-1])
            arrived.append(functional.dropout(vectors, self.dropout, self.training))
            together.append(torch.cat([seen.layers[len(together)], arrived[-1]]))
        return States(tuple(together), join_edges(seen.edges, edges), newcomers=edges.rows.num_rows)

    def together(self, edges: Edges, arriving: Edges, nodes: Tensor | None = None) -> States:
        if not one_pass_pays(edges):
            return super().together(edges, arriving, nodes)
        joined, inputs = join_edges(edges, arriving), self.inputs(nodes)
        joined = replace(joined, by_relation=single_rows(joined.relations, 2 * self.num_relations))
        layers = [torch.cat([inputs, inputs.new_zeros(arriving.rows.num_rows, inputs.shape[1])])]
        for layer in self.structure:
            layers.append(functional.dropout(layer(joined, layers[-1], layers[-1]), self.dropout, self.training))
        return States(tuple(layers), joined, newcomers=arriving.rows.num_rows)

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        if self.query is None:
            return self.plain(states, entities)
        vectors: Tensor = self.query(states.edges, states.layers[-1], entities, queries)
        return vectors

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """The last layer before a query is looked at."""
        return functional.embedding(entities, states.layers[-1])


class NeighborEncoder(Encoder):
    """Encoders that pool one layer of neighbours, each seen through its relation.

    Neighbours without a vector of their own (newcomers) say nothing: their edges count as not there. At most
    ``max_neighbors`` of an entity's visible edges are looked at: with more, an evenly spread part.
    """

    def __init__(
        self,
        num_seen: int,
        num_relations: int,
        dim: int,
        dropout: float,
        generator: torch.Generator,
        max_neighbors: int = 64,
    ) -> None:
        super().__init__(num_seen, num_relations, dim, dropout, generator)
        self.max_neighbors = max_neighbors
        self._add_parts(dim, generator)

    @abstractmethod
    def _add_parts(self, dim: int, generator: torch.Generator) -> None:
        """What an encoder learns beyond the vectors of the seen."""

    def states(self, edges: Edges, nodes: Tensor | None = None) -> States:
        return States((self.inputs(nodes),), edges, nodes)

    def extend(self, seen: States, edges: Edges) -> States:
        has_vector = edges.rows.columns < seen.edges.rows.num_rows
        edges = replace(edges, weights=edges.weights * has_vector)
        nothing = self.vectors.new_zeros(edges.rows.num_rows, self.vectors.shape[1])
        layers = (torch.cat([seen.layers[0], nothing]),)
        return States(layers, join_edges(seen.edges, edges), seen.nodes, edges.rows.num_rows)

    def neighbors(self, states: States, entities: Tensor) -> tuple[Rows, Tensor, Tensor]:
        """For each entity its edges that may be seen, thinned: rows, their relations and their weights."""
        rows, entries = self.looked_at(states, entities)
        return rows, states.edges.relations[entries], states.edges.weights[entries]

    def looked_at(self, states: States, entities: Tensor) -> tuple[Rows, Tensor]:
        """The same, and which of all edges they are."""
        rows, entries = states.edges.rows.pick(entities)
        # Hidden edges go first: which of the others are looked at must not depend on them.
        visible = states.edges.weights[entries] > 0
        rows, entries = rows.where(visible), entries[visible]
        spread = self._spread(rows)
        return rows.where(spread), entries[spread]

    def _spread(self, rows: Rows) -> Tensor:
        """(entries,): whether an entry is one of its row's ``max_neighbors`` evenly spread ones."""
        row, most = rows.row_ids(), self.max_neighbors
        place = torch.arange(len(row), device=row.device) - rows.offsets[row]
        return place * most % rows.sizes[row] < most

    @abstractmethod
    def messages(self, states: States, rows: Rows, relations: Tensor) -> Tensor:
        """(edges, d): the neighbours, seen through their relations."""

    def average(self, states: States, entities: Tensor) -> Tensor:
        """(n, d): the mean of an entity's transformed neighbours."""
        distinct, places = torch.unique(entities, return_inverse=True)
        rows, relations, weights = self.neighbors(states, distinct)
        messages = self.messages(states, rows, relations)
        total = row_sums(rows, weights).clamp_min(1e-6)
        shares = weights / total[rows.row_ids()]
        return pooled(rows, shares, messages)[places]


class ProjectingEncoder(NeighborEncoder):
    """Baselines, whose neighbours lose what their relation says: ``T_r(e) = e - (w_r . e) w_r`` with ``|w_r| = 1``."""

    def _add_parts(self, dim: int, generator: torch.Generator) -> None:
        self.normals = nn.Parameter(glorot(2 * self.num_relations, dim, generator))

    def messages(self, states: States, rows: Rows, relations: Tensor) -> Tensor:
        """(edges, d): the projected neighbours."""
        vectors = states.layers[0][rows.columns]
        normals = functional.normalize(self.normals, dim=1)[relations]
        return vectors - (vectors * normals).sum(dim=1, keepdim=True) * normals


class MeanEncoder(ProjectingEncoder):
    """MEAN: the plain mean of the transformed neighbours; the query does not matter."""

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        return self.average(states, entities)


class LSTMEncoder(ProjectingEncoder):
    """LSTM: the last output of an LSTM over the neighbours, in a random order that the seed and each edge give."""

    def _add_parts(self, dim: int, generator: torch.Generator) -> None:
        super()._add_parts(dim, generator)
        self.cell = nn.LSTM(dim, dim, batch_first=True)
        with torch.no_grad():
            for parameter in self.cell.parameters():
                bound = dim**-0.5
                parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)
        self.shuffle: Tensor
        self.register_buffer("shuffle", torch.randint(2**31, (1,), generator=generator))

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        distinct, places = torch.unique(entities, return_inverse=True)
        rows, relations, weights = self.neighbors(states, distinct)
        messages = self.messages(states, rows, relations) * weights[:, None]
        if len(messages) == 0:
            return messages.new_zeros(len(entities), messages.shape[1])
        outputs, _ = self.cell(self._padded(rows, states.names(rows.columns), relations, messages))
        last = (rows.sizes - 1).clamp_min(0)
        vectors = outputs[torch.arange(len(distinct), device=last.device), last]
        vectors = vectors * (rows.sizes > 0)[:, None]
        result: Tensor = vectors[places]
        return result

    def _padded(self, rows: Rows, names: Tensor, relations: Tensor, messages: Tensor) -> Tensor:
        """(entities, most neighbours, d): each entity's messages in random order."""
        row = rows.row_ids()
        # Of the edge alone: the order must depend neither on the other edges nor on who else is embedded.
        mixed = scrambled(names * 2 * self.num_relations + relations + self.shuffle)
        order = torch.argsort(mixed, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        place = torch.arange(len(messages), device=messages.device) - rows.offsets[row]
        padded = messages.new_zeros(rows.num_rows, int(rows.sizes.max()), messages.shape[1])
        return padded.index_put((row, place), messages[order])


class LANEncoder(ProjectingEncoder):
    """LAN: attention by logic rules between relations plus a neural one that sees the query and the neighbour.

    Logic: ``P(r => q) / max over the entity's other relations r' of P(r' => r)``, where ``P(a => b)`` is the share of
    the seen entities with relation a that have b too, and the maximum counts as a tenth at least. Shares of the sum
    over the entity's edges are what is used; they are zero where none of its relations has to do with the query.
    """

    def _add_parts(self, dim: int, generator: torch.Generator) -> None:
        super()._add_parts(dim, generator)
        self.query_aware = True
        self.queries = nn.Parameter(glorot(2 * self.num_relations, dim, generator))
        self.attention_map = nn.Parameter(glorot(2 * dim, dim, generator))
        self.attention_vector = nn.Parameter(glorot(1, dim, generator)[0])
        self.implied: Tensor
        self.register_buffer("implied", torch.zeros(2 * self.num_relations, 2 * self.num_relations))

    def learn_implications(self, edges: Edges) -> None:
        """Count how often relations go together, over edges of some weight; called once with the observed graph."""
        size, visible = 2 * self.num_relations, edges.weights > 0
        pairs = torch.unique((edges.rows.row_ids() * size + edges.relations)[visible])
        has = torch.zeros(edges.rows.num_rows, size, device=pairs.device)
        has[pairs // size, pairs % size] = 1.0
        together = has.T @ has
        self.implied.copy_(together / together.diagonal().clamp_min(1.0)[:, None])

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        distinct, places = torch.unique(entities, return_inverse=True)
        rows, relations, weights = self.neighbors(states, distinct)
        messages = self.messages(states, rows, relations)
        redundant = self._redundancy(rows, relations)
        pairs, entries = rows.pick(places)
        asked, weights = queries[pairs.row_ids()], weights[entries]
        dim = messages.shape[1]
        keys, wanted = messages @ self.attention_map[dim:], self.queries @ self.attention_map[:dim]
        neural = row_softmax(pairs, torch.tanh(keys[entries] + wanted[asked]) @ self.attention_vector, weights)
        logic = self.implied[relations[entries], asked] / redundant[entries] * weights
        logic = logic / row_sums(pairs, logic).clamp_min(1e-6)[pairs.row_ids()]
        return weighted_sum(Rows(pairs.offsets, entries, len(messages)), neural + logic, messages)

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """Without a query there is nothing to attend by."""
        return self.average(states, entities)

    def _redundancy(self, rows: Rows, relations: Tensor) -> Tensor:
        """(edges,): how strongly another relation of the same entity implies the edge's own; at least a tenth."""
        size = 2 * self.num_relations
        row = rows.row_ids()
        present = torch.unique(row * size + relations)
        by_row, relation = present // size, present % size
        counts = torch.bincount(by_row, minlength=rows.num_rows)
        offsets = torch.zeros_like(rows.offsets)
        torch.cumsum(counts, 0, out=offsets[1:])
        distinct = Rows(offsets, relation, size)
        pairs, _ = distinct.pick(row)
        target = relations[pairs.row_ids()]
        strength = self.implied[pairs.columns, target] * (pairs.columns != target)
        strongest = strength.new_zeros(len(relations)).scatter_reduce(0, pairs.row_ids(), strength, "amax")
        return strongest.clamp_min(0.1)


class RelationalEncoder(NeighborEncoder):
    """Neighbours scaled by their relations, under several attentions that see neighbour, relation and query.

    Message of neighbour j along r: ``m_j = g_r * e_j + b_r``. Attention of a head: the share of
    ``w_j exp((k_r + P e_j) . z_q / sqrt(k))`` in its sum over the entity's edges. The vector is the sum over the heads
    of the attended messages, scaled number by number. It begins as the plain mean of the neighbours.
    """

    heads, width = 4, 16  # attentions side by side, and numbers that each compares

    def _add_parts(self, dim: int, generator: torch.Generator) -> None:
        self.query_aware = True
        relations, size = 2 * self.num_relations, self.heads * self.width

        def drawn(rows: int, columns: int, bound: float) -> nn.Parameter:
            return nn.Parameter((torch.rand(rows, columns, generator=generator) * 2 - 1) * bound)

        self.gates = nn.Parameter(1 + drawn(relations, dim, 0.1).detach())
        self.shifts = drawn(relations, dim, 0.1 * dim**-0.5)
        self.relation_keys = drawn(relations, size, self.width**-0.5)
        self.entity_keys = nn.Parameter(glorot(dim, size, generator))
        self.queries = drawn(relations + 1, size, self.width**-0.5)  # the last is asked when nothing is
        self.mix = nn.Parameter(torch.full((self.heads, dim), 1 / self.heads))

    def extend(self, seen: States, edges: Edges) -> States:
        """Newcomers by their seen neighbours first; then those who are told of by these speak to each other, too."""
        by_seen, start = super().extend(seen, edges), seen.edges.rows.num_rows
        if not bool((edges.rows.columns >= start).any()):
            return by_seen
        arrived = torch.arange(edges.rows.num_rows, device=edges.weights.device) + start
        told = row_sums(edges.rows, edges.weights * (edges.rows.columns < start)) > 0
        heard = torch.cat([torch.ones(start, dtype=torch.bool, device=told.device), told])
        edges = replace(edges, weights=edges.weights * heard[edges.rows.columns])
        layers = (torch.cat([seen.layers[0], self.plain(by_seen, arrived)]),)
        return by_seen._replace(layers=layers, edges=join_edges(seen.edges, edges))

    def messages(self, states: States, rows: Rows, relations: Tensor) -> Tensor:
        """(edges, d): the neighbours, scaled and shifted."""
        vectors = functional.embedding(rows.columns, states.layers[0])
        return vectors * functional.embedding(relations, self.gates) + functional.embedding(relations, self.shifts)

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        distinct, places = torch.unique(entities, return_inverse=True)
        rows, relations, weights = self.neighbors(states, distinct)
        messages = self.messages(states, rows, relations)
        keys = self._keys(states, rows, relations)
        pairs, entries = rows.pick(places)
        logits = self._logits(functional.embedding(entries, keys), pairs, queries)
        attended = Rows(pairs.offsets, entries, len(messages))
        vectors = messages.new_zeros(len(entities), messages.shape[1])
        for head, scales in enumerate(self.mix):
            shares = row_softmax(pairs, logits[:, head].contiguous(), weights[entries])
            vectors = vectors + weighted_sum(attended, shares, messages) * scales
        return vectors

    def _keys(self, states: States, rows: Rows, relations: Tensor) -> Tensor:
        mapped = states.layers[0] @ self.entity_keys
        return functional.embedding(relations, self.relation_keys) + functional.embedding(rows.columns, mapped)

    def _logits(self, keys: Tensor, rows: Rows, queries: Tensor) -> Tensor:
        """(entries, heads): how well each entry's key fits what its row is asked."""
        asked = functional.embedding(rows.row_ids(), functional.embedding(queries, self.queries))
        compared = (keys * asked).reshape(len(keys), self.heads, self.width)
        return compared.sum(dim=2) * (1 / math.sqrt(self.width))

    def attention(self, states: States, entity: Tensor, query: Tensor) -> Tensor:
        """(edges,): how much an entity (1,) asked a query (1,) looks at each of its edges, the mean of the heads."""
        every, _ = states.edges.rows.pick(entity)
        rows, entries = self.looked_at(states, entity)
        relations, weights = states.edges.relations[entries], states.edges.weights[entries]
        logits = self._logits(self._keys(states, rows, relations), rows, query)
        shares = [row_softmax(rows, logit, weights) for logit in logits.T.contiguous()]
        found = weights.new_zeros(len(every.columns))
        if len(entries):
            found[entries - states.edges.rows.offsets[entity]] = torch.stack(shares).mean(dim=0)
        return found

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """As the query of its own asks for them that stands for none."""
        return self.embed(states, entities, torch.full_like(entities, 2 * self.num_relations))


def scrambled(keys: Tensor) -> Tensor:
    """Numbers that look drawn at random, the same for the same keys (int64): multiply, fold the high bits in, again."""
    for factor in (-7046029254386353131, -4417276706812531889):  # odd, of no pattern; products wrap round
        keys = keys * factor
        keys = keys ^ ((keys >> 29) & 0x7FFFFFFFF)
    return keys


def pooled(rows: Rows, shares: Tensor, messages: Tensor) -> Tensor:
    """(rows, d): each row's messages (one an entry) summed with their shares."""
    places = Rows(rows.offsets, torch.arange(len(messages), device=messages.device), max(len(messages), 1))
    if len(messages) == 0:
        return messages.new_zeros(rows.num_rows, messages.shape[1])
    return weighted_sum(places, shares, messages)
