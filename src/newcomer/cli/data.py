"""``newcomer data list | check | get | convert``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.commands import CommandGroup
from newcomer.cli.common import (
    check_free,
    is_file_name,
    load,
    print_json,
    print_table,
    refuse_input,
    working,
)
from newcomer.cli.left_out import tell_unread
from newcomer.cli.options import takes_read_options
from newcomer.errors import NewcomerError, OptionError

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.catalogue import Entry

UNSOUND = 1

app = CommandGroup("Named data sets: list, check, get, convert.")


@app.command("list")
def list_sets(as_json: options.Json = False) -> None:
    """List the data sets known by name and where they are."""
    from newcomer.data.catalogue import entries

    rows = [_row(entry) for entry in entries()]
    if as_json:
        print_json(rows)
        return
    keys = ("name", "train", "aux", "valid", "test", "newcomers", "here", "title")
    cells = [[{**row, "here": "yes" if row["here"] else None}[key] for key in keys] for row in rows]
    print_table("Data sets", (*keys[:-1], "what it is"), cells)


def _row(entry: "Entry") -> dict[str, object]:
    from newcomer.data.catalogue import ROLES, find_folder

    try:
        here = bool(find_folder(entry.name))
    except NewcomerError:
        here = False
    return {
        "name": entry.name,
        **{role: entry.counts.get(role) for role in ROLES},
        "newcomers": None if entry.newcomers is None else entry.newcomers["test"],
        "here": here,
        **{name: getattr(entry, name) for name in ("downloadable", "title", "licence")},
    }


@app.command()
@takes_read_options
def check(data: options.DataArgument, as_json: options.Json = False, *, reading: "ReadOptions") -> None:
    """Check counts, hashes, overlaps, newcomers and leaks; exit code 1 where something contradicts itself."""
    from newcomer.data import locate
    from newcomer.data.check import check_dataset, entry_of

    path = locate(data)
    loaded = load(data, reading)
    with working("checking"):
        result = check_dataset(loaded, path, entry_of(loaded, path))
    if as_json:
        print_json({"name": loaded.dataset.name, **result.to_json()})
    else:
        findings = [(f.level, f.topic, f.text) for f in result.findings]
        print_table(f"{loaded.dataset.name} ({loaded.layout} layout)", ("", "about", "finding"), findings)
        typer.echo("sound" if result.sound else "NOT sound: see the problems above")
    if not result.sound:
        raise typer.Exit(UNSOUND)


@app.command()
def get(
    name: Annotated[str, Argument(metavar="NAME", help="A name that `newcomer data list` shows.")],
    out: Annotated[Path | None, Option(help="Where to put it [default: the user's cache].")] = None,
    force: options.Force = False,
) -> None:
    """Download a published data set and check every byte of it."""
    from newcomer.data.catalogue import cache_folder, entry
    from newcomer.data.download import fetch_dataset, progress_bars

    wanted = entry(name)
    with progress_bars() as progress:
        folder = fetch_dataset(wanted, out or cache_folder() / name, progress=progress, force=force)
    typer.echo(f"{name} is in {folder}")


@app.command()
@takes_read_options
def convert(
    source: Annotated[str, Argument(metavar="IN", help="A file, a folder, or a name.")],
    out: Annotated[
        Path, Argument(metavar="OUT", help="A file (.tsv, .csv, .parquet, .nt, also .gz, .zst) or a folder.")
    ],
    file_format: Annotated[
        str, Option("--format", help="For a folder: tsv, tsv.gz, tsv.zst, parquet, nt or nt.gz.")
    ] = "tsv",
    force: options.Force = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Read any layout or format and write ours, TSV, Parquet or N-Triples."""
    from newcomer.data import locate, write_dataset

    path = locate(source)
    refuse_input(out, path)
    if path.is_dir() and is_file_name(out):
        raise OptionError(f"{path} is a folder of several parts; give a folder to write, not the file {out.name}")
    if path.is_file() and (out.suffix or is_file_name(out)):
        _convert_file(path, out, reading, force)
        return
    loaded = load(source, reading)
    made_by = {"verb": "convert", "source": loaded.dataset.name, "layout": loaded.layout}
    with working("writing"):
        write_dataset(loaded.dataset, out, file_format, made_by, force)
    literals = sum(part.literals for part in loaded.parts.values())
    typer.echo(f"written to {out}{_left_out(literals, 'literals')}")


def _left_out(count: int, what: str) -> str:
    return f", {count:,} {what} left out" if count else ""


def _convert_file(path: Path, out: Path, reading: "ReadOptions", force: bool) -> None:
    from newcomer.data.tables import distinct, encode
    from newcomer.data.triples import check_written_format, read_triples, write_triples
    from newcomer.graph import Vocabulary

    check_written_format(out)
    check_free(out, force)
    with working(f"converting {path.name}"):
        named = read_triples(path, reading)
        entities, relations, (triples,) = encode([named])
        kept = distinct(triples)
        write_triples(out, Vocabulary(entities), Vocabulary(relations), kept)
    left_out = _left_out(len(named) - len(kept), "repeated rows") + _left_out(named.report.literals, "literals")
    typer.echo(f"written {len(kept):,} triples to {out}{left_out}")
    tell_unread(path.name, named.report)
