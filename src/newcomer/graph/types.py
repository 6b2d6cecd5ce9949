"""Names and ids, graphs and data sets: everything after this room works on int32 ids.

Columns are always head, relation, tail. A relation ``r`` of ``R`` has its inverse at id ``r + R``, so the rest of
the code knows one direction only: from an entity, along a relation, to a tail.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from newcomer.errors import DatasetError, shown

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)

UNKNOWN = -1
INT64_MAX = np.iinfo(np.int64).max


class Vocabulary:
    """An immutable list of names; a name's place is its id, and the first look-up refuses a name that stands twice."""

    def __init__(self, names: pa.Array | Iterable[str]) -> None:
        array = names if isinstance(names, pa.Array) else pa.array(list(names), type=pa.string())
        self.names: pa.Array = array.cast(pa.string())  # in id order

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names.to_pylist())

    def __getitem__(self, identifier: int) -> str:
        if identifier < 0:  # `UNKNOWN` is no name, least of all the last one
            raise IndexError(f"a vocabulary has no id {identifier}")
        return str(self.names[int(identifier)].as_py())

    def __contains__(self, name: object) -> bool:
        return name in self.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.names.equals(other.names))

    def __hash__(self) -> int:
        return hash((len(self), self[0] if len(self) else ""))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} names)"

    @cached_property
    def index(self) -> dict[str, int]:
        """The id of each name."""
        # Built on the first look-up only: a graph that is merely read, split or counted never pays for it.
        ids = {name: i for i, name in enumerate(self.names.to_pylist())}
        if len(ids) != len(self):
            raise DatasetError(f"a vocabulary of {len(self):,} names holds only {len(ids):,} distinct ones")
        return ids

    def id(self, name: str) -> int:
        """The id of a name, or ``UNKNOWN`` (-1)."""
        return self.index.get(name, UNKNOWN)

    def ids(self, names: Sequence[str] | pa.Array) -> Ids:
        """The ids of many names; ``UNKNOWN`` where a name is not here."""
        if isinstance(names, pa.Array):
            import pyarrow.compute as pc

            found = pc.index_in(names.cast(pa.string()), value_set=self.names)
            return _int32(found.fill_null(UNKNOWN).to_numpy(zero_copy_only=False))
        index = self.index
        return np.fromiter((index.get(n, UNKNOWN) for n in names), dtype=np.int32, count=len(names))

    def names_of(self, ids: Ids | Sequence[int]) -> list[str]:
        """The names of many ids."""
        return list(self.names.take(pa.array(np.asarray(ids, dtype=np.int32))).to_pylist())


def read_only(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """A read-only view: compiled code is made once for each kind of array it meets, so all callers hand over one."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def offsets_of(counts: npt.NDArray[np.integer]) -> Offsets:
    """Where each of some rows begins, and at the end how many entries they have together."""
    return read_only(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)]))


def changes(*columns: npt.NDArray[np.integer]) -> Mask:
    """Where a row differs from the one before; the first row always does."""
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return fresh


def _int32(values: Any) -> Ids:
    return np.ascontiguousarray(values, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class TripleArray:
    """Triples as three id columns, in the order given, with an optional label (1 true, 0 false) each."""

    heads: Ids
    relations: Ids
    tails: Ids
    labels: npt.NDArray[np.int8] | None = None

    @classmethod
    def empty(cls) -> "TripleArray":
        nothing = np.empty(0, dtype=np.int32)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of(cls, triples: Iterable[tuple[int, int, int]] | npt.NDArray[np.integer]) -> "TripleArray":
        """From rows of (head, relation, tail)."""
        rows = np.asarray(triples if isinstance(triples, np.ndarray) else list(triples), dtype=np.int32)
        rows = rows.reshape(-1, 3)
        return cls(_int32(rows[:, 0]), _int32(rows[:, 1]), _int32(rows[:, 2]))

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def rows(self) -> Ids:
        """The triples as an array of shape (n, 3)."""
        return np.stack([self.heads, self.relations, self.tails], axis=1)

    def take(self, which: npt.NDArray[Any]) -> "TripleArray":
        """The triples at these places (or under this mask)."""
        labels = None if self.labels is None else self.labels[which]
        return TripleArray(self.heads[which], self.relations[which], self.tails[which], labels)

    @property
    def positives(self) -> "TripleArray":
        """The triples that are not labelled false."""
        return self if self.labels is None else self.take(self.labels > 0)


class Adjacency(NamedTuple):
    """Outgoing edges of every entity, inverse edges included, as compressed rows.

    The edges of entity ``e`` are ``relations[offsets[e]:offsets[e + 1]]`` and ``tails[...]``, sorted by relation,
    then tail; relation ids from ``R`` on are inverses.
    """

    offsets: Offsets
    relations: Ids
    tails: Ids

    def of(self, entity: int) -> tuple[Ids, Ids]:
        """The relations and tails of one entity; nothing of one that is not here."""
        known = entity + 1 < len(self.offsets)
        row = slice(self.offsets[entity], self.offsets[entity + 1]) if known else slice(0)
        return self.relations[row], self.tails[row]

    @property
    def sizes(self) -> Offsets:
        """(entities,): how many edges each has."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Ids:
        """(edges,): the entity that each edge belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), self.sizes)


@dataclass(frozen=True, eq=False)
class Graph:
    """A set of triples over two vocabularies, sorted by head, relation, tail; each triple stands once."""

    entities: Vocabulary
    relations: Vocabulary
    triples: TripleArray
    _offsets: Offsets = field(repr=False)

    @classmethod
    def build(cls, entities: Vocabulary, relations: Vocabulary, triples: TripleArray) -> "Graph":
        """Sort, drop repeated triples, freeze."""
        _check_range(triples.heads, len(entities), "head")
        _check_range(triples.relations, len(relations), "relation")
        _check_range(triples.tails, len(entities), "tail")
        rows = sort_unique(triples, len(entities), len(relations))
        rows = TripleArray(read_only(rows.heads), read_only(rows.relations), read_only(rows.tails))
        return cls(entities, relations, rows, offsets_of(np.bincount(rows.heads, minlength=len(entities))))

    def __len__(self) -> int:
        return len(self.triples)

    def __repr__(self) -> str:
        return f"Graph({len(self):,} triples, {self.num_entities:,} entities, {self.num_relations:,} relations)"

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    def named(self) -> Iterator[tuple[str, str, str]]:
        """The triples by name, in id order."""
        columns = self.triples
        yield from zip(
            self.entities.names_of(columns.heads),
            self.relations.names_of(columns.relations),
            self.entities.names_of(columns.tails),
            strict=True,
        )

    @cached_property
    def adjacency(self) -> Adjacency:
        """Edges by head, inverses included; made on first use."""
        return _adjacency(self.triples, self._offsets, self.num_entities, self.num_relations)

    @cached_property
    def degrees(self) -> Ids:
        """How many edges leave each entity, inverses included (a self loop counts at both of its ends)."""
        ends = np.concatenate([self.triples.heads, self.triples.tails])
        return read_only(np.bincount(ends, minlength=self.num_entities).astype(np.int32))

    @cached_property
    def relation_counts(self) -> Ids:
        """How many triples each relation has."""
        return read_only(np.bincount(self.triples.relations, minlength=self.num_relations).astype(np.int32))

    def contains(self, heads: Any, relations: Any, tails: Any) -> Mask:
        """For each triple, whether it is in the graph; relation ids from ``R`` on ask for the inverse.

        A binary search inside the head's row: O(log degree) a triple, vectorised over all of them, no extra memory.
        """
        h, r, t = np.broadcast_arrays(_int32(heads), _int32(relations), _int32(tails))
        inverse = r >= self.num_relations
        h, t = np.where(inverse, t, h), np.where(inverse, h, t)
        r = np.where(inverse, r - self.num_relations, r)
        ends = (h >= 0) & (h < self.num_entities) & (t >= 0) & (t < self.num_entities)
        valid = ends & (r >= 0) & (r < self.num_relations)
        h, r, t = (np.where(valid, a, 0).astype(np.int64) for a in (h, r, t))
        return self._search(h, r * self.num_entities + t) & valid if len(self) else np.zeros_like(valid)

    def _search(self, heads: Offsets, wanted: Offsets) -> Mask:
        relations, tails = self.triples.relations, self.triples.tails
        low, end = self._offsets[heads].copy(), self._offsets[heads + 1]
        high = end.copy()
        while bool((low < high).any()):
            open_ = low < high
            middle = np.where(open_, (low + high) // 2, 0)
            below = relations[middle].astype(np.int64) * self.num_entities + tails[middle] < wanted
            low = np.where(open_ & below, middle + 1, low)
            high = np.where(open_ & ~below, middle, high)
        place = np.minimum(low, len(self) - 1)
        found: Mask = relations[place].astype(np.int64) * self.num_entities + tails[place] == wanted
        return found & (low < end)


@dataclass(frozen=True, eq=False)
class InductiveDataset:
    """What a model learns from, what is known of those who arrive later, and what is asked.

    ``observed`` is the graph a model trains on: its entities are *seen*. ``auxiliary`` holds the few facts that tie
    newcomers to it. All four parts share the two vocabularies; ids of seen entities come first.
    """

    name: str
    observed: Graph
    auxiliary: Graph
    valid: TripleArray
    test: TripleArray

    @property
    def entities(self) -> Vocabulary:
        return self.observed.entities

    @property
    def relations(self) -> Vocabulary:
        return self.observed.relations

    @cached_property
    def is_seen(self) -> Mask:
        """Per entity, whether the observed graph has a triple of it."""
        return read_only(self.observed.degrees > 0)

    @cached_property
    def is_newcomer(self) -> Mask:
        """Per entity, whether it is not seen but has auxiliary facts."""
        return read_only(~self.is_seen & (self.auxiliary.degrees > 0))

    @property
    def newcomers(self) -> Ids:
        return np.flatnonzero(self.is_newcomer).astype(np.int32)

    @cached_property
    def test_newcomers(self) -> Ids:
        """The newcomers that test asks about."""
        asked = np.unique(np.concatenate([self.test.heads, self.test.tails]))
        return read_only(asked[self.is_newcomer[asked]].astype(np.int32))

    def known_facts(self) -> Graph:
        """What is known when questions are asked: the observed graph and the auxiliary facts."""
        return Graph.build(self.entities, self.relations, concatenate([self.observed.triples, self.auxiliary.triples]))

    def reunited(self) -> "InductiveDataset":
        """The same without newcomers: their facts are observed ones."""
        nothing = Graph.build(self.entities, self.relations, TripleArray.empty())
        return replace(self, observed=self.known_facts(), auxiliary=nothing)

    def known(self) -> Graph:
        """Everything stated anywhere in the data set: the `known` filter of a ranking."""
        parts = [self.observed.triples, self.auxiliary.triples, self.valid.positives, self.test.positives]
        return Graph.build(self.entities, self.relations, concatenate(parts))


def concatenate(parts: Sequence[TripleArray]) -> TripleArray:
    """Triples one after the other; labels are dropped."""
    return TripleArray(
        np.concatenate([p.heads for p in parts]),
        np.concatenate([p.relations for p in parts]),
        np.concatenate([p.tails for p in parts]),
    )


def sort_unique(triples: TripleArray, num_entities: int, num_relations: int) -> TripleArray:
    """The distinct triples, sorted by head, relation, tail."""
    if len(triples) == 0:
        return TripleArray.empty()
    if num_entities * num_entities * num_relations > INT64_MAX:
        return _sort_unique_by_columns(triples)
    # One number a triple sorts in place with 8 bytes a triple, a fraction of what sorting three columns takes.
    keys = triples.heads.astype(np.int64)
    keys *= num_relations
    keys += triples.relations
    keys *= num_entities
    keys += triples.tails
    keys.sort()
    fresh = changes(keys)
    if not fresh.all():
        keys = keys[fresh]
    heads, relations, tails = (np.empty(len(keys), dtype=np.int32) for _ in range(3))
    step = 1 << 20  # in slices, so that the wide temporaries stay small
    for start in range(0, len(keys), step):
        part = slice(start, start + step)
        pair, tails[part] = np.divmod(keys[part], num_entities)
        heads[part], relations[part] = np.divmod(pair, num_relations)
    return TripleArray(heads, relations, tails)


def _sort_unique_by_columns(triples: TripleArray) -> TripleArray:
    order = np.lexsort((triples.tails, triples.relations, triples.heads))
    h, r, t = triples.heads[order], triples.relations[order], triples.tails[order]
    fresh = changes(h, r, t)
    return TripleArray(h[fresh], r[fresh], t[fresh])


def _adjacency(triples: TripleArray, offsets: Offsets, num_entities: int, num_relations: int) -> Adjacency:
    """Merge the forward rows with the inverse rows; both are sorted, so each edge's place can be computed."""
    inverse = sort_unique(TripleArray(triples.tails, triples.relations, triples.heads), num_entities, num_relations)
    inverse_offsets = offsets_of(np.bincount(inverse.heads, minlength=num_entities))
    relations = np.empty(2 * len(triples), dtype=np.int32)
    tails = np.empty(2 * len(triples), dtype=np.int32)
    # Forward edges of row e come first; before them stand all edges of earlier rows.
    place = np.arange(len(triples)) + inverse_offsets[triples.heads]
    relations[place], tails[place] = triples.relations, triples.tails
    place = np.arange(len(inverse)) + offsets[inverse.heads + 1]
    relations[place], tails[place] = inverse.relations + num_relations, inverse.tails
    return Adjacency(read_only(offsets + inverse_offsets), read_only(relations), read_only(tails))


def _check_range(ids: Ids, size: int, column: str) -> None:
    if len(ids) and (ids.min() < 0 or ids.max() >= size):
        worst = int(ids.min() if ids.min() < 0 else ids.max())
        raise DatasetError(f"{column} id {shown(worst)} is outside 0..{size - 1}")


def seen_count(observed: Graph) -> int:
    """How many entities have a trained vector: ids up to the last one with an observed fact."""
    return int(np.flatnonzero(observed.degrees)[-1]) + 1 if len(observed) else 0
