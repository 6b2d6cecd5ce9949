"""Compiled grounding over the overlay: what rules conclude about one entity, and from which facts.

An entity comes as its own sorted facts (relation, tail), which are followed over the own facts of those they lead to:
a newcomer costs what its neighbourhood costs, whatever the size of the graph. A conclusion about the entity itself (a
self loop) is never drawn: a walk that comes back says nothing new.
"""

from typing import NamedTuple

import numpy as np

from newcomer.graph import Answers, Ids, Offsets, OverlayArrays
from newcomer.rules.compiled import compiled, edges_of, inverse_of, is_among, lower_bound, run_of, with_room
from newcomer.rules.rule_index import KINDS, OrientedRules

ONE, TWO, BOTH, THREE, CONSTANT, EXISTS = 1, 2, 3, 4, 5, 6  # as Kind; compiled code takes plain numbers
COLUMNS = 5  # rule, relation concluded, other end, first middle node, second middle node
NOBODY = -1


class Facts(NamedTuple):
    """An entity and its own facts, as `Overlay.facts_of` has them."""

    entity: int
    relations: Ids
    tails: Ids


@compiled
def tails_of(graph: OverlayArrays, entity: int, relation: int) -> Ids:
    """Where (entity, relation) leads by the entity's own facts."""
    rows = graph.delta
    if entity < graph.num_seen:
        rows = graph.observed
    elif entity + 1 < len(graph.base.offsets) and not graph.removed[entity]:
        rows = graph.base
    first, end = edges_of(rows.offsets, rows.relations, entity, relation)
    return rows.tails[first:end]


@compiled
def anyone(graph: OverlayArrays, relation: int) -> Ids:
    """Everyone whom the oriented relation leads from: seen entities, then newcomers."""
    inverse = inverse_of(relation, graph.num_relations)
    stored = _answering(graph.base_answers, inverse, graph.num_seen)
    added = _answering(graph.delta_answers, inverse, graph.num_seen)
    return np.concatenate((_answering(graph.observed_answers, inverse, 0), stored[~graph.removed[stored]], added))


@compiled
def _answering(answers: Answers, relation: int, first: int) -> Ids:
    """Who answers an oriented relation, from an id on."""
    low, end = answers.offsets[relation], answers.offsets[relation + 1]
    return answers.entities[lower_bound(answers.entities, low, end, first) : end]


@compiled
def ends_of_variable(graph: OverlayArrays, rules: OrientedRules, place: int) -> Ids:
    """Everyone for whom the body of a rule about a variable holds."""
    if rules.kind[place] != CONSTANT:
        return anyone(graph, rules.body1[place])
    return tails_of(graph, rules.body_constant[place], inverse_of(rules.body1[place], graph.num_relations)).copy()


@compiled
def holds(relations: Ids, tails: Ids, relation: int, tail: int) -> bool:
    """Whether an entity's sorted facts hold (relation, tail)."""
    first, end = run_of(relations, 0, len(relations), relation)
    return is_among(tails, first, end, tail)


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
                rule, head = rules.row[i], rules.head[i]
                for j in range(at, end):
                    if kind == ONE or holds(relations, tails, rules.body2[i], tails[j]):
                        found, count = _concluded(facts, found, count, rule, head, tails[j], NOBODY, NOBODY)
        for j in range(at, end):
            found, count = _two(facts, tails[j], graph, rules, offsets[key + TWO :], found, count)
        for j in range(at, end):
            found, count = _three(facts, tails[j], graph, rules, offsets[key + THREE :], found, count)
        first, last = offsets[key + CONSTANT], offsets[key + CONSTANT + 1]
        for j in range(at, end if first < last else at):
            i = lower_bound(rules.body_constant, first, last, tails[j])
            while i < last and rules.body_constant[i] == tails[j]:
                rule, head, constant = rules.row[i], rules.head[i], rules.head_constant[i]
                found, count = _concluded(facts, found, count, rule, head, constant, tails[j], NOBODY)
                i += 1
        for i in range(offsets[key + EXISTS], offsets[key + EXISTS + 1]):
            rule, head, constant = rules.row[i], rules.head[i], rules.head_constant[i]
            found, count = _concluded(facts, found, count, rule, head, constant, tails[at], NOBODY)
        at = end
    return _named_in_heads(facts, graph, about, found, count)


@compiled
def _two(
    facts: Facts, middle: int, graph: OverlayArrays, rules: OrientedRules, own: Offsets, found: Ids, count: int
) -> tuple[Ids, int]:
    """Rules own[0]..own[1] go on from ``middle`` by their second relation; those with the same one stand together."""
    i, last = own[0] if middle != facts.entity else own[1], own[1]
    while i < last:
        run = lower_bound(rules.body2, i, last, rules.body2[i] + 1)
        for end in tails_of(graph, middle, rules.body2[i]):
            for rule in range(i, run):
                found, count = _concluded(facts, found, count, rules.row[rule], rules.head[rule], end, middle, NOBODY)
        i = run
    return found, count


@compiled
def _three(
    facts: Facts, middle: int, graph: OverlayArrays, rules: OrientedRules, own: Offsets, found: Ids, count: int
) -> tuple[Ids, int]:
    """As `_two`, one step further; all nodes of the chain differ, as such rules are counted."""
    for i in range(own[0] if middle != facts.entity else own[1], own[1]):
        for second in tails_of(graph, middle, rules.body2[i]):
            if second == facts.entity or second == middle:
                continue
            for end in tails_of(graph, second, rules.body3[i]):
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
                anchor = tails_of(graph, end, about.body1[i])[0]
            found, count = _concluded(facts, found, count, about.row[i], about.head[i], end, anchor, NOBODY)
        i += 1
    return found[:count]
