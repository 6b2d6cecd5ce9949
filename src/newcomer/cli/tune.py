"""``newcomer tune``: a search for settings, a line per trial, and the settings it found."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.common import load, print_json, print_table, refuse_input
from newcomer.cli.options import at_least, takes_read_options
from newcomer.cli.train import RUNS, again_with, settings_of
from newcomer.cli.watching import watching
from newcomer.errors import OptionError

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.training.checkpoint import Figures, RunState
    from newcomer.training.pipeline import Listener
    from newcomer.training.tune import Search, Trial, Watcher

SHOWN = 5


@takes_read_options
def tune(
    data: options.DataArgument,
    out: Annotated[Path | None, Option(help="The folder of the search [default: runs/DATA-tune].")] = None,
    preset: Annotated[str | None, Option(help="Settings that are not searched, by name [default: default].")] = None,
    config: Annotated[Path | None, Option(help="A TOML file of them.")] = None,
    changes: options.Changes = None,
    space: Annotated[str, Option(help="What is searched: paper, wide or a TOML file.")] = "paper",
    trials: Annotated[int, Option(callback=at_least(1), help="Settings to try, those before --resume included.")] = 20,
    time_limit: Annotated[float | None, Option(metavar="SECONDS", help="Begin no trial after so many seconds.")] = None,
    device: options.Device = "auto",
    seed: options.ConfigSeed = None,
    threads: options.Threads = None,
    resume: Annotated[bool, Option("--resume", help="Go on with the search of this place.")] = False,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Search settings on newcomers held out of the observed graph; test is never used."""
    from newcomer.data import locate
    from newcomer.training.search_space import load_space
    from newcomer.training.tune import Budget
    from newcomer.training.tune import tune as search_settings

    if resume and force:
        raise OptionError("--resume goes on with a search and --force starts anew; leave out one of them")
    budget = Budget(trials, time_limit)
    settings, searched = settings_of(preset, config, {"seed": seed}, changes), load_space(space)
    dataset = load(data, reading).dataset
    place = out if out is not None else RUNS / f"{dataset.name}-tune"
    refuse_input(place, locate(data))
    with _search_folder(place), _watching() as watcher:
        found = search_settings(
            dataset,
            settings,
            searched,
            place,
            budget=budget,
            device=device,
            threads=threads,
            resume=resume,
            force=force,
            report=watcher,
        )
    if not found.ranked:
        raise _nothing_found(found)
    summary = summary_of(found, place, budget.trials, budget.seconds)
    print_json(summary) if as_json else _print_summary(found, summary, data)


@contextmanager
def _search_folder(place: Path) -> Iterator[None]:
    """The place of a search: an interruption prints how to go on; an error leaves no empty folder behind."""
    from newcomer.files import looking_at
    from newcomer.training.tune import STUDY

    with looking_at(place):
        made = [folder for folder in (place, *place.parents) if not folder.exists()]
    try:
        yield
    except BaseException as end:
        if isinstance(end, SystemExit | KeyboardInterrupt) and (place / STUDY).exists():
            typer.echo(f"newcomer: the search is kept in {place}; go on with: {again_with('--resume')}", err=True)
        for folder in made:
            with suppress(OSError):  # it holds something, or was never made
                folder.rmdir()
        raise


def _nothing_found(found: "Search") -> Exception:
    if not found.counted:
        return OptionError("the time limit was reached before the first trial; raise --time-limit")
    problem = next((trial.problem for trial in found.trials if trial.problem), "it was given up")
    return OptionError(f"none of {found.counted} trials came to its end; the first: {problem}")


@contextmanager
def _watching() -> "Iterator[Watcher]":
    """A line per trial on standard error, and on a terminal the bars of the training under way."""
    from newcomer.training.pipeline import Listener

    with watching() if sys.stderr.isatty() else nullcontext(Listener()) as bars:
        yield _lines(bars)


def _lines(bars: "Listener") -> "Watcher":
    from newcomer.training.tune import Watcher

    class Lines(Watcher):
        heading = ""

        def begins(self, place: int, goal: int, settings: Mapping[str, Any]) -> None:
            self.heading = f"trial {place}/{goal}: "

        def stage(self, what: str) -> None:
            bars.stage(f"{self.heading}{what}")

        def step(self, done: int, total: int) -> None:
            bars.step(done, total)

        def epoch(self, record: "Figures", state: "RunState", last: int) -> None:
            bars.epoch(record, state, last)

        def ended(self, trial: "Trial", search: "Search") -> None:
            typer.echo(_trial_in_words(trial, search), err=True)

    return Lines()


def _trial_in_words(trial: "Trial", search: "Search") -> str:
    tried = ", ".join(f"{name}={_setting(value)}" for name, value in trial.settings.items())
    result = "" if trial.mrr is None else f", validation MRR {100 * trial.mrr:.1f} after {trial.epochs} epochs"
    best = f"; best {100 * (search.ranked[0].mrr or 0):.1f} (trial {search.ranked[0].number})" if search.ranked else ""
    problem = f" ({trial.problem})" if trial.problem else ""
    return f"trial {trial.number}: {trial.state}{result}{problem}: {tried}{best}"


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ",".join(value) if isinstance(value, list) else str(value)


def summary_of(found: "Search", place: Path, trials: int, time_limit: float | None) -> dict[str, Any]:
    """What was searched, how much of it, and what was found, for people and programs."""
    from newcomer.training.tune import BEST, TRIALS

    ranked = [{"number": one.number, "mrr": one.mrr, "settings": dict(one.settings)} for one in found.ranked[:SHOWN]]
    return {
        "dataset": found.dataset,
        "space": found.space.name,
        "method": found.method,
        "seed": found.config.seed,
        "budget": {"trials": trials, "time_limit": time_limit},
        "trials": {"counted": found.counted, **found.states},
        "seconds": round(sum(one.seconds for one in found.trials), 1),
        "best": ranked,
        "settings": str(place / BEST),
        "table": str(place / TRIALS),
    }


def _print_summary(found: "Search", summary: Mapping[str, Any], data: str) -> None:
    names = found.space.names
    rows = [
        (str(one.number), f"{100 * (one.mrr or 0):.1f}", str(one.epochs), *(_setting(one.settings[n]) for n in names))
        for one in found.ranked[:SHOWN]
    ]
    headings = ("trial", "MRR", "epochs", *(name.rpartition(".")[2] for name in names))
    print_table(f"best of {found.counted:,} trials", headings, rows)
    budget = summary["budget"]
    limit = "" if budget["time_limit"] is None else f" and {budget['time_limit']:g} s"
    typer.echo(f"searched: {found.in_words()}; budget {budget['trials']:,} trials{limit}")
    typer.echo(f"all trials: {summary['table']}")
    typer.echo(f"train with the best: {shlex.join(['newcomer', 'train', data, '--config', summary['settings']])}")
