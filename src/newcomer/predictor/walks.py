"""Rules at work around newcomers: the graph they walk over is the observed one with a few rows joined on.

Joining costs what the newcomers' facts cost and copies nothing of the graph: their rows are written behind those of the
observed graph, in room that is kept free there, for as long as the rules walk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.graph import Adjacency, Graph, Ids, TripleArray, read_only
from newcomer.models.bundle import Bundle
from newcomer.models.grounding import limits_of
from newcomer.predictor.fact_store import Group
from newcomer.rules.frequencies import Frequencies
from newcomer.rules.limits import thread_count
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.online import OnlineRules
from newcomer.rules.ranking import Evidence, RuleRanker
from newcomer.rules.rule import RuleSet
from newcomer.rules.rule_index import RuleIndex, Surroundings, surroundings
from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, VirtualNeighbors, about_those, gather

ROOM = 64  # rows that are kept free at first


class Rows:
    """The edges of the observed graph with room behind them; ``joined`` fills it, one caller at a time."""

    def __init__(self, observed: Graph, num_seen: int) -> None:
        base = observed.adjacency
        self.num_seen, self.num_relations = num_seen, observed.num_relations
        self.num_entities, self.num_edges = observed.num_entities, int(base.offsets[-1])
        self.offsets, self.relations, self.tails = base.offsets, base.relations, base.tails
        self.base = surroundings(base, observed.num_relations)
        self.lock = RLock()
        self._make_room(self.num_entities + 1, self.num_edges)

    @contextmanager
    def joined(self, facts: TripleArray) -> Iterator[tuple[Adjacency, Surroundings]]:
        """The graph with the newcomers of these facts, valid within the block."""
        if len(facts) == 0:
            yield Adjacency(self.base.offsets, self.base.relations, self.base.tails), self.base
            return
        row, relation, tail = self._edges(facts)
        with self.lock:
            size = max(self.num_entities, int(row[-1]) + 1)
            end = self.num_edges + len(row)
            self._make_room(size + 1, end)
            self.relations[self.num_edges : end], self.tails[self.num_edges : end] = relation, tail
            counts = np.bincount(row - self.num_seen, minlength=size - self.num_seen)
            self.offsets[self.num_seen + 1 : size + 1] = self.num_edges + np.cumsum(counts)
            rows = Adjacency(
                read_only(self.offsets[: size + 1]), read_only(self.relations[:end]), read_only(self.tails[:end])
            )
            yield rows, self.base.joined(rows, relation, row)

    def _edges(self, facts: TripleArray) -> tuple[Ids, Ids, Ids]:
        """The newcomers' edges, inverses included, sorted as rows are."""
        row = np.concatenate([facts.heads, facts.tails])
        relation = np.concatenate([facts.relations, facts.relations + self.num_relations]).astype(np.int32)
        tail = np.concatenate([facts.tails, facts.heads])
        order = np.lexsort((tail, relation, row))
        order = order[row[order] >= self.num_seen]
        return row[order], relation[order], tail[order]

    def _make_room(self, rows: int, edges: int) -> None:
        if rows > len(self.offsets) or not self.offsets.flags.writeable:
            self.offsets = _grown(self.offsets, max(rows, self.num_entities + ROOM) * 2)
        if edges > len(self.relations) or not self.relations.flags.writeable:
            self.relations, self.tails = (_grown(a, edges + edges // 4 + ROOM) for a in (self.relations, self.tails))


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    wider = np.zeros(size, dtype=array.dtype)
    wider[: len(array)] = array
    return wider


@dataclass(frozen=True, eq=False)
class Walks:
    """The rules of a model, ready to be asked about newcomers and seen entities.

    ``neighbors`` are the rules that may add virtual neighbours (None: none may), ``reasons`` those that have a say in
    an answer, ``ranker`` weighs them all where network and rules are blended.
    """

    rows: Rows
    neighbors: Grounder | None
    reasons: Grounder | None
    ranker: RuleRanker | None
    paths: PathLimits | None
    seed: int
    names_newcomers: bool  # rules name newcomers as constants: then anyone may be tied to them
    by_relation: dict[int, Grounder] = field(default_factory=dict)  # the reasons for each relation asked so far

    @classmethod
    def of(cls, bundle: Bundle, num_seen: int, blended: bool) -> "Walks":
        """The rules and limits of a bundle."""
        rules, wanted, rows = bundle.rules, bundle.config.rules, Rows(bundle.observed, num_seen)
        infers = bundle.config.model.labels != "none" and bool(len(rules) or wanted.paths)
        neighbors = _grounder(rules, rows, limits_of(wanted)) if infers else None
        every = _grounder(rules, rows, NeighborLimits(0.0, "smoothed", 1)) if blended and _counted(rules) else None
        constants = np.concatenate([rules.head_constants, rules.body_constants])
        return cls(
            rows,
            neighbors,
            every or neighbors,
            _ranker(rules, rows, bundle.observed) if blended else None,
            PathLimits(walks=wanted.walks) if infers and wanted.paths else None,
            bundle.config.seed,
            bool((constants >= num_seen).any()),
        )

    def ground(self, group: Group, threads: int | None = 1) -> VirtualNeighbors | None:
        """What the rules conclude about newcomers, as far as it is about someone who is there."""
        if self.neighbors is None:
            return None
        return self._ground(self.neighbors, group.facts, group.ids, group, self.paths, threads)

    def conclusions(
        self, group: Group | None, entity: int, relation: int, walk: bool = True
    ) -> VirtualNeighbors | None:
        """What all rules for a relation that have a say conclude about one entity, seen or (of the group) new.

        Symmetric paths are left out unless they are to be found by walking.
        """
        if self.reasons is None:
            return None
        grounder = self.by_relation.get(relation)
        if grounder is None:
            rows, offsets = self._by_conclusion
            mine = rows[offsets[relation] : offsets[relation + 1]]
            grounder = self.by_relation[relation] = _only(self.reasons, mine)
        facts = TripleArray.empty() if group is None else group.facts
        paths = self.paths if walk else None
        return self._ground(grounder, facts, np.array([entity], dtype=np.int32), group, paths, relation=relation)

    @cached_property
    def _by_conclusion(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The rules that have a say by the relation they conclude, and where each relation's begin."""
        rules = RuleSet.empty(self.rows.num_relations) if self.reasons is None else self.reasons.rules
        concluded = rules.heads % max(rules.num_relations, 1)
        rows = np.argsort(concluded, kind="stable")
        return rows, np.searchsorted(concluded[rows], np.arange(rules.num_relations + 1))

    def has_all_paths(self, group: Group) -> bool:
        """Whether what was concluded about a group has all its symmetric paths, each found from the entity asked."""
        return len(group.names) == 1 and self.neighbors is not None and self.neighbors.limits.max_per_entity is None

    def _ground(
        self,
        grounder: Grounder,
        facts: TripleArray,
        ids: Ids,
        group: Group | None,
        paths: PathLimits | None,
        threads: int | None = 1,
        relation: int | None = None,
    ) -> VirtualNeighbors:
        with self.rows.joined(facts) as (rows, world):
            ready = copy(grounder)
            ready.facts, ready.world = rows, world
            found = gather(ready, ids, paths, self.seed, thread_count(threads), relation)
        there = np.empty(0, dtype=np.int32) if group is None else group.ids
        return about_those(found, there, self.rows.num_seen)

    def evidence(
        self,
        group: Group | None,
        entity: int,
        relation: int,
        starts: tuple[Ids, Ids] | None = None,
        ties: OnlineRules | None = None,
    ) -> Evidence:
        """What the rules, and ``ties`` beside them, say of every id as an answer; one row.

        ``starts`` tells of newcomers beyond the group which relations they have, under ids for this question alone.
        """
        facts = TripleArray.empty() if group is None else group.facts
        with self.rows.joined(facts) as (rows, world):
            size = max(len(rows.offsets) - 1, self.rows.num_entities)
            if starts is not None:
                world, size = world.started_by(*starts), max(size, int(starts[1].max(initial=0)) + 1)
            frequencies = replace(self._weighing.frequencies, num_entities=size)
            asked = np.array([entity], dtype=np.int32), np.array([relation], dtype=np.int32)
            ensemble_learner = replace(
                self._weighing, facts=rows, world=world, frequencies=frequencies, ties=lambda _: ties
            )
            return ensemble_learner.evidence(*asked)

    def about_anyone(self, entity: int, relation: int) -> bool:
        """Whether a rule answers (entity, relation, ?) with whoever has some relation."""
        return self._weighing.index.about_anyone(entity, relation)

    @property
    def _weighing(self) -> RuleRanker:
        if self.ranker is None:
            raise ValueError("only a blended model weighs rules")
        return self.ranker


def _counted(rules: RuleSet) -> bool:
    return len(rules) > 0 and not bool(np.isnan(rules.smoothed_confidence).all())


def _grounder(rules: RuleSet, rows: Rows, limits: NeighborLimits) -> Grounder:
    base = rows.base
    return Grounder(rules, Adjacency(base.offsets, base.relations, base.tails), limits, base)


def _only(grounder: Grounder, rows: npt.NDArray[np.intp]) -> Grounder:
    """Some of the rules, over the same facts."""
    ready = copy(grounder)
    ready.rules, ready.strength = grounder.rules.where(rows), grounder.strength[rows]
    ready.index = RuleIndex(ready.rules, ready.strength)
    return ready


def _ranker(rules: RuleSet, rows: Rows, observed: Graph) -> RuleRanker:
    index = RuleIndex(rules, rules.smoothed_confidence)
    return RuleRanker(index, observed.adjacency, rows.base, Frequencies.of(observed))
