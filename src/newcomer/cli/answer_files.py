"""Answers and vectors as they are printed or written: tables, lines of JSON, or files that grow by groups of rows."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from newcomer.cli.common import check_free, print_lines, print_table
from newcomer.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from newcomer.predictor import Answer, Suggestion

    Vectors = npt.NDArray[np.float32]

Row = dict[str, Any]
WriteVectors = Callable[[Sequence[str], "Vectors"], None]
Found = Sequence[tuple[Row, "Answer | Suggestion"]]  # answers, each with what it is about

ANSWER_ENDINGS, VECTOR_ENDINGS = (".parquet", ".tsv", ".jsonl"), (".parquet", ".tsv", ".npy")
FIGURES = {"score": float, "probability": float, "if_any": float, "reason": str}
ANSWERS = {"entity": str, "relation": str, "asked": str, "rank": int, "answer": str, **FIGURES}
SUGGESTIONS = {"entity": str, "rank": int, "head": str, "relation": str, "tail": str, **FIGURES}
SIMILAR = {"entity": str, "rank": int, "similar": str, "cosine": float}
ROWS = 4096  # a group: what is held before it is written


def in_words(fact: Sequence[str]) -> str:
    """A fact as logic writes it."""
    head, relation, tail = fact
    return f"{relation}({head}, {tail})"


def check_out(out: Path, endings: Sequence[str], what: str, force: bool) -> None:
    """Whether a file can be written there in a format we have; asked before anything is computed."""
    if out.suffix.lower() not in endings:
        known = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise OptionError(f"{out} ends in {out.suffix!r}; {what} are written as {known}")
    for written in (out, names_beside(out)) if out.suffix.lower() == ".npy" else (out,):
        check_free(written, force)


def check_answer_file(out: Path | None, as_json: bool, force: bool, what: str) -> None:
    """The same for a file of answers or verdicts, which are printed where no file is named."""
    if out is not None:
        if as_json:
            raise OptionError(f"--json prints, --out {out} writes; choose one, or let --out end in .jsonl")
        check_out(out, ANSWER_ENDINGS, what, force)


def give_answers(
    answers: Iterator[tuple[str, Found]], out: Path | None, as_json: bool, columns: dict[str, type]
) -> None:
    """Print or write answers as they come: for each query in words its answers, each with what it is about."""
    if out is not None:
        row = line if out.suffix.lower() == ".jsonl" else _flat
        count = write_rows(out, columns, (row(about, answer) for _, found in answers for about, answer in found))
        typer.echo(f"written {count:,} answers to {out}")
        return
    if as_json:
        print_lines(line(about, answer) for _, found in answers for about, answer in found)
        return
    for query, found in answers:
        _print_answers(query, found) if found else typer.echo(f"{query}: none")


def _print_answers(query: str, found: Found) -> None:
    from newcomer.predictor import Answer

    rows = [
        (
            a.entity if isinstance(a, Answer) else in_words(a.fact),
            f"{a.probability:.2f}",
            f"{a.if_any:.2f}",
            str(a.because),
        )
        for _, a in found
    ]
    what = "answer" if all(isinstance(answer, Answer) for _, answer in found) else "fact"
    print_table(query, (what, "probability", "if any", "reason"), rows)


def fact_of(about: Row, answer: "Answer | Suggestion") -> tuple[str, str, str]:
    """The fact that an answer states."""
    from newcomer.predictor import Answer

    if not isinstance(answer, Answer):
        return answer.fact
    ends = (answer.entity, about["entity"]) if about["asked"] == "head" else (about["entity"], answer.entity)
    return ends[0], about["relation"], ends[1]


def _stated(about: Row, answer: "Answer | Suggestion") -> Row:
    """The entity that completes the query, or where there is none the fact."""
    fact = fact_of(about, answer)
    return {"answer": fact[0 if about["asked"] == "head" else 2]} if "asked" in about else {"fact": fact}


def line(about: Row, answer: "Answer | Suggestion") -> Row:
    """One answer as a JSON object, with every rule that infers it."""
    figures = {name: value for name, value in answer.to_dict().items() if name not in ("entity", "fact")}
    return {**about, **_stated(about, answer), **figures}


def _flat(about: Row, answer: "Answer | Suggestion") -> Row:
    """One answer as a row of plain columns, with its best reason in words."""
    found = _stated(about, answer)
    if "fact" in found:
        found = dict(zip(("head", "relation", "tail"), found["fact"], strict=True))
    figures = {name: getattr(answer, name) for name in ("score", "probability", "if_any")}
    return {**about, **found, **figures, "reason": str(answer.because)}


def write_rows(out: Path, columns: dict[str, type], rows: Iterator[Row]) -> int:
    """Write rows as .parquet, .tsv (with a header) or .jsonl, and count them; the file appears when all is written."""
    from newcomer.files import fresh_file

    writers, count = {".parquet": _parquet_rows, ".tsv": _tsv_rows, ".jsonl": _json_rows}, 0
    with fresh_file(out) as partial, ExitStack() as stack:
        write = writers[out.suffix.lower()](partial, columns, stack)
        while group := list(islice(rows, ROWS)):
            write(group)
            count += len(group)
    return count


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


def names_beside(out: Path) -> Path:
    """Where the names of an .npy file's rows stand, one a line."""
    return out.with_suffix(".names.txt")


def write_vectors(out: Path, vectors: Iterator[tuple[str, "Vectors"]], usual: int) -> tuple[int, int]:
    """Write the vectors of entities as .parquet, .tsv or .npy; gives how many they are, and of how many numbers.

    Where there are none, the file says that they would be of ``usual`` numbers.
    """
    import numpy as np

    first = list(islice(vectors, 1))
    vectors, count, dim = chain(first, vectors), 0, len(first[0][1]) if first else usual
    with ExitStack() as stack:
        write = {".npy": _npy, ".parquet": _parquet, ".tsv": _tsv}[out.suffix.lower()](out, dim, stack)
        while group := list(islice(vectors, ROWS)):
            names, rows = zip(*group, strict=True)
            write(names, np.stack(rows).astype("<f4"))
            count += len(group)
    return count, dim


def _npy(out: Path, dim: int, stack: ExitStack) -> WriteVectors:
    import numpy as np

    from newcomer.files import fresh_file

    listed = _text(stack.enter_context(fresh_file(names_beside(out))), stack)
    file = stack.enter_context(stack.enter_context(fresh_file(out)).open("wb"))
    count = 0

    def write_header() -> None:  # of the same length for any number of rows: it has room
        file.seek(0)
        shape = {"descr": "<f4", "fortran_order": False, "shape": (count, dim)}
        np.lib.format.write_array_header_1_0(file, shape)

    def write(names: Sequence[str], vectors: "Vectors") -> None:
        nonlocal count
        count += len(names)
        file.write(vectors.tobytes())
        listed.writelines(name + "\n" for name in names)

    write_header()
    stack.callback(write_header)  # again when the number of rows is known
    return write


def _parquet(out: Path, dim: int, stack: ExitStack) -> WriteVectors:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from newcomer.files import fresh_file

    schema = pa.schema([("entity", pa.string()), ("vector", pa.list_(pa.float32(), dim))])
    file = stack.enter_context(stack.enter_context(fresh_file(out)).open("wb"))
    writer = stack.enter_context(pq.ParquetWriter(file, schema))

    def write(names: Sequence[str], vectors: "Vectors") -> None:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field(1).type)
        writer.write_table(pa.table([pa.array(names), column], schema=schema))

    return write


def _tsv(out: Path, _: int, stack: ExitStack) -> WriteVectors:
    from newcomer.files import fresh_file

    file = _text(stack.enter_context(fresh_file(out)), stack)
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    return lambda names, vectors: writer.writerows(
        [name, *(f"{x:.9g}" for x in row)] for name, row in zip(names, vectors, strict=True)
    )
