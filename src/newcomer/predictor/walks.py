"""Rules at work around newcomers: the graph they walk over is the observed one with a few rows joined on.

Joining costs what the newcomers' facts cost and copies nothing of the graph: their rows are written behind those of the
observed graph, in room that is kept free there, for as long as the rules walk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from newcomer.bundle import Bundle
from newcomer.graph import Adjacency, Graph, Ids, TripleArray, Vocabulary, read_only
from newcomer.predictor.book import Group
from newcomer.rules.index import RuleIndex, Surroundings, surroundings
from newcomer.rules.limits import thread_count
from newcomer.rules.neighbors import Grounder, NeighborLimits, VirtualNeighbors, about_those, gather
from newcomer.rules.paths import PathLimits
from newcomer.rules.ranking import Evidence, RuleRanker
from newcomer.rules.rule import Kind, RuleSet
from newcomer.training.preparation import limits_of

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
    def joined(self, facts: TripleArray, whole: bool = False) -> Iterator[tuple[Adjacency, Surroundings]]:
        """The graph with the newcomers of these facts, valid within the block.

        Who starts a relation is listed as it is in the observed graph, unless the ``whole`` is asked for: that costs as
        much as the graph, and only rules about anyone who has some relation need it.
        """
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
            lists = surroundings(rows, self.num_relations) if whole else self.base
            yield rows, Surroundings(rows.offsets, rows.relations, rows.tails, lists.start_offsets, lists.starts)

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
    says_anyone: bool  # rules about anyone who has some relation
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
            _ranker(rules, rows, bundle.observed, ROOM) if blended else None,
            PathLimits(walks=wanted.walks) if infers and wanted.paths else None,
            bundle.config.seed,
            bool((constants >= num_seen).any()),
            bool((rules.kinds == Kind.EXISTS).any()),
        )

    def ground(self, group: Group, threads: int | None = 1) -> VirtualNeighbors | None:
        """What the rules conclude about newcomers, as far as it is about someone who is there."""
        if self.neighbors is None:
            return None
        return self._ground(self.neighbors, group.facts, group.ids, group, threads)

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
            grounder = self.by_relation[relation] = _only(self.reasons, relation)
        facts = TripleArray.empty() if group is None else group.facts
        return self._ground(grounder, facts, np.array([entity], dtype=np.int32), group, 1, walk)

    def has_all_paths(self, group: Group) -> bool:
        """Whether what was concluded about a group has all its symmetric paths, each found from the entity asked."""
        return len(group.names) == 1 and self.neighbors is not None and self.neighbors.limits.max_per_entity is None

    def _ground(
        self,
        grounder: Grounder,
        facts: TripleArray,
        ids: Ids,
        group: Group | None,
        threads: int | None,
        walk: bool = True,
    ) -> VirtualNeighbors:
        with self.rows.joined(facts, self.names_newcomers) as (rows, world):
            ready = copy(grounder)
            ready.facts, ready.world = rows, world
            found = gather(ready, ids, self.paths if walk else None, self.seed, thread_count(threads))
        there = np.empty(0, dtype=np.int32) if group is None else group.ids
        return about_those(found, there, self.rows.num_seen)

    def evidence(self, group: Group | None, entity: int, relation: int) -> Evidence:
        """What the rules say of every id as an answer; one row."""
        facts = TripleArray.empty() if group is None else group.facts
        with self.rows.joined(facts, self.names_newcomers or self.says_anyone) as (rows, world):
            ranker = self._wide(len(rows.offsets) - 1)
            asked = np.array([entity], dtype=np.int32), np.array([relation], dtype=np.int32)
            return replace(ranker, facts=rows, world=world).evidence(*asked)

    def _wide(self, size: int) -> RuleRanker:
        """The ranker with room for so many ids."""
        ranker = self.ranker
        if ranker is None:
            raise ValueError("only a blended model weighs rules")
        if ranker.observed.num_entities >= size:
            return ranker
        grown = replace(ranker, observed=_widened(ranker.observed, 2 * size))
        object.__setattr__(self, "ranker", grown)  # the same ranker with more room
        return grown


def _counted(rules: RuleSet) -> bool:
    return len(rules) > 0 and not bool(np.isnan(rules.smoothed_confidence).all())


def _grounder(rules: RuleSet, rows: Rows, limits: NeighborLimits) -> Grounder:
    base = rows.base
    return Grounder(rules, Adjacency(base.offsets, base.relations, base.tails), limits, base)


def _only(grounder: Grounder, relation: int) -> Grounder:
    """The rules that conclude one relation, over the same facts."""
    mine = grounder.rules.heads % max(grounder.num_relations, 1) == relation
    ready = copy(grounder)
    ready.rules, ready.strength = grounder.rules.where(mine), grounder.strength[mine]
    ready.index = RuleIndex.build(ready.rules, ready.strength)
    return ready


def _ranker(rules: RuleSet, rows: Rows, observed: Graph, room: int) -> RuleRanker:
    index = RuleIndex.build(rules, rules.smoothed_confidence)
    return RuleRanker(index, observed.adjacency, rows.base, _widened(observed, observed.num_entities + room))


def _widened(observed: Graph, size: int) -> Graph:
    """The same facts among more entities, whose names nobody asks for."""
    return Graph.build(Vocabulary(pa.nulls(size, pa.string())), observed.relations, observed.triples)
