"""``newcomer reproduce``: the paper's tables made again, cell by cell, and the page of results."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newcomer.cli.common import print_table
from newcomer.cli.options import ChangesOption, DeviceOption, ThreadsOption, at_least
from newcomer.cli.reports import figure

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
        typer.Argument(
            metavar="WHAT",
            help="statistics, classification, link-prediction, ablation, decoders, unseen-share or other-graphs; "
            "`report` writes the page of results anew and runs nothing.",
        ),
    ],
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", help="inductive, refreshed or transductive, for all [default: as planned]."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", callback=at_least(1), help="Seeds of each trained model [default: as planned]."),
    ] = None,
    device: DeviceOption = "auto",
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root", metavar="FOLDER", help="Where the published data sets are [default: NEWCOMER_DATA]."
        ),
    ] = None,
    results: Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where results go.")] = RESULTS,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help=f"The page [default: docs/{PAGE}, or {PAGE} in other --results]."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TEXT", help="Only cells with this in their name; may be repeated."),
    ] = None,
    changes: ChangesOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and which are done; run nothing.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Run what a table of the paper needs, and write it down; finished cells are skipped, a killed run goes on."""
    from newcomer.reproduction.plans import chosen_cells, load_plan

    place = page if page is not None else _page_of(results)
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


def _page_of(results: Path) -> Path:
    return RESULTS.parent / PAGE if results == RESULTS else results / PAGE


def _write_page(results: Path, page: Path) -> None:
    from newcomer.errors import InputError
    from newcomer.files import looking_at
    from newcomer.reproduction.page import write_page

    with looking_at(results):
        if not results.is_dir():
            hint = "run a table first, or name the folder of the results with --results"
            raise InputError(results, "is not a folder of results", hint=hint)
    write_page(results, page)
    typer.echo(f"the page of results is {page}")


def _workshop(results: Path, data_root: Path | None, device: str, threads: int | None) -> "CellRunner":
    from newcomer.errors import DatasetError
    from newcomer.models.device import choose_device
    from newcomer.reproduction.cells import CellRunner
    from newcomer.reproduction.sources import Sources

    choose_device(device)
    if data_root is not None and not data_root.is_dir():
        raise DatasetError(f"{data_root}: is not a folder; name the one that holds fb15k-subject-10 and the others")
    return CellRunner(results, Sources(data_root), device, threads, notify=_say)


def _say(sentence: str) -> None:
    typer.echo(f"  {sentence}", err=True)


def _print_cells(workshop: "CellRunner", cells: "Sequence[Cell]") -> None:
    rows = []
    for cell in cells:
        standing = workshop.status(cell)
        rows.append((cell.name, standing.state, standing.why))
    print_table(f"{len(cells)} cells", ("cell", "state", "why"), rows)
    counts = ", ".join(
        f"{sum(row[1] == state for row in rows)} {state}" for state in dict.fromkeys(row[1] for row in rows)
    )
    typer.echo(counts)


def _run_all(workshop: "CellRunner", cells: "Sequence[Cell]") -> tuple[dict[str, str], dict[str, str]]:
    """Run what is not done; gives what could not be run and what went wrong, by name, with the reason."""
    from newcomer.cli.train import watching
    from newcomer.errors import NewcomerError
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
    figures = [
        f"{name} {figure(metric, result['metrics'][metric])}"
        for metric, name in SHORT.items()
        if metric in result["metrics"]
    ]
    if result["same_as"]:
        figures.append(f"the same as {result['same_as']}")
    return ", ".join([*figures, f"{result['seconds']:.0f} s"])


def _print_unfinished(left: dict[str, str], failed: dict[str, str], total: int) -> None:
    for words, names in (("not run", left), ("failed", failed)):
        by_reason: dict[str, list[str]] = {}
        for name, why in names.items():
            by_reason.setdefault(why, []).append(name)
        for why, same in by_reason.items():
            typer.echo(f"{words} ({len(same)} of {total}): {why}")
            for name in same:
                typer.echo(f"  {name}")
    if failed:
        raise typer.Exit(FAILED)
