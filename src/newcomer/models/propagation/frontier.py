"""`newcomer.models.propagation.network` for networks that are silent: whoever no path has come to yet says nothing.

    h_v = 0 until an edge leads to v from somebody who has heard of the question

So a layer is worked out for those pairs of entity and question alone that paths of so many edges lead to, and everyone
else has the same score. In a sparse graph these are a few hundred of many thousands, which a processor manages in
milliseconds. In a dense one they are nearly everyone, and this way is the slower one.

Pairs stand in the order in which they are come to: first those asked about, then whoever is one edge away, and so on.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from newcomer.models.propagation.network import PropagationEdges

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]


class Reached(NamedTuple):
    """Whom the paths of some questions come to, and what is told along them."""

    entities: Ids  # (pairs,)
    questions: Ids  # (pairs,)
    within: Ids  # (layers + 1,): pairs that at most so many edges lead to
    tellers: Ids  # (messages,): places among the pairs
    receivers: Ids
    relations: Ids  # (messages,): the relation as the receiver sees it
    told: Ids  # (layers,): messages of each layer, which all later ones have, too


def reached(parts: Sequence["PropagationEdges"], sources: Ids, layers: int, num_entities: int) -> Reached:
    """Everyone whom paths from the sources, a question each, come to along the edges of at most two parts."""
    first, second = [one.arrays for one in parts] + [no_edges()] * (2 - len(parts))
    half = parts[0].num_relations
    entities, questions, steps = _walk(*first, *second, sources, layers, num_entities)
    order = np.argsort(steps, kind="stable")
    entities, questions = entities[order], questions[order]
    within = np.cumsum(np.bincount(steps, minlength=layers + 1)).astype(np.int64)
    telling = within[layers - 1]
    of_question = np.argsort(questions, kind="stable")
    ends = np.searchsorted(questions[of_question], np.arange(len(sources) + 1))
    found = _messages(*first, *second, entities, of_question, ends, telling, half, num_entities)
    tellers, receivers, relations = found
    in_order = np.argsort(tellers, kind="stable")
    told = np.searchsorted(tellers[in_order], within[:layers])
    return Reached(
        entities, questions, within, tellers[in_order], receivers[in_order], relations[in_order], told.astype(np.int64)
    )


def walked(edges: "PropagationEdges", source: int, layers: int, num_entities: int) -> tuple[Ids, Ids]:
    """Everyone whom paths of at most so many edges come to from one source, and how many edges they have."""
    entities, _, steps = _walk(*edges.arrays, *no_edges(), np.array([source], dtype=np.int64), layers, num_entities)
    return entities, steps


def steps_from(parts: Sequence["PropagationEdges"], source: int, layers: int, num_entities: int) -> Ids:
    """(entities,): how many edges of at most two parts lead to everyone; one more than ``layers`` where more do."""
    first, second = [one.arrays for one in parts] + [no_edges()] * (2 - len(parts))
    entities, _, steps = _walk(*first, *second, np.array([source], dtype=np.int64), layers, num_entities)
    found = np.full(num_entities, layers + 1, dtype=np.int64)
    found[entities] = steps
    return found


def no_edges() -> tuple[Ids, Ids, Ids, Numbers]:
    """The arrays of no edges."""
    nobody = np.empty(0, dtype=np.int64)
    return np.zeros(1, dtype=np.int64), nobody, nobody, np.empty(0, dtype=np.float32)


def told_on(reach: Reached, layer: int, vectors: Tensor, scales: Tensor) -> Tensor:
    """(pairs, d): for everyone whom this layer comes to, the sum of what is told there."""
    result: Tensor = _Told.apply(reach, layer, vectors, scales)  # type: ignore[no-untyped-call]
    return result


def cross_entropy(reach: Reached, scores: Tensor, apart: Tensor, answers: Tensor, barred: Tensor) -> Tensor:
    """(questions,): the cross entropy of each answer among all who are not barred.

    ``scores`` are those of the pairs, ``apart`` (questions,) those of everyone else; ``barred`` (questions, entities)
    is 0, or minus infinity.
    """
    entities, questions = torch.from_numpy(reach.entities), torch.from_numpy(reach.questions)
    open_to = barred[questions, entities]
    scored = scores + open_to
    count, everyone = barred.shape
    heard = torch.bincount(questions[open_to == 0], minlength=count)
    # Where paths come to everyone, somebody apart is still a rival: newcomers are, whom nothing leads to.
    others = (everyone - torch.isinf(barred).sum(dim=1) - heard).clamp(min=1)
    with torch.no_grad():
        highest = apart.scatter_reduce(0, questions, scored, "amax")
    sums = torch.zeros(count).index_add(0, questions, torch.exp(scored - highest[questions]))
    total = torch.log(sums + others * torch.exp(apart - highest)) + highest
    right = torch.nonzero(entities == answers[questions])[:, 0]
    of_answer = apart.index_put((questions[right],), scores[right])
    return total - of_answer


class _Told(torch.autograd.Function):
    """By compiled loops, without a vector for each message."""

    @staticmethod
    def forward(ctx: Any, reach: Reached, layer: int, vectors: Tensor, scales: Tensor) -> Tensor:
        ctx.reach, ctx.count = reach, int(reach.told[layer])
        ctx.save_for_backward(vectors, scales)
        sums = torch.zeros(int(reach.within[layer + 1]), vectors.shape[1])
        _add_told(*_along(reach, ctx.count), _array(vectors), _array(scales), sums.numpy())
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        vectors, scales = ctx.saved_tensors
        of_vectors, of_scales = torch.zeros_like(vectors), torch.zeros_like(scales)
        tables = _array(vectors), _array(scales), _array(gradients[0])
        _add_slopes(*_along(ctx.reach, ctx.count), *tables, of_vectors.numpy(), of_scales.numpy())
        return None, None, of_vectors, of_scales


def _along(reach: Reached, count: int) -> tuple[Ids, Ids, Ids]:
    return reach.tellers[:count], reach.receivers[:count], reach.relations[:count]


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def padded(table: Tensor, rows: int) -> Tensor:
    """(rows, d): the table with zeros for the rows that follow."""
    return functional.pad(table, (0, 0, 0, rows - len(table)))


@numba.njit(nogil=True, cache=True)
def _grown(table: Ids) -> Ids:
    """The table with room for as many more."""
    larger = np.empty(2 * len(table), dtype=np.int64)
    larger[: len(table)] = table
    return larger


@numba.njit(nogil=True, cache=True)
def _walk(
    offsets: Ids,
    columns: Ids,
    relations: Ids,
    weights: Numbers,
    more_offsets: Ids,
    more_columns: Ids,
    more_relations: Ids,
    more_weights: Numbers,
    sources: Ids,
    layers: int,
    num_entities: int,
) -> tuple[Ids, Ids, Ids]:
    """Entity, question and number of edges of all who are come to, question by question."""
    seen_in = np.full(num_entities, -1, dtype=np.int64)
    entities, questions, steps = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    count = 0
    for question in range(len(sources)):
        frontier = count
        if count == len(entities):
            entities, questions, steps = _grown(entities), _grown(questions), _grown(steps)
        entities[count], questions[count], steps[count] = sources[question], question, 0
        seen_in[sources[question]] = question
        count += 1
        for step in range(1, layers + 1):
            begin, frontier = frontier, count
            for place in range(begin, frontier):
                entity = entities[place]
                for part in range(2):
                    starts, ends_of, kept = offsets, columns, weights
                    if part == 1:
                        starts, ends_of, kept = more_offsets, more_columns, more_weights
                    if entity >= len(starts) - 1:
                        continue
                    for edge in range(starts[entity], starts[entity + 1]):
                        other = ends_of[edge]
                        if kept[edge] == 0.0 or seen_in[other] == question:
                            continue
                        seen_in[other] = question
                        if count == len(entities):
                            entities, questions, steps = _grown(entities), _grown(questions), _grown(steps)
                        entities[count], questions[count], steps[count] = other, question, step
                        count += 1
    return entities[:count], questions[:count], steps[:count]


@numba.njit(nogil=True, cache=True)
def _messages(
    offsets: Ids,
    columns: Ids,
    relations: Ids,
    weights: Numbers,
    more_offsets: Ids,
    more_columns: Ids,
    more_relations: Ids,
    more_weights: Numbers,
    entities: Ids,
    of_question: Ids,
    ends: Ids,
    telling: int,
    half: int,
    num_entities: int,
) -> tuple[Ids, Ids, Ids]:
    """Teller, receiver and relation of every message, question by question; the first ``telling`` pairs tell."""
    place_of = np.empty(num_entities, dtype=np.int64)
    tellers, receivers, along = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    count = 0
    for question in range(len(ends) - 1):
        for pair in of_question[ends[question] : ends[question + 1]]:
            place_of[entities[pair]] = pair
        for pair in of_question[ends[question] : ends[question + 1]]:
            if pair >= telling:
                continue
            entity = entities[pair]
            for part in range(2):
                starts, ends_of, kinds, kept = offsets, columns, relations, weights
                if part == 1:
                    starts, ends_of, kinds, kept = more_offsets, more_columns, more_relations, more_weights
                if entity >= len(starts) - 1:
                    continue
                for edge in range(starts[entity], starts[entity + 1]):
                    if kept[edge] == 0.0:
                        continue
                    if count == len(tellers):
                        tellers, receivers, along = _grown(tellers), _grown(receivers), _grown(along)
                    tellers[count], receivers[count] = pair, place_of[ends_of[edge]]
                    along[count] = (kinds[edge] + half) % (2 * half)
                    count += 1
    return tellers[:count], receivers[:count], along[:count]


@numba.njit(nogil=True, cache=True)
def _add_told(tellers: Ids, receivers: Ids, relations: Ids, vectors: Numbers, scales: Numbers, sums: Numbers) -> None:
    for message in range(len(tellers)):
        teller, receiver, relation = tellers[message], receivers[message], relations[message]
        for one in range(vectors.shape[1]):
            sums[receiver, one] += scales[relation, one] * vectors[teller, one]


@numba.njit(nogil=True, cache=True)
def _add_slopes(
    tellers: Ids,
    receivers: Ids,
    relations: Ids,
    vectors: Numbers,
    scales: Numbers,
    gradient: Numbers,
    of_vectors: Numbers,
    of_scales: Numbers,
) -> None:
    for message in range(len(tellers)):
        teller, receiver, relation = tellers[message], receivers[message], relations[message]
        for one in range(vectors.shape[1]):
            slope = gradient[receiver, one]
            of_vectors[teller, one] += slope * scales[relation, one]
            of_scales[relation, one] += slope * vectors[teller, one]
