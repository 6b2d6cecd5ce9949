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

MOST = 0.5  # share of the entities: of more, all are worked on
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
        query_vector, reached = network.queries[query], torch.tensor([source])
        vectors, others = torch.zeros(size, DIM), torch.zeros(DIM)  # what all have that no message has reached
        vectors[source] = query_vector
        for layer, scales in enumerate(self.scales):
            spreads = layer < 2 or network.is_sparse
            if spreads:
                values = (vectors[reached] - others).numpy()
                found, met = _sent(known.parts, reached.numpy(), values, scales, size)
                reached = torch.from_numpy(np.flatnonzero(met))
            else:
                found = _received(known.parts, vectors.numpy(), scales, size)
            sums = torch.from_numpy(found)
            sums[source] += query_vector
            if layer == 1 and known.background is not None:
                sums += known.background
            gate = network.gate(layer, query_vector)
            if layer == 0 or (network.is_sparse and len(reached) < MOST * size):
                after = network.changed(layer, vectors[reached], sums[reached] * gate, known.degrees[reached])
                vectors = self.unreached.repeat(size, 1).index_copy_(0, reached, after)
            else:  # which takes less time than to pick out those that are reached
                vectors = network.changed(layer, vectors, sums.mul_(gate), known.degrees)
                if network.is_sparse:
                    vectors[torch.from_numpy(~met)] = 0.0
            others = self.unreached
        return self._readout(vectors, reached, query_vector)

    def _readout(self, vectors: Tensor, reached: Tensor, query_vector: Tensor) -> Tensor:
        """(entities,): the scores; to the bit the same of all that messages have not reached in a sparse network."""
        network = self.network
        of_query = network.of_query(query_vector[None])
        inner = torch.addmm(of_query, vectors, network.first.weight[:, :DIM].T)
        scores = torch.mv(torch.relu_(inner), network.last[0])
        if not network.is_sparse:
            return scores
        return network.unreached_scores(of_query).repeat(len(scores)).index_copy_(0, reached, scores[reached])


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
def _sent(parts: Parts, senders: Ids, values: Floats, scales: Floats, num_entities: int) -> tuple[Floats, Mask]:
    """(entities, d): the sums of the messages of some senders with ``values`` (senders, d), and whom these reach."""
    size = values.shape[1]
    sums, reached = np.zeros((num_entities, size), dtype=np.float32), np.zeros(num_entities, dtype=np.bool_)
    for place in range(len(senders)):
        sender = senders[place]
        reached[sender] = True
        for part in parts:
            if sender + 1 >= len(part.offsets):
                continue
            for entry in range(part.offsets[sender], part.offsets[sender + 1]):
                receiver, kind = part.neighbors[entry], part.sent[entry]
                if kind < 0:
                    continue
                reached[receiver] = True
                for i in range(size):
                    sums[receiver, i] += scales[kind, i] * values[place, i]
    return sums, reached
