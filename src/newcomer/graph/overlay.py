"""The observed graph with newcomers' facts laid over it: a base in compressed rows, a delta, and removals.

An overlay is immutable and cheap to derive: the base is shared, and only the delta is sorted anew. It is read in two
ways. An entity's *own facts* are the observed ones of a seen entity, and all facts of a newcomer: so nothing that goes
by own facts changes for a seen entity when somebody arrives. *All facts* of an entity are everything stated about it by
anyone, so that what newcomers state about seen entities counts too.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from newcomer.graph.types import (
    Adjacency,
    Graph,
    Ids,
    InductiveDataset,
    Mask,
    Offsets,
    TripleArray,
    concatenate,
    offsets_of,
    read_only,
    seen_count,
)

NO_IDS: Ids = read_only(np.empty(0, dtype=np.int32))
NO_ROWS = Adjacency(read_only(np.zeros(1, dtype=np.int64)), NO_IDS, NO_IDS)


class Answers(NamedTuple):
    """Which entities answer oriented relations, ascending for each; see `AnswerCounts`."""

    offsets: Offsets
    entities: Ids


class OverlayArrays(NamedTuple):
    """An overlay as compiled code takes it; see `newcomer.rules.grounding`."""

    num_seen: int
    num_relations: int
    observed: Adjacency
    base: Adjacency  # these and the newcomers' facts that came with the model
    delta: Adjacency  # facts since then
    removed: Mask  # (entities,): newcomers whose rows in the base no longer count
    observed_answers: Answers
    base_answers: Answers
    delta_answers: Answers


@dataclass(frozen=True, eq=False)
class Base:
    """The part that all overlays over one model share."""

    observed: Adjacency
    rows: Adjacency  # the observed facts and those of the newcomers that came with the model
    num_seen: int
    num_relations: int
    num_entities: int = field(init=False)

    @classmethod
    def of(cls, observed: Graph, facts: TripleArray, num_seen: int) -> "Base":
        """Of the observed graph and the facts that are about newcomers."""
        facts = about_newcomers(facts, num_seen)
        rows = observed.adjacency
        if len(facts):
            together = concatenate([observed.triples, facts])
            rows = Graph.build(observed.entities, observed.relations, together).adjacency
        return cls(observed.adjacency, rows, num_seen, observed.num_relations)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_entities", len(self.rows.offsets) - 1)

    def without_newcomers(self) -> "Base":
        """The observed graph alone; what was counted over it is not counted again."""
        if self.rows is self.observed:
            return self
        alone = Base(self.observed, self.observed, self.num_seen, self.num_relations)
        alone.__dict__["observed_counts"] = self.observed_counts
        return alone

    @cached_property
    def observed_counts(self) -> "AnswerCounts":
        """How often entities answer relations in the observed graph."""
        return AnswerCounts.of(self.observed, self.num_relations)

    @cached_property
    def counts(self) -> "AnswerCounts":
        """The same in the whole base."""
        return self.observed_counts if self.rows is self.observed else AnswerCounts.of(self.rows, self.num_relations)


@dataclass(frozen=True, eq=False)
class Overlay:
    """A base with the facts that have come since; ``removed`` newcomers have only those of the delta, if any."""

    base: Base
    delta: Adjacency = NO_ROWS
    removed: Ids = field(default_factory=lambda: NO_IDS)
    num_seen: int = field(init=False)
    num_relations: int = field(init=False)
    num_entities: int = field(init=False)  # ids there are, whether or not anything is known of them

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_seen", self.base.num_seen)
        object.__setattr__(self, "num_relations", self.base.num_relations)
        object.__setattr__(self, "num_entities", max(self.base.num_entities, len(self.delta.offsets) - 1))

    @classmethod
    def of(cls, observed: Graph, facts: TripleArray | None = None, num_seen: int | None = None) -> "Overlay":
        """Of the observed graph and newcomers' facts; the first entities, so many, are seen."""
        seen = seen_count(observed) if num_seen is None else num_seen
        return cls(Base.of(observed, TripleArray.empty() if facts is None else facts, seen))

    @classmethod
    def of_dataset(cls, dataset: InductiveDataset) -> "Overlay":
        """Of a data set: the observed graph, and the auxiliary facts."""
        return cls.of(dataset.observed, dataset.auxiliary.triples)

    def with_delta(self, facts: TripleArray, removed: Ids) -> "Overlay":
        """The base with these facts over it, and without those of ``removed`` newcomers; ids may be new.

        Connected newcomers change together: no fact of the base may tie a removed newcomer to one that stays.
        """
        if len(facts) == 0 and len(removed) == 0:
            return replace(self, delta=NO_ROWS, removed=NO_IDS)
        size = max(self.base.num_entities, 1 + int(max(facts.heads.max(initial=-1), facts.tails.max(initial=-1))))
        rows = np.concatenate([facts.heads, facts.tails])
        relations = np.concatenate([facts.relations, facts.relations + self.num_relations]).astype(np.int32)
        tails = np.concatenate([facts.tails, facts.heads])
        order = np.lexsort((tails, relations, rows))
        offsets = offsets_of(np.bincount(rows, minlength=size))
        delta = Adjacency(offsets, read_only(relations[order]), read_only(tails[order].astype(np.int32)))
        return replace(self, delta=delta, removed=np.unique(removed).astype(np.int32))

    @cached_property
    def is_removed(self) -> Mask:
        """(entities,): whether an entity's rows in the base no longer count."""
        mask = np.zeros(self.num_entities, dtype=np.bool_)
        mask[self.removed] = True
        return read_only(mask)

    @cached_property
    def is_unobserved(self) -> Mask:
        """(entities,): whether an entity has no observed fact."""
        mask = np.ones(self.num_entities, dtype=np.bool_)
        mask[: len(self.base.observed.sizes)] = self.base.observed.sizes == 0
        return mask

    def facts_of(self, entity: int) -> tuple[Ids, Ids]:
        """The oriented relations and tails of an entity's own facts, sorted and read-only."""
        if entity < self.num_seen:
            return self.base.observed.of(entity)
        if entity < self.base.num_entities and not self.is_removed[entity]:
            return self.base.rows.of(entity)
        return self.delta.of(entity)

    def all_facts_of(self, entity: int) -> tuple[Ids, Ids]:
        """The oriented relations and tails of all facts of an entity; those of the delta follow those of the base."""
        relations, tails = self.base.rows.of(entity)
        if len(self.removed):
            stays = ~self.is_removed[tails] & ~self.is_removed[entity]
            relations, tails = relations[stays], tails[stays]
        more_relations, more_tails = self.delta.of(entity)
        if len(more_tails) == 0:
            return relations, tails
        return np.concatenate([relations, more_relations]), np.concatenate([tails, more_tails])

    def answers(self, entity: int, relation: int) -> Ids:
        """Who is stated by the entity's own facts to answer (entity, oriented relation, ?)."""
        return _along(*self.facts_of(entity), relation)

    def all_answers(self, entity: int, relation: int) -> Ids:
        """Who is stated by anyone's facts to answer (entity, oriented relation, ?)."""
        stored, added = (_along(*rows.of(entity), relation) for rows in (self.base.rows, self.delta))
        if len(self.removed):
            stored = stored[:0] if self.is_removed[entity] else stored[~self.is_removed[stored]]
        return stored if len(added) == 0 else np.concatenate([stored, added])

    @cached_property
    def own_rows(self) -> Adjacency:
        """Everyone's own facts in one table; made for walks that need one, at the cost of a copy."""
        seen, observed = self.num_seen, self.base.observed
        stored = _edges(self.base.rows, seen)
        stored = stored[:, ~self.is_removed[stored[0]]]
        owners, relations, tails = np.concatenate([stored, _edges(self.delta, seen)], axis=1)
        order = np.argsort(owners, kind="stable")
        sizes = np.bincount(owners, minlength=self.num_entities)
        sizes[:seen] = observed.sizes[:seen]
        end = int(observed.offsets[seen])
        return Adjacency(
            offsets_of(sizes),
            read_only(np.concatenate([observed.relations[:end], relations[order]])),
            read_only(np.concatenate([observed.tails[:end], tails[order]])),
        )

    @cached_property
    def arrays(self) -> OverlayArrays:
        """For compiled code."""
        base = self.base
        answers = (Answers(c.offsets, c.answers) for c in (base.observed_counts, base.counts, self.delta_counts))
        rows = base.observed, base.rows, self.delta
        return OverlayArrays(base.num_seen, base.num_relations, *rows, self.is_removed, *answers)

    @cached_property
    def delta_counts(self) -> "AnswerCounts":
        """How often entities answer relations in the delta."""
        return AnswerCounts.of(self.delta, self.num_relations)


@dataclass(frozen=True, eq=False)
class AnswerCounts:
    """How often entities answer oriented relations; who answers ``relation`` stands from ``offsets[relation]`` on."""

    offsets: Offsets
    answers: Ids
    counts: Offsets

    @classmethod
    def of(cls, rows: Adjacency, num_relations: int) -> "AnswerCounts":
        """Of a graph's rows."""
        width = max(len(rows.offsets) - 1, 1)
        pairs, counts = np.unique(rows.relations.astype(np.int64) * width + rows.tails, return_counts=True)
        offsets = np.searchsorted(pairs, np.arange(2 * num_relations + 1) * width)
        return cls(read_only(offsets.astype(np.int64)), read_only((pairs % width).astype(np.int32)), counts)

    def answering(self, relation: int) -> Ids:
        """Who answers an oriented relation."""
        return self.answers[self.offsets[relation] : self.offsets[relation + 1]]

    @cached_property
    def totals(self) -> Offsets:
        """(2 relations,): how many facts each oriented relation has."""
        return np.diff(np.concatenate([[0], np.cumsum(self.counts)])[self.offsets])


def about_newcomers(facts: TripleArray, num_seen: int) -> TripleArray:
    """The facts that have a newcomer at an end."""
    return facts.take(np.maximum(facts.heads, facts.tails) >= num_seen)


def _along(relations: Ids, tails: Ids, relation: int) -> Ids:
    """Of the edges of an entity the tails along one relation."""
    first, last = np.searchsorted(relations, [relation, relation + 1])
    found: Ids = tails[first:last]
    return found


def _edges(rows: Adjacency, first: int) -> Ids:
    """The edges of the entities from the first on: whose, relation, tail. Shape (3, edges)."""
    first = min(first, len(rows.offsets) - 1)
    start, sizes = rows.offsets[first], np.diff(rows.offsets[first:])
    owners = np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes)
    return np.stack([owners, rows.relations[start:], rows.tails[start:]])
