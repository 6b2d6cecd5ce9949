"""Whole data sets in and out."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Row, complaint, make_dataset, parts_by_name, without_rights
from newcomer.data.dataset import FORMAT, read_dataset, read_graph, read_manifest, sha256_of, write_dataset
from newcomer.data.options import ReadOptions
from newcomer.data.tables import ROLES
from newcomer.data.triples import WRITE_FORMATS
from newcomer.errors import DatasetError, InputError, NewcomerError, OutputError
from newcomer.graph import InductiveDataset, TripleArray

Put = Callable[[str, str | bytes], Path]
SMALL = make_dataset(
    train=[("a", "r", "b"), ("b", "r", "c")], aux=[("n", "r", "a")], valid=[("a", "s", "c")], test=[("n", "s", "c")]
)
NAME = st.text('ab"\t\n\r \ufeff%<>é日', min_size=1, max_size=3)
TRIPLES = st.lists(st.tuples(NAME, NAME, NAME), max_size=5)


def labelled(dataset: InductiveDataset, labels: list[int]) -> InductiveDataset:
    test = dataset.test
    marked = TripleArray(test.heads, test.relations, test.tails, np.array(labels, dtype=np.int8))
    return InductiveDataset(dataset.name, dataset.observed, dataset.auxiliary, dataset.valid, marked)


@pytest.mark.parametrize("file_format", WRITE_FORMATS)
@given(TRIPLES.filter(bool), TRIPLES, TRIPLES, TRIPLES)
@settings(max_examples=40)
def test_a_folder_reads_as_what_was_written(tmp_path: Path, file_format: str, train, aux, valid, test) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(**dict(zip(ROLES, (train, aux, valid, test), strict=True)))
    folder = tmp_path / "set"
    write_dataset(dataset, folder, file_format, force=True)
    loaded = read_dataset(folder)
    again = loaded.dataset
    assert (loaded.layout, again.name) == ("newcomer", "set")
    assert again.entities == dataset.entities and again.relations == dataset.relations
    for ours, theirs in ((again.observed.triples, dataset.observed.triples), (again.test, dataset.test)):
        assert np.array_equal(ours.rows, theirs.rows)
    assert parts_by_name(again) == parts_by_name(dataset)


@pytest.mark.parametrize("file_format", ["tsv", "parquet"])
def test_labels_survive(tmp_path: Path, file_format: str) -> None:
    dataset = labelled(SMALL, [0])
    write_dataset(dataset, tmp_path / "set", file_format)
    assert parts_by_name(read_dataset(tmp_path / "set").dataset)["test"] == [("n", "s", "c", "0")]


@pytest.mark.parametrize("file_format", WRITE_FORMATS)
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, file_format: str) -> None:
    for name in ("one", "two"):
        write_dataset(SMALL, tmp_path / name, file_format, {"verb": "test"})
    ones, twos = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.name for path in ones] == [path.name for path in twos] and len(ones) == 5
    assert [path.read_bytes() for path in ones] == [path.read_bytes() for path in twos]


def test_the_manifest_holds_counts_hashes_and_origin_but_no_date(tmp_path: Path) -> None:
    write_dataset(SMALL, tmp_path / "set", made_by={"verb": "split", "seed": 3})
    manifest = read_manifest(tmp_path / "set")
    assert set(manifest) == {"format", "version", "name", "entities", "relations", "newcomers", "files", "made_by"}
    assert [manifest[key] for key in ("name", "entities", "relations", "newcomers")] == ["made", 4, 2, 1]
    assert {role: entry["triples"] for role, entry in manifest["files"].items()} == dict(
        zip(ROLES, (2, 1, 1, 1), strict=True)
    )
    assert all(entry["sha256"] == sha256_of(tmp_path / "set" / entry["file"]) for entry in manifest["files"].values())
    assert manifest["made_by"].items() >= {"verb": "split", "seed": 3}.items() and "newcomer" in manifest["made_by"]


def test_repeated_rows_are_kept_once_and_counted_self_loops_kept_and_counted(put: Put) -> None:
    put("set/test.txt", "a\tr\tb\t1\na\tr\tb\t1\na\tr\tb\t-1\n")
    folder = put("set/train.txt", "a\tr\tb\na\tr\ta\na\tr\tb\nb\tr\tb\n").parent
    loaded = read_dataset(folder)
    train, test = loaded.parts["train"], loaded.parts["test"]
    assert (train.rows, train.duplicates, train.self_loops) == (4, 1, 2)
    assert (test.rows, test.duplicates, test.self_loops) == (3, 1, 0)
    assert sorted(loaded.dataset.observed.named()) == [("a", "r", "a"), ("a", "r", "b"), ("b", "r", "b")]
    assert parts_by_name(loaded.dataset)["test"] == [("a", "r", "b", "0"), ("a", "r", "b", "1")]


def test_skipped_lines_are_reported_by_part(put: Put) -> None:
    put("set/train.txt", "a\tr\tb\nbad\nc\tr\td\n")
    folder = put("set/test.txt", "a\tr\td\n\tr\td\n").parent
    loaded = read_dataset(folder, ReadOptions(on_bad_line="skip"))
    assert {role: part.skipped for role, part in loaded.parts.items()} == {"train": 1, "test": 1}
    assert "train.txt, line 2" in loaded.parts["train"].bad_lines[0]
    assert len(loaded.dataset.observed) == 2


def test_literals_are_counted_by_part(put: Put) -> None:
    path = put("f.nt", '<http://a> <http://r> <http://b> .\n<http://a> <http://r> "1" .\n')
    assert read_dataset(path).parts["train"].literals == 1


@pytest.mark.parametrize("role", ["train", "aux"])
def test_a_model_does_not_learn_from_false_triples(put: Put, role: str) -> None:
    put("set/train.txt", "a\tr\tb\n")
    folder = put(f"set/{role}.txt", "a\tr\tb\t1\na\tr\tc\t-1\n").parent
    assert f"{role} holds triples labelled false" in str(complaint(read_dataset, folder))


def test_a_single_file_is_a_graph_without_newcomers(put: Put) -> None:
    path = put("graph.tsv", "b\tr\ta\n")
    loaded = read_dataset(path)
    assert (loaded.layout, loaded.dataset.name, len(loaded.dataset.test)) == ("file", "graph", 0)
    assert list(read_graph(str(path)).named()) == [("b", "r", "a")]


def test_the_sentence_of_a_bad_file_in_a_folder_names_the_file(put: Put) -> None:
    put("set/train.txt", "a\tr\tb\n")
    error = complaint(read_dataset, put("set/valid.txt", "a\tr\n").parent)
    assert isinstance(error, InputError) and error.path.endswith("valid.txt") and error.line == 1


def test_what_is_not_there(tmp_path: Path) -> None:
    assert "does not exist" in str(complaint(read_dataset, tmp_path / "nowhere"))
    assert "File name too long" in str(complaint(read_dataset, tmp_path / ("x" * 300)))
    assert isinstance(complaint(read_dataset, Path("/")), DatasetError)


def test_a_folder_that_may_not_be_looked_into(public_folder: Path) -> None:
    closed = public_folder / "closed"
    closed.mkdir(mode=0)
    with without_rights():
        assert "Permission denied" in str(complaint(read_dataset, closed))
        assert "Permission denied" in str(complaint(read_dataset, closed / "set"))
        assert "Permission denied" in str(complaint(write_dataset, SMALL, closed / "set"))


# Our own folder


def written(tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "set"
    write_dataset(SMALL, folder, force=True)
    manifest = json.loads((folder / "dataset.json").read_text()) | changes
    (folder / "dataset.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "is not a manifest of this program"),
        ({"files": None}, "is not a manifest of this program"),
        ({"files": {"train": 5}}, "is not a manifest of this program"),
        ({"files": {"train": {"file": 5}}}, "is not a manifest of this program"),
        ({"version": 2}, "has version 2, this program reads 1"),
        ({"version": "x" * 9999}, "has version 'xxx"),
        ({"files": {"train": {"file": "train.tsv"}}}, "lists train.tsv but the folder holds aux.tsv"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    error = str(complaint(read_dataset, written(tmp_path, **changes)))
    assert words in error and len(error) < 500


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"version": ' + "1" * 5000 + "}"])
def test_a_manifest_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    folder = written(tmp_path)
    (folder / "dataset.json").write_text(text)
    assert "dataset.json" in str(complaint(read_dataset, folder))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.text("ab./\0", max_size=4), st.just("train.tsv")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*ROLES, "file", "sha256", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.one_of(st.binary(max_size=40), JSON.map(lambda value: json.dumps(value).encode())), JSON, JSON)
@settings(max_examples=200)
def test_no_manifest_ends_in_another_error(put: Put, content: bytes, files: Any, version: Any) -> None:
    folder = put("set/train.tsv", "a\tr\tb\n").parent
    ours = json.dumps({"format": FORMAT, "version": version if version is not None else 1, "files": files}).encode()
    for manifest in (content, ours):
        put("set/dataset.json", manifest)
        try:
            read_dataset(folder)
        except NewcomerError as error:
            assert "\n" not in str(error)


def test_options_do_not_change_how_our_folder_is_read(tmp_path: Path) -> None:
    rows: list[Row] = [("head", "relation", "tail"), ("x,y", '"', "z;w")]
    write_dataset(make_dataset(train=rows), tmp_path / "set")  # type: ignore[arg-type]
    loaded = read_dataset(tmp_path / "set", ReadOptions(delimiter=",", header=True, quote=None))
    assert parts_by_name(loaded.dataset)["train"] == sorted(rows)


@pytest.mark.parametrize("file_format", ["xlsx", "tsv.bz2"])
def test_an_unknown_format_writes_nothing(tmp_path: Path, file_format: str) -> None:
    assert "unknown format" in str(complaint(write_dataset, SMALL, tmp_path / "set", file_format))
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_that_cannot_be_written_as_asked_leaves_the_old_one(tmp_path: Path) -> None:
    folder = written(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    complaint(write_dataset, labelled(SMALL, [0]), folder, "nt", force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert isinstance(complaint(write_dataset, SMALL, folder), OutputError)


def test_a_data_set_replaces_data_sets_only(put: Put) -> None:
    folder = put("set/enrichment.json", "{}").parent
    assert "holds 'enrichment.json' and no dataset.json" in str(complaint(write_dataset, SMALL, folder, force=True))
    assert [path.name for path in folder.iterdir()] == ["enrichment.json"]


def test_a_name_that_is_no_utf8_can_still_be_written(put: Put, tmp_path: Path) -> None:
    dataset = read_dataset(put("caf\udce9.tsv", "a\tr\tb\n")).dataset
    write_dataset(dataset, tmp_path / "set")
    assert read_manifest(tmp_path / "set")["name"] == dataset.name == r"caf\udce9"


def test_the_name_does_not_depend_on_how_the_path_is_typed(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put("my.set/train.txt.gz", gzip.compress(b"a\tr\tb\n"))
    monkeypatch.chdir(file.parent)
    assert {read_dataset(path).dataset.name for path in (file, Path(file.name), Path("..") / "my.set" / file.name)} == {
        "train"
    }
    folder = file.parent.rename(file.parent.with_name("my.txt"))
    monkeypatch.chdir(folder)
    for path in (folder, Path(), Path("..") / "my.txt"):
        assert read_dataset(path).dataset.name == "my.txt"
