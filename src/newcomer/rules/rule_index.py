"""Rules laid out for use: found by what an entity's facts can start, or by what a query asks for.

Every walk rule is kept twice, once from each end: what concludes ``r(x,y)`` from x by ``r1, r2`` concludes the inverse
from y by the inverses of ``r2, r1``. Rules about one variable are kept from the variable's side, and from the side of
the constant their head names.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, Offsets, read_only
from newcomer.rules.rule import NONE, Kind, RuleSet

KINDS = 8  # room for every Kind in one key with a relation
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

    @property
    def size(self) -> int:
        return len(self.row)


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
        levels: Ids = read_only(np.searchsorted(-self.strength_of_level, -self.strength).astype(np.int32))
        return levels

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
        """Rules about a variable, by the constant of their head."""
        return self._about.take(np.argsort(self._about.head_constant, kind="stable"))

    @cached_property
    def by_head(self) -> OrientedRules:
        """Walk rules by concluded relation."""
        walks = self._walks
        keys = walks.head.astype(np.int64) * max(len(self.rules), 1) + walks.row  # no two alike
        return walks.take(np.argsort(keys))

    @cached_property
    def head_offsets(self) -> Offsets:
        """Where each concluded relation begins in ``by_head``."""
        return _offsets(self.by_head.head, 2 * self.rules.num_relations)

    @cached_property
    def by_edge(self) -> OrientedRules:
        """Rules about a variable by concluded relation, body relation, body constant."""
        about = self._about
        return about.take(np.lexsort((about.body_constant, about.body1, about.head)))

    @cached_property
    def edge_offsets(self) -> Offsets:
        """Where each concluded relation begins in ``by_edge``."""
        return _offsets(self.by_edge.head, 2 * self.rules.num_relations)

    def about_anyone(self, entity: int, relation: int) -> bool:
        """Whether a rule answers (entity, relation, ?) with whoever has some relation."""
        about, size = self.by_constant, self.rules.num_relations
        first, last = np.searchsorted(about.head_constant, [entity, entity + 1])
        named = slice(int(first), int(last))
        concluded = (about.head[named] + size) % max(2 * size, 1)
        return bool(((about.kind[named] == Kind.EXISTS) & (concluded == relation)).any())

    @cached_property
    def _walks(self) -> OrientedRules:
        return _walks(self.rules)

    @cached_property
    def _about(self) -> OrientedRules:
        """In the order of the rules."""
        return _about_variable(self.rules)


def _offsets(sorted_keys: npt.NDArray[np.integer], size: int) -> Offsets:
    offsets: Offsets = read_only(np.searchsorted(sorted_keys, np.arange(size + 1)).astype(np.int64))
    return offsets


def _columns(rules: RuleSet, rows: npt.NDArray[np.intp]) -> OrientedRules:
    names = ("kinds", "heads", "body1", "body2", "body3", "head_constants", "body_constants")
    return OrientedRules._make([*(getattr(rules, name)[rows] for name in names), rows.astype(np.int32)])


def _walks(rules: RuleSet) -> OrientedRules:
    rows = np.flatnonzero((rules.kinds != Kind.CONSTANT) & (rules.kinds != Kind.EXISTS))
    forward = _columns(rules, rows)
    return _joined(forward, _turned(forward, rules.num_relations))


def _about_variable(rules: RuleSet) -> OrientedRules:
    return _columns(rules, np.flatnonzero((rules.kinds == Kind.CONSTANT) | (rules.kinds == Kind.EXISTS)))


def _turned(walks: OrientedRules, num_relations: int) -> OrientedRules:
    """The same walks from y to x."""
    size = 2 * num_relations

    def inverse(relations: Ids) -> Ids:
        return np.where(relations == NONE, NONE, (relations + num_relations) % max(size, 1)).astype(np.int32)

    one, two, both = (walks.kind == kind for kind in (Kind.ONE, Kind.TWO, Kind.BOTH))
    first = np.select([one | both, two], [walks.body1, walks.body2], walks.body3)
    last = np.select([two, both], [walks.body1, walks.body2], np.where(one, NONE, walks.body2))
    third = np.where(walks.kind == Kind.THREE, walks.body1, NONE)
    return walks._replace(head=inverse(walks.head), body1=inverse(first), body2=inverse(last), body3=inverse(third))


def _joined(first: OrientedRules, second: OrientedRules) -> OrientedRules:
    return OrientedRules(*(np.concatenate([a, b]).astype(np.int32) for a, b in zip(first, second, strict=True)))
