"""``newcomer reproduce``: the paper's tables made again, cell by cell, and the page of results."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.common import check_folder_of, print_table
from newcomer.cli.options import at_least
from newcomer.cli.reports import figure
from newcomer.cli.watching import watching
from newcomer.errors import DatasetError, InputError, NewcomerError

if TYPE_CHECKING:
    from newcomer.reproduction.cells import CellRunner
    from newcomer.reproduction.plans import Cell
    from newcomer.reproduction.stored import Result

RESULTS = Path("docs/results")
PAGE = "RESULTS.md"
REPORT = "report"
SHORT = {"mrr": "MRR", "hits@10": "Hits@10", "accuracy": "accuracy"}
FAILED = 1


def reproduce(
    what: Annotated[
        str,
        Argument(
            metavar="WHAT",
            help="statistics, classification, link-prediction, ablation, decoders, unseen-share, other-graphs "
            "or suggestions; `report` writes the page of results anew and runs nothing.",
        ),
    ],
    protocol: Annotated[
        str | None, Option(help="inductive, refreshed or transductive, for all [default: as planned].")
    ] = None,
    seeds: Annotated[
        int | None, Option(callback=at_least(1), help="Seeds of each trained model [default: as planned].")
    ] = None,
    device: options.Device = "auto",
    data_root: Annotated[
        Path | None, Option(metavar="FOLDER", help="Where the published data sets are [default: NEWCOMER_DATA].")
    ] = None,
    results: Annotated[Path, Option(metavar="FOLDER", help="Where results go.")] = RESULTS,
    page: Annotated[
        Path | None, Option(metavar="FILE", help=f"The page [default: docs/{PAGE}, or {PAGE} in other --results].")
    ] = None,
    only: Annotated[
        list[str] | None, Option(metavar="TEXT", help="Only cells with this in their name; may be repeated.")
    ] = None,
    changes: options.Changes = None,
    dry_run: Annotated[bool, Option("--dry-run", help="List the cells and which are done; run nothing.")] = False,
    threads: options.Threads = None,
) -> None:
    """Run what a table of the paper needs, and write it down; finished cells are skipped, a killed run goes on."""
    from newcomer.reproduction.plans import chosen_cells, load_plan

    if page is not None:
        check_folder_of(page)
    place = page or (RESULTS.parent / PAGE if results == RESULTS else results / PAGE)
    if what == REPORT:
        _write_page(results, place)
        return
    cells = chosen_cells(load_plan(what), protocol, seeds, only or (), changes or ())
    workshop = _workshop(results, data_root, device, threads)
    if dry_run:
        _print_cells(workshop, cells)
        return
    left, failed = _run_all(workshop, cells)
    _write_page(results, place)
    _print_unfinished(left, failed, len(cells))


def _write_page(results: Path, page: Path) -> None:
    from newcomer.files import looking_at
    from newcomer.reproduction.page import write_page

    with looking_at(results):
        if not results.is_dir():
            hint = "run a table first, or name the folder of the results with --results"
            raise InputError(results, "is not a folder of results", hint=hint)
    write_page(results, page)
    typer.echo(f"the page of results is {page}")


def _workshop(results: Path, data_root: Path | None, device: str, threads: int | None) -> "CellRunner":
    from newcomer.files import is_folder
    from newcomer.models.device import choose_device
    from newcomer.reproduction.cells import CellRunner
    from newcomer.reproduction.sources import Sources

    choose_device(device)
    if data_root is not None and not is_folder(data_root):
        raise DatasetError(f"{data_root}: is not a folder; name the one that holds fb15k-subject-10 and the others")
    return CellRunner(
        results, Sources(data_root), device, threads, notify=lambda sentence: typer.echo(f"  {sentence}", err=True)
    )


def _print_cells(workshop: "CellRunner", cells: "Sequence[Cell]") -> None:
    rows = [(cell.name, *astuple(workshop.status(cell))) for cell in cells]
    print_table(f"{len(cells)} cells", ("cell", "state", "why"), rows)
    counts = Counter(state for _, state, _ in rows)
    typer.echo(", ".join(f"{count} {state}" for state, count in counts.items()))


def _run_all(workshop: "CellRunner", cells: "Sequence[Cell]") -> tuple[dict[str, str], dict[str, str]]:
    """Run what is not done; gives what could not be run and what went wrong, by name, with the reason."""
    from newcomer.reproduction.cells import ABSENT, BUSY, CHANGED, DONE

    left: dict[str, str] = {}
    failed: dict[str, str] = {}
    for number, cell in enumerate(cells, 1):
        start = f"{number}/{len(cells)} {cell.name}"
        standing = workshop.status(cell)
        if standing.state == DONE:
            typer.echo(f"{start}: done already")
            continue
        if standing.state in (ABSENT, BUSY):
            left[cell.name] = standing.why
            typer.echo(f"{start}: not run")
            continue
        if standing.state == CHANGED:
            typer.echo(f"{start}: done anew, for {standing.why}")
        try:
            with watching() as listener:
                workshop.listener = listener
                result = workshop.run(cell)
        except NewcomerError as error:
            failed[cell.name] = str(error)
            typer.echo(f"{start}: failed, {error}", err=True)
        else:
            typer.echo(f"{start}: {_in_short(result)}")
    return left, failed


def _in_short(result: "Result") -> str:
    metrics = result["metrics"]
    figures = [f"{name} {figure(metric, metrics[metric])}" for metric, name in SHORT.items() if metric in metrics]
    if result["same_as"]:
        figures.append(f"the same as {result['same_as']}")
    return ", ".join([*figures, f"{result['seconds']:.0f} s"])


def _print_unfinished(left: dict[str, str], failed: dict[str, str], total: int) -> None:
    for words, names in (("not run", left), ("failed", failed)):
        for why in dict.fromkeys(names.values()):
            same = [name for name, reason in names.items() if reason == why]
            typer.echo("\n  ".join([f"{words} ({len(same)} of {total}): {why}", *same]))
    if failed:
        raise typer.Exit(FAILED)
