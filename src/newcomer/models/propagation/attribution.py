"""The chains of facts that an answer of `newcomer.models.propagation.network` rests on.

The message along an edge (v, r, u) in a layer is ``w_r * h_u``. With ``G_v``, the gradient of the answer's log
probability by the sum of messages at v, the importance of the edge is

    G_v . (w_r * h_u)

A chain leads from the source of a query to the answer, no entity twice. Those of the highest mean importance are
searched for layer by layer. What each is worth is then not estimated but measured: by how much the log probability
falls when its facts are masked.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.models.device import one_thread
from newcomer.models.propagation.cpu import distances
from newcomer.models.propagation.edges import Floats, Ids, PropagationEdges
from newcomer.models.propagation.network import DIM, Propagation, message_sums, over_all
from newcomer.rules.compiled import compiled

MAX_CANDIDATES = 6  # chains whose facts are masked in turn; as many are kept that lead to any other entity
MAX_CHAINS = 3
MIN_LOSS = 0.005  # a smaller one would read as 0.00
Doubles = npt.NDArray[np.float64]
Fact = tuple[int, int, int]  # head, relation, tail


class Question(NamedTuple):
    """An answer to (source, oriented relation, ?), among so many entities, the first of which are seen."""

    source: int
    query: int
    answer: int
    num_entities: int
    num_seen: int  # probabilities are a softmax over these


class Chain(NamedTuple):
    """Facts that lead from the source to the answer, and by how much its log probability falls without them."""

    facts: tuple[Fact, ...]
    loss: float


class Trace(NamedTuple):
    """What a query's layers start from, and the gradients of the answer's log probability."""

    vectors: list[Tensor]  # (entities, d) each: before every layer
    gradients: list[Tensor]  # (entities, d) each: by the sums of messages of every layer
    log_probabilities: Tensor  # (entities,): what comes of it


class Messages(NamedTuple):
    """Edges by their ends, and the relation as the receiver sees it."""

    senders: Ids
    receivers: Ids
    relations: Ids


class _Best(NamedTuple):
    """The best chains to every entity so far, best first."""

    lengths: Ids  # (entities, kept): -1 where there is none
    totals: Doubles  # (entities, kept): the sum of their importances
    edges: Ids  # (entities, kept, layers)


def attributed_chains(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> list[Chain]:
    """The chains without which the answer's probability falls, the greatest losses first.

    Of those along the same entities, by other facts between them, the first is given.
    """
    if network.scales.is_cuda:  # there are few queries, which a CPU can answer as well
        network, parts = deepcopy(network).cpu(), [one.on(torch.device("cpu")) for one in parts]
    with one_thread():
        candidates = candidate_chains(network, parts, question)
        if not candidates:
            return []
        whole = log_probability(network, parts, question)
        chains = [
            Chain(facts, whole - log_probability(network, without(parts, facts), question)) for facts in candidates
        ]
    found: dict[tuple[frozenset[int], ...], Chain] = {}
    for one in sorted(chains, key=lambda one: (-one.loss, one.facts)):
        if one.loss > MIN_LOSS:
            found.setdefault(tuple(frozenset((head, tail)) for head, _, tail in one.facts), one)
    return list(found.values())[:MAX_CHAINS]


def log_probability(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> float:
    """The answer's, by a softmax over all seen entities."""
    with torch.no_grad():
        query = torch.tensor([question.source]), torch.tensor([question.query])
        scores = network(parts, *query, question.num_entities)[0]
        return float(_log_probabilities(scores, question)[question.answer])


def without(parts: Sequence[PropagationEdges], facts: Sequence[Fact]) -> list[PropagationEdges]:
    """The edges with those of some facts masked, from both of their ends."""
    return [_without(one, facts) for one in parts]


def _without(edges: PropagationEdges, facts: Sequence[Fact]) -> PropagationEdges:
    weights, size = edges.weights.clone(), edges.num_relations
    for head, relation, tail in facts:
        for row, oriented, column in ((head, relation, tail), (tail, relation + size, head)):
            if row < edges.rows.num_rows:
                own = slice(*edges.rows.offsets[row : row + 2].tolist())
                weights[own][(edges.rows.columns[own] == column) & (edges.relations[own] == oriented)] = 0.0
    return replace(edges, weights=weights)


def traced(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> Trace:
    """The query with all entities in all layers; in a sparse network those not yet reached are zero."""
    count, source = question.num_entities, torch.tensor([question.source])
    distance = torch.from_numpy(distances(parts, question.source, network.layers, count))
    with torch.enable_grad():
        query_vectors = network.queries[[question.query]].detach()
        vectors = [query_vectors.new_zeros(count, 1, DIM).index_put((source, torch.tensor([0])), query_vectors)]
        added = [torch.zeros_like(vectors[0], requires_grad=True) for _ in range(network.layers)]  # for their gradients
        degrees, sending = 1 + over_all([one.degrees for one in parts], count), _sending(parts, count)
        for layer in range(network.layers):
            sums = message_sums(parts, vectors[-1] * sending, network.scales[layer], count) + added[layer]
            after = network.updated(layer, vectors[-1], sums, source, query_vectors, degrees)
            vectors.append(after * (distance <= layer + 1)[:, None, None] if network.is_sparse else after)
        found = _log_probabilities(network.readout(vectors[-1], query_vectors)[0], question)
        gradients = torch.autograd.grad(found[question.answer], added)
    return Trace([one.detach()[:, 0] for one in vectors[:-1]], [one[:, 0] for one in gradients], found.detach())


def _sending(parts: Sequence[PropagationEdges], count: int) -> Tensor:
    """(entities, 1, 1): 1, or 0 of those that send no messages."""
    found, silent = torch.ones(count, 1, 1), torch.from_numpy(parts[0].silent)[:count]
    found[: len(silent)][silent] = 0.0
    return found


def importances(network: Propagation, trace: Trace, layer: int, messages: Messages) -> Floats:
    """(messages,): the importance of each edge in a layer."""
    tables = trace.vectors[layer], network.scales[layer].detach(), trace.gradients[layer]
    found: Floats = _importances(*messages, *(one.contiguous().numpy() for one in tables))
    return found


def messages_along(parts: Sequence[PropagationEdges]) -> Messages:
    """Those along all edges that are not masked; the row of an edge sends, and its neighbour receives."""
    size, columns = parts[0].num_relations, []
    for one in parts:
        oriented = (one.relations + size) % (2 * size)
        senders = one.rows.row_ids
        used = (one.weights != 0) & (_sending(parts, one.rows.num_rows)[senders, 0, 0] > 0)
        columns.append(torch.stack([senders, one.rows.columns, oriented])[:, used])
    return Messages(*torch.cat(columns, dim=1).numpy())


def candidate_chains(
    network: Propagation, parts: Sequence[PropagationEdges], question: Question
) -> list[tuple[Fact, ...]]:
    """The chains to the answer of the highest mean importance, best first."""
    count, source, answer, layers = question.num_entities, question.source, question.answer, network.layers
    done = distances(parts, source, layers, count)
    left = distances([replace(one, silent=one.silent[:0]) for one in parts], answer, layers, count)  # a hub may be told
    if source == answer or done[answer] > layers:
        return []
    messages, trace = messages_along(parts), traced(network, parts, question)
    best = _start(count, source, layers)
    for layer in range(layers):
        useful = (done[messages.senders] <= layer) & (left[messages.receivers] < layers - layer)
        edges = np.flatnonzero(useful & (messages.senders != answer))
        gains = importances(network, trace, layer, Messages(*(column[edges] for column in messages)))
        best = _Best(*_extended(messages.senders, messages.receivers, edges, gains, source, *best))
    found = zip(best.lengths[answer].tolist(), best.edges[answer].tolist(), strict=True)
    size = parts[0].num_relations
    return [tuple(_fact(messages, edge, size) for edge in chain[:length]) for length, chain in found if length > 0]


def _fact(messages: Messages, edge: int, num_relations: int) -> Fact:
    """The fact of an edge, as it was stated."""
    sender, receiver, relation = (int(column[edge]) for column in messages)
    if relation < num_relations:
        return receiver, relation, sender
    return sender, relation - num_relations, receiver


def _log_probabilities(scores: Tensor, question: Question) -> Tensor:
    return scores - torch.logsumexp(scores[: question.num_seen], dim=0)


def _start(num_entities: int, source: int, layers: int) -> _Best:
    """A chain to the source alone, of no edge."""
    lengths = np.full((num_entities, MAX_CANDIDATES), -1, dtype=np.int64)
    lengths[source, 0] = 0
    return _Best(lengths, np.zeros(lengths.shape), np.full((*lengths.shape, layers), -1, dtype=np.int64))


@compiled
def _importances(
    senders: Ids, receivers: Ids, relations: Ids, vectors: Floats, scales: Floats, gradients: Floats
) -> Floats:
    found = np.zeros(len(senders), dtype=np.float32)
    for edge in range(len(senders)):
        sender, receiver, relation = senders[edge], receivers[edge], relations[edge]
        for i in range(vectors.shape[1]):
            found[edge] += gradients[receiver, i] * scales[relation, i] * vectors[sender, i]
    return found


@compiled
def _extended(
    senders: Ids, receivers: Ids, edges: Ids, gains: Floats, source: int, lengths: Ids, totals: Doubles, chains: Ids
) -> tuple[Ids, Doubles, Ids]:
    """The best chains after another layer, in which each goes along one of the edges, or stays."""
    further = lengths.copy(), totals.copy(), chains.copy()
    for place in range(len(edges)):
        sender, receiver = senders[edges[place]], receivers[edges[place]]
        if receiver == source:
            continue
        for kept in range(lengths.shape[1]):
            length = lengths[sender, kept]
            if length < 0:
                break
            chain = chains[sender, kept].copy()
            if np.any(receivers[chain[:length]] == receiver):
                continue
            chain[length] = edges[place]
            own = further[0][receiver], further[1][receiver], further[2][receiver]
            _insert(length + 1, totals[sender, kept] + gains[place], chain, *own)
    return further


@compiled
def _insert(length: int, total: float, chain: Ids, lengths: Ids, totals: Doubles, chains: Ids) -> None:
    """Put a chain in its place by its mean importance; the same one, found in other layers, counts once."""
    last = len(lengths) - 1
    for place in range(len(lengths)):
        if np.all(chains[place] == chain):
            last = place
            break
    if lengths[last] >= 0 and totals[last] / lengths[last] >= total / length:
        return
    while last > 0 and (lengths[last - 1] < 0 or totals[last - 1] / lengths[last - 1] < total / length):
        lengths[last], totals[last], chains[last] = lengths[last - 1], totals[last - 1], chains[last - 1]
        last -= 1
    lengths[last], totals[last], chains[last] = length, total, chain
