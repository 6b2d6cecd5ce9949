"""Triples in Parquet: columns by their titles (head, relation, tail or subject, predicate, object, ...) or by place."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from newcomer.data.options import DEFAULT_COLUMNS, IGNORED, LABELLED_COLUMNS, ReadOptions, columns_from_header, label_of
from newcomer.data.tables import Labels, NamedTriples, TripleCollector
from newcomer.errors import InputError, shown
from newcomer.files import fresh_file, looking_at

BATCH_ROWS = 1 << 20
_NO_LABEL = -1


def read_parquet(path: Path, options: ReadOptions) -> NamedTriples:
    """Read a Parquet file of triples, a batch of rows at a time."""
    try:
        with looking_at(path), path.open("rb") as content, pq.ParquetFile(content) as file:
            titles = _titles_by_role(path, file.schema_arrow.names, options)
            collector = TripleCollector(path, labelled="label" in titles)
            row = 1
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(titles.values())):
                _collect(batch, titles, collector, options, row)
                row += batch.num_rows
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:  # the last: of a column's title
        reason = " ".join(str(error).split())[:120]
        hint = "write it again, or give a file of another format"
        raise InputError(path, f"is not a whole Parquet file ({reason})", hint=hint) from None
    return collector.finish()


def row_of(path: Path, options: ReadOptions, place: int) -> int:
    """The number of the row, from 1, that a triple of `read_parquet` stands in."""
    with path.open("rb") as content, pq.ParquetFile(content) as file:
        titles, row = _titles_by_role(path, file.schema_arrow.names, options), 1
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(titles.values())):
            good = np.flatnonzero(_good_rows(*_texts(batch, titles)[::2]))
            if place < len(good):
                return row + int(good[place])
            place, row = place - len(good), row + batch.num_rows
    raise IndexError(place)


def _titles_by_role(path: Path, titles: list[str], options: ReadOptions) -> dict[str, str]:
    roles = options.columns or columns_from_header(titles)
    if roles is None and len(titles) == len(DEFAULT_COLUMNS):
        roles = DEFAULT_COLUMNS
    if roles is None or len(roles) > len(titles):
        raise InputError(
            path,
            f"the columns {shown(', '.join(titles))} do not say which is head, relation and tail",
            hint="name them by position with --columns, as in head,relation,tail,_",
        )
    chosen = {role: title for role, title in zip(roles, titles, strict=False) if role != IGNORED}
    if twice := next((title for title in chosen.values() if titles.count(title) > 1), None):
        raise InputError(path, f"the title {shown(twice)} stands over two columns", hint="give each one of its own")
    return chosen


def _collect(
    batch: pa.RecordBatch, titles: dict[str, str], collector: TripleCollector, options: ReadOptions, row: int
) -> None:
    columns, label_text, labels = _texts(batch, titles)
    good = _good_rows(columns, labels)
    for place in np.flatnonzero(~good):
        error = _complaint(collector.path, columns, label_text, int(place), row + int(place))
        if not options.skips:
            raise error
        collector.report.skip(error)
    if not good.all():
        mask = pa.array(good)
        columns = [column.filter(mask) for column in columns]
        labels = labels[good] if labels is not None else None
    collector.add_columns([column.dictionary_encode() for column in columns], labels)


def _texts(batch: pa.RecordBatch, titles: dict[str, str]) -> tuple[list[pa.Array], pa.Array | None, Labels | None]:
    """The columns of names, and that of labels as it is written and as numbers."""
    text = {role: _as_text(batch.column(title)) for role, title in titles.items()}
    written = text.get("label")
    return [text[role] for role in DEFAULT_COLUMNS], written, None if written is None else _labels(written)


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    text = column.cast(pa.string())
    text.validate(full=True)  # what a file calls a string need not be UTF-8
    return text


def _good_rows(columns: list[pa.Array], labels: Labels | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    good = np.ones(len(columns[0]), dtype=bool)
    for column in columns:
        good &= pc.not_equal(column, "").fill_null(False).to_numpy(zero_copy_only=False)
        good &= ~pc.match_substring(column, "\0").fill_null(True).to_numpy(zero_copy_only=False)
    if labels is not None:
        good &= labels != _NO_LABEL
    return good


def _complaint(path: Path, columns: list[pa.Array], label: pa.Array | None, place: int, row: int) -> InputError:
    hint = "mend the row, or drop such rows with --on-bad-line skip"
    for role, column in zip(DEFAULT_COLUMNS, columns, strict=True):
        name = column[place].as_py()
        if not name:
            return InputError(path, f"the {role} of row {row} is empty", hint=hint)
        if "\0" in name:
            return InputError(path, f"the {role} {shown(name)} of row {row} holds a NUL byte", hint=hint)
    value = None if label is None else label[place].as_py()
    return InputError(path, f"the label {shown(value)} of row {row} is not 1, -1 or 0", hint=hint)


def _labels(label_text: pa.Array) -> Labels:
    """1 or 0 for each row, -1 where it says neither."""
    encoded = label_text.dictionary_encode()
    found = [label_of(text) for text in encoded.dictionary.to_pylist()] + [None]
    table = np.array([_NO_LABEL if label is None else label for label in found], dtype=np.int8)
    labels: Labels = table[encoded.indices.fill_null(len(found) - 1).to_numpy(zero_copy_only=False)]
    return labels


def write_parquet(path: Path, columns: list[pa.Array], labels: Labels | None) -> None:
    """Write named columns head, relation, tail (and label 1/-1), zstd-compressed."""
    arrays: list[pa.Array] = list(columns)
    names: tuple[str, ...] = DEFAULT_COLUMNS
    if labels is not None:
        names = LABELLED_COLUMNS
        arrays.append(pa.array(np.where(labels > 0, 1, -1).astype(np.int8)))
    with fresh_file(path) as partial, partial.open("wb") as file:
        pq.write_table(pa.table(arrays, names=list(names)), file, compression="zstd")
