"""Propagation on a CPU: sums of messages by compiled loops, without a vector for each edge.

Over all edges, for a few queries, or over those near the sources alone:

* `Pairs` are the vectors of the few pairs of entity and query that differ from the rest in the first two layers.
* A `Frontier` is, for a sparse network (`newcomer.models.propagation.network`), all pairs that messages reach. Pairs
  stand in the order of their distance from the source: sources first, then all that are one edge away, and so on. In a
  sparse graph these are a few hundred of many thousands; in a dense one nearly all, and this is the slower way.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from newcomer.models.propagation.edges import EdgeArrays, Floats, Ids, PropagationEdges
from newcomer.models.sparse import Rows, weighted_sum

MAX_PARTS = 3
Parts = tuple[EdgeArrays, EdgeArrays, EdgeArrays]


def message_sums(parts: Sequence[PropagationEdges], vectors: Tensor, scales: Tensor, num_entities: int) -> Tensor:
    """(entities, queries, d): for each entity the sum of the messages along its edges, of at most `MAX_PARTS` parts."""
    result: Tensor = _MessageSums.apply(_compiled(parts), vectors, scales, num_entities)  # type: ignore[no-untyped-call]
    return result


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Parts, vectors: Tensor, scales: Tensor, num_entities: int) -> Tensor:
        ctx.parts = parts
        ctx.save_for_backward(vectors, scales)
        return torch.from_numpy(_summed(parts, num_entities, _array(vectors), _array(scales)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        of_vectors, of_scales = _gradients(ctx.parts, *map(_array, (*ctx.saved_tensors, gradients[0])))
        return None, torch.from_numpy(of_vectors), torch.from_numpy(of_scales), None


class Pairs(NamedTuple):
    """Vectors of some pairs of entity and query."""

    entities: Tensor  # (pairs,)
    queries: Tensor  # (pairs,)
    vectors: Tensor  # (pairs, d)

    def added_to(self, table: Tensor) -> Tensor:
        """(entities, queries, d): a table with the vectors added; each pair may be named once."""
        place = self.entities, self.queries
        return table.index_put(place, table[place] + self.vectors)


def summed_pairs(several: Sequence[Pairs], num_queries: int) -> Pairs:
    """Each pair once, its vectors added up in the order in which they are given."""
    entities, queries, vectors = (torch.cat(columns) for columns in zip(*several, strict=True))
    keys, order = torch.sort(entities * num_queries + queries, stable=True)
    pairs, counts = torch.unique_consecutive(keys, return_counts=True)
    rows = Rows(torch.nn.functional.pad(torch.cumsum(counts, 0), (1, 0)), order, len(order))
    sums = weighted_sum(rows, vectors.new_ones(len(order)), vectors)
    return Pairs(pairs // num_queries, pairs % num_queries, sums)


def messages_of(pairs: Pairs, edges: PropagationEdges, scales: Tensor) -> Pairs:
    """The messages that pairs send along edges, by their receivers.

    The row of v has its edges (v, relation, u), each of which u has, too, the other way round.
    """
    inside = pairs.entities < edges.rows.num_rows
    entities, queries, vectors = (column[inside] for column in pairs)
    picked, numbers = edges.rows.pick(entities)
    sender, inverse = picked.row_ids(), (edges.relations[numbers] + edges.num_relations) % len(scales)
    messages = vectors[sender] * scales[inverse] * edges.weights[numbers][:, None]
    return Pairs(picked.columns, queries[sender], messages)


class Frontier(NamedTuple):
    """The pairs of entity and query that messages reach, and along what."""

    entities: Ids  # (pairs,)
    queries: Ids  # (pairs,)
    within: Ids  # (layers + 1,): how many pairs are at most so many edges from their source
    senders: Ids  # (messages,): places among the pairs
    receivers: Ids  # (messages,)
    relations: Ids  # (messages,): the relation as the receiver sees it
    sent: Ids  # (layers,): how many of the messages each layer has


def find_frontier(parts: Sequence[PropagationEdges], sources: Ids, layers: int, num_entities: int) -> Frontier:
    """All pairs that messages from the sources, one of each query, reach in so many layers."""
    (entities, queries, distance), messages = _walk(
        _compiled(parts), sources, layers, num_entities, parts[0].num_relations
    )
    order = np.argsort(distance, kind="stable")
    within = np.cumsum(np.bincount(distance, minlength=layers + 1)).astype(np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    senders, receivers, relations = place[messages[0]], place[messages[1]], messages[2]
    by_sender = np.argsort(senders, kind="stable")
    senders = senders[by_sender]
    sent = np.searchsorted(senders, within[:layers]).astype(np.int64)
    return Frontier(entities[order], queries[order], within, senders, receivers[by_sender], relations[by_sender], sent)


def distances(parts: Sequence[PropagationEdges], source: int, layers: int, num_entities: int) -> Ids:
    """(entities,): how many edges each is from the source; ``layers + 1`` of all that are further away."""
    sources = np.array([source], dtype=np.int64)
    (entities, _, steps), _ = _walk(_compiled(parts), sources, layers, num_entities, parts[0].num_relations)
    found = np.full(num_entities, layers + 1, dtype=np.int64)
    found[entities] = steps
    return found


def frontier_message_sums(frontier: Frontier, layer: int, vectors: Tensor, scales: Tensor) -> Tensor:
    """(pairs, d): for each pair that this layer reaches the sum of its messages."""
    result: Tensor = _FrontierMessageSums.apply(frontier, layer, vectors, scales)  # type: ignore[no-untyped-call]
    return result


class _FrontierMessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, frontier: Frontier, layer: int, vectors: Tensor, scales: Tensor) -> Tensor:
        count = frontier.sent[layer]
        ctx.messages = frontier.senders[:count], frontier.receivers[:count], frontier.relations[:count]
        ctx.save_for_backward(vectors, scales)
        sums = torch.zeros(int(frontier.within[layer + 1]), vectors.shape[1])
        _add_messages(*ctx.messages, _array(vectors), _array(scales), sums.numpy())  # type: ignore[call-arg]
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        of_vectors, of_scales = (torch.zeros(one.shape) for one in ctx.saved_tensors)
        tables = map(_array, (*ctx.saved_tensors, gradients[0]))
        _add_gradients(*ctx.messages, *tables, of_vectors.numpy(), of_scales.numpy())  # type: ignore[call-arg]
        return None, None, of_vectors, of_scales


def _compiled(parts: Sequence[PropagationEdges]) -> Parts:
    """The parts for compiled loops, which take `MAX_PARTS` of them: the rest are empty."""
    empty = np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    first, second, third = [one.arrays for one in parts] + [empty] * (MAX_PARTS - len(parts))
    return first, second, third


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


@numba.njit(nogil=True, cache=True)
def _summed(parts: Parts, num_entities: int, vectors: Floats, scales: Floats) -> Floats:
    queries, size = vectors.shape[1], vectors.shape[2]
    sums = np.zeros((num_entities, queries, size), dtype=np.float32)  # made here: so it is none of the tables read
    for offsets, columns, relations, weights in parts:
        for row in range(len(offsets) - 1):
            for edge in range(offsets[row], offsets[row + 1]):
                if weights[edge] == 0.0:
                    continue
                column, relation, weight = columns[edge], relations[edge], weights[edge]
                for query in range(queries):
                    for i in range(size):
                        sums[row, query, i] += weight * scales[relation, i] * vectors[column, query, i]
    return sums


@numba.njit(nogil=True, cache=True)
def _gradients(parts: Parts, vectors: Floats, scales: Floats, gradient: Floats) -> tuple[Floats, Floats]:
    """The gradients of the vectors and of the scales, by that of the sums."""
    queries, size = vectors.shape[1], vectors.shape[2]
    of_vectors, of_scales = np.zeros_like(vectors), np.zeros_like(scales)
    for offsets, columns, relations, weights in parts:
        for row in range(len(offsets) - 1):
            for edge in range(offsets[row], offsets[row + 1]):
                if weights[edge] == 0.0:
                    continue
                column, relation, weight = columns[edge], relations[edge], weights[edge]
                for query in range(queries):
                    for i in range(size):
                        slope = weight * gradient[row, query, i]
                        of_vectors[column, query, i] += slope * scales[relation, i]
                        of_scales[relation, i] += slope * vectors[column, query, i]
    return of_vectors, of_scales


@numba.njit(nogil=True, cache=True)
def _with_room(table: Ids, count: int) -> Ids:
    """The table, or where all its columns are in use, one of twice as many."""
    if count < table.shape[1]:
        return table
    larger = np.empty((table.shape[0], 2 * count), dtype=np.int64)
    larger[:, :count] = table
    return larger


@numba.njit(nogil=True, cache=True)
def _walk(parts: Parts, sources: Ids, layers: int, num_entities: int, num_relations: int) -> tuple[Ids, Ids]:
    """(3, pairs): entity, query and distance from its source; (3, messages): sender and receiver, as places among these
    pairs, and the relation as the receiver sees it. Query by query, nearest first.
    """
    place_of = np.full(num_entities, -1, dtype=np.int64)
    pairs, messages = np.empty((3, 64), dtype=np.int64), np.empty((3, 64), dtype=np.int64)
    count = sent = 0
    for query in range(len(sources)):
        first = sender = count  # smaller places are of other queries
        pairs = _with_room(pairs, count)
        pairs[0, count], pairs[1, count], pairs[2, count] = sources[query], query, 0
        place_of[sources[query]] = count
        count += 1
        while sender < count and pairs[2, sender] < layers:
            entity, distance = pairs[0, sender], pairs[2, sender]
            for offsets, columns, relations, weights in parts:
                if entity >= len(offsets) - 1:
                    continue
                for edge in range(offsets[entity], offsets[entity + 1]):
                    if weights[edge] == 0.0:
                        continue
                    other = columns[edge]
                    if place_of[other] < first:
                        pairs = _with_room(pairs, count)
                        pairs[0, count], pairs[1, count], pairs[2, count] = other, query, distance + 1
                        place_of[other] = count
                        count += 1
                    messages = _with_room(messages, sent)
                    messages[0, sent], messages[1, sent] = sender, place_of[other]
                    messages[2, sent] = (relations[edge] + num_relations) % (2 * num_relations)
                    sent += 1
            sender += 1
    return pairs[:, :count], messages[:, :sent]


@numba.njit(nogil=True, cache=True)
def _add_messages(senders: Ids, receivers: Ids, relations: Ids, vectors: Floats, scales: Floats, sums: Floats) -> None:
    for message in range(len(senders)):
        sender, receiver, relation = senders[message], receivers[message], relations[message]
        for i in range(vectors.shape[1]):
            sums[receiver, i] += scales[relation, i] * vectors[sender, i]


@numba.njit(nogil=True, cache=True)
def _add_gradients(
    senders: Ids,
    receivers: Ids,
    relations: Ids,
    vectors: Floats,
    scales: Floats,
    gradient: Floats,
    of_vectors: Floats,
    of_scales: Floats,
) -> None:
    for message in range(len(senders)):
        sender, receiver, relation = senders[message], receivers[message], relations[message]
        for i in range(vectors.shape[1]):
            slope = gradient[receiver, i]
            of_vectors[sender, i] += slope * scales[relation, i]
            of_scales[relation, i] += slope * vectors[sender, i]
