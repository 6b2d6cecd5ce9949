"""What is known of everyone: how often each answers a relation, and who is like the answers that are known already.

Counted is all that is known when a question is asked: the observed graph and the facts of all newcomers who are
there. So what one newcomer tells of seen entities is heard when the next one is asked about, though nobody's vector
changes.
Where a relation was hardly observed, what ties the same pairs is counted as well (`newcomer.rules.online`).

An entity's *features* are its facts as seen from it: (oriented relation, other end). The likeness of ``y`` to those
who are known to answer (x, r, ?), S, is

    1 / sqrt(|S|) * sum over s in S and features f that y shares with s of log((n + 1) / (n_f + 1)) / sqrt(d_s d_y)

where ``n`` entities are seen, ``n_f`` entities have the feature (one that more than ``n`` have counts nothing), and
``d`` facts tell of an entity. That s and y are both tied to x itself says nothing.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from newcomer.graph import Adjacency, Graph, Ids, Mask, Offsets, TripleArray, concatenate, read_only
from newcomer.rules.frequencies import Frequencies
from newcomer.rules.online import SELDOM, OnlineRules, count_online
from newcomer.rules.rule_index import Floats

MOST_ANSWERS = 2_000  # of more known answers, so many stand for all
WIDEST = 50_000  # entities that share a feature: one that more have tells nothing that is worth the walk
MOST_TIES = 256  # relations whose ties are kept for the next question
NOTHING = Adjacency(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))


class Shared(NamedTuple):
    """A known answer, its part in somebody's likeness, and the features of both, those that fewest have first."""

    answer: int
    likeness: float
    features: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Company:
    """All that is known; ``latest`` are facts that have come since, of newcomers whose former facts are ``gone``."""

    facts: Adjacency
    frequencies: Frequencies
    num_seen: int
    num_relations: int
    seldom: Mask  # (relations,): whether observed at most `SELDOM` times
    latest: Adjacency = NOTHING
    gone: Ids = field(default_factory=lambda: NOTHING.tails)
    _ties: dict[int, OnlineRules] = field(default_factory=dict, init=False)  # of relations that were asked about so far

    @classmethod
    def of(cls, observed: Graph, told: TripleArray, num_seen: int) -> "Company":
        """Of the observed graph and what was told of newcomers; the first entities, so many, are seen."""
        facts = concatenate([observed.triples, brought_by_newcomers(told, num_seen)])
        known = Graph.build(observed.entities, observed.relations, facts)
        times = np.bincount(observed.triples.relations, minlength=known.num_relations)
        return cls(known.adjacency, Frequencies.of(known), num_seen, known.num_relations, times <= SELDOM)

    def since(self, latest: TripleArray, gone: Ids) -> "Company":
        """With facts of newcomers; those of ``gone`` take the place of what was known of them. Ids may be new."""
        size = max(self.num_entities, 1 + int(max(latest.heads.max(initial=-1), latest.tails.max(initial=-1))))
        rows = np.concatenate([latest.heads, latest.tails])
        along = np.concatenate([latest.relations, latest.relations + self.num_relations]).astype(np.int32)
        tails = np.concatenate([latest.tails, latest.heads])
        order = np.lexsort((tails, along, rows))
        offsets = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=size), out=offsets[1:])
        # Read-only as other rows are, so that loops are compiled once.
        rows_of_latest = Adjacency(read_only(offsets), read_only(along[order]), read_only(tails[order]))
        return replace(self, latest=rows_of_latest, gone=gone)

    @property
    def num_entities(self) -> int:
        return max(len(self.facts.offsets), len(self.latest.offsets)) - 1

    def answered(self, relation: int) -> Floats:
        """(entities,): how often each answers an oriented relation."""
        row = np.zeros(self.num_entities)
        before = self.frequencies.row(relation)
        row[: len(before)] = before
        relations, tails = self._taken_back
        row -= np.bincount(tails[relations == relation], minlength=len(row))
        row[self.gone] = 0  # whoever is tied to one who is gone has either not changed, or is gone, too
        row += np.bincount(self.latest.tails[self.latest.relations == relation], minlength=len(row))
        return row

    @cached_property
    def _taken_back(self) -> tuple[Ids, Ids]:
        """The relations and tails of the facts that those who are gone had."""
        rows = [self.facts.of(newcomer) for newcomer in self.gone.tolist()]
        columns = zip(*rows, strict=True) if rows else ((NOTHING.tails,), (NOTHING.tails,))
        relations, tails = (np.concatenate(column) for column in columns)
        return relations, tails

    @cached_property
    def _away(self) -> Mask:
        away = np.zeros(self.num_entities, dtype=np.bool_)
        away[self.gone] = True
        return away

    def ties(self, relation: int) -> OnlineRules | None:
        """What ties the same pairs as an oriented relation that was seldom observed; None for one with rules."""
        if not self.seldom[relation % self.num_relations]:
            return None
        found = self._ties.get(relation)
        if found is None:
            if len(self._ties) >= MOST_TIES:
                self._ties.clear()
            found = self._ties[relation] = self._counted(relation)
        return found

    def _counted(self, relation: int) -> OnlineRules:
        size, support = self.num_relations, np.zeros(2 * self.num_relations, dtype=np.int64)
        # A pair stands in one of the tables: with one who is gone, all that is known of it is the latest.
        before = self.frequencies.answering((relation + size) % (2 * size))
        count_online(*_arrays(self.facts), self._away, before, relation, size, support)
        rows = np.repeat(np.arange(len(self.latest.offsets) - 1), np.diff(self.latest.offsets))
        having = np.unique(rows[self.latest.relations == relation]).astype(np.int32)
        count_online(*_arrays(self.latest), np.zeros_like(self._away), having, relation, size, support)
        support[relation] = 0
        return OnlineRules(relation, support, self._sizes)

    @cached_property
    def _sizes(self) -> Offsets:
        """(2 relations,): how many facts each oriented relation has."""
        kinds, size = 2 * self.num_relations, self.num_relations
        relations, tails = self._taken_back
        others = ~self._away[tails]  # between two who are gone, a fact is taken back from either side
        sizes: Offsets = (
            self.frequencies.totals
            + np.bincount(self.latest.relations, minlength=kinds)
            - np.bincount(relations, minlength=kinds)
            - np.bincount((relations[others] + size) % kinds, minlength=kinds)
        )
        return sizes

    def likeness(self, entity: int, answers: npt.NDArray[np.integer]) -> Floats:
        """(entities,): how like each is to those who are known to answer what is asked about the entity."""
        found = np.zeros(self.num_entities)
        if len(answers) == 0:
            return found
        tables = (*_arrays(self.facts), *_arrays(self.latest))
        _add_likeness(*tables, self._away, entity, _some(answers), self.num_relations, self.num_seen, found)
        return found

    def shared(self, entity: int, answers: npt.NDArray[np.integer], other: int) -> list[Shared]:
        """What the likeness of one entity is made of: the known answers it is like, itself apart, the likest first."""
        chosen, mine = _some(answers), self._features(entity, other)
        gains = {one: gain for one in mine if (gain := self._gain(*one)) > 0}
        found = []
        for answer in chosen[chosen != other].tolist():
            features = gains.keys() & self._features(entity, answer)
            if features:
                told = self._told(answer) * self._told(other) * len(chosen)
                ordered = sorted(features, key=lambda one: (-gains[one], one))
                found.append(Shared(answer, sum(gains[one] for one in ordered) / told**0.5, tuple(ordered)))
        return sorted(found, key=lambda one: (-one.likeness, one.answer))

    def _facts_of(self, entity: int) -> tuple[Ids, Ids]:
        """The relations and tails of an entity, as they are now."""
        rows = [(table, table.of(entity)) for table in (self.facts, self.latest) if entity + 1 < len(table.offsets)]
        parts = []
        for table, (relations, tails) in rows:
            now = np.ones(len(tails), dtype=bool)
            if table is self.facts:
                now = ~np.isin(tails, self.gone) & (entity not in self.gone)
            parts.append((relations[now], tails[now]))
        return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])

    def _features(self, entity: int, of: int) -> set[tuple[int, int]]:
        relations, tails = self._facts_of(of)
        return {one for one in zip(relations.tolist(), tails.tolist(), strict=True) if one[1] != entity}

    def _told(self, entity: int) -> int:
        return len(self._facts_of(entity)[0])

    def _gain(self, relation: int, end: int) -> float:
        """What it counts to share a feature."""
        back = (relation + self.num_relations) % (2 * self.num_relations)
        having = int((self._facts_of(end)[0] == back).sum())
        return 0.0 if having > WIDEST else max(0.0, float(np.log((self.num_seen + 1) / (having + 1))))


def brought_by_newcomers(told: TripleArray, num_seen: int) -> TripleArray:
    """Of what was told, the facts about newcomers; what is known of two seen entities is what was observed."""
    return told.take(np.maximum(told.heads, told.tails) >= num_seen)


def _arrays(rows: Adjacency) -> tuple[Offsets, Ids, Ids]:
    return rows.offsets, rows.relations, rows.tails


def _some(answers: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The answers, or of very many those at even distances."""
    ordered = np.unique(answers).astype(np.int64)
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_ANSWERS)).astype(np.int64)
    chosen: npt.NDArray[np.int64] = ordered[places]
    return chosen


@numba.njit(nogil=True, cache=True)
def _row(offsets: Offsets, entity: int) -> tuple[Any, Any]:
    """Where the facts of an entity begin and end; of one that the table does not know, nowhere."""
    if entity + 1 >= len(offsets):
        return 0, 0
    return offsets[entity], offsets[entity + 1]


@numba.njit(nogil=True, cache=True)
def _along(offsets: Offsets, relations: Ids, entity: int, relation: int) -> tuple[Any, Any]:
    """Where those of one relation do."""
    first, end = _row(offsets, entity)
    start = first + np.searchsorted(relations[first:end], relation)
    return start, start + np.searchsorted(relations[start:end], relation, side="right")


@numba.njit(nogil=True, cache=True)
def _told(offsets: Offsets, tails: Ids, more_offsets: Offsets, away: Mask, entity: int) -> Any:
    """How many facts tell of an entity."""
    first, end = _row(more_offsets, entity)
    count = end - first
    if not away[entity]:
        first, end = _row(offsets, entity)
        for place in range(first, end):
            count += not away[tails[place]]
    return count


@numba.njit(nogil=True, cache=True)
def _features(
    offsets: Offsets, relations: Ids, tails: Ids, more_offsets: Offsets, more_relations: Ids, more_tails: Ids,
    away: Mask, entity: int, answers: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], Floats]:  # fmt: skip
    """The features of all answers, as numbers, and how much each counts."""
    size, room = len(away), 0
    for answer in answers:
        room += _told(offsets, tails, more_offsets, away, answer)
    keys, shares, count = np.empty(room, dtype=np.int64), np.empty(room), 0
    for answer in answers:
        told = _told(offsets, tails, more_offsets, away, answer)
        share = 1 / np.sqrt(max(told, 1) * len(answers))
        if not away[answer]:
            first, end = _row(offsets, answer)
            for place in range(first, end):
                if tails[place] != entity and not away[tails[place]]:
                    keys[count], shares[count] = np.int64(relations[place]) * size + tails[place], share
                    count += 1
        first, end = _row(more_offsets, answer)
        for place in range(first, end):
            if more_tails[place] != entity:
                keys[count], shares[count] = np.int64(more_relations[place]) * size + more_tails[place], share
                count += 1
    return keys[:count], shares[:count]


@numba.njit(nogil=True, cache=True)
def _add_likeness(
    offsets: Offsets, relations: Ids, tails: Ids, more_offsets: Offsets, more_relations: Ids, more_tails: Ids,
    away: Mask, entity: int, answers: npt.NDArray[np.int64], num_relations: int, num_seen: int, found: Floats,
) -> None:  # fmt: skip
    keys, shares = _features(
        offsets, relations, tails, more_offsets, more_relations, more_tails, away, entity, answers
    )  # fmt: skip
    order, size, place = np.argsort(keys, kind="mergesort"), len(away), 0
    while place < len(order):
        key, share = keys[order[place]], 0.0
        while place < len(order) and keys[order[place]] == key:
            share += shares[order[place]]
            place += 1
        end, back = key % size, (key // size + num_relations) % (2 * num_relations)
        first, stop = _along(offsets, relations, end, back)
        if away[end]:
            stop = first
        more_first, more_stop = _along(more_offsets, more_relations, end, back)
        having = more_stop - more_first
        if having + stop - first > WIDEST:
            continue
        for one in range(first, stop):
            having += not away[tails[one]]
        gain = np.log((num_seen + 1) / (having + 1)) * share
        if gain <= 0:
            continue
        for one in range(first, stop):
            if not away[tails[one]]:
                found[tails[one]] += gain
        for one in range(more_first, more_stop):
            found[more_tails[one]] += gain
    for one in range(size):
        if found[one] > 0:
            found[one] /= np.sqrt(_told(offsets, tails, more_offsets, away, one))
