"""Rules laid out for use, and their compiled grounding: what they conclude about one entity, and from which facts.

Rules are found by what an entity's facts can start, or by what a query asks for. Every walk rule is kept twice, once
from each end: what concludes ``r(x,y)`` from x by ``r1, r2`` concludes the inverse from y by the inverses of
``r2, r1``. Rules about one variable are kept from the variable's side, and from the side of the constant their head
names.

An entity comes as its own sorted facts (relation, tail), which are followed over the own facts of those they lead to:
a newcomer costs what its neighbourhood costs, whatever the size of the graph. A conclusion about the entity itself (a
self loop) is never drawn: a walk that comes back says nothing new.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Answers, Ids, Mask, Offsets, OverlayArrays, read_only
from newcomer.rules.compiled import compiled, edges_of, inverse_of, is_among, lower_bound, run_of, with_room
from newcomer.rules.rule import NONE, UNARY_KINDS, Kind, RuleSet

KINDS = 8  # room for every Kind in one key with a relation
ONE, TWO, BOTH, THREE, CONSTANT, EXISTS = 1, 2, 3, 4, 5, 6  # as Kind; compiled code takes plain numbers
COLUMNS = 5  # rule, relation concluded, other end, first middle node, second middle node
NOBODY = -1
Floats = npt.NDArray[np.float64]


class OrientedRules(NamedTuple):
    """Rules seen from one end, as columns that compiled code takes; ``row`` is the place in the `RuleSet`."""

    kind: Ids
    head: Ids
    body1: Ids
    body2: Ids
    body3: Ids
    head_constant: Ids
    body_constant: Ids
    row: Ids

    def take(self, order: npt.NDArray[np.intp]) -> "OrientedRules":
        """These rows in this order."""
        return OrientedRules._make(read_only(column[order]) for column in self)


@dataclass(frozen=True, eq=False)
class RuleIndex:
    """All rules, oriented and sorted for grounding and for ranking; each order is made when it is first used.

    ``strength`` (a confidence) orders the rules; equal strengths share a level, 0 is strongest.
    """

    rules: RuleSet
    strength: Floats

    @cached_property
    def level(self) -> Ids:
        """The level of each rule."""
        return read_only(np.searchsorted(-self.strength_of_level, -self.strength).astype(np.int32))

    @cached_property
    def strength_of_level(self) -> Floats:
        """The strength that each level stands for."""
        return -np.unique(-self.strength)

    @cached_property
    def by_start(self) -> OrientedRules:
        """Walk rules and rules about a variable, by first body relation and kind."""
        both = _joined(self._walks, self._about)
        order = (both.row, both.head, both.body_constant, both.body3, both.body2, both.kind, both.body1)
        return both.take(np.lexsort(order))

    @cached_property
    def start_offsets(self) -> Offsets:
        """Where each (relation, kind) begins in ``by_start``."""
        keys = self.by_start.body1.astype(np.int64) * KINDS + self.by_start.kind
        return _offsets(keys, 2 * self.rules.num_relations * KINDS)

    @cached_property
    def by_constant(self) -> OrientedRules:
        """Rules about a variable, by the constant of their head, from which they conclude the inverse of it."""
        about = self._about
        turned = about._replace(head=_inverse(about.head, self.rules.num_relations))
        return turned.take(np.argsort(about.head_constant, kind="stable"))

    @cached_property
    def by_query(self) -> OrientedRules:
        """Walk rules by concluded relation; rules about a variable by concluded relation and body; `by_constant`."""
        walks, about = self._walks, self._about
        keys = walks.head.astype(np.int64) * max(len(self.rules), 1) + walks.row  # no two alike
        by_edge = about.take(np.lexsort((about.body_constant, about.body1, about.head)))
        return _joined(walks.take(np.argsort(keys)), by_edge, self.by_constant)

    @cached_property
    def num_edges(self) -> int:
        """How many rules of `by_query` are seen from their variables."""
        return len(self._walks.row) + len(self._about.row)

    @cached_property
    def walk_offsets(self) -> Offsets:
        """Where each concluded relation begins among the walk rules of `by_query`."""
        return _offsets(self.by_query.head[: len(self._walks.row)], 2 * self.rules.num_relations)

    @cached_property
    def edge_offsets(self) -> Offsets:
        """Where each does among the rules about a variable."""
        start = len(self._walks.row)
        return start + _offsets(self.by_query.head[start : self.num_edges], 2 * self.rules.num_relations)

    @cached_property
    def _walks(self) -> OrientedRules:
        forward = _columns(self.rules, np.flatnonzero(~self._is_about))
        return _joined(forward, _turned(forward, self.rules.num_relations))

    @cached_property
    def _about(self) -> OrientedRules:
        """Rules about a variable, in the order of the rules."""
        return _columns(self.rules, np.flatnonzero(self._is_about))

    @property
    def _is_about(self) -> Mask:
        return np.isin(self.rules.kinds, UNARY_KINDS)


def _offsets(sorted_keys: npt.NDArray[np.integer], size: int) -> Offsets:
    return read_only(np.searchsorted(sorted_keys, np.arange(size + 1)).astype(np.int64))


def _columns(rules: RuleSet, rows: npt.NDArray[np.intp]) -> OrientedRules:
    names = ("kinds", "heads", "body1", "body2", "body3", "head_constants", "body_constants")
    return OrientedRules._make([*(getattr(rules, name)[rows] for name in names), rows.astype(np.int32)])


def _turned(walks: OrientedRules, num_relations: int) -> OrientedRules:
    """The same walks from y to x."""
    one, two, both = (walks.kind == kind for kind in (Kind.ONE, Kind.TWO, Kind.BOTH))
    first = np.select([one | both, two], [walks.body1, walks.body2], walks.body3)
    last = np.select([two, both], [walks.body1, walks.body2], np.where(one, NONE, walks.body2))
    third = np.where(walks.kind == Kind.THREE, walks.body1, NONE)
    turned = {"head": walks.head, "body1": first, "body2": last, "body3": third}
    return walks._replace(**{name: _inverse(column, num_relations) for name, column in turned.items()})


def _inverse(relations: Ids, num_relations: int) -> Ids:
    inverse = (relations + num_relations) % max(2 * num_relations, 1)
    return np.where(relations == NONE, NONE, inverse).astype(np.int32)


def _joined(*parts: OrientedRules) -> OrientedRules:
    return OrientedRules._make(
        read_only(np.concatenate(columns).astype(np.int32)) for columns in zip(*parts, strict=True)
    )


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
def may_lead(offsets: Offsets, relations: Ids, num_seen: int, entity: int, relation: int) -> bool:
    """Whether (entity, relation) leads anywhere, by the observed rows; of a newcomer it may.

    Most lead nowhere, and to ask this first is several times sooner than to have `tails_of` hand over no tails.
    """
    first, end = edges_of(offsets, relations, entity, relation)
    return first < end or entity >= num_seen


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
    offsets, relations = graph.observed.offsets, graph.observed.relations
    i, last = own[0] if middle != facts.entity else own[1], own[1]
    while i < last:
        run = lower_bound(rules.body2, i, last, rules.body2[i] + 1)
        if may_lead(offsets, relations, graph.num_seen, middle, rules.body2[i]):
            for end in tails_of(graph, middle, rules.body2[i]):
                for rule in range(i, run):
                    row, head = rules.row[rule], rules.head[rule]
                    found, count = _concluded(facts, found, count, row, head, end, middle, NOBODY)
        i = run
    return found, count


@compiled
def _three(
    facts: Facts, middle: int, graph: OverlayArrays, rules: OrientedRules, own: Offsets, found: Ids, count: int
) -> tuple[Ids, int]:
    """As `_two`, one step further; all nodes of the chain differ, as such rules are counted."""
    offsets, relations = graph.observed.offsets, graph.observed.relations
    for i in range(own[0] if middle != facts.entity else own[1], own[1]):
        if not may_lead(offsets, relations, graph.num_seen, middle, rules.body2[i]):
            continue
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
