"""The daily job of the docs: thirty days on a real graph, killed and started again at every turn."""

import csv
import multiprocessing
import os
import random
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from command_line import call, environment
from newcomer.models.bundle import read_bundle

SCRIPT = Path(__file__).parent.parent / "docs" / "how-to" / "daily_job.py"
SAMPLE = Path(__file__).parent.parent / "src" / "newcomer" / "data" / "sample"
DAYS, EVERY, FEW_DAYS = 30, 10, 11
KNOWN, LATER = ("borders", "on_continent", "speaks"), "drives_on"  # relations of the graph; one that arrives later
NEVER_STATED = ("Portugal", "borders", "Chile")  # between two entities of the graph
SMALL = ("model.dim=16", "training.epochs=2", "training.batches=10", "training.validation_queries=50", "rules.walks=20")
OPTIONS = [f"--every={EVERY}", *(word for change in SMALL for word in ("--set", change))]
Fact = tuple[str, ...]
Step = Callable[..., None]


def facts_in(path: Path) -> list[Fact]:
    with path.open(encoding="utf-8", newline="") as lines:
        return [tuple(row) for row in csv.reader(lines, delimiter="\t")]


def write(path: Path, facts: list[Fact]) -> None:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts), encoding="utf-8")


def arrivals() -> dict[str, list[Fact]]:
    """The graph, and what arrives on each day: newcomers by name, each with the facts that it is the first to have."""
    graph = [fact for fact in facts_in(SAMPLE / "train.tsv") if fact[1] in KNOWN]
    coming = [fact for fact in facts_in(SAMPLE / "aux.tsv") if fact[1] in (*KNOWN, LATER)]
    new = {name for fact in coming for name in fact[::2]} & set((SAMPLE / "newcomers.txt").read_text().splitlines())
    place = {name: 1 + i * DAYS // len(new) for i, name in enumerate(sorted(new))}
    days: dict[str, list[Fact]] = {"0": graph} | {f"day-{day:02}": [] for day in range(1, DAYS + 1)}
    for fact in coming:
        first = next(name for name in fact[::2] if name in place)
        days[f"day-{place[first]:02}"].append(fact)
    days["day-03"].append(NEVER_STATED)
    days["day-12"] += days["day-02"]  # the graph has them by then
    return days


ARRIVALS = arrivals()


def arrive(folder: Path, day: str) -> None:
    (folder / "arrivals").mkdir(parents=True, exist_ok=True)
    write(folder / "arrivals" / f"{day}.tsv", ARRIVALS[day])


def loaded(said: list[str]) -> ModuleType:
    """The script, whose commands run in this process; ``said`` collects what they say on standard error."""
    spec = spec_from_file_location("daily_job", SCRIPT)
    assert spec is not None and spec.loader is not None
    job = module_from_spec(spec)
    spec.loader.exec_module(job)

    def newcomer(*words: str | Path, lock: int) -> None:
        done = call(*words, *(("--threads", "1") if words[0] == "train" else ()))
        said.append(done.stderr)
        if done.returncode:
            sys.exit(done.returncode)

    job.newcomer = newcomer  # type: ignore[attr-defined]
    return job


def run(job: ModuleType, folder: Path) -> None:
    with patch.object(sys, "argv", ["daily_job", str(folder), *OPTIONS]):
        job.main()


def log_of(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((folder / "suggestions").iterdir())}


def suggested(log: dict[str, str]) -> list[Fact]:
    return [tuple(row.split("\t")[2:5]) for text in log.values() for row in text.splitlines()[1:]]


def in_graph(model: Path) -> list[Fact]:
    """The facts a model was trained on, by name."""
    observed = read_bundle(model).observed
    entities, relations = list(observed.entities), list(observed.relations)
    return sorted((entities[h], relations[r], entities[t]) for h, r, t in observed.triples.rows.tolist())


def stated(last: int) -> list[Fact]:
    """Every fact that arrived up to a day, once."""
    return sorted({fact for day, facts in ARRIVALS.items() if day <= f"day-{last:02}" for fact in facts})


@pytest.fixture(scope="module")
def quiet_month(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a job that nobody disturbed, run once a day, and what its commands said."""
    folder, said = tmp_path_factory.mktemp("month"), list[str]()
    job = loaded(said)
    for day in ARRIVALS:
        arrive(folder, day)
        run(job, folder)
    return folder, said


def test_a_month_asks_about_all_who_arrive_and_trains_on_everything_that_arrived(quiet_month):
    folder, _ = quiet_month
    assert sorted(path.name for path in (folder / "models").iterdir()) == ["0", "day-10", "day-20", "day-30"]
    assert in_graph(folder / "models" / "day-20") == stated(20)
    assert in_graph(folder / "models" / "day-30") == stated(30)
    assert sorted(log_of(folder)) == [day for day in ARRIVALS if day != "0"]


def test_what_is_suggested_is_probable_new_and_logged_once(quiet_month):
    log = log_of(quiet_month[0])
    facts = suggested(log)
    assert len(facts) > 30 and len(set(facts)) == len(facts)
    assert all(float(row.split("\t")[6]) >= 0.8 for text in log.values() for row in text.splitlines()[1:])
    for day, text in log.items():
        assert not set(suggested({day: text})) & set(stated(int(day[-2:]))), "known by that day"
    assert {row.split("\t")[2] for row in log["day-02"].splitlines()[1:]} & {f[0] for f in ARRIVALS["day-02"]}


def test_facts_that_tell_nothing_of_newcomers_are_counted_until_the_next_training_has_them(quiet_month):
    folder, said = quiet_month
    told = "".join(said)
    assert "skipped 1 fact between entities that the model was trained on" in told
    assert "with relations unknown to the model" in told
    assert f"{len(ARRIVALS['day-02'])} facts are known already" in told
    assert NEVER_STATED in in_graph(folder / "models" / "day-10")
    assert [LATER in {fact[1] for fact in in_graph(folder / "models" / name)} for name in ("0", "day-10")] == [
        False,
        True,
    ]


class Killed(BaseException):
    """The end of a run, in the middle of anything."""


def same_as(month: Path, folder: Path) -> None:
    """A disturbed job has the log, the graph and the model of one that was not."""
    log = log_of(month)
    assert log_of(folder) == {day: log[day] for day in list(log)[:FEW_DAYS]}
    for model in ("0", "day-10"):
        weights = [(place / "models" / model / "weights.safetensors").read_bytes() for place in (month, folder)]
        assert weights[0] == weights[1]
    assert in_graph(folder / "models" / "day-10") == stated(10)
    assert sorted(path.name for path in (folder / "models").iterdir()) == ["0", "day-10"]


def test_a_job_killed_before_and_after_every_step_loses_nothing_and_does_nothing_twice(quiet_month, tmp_path):
    job = loaded([])
    met = set[tuple[object, ...]]()

    def die_once(*where: object) -> None:
        if where not in met:
            met.add(where)
            raise Killed

    def dying(step: Step) -> Step:
        def run_or_die(*words: object, **options: object) -> None:
            die_once("before", *words)
            step(*words, **options)
            if step is appear:  # a command is done before what it made appears
                die_once("after", *words)

        return run_or_die

    appear = job.appear
    job.newcomer, job.appear = dying(job.newcomer), dying(appear)  # type: ignore[attr-defined]
    kills = 0
    for day in list(ARRIVALS)[: FEW_DAYS + 1]:
        arrive(tmp_path, day)
        while True:
            try:
                run(job, tmp_path)
                break
            except Killed:
                kills += 1
    assert kills == len(met) > 4 * FEW_DAYS
    same_as(quiet_month[0], tmp_path)


def work(folder: Path) -> None:
    """The job as a process of its own."""
    with chdir(folder), Path(os.devnull).open("w") as nowhere, patch.object(sys, "stdout", nowhere):
        run(loaded([]), folder)


def test_a_job_that_is_killed_at_random_moments_loses_nothing_and_does_nothing_twice(quiet_month, tmp_path):
    ready = multiprocessing.get_context("forkserver")
    ready.set_forkserver_preload(["newcomer.api", "newcomer.cli"])
    chance = random.Random(0)
    for day in list(ARRIVALS)[: FEW_DAYS + 1]:
        arrive(tmp_path, day)
    kills, last = 0, None
    while last != 0:
        process = ready.Process(target=work, args=(tmp_path,))
        process.start()
        process.join(chance.uniform(0.1, 1.5) if kills < 8 else None)
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        last = process.exitcode
        assert last in (0, -9)
    assert kills > 2
    same_as(quiet_month[0], tmp_path)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], int], "subprocess.Popen[bytes]"]]:
    """A job at work on a command that lasts until a file ``go`` is there, and how to run the job again."""
    program = tmp_path / "bin" / "newcomer"
    program.parent.mkdir()
    wait = "touch begun; while [ ! -e go ]; do sleep 0.05; done"
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\n[ -e begun ] || {{ {wait}; }}\nexit 3\n")
    program.chmod(0o755)
    folder = tmp_path / "job"
    arrive(folder, "0")
    variables = environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    command = [sys.executable, str(SCRIPT), str(folder)]
    process = subprocess.Popen(command, env=variables)
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    yield tmp_path, lambda: subprocess.run(command, env=variables, check=False).returncode, process
    (tmp_path / "go").touch()
    process.wait()


def test_two_jobs_do_not_work_in_a_folder_not_even_beside_a_command_that_outlived_its_job(started):
    folder, again, process = started
    assert again() == 75
    process.kill()
    process.wait()
    assert again() == 75, "the command still runs"
    (folder / "go").touch()
    while (code := again()) == 75:
        time.sleep(0.05)
    assert code == 3, "a command that fails ends the job with its exit code"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"0.tsv": "a\tr\tb\n", "0.csv": "a,r,b\n"}, "two files are of one day"),
        ({"0.tsv": "a\tr\tb\t1\n"}, "0.tsv: has a column of labels"),
        ({"0.tsv": "a\tr\n"}, "0.tsv, line 1"),
    ],
)
def test_arrivals_that_cannot_be_taken_in_are_refused_in_a_sentence(files, complaint, tmp_path, capsys):
    (tmp_path / "arrivals").mkdir()
    for name, text in files.items():
        (tmp_path / "arrivals" / name).write_text(text)
    said: list[str] = []
    with pytest.raises(SystemExit) as end:
        run(loaded(said), tmp_path)
    assert end.value.code == 2 and complaint in capsys.readouterr().err + "".join(said)
    assert not list((tmp_path / "facts").iterdir())


def test_a_file_that_comes_after_a_later_day_is_refused(tmp_path, capsys):
    arrive(tmp_path, "day-02")
    arrive(tmp_path, "0")
    job = loaded([])
    (tmp_path / "facts").mkdir()
    write(tmp_path / "facts" / "day-03.tsv", ARRIVALS["day-03"])
    with pytest.raises(SystemExit, match="2"):
        run(job, tmp_path)
    assert "comes after a later day" in capsys.readouterr().err


def test_no_folder_is_refused_in_a_sentence(tmp_path, capsys):
    with patch.object(sys, "argv", ["daily_job", str(tmp_path / "none")]), pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "none: is no folder" in capsys.readouterr().err
