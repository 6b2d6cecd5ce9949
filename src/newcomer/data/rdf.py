"""N-Triples, N-Quads, Turtle and TriG through pyoxigraph (extra ``rdf``).

An IRI's name is the IRI, a blank node's is ``_:label``; those without a label (``[ ... ]`` and lists in Turtle) are
called ``_:anon1``, ``_:anon2`` and so on as they turn up. Literals are values, not entities: they are left out and
counted unless asked for. Names that are no IRIs are written as ``urn:newcomer:`` plus the percent-encoded name and read
back as they were, so that every graph survives the round trip.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from newcomer.data.options import ReadOptions
from newcomer.data.tables import LabelledRow, NamedTriples, NumberedRow, ReadReport, TripleCollector
from newcomer.errors import InputError, OutputError, optional, shown
from newcomer.files import create_bytes, open_bytes, plain_suffix

FORMATS = {".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG"}
LINE_FORMATS = (".nt", ".nq")
PREFIX = "urn:newcomer:"
_WEB_IRI = re.compile(r"(https?|urn|tag|ftp):\S+", re.IGNORECASE)
_PLACE = re.compile(r"^Parser error at [^:]*: ")
# What the parser calls a node without a label (a random number), and labels in a file that look like that or like ours.
_RANDOM = re.compile(r"_:([a-f][0-9a-f]{19,31})(?![\w.-])")
_LABELS = re.compile(rb"_:([a-f][0-9a-f]{19,31}|anon[0-9]+)")
_LONGEST_LABEL = 64
WRITTEN_AT_ONCE = 1 << 16


def _pyoxigraph() -> Any:
    return optional("pyoxigraph", "reading and writing RDF", "rdf")


def read_rdf(path: Path, options: ReadOptions, anonymous: int = 0) -> NamedTriples:
    """Read an RDF file; graph names of quads are ignored, nodes without a label are counted on from ``anonymous``."""
    in_lines = plain_suffix(path) in LINE_FORMATS
    naming = _Naming(frozenset() if in_lines else _labels(path), anonymous, renames=not in_lines)
    try:
        return _read(path, options, naming, line_by_line=in_lines and options.skips)
    except SyntaxError as error:
        if in_lines:  # slower, but it knows which line is to blame
            return _read(path, options, naming, line_by_line=True)
        raise InputError(path, _problem(error), error.lineno, "mend it") from None


def _labels(path: Path) -> frozenset[str]:
    """Labels in a file that could be mistaken for a name the parser made up, or that we would give."""
    found: set[bytes] = set()
    carry = b""
    with open_bytes(path) as content:
        while chunk := content.read(1 << 20):
            text = carry + bytes(chunk)
            found.update(_LABELS.findall(text))
            carry = text[-_LONGEST_LABEL:]
    return frozenset(label.decode("ascii") for label in found)


class _Naming:
    """Names of terms: the same for the same file, whatever the parser made up for nodes without a label."""

    def __init__(self, labels: frozenset[str], anonymous: int, renames: bool) -> None:
        self._labels, self._renames = labels, renames
        self._given: dict[str, str] = {}
        self._numbers = (n for n in count(anonymous + 1) if f"anon{n}" not in labels)
        self._before, self._last = anonymous, anonymous

    @property
    def anonymous(self) -> int:
        """How many numbers are used up."""
        return self._last - self._before

    def name(self, library: Any, term: Any) -> str:
        if isinstance(term, library.NamedNode):
            return name_of(term.value)
        text = str(term)
        return _RANDOM.sub(self._renamed, text) if self._renames else text

    def _renamed(self, found: re.Match[str]) -> str:
        label = found[1]
        if label in self._labels:
            return found[0]
        if label not in self._given:
            self._last = next(self._numbers)
            self._given[label] = f"_:anon{self._last}"
        return self._given[label]


def _read(path: Path, options: ReadOptions, naming: _Naming, line_by_line: bool) -> NamedTriples:
    collector = TripleCollector(path)
    parser = _Parser(path, options, naming, collector.report)
    with open_bytes(path) as content:
        stream = _WithoutMark(content)
        by_line = (statement for _, statement in parser.by_line(stream))
        for statement in by_line if line_by_line else parser.whole(stream):
            row = None if statement is None else parser.row(statement)
            if row is not None:
                collector.add_row(*row)
    collector.report.anonymous = naming.anonymous
    return collector.finish()


class _WithoutMark:
    """A stream less the byte order mark that some editors put in front."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._start = stream, stream.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)

    def read(self, size: int = -1) -> bytes:
        start, self._start = self._start, b""
        return start or bytes(self._stream.read(size))


def _problem(error: SyntaxError) -> str:
    """The parser's words on one line, without the place, which stands before them already."""
    return _PLACE.sub("", " ".join(str(error.msg).split()))[:160]


def rdf_rows(stream: Any, path: Path, options: ReadOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """The triples of N-Triples or N-Quads one by one, each with its line; blank lines as rows without any."""
    parser = _Parser(path, options, _Naming(frozenset(), 0, renames=False), report)
    for number, statement in parser.by_line(_WithoutMark(stream)):
        row = None if statement is None else parser.row(statement, number)
        if statement is None or row is not None:
            yield number, row


class _Parser:
    """The library's parser, and what is made of the statements it finds."""

    def __init__(self, path: Path, options: ReadOptions, naming: _Naming, report: ReadReport) -> None:
        self._library = _pyoxigraph()
        self._format = getattr(self._library.RdfFormat, FORMATS[plain_suffix(path)])
        self._path, self._options, self._naming, self._report = path, options, naming, report

    def whole(self, stream: Any) -> Iterator[Any]:
        """The statements of a stream."""
        yield from self._library.parse(stream, format=self._format, base_iri="file:///")

    def by_line(self, stream: Any) -> Iterator[tuple[int, Any]]:
        """Line by line, so that a bad one can be named or left out; None for a blank one."""
        for number, line in enumerate(_text_lines(stream), start=1):
            if not line.strip():
                yield number, None
                continue
            try:
                yield from [(number, statement) for statement in self._library.parse(line, format=self._format)]
            except SyntaxError as error:
                problem = f"{_problem(error)} in {shown(line.decode('utf-8', errors='backslashreplace'))}"
                hint = "mend it, or drop such lines with --on-bad-line skip"
                self._leave_out(InputError(self._path, problem, number, hint))

    def row(self, statement: Any, line: int | None = None) -> LabelledRow | None:
        """The names of a statement; None where it is left out."""
        if isinstance(statement.object, self._library.Literal) and self._options.literals == "skip":
            self._report.literals += 1
            return None
        terms = (statement.subject, statement.predicate, statement.object)
        head, relation, tail = (self._naming.name(self._library, term) for term in terms)
        if head and relation and tail and "\0" not in head + relation + tail:
            return head, relation, tail, 1
        problem = f"an empty name or a NUL byte in {shown(str(statement))}"
        self._leave_out(InputError(self._path, problem, line, "mend the name"))
        return None

    def _leave_out(self, error: InputError) -> None:
        if not self._options.skips:
            raise error from None
        self._report.skip(error)


def _text_lines(stream: Any) -> Iterator[bytes]:
    carry = b""
    while chunk := stream.read(1 << 20):
        *lines, carry = (carry + chunk).split(b"\n")
        for line in lines:
            yield from _rows(line)
    if carry:
        yield from _rows(carry)


def _rows(line: bytes) -> list[bytes]:
    """A line without its carriage return, or the lines that carriage returns alone make of it."""
    return line.removesuffix(b"\r").split(b"\r")


def _plain_name(iri: str) -> str:
    try:
        return unquote(iri.removeprefix(PREFIX), errors="strict")
    except UnicodeDecodeError:  # not one that was written here
        return iri


def write_ntriples(path: Path, heads: pa.Array, relations: pa.Array, tails: pa.Array) -> None:
    """Write dictionary-encoded columns as N-Triples; each name is turned into an IRI once."""
    library = _pyoxigraph()
    columns = [_iris(library, column) for column in (heads, relations, tails)]
    with create_bytes(path) as stream:
        for start in range(0, len(heads), WRITTEN_AT_ONCE):
            part = zip(*(column[start : start + WRITTEN_AT_ONCE].to_pylist() for column in columns), strict=True)
            stream.write("".join(f"<{h}> <{r}> <{t}> .\n" for h, r, t in part).encode())


def _iris(library: Any, column: pa.DictionaryArray) -> pa.Array:
    iris = pa.array([_iri(library, name) for name in column.dictionary.to_pylist()], type=pa.string())
    return iris.take(column.indices)


def iri_of(name: str) -> str:
    """The IRI that a name is written as."""
    return _iri(_pyoxigraph(), name)


def name_of(iri: str) -> str:
    """The name that an IRI is read as: the one that it was written for."""
    return _plain_name(iri) if iri.startswith(PREFIX) else iri


def _iri(library: Any, name: str) -> str:
    if _WEB_IRI.fullmatch(name) and not name.startswith(PREFIX):
        try:
            return str(library.NamedNode(name).value)
        except ValueError:
            pass
    try:
        return PREFIX + quote(name, safe="")
    except UnicodeEncodeError:
        raise OutputError(f"the name {shown(name)} cannot be written as UTF-8; rename it") from None
