"""The baselines MEAN, LSTM and LAN: encoders that pool one layer of neighbours.

Each neighbour is projected by its relation: ``T_r(e) = e - (w_r . e) w_r`` with ``|w_r| = 1``.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.embedding.encoder import Edges, Encoder, States
from newcomer.models.sparse import Rows, row_softmax, row_sums, weighted_sum
from newcomer.models.vn.layers import glorot


class NeighborEncoder(Encoder):
    """Encoders of an entity's projected neighbours.

    Neighbours without a vector of their own (newcomers) do not count. At most ``max_neighbors`` of an entity's visible
    edges are used: with more, an evenly spread part.
    """

    max_neighbors = 64

    def __init__(self, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__(num_seen, num_relations, dim, dropout, generator)
        self.normals = nn.Parameter(glorot(2 * num_relations, dim, generator))
        self._add_parameters(dim, generator)

    def _add_parameters(self, dim: int, generator: torch.Generator) -> None:
        """Create what an encoder learns beyond this."""

    def extend(self, seen: States, edges: Edges, threads: int | None = 1) -> States:
        has_vector = edges.rows.columns < seen.edges.rows.num_rows
        edges = replace(edges, weights=edges.weights * has_vector)
        return seen.joined(self.vectors.new_zeros(edges.rows.num_rows, self.vectors.shape[1]), edges)

    def neighbors(self, states: States, entities: Tensor) -> tuple[Rows, Tensor, Tensor]:
        """For each entity its visible edges, thinned: rows, their relations and their weights."""
        rows, entries = states.edges.rows.pick(entities)
        # Hidden edges go first: which of the others are used must not depend on them.
        visible = states.edges.weights[entries] > 0
        rows, entries = rows.where(visible), entries[visible]
        spread = self._spread(rows)
        entries = entries[spread]
        return rows.where(spread), states.edges.relations[entries], states.edges.weights[entries]

    def _spread(self, rows: Rows) -> Tensor:
        """(entries,): whether an entry is one of its row's ``max_neighbors`` evenly spread ones."""
        row, most = rows.row_ids, self.max_neighbors
        place = torch.arange(len(row), device=row.device) - rows.offsets[row]
        return place * most % rows.sizes[row] < most

    def messages(self, states: States, rows: Rows, relations: Tensor) -> Tensor:
        """(edges, d): the projected neighbours."""
        vectors = states.layers[0][rows.columns]
        normals = functional.normalize(self.normals, dim=1)[relations]
        return vectors - (vectors * normals).sum(dim=1, keepdim=True) * normals

    def average(self, states: States, entities: Tensor) -> Tensor:
        """(n, d): the mean of an entity's projected neighbours."""
        distinct, places = torch.unique(entities, return_inverse=True)
        rows, relations, weights = self.neighbors(states, distinct)
        messages = self.messages(states, rows, relations)
        shares = weights / row_sums(rows, weights).clamp_min(1e-6)[rows.row_ids]
        every = torch.arange(len(messages), device=messages.device)
        return weighted_sum(Rows(rows.offsets, every, len(messages)), shares, messages)[places]


class MeanEncoder(NeighborEncoder):
    """MEAN: the plain mean of the projected neighbours; the query does not matter."""

    batch_invariant = True

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        return self.average(states, entities)


class LSTMEncoder(NeighborEncoder):
    """LSTM: the last output of an LSTM over the neighbours, in a random order that the seed and each edge give."""

    trains_on_one_thread = True

    def _add_parameters(self, dim: int, generator: torch.Generator) -> None:
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
        outputs, _ = self.cell(self._padded(rows, _ids(states, rows.columns), relations, messages))
        last = (rows.sizes - 1).clamp_min(0)
        vectors = outputs[torch.arange(len(distinct), device=last.device), last]
        vectors = vectors * (rows.sizes > 0)[:, None]
        result: Tensor = vectors[places]
        return result

    def _padded(self, rows: Rows, ids: Tensor, relations: Tensor, messages: Tensor) -> Tensor:
        """(entities, most neighbours, d): each entity's messages in random order."""
        row = rows.row_ids
        # Of the edge alone: the order must depend neither on the other edges nor on who else is embedded.
        mixed = scrambled(ids * 2 * self.num_relations + relations + self.shuffle)
        order = torch.argsort(mixed, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        place = torch.arange(len(messages), device=messages.device) - rows.offsets[row]
        padded = messages.new_zeros(rows.num_rows, int(rows.sizes.max()), messages.shape[1])
        return padded.index_put((row, place), messages[order])


class LANEncoder(NeighborEncoder):
    """LAN: attention by logic rules between relations plus a neural one that sees the query and the neighbour.

    Logic: ``P(r => q) / max over the entity's other relations r' of P(r' => r)``, where ``P(a => b)`` is the share of
    the seen entities with relation a that have b too, and the maximum counts as a tenth at least. Shares of the sum
    over the entity's edges are what is used; they are zero where none of its relations has to do with the query.
    """

    query_aware = True
    trains_on_one_thread = True

    def _add_parameters(self, dim: int, generator: torch.Generator) -> None:
        self.queries = nn.Parameter(glorot(2 * self.num_relations, dim, generator))
        self.attention_map = nn.Parameter(glorot(2 * dim, dim, generator))
        self.attention_vector = nn.Parameter(glorot(1, dim, generator)[0])
        self.implied: Tensor
        self.register_buffer("implied", torch.zeros(2 * self.num_relations, 2 * self.num_relations))

    def prepare(self, edges: Edges, seed: int) -> None:
        """Count how often relations go together, over edges of some weight."""
        size, visible = 2 * self.num_relations, edges.weights > 0
        pairs = torch.unique((edges.rows.row_ids * size + edges.relations)[visible])
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
        asked, weights = queries[pairs.row_ids], weights[entries]
        dim = messages.shape[1]
        keys, wanted = messages @ self.attention_map[dim:], self.queries @ self.attention_map[:dim]
        neural = row_softmax(pairs, torch.tanh(keys[entries] + wanted[asked]) @ self.attention_vector, weights)
        logic = self.implied[relations[entries], asked] / redundant[entries] * weights
        logic = logic / row_sums(pairs, logic).clamp_min(1e-6)[pairs.row_ids]
        return weighted_sum(Rows(pairs.offsets, entries, len(messages)), neural + logic, messages)

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """The plain mean: without a query there is no attention."""
        return self.average(states, entities)

    def _redundancy(self, rows: Rows, relations: Tensor) -> Tensor:
        """(edges,): how strongly another relation of the same entity implies the edge's own; at least a tenth."""
        size = 2 * self.num_relations
        row = rows.row_ids
        present = torch.unique(row * size + relations)
        offsets = torch.searchsorted(present // size, torch.arange(rows.num_rows + 1, device=row.device))
        pairs, _ = Rows(offsets, present % size, size).pick(row)
        target = relations[pairs.row_ids]
        strength = self.implied[pairs.columns, target] * (pairs.columns != target)
        strongest = strength.new_zeros(len(relations)).scatter_reduce(0, pairs.row_ids, strength, "amax")
        return strongest.clamp_min(0.1)


def _ids(states: States, places: Tensor) -> Tensor:
    """What tells seen entities apart, whoever else is embedded."""
    return places if states.nodes is None else states.nodes[places.clamp_max(len(states.nodes) - 1)]


def scrambled(keys: Tensor) -> Tensor:
    """Numbers that look drawn at random, the same for the same keys (int64): multiply, fold the high bits in, again."""
    for factor in (-7046029254386353131, -4417276706812531889):  # odd, of no pattern; products wrap round
        keys = keys * factor
        keys = keys ^ ((keys >> 29) & 0x7FFFFFFFF)
    return keys
