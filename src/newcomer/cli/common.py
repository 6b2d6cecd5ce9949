"""What several commands share: reading data sets, checking places to write to, tables and progress."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from newcomer.cli import left_out
from newcomer.errors import OutputError

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from newcomer.data import LoadedDataset, ReadOptions


def load(data: str, options: "ReadOptions") -> "LoadedDataset":
    """Find and read a data set, with a spinner; what was left out is told."""
    from newcomer.data import locate, read_dataset

    path = locate(data)
    with working(f"reading {path.name}"):
        loaded = read_dataset(path, options)
    for role, part in loaded.parts.items():
        left_out.tell_unread(role, part)
    return loaded


def cut_commands(data: str, name: str) -> list[str]:
    """How to measure on a graph without a test part: cut newcomers out, train on the rest, ask about them."""
    cut = f"{name}-cut"
    commands = ["split", data, cut], ["train", cut, "--out", f"{cut}-model"], ["evaluate", f"{cut}-model"]
    return [shlex.join(["newcomer", *words]) for words in commands]


def refuse_input(out: Path, source: Path) -> None:
    """An output must not be the input, nor a folder that holds it: replacing the one would delete the other."""
    from newcomer.files import looking_at

    with looking_at(out):
        place, read = (Path(os.path.realpath(path)) for path in (out, source))  # a ring of links is no error here
    if place == read or place in read.parents:
        raise OutputError(f"{out}: is or holds what is read ({source}); choose another place")


def check_free(out: Path, force: bool) -> None:
    """Refuse an output that exists, before the work is done, unless it may be replaced."""
    from newcomer.files import exists_already, writing

    with writing(out):
        exists, is_folder = out.exists(), out.is_dir()
    if is_folder:
        raise OutputError(f"{out}: is a folder; give the name of a file")
    check_folder_of(out)
    if exists and not force:
        raise exists_already(out)


def check_folder_of(out: Path) -> None:
    """Refuse a file in a folder that does not exist: a name misspelt would lead to a folder that nobody looks into."""
    from newcomer.files import looking_at

    with looking_at(out):
        if not out.parent.is_dir():
            raise OutputError(f"{out}: there is no folder {out.parent}; make it first, or choose another place")


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
    if isinstance(value, dict) and left_out.listed():
        value = {**value, "left_out": left_out.listed()}
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_lines(values: Iterable[dict[str, Any]]) -> None:
    """JSON objects, each on a line of its own as soon as it is there; the last says what was left out, if any was."""
    for value in left_out.with_left_out(values):
        typer.echo(json.dumps(value, ensure_ascii=False))  # each is flushed


def is_file_name(path: Path) -> bool:
    """Whether a place to write to looks like a file of triples (or standard output) rather than a folder."""
    return path.name == "-" or path.suffix.lower() in {".tsv", ".csv", ".txt", ".parquet", ".pq", ".nt", ".gz", ".zst"}
