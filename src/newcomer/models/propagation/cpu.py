"""Propagation on a CPU: sums of messages by compiled loops, without a vector for each edge.

Over all edges, for a few queries, or over those near the sources alone:

* `Pairs` are the vectors of the few pairs of entity and query that differ from the rest in the first two layers.
* A `Frontier` is, for a sparse network (`newcomer.models.propagation.network`), all pairs that messages reach. Pairs
  stand in the order of their distance from the source: sources first, then all that are one edge away, and so on. In a
  sparse graph these are a few hundred of many thousands; in a dense one nearly all, and this is the slower way.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from newcomer.models.propagation.edges import Bools, Floats, Ids, Messages, PropagationEdges
from newcomer.models.sparse import Rows, weighted_sum
from newcomer.rules.compiled import compiled, with_room

MAX_PARTS = 3
Part = tuple[Ids, Messages]  # where each row begins, and what it receives
Parts = tuple[Part, Part, Part]
NO_OFFSETS, NO_IDS = np.zeros(1, np.int64), np.empty(0, np.int64)
NO_PART = NO_OFFSETS, Messages(NO_IDS, NO_IDS, NO_IDS, np.empty(0, np.float32))


def message_sums(parts: Sequence[PropagationEdges], vectors: Tensor, scales: Tensor, num_entities: int) -> Tensor:
    """(entities, queries, d): for each entity the sum of the messages along its edges, of at most `MAX_PARTS` parts."""
    result: Tensor = _MessageSums.apply(_compiled(parts), vectors, scales, num_entities)  # type: ignore[no-untyped-call]
    return result


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Parts, vectors: Tensor, scales: Tensor, num_receivers: int) -> Tensor:
        ctx.parts = parts
        ctx.save_for_backward(vectors, scales)
        return torch.from_numpy(_summed(parts, num_receivers, _array(vectors), _array(scales)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        of_vectors, of_scales = _gradients(ctx.parts, *map(_array, (*ctx.saved_tensors, gradients[0])))
        return None, torch.from_numpy(of_vectors), torch.from_numpy(of_scales), None


def sums_of_pairs(messages: Messages, vectors: Tensor, scales: Tensor, num_receivers: int) -> Tensor:
    """(receivers, d): the sums of messages between pairs of entity and query, by their places."""
    parts = (NO_OFFSETS, messages), NO_PART, NO_PART
    result: Tensor = _MessageSums.apply(parts, vectors[:, None], scales, num_receivers)  # type: ignore[no-untyped-call]
    return result[:, 0]


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
    sender, inverse = picked.row_ids, (edges.relations[numbers] + edges.num_relations) % len(scales)
    messages = vectors[sender] * scales[inverse] * edges.weights[numbers][:, None]
    return Pairs(picked.columns, queries[sender], messages)


class Frontier(NamedTuple):
    """The pairs of entity and query that messages reach, and the messages, by their places among these pairs."""

    entities: Ids  # (pairs,)
    queries: Ids  # (pairs,)
    within: Ids  # (layers + 1,): how many pairs are at most so many edges from their source
    messages: Messages
    sent: Ids  # (layers,): how many of the messages each layer has

    def message_sums(self, layer: int, vectors: Tensor, scales: Tensor) -> Tensor:
        """(pairs, d): for each pair that this layer reaches the sum of its messages."""
        receivers, senders, relations, weights = self.messages
        sent, reached = self.sent[layer], int(self.within[layer + 1])
        messages = Messages(receivers[:sent], senders[:sent], relations[:sent], weights[:sent])
        return sums_of_pairs(messages, vectors, scales, reached)


def find_frontier(parts: Sequence[PropagationEdges], sources: Ids, layers: int, num_entities: int) -> Frontier:
    """All pairs that messages from the sources, one of each query, reach in so many layers."""
    found = _walk(_compiled(parts), parts[0].silent, sources, layers, num_entities, parts[0].num_relations)
    pairs, sent = (table.T for table in found)
    order = np.argsort(pairs[2], kind="stable")
    within = np.cumsum(np.bincount(pairs[2], minlength=layers + 1)).astype(np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    senders = place[sent[1]]
    by_sender = np.argsort(senders, kind="stable")
    senders, weights = senders[by_sender], np.ones(len(senders), dtype=np.float32)
    messages = Messages(place[sent[0]][by_sender], senders, sent[2][by_sender], weights)
    of_layers = np.searchsorted(senders, within[:layers]).astype(np.int64)
    return Frontier(pairs[0][order], pairs[1][order], within, messages, of_layers)


def distances(parts: Sequence[PropagationEdges], source: int, layers: int, num_entities: int) -> Ids:
    """(entities,): how many edges each is from the source; ``layers + 1`` of all that are further away."""
    sources = np.array([source], dtype=np.int64)
    pairs, _ = _walk(_compiled(parts), parts[0].silent, sources, layers, num_entities, parts[0].num_relations)
    found = np.full(num_entities, layers + 1, dtype=np.int64)
    found[pairs[:, 0]] = pairs[:, 2]
    return found


def _compiled(parts: Sequence[PropagationEdges]) -> Parts:
    """The parts for compiled loops, which take `MAX_PARTS` of them: the rest are empty."""
    found = [(_array(one.rows.offsets), one.messages) for one in parts]
    first, second, third = found + [NO_PART] * (MAX_PARTS - len(parts))
    return first, second, third


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


@compiled
def _summed(parts: Parts, num_receivers: int, vectors: Floats, scales: Floats) -> Floats:
    queries, size = vectors.shape[1], vectors.shape[2]
    sums = np.zeros((num_receivers, queries, size), dtype=np.float32)  # made here: so it is none of the tables read
    for _, (receivers, senders, relations, weights) in parts:
        for message in range(len(receivers)):
            receiver, sender = receivers[message], senders[message]
            relation, weight = relations[message], weights[message]
            if weight == 0.0:
                continue
            for query in range(queries):
                for i in range(size):
                    sums[receiver, query, i] += weight * scales[relation, i] * vectors[sender, query, i]
    return sums


@compiled
def _gradients(parts: Parts, vectors: Floats, scales: Floats, gradient: Floats) -> tuple[Floats, Floats]:
    """The gradients of the vectors and of the scales, by that of the sums."""
    queries, size = vectors.shape[1], vectors.shape[2]
    of_vectors, of_scales = np.zeros_like(vectors), np.zeros_like(scales)
    for _, (receivers, senders, relations, weights) in parts:
        for message in range(len(receivers)):
            receiver, sender = receivers[message], senders[message]
            relation, weight = relations[message], weights[message]
            if weight == 0.0:
                continue
            for query in range(queries):
                for i in range(size):
                    slope = weight * gradient[receiver, query, i]
                    of_vectors[sender, query, i] += slope * scales[relation, i]
                    of_scales[relation, i] += slope * vectors[sender, query, i]
    return of_vectors, of_scales


@compiled
def _walk(
    parts: Parts, silent: Bools, sources: Ids, layers: int, num_entities: int, num_relations: int
) -> tuple[Ids, Ids]:
    """(pairs, 3): entity, query and distance from its source; (messages, 3): receiver and sender, as places among these
    pairs, and the relation as the receiver sees it. Query by query, nearest first.
    """
    place_of = np.full(num_entities, -1, dtype=np.int64)
    pairs, messages = np.empty((64, 3), dtype=np.int64), np.empty((64, 3), dtype=np.int64)
    count = sent = 0
    for query in range(len(sources)):
        first = sender = count  # smaller places are of other queries
        pairs = with_room(pairs, count, count + 1)
        pairs[count, 0], pairs[count, 1], pairs[count, 2] = sources[query], query, 0
        place_of[sources[query]] = count
        count += 1
        while sender < count and pairs[sender, 2] < layers:
            entity, distance = pairs[sender, 0], pairs[sender, 2]
            if entity < len(silent) and silent[entity]:
                sender += 1
                continue
            for offsets, (_, neighbors, relations, weights) in parts:
                if entity >= len(offsets) - 1:
                    continue
                for edge in range(offsets[entity], offsets[entity + 1]):
                    if weights[edge] == 0.0:
                        continue
                    other = neighbors[edge]
                    if place_of[other] < first:
                        pairs = with_room(pairs, count, count + 1)
                        pairs[count, 0], pairs[count, 1], pairs[count, 2] = other, query, distance + 1
                        place_of[other] = count
                        count += 1
                    messages = with_room(messages, sent, sent + 1)
                    messages[sent, 0], messages[sent, 1] = place_of[other], sender
                    messages[sent, 2] = (relations[edge] + num_relations) % (2 * num_relations)
                    sent += 1
            sender += 1
    return pairs[:count], messages[:sent]
