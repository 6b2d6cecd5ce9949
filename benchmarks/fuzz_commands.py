"""The command line against inputs nobody would think of: each must be answered, or refused with one sentence.

    python benchmarks/fuzz_commands.py --count 10000
    python benchmarks/fuzz_commands.py --replay 0:4711

Input NUMBER of SEED is always the same: files, options, names, rule files, models, trainings to resume. Inputs run in
one process, through the entry point that a shell calls; a supervisor beside it starts another where that is killed. A
failing input is kept in the folder of the run, with what it was told and what it left.

It is a benchmark and no test, for it runs as long as it is let; tests/test_fuzz.py runs a slice of it.
"""

import argparse
import gc
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import typer

from fuzz_judge import HERE, Done, outcome_of, problems_of, shot_of
from fuzz_words import Case, draw_case
from fuzz_world import make_world
from newcomer.cli import main
from newcomer.cli.app import app
from newcomer.data.download import fetch_dataset
from newcomer.exchange import sparql

RESULTS = Path(__file__).parent.parent / "docs" / "results"
SECONDS = 10.0  # of work after which a command is told to stop
HUNG = 120.0  # after which its process is killed
MEMORY = 12 << 30
WEIGHTS = {  # how often a verb is drawn: those that take long less often
    **dict.fromkeys(("data convert", "rules convert"), 10),
    **dict.fromkeys(("classify", "similar", "split", "data check", "rules show", "rules top", "rules evaluate"), 8),
    **dict.fromkeys(("predict", "embed", "describe", "mine", "enrich"), 6),
    **dict.fromkeys(("suggest", "confidence", "explain"), 3),
    **dict.fromkeys(("evaluate", "compare"), 2),
    **dict.fromkeys(("data list", "data get", "reproduce"), 1),
    **dict.fromkeys(("train", "draw"), 0.5),
    "tune": 0.2,
    "grow": 0.5,
    "serve": 0,  # it goes on until it is stopped; tests/test_service_schema.py has its inputs
}


def verbs() -> dict[str, list[Any]]:
    """Every verb of the program with its options and arguments."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, list[Any]]]:
        inside = getattr(command, "commands", None)
        if inside is None:
            yield name, command.params
            return
        for word, one in inside.items():
            yield from walk(one, f"{name} {word}".strip())

    return dict(walk(typer.main.get_command(app), ""))


class Fuzzer:
    """Runs inputs of a seed in this process, in a folder of its own."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.seed = folder.resolve(), seed
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        self.verbs = verbs()
        build = typer.main.get_command
        # Typer makes the commands anew for each call, which takes longer than most of them do.
        self.command = cache(lambda _: build(app))
        self.output = (self.folder / "stdout").open("w+b")
        self.errors = (self.folder / "stderr").open("w+b")
        self.world = make_world(self.folder / "world", self._must, RESULTS)
        self.kept = shot_of(self.world.folder)

    def _must(self, *words: object) -> None:
        done = self.call([str(word) for word in words], b"", self.folder, 600)
        if done.code:
            raise SystemExit(done.complained)

    def close(self) -> None:
        """Let go of the files."""
        self.output.close()
        self.errors.close()

    def drawn(self, number: int, name: str = "case") -> Case:
        """An input, its files put into a fresh folder."""
        folder = self.folder / name / HERE
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder.parent / "tmp").mkdir()
        rng = Random(f"{self.seed}:{number}")
        names = list(self.verbs)
        verb = rng.choices(names, [WEIGHTS.get(one, 5) for one in names])[0]
        return draw_case(rng, self.world, verb, self.verbs[verb], folder)

    def run(self, number: int) -> tuple[Case, Done, list[str]]:
        """One input: what it was, how it ended, and what is wrong with that."""
        case = self.drawn(number)
        before = shot_of(case.folder.parent)
        done = self.call(case.words, case.piped, case.folder, SECONDS)
        after = shot_of(case.folder.parent)
        problems = list(problems_of(case, done, before, after))
        if shot_of(self.world.folder) != self.kept:
            problems.append("it changed what it was only to read")
            shutil.rmtree(self.world.folder)
            self.world = make_world(self.folder / "world", self._must, RESULTS)
            self.kept = shot_of(self.world.folder)
        return case, done, problems

    def call(self, words: list[str], piped: bytes, place: Path, seconds: float) -> Done:
        """The command as a shell would call it, with its streams in files."""
        variables = {
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(place / "cache"),
            "MPLCONFIGDIR": str(self.folder / "home"),
            "NEWCOMER_MIRROR": "http://127.0.0.1:9",  # where nobody answers
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEWCOMER_")}
        told: list[int] = []

        def stop(number: int, _: object) -> None:
            told.append(number)
            signal.raise_signal(signal.SIGTERM)

        with (
            patch.object(sys, "argv", ["newcomer", *words]),
            patch.dict(os.environ, kept | variables, clear=True),
            patch.object(typer.main, "get_command", self.command),
            patch.dict(fetch_dataset.__kwdefaults__, {"sleep": lambda _: None}),
            patch.object(sparql, "WAITS", (0.0,)),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped))),
            warnings.catch_warnings(),
            _streams(self.output, self.errors),
            _at(place),
        ):
            before = signal.signal(signal.SIGPROF, stop)
            signal.setitimer(signal.ITIMER_PROF, seconds)  # of work, so that a busy machine does not matter
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                code = 1
                traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.signal(signal.SIGPROF, before)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return Done(code, _read(self.output), _read(self.errors), bool(told) and code == 128 + signal.SIGTERM)


@contextmanager
def _streams(output: Any, errors: Any) -> Iterator[None]:
    """Standard output and error in files, for this program and for what it loads."""
    for file in (output, errors):
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
    own = sys.stdout, sys.stderr, os.dup(2)
    os.dup2(errors.fileno(), 2)
    try:
        with (
            open(output.fileno(), "w", encoding="utf-8", closefd=False) as said,
            open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as complained,
        ):
            sys.stdout, sys.stderr = said, complained
            yield
    finally:
        sys.stdout, sys.stderr = own[:2]
        os.dup2(own[2], 2)
        os.close(own[2])


@contextmanager
def _at(place: Path) -> Iterator[None]:
    """A working folder, with one beside it for temporary files."""
    before = Path.cwd()
    os.chdir(place)
    try:
        with patch.object(tempfile, "tempdir", str(place.parent / "tmp") if place.name == HERE else None):
            yield
    finally:
        os.chdir(before)


def _read(file: Any) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode("utf-8", "backslashreplace")


def keep(fuzzer: Fuzzer, number: int, case: Case, done: Done, problems: list[str]) -> None:
    """Put a failing input aside: what it was, what it said, and what it left."""
    place = fuzzer.folder / "failed" / f"{fuzzer.seed}-{number}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    told = {"verb": case.verb, "words": case.words, "problems": problems, "code": done.code}
    (place / "case.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    (place / "piped").write_bytes(case.piped)
    (place / "stdout").write_text(done.said, encoding="utf-8")
    (place / "stderr").write_text(done.complained, encoding="utf-8")
    shutil.copytree(case.folder, place / "left", dirs_exist_ok=True)


def work(folder: Path, seed: int, first: int, last: int) -> None:
    """Run inputs and write a line for each into the journal."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    fuzzer, supervisor = Fuzzer(folder, seed), os.getppid()
    gc.freeze()
    with (fuzzer.folder / f"journal-{seed}.jsonl").open("a", encoding="utf-8") as journal:
        for number in range(first, last):
            if os.getppid() != supervisor:  # it was ended, and another may have begun in this folder
                return
            (fuzzer.folder / "number").write_text(str(number), encoding="utf-8")
            started = time.process_time()
            case, done, problems = fuzzer.run(number)
            seconds = time.process_time() - started
            line = {"number": number, "verb": case.verb, "outcome": outcome_of(done), "seconds": round(seconds, 5)}
            if problems:
                keep(fuzzer, number, case, done, problems)
                line |= {"outcome": "FAILED", "problem": problems[0]}
            print(json.dumps(line), file=journal, flush=True)


def supervise(folder: Path, seed: int, first: int, last: int) -> None:
    """Let a process of its own work, and another one after an input that kills it."""
    while first < last:
        span = ["--seed", str(seed), "--first", str(first), "--count", str(last - first), "--work", str(folder)]
        worker = subprocess.Popen([sys.executable, __file__, *span, "--worker"])
        mark, beginning = folder / "number", time.time()
        while worker.poll() is None:
            time.sleep(0.2)
            if time.time() - max(beginning, mark.stat().st_mtime if mark.exists() else 0) > HUNG:
                worker.kill()
        if worker.returncode == 0:
            return
        if not mark.exists() or mark.stat().st_mtime < beginning:
            raise SystemExit("no input could be run")
        number = int(mark.read_text())
        problem = f"it ended its process with {worker.returncode}"
        line = {"number": number, "verb": "?", "outcome": "FAILED", "seconds": 0.0, "problem": problem}
        with (folder / f"journal-{seed}.jsonl").open("a", encoding="utf-8") as journal:
            print(json.dumps(line), file=journal)
        first = number + 1


def report(folder: Path, seed: int, first: int, last: int) -> int:
    """Print how many inputs of each verb ended how; the number of those that failed."""
    lines = [json.loads(line) for line in (folder / f"journal-{seed}.jsonl").read_text().splitlines()]
    newest = {line["number"]: line for line in lines if first <= line["number"] < last}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    for line in newest.values():
        for name in (line["verb"], "all"):
            counts[name][line["outcome"]] += 1
            seconds[name] += line["seconds"]
    outcomes = sorted({outcome for found in counts.values() for outcome in found})
    print(f"{'verb':16}{'inputs':>9}{'a CPU s':>10}" + "".join(f"{name:>10}" for name in outcomes))
    for verb in (*sorted(counts.keys() - {"all"}), "all"):
        total = counts[verb].total()
        rate = total / seconds[verb] if seconds[verb] else 0
        print(f"{verb:16}{total:9,}{rate:10,.0f}" + "".join(f"{counts[verb][name]:10,}" for name in outcomes))
    failed = [line for line in newest.values() if line["outcome"] == "FAILED"]
    for line in failed[:20]:
        print(f"failed: --replay {seed}:{line['number']} ({line['verb']}): {line['problem'][:200]}")
    return len(failed)


def replay(folder: Path, seed: int, number: int) -> int:
    """Run one input again and show everything."""
    fuzzer = Fuzzer(folder, seed)
    case, done, problems = fuzzer.run(number)
    print(f"in {case.folder}:", *case.words, sep="\n  ")
    print(f"exit code {done.code}\n--- standard output\n{done.said[-3000:]}--- standard error\n{done.complained}---")
    print("\n".join(problems) or "nothing is wrong")
    return len(problems)


def run() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "newcomer-fuzz")
    parser.add_argument("--replay", metavar="SEED:NUMBER")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay:
        return replay(given.work, *map(int, given.replay.split(":")))
    span = given.work, given.seed, given.first, given.first + given.count
    if given.worker:
        work(*span)
        return 0
    given.work.mkdir(parents=True, exist_ok=True)
    supervise(*span)
    return report(*span)


if __name__ == "__main__":
    sys.exit(min(run(), 1))
