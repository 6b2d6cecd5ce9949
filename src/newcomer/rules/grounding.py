"""Compiled grounding over the overlay: what rules conclude about one entity, and from which facts.

An entity comes as its own sorted facts (relation, tail), which are followed over the own facts of those they lead to:
a newcomer costs what its neighbourhood costs, whatever the size of the graph. A conclusion about the entity itself (a
self loop) is never drawn: a walk that comes back says nothing new.
"""

import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, Offsets, OverlayArrays
from newcomer.rules.compiled import compiled, inverse_of, lower_bound
from newcomer.rules.rule_index import OrientedRules

ONE, TWO, BOTH, THREE, CONSTANT, EXISTS = 1, 2, 3, 4, 5, 6  # as Kind; compiled code takes plain numbers
KINDS = 8
COLUMNS = 5  # rule, relation concluded, other end, first middle node, second middle node
NOBODY = -1


@compiled
def own_facts(graph: OverlayArrays, entity: int) -> tuple[Ids, Ids, int, int]:
    """The tables that an entity's own facts stand in, (relations, tails), and where they begin and end."""
    if entity < graph.num_seen:
        return graph.relations, graph.tails, graph.offsets[entity], graph.offsets[entity + 1]
    if entity + 1 < len(graph.base_offsets) and not graph.removed[entity]:
        return graph.base_relations, graph.base_tails, graph.base_offsets[entity], graph.base_offsets[entity + 1]
    if entity + 1 < len(graph.delta_offsets):
        return graph.delta_relations, graph.delta_tails, graph.delta_offsets[entity], graph.delta_offsets[entity + 1]
    return graph.delta_relations, graph.delta_tails, 0, 0


@compiled
def row_of(graph: OverlayArrays, entity: int, relation: int) -> tuple[Ids, int, int]:
    """The table that the tails of (entity, relation) stand in, and where they begin and end."""
    relations, tails, start, end = own_facts(graph, entity)
    low = lower_bound(relations, start, end, relation)
    return tails, low, lower_bound(relations, low, end, relation + 1)


@compiled
def anyone(graph: OverlayArrays, relation: int) -> Ids:
    """Everyone whom the oriented relation leads from: seen entities, then newcomers."""
    inverse = inverse_of(relation, (len(graph.answer_offsets) - 1) // 2)
    seen = _answering(graph.answer_offsets, graph.answers, inverse)
    stored = _answering(graph.base_answer_offsets, graph.base_answers, inverse)
    stored = stored[lower_bound(stored, 0, len(stored), graph.num_seen) :]
    added = _answering(graph.delta_answer_offsets, graph.delta_answers, inverse)
    added = added[lower_bound(added, 0, len(added), graph.num_seen) :]
    return np.concatenate((seen, stored[~graph.removed[stored]], added))


@compiled
def _answering(offsets: Offsets, answers: Ids, relation: int) -> Ids:
    return answers[offsets[relation] : offsets[relation + 1]]


@compiled
def ends_of_variable(graph: OverlayArrays, rules: OrientedRules, place: int) -> Ids:
    """Everyone for whom the body of a rule about a variable holds."""
    half = (len(graph.answer_offsets) - 1) // 2
    if rules.kind[place] != CONSTANT:
        return anyone(graph, rules.body1[place])
    tails, low, high = row_of(graph, rules.body_constant[place], (rules.body1[place] + half) % (2 * half))
    return tails[low:high].copy()


@compiled
def holds(relations: Ids, tails: Ids, relation: int, tail: int) -> bool:
    """Whether an entity's sorted facts hold (relation, tail)."""
    low = lower_bound(relations, 0, len(relations), relation)
    high = lower_bound(relations, low, len(relations), relation + 1)
    place = lower_bound(tails, low, high, tail)
    return place < high and tails[place] == tail


@compiled
def _emit(found: Ids, count: int, rule: int, head: int, end: int, first: int, second: int) -> Ids:
    """Write a conclusion; the table doubles when it is full."""
    if count == len(found):
        grown = np.empty((2 * len(found), COLUMNS), dtype=np.int32)
        grown[:count] = found
        found = grown
    found[count, 0], found[count, 1], found[count, 2] = rule, head, end
    found[count, 3], found[count, 4] = first, second
    return found


@compiled
def ground_entity(
    entity: int,
    relations: Ids,
    tails: Ids,
    graph: OverlayArrays,
    rules: OrientedRules,
    offsets: Offsets,
    about: OrientedRules,
) -> Ids:
    """Every grounding of every rule that concludes something unknown of ``entity``: rows of ``COLUMNS`` numbers."""
    found = np.empty((256, COLUMNS), dtype=np.int32)
    count = 0
    at = 0
    while at < len(relations):
        relation = relations[at]
        end = at
        while end < len(relations) and relations[end] == relation:
            end += 1
        key = relation * KINDS
        for i in range(offsets[key + ONE], offsets[key + ONE + 1]):
            head = rules.head[i]
            for j in range(at, end):
                if tails[j] != entity and not holds(relations, tails, head, tails[j]):
                    found = _emit(found, count, rules.row[i], head, tails[j], NOBODY, NOBODY)
                    count += 1
        for i in range(offsets[key + BOTH], offsets[key + BOTH + 1]):
            head = rules.head[i]
            for j in range(at, end):
                if (
                    tails[j] != entity
                    and holds(relations, tails, rules.body2[i], tails[j])
                    and not holds(relations, tails, head, tails[j])
                ):
                    found = _emit(found, count, rules.row[i], head, tails[j], NOBODY, NOBODY)
                    count += 1
        first, last = offsets[key + TWO], offsets[key + TWO + 1]
        for j in range(at, end):
            found, count = _two(entity, relations, tails, tails[j], graph, rules, first, last, found, count)
        first, last = offsets[key + THREE], offsets[key + THREE + 1]
        for j in range(at, end):
            found, count = _three(entity, relations, tails, tails[j], graph, rules, first, last, found, count)
        first, last = offsets[key + CONSTANT], offsets[key + CONSTANT + 1]
        if first < last:
            for j in range(at, end):
                i = lower_bound(rules.body_constant, first, last, tails[j])
                while i < last and rules.body_constant[i] == tails[j]:
                    conclusion, head = rules.head_constant[i], rules.head[i]
                    if conclusion != entity and not holds(relations, tails, head, conclusion):
                        found = _emit(found, count, rules.row[i], head, conclusion, tails[j], NOBODY)
                        count += 1
                    i += 1
        for i in range(offsets[key + EXISTS], offsets[key + EXISTS + 1]):
            conclusion, head = rules.head_constant[i], rules.head[i]
            if conclusion != entity and not holds(relations, tails, head, conclusion):
                found = _emit(found, count, rules.row[i], head, conclusion, tails[at], NOBODY)
                count += 1
        at = end
    return _named_in_heads(entity, relations, tails, graph, about, found, count)


@compiled
def _two(
    entity: int,
    relations: Ids,
    tails: Ids,
    middle: int,
    graph: OverlayArrays,
    rules: OrientedRules,
    first: int,
    last: int,
    found: Ids,
    count: int,
) -> tuple[Ids, int]:
    """Rules first..last go on from ``middle`` by their second relation; those with the same one stand together."""
    i = first
    if middle == entity:
        return found, count
    while i < last:
        run = i
        while run < last and rules.body2[run] == rules.body2[i]:
            run += 1
        ends, low, high = row_of(graph, middle, rules.body2[i])
        for k in range(low, high):
            end = ends[k]
            if end == entity:
                continue
            for rule in range(i, run):
                if not holds(relations, tails, rules.head[rule], end):
                    found = _emit(found, count, rules.row[rule], rules.head[rule], end, middle, NOBODY)
                    count += 1
        i = run
    return found, count


@compiled
def _three(
    entity: int,
    relations: Ids,
    tails: Ids,
    first_middle: int,
    graph: OverlayArrays,
    rules: OrientedRules,
    first: int,
    last: int,
    found: Ids,
    count: int,
) -> tuple[Ids, int]:
    """As `_two`, one step further; all nodes of the walk differ, as such rules are counted."""
    if first_middle == entity:
        return found, count
    for i in range(first, last):
        seconds, low, high = row_of(graph, first_middle, rules.body2[i])
        for j in range(low, high):
            second = seconds[j]
            if second == entity or second == first_middle:
                continue
            ends, begin, stop = row_of(graph, second, rules.body3[i])
            for k in range(begin, stop):
                end = ends[k]
                if end == entity or end == first_middle or end == second:
                    continue
                if not holds(relations, tails, rules.head[i], end):
                    found = _emit(found, count, rules.row[i], rules.head[i], end, first_middle, second)
                    count += 1
    return found, count


@compiled
def _named_in_heads(
    entity: int, relations: Ids, tails: Ids, graph: OverlayArrays, about: OrientedRules, found: Ids, count: int
) -> Ids:
    """Rules whose head names the entity as its constant: everyone their body holds for is a conclusion."""
    half = (len(graph.answer_offsets) - 1) // 2
    i = lower_bound(about.head_constant, 0, len(about.row), entity)
    while i < len(about.row) and about.head_constant[i] == entity:
        head = (about.head[i] + half) % (2 * half)
        anchored = about.kind[i] == CONSTANT
        for end in ends_of_variable(graph, about, i):
            if end != entity and not holds(relations, tails, head, end):
                anchor = about.body_constant[i]
                if not anchored:  # of "anyone", the first is shown
                    tails_of_end, first, _ = row_of(graph, end, about.body1[i])
                    anchor = tails_of_end[first]
                found = _emit(found, count, about.row[i], head, end, anchor, NOBODY)
                count += 1
        i += 1
    return found[:count]


@compiled
def candidate_rules(
    entity: int,
    relation: int,
    relations: Ids,
    tails: Ids,
    walks: OrientedRules,
    walk_offsets: Offsets,
    by_edge: OrientedRules,
    edge_offsets: Offsets,
    about: OrientedRules,
) -> tuple[npt.NDArray[np.int64], int, int]:
    """Places of the rules that may answer (entity, relation, ?): in ``walks``, then ``by_edge``, then ``about``."""
    chosen = np.empty(256, dtype=np.int64)
    count = 0
    half = (len(walk_offsets) - 1) // 2
    for i in range(walk_offsets[relation], walk_offsets[relation + 1]):
        low = lower_bound(relations, 0, len(relations), walks.body1[i])
        if low < len(relations) and relations[low] == walks.body1[i]:
            chosen, count = _choose(chosen, count, i)
    walk_count = count
    low, high = edge_offsets[relation], edge_offsets[relation + 1]
    for j in range(len(relations)):
        begin = lower_bound(by_edge.body1, low, high, relations[j])
        stop = lower_bound(by_edge.body1, begin, high, relations[j] + 1)
        if j == 0 or relations[j] != relations[j - 1]:
            i = begin
            while i < stop and by_edge.body_constant[i] == NOBODY:
                chosen, count = _choose(chosen, count, i)
                i += 1
        i = lower_bound(by_edge.body_constant, begin, stop, tails[j])
        while i < stop and by_edge.body_constant[i] == tails[j]:
            chosen, count = _choose(chosen, count, i)
            i += 1
    edge_count = count - walk_count
    i = lower_bound(about.head_constant, 0, len(about.row), entity)
    while i < len(about.row) and about.head_constant[i] == entity:
        if (about.head[i] + half) % (2 * half) == relation:
            chosen, count = _choose(chosen, count, i)
        i += 1
    return chosen[:count], walk_count, edge_count


@compiled
def _choose(chosen: npt.NDArray[np.int64], count: int, place: int) -> tuple[npt.NDArray[np.int64], int]:
    if count == len(chosen):
        grown = np.empty(2 * len(chosen), dtype=np.int64)
        grown[:count] = chosen
        chosen = grown
    chosen[count] = place
    return chosen, count + 1
