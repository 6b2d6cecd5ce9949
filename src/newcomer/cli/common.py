"""What several verbs share: options for reading, places, tables, progress."""

import json
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
        loaded = read_dataset(path, options, name=data if path.name == data else None)
    report_skipped(loaded)
    return loaded


def report_skipped(loaded: "LoadedDataset") -> None:
    """Say on standard error which lines were left out."""
    for role, part in loaded.parts.items():
        if part.skipped:
            typer.echo(f"newcomer: {role}: skipped {part.skipped:,} lines, the first:", err=True)
            for line in part.bad_lines:
                typer.echo(f"  {line}", err=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes long; silent where nobody watches."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def console() -> "Console":
    """Where tables go; wide enough for names when the output is a file."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=120)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "Table":
    """A plain table: text to the left, figures to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    built = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        figures = all(isinstance(row[place], int | float) for row in rows) and bool(rows)
        built.add_column(name, justify="right" if figures else "left", overflow="fold")
    for row in rows:
        built.add_row(*(Text(_cell(value)) for value in row))
    return built


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_json(value: Any) -> None:
    """JSON as a program reads it: one document, names as they are."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def is_file_name(path: Path) -> bool:
    """Whether a place to write to looks like a file of triples rather than a folder."""
    return path.suffix.lower() in {".tsv", ".csv", ".txt", ".parquet", ".pq", ".nt", ".gz", ".zst"}
