"""Triples by name, as readers hand them over, and their way from names to ids.

A reader feeds dictionary-encoded Arrow columns into a `TripleCollector`, which numbers the names as they turn up and
keeps 12 bytes a triple. `assemble` gives all parts of a data set their final ids. Those depend on the names alone, not
on the order or format of the files: entities of train first, then those auxiliary facts add, then the rest, each in the
order of their names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from newcomer.errors import InputError
from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray, Vocabulary, concatenate

NAME_TYPE = pa.dictionary(pa.int32(), pa.string())
ROLES = ("train", "aux", "valid", "test")
REMEMBERED_BAD_LINES = 5

Labels = npt.NDArray[np.int8]
LabelledRow = tuple[str, str, str, int]  # head, relation, tail, label
NumberedRow = tuple[int, LabelledRow | None]  # the line, and what stands there; None: it is blank


@dataclass
class ReadReport:
    """What a reader met on its way: rows taken, lines left out and why."""

    rows: int = 0
    skipped: int = 0
    literals: int = 0
    anonymous: int = 0  # nodes without a name, numbered as they turn up
    bad_lines: list[str] = field(default_factory=list)

    def skip(self, error: InputError) -> None:
        """Count a bad line and keep the first few sentences about it."""
        self.skipped += 1
        if len(self.bad_lines) < REMEMBERED_BAD_LINES:
            self.bad_lines.append(str(error))


@dataclass(frozen=True, eq=False)
class NamedTriples:
    """Triples of one file: distinct names, and rows that number them; labels (1 true, 0 false) where it has any."""

    entities: pa.Array
    relations: pa.Array
    triples: TripleArray
    report: ReadReport

    def __len__(self) -> int:
        return len(self.triples)


class _Numbering:
    """Numbers names as they turn up, with Arrow's hash tables: no Python work per name.

    Chunks wait until their dictionaries are as large as what is known already, so that each name is hashed a constant
    number of times on average, however many chunks there are.
    """

    AT_LEAST = 1 << 18

    def __init__(self, columns: int = 1) -> None:
        self.names: pa.Array = pa.array([], type=pa.string())
        self._waiting: list[pa.DictionaryArray] = []
        self._columns: list[int] = []
        self._names_waiting = 0
        self._done: list[list[Ids]] = [[] for _ in range(columns)]

    def add(self, chunk: pa.DictionaryArray, column: int = 0) -> None:
        """Take a chunk of names that belongs to one of the columns."""
        self._waiting.append(chunk)
        self._columns.append(column)
        self._names_waiting += len(chunk.dictionary)
        if self._names_waiting > max(self.AT_LEAST, len(self.names)):
            self._number()

    def _number(self) -> None:
        known = pa.DictionaryArray.from_arrays(pa.array([], type=pa.int32()), self.names)
        unified = pa.chunked_array([known, *self._waiting], type=NAME_TYPE).unify_dictionaries()
        self.names = unified.chunk(0).dictionary
        for column, chunk in zip(self._columns, unified.chunks[1:], strict=True):
            self._done[column].append(chunk.indices.to_numpy(zero_copy_only=False))
        self._waiting, self._columns, self._names_waiting = [], [], 0

    def finish(self, column: int = 0) -> Ids:
        """The ids of one column in the order they came; its chunks are let go."""
        self._number()
        chunks, self._done[column] = self._done[column], []
        return np.concatenate(chunks).astype(np.int32, copy=False) if chunks else np.empty(0, dtype=np.int32)


class TripleCollector:
    """Gathers rows or whole Arrow columns into `NamedTriples`."""

    CHUNK = 1 << 17

    def __init__(self, path: Path, labelled: bool = False) -> None:
        self.path = path
        self.report = ReadReport()
        self._labelled = labelled
        self._entities, self._relations = _Numbering(columns=2), _Numbering()
        self._labels: list[Labels] = []
        self._rows: tuple[list[str], ...] = ([], [], [])
        self._row_labels: list[int] = []

    def add_row(self, head: str, relation: str, tail: str, label: int = 1) -> None:
        """One triple."""
        for column, name in zip(self._rows, (head, relation, tail), strict=True):
            column.append(name)
        self._row_labels.append(label)
        if len(self._row_labels) >= self.CHUNK:
            self._flush()

    def add_columns(self, columns: Sequence[pa.DictionaryArray], labels: Labels | None = None) -> None:
        """Many triples at once: three dictionary-encoded columns of equal length."""
        self._flush()
        heads, relations, tails = columns
        self._entities.add(heads, column=0)
        self._entities.add(tails, column=1)
        self._relations.add(relations)
        if labels is not None:
            self._labels.append(labels)
        self.report.rows += len(heads)

    def _flush(self) -> None:
        if not self._row_labels:
            return
        rows, labels = self._rows, np.array(self._row_labels, dtype=np.int8)
        self._rows, self._row_labels = ([], [], []), []
        columns = [pa.array(column, type=pa.string()).dictionary_encode() for column in rows]
        self.add_columns(columns, labels if self._labelled else None)

    def finish(self) -> NamedTriples:
        """All that was gathered; an empty file is an error, because it is hardly ever meant."""
        self._flush()
        if self.report.rows == 0:
            met = {"lines were skipped": self.report.skipped, "RDF literals were left out": self.report.literals}
            left_out = ", ".join(f"{count:,} {what}" for what, count in met.items() if count)
            problem = f"holds no triple ({left_out})" if left_out else "holds no triple"
            raise InputError(self.path, problem, hint="give a file with at least one head, relation and tail")
        labels = np.concatenate(self._labels) if self._labelled else None
        heads, tails = self._entities.finish(column=0), self._entities.finish(column=1)
        triples = TripleArray(heads, self._relations.finish(), tails, labels)
        return NamedTriples(self._entities.names, self._relations.names, triples, self.report)


def encode(parts: Sequence[NamedTriples]) -> tuple[pa.Array, pa.Array, list[TripleArray]]:
    """Entity names, relation names and the parts in one common numbering."""
    if len(parts) == 1:
        return parts[0].entities, parts[0].relations, [parts[0].triples]
    entities, entity_ids = _unify([part.entities for part in parts])
    relations, relation_ids = _unify([part.relations for part in parts])
    arrays = [_moved(p.triples, e, r) for p, e, r in zip(parts, entity_ids, relation_ids, strict=True)]
    return entities, relations, arrays


def joined(parts: Sequence[NamedTriples]) -> NamedTriples:
    """The triples of several files one after the other, with what the readers met in all of them."""
    entities, relations, arrays = encode(parts)
    reports = [part.report for part in parts]
    counted = {name: sum(getattr(r, name) for r in reports) for name in ("rows", "skipped", "literals", "anonymous")}
    total = ReadReport(**counted, bad_lines=[line for report in reports for line in report.bad_lines])
    return NamedTriples(entities, relations, _concatenated(arrays), total)


def _concatenated(arrays: Sequence[TripleArray]) -> TripleArray:
    """Triples one after the other; where only some have labels, the others count as true."""
    if len(arrays) == 1:
        return arrays[0]
    triples = concatenate(arrays)
    if all(array.labels is None for array in arrays):
        return triples
    labels = [np.ones(len(a), dtype=np.int8) if a.labels is None else a.labels for a in arrays]
    return TripleArray(triples.heads, triples.relations, triples.tails, np.concatenate(labels))


def _unify(vocabularies: Sequence[pa.Array]) -> tuple[pa.Array, list[Ids]]:
    """One list of names for several, and for each of them the new ids."""
    numbering = _Numbering(columns=len(vocabularies))
    for column, names in enumerate(vocabularies):
        numbering.add(pa.DictionaryArray.from_arrays(pa.array(np.arange(len(names), dtype=np.int32)), names), column)
    ids = [numbering.finish(column) for column in range(len(vocabularies))]
    return numbering.names, ids


def assemble(
    name: str, entity_names: pa.Array, relation_names: pa.Array, parts: dict[str, TripleArray]
) -> InductiveDataset:
    """A data set with its final ids out of parts that share any numbering; names no part uses are dropped.

    ``parts`` is emptied on the way, so that a large part's old columns can go before its graph is built.
    """
    for role in ROLES:
        parts.setdefault(role, TripleArray.empty())
    entities, entity_ids = _renumber(entity_names, [(parts[role].heads, parts[role].tails) for role in ROLES])
    relations, relation_ids = _renumber(relation_names, [(parts[role].relations,) for role in ROLES])
    moved = {role: _moved(parts.pop(role), entity_ids, relation_ids) for role in ROLES}
    observed = Graph.build(entities, relations, moved.pop("train"))
    auxiliary = Graph.build(entities, relations, moved.pop("aux"))
    return InductiveDataset(name, observed, auxiliary, distinct(moved["valid"]), distinct(moved["test"]))


def _moved(triples: TripleArray, entity_ids: Ids, relation_ids: Ids) -> TripleArray:
    return TripleArray(
        entity_ids[triples.heads], relation_ids[triples.relations], entity_ids[triples.tails], triples.labels
    )


def _renumber(names: pa.Array, uses: Iterable[tuple[Ids, ...]]) -> tuple[Vocabulary, Ids]:
    """Names ordered by the first part that uses them, then alphabetically; and each old id's new one."""
    unused = 127
    first_use = np.full(len(names), unused, dtype=np.int8)
    for part, columns in reversed(list(enumerate(uses))):
        for column in columns:
            first_use[column] = min(part, 2)  # valid and test make no difference
    by_name = pc.sort_indices(names).to_numpy()
    order = by_name[np.argsort(first_use[by_name], kind="stable")]
    order = order[first_use[order] < unused]
    new_ids = np.full(len(names), -1, dtype=np.int32)
    new_ids[order] = np.arange(len(order), dtype=np.int32)
    return Vocabulary(names.take(pa.array(order))), new_ids


def distinct(triples: TripleArray) -> TripleArray:
    """Each triple once (with each of its labels), in the order of first appearance."""
    if len(triples) == 0:
        return triples
    columns = [triples.heads, triples.relations, triples.tails]
    if triples.labels is not None:
        columns.append(triples.labels.astype(np.int32))
    _, first = np.unique(np.stack(columns, axis=1), axis=0, return_index=True)
    return triples if len(first) == len(triples) else triples.take(np.sort(first))
