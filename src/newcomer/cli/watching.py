"""What a training prints while it runs: what it is going to do, how far it is, and its figures.

On a terminal there is a bar for each stage with the time that is left; elsewhere a line when a stage begins, and one
every few seconds while it goes on. All of it on standard error.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from newcomer.cli.common import bars

if TYPE_CHECKING:
    from rich.progress import Progress

    from newcomer.training.checkpoint import Figures, RunState
    from newcomer.training.pipeline import Listener
    from newcomer.training.schedule import Schedule

SMALL_WORTH = {"model.dim", "training.propagation_steps", "training.calibration_questions"}
EVERY = 10.0  # seconds without a line, at most
LOOK = 1.0  # seconds between two looks at whether a line is due


def watching() -> "AbstractContextManager[Listener]":
    """Bars on a terminal, lines elsewhere; both on standard error."""
    return _bars() if sys.stderr.isatty() else _lines()


class Pulse:
    """What is going on, and a line about it where nothing was printed for a while."""

    def __init__(self, every: float) -> None:
        self.every, self.what = every, ""
        self.done = self.total = 0
        self.began = self.passed = self.printed = time.monotonic()

    def stage(self, what: str) -> None:
        """Something else begins."""
        self.what, self.done, self.total = what, 0, 0
        self.began = self.passed = time.monotonic()
        self.say(what)

    def step(self, done: int, total: int) -> None:
        """So much of the stage is done; less than before: another pass of it begins."""
        if done < self.done:
            self.passed = time.monotonic()
        self.done, self.total = done, total

    def say(self, line: str) -> None:
        """Print a line."""
        self.printed = time.monotonic()
        typer.echo(line, err=True)

    def beat(self) -> None:
        """Say how far it is, if that was not said for a while."""
        now = time.monotonic()
        if self.what and now - self.printed >= self.every:
            self.say(f"{self.what}: {self._how_far(now)}")

    def _how_far(self, now: float) -> str:
        gone = in_time(now - self.began)
        if not 0 < self.done < self.total:
            return gone
        left = (now - self.passed) * (self.total - self.done) / self.done
        return f"{self.done:,} of {self.total:,} after {gone}, about {in_time(left)} left"


@contextmanager
def _lines() -> "Iterator[Listener]":
    from newcomer.training.pipeline import Listener

    pulse, stop = Pulse(EVERY), threading.Event()

    class Lines(Listener):
        def schedule(self, schedule: "Schedule", mined: bool) -> None:
            print_schedule(schedule, mined)

        def first(self, place: Path) -> None:
            pulse.say(_first_in_words(place))

        def stage(self, what: str) -> None:
            pulse.stage(what)

        def step(self, done: int, total: int) -> None:
            pulse.step(done, total)

        def epoch(self, record: "Figures", state: "RunState", last: int) -> None:
            pulse.step(record["epoch"], last)
            if "mrr" in record or record["epoch"] == last or record["epoch"] % 10 == 0:
                pulse.say(f"{record['phase']}, epoch {record['epoch']} of {last}: {figures_of(record, state)}")

    def beat() -> None:
        with suppress(OSError, ValueError):  # nobody reads any more: the training itself is told by its next line
            while not stop.wait(LOOK):
                pulse.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield Lines()
    finally:
        stop.set()
        thread.join()


@contextmanager
def _bars() -> "Iterator[Listener]":
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from newcomer.training.pipeline import Listener

    class Bars(Listener):
        def __init__(self, shown: "Progress") -> None:
            self.bars, self.task = shown, shown.add_task("starting", total=None, figures="")

        def schedule(self, schedule: "Schedule", mined: bool) -> None:
            print_schedule(schedule, mined)

        def first(self, place: Path) -> None:
            self.bars.console.print(_first_in_words(place))

        def stage(self, what: str) -> None:
            self.bars.remove_task(self.task)
            self.task = self.bars.add_task(what, total=None, figures="")

        def step(self, done: int, total: int) -> None:
            self.bars.update(self.task, completed=done, total=total)

        def epoch(self, record: "Figures", state: "RunState", last: int) -> None:
            shown = figures_of(record, state)
            self.bars.update(self.task, completed=record["epoch"], total=last, figures=shown)

    columns = (MofNCompleteColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn(), TimeRemainingColumn())
    with bars(*columns) as shown:
        yield Bars(shown)


def figures_of(record: "Figures", state: "RunState") -> str:
    """The figures of an epoch, in words."""
    text = f"loss {record['loss']:.4f}"
    chosen_by = "auc" if "auc" in state.best else "mrr"  # where the data set says what is false
    if chosen_by in record:
        text += f", validation {chosen_by.upper()} {100 * record[chosen_by]:.1f}"
    if state.best and record["phase"] == "search":
        text += f", best {100 * state.best[chosen_by]:.1f} after epoch {state.best_epoch}"
    return text


def print_schedule(schedule: "Schedule", mined: bool) -> None:
    """What a training costs, stage by stage, and what was made smaller; with ``mined`` rules only what is left."""
    limits = schedule.limits
    if mined:
        lines = [f"the rest takes about {in_time(schedule.seconds)}"]
    else:
        given = "no time limit" if limits.seconds is None else f"time limit {in_time(limits.seconds)}"
        room = "no limit" if limits.memory is None else f"limit {limits.memory / 1e9:.1f} GB"
        lines = [
            "this machine takes about",
            *(f"  {in_time(one.seconds):>7}  {one.name}" for one in schedule.stages),
            f"  {in_time(schedule.seconds):>7}  in all ({given}); {schedule.memory / 1e9:.1f} GB of memory ({room})",
        ]
    for name, (asked, found) in schedule.smaller.items():
        lines.append(f"  to fit: {name} = {_shown(found)} instead of {_shown(asked)}{worth_of(name)}")
    if limits.seconds is not None and schedule.seconds > limits.seconds:
        lines.append("  the smallest sizes take longer than that, too: the time limit will not be kept")
    if limits.memory is not None and schedule.memory > limits.memory:
        lines.append("  the smallest sizes need more memory than that, too")
    for line in lines:
        typer.echo(line, err=True)


def worth_of(name: str) -> str:
    """What is usually lost where a setting is made smaller; the guide on training says how that was measured."""
    if name == "model.propagation":
        return " (usually worth 1 point of MRR, in sparse graphs 5 to 8)"
    return " (usually worth less than half a point of MRR)" if name in SMALL_WORTH else ""


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)


def _first_in_words(place: Path) -> str:
    return f"a first model is in {place}: rules, counts and short vectors; it is replaced when the rest is done"


def in_time(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"
