"""Triples one by one with their lines: the same as a file's reader gives, and where each of them stands."""

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from newcomer.data.options import ReadOptions
from newcomer.data.tables import ReadReport
from newcomer.data.triples import at_fault, has_lines, numbered_rows, read_triples

Put = Callable[[str, str | bytes], Path]
NAMES = ["a", "b c", "d,e", 'f"g', "h\ni", " j", "k\t"]


class Crumbs:
    """A stream that gives a few bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        self._stream, self._size = io.BytesIO(content), size

    def read(self, _: int = -1) -> bytes:
        return self._stream.read(self._size)


def rows_of(path: Path, options: ReadOptions, size: int = 1 << 20) -> list[tuple[int, tuple[str, str, str, int]]]:
    found = numbered_rows(Crumbs(path.read_bytes(), size), path, options, ReadReport())
    return [(line, row) for line, row in found if row is not None]


def named(path: Path, options: ReadOptions) -> list[tuple[str, str, str]]:
    read = read_triples(path, options)
    names, relations = read.entities.to_pylist(), read.relations.to_pylist()
    return [(names[h], relations[r], names[t]) for h, r, t in read.triples.rows.tolist()]


@pytest.mark.parametrize("seed", range(20))
def test_random_files_give_the_same_triples_in_crumbs_and_as_a_whole(put: Put, seed):
    draw = random.Random(seed)
    delimiter, ending = draw.choice([("\t", "tsv"), (",", "csv"), (";", "csv")])
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    lines = [delimiter.join(draw.choice(quoted) for _ in range(3)) for _ in range(draw.randint(1, 30))]
    if draw.random() < 0.5:
        lines.insert(0, delimiter.join(("head", "relation", "tail")))
    lines.insert(draw.randint(0, len(lines)), "")
    if draw.random() < 0.3:
        lines.insert(draw.randint(1, len(lines)), "only one")
    path = put(f"a.{ending}", draw.choice(["\n", "\r\n"]).join(lines) + "\n")
    options = ReadOptions(on_bad_line="skip")
    expected = named(path, options)
    for size in (1, 7, 1 << 20):
        assert [row[:3] for _, row in rows_of(path, options, size)] == expected


def test_lines_are_those_of_an_editor(put: Put):
    path = put("a.csv", 'head,relation,tail\n"a\nb",r,c\n\nd,r,e\n')
    found = list(numbered_rows(Crumbs(path.read_bytes(), 5), path, ReadOptions(), ReadReport()))
    assert found == [(2, ("a\nb", "r", "c", 1)), (4, None), (5, ("d", "r", "e", 1))]


def test_rows_come_before_the_rest_of_the_stream_is_read(put: Put):
    asked: list[int] = []

    class Slow:
        waiting: ClassVar = [b"a\tr\tb\n", b"c\tr", b"\td\n", b'"e\tr\tf\n']

        def read(self, _: int = -1) -> bytes:
            asked.append(len(self.waiting))
            return self.waiting.pop(0) if self.waiting else b""

    rows = numbered_rows(Slow(), Path("a.tsv"), ReadOptions(), ReadReport())
    assert next(rows) == (1, ("a", "r", "b", 1)) and asked == [4]
    assert next(rows) == (2, ("c", "r", "d", 1)) and asked == [4, 3, 2]
    assert next(rows) == (3, ('"e', "r", "f", 1)) and asked == [4, 3, 2, 1, 0]  # a quote may close on a later line


def test_statements_have_the_lines_of_their_file(put: Put):
    text = '# a word\n<x:a> <x:r> <x:b> .\n\n<x:a> <x:r> "12" .\n<x:c> <x:r> _:n .\n'
    path = put("a.nt", text)
    found = list(numbered_rows(Crumbs(path.read_bytes(), 3), path, ReadOptions(), ReadReport()))
    assert found == [(2, ("x:a", "x:r", "x:b", 1)), (3, None), (5, ("x:c", "x:r", "_:n", 1))]
    assert [row[:3] for _, row in found if row] == named(path, ReadOptions())


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.tsv", "a\tr\tb\nbad\n\nc\tr\td\n", (1, 4)),
        ("a.csv", "from,rel,to\na,r,b\nbad\nc,r,d\n", (2, 4)),
        ("a.nt", "<x:a> <x:r> <x:b> .\nbad\n<x:c> <x:r> <x:d> .\n", (1, 3)),
        ("a.ttl", "<x:a> <x:r> <x:b> , <x:c> .\n", (None, None)),
    ],
)
def test_a_triple_of_a_file_is_blamed_with_its_line(put: Put, name, content, lines):
    path = put(name, content)
    for place, line in enumerate(lines):
        error = at_fault(path, ReadOptions(on_bad_line="skip"), place, "is wrong", "mend it")
        where = f"{path}: " if line is None else f"{path}, line {line}: "
        assert str(error) == f"{where}is wrong; mend it" and error.line == line


def test_a_triple_of_a_parquet_file_is_blamed_with_its_row(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    heads = ["a", "", "c", "d", "", "f"]
    table = pa.table({"head": heads, "relation": ["r"] * 6, "tail": ["t"] * 6})
    pq.write_table(table, path, row_group_size=2)
    places = [at_fault(path, ReadOptions(on_bad_line="skip"), place, "is wrong").problem for place in range(4)]
    assert places == [f"row {row}: is wrong" for row in (1, 3, 4, 6)]


def test_formats_with_a_triple_a_line_are_known():
    assert all(has_lines(suffix) for suffix in (".tsv", ".csv", ".txt", ".nt", ".nq"))
    assert not any(has_lines(suffix) for suffix in (".parquet", ".ttl", ".trig"))
