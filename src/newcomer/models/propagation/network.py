"""Propagation: messages from the source of a query along all edges, layer by layer (the idea of NBFNet).

A query (x, q, ?) is a vector ``z_q`` that starts at x:

    s_v = g * ( start_v + sum over edges (v, r, u) of w_r * h_u )   where the gate g = 1 + tanh(G z_q)
    h_v := h_v + relu( norm( M [ h_v ; sign(s_v) log(1 + |s_v|) ; s_v / (1 + edges of v) ] ) )

with products number by number, and the score of v is a small network of ``h_v`` and ``z_q``. So a candidate's score
follows from the paths that lead to it, and no entity has a number of its own: a newcomer is treated as any other.

In a *sparse* network ``h_v`` stays zero until an edge leads to v from an entity that the query has reached. So a layer
is worked out for these pairs of entity and query alone, and all other entities have the same score. For training, a
sparse network can be worked out for some candidates alone (`candidate_scores`), from the blocks that lead to them.

A dense network needs little work in its first two layers. After the first one only neighbours of the source differ
from a vector ``c`` that is the same for all queries, so that the sums of the second are

    sum over edges (v, r, u) of w_r * h_u  =  (sum over edges of w_r) * c  +  sum over such u of w_r * (h_u - c)

whose first part, the *background*, is the same for all queries and whose second has few terms.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from newcomer.models.propagation import cpu, gpu
from newcomer.models.propagation.blocks import Block
from newcomer.models.propagation.edges import PropagationEdges
from newcomer.models.sparse import Rows, weighted_sum
from newcomer.models.vn.layers import glorot

DIM, LAYERS = 32, 4
FEW_LAYERS = 3  # of a network that is trained on drawn candidates: see `newcomer.models.propagation.blocks`
PREFIX = "propagation."  # of the names of its weights
TABLE_SIZE = {"cpu": 1 << 25, "cuda": 1 << 29}  # numbers that are worked on together
KEPT = 12  # vectors of an entity that training keeps


class Propagation(nn.Module):
    """The network. ``known_relations`` are the oriented relations that it has been trained on, 1 or 0.

    A ``sparse`` one lives on a CPU. In it, entities of more than ``hub_facts`` observed facts send no messages; 0: all
    do.
    """

    def __init__(
        self,
        num_relations: int,
        generator: torch.Generator,
        sparse: bool = False,
        layers: int = LAYERS,
        hub_facts: int = 0,
    ) -> None:
        super().__init__()
        oriented = 2 * num_relations

        def drawn(*shape: int, mean: float, spread: float) -> nn.Parameter:
            return nn.Parameter(mean + spread * torch.randn(*shape, generator=generator))

        self.num_relations = num_relations
        self.queries = drawn(oriented, DIM, mean=0.0, spread=1.0)
        self.scales = drawn(layers, oriented, DIM, mean=1.0, spread=0.3)
        self.gates = nn.ModuleList(_linear(DIM, DIM, generator) for _ in range(layers))
        self.mixes = nn.ModuleList(_linear(3 * DIM, DIM, generator) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(layers))
        self.first = _linear(2 * DIM, 2 * DIM, generator)
        self.last = nn.Parameter(glorot(1, 2 * DIM, generator))  # without a bias, which would change no order
        self.known_relations: Tensor
        self.register_buffer("known_relations", torch.zeros(oriented))
        self.sparse: Tensor
        self.register_buffer("sparse", torch.tensor(float(sparse)))
        self.hubs: Tensor
        self.register_buffer("hubs", torch.tensor(float(hub_facts)))

    @property
    def layers(self) -> int:
        """How many steps messages go."""
        return len(self.scales)

    @property
    def is_sparse(self) -> bool:
        """Whether entities that messages have not reached stay zero."""
        return not self.sparse.is_cuda and bool(self.sparse)

    @property
    def hub_facts(self) -> int:
        """Of how many facts at most an entity is that sends messages; 0: of any number."""
        return int(self.hubs)

    def forward(
        self,
        parts: Sequence[PropagationEdges],
        sources: Tensor,
        queries: Tensor,
        num_entities: int,
        kept: torch.dtype = torch.float32,
        background: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """(queries, entities): scores of all entities as answers to (source, oriented relation, ?).

        ``kept`` is what a GPU keeps vectors in between layers; for `newcomer.models.propagation.gpu.HALF` it must have
        kernels. ``background`` is what `background_of` gives for the parts, if that is known already.

        Without gradients a CPU takes one query at a time, so that no score depends on the others: products of matrices
        round a row differently when there are more of them.
        """
        if len(queries) != 1 and not (sources.is_cuda or torch.is_grad_enabled()):
            if background is None and not self.is_sparse:
                background = [self.background_of(one) for one in parts]
            scores = torch.empty(len(queries), num_entities)
            for place in range(len(queries)):
                one = slice(place, place + 1)
                scores[one] = self.forward(parts, sources[one], queries[one], num_entities, kept, background)
            return scores
        if self.is_sparse:
            frontier, scores, others = self.frontier_scores(parts, sources, queries, num_entities)
            places = torch.from_numpy(frontier.queries), torch.from_numpy(frontier.entities)
            return others[:, None].repeat(1, num_entities).index_put(places, scores)
        query_vectors = nn.functional.embedding(queries, self.queries)
        degrees = self._degrees(parts, num_entities)
        if sources.is_cuda:  # all entities are done sooner there than a few are chosen
            start = sources, torch.arange(len(queries), device=queries.device)
            vectors = query_vectors.new_zeros(num_entities, len(queries), DIM, dtype=kept)
            vectors, done = vectors.index_put(start, query_vectors.to(kept)), 0
        else:
            vectors, done = self._first_two_layers(parts, sources, query_vectors, degrees, background), 2
        for layer in range(done, self.layers):
            sums = message_sums(parts, vectors, self.scales[layer], num_entities)
            vectors = self.updated(layer, vectors, sums, sources, query_vectors, degrees)
        return self.readout(vectors, query_vectors)

    def _degrees(self, parts: Sequence[PropagationEdges], num_entities: int) -> Tensor:
        """(entities,): one more than each has edges, for means."""
        return 1 + over_all([one.degrees for one in parts], num_entities)

    def readout(self, vectors: Tensor, query_vectors: Tensor) -> Tensor:
        """(queries, entities): the scores of vectors, (entities, queries, d)."""
        return self._scored(vectors, self.of_query(query_vectors)).T

    def of_query(self, query_vectors: Tensor) -> Tensor:
        """(queries, 2 d): what a query adds to the readout: there is no copy of it for every entity."""
        return nn.functional.linear(query_vectors, self.first.weight[:, DIM:], self.first.bias)

    def _scored(self, vectors: Tensor, of_query: Tensor) -> Tensor:
        inner = nn.functional.linear(vectors, self.first.weight[:, :DIM].to(vectors.dtype))
        inner = torch.relu(inner + of_query.to(vectors.dtype))
        return nn.functional.linear(inner.to(of_query.dtype), self.last)[..., 0]

    def frontier_scores(
        self, parts: Sequence[PropagationEdges], sources: Tensor, queries: Tensor, num_entities: int
    ) -> tuple[cpu.Frontier, Tensor, Tensor]:
        """Of a sparse network: its frontier, the scores of these pairs, and (queries,) that of all other entities."""
        query_vectors = nn.functional.embedding(queries, self.queries)
        frontier = cpu.find_frontier(parts, sources.numpy(), self.layers, num_entities)
        query_of, vectors = torch.from_numpy(frontier.queries), query_vectors
        degrees = self._degrees(parts, num_entities)[torch.from_numpy(frontier.entities)]
        for layer, count in enumerate(frontier.within[1:].tolist()):
            gate = self.gate(layer, query_vectors)[query_of[:count]]
            sums = frontier.message_sums(layer, vectors, self.scales[layer]) + _padded(query_vectors, count)
            vectors = _padded(vectors, count)
            vectors = self.changed(layer, vectors, sums * gate, degrees[:count])
        of_query = self.of_query(query_vectors)
        return frontier, self._scored(vectors, of_query[query_of]), self.unreached_scores(of_query)

    def candidate_scores(self, blocks: Sequence[Block], sources: Tensor, queries: Tensor, degrees: Tensor) -> Tensor:
        """Of a sparse network: the scores of the candidates that the last block has, and behind them (queries,) that of
        all entities that no message reaches. ``degrees`` (entities,) are one more than each has edges.
        """
        query_vectors = nn.functional.embedding(queries, self.queries)
        vectors = query_vectors
        for layer, block in enumerate(blocks):
            entities, query_of, before = map(torch.from_numpy, (block.entities, block.queries, block.before))
            sums = block.message_sums(vectors, self.scales[layer])
            start = torch.nonzero(entities == sources[query_of])[:, 0]
            sums = sums.index_add(0, start, query_vectors[query_of[start]])
            # Who was not reached before was zero: the last row is.
            vectors = _padded(vectors, len(vectors) + 1)[torch.where(before < 0, len(vectors), before)]
            gated = sums * self.gate(layer, query_vectors)[query_of]
            vectors = self.changed(layer, vectors, gated, degrees[entities])
        of_query = self.of_query(query_vectors)
        reached = self._scored(vectors, of_query[torch.from_numpy(blocks[-1].queries)])
        return torch.cat([reached, self.unreached_scores(of_query)])

    def unreached_scores(self, of_query: Tensor) -> Tensor:
        """(queries,): the score of all entities whose vectors are zero."""
        return nn.functional.linear(torch.relu(of_query), self.last)[:, 0]

    def background_of(self, edges: PropagationEdges) -> Tensor:
        """(rows, d): the sums of the second layer of entities that no query has reached."""
        by_relation = Rows(edges.rows.offsets, edges.relations, 2 * self.num_relations)
        return weighted_sum(by_relation, edges.weights, self.scales[1]) * self.unreached()

    def unreached(self) -> Tensor:
        """(d,): the vector after the first layer of an entity that no message has reached."""
        unreached: Tensor = torch.relu(self.norms[0](self.mixes[0].bias))
        return unreached

    def _first_two_layers(
        self,
        parts: Sequence[PropagationEdges],
        sources: Tensor,
        query_vectors: Tensor,
        degrees: Tensor,
        background: Sequence[Tensor] | None,
    ) -> Tensor:
        """(entities, queries, d): the vectors after two layers, worked out near the sources."""
        count = len(query_vectors)
        start = cpu.Pairs(sources, torch.arange(count, device=sources.device), query_vectors)
        sent = [cpu.messages_of(start, one, self.scales[0]) for one in parts]
        entities, query_of, sums = cpu.summed_pairs([start, *sent], count)
        own = (entities == sources[query_of])[:, None] * query_vectors[query_of]
        gated = sums * self.gate(0, query_vectors)[query_of]
        unreached = self.unreached()
        near = cpu.Pairs(entities, query_of, self.changed(0, own, gated, degrees[entities]) - unreached)
        received = cpu.summed_pairs([cpu.messages_of(near, one, self.scales[1]) for one in parts], count)
        if background is None:
            background = [self.background_of(one) for one in parts]
        shape = len(degrees), count, DIM
        sums = received.added_to(over_all(background, len(degrees))[:, None].expand(shape))
        return self.updated(1, near.added_to(unreached.expand(shape)), sums, sources, query_vectors, degrees)

    def updated(
        self, layer: int, vectors: Tensor, sums: Tensor, sources: Tensor, query_vectors: Tensor, degrees: Tensor
    ) -> Tensor:
        """(entities, queries, d): the vectors after a layer; ``sums`` of messages may be written over."""
        gate = self.gate(layer, query_vectors)
        if sums.is_cuda and gpu.updates_layers(len(query_vectors)):
            parameters = *self.mixes[layer].parameters(), *self.norms[layer].parameters()
            return gpu.updated(vectors, sums, sources, query_vectors, gate, degrees, *parameters)
        start = sources, torch.arange(len(query_vectors), device=query_vectors.device)
        if torch.is_grad_enabled():
            gated = sums.index_put(start, sums[start] + query_vectors) * gate
        else:  # which takes less time than tables that are made anew
            gated = sums.index_put_(start, sums[start] + query_vectors).mul_(gate)
        return self.changed(layer, vectors, gated, degrees[:, None])

    def gate(self, layer: int, query_vectors: Tensor) -> Tensor:
        return 1 + torch.tanh(self.gates[layer](query_vectors))

    def changed(self, layer: int, vectors: Tensor, gated: Tensor, degrees: Tensor) -> Tensor:
        """(..., d): the vectors after a layer, by the sums of messages times the gate, and ``degrees``, (...,)."""
        if torch.is_grad_enabled():
            small = torch.copysign(torch.log1p(gated.abs()), gated)
        else:  # in one table
            small = gated.abs().log1p_().copysign_(gated)
        weight, bias = self.mixes[layer].parameters()
        mixed = bias.expand(vectors.numel() // DIM, DIM)  # of [vectors; logarithms; means]: nothing is concatenated
        for part, own in zip((vectors, small, gated / degrees[..., None]), weight.chunk(3, dim=1), strict=True):
            mixed = torch.addmm(mixed, part.reshape(-1, DIM), own.T)
        change = self.norms[layer](mixed).view(vectors.shape)
        if torch.is_grad_enabled():
            return vectors + torch.relu(change)
        return torch.relu_(change).add_(vectors)


def message_sums(parts: Sequence[PropagationEdges], vectors: Tensor, scales: Tensor, num_entities: int) -> Tensor:
    """(entities, queries, d): for each entity the sum of the messages along its edges of all parts."""
    if not vectors.is_cuda:
        return cpu.message_sums(parts, vectors, scales, num_entities)
    of_part = gpu.message_sums if gpu.available() else plain_message_sums
    return over_all([of_part(one, vectors, scales) for one in parts], num_entities)


def plain_message_sums(edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
    """(rows, queries, d): the sums of one part by a vector for each edge, as the formula has them."""
    messages = vectors[edges.rows.columns] * scales[edges.relations][:, None]
    return weighted_sum(edges.numbers, edges.weights, messages.flatten(1)).view(-1, *vectors.shape[1:])


def over_all(tables: Sequence[Tensor], num_entities: int) -> Tensor:
    """(entities, ...): the sum of tables, each of the first entities."""
    first, *others = (
        nn.functional.pad(one, (0, 0) * (one.dim() - 1) + (0, num_entities - len(one)))
        if len(one) < num_entities
        else one
        for one in tables
    )
    return sum(others, start=first)


def batch_size(edges: PropagationEdges, num_entities: int) -> int:
    """How many queries are worked on together, so that their tables are no burden."""
    device = edges.weights.device.type
    along = len(edges.relations)
    if device == "cuda":  # by plain formulas training keeps two vectors for each edge and layer, by kernels none
        along = 0 if gpu.available() else 2 * LAYERS * along
    return max(1, TABLE_SIZE[device] // (DIM * max(along, KEPT * num_entities, 1)))


def _padded(table: Tensor, rows: int) -> Tensor:
    """(rows, d): the table with zeros for the rows that follow."""
    return nn.functional.pad(table, (0, 0, 0, rows - len(table)))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    # Else it would draw from the global generator.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        layer.weight.copy_(glorot(outputs, inputs, generator))
        layer.bias.zero_()
    return layer
