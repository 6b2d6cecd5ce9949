"""OpenKE's numbered layout: ``entity2id.txt``, ``relation2id.txt`` and ``train2id.txt`` with head, tail, relation ids.

The first line of each file is the number of lines that follow.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from newcomer.data.options import ReadOptions
from newcomer.data.tables import NamedTriples, TripleCollector
from newcomer.errors import InputError, shown
from newcomer.files import read_lines


def read_openke(path: Path, entities: pa.Array, relations: pa.Array, options: ReadOptions) -> NamedTriples:
    """One file of numbered triples; ``entities`` and ``relations`` are the names in id order."""
    collector = TripleCollector(path)
    rows = []
    for number, text in _counted_lines(path, options):
        try:
            rows.append(_numbered(path, number, text, len(entities), len(relations)))
        except InputError as error:
            if not options.skips:
                raise
            collector.report.skip(error)
    if rows:
        heads, tails, kinds = map(pa.array, np.array(rows, dtype=np.int32).T)
        columns = ((heads, entities), (kinds, relations), (tails, entities))
        collector.add_columns([pa.DictionaryArray.from_arrays(ids, names) for ids, names in columns])
    return collector.finish()


def _numbered(path: Path, number: int, text: str, entities: int, relations: int) -> list[int]:
    fields = text.split()
    if len(fields) != 3:
        problem = f"{len(fields)} columns in {shown(text)} where head, tail and relation ids are expected"
        raise InputError(path, problem, number, "mend the line")
    sizes = (("head", entities), ("tail", entities), ("relation", relations))
    for field, (role, size) in zip(fields, sizes, strict=True):
        if not _is_number(field) or int(field) >= size:
            problem = f"the {role} id {shown(field)} is not in 0..{size - 1}"
            raise InputError(path, problem, number, "check entity2id.txt and relation2id.txt beside it")
    return list(map(int, fields))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12


def read_names(path: Path) -> pa.Array:
    """``entity2id.txt`` or ``relation2id.txt``: names in id order."""
    names: dict[int, str] = {}
    for number, text in _counted_lines(path, ReadOptions()):
        name, _, field = text.rstrip().rpartition("\t" if "\t" in text.rstrip() else " ")
        name = name.strip()
        if not name or "\0" in name or not _is_number(field):
            raise InputError(path, f"{shown(text)} is not a name and its id", number, "mend the line")
        if int(field) in names:
            raise InputError(path, f"the id {field} stands twice", number, "give each name an id of its own")
        names[int(field)] = name
    for place in range(len(names)):
        if place not in names:
            raise InputError(path, f"the id {place} is missing", hint="ids must run from 0 without a gap")
    ordered, seen = [names[place] for place in range(len(names))], set[str]()
    for name in ordered:
        if name in seen:
            raise InputError(path, f"the name {shown(name)} has two ids", hint="give each name one id")
        seen.add(name)
    return pa.array(ordered, type=pa.string())


def _counted_lines(path: Path, options: ReadOptions) -> Iterator[tuple[int, str]]:
    """The lines after the count, which must be as many as it says."""
    lines = read_lines(path)
    stated = lines[0].strip()
    if not _is_number(stated):
        raise InputError(path, f"{shown(stated)} is not the number of lines", 1, "OpenKE files begin with it")
    body = [(number, line) for number, line in enumerate(lines[1:], start=2) if line.strip()]
    if len(body) != int(stated) and not options.skips:
        problem = f"the first line says {stated} but {len(body)} lines follow"
        raise InputError(path, problem, 1, "the file may have been cut off; mend the count or copy it again")
    yield from body
