"""N-Triples, N-Quads, Turtle and TriG."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Row, complaint, rows
from newcomer.data.dataset import read_dataset, write_dataset
from newcomer.data.options import ReadOptions
from newcomer.data.rdf import iri_of, name_of, read_rdf, write_ntriples
from newcomer.errors import InputError, MissingExtraError

Put = Callable[[str, str | bytes], Path]
LINE = "<http://x/a> <http://x/r> <http://x/b> ."
EXPECTED: list[Row] = [("http://x/a", "http://x/r", "http://x/b")]
SKIP = ReadOptions(on_bad_line="skip")


def read(path: Path, **options: object) -> list[Row]:
    return rows(read_rdf(path, ReadOptions(**options)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.nt", LINE),
        ("f.nq", LINE[:-1] + "<http://x/graph> ."),
        ("f.ttl", "@prefix x: <http://x/> . x:a x:r x:b ."),
        ("f.trig", "PREFIX x: <http://x/> x:graph { x:a x:r x:b }"),
    ],
)
def test_every_format_plain_and_compressed_with_or_without_a_mark(put: Put, name: str, text: str) -> None:
    assert read(put(name, text)) == EXPECTED
    assert read(put(f"{name}.gz", gzip.compress(text.encode()))) == EXPECTED
    assert read(put(name, "\ufeff" + text)) == EXPECTED


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("on_bad_line", ["error", "skip"])
def test_line_ends_comments_and_blank_lines(put: Put, end: str, on_bad_line: str) -> None:
    text = end.join(["# hello", LINE, "", LINE.replace("/a", "/ä"), ""])
    assert read(put("f.nt", text), on_bad_line=on_bad_line) == [*EXPECTED, ("http://x/ä", "http://x/r", "http://x/b")]


def test_literals_are_left_out_and_counted_unless_asked_for(put: Put) -> None:
    path = put("f.nt", f'{LINE}\n<http://x/a> <http://x/name> "A"@en .\n')
    named = read_rdf(path, ReadOptions())
    assert rows(named) == EXPECTED and named.report.literals == 1 and named.report.skipped == 0
    assert read(path, literals="keep")[1] == ("http://x/a", "http://x/name", '"A"@en')


def test_blank_nodes_keep_their_labels_on_either_way_of_reading(put: Put) -> None:
    path = put("f.nt", "_:n1 <http://x/r> _:n2 .\n_:n2 <http://x/r> _:n1 .\n")
    expected = [("_:n1", "http://x/r", "_:n2"), ("_:n2", "http://x/r", "_:n1")]
    assert read(path) == expected == read(path, on_bad_line="skip")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("f.nt", f"{LINE}\n{LINE}\n<http://x/a> <http://x/r>\n", 3),
        ("f.nt", b"<http://x/a> <http://x/r> <http://x/b> .\n<http://x/\xff> <http://x/r> <http://x/b> .\n", 2),
        ("f.nt", (LINE + "\n").encode("utf-16"), 1),
        ("f.nq", f"{LINE}\nnot a quad\n", 2),
        ("f.ttl", "@prefix x: <http://x/> .\nx:a x:r\n", None),
        ("f.ttl", "@prefix x: <http://x/> .\nx:a y:r x:b .\n", 2),
    ],
)
def test_what_is_broken_is_named_with_its_line(put: Put, name: str, text: str | bytes, line: int | None) -> None:
    error = complaint(read, put(name, text))
    assert isinstance(error, InputError) and error.line is not None
    assert (line is None or error.line == line) and "Parser error" not in str(error)


@pytest.mark.parametrize("suffix", [".nt", ".nq"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_bad_lines_can_be_skipped(put: Put, suffix: str, end: str) -> None:
    bad = ["<http://x/a> <http://x/r>", "nonsense", "<http://x/a> <http://x/r> <urn:newcomer:> ."]
    named = read_rdf(put(f"f{suffix}", end.join([bad[0], LINE, bad[1], LINE, bad[2], LINE])), SKIP)
    assert rows(named) == EXPECTED * 3 and named.report.skipped == 3
    assert "line 1:" in named.report.bad_lines[0] and "line 3:" in named.report.bad_lines[1]
    assert "'nonsense'" in named.report.bad_lines[1]


@pytest.mark.parametrize("name", ["", "%00", "a%00b"])
def test_names_that_are_empty_or_hold_a_nul_are_refused(put: Put, name: str) -> None:
    assert "an empty name or a NUL byte" in str(
        complaint(read, put("f.nt", LINE.replace("http://x/a", f"urn:newcomer:{name}")))
    )


def test_an_iri_that_only_looks_like_ours_keeps_its_name(put: Put) -> None:
    assert read(put("f.nt", LINE.replace("http://x/a", "urn:newcomer:%FF")))[0][0] == "urn:newcomer:%FF"


@pytest.mark.parametrize("name", ["f.nt", "f.ttl"])
def test_nothing_or_only_literals_holds_no_triple(put: Put, name: str) -> None:
    for text in ("", "\n\n", '<http://x/a> <http://x/r> "1" .\n'):
        assert "holds no triple" in str(complaint(read, put(name, text)))


def test_a_cut_gzip_is_named(put: Put) -> None:
    whole = gzip.compress("".join(LINE.replace("/a", f"/{i * i}") + "\n" for i in range(500)).encode())
    for options in (ReadOptions(), SKIP):
        assert "not a whole gzip file" in str(complaint(read_rdf, put("f.nt.gz", whole[: len(whole) // 2]), options))


NAMES = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=6),
    st.text('ab%<>"\\ \t\n\r\ufeff{}|^`/#?éÄ\u2028:@', min_size=1, max_size=6).map("http://x/".__add__),
    st.sampled_from(
        ["urn:newcomer:a", "urn:newcomer:%41", "URN:newcomer:a", "_:b", '"x"@en', "http://", "urn:", "%41"]
    ),
)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=5))
@settings(max_examples=400)
def test_every_name_survives_the_round_trip(tmp_path: Path, triples: list[Row]) -> None:
    path = tmp_path / "f.nt"
    write_ntriples(path, *(pa.array(column, pa.string()).dictionary_encode() for column in zip(*triples, strict=True)))
    assert read(path) == triples == read(path, on_bad_line="skip")


def test_without_pyoxigraph_the_extra_is_named(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    error = complaint(read, put("f.nt", LINE))
    assert isinstance(error, MissingExtraError) and "pip install 'newcomer[rdf]'" in str(error)


ANONYMOUS = """@prefix x: <http://x/> .
x:a x:r [ x:s x:b ; x:q [ x:z _:lab ] ] .
_:lab x:r ( x:a ) .
_:anon2 x:p _:abcdefabcdefabcdefabcdefabcdefab .
"""


@pytest.mark.parametrize("name", ["f.ttl", "f.trig"])
def test_nodes_without_a_label_are_named_as_they_turn_up(put: Put, name: str) -> None:
    path = put(name, ANONYMOUS)
    found = read(path)
    assert found == read(path)
    blank = {term for row in found for term in row if term.startswith("_:")}
    assert blank == {"_:anon1", "_:anon3", "_:anon4", "_:lab", "_:anon2", "_:abcdefabcdefabcdefabcdefabcdefab"}
    assert ("http://x/a", "http://x/r", "_:anon1") in found and ("_:anon1", "http://x/s", "http://x/b") in found


def test_the_same_turtle_gives_the_same_bytes(put: Put, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_dataset(read_dataset(put("f.ttl", ANONYMOUS)).dataset, tmp_path / name)
    assert (tmp_path / "one" / "train.tsv").read_bytes() == (tmp_path / "two" / "train.tsv").read_bytes()


def test_nodes_without_a_label_in_two_files_are_not_the_same(put: Put) -> None:
    text = "<http://x/a> <http://x/r> [ <http://x/s> <http://x/b> ] ."
    put("set/test.ttl", text)
    dataset = read_dataset(put("set/train.ttl", text).parent).dataset
    assert [name for name in dataset.entities if name.startswith("_:")] == ["_:anon1", "_:anon2"]


def test_labels_are_found_across_the_pieces_a_file_is_read_in(put: Put) -> None:
    label = "_:abcdefabcdefabcdefabcdefabcdefab"
    text = f"<http://x/a> <http://x/r> {label} .\n"
    padding = "#" * ((1 << 20) - len(text) + 10) + "\n"
    assert read(put("f.ttl", padding + text))[0][2] == label


@pytest.mark.parametrize("suffix", [".nt", ".nq"])
def test_labels_in_lines_are_kept_however_they_look(put: Put, suffix: str) -> None:
    label = "_:abcdefabcdefabcdefabcdefabcdefab"
    assert read(put(f"f{suffix}", f"<http://x/a> <http://x/r> {label} .\n"))[0][2] == label


@pytest.mark.parametrize("name", ["a b", "é", "_:b1", "https://example.org/x", "urn:newcomer:x", "urn:isbn:1", "%41"])
def test_a_name_comes_back_from_its_iri(name):
    assert name_of(iri_of(name)) == name
