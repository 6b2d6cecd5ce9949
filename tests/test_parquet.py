"""Triples in Parquet."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Row, complaint, rows, without_rights
from newcomer.data import parquet
from newcomer.data.delimited import read_delimited
from newcomer.data.options import ReadOptions
from newcomer.data.parquet import read_parquet, write_parquet

ABC = {"head": ["a", "c"], "relation": ["r", "s"], "tail": ["b", "d"]}
LABELS = {"1": "1", "+1": "1", " 1 ": "1", "1.0": "1", "True": "1", "-1": "0", "0": "0", "-1.0": "0", "false": "0"}
EXPECTED: list[Row] = [("a", "r", "b"), ("c", "s", "d")]


def table(folder: Path, **columns: object) -> Path:
    return arrow_table(folder, pa.table(columns))


def arrow_table(folder: Path, content: pa.Table) -> Path:
    path = folder / "f.parquet"
    pq.write_table(content, path)
    return path


def read(path: Path, **options: object) -> list[Row]:
    return rows(read_parquet(path, ReadOptions(**options)))  # type: ignore[arg-type]


def test_columns_are_known_by_title_in_any_order(tmp_path: Path) -> None:
    path = table(tmp_path, weight=[0.1, 0.2], object=["b", "d"], subject=["a", "c"], predicate=["r", "s"])
    assert read(path) == EXPECTED


def test_three_untitled_columns_are_head_relation_tail(tmp_path: Path) -> None:
    assert read(table(tmp_path, x=["a", "c"], y=["r", "s"], z=["b", "d"])) == EXPECTED


def test_columns_may_be_named_by_place(tmp_path: Path) -> None:
    path = table(tmp_path, x=["b", "d"], i=[1, 2], y=["r", "s"], z=["a", "c"], more=[0, 0])
    assert read(path, columns=("tail", "_", "relation", "head")) == EXPECTED


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
def test_names_may_be_stored_in_several_ways(tmp_path: Path, kind: pa.DataType) -> None:
    assert read(table(tmp_path, **{role: pa.array(names).cast(kind) for role, names in ABC.items()})) == EXPECTED


def test_numbers_are_names_too(tmp_path: Path) -> None:
    assert read(table(tmp_path, head=[1], relation=["r"], tail=[2])) == [("1", "r", "2")]


@pytest.mark.parametrize("labels", [[1, -1], [1.0, 0.0], ["1", "-1"], [True, False]])
def test_labels_of_any_type(tmp_path: Path, labels: list[object]) -> None:
    assert [row[-1] for row in read(table(tmp_path, **ABC, label=labels))] == ["1", "0"]


def test_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(i) for i in range(50)]
    path = table(tmp_path, head=names, relation=["r"] * 50, tail=names[::-1], label=[1, -1] * 25)
    expected = read(path)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 7)
    assert read(path) == expected and len(expected) == 50


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({**ABC, "head": ["a", ""]}, "the head of row 2 is empty"),
        ({**ABC, "tail": [None, "b"]}, "the tail of row 1 is empty"),
        ({**ABC, "relation": ["r", "s\0"]}, "the relation 's\\x00' of row 2 holds a NUL byte"),
        ({**ABC, "label": [1, 7]}, "the label '7' of row 2 is not 1, -1 or 0"),
        ({**ABC, "label": [1, None]}, "the label None of row 2"),
    ],
)
def test_a_bad_row_is_named_or_skipped(tmp_path: Path, columns: dict[str, object], words: str) -> None:
    path = table(tmp_path, **columns)
    assert words in str(complaint(read, path))
    named = read_parquet(path, ReadOptions(on_bad_line="skip"))
    assert len(named) == 1 and named.report.skipped == 1 and words in named.report.bad_lines[0]


def test_rows_are_counted_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 2)
    path = table(tmp_path, head=["a"] * 5, relation=["r"] * 5, tail=["b", "b", "b", "b", ""])
    assert "the tail of row 5 is empty" in str(complaint(read, path))


@pytest.mark.parametrize("columns", [{"x": ["a"], "y": ["r"]}, {"a": ["a"], "b": ["r"], "c": ["b"], "d": ["x"]}])
def test_columns_that_do_not_say_what_they_are(tmp_path: Path, columns: dict[str, object]) -> None:
    assert "do not say which is head" in str(complaint(read, table(tmp_path, **columns)))


def test_a_title_over_two_columns_is_a_doubt(tmp_path: Path) -> None:
    twice = pa.table(ABC).rename_columns(["x", "x", "y"])
    assert "the title 'x' stands over two columns" in str(complaint(read, arrow_table(tmp_path, twice)))


def test_no_rows_at_all(tmp_path: Path) -> None:
    assert "holds no triple" in str(complaint(read, arrow_table(tmp_path, pa.table(ABC).slice(0, 0))))


def test_a_list_is_no_name(tmp_path: Path) -> None:
    complaint(read, table(tmp_path, head=[["a"]], relation=["r"], tail=["b"]))


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    offsets = pa.array([0, 2], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    assert "UTF8" in str(complaint(read, table(tmp_path, head=broken, relation=["r"], tail=["b"])))


def test_a_title_that_is_not_utf8(tmp_path: Path) -> None:
    path = table(tmp_path, **ABC)
    path.write_bytes(path.read_bytes().replace(b"relation", b"rela\xc5ion"))
    assert "is not a whole Parquet file" in str(complaint(read, path))


def test_a_file_cut_anywhere_is_not_whole(tmp_path: Path) -> None:
    whole = table(tmp_path, **ABC).read_bytes()
    path = tmp_path / "cut.parquet"
    for cut in (0, 1, 4, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert "is not a whole Parquet file" in str(complaint(read, path))


def test_text_named_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_text("a\tr\tb\n" * 100)
    assert "is not a whole Parquet file" in str(complaint(read, path))


def test_no_permission(public_folder: Path) -> None:
    path = table(public_folder, **ABC)
    path.chmod(0)
    with without_rights():
        assert "Permission denied" in str(complaint(read, path))


def test_writing_keeps_names_and_labels(tmp_path: Path) -> None:
    columns = [pa.array(names).dictionary_encode() for names in ABC.values()]
    path = tmp_path / "new" / "f.parquet"
    write_parquet(path, columns, np.array([1, 0], dtype=np.int8))
    assert read(path) == [("a", "r", "b", "1"), ("c", "s", "d", "0")]
    assert pq.read_table(path).column("label").to_pylist() == [1, -1]
    assert [p.name for p in path.parent.iterdir()] == ["f.parquet"]


@pytest.mark.parametrize(("text", "label"), LABELS.items())
def test_text_and_parquet_know_the_same_labels(tmp_path: Path, text: str, label: str) -> None:
    (tmp_path / "f.tsv").write_text(f"a\tr\tb\t{text}\n")
    assert rows(read_delimited(tmp_path / "f.tsv", ReadOptions())) == [("a", "r", "b", label)]
    assert read(table(tmp_path, head=["a"], relation=["r"], tail=["b"], label=[text])) == [("a", "r", "b", label)]
