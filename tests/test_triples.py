"""Any file in, any file out: round trips, agreement of formats, and bytes that mean nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import Row, complaint, rows, without_rights
from newcomer.data.dataset import read_dataset
from newcomer.data.options import ReadOptions
from newcomer.data.triples import read_triples, write_triples
from newcomer.errors import InputError, NewcomerError, OptionError, OutputError
from newcomer.graph import TripleArray, Vocabulary

Put = Callable[[str, str | bytes], Path]
NO_HEADER = ReadOptions(header=False)
ANY_CHARACTER = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")
NAMES = st.one_of(
    st.text(ANY_CHARACTER, min_size=1, max_size=6),
    st.text("\"\t\n\r ,;\ufeff%<>'\\a\u2028\x85\xa0", min_size=1, max_size=6),
    st.sampled_from(
        ["head", "relation", "tail", "http://x/é?a=%41", '"Weird Al" Yankovic', "1", "-1", "urn:newcomer:x"]
    ),
)
TRIPLES = st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=6)
SUFFIXES = (".tsv", ".csv", ".txt", ".tsv.gz", ".csv.zst", ".parquet", ".pq", ".nt", ".nt.gz")


def encoded(triples: list[Row]) -> tuple[Vocabulary, Vocabulary, TripleArray]:
    entities = Vocabulary(sorted({name for row in triples for name in (row[0], row[2])}))
    relations = Vocabulary(sorted({row[1] for row in triples}))
    ids = TripleArray.of([(entities.id(r[0]), relations.id(r[1]), entities.id(r[2])) for r in triples])
    return entities, relations, ids


def with_labels(ids: TripleArray, labels: list[int]) -> TripleArray:
    return TripleArray(ids.heads, ids.relations, ids.tails, np.array(labels, dtype=np.int8))


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(TRIPLES)
@example([(" ", " ", "  ")])
@example([("\ufeff", "\r", "a\nb")])
@example([("head", "relation", "tail")])
@settings(max_examples=150)
def test_every_name_survives_every_format(tmp_path: Path, suffix: str, triples: list[Row]) -> None:
    path = tmp_path / f"f{suffix}"
    write_triples(path, *encoded(triples))
    assert rows(read_triples(path, NO_HEADER)) == triples
    before = path.read_bytes()
    write_triples(path, *encoded(triples))
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".tsv", ".csv.gz", ".parquet"])
@given(TRIPLES, st.lists(st.sampled_from([0, 1]), min_size=6, max_size=6))
@settings(max_examples=60)
def test_labels_survive(tmp_path: Path, suffix: str, triples: list[Row], labels: list[int]) -> None:
    path = tmp_path / f"f{suffix}"
    entities, relations, ids = encoded(triples)
    write_triples(path, entities, relations, with_labels(ids, labels[: len(triples)]))
    expected = [(*row, str(label)) for row, label in zip(triples, labels, strict=False)]
    assert rows(read_triples(path, NO_HEADER)) == expected


@given(TRIPLES, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_formats_and_row_order_give_the_same_ids(tmp_path: Path, triples: list[Row], shuffler) -> None:  # type: ignore[no-untyped-def]
    found = []
    for suffix in (".tsv", ".csv.zst", ".parquet", ".nt"):
        path = tmp_path / f"f{suffix}"
        shuffled = list(triples)
        shuffler.shuffle(shuffled)
        write_triples(path, *encoded(shuffled))
        graph = read_dataset(path, NO_HEADER).dataset.observed
        found.append((list(graph.entities), list(graph.relations), graph.triples.rows.tolist()))
    assert found[1:] == found[:-1]
    assert found[0][0] == sorted({name for h, _, t in triples for name in (h, t)})


def test_many_rows_are_written_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("newcomer.data.triples.WRITTEN_AT_ONCE", 3)
    monkeypatch.setattr("newcomer.data.rdf.WRITTEN_AT_ONCE", 3)
    triples: list[Row] = [(f"h{i}", "r", f"t{i}") for i in range(10)]
    for suffix in (".tsv", ".nt"):
        write_triples(tmp_path / f"f{suffix}", *encoded(triples))
        assert rows(read_triples(tmp_path / f"f{suffix}")) == triples


def test_text_is_quoted_only_where_it_must_be(tmp_path: Path) -> None:
    write_triples(tmp_path / "f.tsv", *encoded([("a,b", "r s", 'say "hi"'), ("x\ty", "r", "z")]))
    assert (tmp_path / "f.tsv").read_bytes() == b'a,b\tr s\t"say ""hi"""\n"x\ty"\tr\tz\n'


def test_n_triples_cannot_say_false(tmp_path: Path) -> None:
    entities, relations, ids = encoded([("a", "r", "b")])
    path = tmp_path / "f.nt"
    assert isinstance(complaint(write_triples, path, entities, relations, with_labels(ids, [0])), OptionError)
    assert list(tmp_path.iterdir()) == []
    write_triples(path, entities, relations, with_labels(ids, [1]))
    assert rows(read_triples(path)) == [("a", "r", "b")]


@pytest.mark.parametrize("name", ["f.xlsx", "f.ttl", "f", "f.gz"])
def test_an_unknown_format_is_not_written(tmp_path: Path, name: str) -> None:
    assert "unknown format to write" in str(complaint(write_triples, tmp_path / name, *encoded([("a", "r", "b")])))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_place_that_is_none_leaves_nothing_behind(put: Put, suffix: str) -> None:
    file = put("file", "old")
    assert isinstance(complaint(write_triples, file / f"f{suffix}", *encoded([("a", "r", "b")])), OutputError)
    assert [path.name for path in file.parent.iterdir()] == ["file"] and file.read_text() == "old"


@pytest.mark.parametrize("suffix", [".tsv", ".parquet", ".nt", ".ttl", ""])
def test_a_folder_a_missing_file_and_an_impossible_name(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    assert "is a folder where a file is expected" in str(complaint(read_triples, folder))
    assert "does not exist" in str(complaint(read_triples, tmp_path / f"missing{suffix}"))
    assert "File name too long" in str(complaint(read_triples, tmp_path / f"{'x' * 300}{suffix}"))
    assert "does not exist" in str(complaint(read_triples, tmp_path / f"a\0b{suffix}"))


@pytest.mark.parametrize("suffix", [".tsv", ".parquet", ".nt"])
def test_no_permission_for_a_file_or_its_folder(public_folder: Path, suffix: str) -> None:
    closed = public_folder / "closed"
    closed.mkdir()
    for path in (public_folder / f"f{suffix}", closed / f"f{suffix}"):
        path.write_bytes(b"a\tr\tb\n")
        path.chmod(0)
    closed.chmod(0)
    with without_rights():
        for path in (public_folder / f"f{suffix}", closed / f"f{suffix}"):
            assert "Permission denied" in str(complaint(read_triples, path))
    closed.chmod(0o755)


# Bytes that mean nothing


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"head": ["a", "b"], "relation": ["r", "s"], "tail": ["c", "d"]}), sink)
    return bytes(sink.getvalue().to_pybytes())


def compressed(kind: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(b"a\tr\tb\n" * 20)
    return bytes(sink.getvalue().to_pybytes())


SEEDS = {
    ".tsv": b'a\tr\tb\t1\n"c\td"\tr\te\t-1\n',
    ".csv": b'head,relation,tail\r\na,r,"b\nc"\r\n',
    ".txt": b"a r b\n c;d\te\n",
    ".tsv.gz": compressed("gzip"),
    ".txt.zst": compressed("zstd"),
    ".parquet": parquet_bytes(),
    ".nt": b'<http://a> <http://r> <http://b> .\n_:b <http://r> "l"@en .\n<urn:newcomer:%FF> <http://r> <urn:x:> .\n',
    ".nq": b"<http://a> <http://r> <http://b> <http://g> .\n",
    ".ttl": b'@prefix x: <http://x/> .\n@base <http://y/> .\nx:a a [ x:r (1 2.0 "x") ], <#b> ; x:s _:b .\n',
    ".trig": b"@prefix x: <http://x/> . x:g { x:a x:r x:b }",
}


def read_or_complain(path: Path, on_bad_line: str) -> None:
    """Whatever the bytes are: triples with good names, or one sentence."""
    try:
        found = rows(read_triples(path, ReadOptions(on_bad_line=on_bad_line)))
    except NewcomerError as error:
        assert "\n" not in str(error) and str(error).startswith(str(path))
        assert isinstance(error, InputError)
        return
    assert found and all(name and "\0" not in name for row in found for name in row)


@pytest.mark.parametrize("suffix", SEEDS)
@given(st.binary(max_size=60), st.sampled_from(["error", "skip"]))
@settings(max_examples=150)
def test_arbitrary_bytes_end_in_one_sentence(put: Put, suffix: str, content: bytes, on_bad_line: str) -> None:
    read_or_complain(put(f"f{suffix}", content), on_bad_line)


@pytest.mark.parametrize("suffix", SEEDS)
@given(st.data(), st.sampled_from(["error", "skip"]))
@settings(max_examples=250)
def test_damaged_files_end_in_one_sentence(put: Put, suffix: str, data: st.DataObject, on_bad_line: str) -> None:
    content = bytearray(SEEDS[suffix])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        content = content or bytearray(b"\n")
    read_or_complain(put(f"f{suffix}", bytes(content)), on_bad_line)
