"""Whether a relation applies to an entity and is not filled yet, as far as the seen entities tell.

An entity that has ``c`` answers to an oriented relation is compared with the seen entities that have at least as many:
what share of them has more? Three answers to that, from the general to the particular:

    base      the share among all of them
    relations each counts by how many of the entity's relations it has, too:  (shared weight / own weight) ^ 8
    facts     each counts by how many of the entity's very facts it has, too: (shared weight) ^ 2

where a relation or a fact weighs ``log((n + 1) / (n_f + 1))`` if ``n_f`` of the ``n`` seen entities have it. The most
similar ones count 1 together with a single entity of the base. A relation that never has two answers is never filled
twice (`c = 1` of a functional relation), and a relation that nobody of the entity's kind has does not apply.

The log odds of these shares, the number of facts and whether there is an answer already are the *evidence*, from which
probability is learned (`newcomer.evaluation.fact_probability`).

How many answers are missing, if any are, is counted likewise: of those who have more than ``c``, how many more have
they on average, each counting by the relations in common (`RelationProfiles.excess`)?
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Adjacency, Graph, Ids, Offsets, seen_count
from newcomer.rules.compiled import compiled, edges_of

RELATION_POWER, FACT_POWER = 8, 2  # how much more the most similar entities count than others
LEAST = 1e-6  # probability, and what is left to certainty
EVIDENCE = 5  # numbers about an entity and a relation
Floats = npt.NDArray[np.float64]


class Having(NamedTuple):
    """Which seen entities have each oriented relation, ascending, and how many answers."""

    offsets: Offsets  # (2 relations + 1,)
    entities: Ids
    counts: Offsets


class RelationProfiles:
    """Which oriented relations the seen entities have, and how often."""

    def __init__(self, observed: Graph, num_seen: int | None = None) -> None:
        self.num_relations = observed.num_relations
        self.num_seen = seen_count(observed) if num_seen is None else num_seen
        self._rows: Adjacency = observed.adjacency
        self._loops: dict[int, float] = {}
        self._shares: dict[tuple[int, int], float] = {}

    @cached_property
    def _columns(self) -> Having:
        end = int(self._rows.offsets[self.num_seen])
        keys = self._rows.relations[:end].astype(np.int64) * self.num_seen + self._rows.owners[:end]
        pairs, counts = np.unique(keys, return_counts=True)
        offsets = np.searchsorted(pairs, np.arange(2 * self.num_relations + 1) * self.num_seen)
        return Having(offsets.astype(np.int64), (pairs % max(self.num_seen, 1)).astype(np.int32), counts)

    @cached_property
    def _weights(self) -> Floats:
        """(2 relations,): what it says to have a relation."""
        having = np.diff(self._columns.offsets)
        return np.asarray(np.log((self.num_seen + 1) / (having + 1)))

    @cached_property
    def _base(self) -> Floats:
        """(2 relations,): the share of the seen entities that have an answer."""
        return np.asarray((np.diff(self._columns.offsets) + 0.5) / (self.num_seen + 1))

    def share_with_more(self, relation: int, count: int) -> float:
        """The share of those with ``count`` answers at least that have more."""
        if count == 0:
            return float(self._base[relation])
        if (relation, count) not in self._shares:
            counts = self._answers_of(relation)[1]
            self._shares[relation, count] = float(((counts > count).sum() + 0.5) / ((counts >= count).sum() + 1))
        return self._shares[relation, count]

    def loop_share(self, relation: int) -> float:
        """The share of a relation's facts that join an entity to itself."""
        if relation not in self._loops:
            mine = self._rows.relations == relation
            loops = self._rows.tails[mine] == self._rows.owners[mine]
            self._loops[relation] = float((loops.sum() + 0.5) / (len(loops) + 1))
        return self._loops[relation]

    def _answers_of(self, relation: int) -> tuple[Ids, Offsets]:
        """Who answers an oriented relation, and how often."""
        columns, (first, end) = self._columns, self._columns.offsets[relation : relation + 2]
        return columns.entities[first:end], columns.counts[first:end]

    def evidence(self, entity: int, relations: Ids, tails: Ids, asked: int | None = None) -> Floats:
        """(2 relations, EVIDENCE): of an entity with these known facts, seen or new; (1, EVIDENCE) of one relation."""
        of = np.arange(2 * self.num_relations) if asked is None else np.array([asked])
        answers = np.bincount(relations, minlength=2 * self.num_relations)
        similar = [_scaled(one, entity) for one in (self._by_relations(relations), self._by_facts(relations, tails))]
        shares = _shares(self._columns, of, answers, np.stack(similar), self._base).clip(LEAST, 1 - LEAST)
        found = np.empty((len(of), EVIDENCE))
        found[:, :3] = np.log(shares) - np.log1p(-shares)
        found[:, 3] = np.log1p(len(relations))
        found[:, 4] = answers[of] > 0
        return found

    def excess(self, entity: int, relations: Ids) -> Floats:
        """(2 relations,): how many more answers than known there are if any, of an entity with these known relations.

        The mean over the seen entities that have more, by relations in common; all together count as one more entity.
        """
        answers, weights = np.bincount(relations, minlength=2 * self.num_relations), self._by_relations(relations)
        weights = _scaled(weights, entity)
        columns, size = self._columns, 2 * self.num_relations
        by_relation = np.repeat(np.arange(size), np.diff(columns.offsets))
        each = weights[columns.entities] + 1 / (self.num_seen + 1)
        more = np.bincount(by_relation, each * columns.counts, size)
        having = np.bincount(by_relation, each, size)
        for relation in np.flatnonzero(answers).tolist():
            count, (who, counts) = answers[relation], self._answers_of(relation)
            beyond, weight = (counts - count).clip(0.0), weights[who] + 1 / (1 + (counts >= count).sum())
            more[relation] = (weight * beyond).sum()
            having[relation] = (weight * (beyond > 0)).sum()
        found: Floats = np.where(having > 0, more / np.where(having > 0, having, 1.0), 1.0)
        return found

    def _by_relations(self, relations: Ids) -> Floats:
        """(seen,): how similar each is by the relations it has."""
        own = np.unique(relations)
        shared = np.zeros(self.num_seen)
        _add_to_those(self._columns, own, self._weights[own], shared)
        shared /= max(self._weights[own].sum(), LEAST)
        for _ in range(RELATION_POWER.bit_length() - 1):  # a power of two
            shared *= shared
        return shared

    def _by_facts(self, relations: Ids, tails: Ids) -> Floats:
        """(seen,): how similar each is by the facts it has."""
        found, seen = np.zeros(self.num_seen), tails < self.num_seen
        inverse = (relations[seen] + self.num_relations) % (2 * self.num_relations)
        runs = _runs(self._rows, tails[seen], inverse)
        gains = np.log((self.num_seen + 1) / (runs[:, 1] - runs[:, 0] + 1))
        _add_to_runs(self._rows.tails, runs, gains, found)
        return found**FACT_POWER


def _scaled(weights: Floats, entity: int) -> Floats:
    """With 1 as the highest, and 0 for the entity: a seen one says nothing about itself."""
    weights[entity : entity + 1] = 0.0
    top = weights.max(initial=0.0)
    return weights / top if top > 0 else weights


def likely_relations(evidence: Floats, most: int) -> Ids:
    """The oriented relations that most probably apply, by those whom the entity is like."""
    order: Ids = np.argsort(-(evidence[:, 0] + evidence[:, 1]), kind="stable")[:most].astype(np.int32)
    return order


@compiled
def _runs(rows: Adjacency, entities: Ids, relations: Ids) -> Offsets:
    """(n, 2): where the edges of each entity along an oriented relation begin and end."""
    found = np.empty((len(entities), 2), dtype=np.int64)
    for place in range(len(entities)):
        found[place] = edges_of(rows.offsets, rows.relations, entities[place], relations[place])
    return found


@compiled
def _add_to_runs(tails: Ids, runs: Offsets, gains: Floats, found: Floats) -> None:
    for place in range(len(runs)):
        for edge in range(runs[place, 0], runs[place, 1]):
            found[tails[edge]] += gains[place]


@compiled
def _add_to_those(having: Having, relations: Ids, weights: Floats, found: Floats) -> None:
    """Add to all who have a relation what it weighs."""
    for place in range(len(relations)):
        for number in range(having.offsets[relations[place]], having.offsets[relations[place] + 1]):
            found[having.entities[number]] += weights[place]


@compiled
def _shares(having: Having, relations: Offsets, answers: Offsets, similar: Floats, base: Floats) -> Floats:
    """(relations, 3): of those with as many answers at least the share who have more: similar ones, and all."""
    totals, found = similar.sum(axis=1), np.empty((len(relations), 3))
    for place in range(len(relations)):
        relation = relations[place]
        least, more, as_many = answers[relation], np.zeros(3), np.zeros(3)
        for number in range(having.offsets[relation], having.offsets[relation + 1]):
            count, who = having.counts[number], having.entities[number]
            if count < least:
                continue
            for kind in range(2):
                as_many[kind] += similar[kind, who]
                more[kind] += similar[kind, who] * (count > least)
            as_many[2] += 1
            more[2] += count > least
        share = base[relation] if least == 0 else (more[2] + 0.5) / (as_many[2] + 1)
        for kind in range(2):
            found[place, kind] = (more[kind] + share) / ((totals[kind] if least == 0 else as_many[kind]) + 1)
        found[place, 2] = share
    return found
