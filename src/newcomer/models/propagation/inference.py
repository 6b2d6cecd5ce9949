"""Propagation for one query on a CPU, without gradients: the scores of `newcomer.models.propagation.network`, sooner.

Far from the source a query has changed little: after the first step only the neighbours of the source differ from a
vector ``c`` that all others have (zero in a sparse network), after the second only what these lead to. So messages are
sent from those that differ, and what they differ by:

    sum over edges (v, r, u) of w_r * h_u  =  (sum over edges of w_r) * c  +  sum over such u of w_r * (h_u - c)

whose first part, the *background*, is the same for all queries. In a sparse network that is all, step by step. In a
dense one everyone differs after the second step, and messages are summed up receiver by receiver.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from newcomer.graph import Mask
from newcomer.models.propagation.edges import Floats, Ids, PropagationEdges
from newcomer.models.propagation.merged import MergedEdges, Part, plain_part
from newcomer.models.propagation.network import DIM, Propagation
from newcomer.rules.compiled import compiled

Parts = tuple[Part, Part]
NO_IDS = np.empty(0, dtype=np.int32)
NO_PART = Part(np.zeros(1, dtype=np.int64), NO_IDS, NO_IDS, NO_IDS)


class KnownEdges(NamedTuple):
    """What messages go along: the base, and the facts since then; and what follows from them for all queries."""

    parts: Parts
    degrees: Tensor  # (entities,): one more than each has edges
    background: Tensor | None  # (entities, d): the sums of the second step where nobody was reached; of a dense network


class QueryPropagation:
    """A trained network over the edges of a base, asked query by query."""

    def __init__(self, network: Propagation, base: PropagationEdges) -> None:
        self.network, self.base = network, MergedEdges.of(base)
        with torch.no_grad():
            self.scales = [self.base.scales(one) for one in network.scales]
            self.unreached = torch.zeros(DIM) if network.is_sparse else network.unreached()
        self.is_silent = np.zeros(base.rows.width, dtype=np.bool_)
        self.is_silent[: len(base.silent)] = base.silent
        self._whole = self._known(*self.base.without(np.zeros(base.rows.width, dtype=np.bool_)))

    def known(self, removed: Mask, delta: PropagationEdges | None) -> KnownEdges:
        """The base without what is about removed entities, and more edges; ``removed`` (entities,) tells how many."""
        base = self._known(*self.base.without(removed)) if removed.any() else self._whole
        if delta is None:
            return base
        more = plain_part(delta)
        degrees, background = np.ones(len(removed), dtype=np.float32), None
        degrees[: len(base.degrees)] = base.degrees
        degrees[: len(more.offsets) - 1] += np.diff(more.offsets)
        if base.background is not None:
            background = self._background(more, len(removed))
            background[: len(base.background)] += base.background
        return KnownEdges((base.parts[0], more), torch.from_numpy(degrees), background)

    def _known(self, part: Part, degrees: Floats) -> KnownEdges:
        background = None if self.network.is_sparse else self._background(part, len(degrees))
        return KnownEdges((part, NO_PART), torch.from_numpy(degrees + 1), background)

    def _background(self, part: Part, num_entities: int) -> Tensor:
        vectors = self.unreached.repeat(num_entities, 1).numpy()
        return torch.from_numpy(_received((part, NO_PART), vectors, self.scales[1], num_entities))

    def scores(self, known: KnownEdges, source: int, query: int) -> Tensor:
        """(entities,): everyone as an answer to (source, oriented relation, ?)."""
        network, size = self.network, len(known.degrees)
        query_vector = network.queries[query]
        # Those whose vectors differ from ``others``, ascending, and these vectors; the source is always among them.
        reached, vectors, others = np.array([source]), query_vector[None], torch.zeros(DIM)
        for layer, scales in enumerate(self.scales):
            if len(reached) == size and not network.is_sparse:
                sums = torch.from_numpy(_received(known.parts, vectors.numpy(), scales, size))
            else:
                before, values = reached, (vectors - others).numpy()
                found, reached = _sent(known.parts, self.is_silent, before, values, scales, size)
                sums, places = torch.from_numpy(found), torch.from_numpy(np.searchsorted(reached, before))
                vectors = _copies(others, len(reached)).index_copy_(0, places, vectors)
            if layer == 1 and known.background is not None:
                there, reached = torch.from_numpy(reached), np.arange(size)
                sums = known.background.index_add(0, there, sums)
                vectors = _copies(others, size).index_copy_(0, there, vectors)
            sums[np.searchsorted(reached, source)] += query_vector
            gated = sums.mul_(network.gate(layer, query_vector))
            vectors = network.changed(layer, vectors, gated, known.degrees[torch.from_numpy(reached)])
            others = self.unreached
        return self._readout(torch.from_numpy(reached), vectors, query_vector, size)

    def _readout(self, reached: Tensor, vectors: Tensor, query_vector: Tensor, size: int) -> Tensor:
        """(entities,): the scores; to the bit the same of all that messages have not reached in a sparse network."""
        network = self.network
        of_query = network.of_query(query_vector[None])
        inner = torch.addmm(of_query, vectors, network.first.weight[:, :DIM].T)
        scores = torch.mv(torch.relu_(inner), network.last[0])
        return _copies(network.unreached_scores(of_query)[0], size).index_copy_(0, reached, scores)


def _copies(row: Tensor, count: int) -> Tensor:
    """(count, ...): a row so many times, which takes a seventh of what `Tensor.repeat` does."""
    return row.new_empty(count, *row.shape).copy_(row)


@compiled
def _received(parts: Parts, vectors: Floats, scales: Floats, num_entities: int) -> Floats:
    """(entities, d): the sums of all messages, receiver by receiver."""
    size = vectors.shape[1]
    sums = np.zeros((num_entities, size), dtype=np.float32)  # made here: so it is none of the tables read
    for part in parts:
        for row in range(len(part.offsets) - 1):
            for entry in range(part.offsets[row], part.offsets[row + 1]):
                sender, kind = part.neighbors[entry], part.received[entry]
                if kind < 0:
                    continue
                for i in range(size):
                    sums[row, i] += scales[kind, i] * vectors[sender, i]
    return sums


@compiled
def _sent(
    parts: Parts, is_silent: Mask, senders: Ids, values: Floats, scales: Floats, num_entities: int
) -> tuple[Floats, Ids]:
    """The sums of the messages of some senders with ``values`` (senders, d), and whom these reach, ascending: the
    senders and their neighbours. Silent ones send nothing.
    """
    met = np.zeros(num_entities, dtype=np.bool_)
    for sender in senders:
        met[sender] = True
        if sender < len(is_silent) and is_silent[sender]:
            continue
        for part in parts:
            if sender + 1 < len(part.offsets):
                for entry in range(part.offsets[sender], part.offsets[sender + 1]):
                    met[part.neighbors[entry]] |= part.sent[entry] >= 0
    reached = np.flatnonzero(met)
    places, size = np.empty(num_entities, dtype=np.int32), values.shape[1]
    places[reached] = np.arange(len(reached))
    sums = np.zeros((len(reached), size), dtype=np.float32)
    for place in range(len(senders)):
        sender = senders[place]
        if sender < len(is_silent) and is_silent[sender]:
            continue
        for part in parts:
            if sender + 1 >= len(part.offsets):
                continue
            for entry in range(part.offsets[sender], part.offsets[sender + 1]):
                kind = part.sent[entry]
                if kind >= 0:
                    receiver = places[part.neighbors[entry]]
                    for i in range(size):
                        sums[receiver, i] += scales[kind, i] * values[place, i]
    return sums, reached
