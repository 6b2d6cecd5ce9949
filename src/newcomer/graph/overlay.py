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
    read_only,
    seen_count,
)

NO_IDS: Ids = read_only(np.empty(0, dtype=np.int32))
NO_ROWS = Adjacency(read_only(np.zeros(1, dtype=np.int64)), NO_IDS, NO_IDS)


class OverlayArrays(NamedTuple):
    """An overlay as compiled code takes it; see `newcomer.rules.grounding`."""

    num_seen: int
    offsets: Offsets  # of the observed graph
    relations: Ids
    tails: Ids
    base_offsets: Offsets  # of these and the newcomers' facts that came with the model
    base_relations: Ids
    base_tails: Ids
    delta_offsets: Offsets  # of facts since then
    delta_relations: Ids
    delta_tails: Ids
    removed: Mask  # (entities,): newcomers whose rows in the base no longer count
    start_offsets: Offsets  # which seen entities have an oriented relation
    starts: Ids
    base_start_offsets: Offsets  # which newcomers of the base do
    base_starts: Ids
    delta_start_relations: Ids  # and which of the delta: (relation, newcomer), ascending
    delta_starts: Ids


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
        alone = rows = _compiled(observed.adjacency)
        if len(facts):
            together = concatenate([observed.triples, facts])
            rows = _compiled(Graph.build(observed.entities, observed.relations, together).adjacency)
        return cls(alone, rows, num_seen, observed.num_relations)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_entities", len(self.rows.offsets) - 1)

    def without_newcomers(self) -> "Base":
        """The observed graph alone; what was counted over it is not counted again."""
        if self.rows is self.observed:
            return self
        alone = Base(self.observed, self.observed, self.num_seen, self.num_relations)
        nobody = read_only(np.zeros(2 * self.num_relations + 1, dtype=np.int64)), NO_IDS
        counted = {"observed_counts": self.observed_counts, "starts": self.starts, "newcomer_starts": nobody}
        alone.__dict__.update(counted)
        return alone

    @cached_property
    def observed_counts(self) -> "AnswerCounts":
        """How often entities answer relations in the observed graph."""
        return AnswerCounts.of(self.observed, self.num_relations)

    @cached_property
    def counts(self) -> "AnswerCounts":
        """The same in the whole base."""
        return self.observed_counts if self.rows is self.observed else AnswerCounts.of(self.rows, self.num_relations)

    @cached_property
    def observed_relation_counts(self) -> Offsets:
        """(relations,): how many observed facts each relation has."""
        counted: Offsets = np.bincount(self.observed.relations, minlength=2 * self.num_relations)
        return counted[: self.num_relations]

    @cached_property
    def is_observed(self) -> Mask:
        """(entities,): whether an entity has an observed fact."""
        found: Mask = np.diff(self.observed.offsets) > 0
        return found

    @cached_property
    def starts(self) -> tuple[Offsets, Ids]:
        """Which seen entities have each oriented relation."""
        return _starts(self.observed, self.num_relations, 0)

    @cached_property
    def newcomer_starts(self) -> tuple[Offsets, Ids]:
        """Which newcomers have each oriented relation."""
        return _starts(self.rows, self.num_relations, self.num_seen)


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
        offsets = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=size), out=offsets[1:])
        delta = Adjacency(read_only(offsets), read_only(relations[order]), read_only(tails[order].astype(np.int32)))
        return replace(self, delta=delta, removed=np.unique(removed).astype(np.int32))

    @cached_property
    def is_removed(self) -> Mask:
        """(entities,): whether an entity's rows in the base no longer count."""
        mask = np.zeros(self.num_entities, dtype=np.bool_)
        mask[self.removed] = True
        found: Mask = read_only(mask)
        return found

    @cached_property
    def is_unobserved(self) -> Mask:
        """(entities,): whether an entity has no observed fact."""
        mask = np.ones(self.num_entities, dtype=np.bool_)
        mask[: len(self.base.is_observed)] = ~self.base.is_observed
        return mask

    def facts_of(self, entity: int) -> tuple[Ids, Ids]:
        """The oriented relations and tails of an entity's own facts, sorted."""
        if entity < self.num_seen:
            return self.base.observed.of(entity)
        if entity < self.base.num_entities and not self.is_removed[entity]:
            return self.base.rows.of(entity)
        return _row(self.delta, entity)

    def all_facts_of(self, entity: int) -> tuple[Ids, Ids]:
        """The oriented relations and tails of all facts of an entity; those of the delta follow those of the base."""
        relations, tails = _row(self.base.rows, entity)
        if len(self.removed):
            stays = ~self.is_removed[tails] & ~self.is_removed[entity]
            relations, tails = relations[stays], tails[stays]
        more_relations, more_tails = _row(self.delta, entity)
        if len(more_tails) == 0:
            return relations, tails
        return np.concatenate([relations, more_relations]), np.concatenate([tails, more_tails])

    def answers(self, entity: int, relation: int) -> Ids:
        """Who is stated by the entity's own facts to answer (entity, oriented relation, ?)."""
        relations, tails = self.facts_of(entity)
        first, last = np.searchsorted(relations, [relation, relation + 1])
        found: Ids = tails[first:last]
        return found

    @cached_property
    def own_rows(self) -> Adjacency:
        """Everyone's own facts in one table; made for walks that need one, at the cost of a copy."""
        seen, known, observed = self.num_seen, self.base.num_entities, self.base.observed
        rows = _from(self.base.rows, seen, ~self.is_removed[seen:known]), _from(self.delta, seen)
        owners = np.concatenate([owner for owner, _, _ in rows])
        order = np.argsort(owners, kind="stable")
        sizes = np.zeros(self.num_entities, dtype=np.int64)
        sizes[:seen] = np.diff(observed.offsets[: seen + 1])
        sizes += np.bincount(owners, minlength=self.num_entities)
        offsets = read_only(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        end = int(observed.offsets[seen])
        relations = np.concatenate([observed.relations[:end], np.concatenate([one for _, one, _ in rows])[order]])
        tails = np.concatenate([observed.tails[:end], np.concatenate([one for _, _, one in rows])[order]])
        return Adjacency(offsets, read_only(relations), read_only(tails))

    @cached_property
    def arrays(self) -> OverlayArrays:
        """For compiled code."""
        base = self.base
        return OverlayArrays(
            base.num_seen,
            *_columns(base.observed),
            *_columns(base.rows),
            *_columns(self.delta),
            self.is_removed,
            *base.starts,
            *base.newcomer_starts,
            *self._delta_starts,
        )

    @cached_property
    def _delta_starts(self) -> tuple[Ids, Ids]:
        rows = np.repeat(np.arange(len(self.delta.offsets) - 1), np.diff(self.delta.offsets))
        new = rows >= self.num_seen
        pairs = np.unique(self.delta.relations[new].astype(np.int64) * self.num_entities + rows[new])
        relations, starts = np.divmod(pairs, self.num_entities)
        return read_only(relations.astype(np.int32)), read_only(starts.astype(np.int32))


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
        return cls(offsets, (pairs % width).astype(np.int32), counts)

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


def _row(rows: Adjacency, entity: int) -> tuple[Ids, Ids]:
    """A row; of an entity that the table does not know, nothing."""
    return rows.of(entity) if entity + 1 < len(rows.offsets) else (NO_IDS, NO_IDS)


def _from(rows: Adjacency, first: int, kept: Mask | None = None) -> tuple[Offsets, Ids, Ids]:
    """The edges of the entities from the first on (those that are kept): whose, relation, tail."""
    sizes = np.diff(rows.offsets)[first:]
    start = int(rows.offsets[min(first, len(rows.offsets) - 1)])
    owners = np.repeat(np.arange(first, first + len(sizes), dtype=np.int64), sizes)
    if kept is None:
        return owners, rows.relations[start:], rows.tails[start:]
    edges = np.repeat(kept, sizes)
    return owners[edges], rows.relations[start:][edges], rows.tails[start:][edges]


def _columns(rows: Adjacency) -> tuple[Offsets, Ids, Ids]:
    return rows.offsets, rows.relations, rows.tails


def _compiled(rows: Adjacency) -> Adjacency:
    """The same rows as arrays of the one kind that compiled code is made for."""
    return Adjacency(read_only(rows.offsets), read_only(rows.relations), read_only(rows.tails))


def _starts(rows: Adjacency, num_relations: int, first: int) -> tuple[Offsets, Ids]:
    """Which entities, from the first on, have each oriented relation."""
    size = max(len(rows.offsets) - 1, 1)
    owners = np.repeat(np.arange(len(rows.offsets) - 1, dtype=np.int64), np.diff(rows.offsets))
    mine = owners >= first
    pairs = np.unique(rows.relations[mine].astype(np.int64) * size + owners[mine])
    offsets = np.searchsorted(pairs // size, np.arange(2 * num_relations + 1)).astype(np.int64)
    return read_only(offsets), read_only((pairs % size).astype(np.int32))
