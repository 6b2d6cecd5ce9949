"""Triples one by one with the number of their line: as a pipe gives them, or to say where one of a file stands."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from newcomer.data.delimited import delimited_rows
from newcomer.data.options import ReadOptions
from newcomer.data.parquet import row_of
from newcomer.data.rdf import FORMATS, LINE_FORMATS, rdf_rows
from newcomer.data.tables import NumberedRow, ReadReport
from newcomer.data.triples import PARQUET_SUFFIXES
from newcomer.errors import InputError
from newcomer.files import open_bytes, plain_suffix


def has_lines(suffix: str) -> bool:
    """Whether a format has one triple a line."""
    return suffix in LINE_FORMATS or suffix not in (*PARQUET_SUFFIXES, *FORMATS)


def numbered_rows(stream: Any, path: Path, options: ReadOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """The triples of a stream, each as soon as its line is there; the ending of ``path`` says the format."""
    rows = rdf_rows if plain_suffix(path) in LINE_FORMATS else delimited_rows
    return rows(stream, path, options, report)


def at_fault(path: Path, options: ReadOptions, place: int, problem: str, hint: str = "") -> InputError:
    """The error for one of the triples that `read_triples` gave, with its line or row; Turtle and TriG tell neither."""
    suffix = plain_suffix(path)
    if suffix in PARQUET_SUFFIXES:
        return InputError(path, f"row {row_of(path, options, place)}: {problem}", hint=hint)
    return InputError(path, problem, _line_of(path, options, place) if has_lines(suffix) else None, hint)


def _line_of(path: Path, options: ReadOptions, place: int) -> int:
    with open_bytes(path) as stream:
        stated = (number for number, row in numbered_rows(stream, path, options, ReadReport()) if row is not None)
        return next(islice(stated, place, None))
