"""What several commands share: reading data sets, checking places to write to, tables and progress."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from newcomer.errors import OutputError, on_one_line

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from newcomer.data import LoadedDataset, ReadOptions
    from newcomer.data.dataset import PartReport
    from newcomer.data.tables import ReadReport


def load(data: str, options: "ReadOptions") -> "LoadedDataset":
    """Find and read a data set, with a spinner; lines that were left out are reported."""
    from newcomer.data import locate, read_dataset

    path = locate(data)
    with working(f"reading {path.name}"):
        loaded = read_dataset(path, options)
    for role, part in loaded.parts.items():
        report_skipped(role, part)
    return loaded


def report_skipped(place: str, report: "PartReport | ReadReport") -> None:
    """Print on standard error which lines were left out."""
    if report.skipped:
        typer.echo(on_one_line(f"newcomer: {place}: skipped {report.skipped:,} lines, the first:"), err=True)
        for line in report.bad_lines:
            typer.echo(on_one_line(f"  {line}"), err=True)


def refuse_input(out: Path, source: Path) -> None:
    """An output must not be the input, nor a folder that holds it: replacing the one would delete the other."""
    from newcomer.files import looking_at

    with looking_at(out):
        place, read = (Path(os.path.realpath(path)) for path in (out, source))  # a ring of links is no error here
    if place == read or place in read.parents:
        raise OutputError(f"{out}: is or holds what is read ({source}); choose another place")


def check_free(out: Path, force: bool) -> None:
    """Refuse an output that exists, before the work is done, unless it may be replaced."""
    from newcomer.files import exists_already

    try:
        exists, is_folder = out.exists(), out.is_dir()
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror}); choose another place") from None
    if is_folder:
        raise OutputError(f"{out}: is a folder; give the name of a file")
    if exists and not force:
        raise exists_already(out)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes long; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)):
        yield


@contextmanager
def bars(*columns: "ProgressColumn") -> "Iterator[Progress]":
    """A description, a bar and these columns on standard error, gone at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    described = (TextColumn("{task.description}"), BarColumn(), *columns)
    with Progress(*described, console=Console(stderr=True), transient=True) as shown:
        yield shown


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import TimeElapsedColumn

    with bars(TimeElapsedColumn()) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a plain table: text to the left, figures to the right, a dash where a figure is not known."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    built = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        known = [row[place] for row in rows if row[place] is not None]
        figures = all(isinstance(value, int | float) for value in known) and bool(known)
        built.add_column(Text(name), justify="right" if figures else "left", overflow="fold")
    for row in rows:
        built.add_row(*(Text(_cell(value)) for value in row))
    width = None if sys.stdout.isatty() else 120  # wide enough for names where the output is a file
    Console(highlight=False, markup=False, emoji=False, width=width).print(built)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_json(value: Any) -> None:
    """JSON as a program reads it: one document, names as they are."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_line(value: Any) -> None:
    """One JSON object on a line of its own."""
    typer.echo(json.dumps(value, ensure_ascii=False))  # each is flushed


def is_file_name(path: Path) -> bool:
    """Whether a place to write to looks like a file of triples (or standard output) rather than a folder."""
    return path.name == "-" or path.suffix.lower() in {".tsv", ".csv", ".txt", ".parquet", ".pq", ".nt", ".gz", ".zst"}
