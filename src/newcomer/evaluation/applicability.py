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

import numpy as np
import numpy.typing as npt
import scipy.sparse

from newcomer.graph import Adjacency, Graph, Ids, seen_count

RELATION_POWER, FACT_POWER = 8, 2  # how much more the most similar entities count than others
LEAST = 1e-6  # probability, and what is left to certainty
EVIDENCE = 5  # numbers about an entity and a relation
Floats = npt.NDArray[np.float64]


class RelationProfiles:
    """Which oriented relations the seen entities have, and how often."""

    def __init__(self, observed: Graph, num_seen: int | None = None) -> None:
        self.num_relations = observed.num_relations
        self.num_seen = seen_count(observed) if num_seen is None else num_seen
        self._rows: Adjacency = observed.adjacency
        self._loops: dict[int, float] = {}
        self._shares: dict[tuple[int, int], float] = {}

    @cached_property
    def _counts(self) -> scipy.sparse.csc_matrix:
        """(seen, 2 relations): how many answers each has; ascending entities in each column."""
        end = int(self._rows.offsets[self.num_seen])
        keys = self._rows.owners[:end].astype(np.int64) * (2 * self.num_relations) + self._rows.relations[:end]
        pairs, counts = np.unique(keys, return_counts=True)
        places = pairs // (2 * self.num_relations), pairs % (2 * self.num_relations)
        shape = self.num_seen, 2 * self.num_relations
        return scipy.sparse.csr_matrix((counts.astype(np.float64), places), shape=shape).tocsc()

    @cached_property
    def _has(self) -> scipy.sparse.csc_matrix:
        has = self._counts.copy()
        has.data[:] = 1.0
        return has

    @cached_property
    def _weights(self) -> Floats:
        """(2 relations,): what it says to have a relation."""
        having = np.diff(self._counts.indptr)
        return np.asarray(np.log((self.num_seen + 1) / (having + 1)))

    @cached_property
    def _base(self) -> Floats:
        """(2 relations,): the share of the seen entities that have an answer."""
        return np.asarray((np.diff(self._counts.indptr) + 0.5) / (self.num_seen + 1))

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

    def _answers_of(self, relation: int) -> tuple[Ids, Floats]:
        """Who answers an oriented relation, and how often."""
        first, end = self._counts.indptr[relation : relation + 2]
        return self._counts.indices[first:end], self._counts.data[first:end]

    def evidence(self, entity: int, relations: Ids, tails: Ids) -> Floats:
        """(2 relations, EVIDENCE): of an entity with these known facts, seen or new."""
        answers = np.bincount(relations, minlength=2 * self.num_relations)
        found, base = np.empty((2 * self.num_relations, EVIDENCE)), self._base.copy()
        similar = [_scaled(one, entity) for one in (self._by_relations(relations), self._by_facts(relations, tails))]
        for column, weights in enumerate(similar):
            found[:, column] = (weights @ self._has + base) / (weights.sum() + 1)
        for relation in np.flatnonzero(answers).tolist():
            who, counts = self._answers_of(relation)
            base[relation] = self.share_with_more(relation, int(answers[relation]))
            as_many, more = who[counts >= answers[relation]], who[counts > answers[relation]]
            for column, weights in enumerate(similar):
                found[relation, column] = (weights[more].sum() + base[relation]) / (weights[as_many].sum() + 1)
        found[:, 2] = base
        shares = found[:, :3].clip(LEAST, 1 - LEAST)
        found[:, :3] = np.log(shares) - np.log1p(-shares)
        found[:, 3] = np.log1p(len(relations))
        found[:, 4] = answers > 0
        return found

    def excess(self, entity: int, relations: Ids) -> Floats:
        """(2 relations,): how many more answers than known there are if any, of an entity with these known relations.

        The mean over the seen entities that have more, by relations in common; all together count as one more entity.
        """
        answers, weights = np.bincount(relations, minlength=2 * self.num_relations), self._by_relations(relations)
        weights = _scaled(weights, entity)
        total = np.asarray(self._counts.sum(axis=0)).ravel() / (self.num_seen + 1)
        share = np.diff(self._counts.indptr) / (self.num_seen + 1)
        more, having = weights @ self._counts + total, weights @ self._has + share
        for relation in np.flatnonzero(answers).tolist():
            count, (who, counts) = answers[relation], self._answers_of(relation)
            beyond, weight = (counts - count).clip(0.0), weights[who] + 1 / (1 + (counts >= count).sum())
            more[relation] = (weight * beyond).sum()
            having[relation] = (weight * (beyond > 0)).sum()
        found: Floats = np.where(having > 0, more / np.where(having > 0, having, 1.0), 1.0)
        return found

    def _by_relations(self, relations: Ids) -> Floats:
        """(seen,): how similar each is by the relations it has."""
        weights = np.zeros(2 * self.num_relations)
        weights[relations] = self._weights[relations]
        shared: Floats = (self._has @ weights) / max(weights.sum(), LEAST)
        shared **= RELATION_POWER
        return shared

    def _by_facts(self, relations: Ids, tails: Ids) -> Floats:
        """(seen,): how similar each is by the facts it has."""
        found, size = np.zeros(self.num_seen), self.num_relations
        for relation, tail in zip(relations.tolist(), tails.tolist(), strict=True):
            if tail >= self.num_seen:
                continue
            others, having = self._rows.of(tail)
            inverse = (relation + size) % (2 * size)
            first, end = np.searchsorted(others, [inverse, inverse + 1])
            found[having[first:end]] += np.log((self.num_seen + 1) / (end - first + 1))
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
