"""TSV, CSV and their cousins: what is read, what is refused, and that the fast way and the slow way agree."""

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import Row, complaint, rows
from newcomer.data import delimited
from newcomer.data.delimited import read_delimited
from newcomer.data.options import ReadOptions
from newcomer.errors import InputError, NewcomerError

Put = Callable[[str, str | bytes], Path]
ABC = ("a", "r", "b")
SKIP = ReadOptions(on_bad_line="skip")


def read(path: Path, **options: object) -> list[Row]:
    return rows(read_delimited(path, ReadOptions(**options)))  # type: ignore[arg-type]


# What is read


DELIMITERS = ("\t", ",", ";", "|", " ", ":", "#", "x", "\x01", "\x1f", "'", "¦", "→")


@pytest.mark.parametrize(("delimiter", "quote"), [(d, q) for d in DELIMITERS for q in ('"', "'", "«", None) if d != q])
def test_any_delimiter_and_quote(put: Put, delimiter: str, quote: str | None) -> None:
    text = delimiter.join(ABC) + "\n"
    expected: list[Row] = [ABC]
    if quote is not None:
        text += delimiter.join(f"{quote}{delimiter}{quote * 2}{name}{quote}" for name in ABC) + "\n"
        expected.append(tuple(f"{delimiter}{quote}{name}" for name in ABC))
    assert read(put("f.txt", text), delimiter=delimiter, quote=quote) == expected


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|", " "])
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".txt", ""])
def test_the_usual_delimiters_are_found_out(put: Put, delimiter: str, suffix: str) -> None:
    assert read(put(f"f{suffix}", delimiter.join(ABC) + "\n")) == [ABC]


def test_a_csv_may_hold_tabs_and_a_tsv_commas(put: Put) -> None:
    assert read(put("f.csv", "a\tb,r,c\td\n")) == [("a\tb", "r", "c\td")]
    assert read(put("f.tsv", "a,b\tr\tc,d\n")) == [("a,b", "r", "c,d")]


def test_a_header_is_known_by_its_titles(put: Put) -> None:
    text = "id,object,subject,predicate\n1,b,a,r\n"
    assert read(put("f.csv", text)) == [ABC]
    assert read(put("f.csv", text), header=False, columns=("_", "tail", "head", "relation")) == [
        ("subject", "predicate", "object"),
        ABC,
    ]


def test_an_unknown_header_is_dropped_when_announced(put: Put) -> None:
    path = put("f.tsv", "\n\nx\ty\tz\na\tr\tb\n")
    assert read(path, header=True) == [ABC]
    assert read(path) == [("x", "y", "z"), ABC]


def test_columns_may_be_named_and_left_out(put: Put) -> None:
    path = put("f.tsv", "b\t0.5\ta\tr\t-1\nd\t0.7\tc\ts\t1\n")
    named = ("tail", "_", "head", "relation", "label")
    assert read(path, columns=named) == [("a", "r", "b", "0"), ("c", "s", "d", "1")]


def test_a_fourth_column_holds_labels(put: Put) -> None:
    path = put("f.tsv", "a\tr\tb\t1\na\tr\tc\t-1\na\tr\td\t0\na\tr\te\t+1 \n")
    assert [row[-1] for row in read(path)] == ["1", "0", "0", "1"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_blank_lines_and_a_mark_do_not_matter(put: Put, end: str, last: bool, mark: str) -> None:
    text = mark + end.join(["", "ä\tr\tb", "", "  ", "c\tr\t日本"]) + (end * 2 if last else "")
    assert read(put("f.tsv", text)) == [("ä", "r", "b"), ("c", "r", "日本")]


@pytest.mark.parametrize("last", ["", "\n"])
def test_a_carriage_return_inside_a_line_is_part_of_a_name(put: Put, last: str) -> None:
    assert read(put("f.tsv", f"a\rx\tr\tb\nc\tr\td\ry{last}")) == [("a\rx", "r", "b"), ("c", "r", "d\ry")]


def test_blanks_are_part_of_a_name(put: Put) -> None:
    assert read(put("f.tsv", " a\tr \t b \n")) == [(" a", "r ", " b ")]
    assert read(put("f.tsv", " \t \t  \n"), delimiter="\t") == complaint_free([(" ", " ", "  ")], put)


def complaint_free(expected: list[Row], put: Put) -> list[Row]:
    """The same rows behind another one must read the same: what a block holds besides does not matter."""
    assert read(put("g.tsv", "a\tr\tb\n" + "".join("\t".join(row) + "\n" for row in expected)))[1:] == expected
    return expected


def test_many_blank_lines_before_the_first(put: Put) -> None:
    assert read(put("f.tsv", "\n" * 3000 + "a\tr\tb\n")) == [ABC]
    assert complaint(read, put("f.tsv", "\n" * 3000 + "a\tb\n")).line == 3001  # type: ignore[attr-defined]


def test_quotes_enclose_tabs_newlines_and_quotes(put: Put) -> None:
    path = put("f.tsv", '"a\tb"\tr\t"say ""hi"""\n"two\nlines"\tr\t"three\r\n\nlines"\r\nx\tr\ty\n')
    assert read(path) == [("a\tb", "r", 'say "hi"'), ("two\nlines", "r", "three\r\n\nlines"), ("x", "r", "y")]


def test_a_name_over_two_lines_may_come_first(put: Put) -> None:
    assert read(put("f.tsv", '"two\nlines"\tr\tb\nx\tr\ty\n')) == [("two\nlines", "r", "b"), ("x", "r", "y")]
    assert read(put("f.csv", '"two\nlines",r,"b\n"\n')) == [("two\nlines", "r", "b\n")]


def test_quotes_inside_a_name_are_plain_characters(put: Put) -> None:
    lines = ['"Weird Al" Yankovic\tplays\taccordion', 'Guns "N" Roses\tplays\t12" single', "x\tr\t5' 11\""]
    assert read(put("f.tsv", "\n".join(lines))) == [tuple(line.split("\t")) for line in lines]


def test_a_quote_that_never_closes_is_a_plain_character(put: Put) -> None:
    lines = ["a\tr\tb", '"open\tr\tb', *(f"h{i}\tr\tt{i}" for i in range(1200)), 'y\tr\tz"']
    assert read(put("f.tsv", "\n".join(lines))) == [tuple(line.split("\t")) for line in lines]


def test_a_quote_that_closes_lines_later_in_the_wrong_column_is_plain(put: Put) -> None:
    lines = ['"a\tr\tb', 'c\tr\td"', "x\tr\ty"]
    assert read(put("f.tsv", "\n".join(lines))) == [tuple(line.split("\t")) for line in lines]


def test_quoting_can_be_switched_off(put: Put) -> None:
    assert read(put("f.tsv", '"a"\tr\t"b\n'), quote=None) == [('"a"', "r", '"b')]


def test_repeated_rows_and_self_loops_are_read_as_they_stand(put: Put) -> None:
    assert read(put("f.tsv", "a\tr\ta\n" * 3)) == [("a", "r", "a")] * 3


@given(
    st.lists(st.tuples(*[st.text('ab"\t\n\r ,;é\ufeff', min_size=1, max_size=5)] * 3), min_size=1, max_size=6),
    st.sampled_from(["\t", ",", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(4, 40),
)
@settings(max_examples=300)
def test_what_the_csv_module_writes_is_read_back(
    put: Put, table: list[Row], delimiter: str, end: str, block: int
) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(table)
    path = put("f.txt", text.getvalue())
    with reading(block=block):
        assert read(path, delimiter=delimiter, header=False) == table


# What is refused


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"a\tr\tb\nc\tr\n", 2, "2 columns in 'c\\tr' where 3 are expected"),
        (b"a\tr\tb\n\nc\tr\td\te\n", 3, "4 columns in 'c\\tr\\td\\te' where 3 are expected"),
        (b"one\n", 1, "1 column in 'one'"),
        (b"a\tr\tb\tnine\n", 1, "4 columns"),
        (b"a\tr\tb\t1\na\tr\tb\t2\n", 2, "the label '2' is not 1, -1 or 0"),
        (b"a\tr\tb\n\tr\tb\n", 2, "the head is empty in '\\tr\\tb'"),
        (b"a\tr\tb\na\t\tb\n", 2, "the relation is empty"),
        (b"a\tr\tb\na\tr\t\n", 2, "the tail is empty"),
        (b'a\tr\tb\na\tr\t""\n', 2, "the tail is empty"),
        (b"a\tr\tb\n\t\t\n", 2, "the head is empty"),
        (b"\xef\xbb\xbfa\tr\tb\nc\tr\t\xff\xfe\n", 2, "the bytes b'\\xff\\xfe' are not UTF-8"),
        (b"a\tr\tb\nc\tr\td\0\n", 2, "the tail 'd\\x00' holds a NUL byte"),
        ("a\tr\tb\n".encode("utf-16"), 1, "UTF-16"),
        ("a\tr\tb\n".encode("utf-16-be"), 1, "NUL byte"),
        ("a\tr\tb\n".encode("utf-16-le"), 1, "NUL byte"),
        (b'"q"\tr\tb\n"x\ny"\tr\tb\nbad\n', 4, "1 column in 'bad'"),
        (b"a\tr\tb\r\nbad\r\n", 2, "1 column in 'bad'"),
        (b"a\tr\tb\rbad\r", 2, "1 column in 'bad'"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_value(put: Put, content: bytes, line: int, words: str) -> None:
    for block in (4, 1 << 24):
        with reading(block=block):
            error = complaint(read, put("f.tsv", content))
        assert isinstance(error, InputError) and error.line == line and words in str(error)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b" \r\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", gzip.compress(b"", mtime=0)]
)
def test_an_empty_file_is_refused(put: Put, content: bytes) -> None:
    assert "is empty" in str(complaint(read, put("f.tsv", content)))


def test_a_header_and_nothing_else_is_refused(put: Put) -> None:
    assert "holds no triple" in str(complaint(read, put("f.csv", "head,relation,tail\n")))


def test_a_long_value_is_cut_in_the_message(put: Put) -> None:
    assert len(str(complaint(read, put("f.tsv", "a\tr\tb\n" + "x" * 10_000)))) < 500


# Bad lines left out


def test_skipped_lines_are_counted_named_and_cost_no_good_one(put: Put) -> None:
    bad = [b"one", b"\xff\tr\tb", b"a\tr\tb\tc\td", b"\tr\tb", b"a\t\0\tb", b"a\tr"]
    good = [f"h{i}\tr\tt".encode() for i in range(len(bad) + 1)]
    lines = [line for pair in zip(good, bad, strict=False) for line in pair] + good[-1:]
    named = read_delimited(put("f.tsv", b"\n".join(lines)), SKIP)
    assert [row[0] for row in rows(named)] == [f"h{i}" for i in range(len(good))]
    assert named.report.skipped == len(bad) and named.report.rows == len(good)
    assert len(named.report.bad_lines) == 5  # the first few sentences
    assert [f"line {n}:" in text for n, text in zip((2, 4, 6, 8, 10), named.report.bad_lines, strict=True)] == [
        True
    ] * 5


@pytest.mark.parametrize("first", [b"# remark", b"\xff\xfd", b"a\tr\tb\tnine", b"one", b'"open', b"\tr\tb"])
def test_a_bad_first_line_can_be_skipped_too(put: Put, first: bytes) -> None:
    named = read_delimited(put("f.tsv", first + b"\nhead\trelation\ttail\na\tr\tb\n"), SKIP)
    assert named.report.skipped == 1 and "line 1:" in named.report.bad_lines[0]
    assert rows(named)[-1] == ABC


def test_nothing_but_bad_lines_is_an_error_even_so(put: Put) -> None:
    assert isinstance(complaint(read_delimited, put("f.tsv", "a\nb\n"), SKIP), InputError)
    text = str(complaint(read_delimited, put("f.tsv", "\tr\tb\na\tr\t\n"), SKIP))
    assert "holds no triple (2 lines were skipped)" in text


# The fast way and the slow way


@contextmanager
def reading(block: int, line_by_line: bool = False) -> Iterator[None]:
    """Read in blocks of so many bytes, on request without Arrow's parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK_BYTES", block)
        if line_by_line:
            patch.setattr(delimited._Reader, "_read_clean", lambda *_: False)
        yield


def outcome(path: Path, options: ReadOptions, block: int, line_by_line: bool) -> tuple[object, ...]:
    with reading(block, line_by_line):
        try:
            named = read_delimited(path, options)
        except NewcomerError as error:
            return type(error), str(error)
    return rows(named), named.report


NAMES = st.sampled_from(
    ["a", "b", "cd", "é", "日", " ", "a b", "1", "-1", "0", "", '"', '"x"', "\ufeff", "\0", "h", "r", "t"]
)
CLEAN = st.sampled_from(["a", "NA", "null", "cd", "é", "日", " ", "a b", "1", "\ufeffx"])
ROWS = st.one_of(
    st.tuples(CLEAN, CLEAN, CLEAN).map("\t".join),
    st.tuples(CLEAN, CLEAN, CLEAN, st.sampled_from(["1", "-1", "0", " 1", "2"])).map("\t".join),
    st.lists(NAMES, max_size=5).map("\t".join),
)
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r"])
FILES = st.lists(st.tuples(ROWS, ENDS), max_size=12).map(lambda lines: "".join(a + b for a, b in lines).encode())
SOUP = st.lists(
    st.sampled_from([b"a", b"b", b"\t", b"\t", b"\n", b"\r\n", b'"', b" ", b",", b"\xff", b"\xc3", b"\xa9"])
)


@given(
    st.one_of(FILES, SOUP.map(b"".join)),
    st.integers(4, 40),
    st.sampled_from(["error", "skip"]),
    st.sampled_from([None, True, False]),
)
@example(b"a\tr\tb\n\t\t\n", 6, "error", None)
@example(b"\n\nhead\trelation\ttail\na\tr\tb\n", 4, "error", None)
@example(b"a\tr\tb\n\xef\xbb\xbfc\tr\td\n", 6, "error", None)
@settings(max_examples=800)
def test_the_fast_way_and_the_line_parser_agree_on_any_block(
    put: Put, content: bytes, block: int, on_bad_line: str, header: bool | None
) -> None:
    path, options = put("f.tsv", content), ReadOptions(on_bad_line=on_bad_line, header=header)
    expected = outcome(path, options, 1 << 24, line_by_line=True)
    assert outcome(path, options, 1 << 24, line_by_line=False) == expected
    assert outcome(path, options, block, line_by_line=False) == expected
    assert outcome(path, options, block, line_by_line=True) == expected


def test_clean_files_do_take_the_fast_way(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited._Reader, "parse", None)
    assert read(put("f.tsv", "head\trelation\ttail\na\tr\tb\r\n\nc\tr\tb\n")) == [ABC, ("c", "r", "b")]
