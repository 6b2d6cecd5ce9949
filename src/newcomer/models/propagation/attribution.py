"""Along which facts the paths go that lead to an answer (`newcomer.models.propagation.network`).

What an edge (v, r, u) hands on in a layer is ``w_r * h_u``. With ``G_v``, the slope of the answer's log share by what v
is told there, the edge matters by

    G_v . (w_r * h_u)

A *way* is a chain of facts from the entity asked about to the answer, no entity twice. Those whose edges matter most
are looked for layer by layer. How much each is worth is then not estimated but asked: by how much the log share falls
when its facts are hidden.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.models.propagation.frontier import steps_from
from newcomer.models.propagation.network import DIM, LAYERS, Propagation, PropagationEdges, handed_on_by_all, over_all
from newcomer.models.sparse import Rows
from newcomer.models.threads import one_thread

TRIED = 6  # ways whose facts are hidden in turn; as many are kept of those that lead to anyone else
TOLD = 3
LEAST = 0.005  # a smaller loss would read as 0.00
Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]
Fact = tuple[int, int, int]  # head, relation, tail


class Question(NamedTuple):
    """An answer to (source, oriented relation, ?), among so many entities, of whom the first are seen."""

    source: int
    query: int
    answer: int
    num_entities: int
    num_seen: int  # in the softmax over these the answer has its share


class Chain(NamedTuple):
    """Facts that lead from the source to the answer, and by how much its log share falls without them."""

    facts: tuple[Fact, ...]
    loss: float


class Trace(NamedTuple):
    """A question on its way through the layers."""

    vectors: list[Tensor]  # (entities, d) each: before every layer
    slopes: list[Tensor]  # (entities, d) each: of the answer's log share, by what everyone is told in every layer
    shares: Tensor  # (entities,): what comes of it


class Edges(NamedTuple):
    """Edges as messages: who tells whom, and the relation as the receiver sees it."""

    tellers: Ids
    receivers: Ids
    relations: Ids


class _Kept(NamedTuple):
    """The best ways to everyone so far, best first."""

    lengths: Ids  # (entities, kept): -1 where there is none
    totals: npt.NDArray[np.float64]  # (entities, kept): how much their edges matter
    trails: Ids  # (entities, kept, layers): numbers of edges


def attributed_chains(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> list[Chain]:
    """Ways to the answer without which it would have less, those first that it would miss most.

    Of those along the same entities, by other facts between them, the first is told.
    """
    if network.scales.is_cuda:  # a few questions, which a processor can be asked as well
        network, parts = deepcopy(network).cpu(), [_on_processor(one) for one in parts]
    with one_thread():
        chains = candidates(network, parts, question)
        if not chains:
            return []
        whole = share(network, parts, question)
        ways = [Chain(facts, whole - share(network, without(parts, facts), question)) for facts in chains]
    missed = sorted((one for one in ways if one.loss > LEAST), key=lambda one: (-one.loss, one.facts))
    told: dict[tuple[frozenset[int], ...], Chain] = {}
    for one in missed:
        told.setdefault(_along(one), one)
    return list(told.values())[:TOLD]


def _along(way: Chain) -> tuple[frozenset[int], ...]:
    """The pairs of entities that its facts tie."""
    return tuple(frozenset((head, tail)) for head, _, tail in way.facts)


def share(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> float:
    """The answer's log share in the softmax over all seen entities."""
    with torch.no_grad():
        asked = torch.tensor([question.source]), torch.tensor([question.query])
        return float(_shares(network(parts, *asked, question.num_entities)[0], question)[question.answer])


def without(parts: Sequence[PropagationEdges], facts: Sequence[Fact]) -> list[PropagationEdges]:
    """The edges without those of some facts, which are hidden from both of their ends."""
    return [_without(one, facts) for one in parts]


def _without(edges: PropagationEdges, facts: Sequence[Fact]) -> PropagationEdges:
    weights, size = edges.weights.clone(), edges.num_relations
    for head, relation, tail in facts:
        for row, along, column in ((head, relation, tail), (tail, relation + size, head)):
            if row < edges.rows.num_rows:
                own = slice(*edges.rows.offsets[row : row + 2].tolist())
                weights[own][(edges.rows.columns[own] == column) & (edges.relations[own] == along)] = 0.0
    return replace(edges, weights=weights)


def traced(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> Trace:
    """The question asked with everyone's vectors in sight; whom a silent network has nothing of, they are zero."""
    count, source = question.num_entities, torch.tensor([question.source])
    steps = torch.from_numpy(steps_from(parts, question.source, LAYERS, count))
    with torch.enable_grad():
        asked = network.queries[[question.query]].detach()
        vectors = [asked.new_zeros(count, 1, DIM).index_put((source, torch.tensor([0])), asked)]
        added = [torch.zeros_like(vectors[0], requires_grad=True) for _ in range(LAYERS)]  # for their slopes
        sizes = 1 + over_all([one.sizes for one in parts], count)
        for layer in range(LAYERS):
            sums = handed_on_by_all(parts, vectors[-1], network.scales[layer], count) + added[layer]
            after = network.after(layer, vectors[-1], sums, source, asked, sizes)
            vectors.append(after * (steps <= layer + 1)[:, None, None] if network.is_silent else after)
        shares = _shares(network.scored(vectors[-1], asked)[0], question)
        slopes = torch.autograd.grad(shares[question.answer], added)
    return Trace([one.detach()[:, 0] for one in vectors[:-1]], [one[:, 0] for one in slopes], shares.detach())


def importances(network: Propagation, trace: Trace, layer: int, edges: Edges) -> Numbers:
    """(edges,): how much each edge matters in a layer."""
    tables = trace.vectors[layer], network.scales[layer].detach(), trace.slopes[layer]
    found: Numbers = _importances(*edges, *(one.contiguous().numpy() for one in tables))
    return found


def messages(parts: Sequence[PropagationEdges]) -> Edges:
    """All edges that are not hidden; those of a row go from who has it to its neighbours."""
    shown = [one.weights != 0 for one in parts]
    size = parts[0].num_relations
    columns = [
        torch.cat([part[kept] for part, kept in zip(column, shown, strict=True)]).numpy()
        for column in (
            [one.rows.row_ids() for one in parts],
            [one.rows.columns for one in parts],
            [(one.relations + size) % (2 * size) for one in parts],
        )
    ]
    return Edges(*columns)


def candidates(network: Propagation, parts: Sequence[PropagationEdges], question: Question) -> list[tuple[Fact, ...]]:
    """The ways to the answer whose edges matter most on average, best first."""
    count, source, answer = question.num_entities, question.source, question.answer
    come, left = (steps_from(parts, end, LAYERS, count) for end in (source, answer))
    if source == answer or come[answer] > LAYERS:
        return []
    edges, trace = messages(parts), traced(network, parts, question)
    kept = _at_first(count, source)
    for layer in range(LAYERS):
        leading = (come[edges.tellers] <= layer) & (left[edges.receivers] < LAYERS - layer)
        numbers = np.flatnonzero(leading & (edges.tellers != answer))
        gains = importances(network, trace, layer, Edges(*(column[numbers] for column in edges)))
        kept = _Kept(*_led_on(edges.tellers, edges.receivers, numbers, gains, source, *kept))
    found = zip(kept.lengths[answer].tolist(), kept.trails[answer].tolist(), strict=True)
    size = parts[0].num_relations
    return [tuple(_fact(edges, number, size) for number in trail[:length]) for length, trail in found if length > 0]


def _fact(edges: Edges, number: int, num_relations: int) -> Fact:
    """The fact of an edge, as it was stated."""
    teller, receiver, relation = (int(column[number]) for column in edges)
    if relation < num_relations:
        return receiver, relation, teller
    return teller, relation - num_relations, receiver


def _shares(scores: Tensor, question: Question) -> Tensor:
    return scores - torch.logsumexp(scores[: question.num_seen], dim=0)


def _on_processor(edges: PropagationEdges) -> PropagationEdges:
    rows = Rows(edges.rows.offsets.cpu(), edges.rows.columns.cpu(), edges.rows.width)
    return PropagationEdges(rows, edges.relations.cpu(), edges.weights.cpu(), edges.num_relations)


def _at_first(num_entities: int, source: int) -> _Kept:
    """Nobody but the source is come to, and that by no edge."""
    lengths = np.full((num_entities, TRIED), -1, dtype=np.int64)
    lengths[source, 0] = 0
    return _Kept(lengths, np.zeros(lengths.shape), np.full((*lengths.shape, LAYERS), -1, dtype=np.int64))


@numba.njit(nogil=True, cache=True)
def _importances(
    tellers: Ids, receivers: Ids, relations: Ids, vectors: Numbers, scales: Numbers, slopes: Numbers
) -> Numbers:
    found = np.zeros(len(tellers), dtype=np.float32)
    for edge in range(len(tellers)):
        teller, receiver, relation = tellers[edge], receivers[edge], relations[edge]
        for one in range(vectors.shape[1]):
            found[edge] += slopes[receiver, one] * scales[relation, one] * vectors[teller, one]
    return found


@numba.njit(nogil=True, cache=True)
def _led_on(
    tellers: Ids,
    receivers: Ids,
    numbers: Ids,
    gains: Numbers,
    source: int,
    lengths: Ids,
    totals: npt.NDArray[np.float64],
    trails: Ids,
) -> tuple[Ids, npt.NDArray[np.float64], Ids]:
    """The best ways after another layer, in which each goes along one of the numbered edges, or stays."""
    further = lengths.copy(), totals.copy(), trails.copy()
    for place in range(len(numbers)):
        edge = numbers[place]
        teller, receiver = tellers[edge], receivers[edge]
        if receiver == source:
            continue
        for kept in range(lengths.shape[1]):
            length = lengths[teller, kept]
            if length < 0:
                break
            trail = trails[teller, kept].copy()
            if np.any(receivers[trail[:length]] == receiver):
                continue
            trail[length] = edge
            own = further[0][receiver], further[1][receiver], further[2][receiver]
            _insert(length + 1, totals[teller, kept] + gains[place], trail, *own)
    return further


@numba.njit(nogil=True, cache=True)
def _insert(length: int, total: float, trail: Ids, lengths: Ids, totals: npt.NDArray[np.float64], trails: Ids) -> None:
    """Put a way where it belongs by the mean of its edges; the same one, taken in other layers, counts once."""
    last = len(lengths) - 1
    for place in range(len(lengths)):
        if np.all(trails[place] == trail):
            last = place
            break
    if lengths[last] >= 0 and totals[last] / lengths[last] >= total / length:
        return
    while last > 0 and (lengths[last - 1] < 0 or totals[last - 1] / lengths[last - 1] < total / length):
        lengths[last], totals[last], trails[last] = lengths[last - 1], totals[last - 1], trails[last - 1]
        last -= 1
    lengths[last], totals[last], trails[last] = length, total, trail
