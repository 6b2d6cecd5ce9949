"""What several verbs share: options for reading, places, tables, progress."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from newcomer.data import LoadedDataset, ReadOptions
    from newcomer.data.dataset import PartReport
    from newcomer.data.tables import ReadReport

DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder or file, or a name that `newcomer data list` shows.")
]
DelimiterOption = Annotated[
    str | None, typer.Option("--delimiter", help="Character between columns (or: tab, comma, semicolon, pipe, space).")
]
HeaderOption = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first line is a header [default: find out].")
]
QuoteOption = Annotated[str, typer.Option("--quote", help="Character that encloses names, or `none`.")]
ColumnsOption = Annotated[
    str | None,
    typer.Option("--columns", help="Columns by position, as in head,relation,tail,label; `_` for one to ignore."),
]
BadLineOption = Annotated[
    str, typer.Option("--on-bad-line", help="What to do with a line that cannot be read: `error` or `skip`.")
]
LiteralsOption = Annotated[
    str, typer.Option("--literals", help="RDF literals: `skip` (counted) or `keep` as entities.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]


def takes_read_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options for reading files; they reach it as one argument, ``reading``."""

    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in offered.parameters}
        verb(**given, reading=_read_options(**chosen))

    own, offered = signature(verb), signature(_read_options)
    parameters = [p for name, p in own.parameters.items() if name != "reading"]
    run.__signature__ = own.replace(parameters=[*parameters, *offered.parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = verb.__name__, verb.__doc__
    return run


def _read_options(
    *,
    delimiter: DelimiterOption = None,
    header: HeaderOption = None,
    quote: QuoteOption = '"',
    columns: ColumnsOption = None,
    on_bad_line: BadLineOption = "error",
    literals: LiteralsOption = "skip",
) -> "ReadOptions":
    from newcomer.data.options import ReadOptions, parse_delimiter

    return ReadOptions(
        delimiter=None if delimiter is None else parse_delimiter(delimiter),
        header=header,
        quote=None if quote.lower() == "none" else quote,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        on_bad_line=on_bad_line,
        literals=literals,
    )


def load(data: str, options: "ReadOptions") -> "LoadedDataset":
    """Find and read a data set, with a sign of life, and say what was left out."""
    from newcomer.data import locate, read_dataset

    path = locate(data)
    with working(f"reading {path.name}"):
        loaded = read_dataset(path, options)
    for role, part in loaded.parts.items():
        report_skipped(role, part)
    return loaded


def report_skipped(place: str, report: "PartReport | ReadReport") -> None:
    """Say on standard error which lines were left out."""
    if report.skipped:
        typer.echo(f"newcomer: {place}: skipped {report.skipped:,} lines, the first:", err=True)
        for line in report.bad_lines:
            typer.echo(f"  {line}", err=True)


def refuse_input(out: Path, source: Path) -> None:
    """An output must not be the input, nor a folder that holds it: replacing the one would delete the other."""
    from newcomer.errors import OutputError
    from newcomer.files import looking_at

    with looking_at(out):
        place, read = (Path(os.path.realpath(path)) for path in (out, source))  # a ring of links is no error here
    if place == read or place in read.parents:
        raise OutputError(f"{out}: is or holds what is read ({source}); choose another place")


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes long; silent where nobody watches."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)):
        yield


def console() -> "Console":
    """Where tables go; wide enough for names when the output is a file. Names are printed as they are, brackets too."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 120
    return Console(highlight=False, markup=False, emoji=False, width=width)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "Table":
    """A plain table: text to the left, figures to the right, a dash where a figure is not known."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    built = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        known = [row[place] for row in rows if row[place] is not None]
        figures = all(isinstance(value, int | float) for value in known) and bool(known)
        built.add_column(Text(name), justify="right" if figures else "left", overflow="fold")
    for row in rows:
        built.add_row(*(Text(_cell(value)) for value in row))
    return built


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_json(value: Any) -> None:
    """JSON as a program reads it: one document, names as they are."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def is_file_name(path: Path) -> bool:
    """Whether a place to write to looks like a file of triples (or standard output) rather than a folder."""
    return path.name == "-" or path.suffix.lower() in {".tsv", ".csv", ".txt", ".parquet", ".pq", ".nt", ".gz", ".zst"}
