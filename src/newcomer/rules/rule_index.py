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

from newcomer.graph import Ids, Mask, Offsets, read_only
from newcomer.rules.rule import NONE, UNARY_KINDS, Kind, RuleSet

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
