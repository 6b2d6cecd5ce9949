"""TSV, CSV and their cousins: any one-character delimiter, quotes or none, a header or none.

Clean blocks go through Arrow's parser. A block it does not like, and everything from the first quote on, goes line by
line through `_Reader.parse`, which knows the line number and can say what is wrong, or skip it. Both give the same
triples; a test compares them on random files.
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from newcomer.data.options import DEFAULT_COLUMNS, IGNORED, LABELLED_COLUMNS, ReadOptions, columns_from_header, label_of
from newcomer.data.tables import NAME_TYPE, LabelledRow, Labels, NamedTriples, NumberedRow, ReadReport, TripleCollector
from newcomer.errors import InputError, shown
from newcomer.files import open_bytes, plain_suffix, read_ahead

FIRST_BLOCK_BYTES, BLOCK_BYTES = 1 << 20, 1 << 23  # blocks grow: soon a first one, later few hash tables
LINES_LOOKED_AT = 1000
MAX_LINES_OF_RECORD = 1000  # a quote that is not closed by then was no opening quote
UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

NumberedLine = tuple[int, bytes]


@dataclass(frozen=True)
class _Format:
    """All that must be known of a file to parse its lines."""

    delimiter: str
    quote: str | None
    columns: tuple[str, ...]
    header_line: int  # its number, 0 for none

    @property
    def labelled(self) -> bool:
        return "label" in self.columns


def read_delimited(path: Path, options: ReadOptions) -> NamedTriples:
    """Read a delimited text file of triples."""
    with open_bytes(path) as stream:
        first, blocks, reader = _begun(stream, path, options)
        # The thread that reads ahead must have stopped before the stream under it is closed.
        with closing(read_ahead(blocks)) as rest:
            reader.read(chain(first, rest))
    return reader.collector.finish()


def delimited_rows(stream: Any, path: Path, options: ReadOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """The same triples one by one, each with its line and as soon as that is there; blank lines as rows without any."""
    first, blocks, reader = _begun(stream, path, options)
    reader.collector.report = report
    yield from reader.rows(chain(first, blocks), 1)


def _begun(stream: Any, path: Path, options: ReadOptions) -> tuple[list[bytes], Iterator[bytes], "_Reader"]:
    """As many blocks as it takes to see what the file looks like, those that follow, and the reader of them all."""
    blocks, first = _blocks(stream, path), [b""]
    while not _is_telling(path, b"".join(first), options) and (block := next(blocks, None)) is not None:
        first.append(block)
    return first[1:], blocks, _Reader(path, options, _detect(path, b"".join(first), options))


def _is_telling(path: Path, content: bytes, options: ReadOptions) -> bool:
    """Whether what follows cannot change what `_detect` finds: the first record is whole, or enough lines are there."""
    if content.lstrip().count(b"\n") >= LINES_LOOKED_AT:
        return True
    try:
        lines, number = _first_lines(path, content, options.delimiter or "\t")
        _detect_at(path, lines, number, options)
    except InputError:  # blank so far, or no record: where bad lines are skipped, a later one decides
        if options.skips or not content.strip():
            return False
    first, quote = lines[0].decode("utf-8", errors="replace"), options.quote
    return quote is None or not any(_is_open(first, d, quote) for d in options.delimiter or "\t,;| " if d != quote)


def _blocks(stream: Any, path: Path) -> Iterator[bytes]:
    """The content in blocks of whole lines, without a byte order mark."""
    carry, started, saw_newline, size = b"", False, False, FIRST_BLOCK_BYTES
    while chunk := stream.read(min(size, BLOCK_BYTES)):
        size *= 2
        chunk = chunk if started else _without_bom(chunk, path)
        started = True
        cut = chunk.rfind(b"\n") + 1
        saw_newline |= cut > 0
        if cut:
            yield b"".join((carry, memoryview(chunk)[:cut]))  # one copy, not two
            carry = chunk[cut:]
        else:
            carry += chunk
    if carry:
        # Without a single line feed, carriage returns alone end the lines.
        yield carry if saw_newline else carry.replace(b"\r", b"\n")


def _without_bom(chunk: bytes, path: Path) -> bytes:
    if chunk.startswith(UTF16_BOMS):
        raise InputError(path, "is text in UTF-16", line=1, hint="save it as UTF-8")
    return chunk[len(UTF8_BOM) :] if chunk.startswith(UTF8_BOM) else chunk


def _detect(path: Path, block: bytes, options: ReadOptions) -> _Format:
    """Delimiter, header and columns from the options and the first line that is not blank.

    Where bad lines are to be skipped, the first line that makes sense decides.
    """
    lines, number = _first_lines(path, block, options.delimiter or "\t")
    problem = None
    for start in range(len(lines)):
        try:
            return _detect_at(path, lines[start:], number + start, options)
        except InputError as error:
            problem = problem or error
            if not options.skips:
                break
    raise problem or InputError(path, "is empty")


def _first_lines(path: Path, block: bytes, delimiter: str) -> tuple[list[bytes], int]:
    """The first lines from the first that is not blank on, and its number."""
    blank = len(block) - len(block.lstrip(b" \t\r\n".replace(delimiter.encode(), b"")))
    if blank == len(block):
        raise InputError(path, "is empty", hint="give a file with at least one head, relation and tail")
    start = block.rfind(b"\n", 0, blank) + 1
    lines = block[start:].split(b"\n", LINES_LOOKED_AT)[:LINES_LOOKED_AT]
    return lines, block.count(b"\n", 0, start) + 1


def _detect_at(path: Path, lines: Sequence[bytes], number: int, options: ReadOptions) -> _Format:
    """The format if the record that begins with the first of ``lines`` is typical of the file."""
    delimiter, record = _sniff_delimiter(lines, plain_suffix(path), options)
    fields = _split(record, delimiter, options.quote)
    titled = columns_from_header(fields) if options.header is not False else None
    header = options.header if options.header is not None else titled is not None
    columns = options.columns or titled or _columns_by_count(path, number, record, fields, header)
    return _Format(delimiter, options.quote, columns, number if header else 0)


def _sniff_delimiter(lines: Sequence[bytes], suffix: str, options: ReadOptions) -> tuple[str, str]:
    """The delimiter that cuts the first record into columns, and that record.

    A tab where there is one, unless the file says CSV.
    """
    preferred = ",;|\t" if suffix == ".csv" else "\t,;|"
    candidates = options.delimiter or (preferred + " ").replace(options.quote or "", "")
    wanted = (len(options.columns),) if options.columns else (len(DEFAULT_COLUMNS), len(LABELLED_COLUMNS))
    first = lines[0].decode("utf-8", errors="replace")
    records = {d: _joined(first, lines[1:], d, options.quote, wanted)[0].removesuffix("\r") for d in candidates}
    for delimiter, record in records.items():
        if len(_split(record, delimiter, options.quote)) in wanted:
            return delimiter, record
    chosen = next((d for d in candidates if d in first and d != " "), candidates[0])
    return chosen, records[chosen]


def _joined(
    first: str, following: Iterable[bytes], delimiter: str, quote: str | None, columns: Sequence[int]
) -> tuple[str, int]:
    """A record with the lines it goes on over while a quote is open, and how many those are.

    A quote that is never closed, or closed only where the record has too many columns, was no opening quote.
    """
    if quote is None or quote not in first or not _is_open(first, delimiter, quote):
        return first, 0
    record, mark = first, quote.encode()
    for taken, raw in enumerate(following, start=1):
        try:
            record += "\n" + raw.decode("utf-8")
        except UnicodeDecodeError:
            break
        if mark not in raw:
            continue
        if not _is_open(record, delimiter, quote):
            fits = len(_split(record.removesuffix("\r"), delimiter, quote)) in columns
            return (record, taken) if fits else (first, 0)
        if len(next(csv.reader([record], delimiter=delimiter, quotechar=quote))) > max(columns):
            break
    return first, 0


def _columns_by_count(path: Path, number: int, line: str, fields: Sequence[str], header: bool) -> tuple[str, ...]:
    if len(fields) == len(DEFAULT_COLUMNS):
        return DEFAULT_COLUMNS
    if len(fields) == len(LABELLED_COLUMNS) and (header or label_of(fields[3]) is not None):
        return LABELLED_COLUMNS
    raise InputError(
        path,
        f"{_columns(len(fields))} in {shown(line)} where head, relation, tail (and a label 1, -1 or 0) are expected",
        line=number,
        hint="name the delimiter with --delimiter or the columns with --columns, as in head,relation,tail,_",
    )


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _split(record: str, delimiter: str, quote: str | None) -> list[str]:
    """The fields of a record; quotes count only where they enclose a whole field, else they are plain characters."""
    if quote is not None and quote in record:
        try:
            return next(csv.reader([record], delimiter=delimiter, quotechar=quote, strict=True))
        except (csv.Error, StopIteration):
            pass
    return record.split(delimiter)


def _is_open(record: str, delimiter: str, quote: str) -> bool:
    """Whether a record ends inside a quoted field, so that the next line belongs to it."""
    try:
        next(csv.reader([record], delimiter=delimiter, quotechar=quote, strict=True))
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _parse_block(block: bytes, layout: _Format) -> tuple[list[pa.DictionaryArray], Labels | None]:
    names = [f"{role}{i}" if role == IGNORED else role for i, role in enumerate(layout.columns)]
    kept = LABELLED_COLUMNS if layout.labelled else DEFAULT_COLUMNS
    table = pacsv.read_csv(
        pa.BufferReader(block),
        read_options=pacsv.ReadOptions(column_names=names, block_size=len(block) + 1),
        parse_options=pacsv.ParseOptions(delimiter=layout.delimiter, quote_char=False, double_quote=False),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, NAME_TYPE),
            include_columns=list(kept),
            null_values=[],
            strings_can_be_null=False,
        ),
    )
    columns = [table.column(role).chunk(0) for role in DEFAULT_COLUMNS]
    return columns, _labels_of(table.column("label").chunk(0)) if layout.labelled else None


def _labels_of(column: pa.DictionaryArray) -> Labels:
    values = [label_of(text) for text in column.dictionary.to_pylist()]
    if None in values:
        raise pa.ArrowInvalid("a label that is none")
    labels: Labels = np.array(values, dtype=np.int8)[column.indices.to_numpy()]
    return labels


class _Reader:
    """Reads clean blocks by Arrow and other lines one by one; knows where it is, what is wrong and what to do."""

    def __init__(self, path: Path, options: ReadOptions, layout: _Format) -> None:
        self.path, self.options, self.layout = path, options, layout
        self.collector = TripleCollector(path, layout.labelled)
        self._place = {
            role: layout.columns.index(role) for role in (*DEFAULT_COLUMNS, "label") if role in layout.columns
        }

    def read(self, blocks: Iterator[bytes]) -> None:
        """Collect the triples: by Arrow while blocks are clean, line by line where they are not."""
        line, quote = 1, (self.layout.quote or "").encode()
        for block in blocks:
            if not self.layout.delimiter.isascii() or (quote and quote in block):
                self.parse(chain([block], blocks), line)
                return
            if not self._read_clean(block, line):
                self.parse(iter([block]), line)
            # bytes.count stops at every line end; a comparison of all bytes at once takes a third of its time.
            line += int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))

    def _read_clean(self, block: bytes, line: int) -> bool:
        """Parse a block with Arrow; False where it holds anything that needs a closer look."""
        block = self._without_header(block, line)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
            if b"\r" in block:
                return False
        if (block.startswith(b"\n") and block.count(b"\n") == len(block)) or not block:
            return True
        if b"\0" in block or block.startswith(UTF8_BOM):  # Arrow takes the one and swallows the other
            return False
        try:
            columns, labels = _parse_block(block, self.layout)
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return False
        if any(pc.index(column.dictionary, pa.scalar("")).as_py() >= 0 for column in columns):
            return False
        self.collector.add_columns(columns, labels)
        return True

    def _without_header(self, block: bytes, line: int) -> bytes:
        place = self.layout.header_line - line
        if place < 0:
            return block
        lines = block.split(b"\n", place + 1)
        if place < len(lines):
            lines[place] = b""
        return b"\n".join(lines)

    def parse(self, blocks: Iterator[bytes], line: int) -> None:
        """Collect the triples of these blocks; ``line`` is the number of their first line."""
        for _, row in self.rows(blocks, line):
            if row is not None:
                self.collector.add_row(*row)

    def rows(self, blocks: Iterator[bytes], line: int) -> Iterator[NumberedRow]:
        """The same with their lines, one by one; None for a blank line."""
        fresh = enumerate((raw for block in blocks for raw in block.removesuffix(b"\n").split(b"\n")), line)
        waiting: deque[NumberedLine] = deque()
        while one := waiting.popleft() if waiting else next(fresh, None):
            number, raw = one
            try:
                record = self._record(number, raw, waiting, fresh)
                if number != self.layout.header_line:
                    yield number, self._row(number, record)
            except InputError as error:
                if not self.options.skips:
                    raise
                self.collector.report.skip(error)

    def _record(self, number: int, raw: bytes, waiting: deque[NumberedLine], fresh: Iterator[NumberedLine]) -> str:
        """A line, joined with those that follow while a quote is open; what was looked at in vain waits."""
        ahead: list[NumberedLine] = []

        def following() -> Iterator[bytes]:
            while len(ahead) < MAX_LINES_OF_RECORD and (one := waiting.popleft() if waiting else next(fresh, None)):
                ahead.append(one)
                yield one[1]

        first, wanted = self._decode(raw, number), (len(self.layout.columns),)
        joined, taken = _joined(first, following(), self.layout.delimiter, self.layout.quote, wanted)
        waiting.extendleft(reversed(ahead[taken:]))
        return joined.removesuffix("\r")

    def _decode(self, raw: bytes, number: int) -> str:
        try:
            return raw.decode("utf-8", errors="replace" if number == self.layout.header_line else "strict")
        except UnicodeDecodeError as error:
            bad = raw[error.start : error.start + 4]
            raise self._bad(number, f"the bytes {bad!r} are not UTF-8", "save the file as UTF-8") from None

    def _row(self, number: int, record: str) -> LabelledRow | None:
        if not record.strip() and self.layout.delimiter not in record:
            return None
        fields = _split(record, self.layout.delimiter, self.layout.quote)
        if len(fields) != len(self.layout.columns):
            expected = f"where {len(self.layout.columns)} are expected"
            raise self._bad(number, f"{_columns(len(fields))} in {shown(record)} {expected}", "mend the line")
        head, relation, tail = (self._name(fields, role, number) for role in DEFAULT_COLUMNS)
        return head, relation, tail, self._label(fields, number)

    def _name(self, fields: list[str], role: str, number: int) -> str:
        name = fields[self._place[role]]
        if not name:
            raise self._bad(number, f"the {role} is empty in {shown(self.layout.delimiter.join(fields))}", "name it")
        if "\0" in name:
            raise self._bad(number, f"the {role} {shown(name)} holds a NUL byte", "save the file as UTF-8")
        return name

    def _label(self, fields: list[str], number: int) -> int:
        if not self.layout.labelled:
            return 1
        text = fields[self._place["label"]]
        label = label_of(text)
        if label is None:
            raise self._bad(number, f"the label {shown(text.strip())} is not 1, -1 or 0", "mend it")
        return label

    def _bad(self, number: int, problem: str, hint: str) -> InputError:
        return InputError(self.path, problem, number, f"{hint}, or drop such lines with --on-bad-line skip")
