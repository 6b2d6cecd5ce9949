"""OpenKE's numbered files."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import complaint, rows
from newcomer.data.dataset import read_dataset
from newcomer.data.openke import read_names, read_openke
from newcomer.data.options import ReadOptions
from newcomer.errors import InputError, NewcomerError

Put = Callable[[str, str | bytes], Path]
ENTITIES, RELATIONS = pa.array(["a", "b", "c"]), pa.array(["r", "s"])
SKIP = ReadOptions(on_bad_line="skip")


def read(path: Path, options: ReadOptions | None = None) -> object:
    return rows(read_openke(path, ENTITIES, RELATIONS, options or ReadOptions()))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("between", [" ", "\t"])
def test_columns_are_head_tail_relation(put: Put, end: str, between: str) -> None:
    lines = ["\ufeff2", between.join("021"), "", between.join("110")]
    assert read(put("train2id.txt", end.join(lines) + end)) == [("a", "s", "c"), ("b", "r", "b")]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("2\n0 1 0\n3 1 0\n", 3, "the head id '3' is not in 0..2"),
        ("1\n0 9 0\n", 2, "the tail id '9'"),
        ("1\n\n0 1 2\n", 3, "the relation id '2' is not in 0..1"),
        ("1\n-1 1 0\n", 2, "the head id '-1'"),
        ("1\n0 ٣ 0\n", 2, "the tail id '٣'"),
        ("1\n0 1\n", 2, "2 columns in '0 1'"),
        ("1\n0 1 0 0\n", 2, "4 columns"),
        ("3\n0 1 0\n", 1, "the first line says 3 but 1 lines follow"),
        ("0 1 0\n", 1, "'0 1 0' is not the number of lines"),
        ("9" * 5000 + "\n0 1 0\n", 1, "is not the number of lines"),
        ("", 1, "is not the number of lines"),
        (b"1\n0 1 \xff\n", 2, "is not UTF-8"),
    ],
)
def test_a_bad_file_is_named_with_line_and_value(put: Put, text: str | bytes, line: int, words: str) -> None:
    error = complaint(read, put("train2id.txt", text))
    assert isinstance(error, InputError) and error.line == line and words in str(error)


def test_bad_lines_can_be_skipped(put: Put) -> None:
    named = read_openke(put("train2id.txt", "9\n0 1 0\n7 1 0\n0 1\n1 2 1\n"), ENTITIES, RELATIONS, SKIP)
    assert rows(named) == [("a", "r", "b"), ("b", "s", "c")]
    assert named.report.skipped == 2 and "line 3:" in named.report.bad_lines[0]


def test_a_count_of_nothing_holds_no_triple(put: Put) -> None:
    assert "holds no triple" in str(complaint(read, put("train2id.txt", "0\n")))


def test_names_are_put_in_the_order_of_their_ids(put: Put) -> None:
    text = "4\nNew York\t2\nb\u2028c 0\nx\x85y\t1\n/m/0 1 3\n"
    assert read_names(put("entity2id.txt", text)).to_pylist() == ["b\u2028c", "x\x85y", "New York", "/m/0 1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2\na 0\nb 0\n", "line 3: the id 0 stands twice"),
        ("2\na 0\nb 2\n", "the id 1 is missing"),
        ("2\na 0\na 1\n", "the name 'a' has two ids"),
        ("1\na\n", "line 2: 'a' is not a name and its id"),
        ("1\na x\n", "line 2: 'a x' is not a name and its id"),
        ("1\n\t0\n", "line 2: '\\t0' is not a name and its id"),
        ("1\na\0 0\n", "line 2: 'a\\x00 0' is not a name and its id"),
        ("1\na " + "1" * 5000, "is not a name and its id"),
        ("2\na 0\n", "line 1: the first line says 2 but 1 lines follow"),
    ],
)
def test_a_bad_list_of_names_is_refused(put: Put, text: str, words: str) -> None:
    assert words in str(complaint(read_names, put("entity2id.txt", text)))


def folder_of(put: Put, train2id: str | bytes = "1\n0 1 0\n", **others: str | bytes) -> Path:
    files: dict[str, str | bytes] = {"entity2id": "2\na 0\nb 1\n", "relation2id": "1\nr 0\n", "train2id": train2id}
    paths = [put(f"set/{name}.txt", text) for name, text in (files | others).items()]
    return paths[0].parent


def test_a_folder_is_read_with_its_names(put: Put) -> None:
    loaded = read_dataset(folder_of(put, "3\n0 1 0\n0 1 0\n1 1 0\n", test2id="1\n1 0 0\n"))
    assert loaded.layout == "openke" and loaded.parts["train"].duplicates == 1 and loaded.parts["train"].self_loops == 1
    assert list(loaded.dataset.observed.named()) == [("a", "r", "b"), ("b", "r", "b")]
    assert loaded.dataset.test.rows.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("missing", ["entity2id.txt", "relation2id.txt"])
def test_a_folder_needs_its_names(put: Put, missing: str) -> None:
    folder = folder_of(put)
    (folder / missing).unlink()
    assert f"needs {missing}" in str(complaint(read_dataset, folder))


BYTES = st.one_of(st.binary(max_size=30), st.text("012 \t\n\r-a", max_size=30).map(str.encode))


@given(st.sampled_from(["entity2id", "relation2id", "train2id", "valid2id"]), BYTES, st.sampled_from(["error", "skip"]))
@settings(max_examples=500)
def test_no_bytes_end_in_another_error(put: Put, file: str, content: bytes, on_bad_line: str) -> None:
    try:
        read_dataset(folder_of(put, **{file: content}), ReadOptions(on_bad_line=on_bad_line))
    except NewcomerError as error:
        assert "\n" not in str(error)
