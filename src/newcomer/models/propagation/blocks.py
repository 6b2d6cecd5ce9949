"""What it takes to work out a sparse propagation network of three layers for some candidates of each query.

In a dense graph three steps lead nearly everywhere: messages reach nearly all pairs of entity and query. Yet a loss
needs the scores of some drawn candidates only, and these need few pairs:

    the first block     the source and its neighbours, by the edges of the source
    the second          those of the candidates and their neighbours that are neighbours of the first
    the third           the candidates, by their own edges

A block has its pairs, the place of each in the block before, and the messages from there, by the places of both ends.
"""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from newcomer.models.propagation.cpu import sums_of_pairs
from newcomer.models.propagation.edges import Bools, Floats, Ids, Messages, PropagationEdges
from newcomer.rules.compiled import compiled, inverse_of, with_room

ABSENT = -1
Graph = tuple[Ids, Ids, Ids, Floats, Bools]  # edges by rows: offsets, neighbours, oriented relations, weights; silent
Table = tuple[Ids, int]  # with room for more rows, and how many there are


class Block(NamedTuple):
    """A layer of a network that is worked out for some pairs only."""

    entities: Ids  # (pairs,)
    queries: Ids  # (pairs,)
    before: Ids  # (pairs,): where each stands in the block before; `ABSENT` of one that no message had reached there
    receivers: Ids  # (messages,)
    senders: Ids  # (messages,): in the block before
    relations: Ids  # (messages,): oriented, as the receiver sees them

    def message_sums(self, vectors: Tensor, scales: Tensor) -> Tensor:
        """(pairs, d): the sums of the messages, by the vectors of the block before."""
        weights = np.ones(len(self.senders), dtype=np.float32)
        messages = Messages(self.receivers, self.senders, self.relations, weights)
        return sums_of_pairs(messages, vectors, scales, len(self.entities))


class Blocks(NamedTuple):
    """Three blocks; and of each pair in the last one the column of its candidate."""

    layers: tuple[Block, Block, Block]
    columns: Ids


def find_blocks(edges: PropagationEdges, sources: Ids, candidates: Ids) -> Blocks:
    """The blocks of queries, one of each source, for their candidates (queries, n): entities, or `ABSENT`.

    Candidates that no message reaches have no pair. Both ends of a fact have it as an edge.
    """
    _, neighbors, relations, weights = edges.messages
    offsets: Ids = edges.rows.offsets.contiguous().numpy()
    silent = edges.silent if len(edges.silent) else np.zeros(edges.rows.num_rows, dtype=np.bool_)
    found = _blocks((offsets, neighbors, relations, weights, silent), edges.num_relations, sources, candidates)
    layers = [
        Block(*(np.ascontiguousarray(column) for column in (*pairs.T[:3], *messages.T)))
        for pairs, messages in (found[:2], found[2:4], found[4:])
    ]
    return Blocks((layers[0], layers[1], layers[2]), np.ascontiguousarray(found[4].T[3]))


@compiled
def _blocks(graph: Graph, num_relations: int, sources: Ids, candidates: Ids) -> tuple[Ids, Ids, Ids, Ids, Ids, Ids]:
    """Pairs (entity, query, place before, column) and messages (receiver, sender, relation) of each block."""
    size = len(graph[0]) - 1
    places, further = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    needed = np.full(size, -1, dtype=np.int64)
    near, between, last = _no_rows(4), _no_rows(4), _no_rows(4)
    near_sent, between_sent, last_sent = _no_rows(3), _no_rows(3), _no_rows(3)
    for query in range(len(sources)):
        first, second = near[1], between[1]  # smaller places are of other queries
        near, near_sent = _reach_neighbours(graph, num_relations, sources[query], query, places, near, near_sent)
        _mark_needed(graph, candidates[query], query, needed)
        between, between_sent = _reach_needed(
            graph, num_relations, query, (first, near[1]), near[0], needed, (places, further), between, between_sent
        )
        last, last_sent = _reach_candidates(graph, candidates[query], query, second, further, last, last_sent)
    return (
        near[0][: near[1]],
        near_sent[0][: near_sent[1]],
        between[0][: between[1]],
        between_sent[0][: between_sent[1]],
        last[0][: last[1]],
        last_sent[0][: last_sent[1]],
    )


@compiled
def _no_rows(columns: int) -> Any:
    return np.empty((64, columns), dtype=np.int64), 0


@compiled
def _with_pair(table: Table, entity: int, query: int, before: int, column: int) -> Any:
    rows, count = table
    rows = with_room(rows, count, count + 1)
    rows[count, 0], rows[count, 1], rows[count, 2], rows[count, 3] = entity, query, before, column
    return rows, count + 1


@compiled
def _with_message(table: Table, receiver: int, sender: int, relation: int) -> Any:
    rows, count = table
    rows = with_room(rows, count, count + 1)
    rows[count, 0], rows[count, 1], rows[count, 2] = receiver, sender, relation
    return rows, count + 1


@compiled
def _reach_neighbours(
    graph: Graph, num_relations: int, source: int, query: int, places: Ids, pairs: Table, sent: Table
) -> Any:
    """The source and its neighbours; ``places`` tells where each stands."""
    offsets, neighbors, relations, weights, silent = graph
    first = pairs[1]
    places[source] = first
    pairs = _with_pair(pairs, source, query, query, -1)
    for edge in range(offsets[source], offsets[source + 1]):
        if weights[edge] == 0.0 or silent[source]:
            continue
        other = neighbors[edge]
        if places[other] < first:
            places[other] = pairs[1]
            pairs = _with_pair(pairs, other, query, -1, -1)
        sent = _with_message(sent, places[other], query, inverse_of(relations[edge], num_relations))
    return pairs, sent


@compiled
def _mark_needed(graph: Graph, candidates: Ids, query: int, needed: Ids) -> None:
    """Write the query to all candidates and those neighbours that send messages."""
    offsets, neighbors, _, weights, silent = graph
    for candidate in candidates:
        if candidate >= 0:
            needed[candidate] = query
            for edge in range(offsets[candidate], offsets[candidate + 1]):
                if weights[edge] != 0.0 and not silent[neighbors[edge]]:
                    needed[neighbors[edge]] = query


@compiled
def _reach_needed(
    graph: Graph,
    num_relations: int,
    query: int,
    senders: tuple[int, int],
    near: Ids,
    needed: Ids,
    places: tuple[Ids, Ids],
    pairs: Table,
    sent: Table,
) -> Any:
    """Those needed that the senders, a range of pairs, lead to; the first of these is the source."""
    offsets, neighbors, relations, weights, silent = graph
    before, after = places
    first, source = pairs[1], near[senders[0], 0]
    if needed[source] == query:  # it is reached without any edge
        after[source] = first
        pairs = _with_pair(pairs, source, query, senders[0], -1)
    for sender in range(senders[0], senders[1]):
        entity = near[sender, 0]
        if silent[entity]:
            continue
        for edge in range(offsets[entity], offsets[entity + 1]):
            other = neighbors[edge]
            if needed[other] != query or weights[edge] == 0.0:
                continue
            if after[other] < first:
                after[other] = pairs[1]
                pairs = _with_pair(pairs, other, query, before[other] if before[other] >= senders[0] else -1, -1)
            sent = _with_message(sent, after[other], sender, inverse_of(relations[edge], num_relations))
    return pairs, sent


@compiled
def _reach_candidates(
    graph: Graph, candidates: Ids, query: int, first: int, places: Ids, pairs: Table, sent: Table
) -> Any:
    """The candidates that the pairs from the ``first`` on lead to, or are among."""
    offsets, neighbors, relations, weights, silent = graph
    for column in range(len(candidates)):
        candidate, before = candidates[column], sent[1]
        if candidate < 0:
            continue
        for edge in range(offsets[candidate], offsets[candidate + 1]):
            sender = neighbors[edge]
            if weights[edge] != 0.0 and places[sender] >= first and not silent[sender]:
                sent = _with_message(sent, pairs[1], places[sender], relations[edge])
        was_reached = places[candidate] >= first
        if was_reached or sent[1] > before:
            pairs = _with_pair(pairs, candidate, query, places[candidate] if was_reached else -1, column)
    return pairs, sent
