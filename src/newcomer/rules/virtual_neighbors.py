"""Virtual neighbours: what rules conclude about entities, each with its confidence and all of its reasons.

A conclusion contains the entity asked about and is not among its facts. It is kept once, with every grounding (rule and
premises) that leads to it; its confidence is the highest of theirs. Rules start at the entity's own facts and walk on
over those of the entities they come to (see `newcomer.graph.overlay`).
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.errors import OptionError, unknown_name
from newcomer.graph import Ids, Mask, Offsets, Overlay, TripleArray, changes, offsets_of
from newcomer.rules.grounding import Facts, Floats, RuleIndex, ground_entity
from newcomer.rules.limits import in_threads
from newcomer.rules.mining.symmetric_paths import PathGroundings, PathLimits, PathRules, virtual_edges
from newcomer.rules.rule import NONE, UNCOUNTED, Kind, RuleSet

MEASURES = ("pca", "standard", "smoothed")
LOGIC, PATH = 0, 1
SOURCES = ("logic", "path")
PREMISES = 3
AT_ONCE = 64  # entities a thread takes at a time


@dataclass(frozen=True)
class NeighborLimits:
    """Which rules may conclude, and how much is kept for one entity.

    ``measure`` is the confidence that counts: pca, standard or smoothed. ``max_per_entity`` keeps the best conclusions
    by confidence, then number of groundings, then ids. A rule that two facts support is right by luck too often: by
    default ten must. The paper's tool asks for a head relation of 100 facts instead (``min_head_size``).
    """

    min_confidence: float = 0.8
    measure: str = "pca"
    min_support: int = 10
    min_head_size: int = 1
    max_per_entity: int | None = None

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise unknown_name("measure", self.measure, MEASURES)
        if not 0 <= self.min_confidence <= 1:
            raise OptionError(f"min_confidence {self.min_confidence:g} is not between 0 and 1")
        for name in ("min_support", "min_head_size", "max_per_entity"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} {value} is not a number of at least 1")

    def chosen(self, rules: RuleSet) -> npt.NDArray[np.intp]:
        """The rows of the rules that may conclude; a figure that a rule file did not give passes."""
        strength = strength_of(rules, self.measure)
        if len(rules) and np.isnan(strength).all():
            other = next(name for name in ("standard", "pca") if name != self.measure)
            raise OptionError(
                f"the rules do not state their {self.measure} confidence; use the measure {other!r} instead"
            )
        strong = strength >= self.min_confidence
        supported = (rules.support >= self.min_support) | (rules.support == UNCOUNTED)
        sized = (rules.head_size >= self.min_head_size) | (rules.head_size == UNCOUNTED)
        return np.flatnonzero(strong & supported & sized)


def strength_of(rules: RuleSet, measure: str) -> Floats:
    """The confidence of every rule by one of the measures."""
    columns = {"pca": rules.pca_confidence, "standard": rules.confidence, "smoothed": rules.smoothed_confidence}
    return columns[measure]


@dataclass(frozen=True, eq=False)
class VirtualNeighbors:
    """Virtual triples, sorted and distinct, and their groundings.

    The groundings of triple ``i`` are rows ``offsets[i]`` to ``offsets[i + 1]`` of the columns below: where the rule
    comes from (``LOGIC``: a row of ``rules``; ``PATH``: a row of ``path_rules``) and up to three premises as plain
    triples, shape (groundings, 3, 3), -1 where there are fewer.
    """

    rules: RuleSet
    path_rules: PathRules
    triples: TripleArray
    offsets: Offsets
    grounding_source: Ids
    grounding_rule: Ids
    grounding_strength: Floats
    premises: Ids

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def confidence(self) -> Floats:
        """Of each triple: the highest of its groundings'."""
        return self._of_triples(np.maximum, self.grounding_strength)

    @property
    def kinds(self) -> Ids:
        """Of each triple: ``LOGIC`` where a logic rule infers it."""
        return self._of_triples(np.minimum, self.grounding_source)

    def _of_triples(self, function: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One value for each triple of those of its groundings."""
        return function.reduceat(values, self.offsets[:-1]) if len(self) else values[:0]

    @property
    def grounding_counts(self) -> Ids:
        return np.diff(self.offsets).astype(np.int32)

    @property
    def logic(self) -> Mask:
        """Which groundings are of logic rules."""
        return np.asarray(self.grounding_source == LOGIC)

    def where(self, keep: Mask) -> "VirtualNeighbors":
        """The triples under a mask, with their groundings."""
        return replace(
            self,
            triples=self.triples.take(keep),
            offsets=offsets_of(self.grounding_counts[keep]),
            **self._groundings(np.repeat(keep, self.grounding_counts)),
        )

    def without_groundings(self) -> "VirtualNeighbors":
        """The same triples, for those who ask no reasons."""
        return replace(self, offsets=np.zeros_like(self.offsets), **self._groundings(slice(0)))

    def _groundings(self, which: Mask | slice) -> dict[str, Any]:
        """These groundings."""
        columns = ("grounding_source", "grounding_rule", "grounding_strength", "premises")
        return {name: getattr(self, name)[which] for name in columns}

    def degrees(self, num_entities: int) -> Ids:
        """How many virtual triples each entity is in."""
        ends = np.concatenate([self.triples.heads, self.triples.tails])
        return np.bincount(ends, minlength=num_entities).astype(np.int32)

    def reasons(self, triple: int) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
        """(source, rule row, premises) of each grounding of a triple."""
        for row in range(int(self.offsets[triple]), int(self.offsets[triple + 1])):
            facts = [(int(h), int(r), int(t)) for h, r, t in self.premises[row] if r != NONE]
            yield int(self.grounding_source[row]), int(self.grounding_rule[row]), facts


class Sought(NamedTuple):
    """Conclusions that are asked for: those that join an entity along an oriented relation to one of these ends."""

    relation: int
    ends: Ids

    def among(self, relations: Ids, ends: Ids) -> Mask:
        """Which conclusions, by oriented relation and other end, are asked for."""
        found: Mask = (relations == self.relation) & np.isin(ends, self.ends)
        return found


class Grounder:
    """Rules made ready for grounding, so that each entity costs only what its neighbourhood costs."""

    def __init__(self, rules: RuleSet, limits: NeighborLimits | None = None) -> None:
        self.limits = limits or NeighborLimits()
        self.rules = rules.where(self.limits.chosen(rules))
        self.strength = strength_of(self.rules, self.limits.measure)
        self.num_relations = rules.num_relations
        self.index = RuleIndex(self.rules, self.strength)

    def only(self, rows: npt.NDArray[np.intp]) -> "Grounder":
        """Some of the rules."""
        found = copy(self)
        found.rules, found.strength = self.rules.where(rows), self.strength[rows]
        found.index = RuleIndex(found.rules, found.strength)
        return found

    def ground(self, overlay: Overlay, entity: int) -> Ids:
        """Rows (rule, oriented relation, other end, middle nodes) for an entity."""
        index = self.index
        facts = Facts(entity, *overlay.facts_of(entity))
        return ground_entity(facts, overlay.arrays, index.by_start, index.start_offsets, index.by_constant)

    def ground_all(
        self, overlay: Overlay, entities: Ids, threads: int = 1, sought: Sought | None = None
    ) -> "Groundings":
        """The groundings of many entities, in the order of their ids; only what is sought, if that is given."""
        asked = np.unique(entities)
        found = in_threads(lambda entity: self.ground(overlay, entity), asked.tolist(), threads, AT_ONCE)
        if sought is not None:
            found = [rows[sought.among(rows[:, 1], rows[:, 2])] for rows in found]
        counts = [len(rows) for rows in found]
        table = np.concatenate([np.empty((0, 5), dtype=np.int32), *found])
        return _logic_groundings(self, np.repeat(asked, counts).astype(np.int32), table)


class Groundings(NamedTuple):
    """One row a grounding: the entity it was found for, the conclusion, where it comes from, its premises."""

    entities: Ids
    conclusions: Ids  # (groundings, 3)
    strength: Floats
    source: Ids
    rule: Ids
    premises: Ids  # (groundings, 3, 3)

    def take(self, which: npt.NDArray[np.intp] | Mask) -> "Groundings":
        """These rows."""
        return Groundings._make(column[which] for column in self)


def virtual_neighbors(
    grounder: Grounder,
    overlay: Overlay,
    entities: Ids,
    paths: PathLimits | None = None,
    seed: int = 0,
    threads: int = 1,
    sought: Sought | None = None,
) -> VirtualNeighbors:
    """What rules (and, with ``paths``, symmetric-path rules) conclude about ``entities`` from their own facts.

    At least all that is ``sought``, where that is given.
    """
    if grounder.limits.max_per_entity is not None:
        sought = None  # which conclusions are the best, all of them tell
    parts = [grounder.ground_all(overlay, entities, threads, sought)]
    path_rules = PathRules.empty(grounder.num_relations)
    if paths is not None:
        found = virtual_edges(overlay.own_rows, entities, grounder.num_relations, paths, seed, threads)
        path_rules = found.rules
        rows = _path_groundings(found, grounder.num_relations)
        parts.append(rows if sought is None else rows.take(sought.among(found.relations, found.others)))
    rows = Groundings._make(map(np.concatenate, zip(*parts, strict=True)))
    rows = rows.take(_within_cap(rows, grounder.limits.max_per_entity))
    return _collect(grounder.rules, path_rules, rows)


def about_those(found: VirtualNeighbors, there: Ids, num_seen: int) -> VirtualNeighbors:
    """The conclusions whose ends are seen or there: a rule may name a newcomer that nothing is known of."""
    keep = np.ones(len(found), dtype=bool)
    for column in (found.triples.heads, found.triples.tails):
        keep &= (column < num_seen) | np.isin(column, there)
    return found if keep.all() else found.where(keep)


def _plain(edges: Ids, size: int) -> Ids:
    """Oriented edges as plain (head, relation, tail); where there is no relation, -1 throughout. Shape (..., 3)."""
    inverse = edges[..., 1] >= size
    plain = np.where(inverse[..., None], edges[..., ::-1] - [0, size, 0], edges)
    plain[edges[..., 1] == NONE] = NONE
    return plain.astype(np.int32)


def _logic_groundings(grounder: Grounder, entities: Ids, table: Ids) -> Groundings:
    rule, relation, end = table[:, 0], table[:, 1], table[:, 2]
    return Groundings(
        entities,
        _plain(np.stack([entities, relation, end], axis=1), grounder.num_relations),
        grounder.strength[rule],
        np.full(len(table), LOGIC, dtype=np.int32),
        np.ascontiguousarray(rule),
        _plain(_premises(grounder.rules, entities, table), grounder.num_relations),
    )


def _premises(rules: RuleSet, entities: Ids, table: Ids) -> Ids:
    """The edges a grounding rests on, in the order of the rule's own atoms. Shape (n, 3, 3)."""
    rule, relation, end, first, second = (table[:, i] for i in range(5))
    kind = rules.kinds[rule]
    forward = relation == rules.heads[rule]
    # The rule's own variables: x and y for walks, the variable and "the other term of its atom" for the rest.
    x, y = np.where(forward, entities, end), np.where(forward, end, entities)
    z, w = np.where(forward | (kind != Kind.THREE), first, second), np.where(forward, second, first)
    b1, b2, b3 = rules.body1[rule], rules.body2[rule], rules.body3[rule]
    walks_on = (kind == Kind.TWO) | (kind == Kind.THREE)
    about = (kind == Kind.CONSTANT) | (kind == Kind.EXISTS)
    three = kind == Kind.THREE
    edges = [
        [x, b1, np.where(walks_on | about, z, y)],
        [np.where(walks_on, z, x), b2, np.where(three, w, y)],
        [w, b3, y],
    ]
    return np.moveaxis(np.array(edges, dtype=np.int32), 2, 0)


def _path_groundings(found: PathGroundings, size: int) -> Groundings:
    conclusions = np.stack([found.entities, found.relations, found.others], axis=1)
    return Groundings(
        found.entities,
        _plain(conclusions, size),
        found.confidence,
        np.full(len(found), PATH, dtype=np.int32),
        found.rule,
        _plain(found.premises, size),
    )


def _within_cap(rows: Groundings, cap: int | None) -> Mask:
    """Which groundings belong to the best ``cap`` conclusions of their entity."""
    if cap is None or len(rows.entities) == 0:
        return np.ones(len(rows.entities), dtype=bool)
    keys = np.column_stack([rows.entities, rows.conclusions])
    distinct, which, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    best = np.zeros(len(distinct))
    np.maximum.at(best, which, rows.strength)
    order = np.lexsort((np.arange(len(distinct)), -counts, -best, distinct[:, 0]))
    entity = distinct[order, 0]
    starts = np.searchsorted(entity, entity)
    keep = np.empty(len(distinct), dtype=bool)
    keep[order] = np.arange(len(order)) - starts < cap
    return np.asarray(keep[which])


def _collect(rules: RuleSet, path_rules: PathRules, rows: Groundings) -> VirtualNeighbors:
    """One row a triple; a grounding found from both of its ends stands once."""
    table = np.column_stack([rows.conclusions, rows.source, rows.rule, rows.premises.reshape(-1, PREMISES * 3)])
    _, first = np.unique(table, axis=0, return_index=True)  # sorted by triple, then source, rule, premises
    rows = rows.take(first)
    starts = np.flatnonzero(changes(*rows.conclusions.T))
    offsets = np.append(starts, len(rows.rule)).astype(np.int64)
    return VirtualNeighbors(
        rules,
        path_rules,
        TripleArray.of(rows.conclusions[starts]),
        offsets,
        rows.source,
        rows.rule,
        rows.strength,
        rows.premises,
    )
