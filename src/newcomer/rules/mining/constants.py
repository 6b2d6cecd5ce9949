"""Rules about one variable, every one of them, with exact figures.

    CONSTANT  r1(x,c2) => r(x,c)      EXISTS  r1(x,_) => r(x,c)

Heads and bodies are oriented, so that x may stand on either side of both. Counts are of distinct x:

    support        x with the body and the head
    body size      x with the body
    PCA body size  x with the body and some fact of the head's oriented relation
    head size      x with the head

A rule whose body is its head is left out. ``r(x,_) => r(x,c)`` is in: whoever has the head has its body, so its support
is the head's size and its confidence says how common c is among those who have r at all.

A *type* is an oriented relation with a constant, or with "anyone". For each head type the types of its members' edges
are counted in an array with a place for each type, so the work is about the sum of squared degrees. Beside the graph,
mining holds about 35 bytes an edge (inverses are edges too) for the index and 100 while that is built, 12 bytes a type
for each thread, and 16 bytes a rule; the result has 60 bytes a rule. With ``max_rules`` no more than twice as many
rules as are kept are held, and what one portion for each thread adds; a portion is about a 64th of the work, or the
head atoms of one relation, whichever is more.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from newcomer.graph import Adjacency, Graph, Ids, Mask, Offsets
from newcomer.rules.compiled import compiled
from newcomer.rules.limits import require, thread_count
from newcomer.rules.mining.horn import MiningResult, Progress
from newcomer.rules.rule import ABOUT_ONE_VARIABLE, NONE, SMOOTHING, Kind, RuleSet

PORTIONS = 64
Columns = tuple[Ids, Ids, Ids, Ids]  # head types, body types, support, PCA body size


@dataclass(frozen=True)
class ConstantLimits:
    """Which rules are kept.

    ``min_confidence`` is of standard confidence. ``max_rules_per_head`` counts for each head atom ``r(x,c)``, all kinds
    together. Both caps keep the best by smoothed confidence, then support, then canonical order.
    """

    min_support: int = 5
    min_confidence: float = 0.05
    min_head_size: int = 1
    max_rules_per_head: int | None = None
    max_rules: int | None = None
    kinds: tuple[Kind, ...] = ABOUT_ONE_VARIABLE

    def __post_init__(self) -> None:
        for name in ("min_support", "min_head_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer from 1")
        require(0.0 <= self.min_confidence <= 1.0, "min_confidence", self.min_confidence, "a number from 0 to 1")
        for name in ("max_rules_per_head", "max_rules"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "an integer from 1, or None for no limit")
        wrong = [kind for kind in self.kinds if kind not in ABOUT_ONE_VARIABLE]
        require(bool(self.kinds) and not wrong, "kinds", wrong or self.kinds, "CONSTANT, EXISTS or both")


def mine_constants(
    graph: Graph, limits: ConstantLimits | None = None, threads: int | None = None, progress: Progress | None = None
) -> MiningResult:
    """All rules about one variable within the limits, in canonical order; the same for any number of threads.

    ``progress`` is called with (done, total), by one thread at a time.
    """
    started = time.monotonic()
    limits, workers = limits or ConstantLimits(), thread_count(threads)
    types = build_types(graph, limits)
    pool, scratch = _Pool(types, limits), threading.local()
    portions = _portions(types, limits)
    lock, done = threading.Lock(), 0

    def work(portion: _Portion) -> None:
        nonlocal done
        found = _count(types, portion, limits, scratch)
        with lock:
            pool.add(found)
            done += 1
            if progress is not None:
                progress(done, len(portions))

    with ThreadPoolExecutor(workers) as executor:
        for _ in executor.map(work, sorted(portions, key=lambda portion: -portion.work)):
            pass
    complete = np.arange(graph.num_relations, dtype=np.int32)
    return MiningResult(pool.rules(), complete, time.monotonic() - started)


class TypeIndex(NamedTuple):
    """Types in canonical order: by relation, then constant; those with "anyone" come last.

    The rows hold only types that can be the body of a rule within the limits.
    """

    num_relations: int
    relations: Ids  # type -> oriented relation
    constants: Ids  # type -> constant, -1 for "anyone"
    sizes: Ids  # type -> how many x have it
    member_offsets: Offsets  # type -> who has it
    members: Ids
    row_offsets: Offsets  # entity -> its types, ascending
    row_types: Ids

    @property
    def with_constant(self) -> int:
        """How many types have a constant."""
        return len(self.relations) - 2 * self.num_relations

    @property
    def members_work(self) -> Offsets:
        """For each type, how many row entries its members have."""
        sums = np.concatenate([[0], np.cumsum(np.diff(self.row_offsets)[self.members])])
        work: Offsets = np.diff(sums[self.member_offsets])
        return work


def build_types(graph: Graph, limits: ConstantLimits) -> TypeIndex:
    """Number the types of a graph, list who has each and which ones each entity has."""
    edges, size, entities = graph.adjacency, graph.num_relations, graph.num_entities
    owners = np.repeat(np.arange(entities, dtype=np.int32), np.diff(edges.offsets))
    keys, edge_types, counts = np.unique(
        edges.relations.astype(np.int64) * entities + edges.tails, return_inverse=True, return_counts=True
    )
    edge_types = edge_types.astype(np.int32)
    relations, constants = np.divmod(keys, max(entities, 1))
    first = _first_of_relation(edges)
    having, had = owners[first], edges.relations[first]
    sizes = np.concatenate([counts, np.bincount(had, minlength=2 * size)]).astype(np.int32)
    members = np.concatenate([owners[np.argsort(edge_types, kind="stable")], having[np.argsort(had, kind="stable")]])
    rows = _rows(
        (owners, edge_types), (having, had + np.int32(len(keys))), _possible_bodies(sizes, len(keys), limits), entities
    )
    return TypeIndex(
        size,
        np.concatenate([relations, np.arange(2 * size)]).astype(np.int32),
        np.concatenate([constants, np.full(2 * size, NONE)]).astype(np.int32),
        sizes,
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)]),
        members,
        *rows,
    )


def _first_of_relation(edges: Adjacency) -> Mask:
    """Where an entity's edges of one relation begin."""
    first = np.ones(len(edges.relations), dtype=bool)
    first[1:] = edges.relations[1:] != edges.relations[:-1]
    first[edges.offsets[:-1][np.diff(edges.offsets) > 0]] = True
    return first


def _possible_bodies(sizes: Ids, with_constant: int, limits: ConstantLimits) -> Mask:
    possible: Mask = sizes >= limits.min_support
    if Kind.CONSTANT not in limits.kinds:
        possible[:with_constant] = False
    if Kind.EXISTS not in limits.kinds:
        possible[with_constant:] = False
    return possible


def _rows(edges: tuple[Ids, Ids], having: tuple[Ids, Ids], wanted: Mask, entities: int) -> tuple[Offsets, Ids]:
    """The wanted types of each entity, from (entity, type) pairs that are sorted already."""
    owners, types = (np.concatenate([a, b]) for a, b in zip(edges, having, strict=True))
    keep = wanted[types]
    owners, types = owners[keep], types[keep]
    offsets = np.zeros(entities + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=entities), out=offsets[1:])
    return offsets, types[np.argsort(owners, kind="stable")]


class _Portion(NamedTuple):
    """Head types of one oriented relation."""

    relation: int
    heads: Offsets
    work: int


def _portions(types: TypeIndex, limits: ConstantLimits) -> list[_Portion]:
    """Head types in portions of similar work; a relation is cut only if counting its PCA bodies anew is cheap."""
    least = max(limits.min_support, limits.min_head_size)
    heads = np.flatnonzero(types.sizes[: types.with_constant] >= least)
    work = types.members_work
    share = int(work[heads].sum()) / PORTIONS
    by_relation = np.searchsorted(types.relations[heads], np.arange(2 * types.num_relations + 1))
    portions: list[_Portion] = []
    for relation in np.flatnonzero(np.diff(by_relation)).tolist():
        own = heads[by_relation[relation] : by_relation[relation + 1]]
        most = max(share, 4.0 * int(work[types.with_constant + relation]), 1.0)
        portions.extend(_cut(relation, own, work[own], most))
    return portions


def _cut(relation: int, heads: Offsets, work: Offsets, most: float) -> Iterator[_Portion]:
    share = (np.cumsum(work) / most).astype(np.int64)
    for part in np.split(np.arange(len(heads)), np.flatnonzero(np.diff(share)) + 1):
        yield _Portion(relation, heads[part], int(work[part].sum()))


class _Scratch:
    """One thread's counters; all zero between portions."""

    def __init__(self, types: int) -> None:
        self.counter, self.known, self.touched = (np.zeros(types, dtype=np.int32) for _ in range(3))


def _count(types: TypeIndex, portion: _Portion, limits: ConstantLimits, scratch: threading.local) -> Columns:
    """The rules of one portion, by head type, then body type."""
    if not hasattr(scratch, "own"):
        scratch.own = _Scratch(len(types.relations))
    own: _Scratch = scratch.own
    arrays = types.member_offsets, types.members, types.row_offsets, types.row_types
    anyone = types.with_constant + portion.relation
    _add_members(arrays, anyone, 1, own.known)
    per_head = limits.max_rules_per_head or len(types.relations)
    found = _rules_of_heads(
        arrays, types.sizes, portion.heads, limits.min_support, limits.min_confidence, per_head,
        own.known, own.counter, own.touched,
    )  # fmt: skip
    _add_members(arrays, anyone, -1, own.known)
    return found


Arrays = tuple[Offsets, Ids, Offsets, Ids]


@compiled
def _add_members(arrays: Arrays, kind: int, step: int, counter: Ids) -> None:
    """Add ``step`` at each type of each member of a type."""
    member_offsets, members, row_offsets, row_types = arrays
    for at in range(member_offsets[kind], member_offsets[kind + 1]):
        x = members[at]
        for place in range(row_offsets[x], row_offsets[x + 1]):
            counter[row_types[place]] += step


@compiled
def _touch_members(arrays: Arrays, kind: int, counter: Ids, touched: Ids) -> int:
    """Count the types of a type's members; returns how many there are and lists them."""
    member_offsets, members, row_offsets, row_types = arrays
    found = 0
    for at in range(member_offsets[kind], member_offsets[kind + 1]):
        x = members[at]
        for place in range(row_offsets[x], row_offsets[x + 1]):
            other = row_types[place]
            if counter[other] == 0:
                touched[found] = other
                found += 1
            counter[other] += 1
    return found


@compiled
def _best_of_head(bodies: Ids, counter: Ids, sizes: Ids, most: int) -> Ids:
    """The best bodies by smoothed confidence, then support, then id; in the order of their ids."""
    smoothed = np.empty(len(bodies), np.float64)
    support = np.empty(len(bodies), np.int64)
    for i in range(len(bodies)):
        support[i] = -counter[bodies[i]]
        smoothed[i] = support[i] / (sizes[bodies[i]] + SMOOTHING)
    by_support = np.argsort(support, kind="mergesort")
    by_both = np.argsort(smoothed[by_support], kind="mergesort")
    return np.sort(bodies[by_support[by_both[:most]]])


@compiled
def _wider(column: Ids, used: int, needed: int) -> Ids:
    """A column with room for more."""
    if needed <= len(column):
        return column
    wide = np.empty(max(needed, 2 * len(column)), np.int32)
    wide[:used] = column[:used]
    return wide


@compiled
def _rules_of_heads(
    arrays: Arrays, sizes: Ids, heads: Offsets, min_support: int, min_confidence: float, per_head: int,
    known: Ids, counter: Ids, touched: Ids,
) -> Columns:  # fmt: skip
    """The rules of some head types; the counters are zero before and after."""
    head_column, body_column, support, pca = (
        np.empty(16, np.int32), np.empty(16, np.int32), np.empty(16, np.int32), np.empty(16, np.int32),
    )  # fmt: skip
    used = 0
    for head in heads:
        met = _touch_members(arrays, head, counter, touched)
        kept = 0
        bodies = np.empty(met, np.int32)
        for i in range(met):
            body = touched[i]
            count = counter[body]
            if body != head and count >= min_support and count / sizes[body] >= min_confidence:
                bodies[kept] = body
                kept += 1
        chosen = np.sort(bodies[:kept])
        if kept > per_head:
            chosen = _best_of_head(chosen, counter, sizes, per_head)
        needed = used + len(chosen)
        head_column, body_column = _wider(head_column, used, needed), _wider(body_column, used, needed)
        support, pca = _wider(support, used, needed), _wider(pca, used, needed)
        for body in chosen:
            head_column[used], body_column[used] = head, body
            support[used], pca[used] = counter[body], known[body]
            used += 1
        for i in range(met):
            counter[touched[i]] = 0
    return head_column[:used].copy(), body_column[:used].copy(), support[:used].copy(), pca[:used].copy()


class _Pool:
    """The rules found so far; with ``max_rules`` never many more than the best of them."""

    def __init__(self, types: TypeIndex, limits: ConstantLimits) -> None:
        self._types, self._most = types, limits.max_rules
        self._parts: list[Columns] = []
        self._held = 0

    def add(self, found: Columns) -> None:
        """Take in one portion's rules."""
        self._parts.append(found)
        self._held += len(found[0])
        if self._most is not None and self._held > 2 * self._most:
            self._merge()

    def _merge(self) -> Columns:
        """All rules as one part in canonical order, the best of them if there is a limit."""
        merged = _joined(self._parts)
        merged = _taken(merged, self._canonical_order(merged))
        if self._most is not None and len(merged[0]) > self._most:
            _, bodies, support, _ = merged
            smoothed = support / (self._types.sizes[bodies] + float(SMOOTHING))
            best = np.lexsort([-support, -smoothed])[: self._most]  # stable, so equals stay in canonical order
            merged = _taken(merged, np.sort(best))
        self._parts, self._held = [merged], len(merged[0])
        return merged

    def _canonical_order(self, columns: Columns) -> Offsets:
        """As RuleSet.canonical_order has it, without sorting seven columns: types are in canonical order already."""
        heads, bodies, _, _ = columns
        types, size = self._types, self._types.num_relations
        order = np.argsort(heads.astype(np.int64) * len(types.relations) + bodies, kind="stable")
        head, body = types.relations[heads[order]].astype(np.int64), bodies[order]
        anyone = body >= types.with_constant
        block = ((head % max(size, 1)) * 2 + anyone) * 2 + (head >= size)
        by_block = np.argsort(block * (2 * size) + types.relations[body], kind="stable")
        return order[by_block]

    def rules(self) -> RuleSet:
        """What was kept, in canonical order."""
        heads, bodies, support, pca = self._merge()
        types = self._types
        kinds = np.where(bodies < types.with_constant, Kind.CONSTANT, Kind.EXISTS)
        return RuleSet.of_columns(
            types.num_relations,
            len(heads),
            kinds=kinds,
            heads=types.relations[heads],
            body1=types.relations[bodies],
            head_constants=types.constants[heads],
            body_constants=types.constants[bodies],
            support=support,
            body_size=types.sizes[bodies],
            pca_body_size=pca,
            head_size=types.sizes[heads],
        )


def _joined(parts: list[Columns]) -> Columns:
    nothing = np.empty(0, dtype=np.int32)
    first, second, third, fourth = (np.concatenate([nothing, *(part[i] for part in parts)]) for i in range(4))
    return first, second, third, fourth


def _taken(columns: Columns, rows: Offsets) -> Columns:
    first, second, third, fourth = (column[rows] for column in columns)
    return first, second, third, fourth
