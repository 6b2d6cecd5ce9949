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

from newcomer.graph import Adjacency, Ids, Offsets, read_only
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
    """All rules, oriented and sorted for grounding and for ranking.

    ``by_start``: walk rules and rules about a variable, by first body relation and kind; ``start_offsets`` has one
    entry for each (relation, kind). ``by_constant``: rules about a variable, by the constant of their head.
    ``by_head``: walk rules by concluded relation. ``by_edge``: rules about a variable by concluded relation, body
    relation, body constant.
    """

    rules: RuleSet
    strength: Floats
    level: Ids
    by_start: OrientedRules
    start_offsets: Offsets
    by_constant: OrientedRules
    by_head: OrientedRules
    head_offsets: Offsets
    by_edge: OrientedRules
    edge_offsets: Offsets

    @classmethod
    def build(cls, rules: RuleSet, strength: Floats) -> "RuleIndex":
        """Index rules whose ``strength`` (a confidence) orders them; equal strengths share a level, 0 is strongest."""
        size = 2 * rules.num_relations
        walks, about = _walks(rules), _about_variable(rules)
        both = _joined(walks, about)
        order = np.lexsort((both.row, both.head, both.body_constant, both.body3, both.body2, both.kind, both.body1))
        by_start = both.take(order)
        by_head = walks.take(np.lexsort((walks.row, walks.head)))
        by_edge = about.take(np.lexsort((about.row, about.body_constant, about.body1, about.head)))
        return cls(
            rules,
            strength,
            _levels(strength),
            by_start,
            _offsets(by_start.body1.astype(np.int64) * KINDS + by_start.kind, size * KINDS),
            about.take(np.lexsort((about.row, about.head_constant))),
            by_head,
            _offsets(by_head.head, size),
            by_edge,
            _offsets(by_edge.head, size),
        )

    @cached_property
    def strength_of_level(self) -> Floats:
        """The strength that each level stands for."""
        return -np.unique(-self.strength)


def _offsets(sorted_keys: npt.NDArray[np.integer], size: int) -> Offsets:
    offsets: Offsets = read_only(np.searchsorted(sorted_keys, np.arange(size + 1)).astype(np.int64))
    return offsets


def _levels(strength: Floats) -> Ids:
    distinct = np.unique(-strength)
    levels: Ids = read_only(np.searchsorted(distinct, -strength).astype(np.int32))
    return levels


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


class Surroundings(NamedTuple):
    """The graph a rule walks over, as compiled code takes it, with the distinct starts of every oriented relation."""

    offsets: Offsets
    relations: Ids
    tails: Ids
    start_offsets: Offsets
    starts: Ids


def surroundings(adjacency: Adjacency, num_relations: int) -> Surroundings:
    """Prepare edges for rules to walk over."""
    entities = max(len(adjacency.offsets) - 1, 1)
    heads = np.repeat(np.arange(len(adjacency.offsets) - 1, dtype=np.int64), np.diff(adjacency.offsets))
    pairs = np.unique(adjacency.relations.astype(np.int64) * entities + heads)
    starts = read_only((pairs % entities).astype(np.int32))
    rows = (read_only(adjacency.offsets), read_only(adjacency.relations), read_only(adjacency.tails))
    return Surroundings(*rows, _offsets(pairs // entities, 2 * num_relations), starts)
