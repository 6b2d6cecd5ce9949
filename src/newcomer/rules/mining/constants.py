"""Rules about one variable, every one of them, with exact figures.

    CONSTANT  r1(x,c2) => r(x,c)      EXISTS  r1(x,_) => r(x,c)

Heads and bodies are oriented, so that x may be on either side of both. Counts are of distinct x:

    support        x with the body and the head
    body size      x with the body
    PCA body size  x with the body and some fact of the head's oriented relation
    head size      x with the head

A rule whose body is its head is left out. ``r(x,_) => r(x,c)`` is in: every x with the head has its body, so its
support is the head's size and its confidence the share of c among the x that have r at all.

A *type* is an oriented relation with a constant, or with any entity. For each head type the types of its members' edges
are counted in an array with an entry for each type, so the work is about the sum of squared degrees. Beside the graph,
mining holds about 35 bytes an edge (inverses are edges too) for the index and 100 while that is built, 12 bytes a type
for each thread, and 16 bytes a rule; the result has 60 bytes a rule. Where only the best are kept, at most twice as
many rules are held as are wanted, and those of the portions at work.
"""

import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Graph, Ids, Offsets, offsets_of
from newcomer.rules.compiled import compiled, with_room
from newcomer.rules.limits import share_out, thread_count
from newcomer.rules.mining.index import starts_group
from newcomer.rules.mining.plan import Progress, best_rows
from newcomer.rules.rule import NONE, SMOOTHING, UNARY_KINDS, Kind, RuleSet

PORTIONS = 64
Rows = Ids  # (rules, 4): head type, body type, support, PCA body size


@dataclass(frozen=True)
class ConstantLimits:
    """Which rules are kept.

    ``min_confidence`` is of standard confidence. ``max_rules`` keeps the best by smoothed confidence, then support,
    then canonical order.
    """

    min_support: int = 5
    min_confidence: float = 0.05
    max_rules: int | None = None
    kinds: tuple[Kind, ...] = UNARY_KINDS


def mine_constants(
    graph: Graph, limits: ConstantLimits | None = None, threads: int | None = None, progress: Progress | None = None
) -> RuleSet:
    """All rules about one variable within the limits, in canonical order; the same for any number of threads."""
    limits, workers = limits or ConstantLimits(), thread_count(threads)
    types = build_types(graph, limits)
    portions, kept, lock = _portions(types, limits), _Kept(types, limits.max_rules), threading.Lock()

    def work(portion: _Portion, scratch: _Scratch) -> None:
        found = _count(types, portion, limits, kept.floor, scratch)
        with lock:
            kept.add(found)
            if progress is not None:
                progress(kept.portions, len(portions))

    def scratch() -> _Scratch:
        return _Scratch(*np.zeros((3, len(types.relations)), dtype=np.int32))

    share_out(sorted(portions, key=lambda portion: -portion.work), work, scratch, workers)
    return kept.rules()


class TypeIndex(NamedTuple):
    """Types by relation, then constant; those with any entity come last.

    The rows hold only types that can be the body of a rule within the limits.
    """

    num_relations: int
    relations: Ids  # type -> oriented relation
    constants: Ids  # type -> constant, -1 for any entity
    sizes: Ids  # type -> how many x have it
    member_offsets: Offsets  # type -> its members, the x that have it
    members: Ids
    row_offsets: Offsets  # entity -> its types, ascending
    row_types: Ids

    @property
    def with_constant(self) -> int:
        """How many types have a constant."""
        return len(self.relations) - 2 * self.num_relations


def build_types(graph: Graph, limits: ConstantLimits) -> TypeIndex:
    """Number the types of a graph, list the members of each and the types of each entity."""
    edges, size, entities = graph.adjacency, graph.num_relations, graph.num_entities
    owners, first = edges.owners, starts_group(edges)
    keys, edge_types, counts = np.unique(
        edges.relations.astype(np.int64) * entities + edges.tails, return_inverse=True, return_counts=True
    )
    edge_types = edge_types.astype(np.int32)
    relations, constants = np.divmod(keys, max(entities, 1))
    having, had = owners[first], edges.relations[first]  # x that have a relation with any entity
    sizes = np.concatenate([counts, np.bincount(had, minlength=2 * size)]).astype(np.int32)
    members = np.concatenate([owners[np.argsort(edge_types, kind="stable")], having[np.argsort(had, kind="stable")]])
    # The types of each entity that can be the body of a rule.
    row_owners = np.concatenate([owners, having])
    row_types = np.concatenate([edge_types, had + np.int32(len(keys))])
    wanted = np.where(np.arange(len(sizes)) < len(keys), Kind.CONSTANT in limits.kinds, Kind.EXISTS in limits.kinds)
    possible = (wanted & (sizes >= limits.min_support))[row_types]
    row_owners, row_types = row_owners[possible], row_types[possible]
    return TypeIndex(
        num_relations=size,
        relations=np.concatenate([relations, np.arange(2 * size)]).astype(np.int32),
        constants=np.concatenate([constants, np.full(2 * size, NONE)]).astype(np.int32),
        sizes=sizes,
        member_offsets=offsets_of(sizes),
        members=members,
        row_offsets=offsets_of(np.bincount(row_owners, minlength=entities)),
        row_types=row_types[np.argsort(row_owners, kind="stable")],
    )


class _Portion(NamedTuple):
    """Head types of one oriented relation."""

    relation: int
    heads: Offsets
    work: int


def _portions(types: TypeIndex, limits: ConstantLimits) -> list[_Portion]:
    """Head types in portions of similar work; a relation is cut only if counting its PCA bodies anew is cheap."""
    heads = np.flatnonzero(types.sizes[: types.with_constant] >= limits.min_support)
    # The work of a type: how many row entries its members have.
    work = np.diff(offsets_of(np.diff(types.row_offsets)[types.members])[types.member_offsets])
    share = int(work[heads].sum()) / PORTIONS
    by_relation = np.searchsorted(types.relations[heads], np.arange(2 * types.num_relations + 1))
    portions: list[_Portion] = []
    for relation in np.flatnonzero(np.diff(by_relation)).tolist():
        own = heads[by_relation[relation] : by_relation[relation + 1]]
        most = max(share, 4.0 * int(work[types.with_constant + relation]), 1.0)
        parts = min(int(work[own].sum() / most) + 1, len(own))
        portions.extend(_Portion(relation, part, int(work[part].sum())) for part in np.array_split(own, parts))
    return portions


class _Scratch(NamedTuple):
    """One thread's counters, a number for each type; all zero between portions."""

    counter: Ids
    known: Ids
    touched: Ids


class _Kept:
    """The rules found so far, or the best of them: at most twice as many as are wanted are held at once.

    The best of the best are the best of all, so the result does not depend on the order of the portions.
    """

    def __init__(self, types: TypeIndex, most: int | None) -> None:
        self.types, self.most = types, most
        self.parts: list[Rows] = []
        self.portions = 0
        self.floor = 0.0  # smoothed confidence below which a rule is not among the best

    def add(self, found: Rows) -> None:
        """Add the rules of a portion."""
        self.parts.append(found)
        self.portions += 1
        if self.most is not None and sum(map(len, self.parts)) > 2 * self.most:
            rows = np.concatenate(self.parts)
            best, rules = self._best(rows)
            self.parts, self.floor = [rows[best]], float(rules.smoothed_confidence.min())

    def rules(self) -> RuleSet:
        """All that are kept, in canonical order."""
        return self._best(np.concatenate([np.empty((0, 4), dtype=np.int32), *self.parts]))[1]

    def _best(self, rows: Rows) -> tuple[npt.NDArray[np.intp], RuleSet]:
        """Which rows to keep, and their rules in canonical order."""
        rules = _rules(self.types, rows)
        order = rules.canonical_order()
        rules = rules.where(order)
        if self.most is None or len(rows) <= self.most:
            return order, rules
        best = best_rows(self.most, rules.smoothed_confidence, rules.support)
        return order[best], rules.where(best)


def _count(types: TypeIndex, portion: _Portion, limits: ConstantLimits, floor: float, scratch: _Scratch) -> Rows:
    """The rules of one portion that have a smoothed confidence from ``floor``."""
    arrays = types.member_offsets, types.members, types.row_offsets, types.row_types
    with_any = types.with_constant + portion.relation
    _add_members(arrays, with_any, 1, scratch.known, scratch.touched)
    least = limits.min_support, limits.min_confidence, floor
    found = _rules_of_heads(arrays, types.sizes, portion.heads, least, *scratch)
    _add_members(arrays, with_any, -1, scratch.known, scratch.touched)
    return found


Arrays = tuple[Offsets, Ids, Offsets, Ids]


@compiled
def _add_members(arrays: Arrays, kind: int, step: int, counter: Ids, touched: Ids) -> int:
    """Add ``step`` at each type of each member of a type; lists the types that were at zero, and returns how many."""
    member_offsets, members, row_offsets, row_types = arrays
    found = 0
    for x in members[member_offsets[kind] : member_offsets[kind + 1]]:
        for other in row_types[row_offsets[x] : row_offsets[x + 1]]:
            if counter[other] == 0:
                touched[found] = other
                found += 1
            counter[other] += step
    return found


@compiled
def _rules_of_heads(
    arrays: Arrays, sizes: Ids, heads: Offsets, least: tuple[int, float, float],
    counter: Ids, known: Ids, touched: Ids,
) -> Rows:  # fmt: skip
    """The rules of some head types, in any order; ``counter`` is zero before and after.

    ``least`` are support, confidence and smoothed confidence.
    """
    rows, used = np.empty((16, 4), np.int32), 0
    min_support, min_confidence, min_smoothed = least
    for head in heads:
        met = _add_members(arrays, head, 1, counter, touched)
        rows = with_room(rows, used, used + met)
        for body in touched[:met]:
            count = counter[body]
            passes = count >= min_support and count / sizes[body] >= min_confidence
            if body != head and passes and count / (sizes[body] + SMOOTHING) >= min_smoothed:
                rows[used, 0], rows[used, 1], rows[used, 2], rows[used, 3] = head, body, count, known[body]
                used += 1
            counter[body] = 0
    return rows[:used].copy()


def _rules(types: TypeIndex, rows: Rows) -> RuleSet:
    heads, bodies, support, pca = rows.T
    return RuleSet.of_columns(
        types.num_relations,
        len(heads),
        kinds=np.where(bodies < types.with_constant, Kind.CONSTANT, Kind.EXISTS),
        heads=types.relations[heads],
        body1=types.relations[bodies],
        head_constants=types.constants[heads],
        body_constants=types.constants[bodies],
        support=support,
        body_size=types.sizes[bodies],
        pca_body_size=pca,
        head_size=types.sizes[heads],
    )
