#!/usr/bin/env python3
"""One run of the daily job: take in what arrived, log what is probably missing of it, train again when it is time.

    daily_job.py FOLDER [--every DAYS] [--min-probability P] [--set NAME=VALUE ...]

FOLDER/arrivals/   what others put there: the graph as the first file by name, then a file of facts a day
FOLDER/facts/      the same, taken in: the job's own copy of each file, as plain TSV
FOLDER/suggestions/  the log: a file a day with what was suggested on it and on no day before
FOLDER/models/     a model is named after the last day it was trained on; the newest one is in use
FOLDER/work/       what is not finished

Whatever exists in the middle three is finished and never changes: each file or folder is made in work/ and then renamed
into its place. So the job may be killed at any moment; the next run does what is missing.
"""

import argparse
import csv
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

BUSY = 75  # the exit code of a run that found another one at work
FACT = slice(2, 5)  # columns of a suggestion: entity, rank, head, relation, tail, ...
STAYS = ("model", "model.training")  # what a killed training leaves in work/, to go on with


def newcomer(*words: str | Path, lock: int) -> None:
    """A command; the job ends with its exit code where it fails. It holds the lock as long as it runs, even alone."""
    code = subprocess.run(["newcomer", *map(str, words)], pass_fds=[lock], stdout=subprocess.DEVNULL).returncode
    if code:
        sys.exit(code if code > 0 else 128 - code)


def refuse(problem: str, code: int = 2) -> NoReturn:
    """End the run with one sentence."""
    print(f"daily_job: {problem}", file=sys.stderr)
    sys.exit(code)


def appear(made: Path, place: Path) -> None:
    """Give something finished its place, at once; it is on the disk before it has its name."""
    for path in [made, *made.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    made.rename(place)


def day_of(path: Path) -> str:
    """A day by the name of its file: 2026-03-01.tsv is 2026-03-01."""
    return path.name.partition(".")[0]


def rows_of(path: Path) -> Iterator[list[str]]:
    """The rows of a TSV file of ours."""
    with path.open(encoding="utf-8", newline="") as lines:
        yield from csv.reader(lines, delimiter="\t")


class Job:
    """The folder of a job, held by the lock."""

    def __init__(self, folder: Path, options: argparse.Namespace, lock: int) -> None:
        self.options, self.lock = options, lock
        places = [folder / name for name in ("arrivals", "facts", "suggestions", "models", "work")]
        self.arrivals, self.facts, self.suggestions, self.models, self.work = places
        for place in places:
            place.mkdir(exist_ok=True)
        for left in self.work.iterdir():
            if left.name not in STAYS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    def run(self) -> None:
        """Do what is missing, day by day."""
        files = [path for path in sorted(self.arrivals.iterdir()) if not path.name.startswith(".")]
        arrived = {day_of(path): path for path in files}
        taken = {day_of(path) for path in self.facts.iterdir()}
        late = [day for day in arrived if day not in taken and day < max(taken, default="")]
        if late or len(arrived) < len(files):
            problem = f"{arrived[late[0]]} comes after a later day" if late else "two files are of one day"
            refuse(f"{self.arrivals}: {problem}; rename it to a day that is still to come")
        for day in sorted(taken | arrived.keys()):
            if not (self.facts / f"{day}.tsv").exists():
                self.take_in(day, arrived[day])
            model = max((path.name for path in self.models.iterdir()), default="")
            if day <= model:
                continue  # the model was trained on it: all is done
            if model and not (self.suggestions / f"{day}.tsv").exists():
                self.suggest(day, model)
            if not model or len(self.between(model, day)) >= self.options.every:
                self.train(day)

    def between(self, model: str, day: str) -> list[Path]:
        """The facts that came after those a model was trained on, up to a day."""
        return [path for path in sorted(self.facts.iterdir()) if model < day_of(path) <= day]

    def take_in(self, day: str, source: Path) -> None:
        """Keep the facts of a day, whatever becomes of the file; an empty file is a day without any."""
        made = self.work / "facts.tsv"
        if source.stat().st_size:
            newcomer("data", "convert", source, made, "--force", lock=self.lock)
        else:
            made.touch()
        count = 0
        for fact in rows_of(made):
            if len(fact) != 3:
                refuse(f"{source}: has a column of labels; give facts that are true, without labels")
            count += 1
        appear(made, self.facts / f"{day}.tsv")
        print(f"{day}: {count} facts taken in", flush=True)

    def suggest(self, day: str, model: str) -> None:
        """Log what is probably missing of all who came since the last training; what is logged already, not again."""
        waiting = [path for path in self.between(model, day) if path.stat().st_size]
        found = self.work / "found.tsv"
        if waiting:
            facts = [word for path in waiting for word in ("--facts", path)]
            skipping = ["--on-unknown-relation", "skip", "--on-seen-fact", "skip"]
            probable = ["--min-probability", self.options.min_probability]
            asked = [self.models / model, *facts, *skipping]
            newcomer("suggest", *asked, *probable, "--out", found, "--force", lock=self.lock)
        told = {tuple(fact) for path in waiting for fact in rows_of(path)}
        for path in self.suggestions.iterdir():
            told |= {tuple(row[FACT]) for row in rows_of(path)}
        made, fresh = self.work / "suggestions.tsv", 0
        with made.open("w", encoding="utf-8", newline="") as file:
            log = csv.writer(file, delimiter="\t", lineterminator="\n")
            header, *rows = rows_of(found) if waiting else [[]]  # an empty file: nobody to ask about
            if header:
                log.writerow(header)
            for row in rows:
                if tuple(row[FACT]) not in told:
                    log.writerow(row)
                    fresh += 1
                told.add(tuple(row[FACT]))
        appear(made, self.suggestions / f"{day}.tsv")
        print(f"{day}: {fresh} suggestions", flush=True)

    def train(self, day: str) -> None:
        """A model of the graph and all that came up to a day."""
        graph, model = self.work / "graph.tsv", self.work / "model"
        with graph.open("wb") as joined:
            for path in self.between("", day):
                with path.open("rb") as facts:
                    shutil.copyfileobj(facts, joined)
        if not model.exists():
            changes = [word for change in self.options.set for word in ("--set", change)]
            going_on = ["--resume"] if (self.work / "model.training").exists() else []
            newcomer("train", graph, "--no-header", "--out", model, *changes, *going_on, lock=self.lock)
        appear(model, self.models / day)
        print(f"{day}: trained", flush=True)


def main() -> None:
    """Read the options, hold the folder, and do what is missing in it."""
    parser = argparse.ArgumentParser(description="One run of the daily job.")
    parser.add_argument("folder", type=Path, help="the folder of the job")
    parser.add_argument("--every", type=int, default=7, help="train again after so many days (default: 7)")
    parser.add_argument("--min-probability", default="0.8", help="log suggestions from this probability on")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the training")
    options = parser.parse_args()
    if not options.folder.is_dir():
        refuse(f"{options.folder}: is no folder; make it, with the folder arrivals in it")
    lock = os.open(options.folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse(f"{options.folder}: another run is at work", BUSY)
    try:
        Job(options.folder, options, lock).run()
    finally:
        os.close(lock)


if __name__ == "__main__":
    main()
