"""Answers and vectors as they are printed or written: tables, lines of JSON, or files that grow by groups of rows."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import typer

from newcomer.cli.common import check_free, print_line, print_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from newcomer.predictor import Answer, Explanation, Suggestion

Row = dict[str, Any]
WriteVectors = Callable[[Sequence[str], "npt.NDArray[np.float32]"], None]
Found = Sequence[tuple[Row, "Answer | Suggestion"]]  # answers, each with what it is about
WriteAnswers = Callable[[str, Found], None]

ANSWER_ENDINGS, VECTOR_ENDINGS = (".parquet", ".tsv", ".jsonl"), (".parquet", ".tsv", ".npy")
FIGURES = {"score": float, "probability": float, "reason": str}
ANSWERS = {"entity": str, "relation": str, "asked": str, "rank": int, "answer": str, **FIGURES}
SUGGESTIONS = {"entity": str, "rank": int, "head": str, "relation": str, "tail": str, **FIGURES}
ROWS = 4096  # a group: what is held before it is written


def in_words(fact: Sequence[str]) -> str:
    """A fact as logic writes it."""
    head, relation, tail = fact
    return f"{relation}({head}, {tail})"


def check_out(out: Path, endings: Sequence[str], what: str, force: bool) -> None:
    """Whether a file can be written there in a format we have; asked before anything is computed."""
    from newcomer.errors import OptionError

    if out.suffix.lower() not in endings:
        known = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise OptionError(f"{out} ends in {out.suffix!r}; {what} are written as {known}")
    for written in (out, names_beside(out)) if out.suffix.lower() == ".npy" else (out,):
        check_free(written, force)


def check_answer_file(out: Path | None, as_json: bool, force: bool, what: str) -> None:
    """The same for a file of answers or verdicts, which are printed where no file is named."""
    from newcomer.errors import OptionError

    if out is not None:
        if as_json:
            raise OptionError(f"--json prints, --out {out} writes; choose one, or let --out end in .jsonl")
        check_out(out, ANSWER_ENDINGS, what, force)


@contextmanager
def answer_writer(out: Path | None, as_json: bool, force: bool, columns: dict[str, type]) -> Iterator[WriteAnswers]:
    """Where answers go: a call with the query in words, and for each answer what it is about and itself."""
    check_answer_file(out, as_json, force, "answers")
    if out is None:
        yield _print_lines if as_json else _print_answers
        return
    with row_file(out, columns) as file:
        as_lines = out.suffix.lower() == ".jsonl"

        def write(_: str, found: Found) -> None:
            for about, answer in found:
                file.add(line(about, answer) if as_lines else _flat(about, answer))

        yield write
    typer.echo(f"written {file.count:,} answers to {out}")


def _print_lines(_: str, found: Found) -> None:
    for about, answer in found:
        print_line(line(about, answer))


def _print_answers(query: str, found: Found) -> None:
    from newcomer.predictor import Answer

    rows = [
        (a.entity if isinstance(a, Answer) else in_words(a.fact), f"{a.probability:.2f}", str(a.because))
        for _, a in found
    ]
    what = "answer" if all(isinstance(answer, Answer) for _, answer in found) else "fact"
    print_table(query, (what, "probability", "reason"), rows)


def line(about: Row, answer: "Answer | Suggestion") -> Row:
    """One answer as a JSON object, with every rule that infers it."""
    found = {"answer": _answer(about, answer)} if "asked" in about else {"fact": list(cast("Suggestion", answer).fact)}
    figures = {"score": answer.score, "probability": answer.probability, "calibrated": answer.calibrated}
    return {**about, **found, **figures, "because": reasons(answer.because)}


def _answer(about: Row, answer: "Answer | Suggestion") -> str:
    """The entity that completes the query."""
    from newcomer.predictor import Answer

    if isinstance(answer, Answer):
        return answer.entity
    return answer.fact[0 if about["asked"] == "head" else 2]


def reasons(because: "Explanation") -> list[Row]:
    """The rules that infer an answer, with their premises."""
    return [
        {
            "rule": g.rule,
            "confidence": g.confidence,
            "support": g.support,
            "counted": g.counted,
            "premises": [list(p) for p in g.premises],
        }
        for g in because.groundings
    ]


def _flat(about: Row, answer: "Answer | Suggestion") -> Row:
    """One answer as a row of plain columns, with its best reason in words."""
    if "asked" in about:
        found = {"answer": _answer(about, answer)}
    else:
        found = dict(zip(("head", "relation", "tail"), cast("Suggestion", answer).fact, strict=True))
    return {**about, **found, "score": answer.score, "probability": answer.probability, "reason": str(answer.because)}


class RowFile:
    """Rows on their way into a file, a group at a time."""

    def __init__(self, write: Callable[[list[Row]], None]) -> None:
        self.count = 0
        self._write, self._waiting = write, list[Row]()

    def add(self, row: Row) -> None:
        """Take a row; all have the same columns."""
        self.count += 1
        self._waiting.append(row)
        if len(self._waiting) >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            self._write(self._waiting)
            self._waiting = []


@contextmanager
def row_file(out: Path, columns: dict[str, type]) -> Iterator[RowFile]:
    """A file of rows as .parquet, .tsv (with a header) or .jsonl; it appears when the block ends well."""
    from newcomer.files import fresh_file

    writers = {".parquet": _parquet_rows, ".tsv": _tsv_rows, ".jsonl": _json_rows}
    with fresh_file(out) as partial, ExitStack() as stack:
        file = RowFile(writers[out.suffix.lower()](partial, columns, stack))
        yield file
        file.flush()


def _parquet_rows(partial: Path, columns: dict[str, type], stack: ExitStack) -> Callable[[list[Row]], None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {str: pa.string(), int: pa.int32(), float: pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    writer = stack.enter_context(pq.ParquetWriter(stack.enter_context(partial.open("wb")), schema))
    return lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _tsv_rows(partial: Path, columns: dict[str, type], stack: ExitStack) -> Callable[[list[Row]], None]:
    writer = csv.DictWriter(_text(partial, stack), list(columns), delimiter="\t", lineterminator="\n")
    writer.writeheader()
    return writer.writerows


def _json_rows(partial: Path, _: dict[str, type], stack: ExitStack) -> Callable[[list[Row]], None]:
    file = _text(partial, stack)
    return lambda rows: file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _text(path: Path, stack: ExitStack) -> TextIO:
    return stack.enter_context(path.open("w", encoding="utf-8", newline=""))


class VectorFile:
    """Vectors on their way into a file, a group at a time."""

    def __init__(self, out: Path, stack: ExitStack) -> None:
        from newcomer.files import fresh_file

        self.count, self.dim = 0, 0
        self._partial, self._stack, self._ending = stack.enter_context(fresh_file(out)), stack, out.suffix.lower()
        if self._ending == ".npy":
            self._names = _text(stack.enter_context(fresh_file(names_beside(out))), stack)
        self._waiting: list[tuple[str, npt.NDArray[np.float32]]] = []

    def add(self, name: str, vector: "npt.NDArray[np.float32]") -> None:
        """Take the vector of an entity."""
        if self.dim == 0:
            self.dim = len(vector)
            writers = {".npy": self._npy, ".parquet": self._parquet, ".tsv": self._tsv}
            self._write = writers[self._ending]()
        self.count += 1
        self._waiting.append((name, vector))
        if len(self._waiting) >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        import numpy as np

        if self._waiting:
            names, vectors = zip(*self._waiting, strict=True)
            self._write(names, np.stack(vectors).astype("<f4"))
            self._waiting = []

    def _npy(self) -> WriteVectors:
        file = self._stack.enter_context(self._partial.open("wb"))
        self._write_header(file)

        def write(names: Sequence[str], vectors: "npt.NDArray[np.float32]") -> None:
            file.write(vectors.tobytes())
            self._names.writelines(name + "\n" for name in names)
            file.seek(0)
            self._write_header(file)  # of the same length: it has room for any number of rows
            file.seek(0, SEEK_END)

        return write

    def _write_header(self, file: BinaryIO) -> None:
        import numpy as np

        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.count, self.dim)}
        np.lib.format.write_array_header_1_0(file, shape)

    def _parquet(self) -> WriteVectors:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([("entity", pa.string()), ("vector", pa.list_(pa.float32(), self.dim))])
        file = self._stack.enter_context(self._partial.open("wb"))
        writer = self._stack.enter_context(pq.ParquetWriter(file, schema))

        def write(names: Sequence[str], vectors: "npt.NDArray[np.float32]") -> None:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field(1).type)
            writer.write_table(pa.table([pa.array(names), column], schema=schema))

        return write

    def _tsv(self) -> WriteVectors:
        writer = csv.writer(_text(self._partial, self._stack), delimiter="\t", lineterminator="\n")

        def write(names: Sequence[str], vectors: "npt.NDArray[np.float32]") -> None:
            writer.writerows([name, *(f"{x:.9g}" for x in row)] for name, row in zip(names, vectors, strict=True))

        return write


def names_beside(out: Path) -> Path:
    """Where the names of an .npy file's rows stand, one a line."""
    return out.with_suffix(".names.txt")


@contextmanager
def vector_file(out: Path) -> Iterator[VectorFile]:
    """A file of vectors as .parquet, .tsv or .npy; it appears when the block ends well."""
    with ExitStack() as stack:
        file = VectorFile(out, stack)
        yield file
        file.flush()
