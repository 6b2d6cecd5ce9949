"""Compiled grounding over the overlay: what rules conclude about one entity, and from which facts.

An entity comes as its own sorted facts (relation, tail), which are followed over the own facts of those they lead to:
a newcomer costs what its neighbourhood costs, whatever the size of the graph. A conclusion about the entity itself (a
self loop) is never drawn: a walk that comes back says nothing new.
"""

from typing import NamedTuple

import numpy as np

from newcomer.graph import Ids, Offsets, Overlay, OverlayArrays, read_only
from newcomer.rules.compiled import compiled, inverse_of, lower_bound, with_room
from newcomer.rules.rule_index import OrientedRules

ONE, TWO, BOTH, THREE, CONSTANT, EXISTS = 1, 2, 3, 4, 5, 6  # as Kind; compiled code takes plain numbers
KINDS = 8
COLUMNS = 5  # rule, relation concluded, other end, first middle node, second middle node
NOBODY = -1


class Facts(NamedTuple):
    """An entity and its own facts, sorted."""

    entity: int
    relations: Ids
    tails: Ids

    @classmethod
    def of(cls, overlay: Overlay, entity: int) -> "Facts":
        """As an overlay has them, in arrays of the one kind that compiled code is made for."""
        relations, tails = overlay.facts_of(entity)
        return cls(entity, read_only(relations), read_only(tails))


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
    if rules.kind[place] != CONSTANT:
        return anyone(graph, rules.body1[place])
    inverse = inverse_of(rules.body1[place], (len(graph.answer_offsets) - 1) // 2)
    tails, low, high = row_of(graph, rules.body_constant[place], inverse)
    return tails[low:high].copy()


@compiled
def holds(relations: Ids, tails: Ids, relation: int, tail: int) -> bool:
    """Whether an entity's sorted facts hold (relation, tail)."""
    low = lower_bound(relations, 0, len(relations), relation)
    high = lower_bound(relations, low, len(relations), relation + 1)
    place = lower_bound(tails, low, high, tail)
    return place < high and tails[place] == tail


@compiled
def _concluded(
    facts: Facts, found: Ids, count: int, rule: int, head: int, end: int, first: int, second: int
) -> tuple[Ids, int]:
    """The table with a conclusion more, unless that is about the entity itself or known."""
    if end == facts.entity or holds(facts.relations, facts.tails, head, end):
        return found, count
    found = with_room(found, count, count + 1)
    found[count, 0], found[count, 1], found[count, 2] = rule, head, end
    found[count, 3], found[count, 4] = first, second
    return found, count + 1


@compiled
def ground_entity(
    facts: Facts, graph: OverlayArrays, rules: OrientedRules, offsets: Offsets, about: OrientedRules
) -> Ids:
    """Every grounding of every rule that concludes something unknown of an entity: rows of ``COLUMNS`` numbers."""
    relations, tails = facts.relations, facts.tails
    found, count, at = np.empty((256, COLUMNS), dtype=np.int32), 0, 0
    while at < len(relations):
        key, end = relations[at] * KINDS, lower_bound(relations, at, len(relations), relations[at] + 1)
        for kind in (ONE, BOTH):
            for i in range(offsets[key + kind], offsets[key + kind + 1]):
                for j in range(at, end):
                    if kind == ONE or holds(relations, tails, rules.body2[i], tails[j]):
                        found, count = _concluded(
                            facts, found, count, rules.row[i], rules.head[i], tails[j], NOBODY, NOBODY
                        )
        first, last = offsets[key + TWO], offsets[key + TWO + 1]
        for j in range(at, end):
            found, count = _two(facts, tails[j], graph, rules, first, last, found, count)
        first, last = offsets[key + THREE], offsets[key + THREE + 1]
        for j in range(at, end):
            found, count = _three(facts, tails[j], graph, rules, first, last, found, count)
        first, last = offsets[key + CONSTANT], offsets[key + CONSTANT + 1]
        for j in range(at, end if first < last else at):
            i = lower_bound(rules.body_constant, first, last, tails[j])
            while i < last and rules.body_constant[i] == tails[j]:
                found, count = _concluded(
                    facts, found, count, rules.row[i], rules.head[i], rules.head_constant[i], tails[j], NOBODY
                )
                i += 1
        for i in range(offsets[key + EXISTS], offsets[key + EXISTS + 1]):
            found, count = _concluded(
                facts, found, count, rules.row[i], rules.head[i], rules.head_constant[i], tails[at], NOBODY
            )
        at = end
    return _named_in_heads(facts, graph, about, found, count)


@compiled
def _two(
    facts: Facts, middle: int, graph: OverlayArrays, rules: OrientedRules, first: int, last: int, found: Ids, count: int
) -> tuple[Ids, int]:
    """Rules first..last go on from ``middle`` by their second relation; those with the same one stand together."""
    i = first if middle != facts.entity else last
    while i < last:
        run = lower_bound(rules.body2, i, last, rules.body2[i] + 1)
        ends, low, high = row_of(graph, middle, rules.body2[i])
        for end in ends[low:high]:
            for rule in range(i, run):
                found, count = _concluded(facts, found, count, rules.row[rule], rules.head[rule], end, middle, NOBODY)
        i = run
    return found, count


@compiled
def _three(
    facts: Facts, middle: int, graph: OverlayArrays, rules: OrientedRules, first: int, last: int, found: Ids, count: int
) -> tuple[Ids, int]:
    """As `_two`, one step further; all nodes of the chain differ, as such rules are counted."""
    for i in range(first if middle != facts.entity else last, last):
        seconds, low, high = row_of(graph, middle, rules.body2[i])
        for second in seconds[low:high]:
            if second == facts.entity or second == middle:
                continue
            ends, begin, stop = row_of(graph, second, rules.body3[i])
            for end in ends[begin:stop]:
                if end != middle and end != second:
                    found, count = _concluded(facts, found, count, rules.row[i], rules.head[i], end, middle, second)
    return found, count


@compiled
def _named_in_heads(facts: Facts, graph: OverlayArrays, about: OrientedRules, found: Ids, count: int) -> Ids:
    """Rules whose head names the entity as its constant: everyone their body holds for is a conclusion."""
    i = lower_bound(about.head_constant, 0, len(about.row), facts.entity)
    while i < len(about.row) and about.head_constant[i] == facts.entity:
        for end in ends_of_variable(graph, about, i):
            anchor = about.body_constant[i]
            if about.kind[i] == EXISTS:  # of "anyone", the first is shown
                tails_of_end, first, _ = row_of(graph, end, about.body1[i])
                anchor = tails_of_end[first]
            found, count = _concluded(facts, found, count, about.row[i], about.head[i], end, anchor, NOBODY)
        i += 1
    return found[:count]
