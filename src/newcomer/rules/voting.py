"""Compiled voting: which candidates do the rules of a query reach, and in what order do they stand?

Rules vote from the strongest to the weakest. A candidate is as good as its best rule; between equals the second best
decides, and so on (the lexicographic maximum); or all rules count as independent chances (noisy-or).
"""

import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, OverlayArrays
from newcomer.rules.compiled import compiled, lower_bound
from newcomer.rules.grounding import BOTH, ONE, THREE, TWO, ends_of_variable, holds, row_of
from newcomer.rules.rule_index import Floats, OrientedRules


@compiled
def _vote(votes: Ids, count: int, end: int, level: int) -> Ids:
    if count == len(votes):
        grown = np.empty((2 * len(votes), 2), dtype=np.int32)
        grown[:count] = votes
        votes = grown
    votes[count, 0], votes[count, 1] = end, level
    return votes


@compiled
def walk_votes(
    entity: int,
    relations: Ids,
    tails: Ids,
    graph: OverlayArrays,
    rules: OrientedRules,
    order: npt.NDArray[np.int64],
    levels: Ids,
    stamps: Ids,
    votes: Ids,
    count: int,
    stamp: int,
) -> tuple[Ids, int, int]:
    """Each walk rule's distinct ends, in the order given; ``stamps`` (one an entity) tells whom a rule reached."""
    for i in order:
        stamp += 1
        kind = rules.kind[i]
        low = lower_bound(relations, 0, len(relations), rules.body1[i])
        high = lower_bound(relations, low, len(relations), rules.body1[i] + 1)
        level = levels[rules.row[i]]
        for j in range(low, high):
            middle = tails[j]
            if middle == entity:
                continue
            if kind == ONE or (kind == BOTH and holds(relations, tails, rules.body2[i], middle)):
                votes = _vote(votes, count, middle, level)
                count += 1
            elif kind in (TWO, THREE):
                seconds, begin, stop = row_of(graph, middle, rules.body2[i])
                for k in range(begin, stop):
                    second = seconds[k]
                    if second == entity:
                        continue
                    if kind == TWO:
                        if stamps[second] != stamp:
                            stamps[second] = stamp
                            votes = _vote(votes, count, second, level)
                            count += 1
                    elif second != middle:
                        ends, begin3, stop3 = row_of(graph, second, rules.body3[i])
                        for m in range(begin3, stop3):
                            end = ends[m]
                            if end != entity and end != middle and end != second and stamps[end] != stamp:
                                stamps[end] = stamp
                                votes = _vote(votes, count, end, level)
                                count += 1
    return votes, count, stamp


@compiled
def constant_votes(
    entity: int,
    graph: OverlayArrays,
    rules: OrientedRules,
    place: int,
    named: bool,
    levels: Ids,
    votes: Ids,
    count: int,
) -> tuple[Ids, int]:
    """One rule about a variable: the entity is the variable, or (``named``) the constant of the head."""
    level = levels[rules.row[place]]
    if not named:
        if rules.head_constant[place] != entity:
            votes = _vote(votes, count, rules.head_constant[place], level)
            count += 1
        return votes, count
    for end in ends_of_variable(graph, rules, place):
        if end != entity:
            votes = _vote(votes, count, end, level)
            count += 1
    return votes, count


@compiled
def collect_votes(
    entity: int,
    relations: Ids,
    tails: Ids,
    graph: OverlayArrays,
    walks: OrientedRules,
    by_edge: OrientedRules,
    about: OrientedRules,
    chosen: npt.NDArray[np.int64],
    walk_count: int,
    edge_count: int,
    order: npt.NDArray[np.int64],
    levels: Ids,
    stamps: Ids,
) -> Ids:
    """(candidate, level) for every rule that reaches a candidate, strongest rule first."""
    votes = np.empty((1024, 2), dtype=np.int32)
    count, stamp = 0, 0
    single = np.empty(1, dtype=np.int64)
    for place in order:
        if place < walk_count:
            single[0] = chosen[place]
            votes, count, stamp = walk_votes(
                entity, relations, tails, graph, walks, single, levels, stamps, votes, count, stamp
            )
        elif place < walk_count + edge_count:
            votes, count = constant_votes(entity, graph, by_edge, chosen[place], False, levels, votes, count)
        else:
            votes, count = constant_votes(entity, graph, about, chosen[place], True, levels, votes, count)
    return votes[:count]


@compiled
def _stronger(a: int, b: int, starts: npt.NDArray[np.int64], levels: Ids) -> int:
    """1 if candidate a's levels come first, -1 if b's, 0 for the same; a longer list beats its own beginning."""
    la, lb = starts[a + 1] - starts[a], starts[b + 1] - starts[b]
    for i in range(min(la, lb)):
        x, y = levels[starts[a] + i], levels[starts[b] + i]
        if x != y:
            return 1 if x < y else -1
    if la == lb:
        return 0
    return 1 if la > lb else -1


@compiled
def _sorted_candidates(size: int, starts: npt.NDArray[np.int64], levels: Ids) -> npt.NDArray[np.int64]:
    """Candidates from the weakest to the strongest (a merge sort, so equals keep their order)."""
    items, buffer = np.arange(size), np.empty(size, dtype=np.int64)
    width = 1
    while width < size:
        for low in range(0, size, 2 * width):
            middle, high = min(low + width, size), min(low + 2 * width, size)
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or _stronger(items[i], items[j], starts, levels) <= 0):
                    buffer[k] = items[i]
                    i += 1
                else:
                    buffer[k] = items[j]
                    j += 1
        items, buffer = buffer, items
        width *= 2
    return items


@compiled
def lexicographic_scores(votes: Ids, counts: Ids, scores: Floats) -> None:
    """Fill ``scores`` with 1, 2, 3, ... from the weakest group of equal candidates to the strongest.

    ``counts`` (one an entity, all zero) is scratch and comes back as it was.
    """
    candidates = np.empty(len(votes), dtype=np.int32)
    size = 0
    for i in range(len(votes)):
        end = votes[i, 0]
        if counts[end] == 0:
            candidates[size] = end
            size += 1
            counts[end] = 1
    for i in range(size):
        counts[candidates[i]] = i
    starts = np.zeros(size + 1, dtype=np.int64)
    for i in range(len(votes)):
        starts[counts[votes[i, 0]] + 1] += 1
    for i in range(size):
        starts[i + 1] += starts[i]
    cursor = starts.copy()
    levels = np.empty(len(votes), dtype=np.int32)
    for i in range(len(votes)):
        candidate = counts[votes[i, 0]]
        levels[cursor[candidate]] = votes[i, 1]
        cursor[candidate] += 1
    order = _sorted_candidates(size, starts, levels)
    place = 0.0
    for i in range(size):
        if i == 0 or _stronger(order[i], order[i - 1], starts, levels) != 0:
            place += 1.0
        scores[candidates[order[i]]] = place
    for i in range(size):
        counts[candidates[i]] = 0


@compiled
def noisy_or_scores(votes: Ids, strength_of_level: Floats, scores: Floats) -> None:
    """Fill ``scores`` with -log of the chance that every rule is wrong; the order is that of noisy-or."""
    for i in range(len(votes)):
        scores[votes[i, 0]] -= np.log1p(-min(strength_of_level[votes[i, 1]], 1.0 - 1e-12))
