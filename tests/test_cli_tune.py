"""``newcomer tune``: settings or one sentence; a search that can be stopped at any moment and goes on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import Done, call, environment, sentence, with_defaults
from newcomer.cli import tune as verb
from newcomer.config import read_config
from newcomer.data import load_dataset, write_dataset
from newcomer.models.bundle import read_bundle
from newcomer.training.pipeline import Listener
from newcomer.training.runtime import settled
from newcomer.training.tune import BEST, STUDY, TRIALS, Watcher
from nn_oracle import one_thread
from training_world import SMALL, Stopped, world

pytest.importorskip("optuna")
on_one_thread = pytest.fixture(autouse=True)(one_thread)
SET = [word for change in (*SMALL, "training.epochs=2") for word in ("--set", change)]
SPACE = "model.dim.choices = [4, 8]\ntraining.lr = { low = 0.001, high = 0.1, log = true }\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_dataset(world(), tmp_path / "town")
    (tmp_path / "space.toml").write_text(SPACE)
    return tmp_path / "town"


def words_of(data: Path, *words: str | Path) -> list[str]:
    return ["tune", str(data), *SET, *map(str, with_defaults(*words, space="space.toml", threads="1"))]


def tune(data: Path, *words: str | Path) -> Done:
    return call(*words_of(data, *words), cwd=data.parent)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ended(folder: Path) -> list[list[str]]:
    """State, MRR and settings of the trials that came to an end."""
    if not (folder / TRIALS).exists():
        return []
    lines = [line.split("\t") for line in (folder / TRIALS).read_text().splitlines()[1:]]
    return [[line[1], line[2], *line[5:]] for line in lines if line[1] != "interrupted"]


def test_a_line_a_trial_then_the_best_and_how_much_was_searched(data):
    done = tune(data, "--trials", "3", "--time-limit", "600")
    assert done.returncode == 0, done.stderr
    place = data.parent / "runs" / "town-tune"
    assert names(place) == [BEST, STUDY, TRIALS]
    lines = done.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"trial {number}: complete" for number in range(3)]
    assert "validation MRR" in lines[2] and "training.lr=" in lines[2] and "; best " in lines[2]
    assert "best of 3 trials" in done.stdout
    assert "searched: 3 trials (3 complete) in " in done.stdout
    assert "space space, tpe, seed 0; budget 3 trials and 600 s" in done.stdout
    assert "--config runs/town-tune/best.toml" in done.stdout


def test_the_best_settings_train(data):
    assert tune(data, "--trials", "2", "--out", data.parent / "s").returncode == 0
    found = read_config(data.parent / "s" / BEST)
    done = call("train", data, "--config", data.parent / "s" / BEST, "--out", data.parent / "m", "--threads", "1")
    assert done.returncode == 0, done.stderr
    model = read_bundle(data.parent / "m")
    assert model.config == settled(found, load_dataset(data), torch.device("cpu"))
    assert model.metrics["trained_on"] == "everyone"
    best = max(float(mrr) for _, mrr, *_ in ended(data.parent / "s"))
    assert model.metrics["validation"]["model"]["mrr"] == pytest.approx(best, abs=1e-6)


def test_json(data, put):
    (data.parent / "space.toml").write_text("model.dim.choices = [2, 4, 6, 8, 10, 12, 14]")
    mine = put("mine.toml", 'preset = "mean"\n[training]\nepochs = 1\n')
    done = call(
        *["tune", data, "--config", mine, "--set", "training.validation_rate=50", "--set", "training.batches=2"],
        *["--space", "space.toml", "--seed", "5", "--device", "cpu", "--trials", "9", "--json", "--out", "s"],
        cwd=data.parent,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["budget"] == {"trials": 9, "time_limit": None} and summary["method"] == "grid"
    assert summary["trials"]["counted"] == 7 and summary["seed"] == 5 and summary["space"] == "space"
    figures = [one["mrr"] for one in summary["best"]]
    assert len(figures) == 5 and figures == sorted(figures, reverse=True)
    config = read_config(data.parent / summary["settings"])
    assert (config.preset, config.seed, config.model.dim) == ("mean", 5, summary["best"][0]["settings"]["model.dim"])


MISTAKES = [
    (["--space", "papr"], "unknown space 'papr'; did you mean 'paper'?"),
    (["--space", "nowhere.toml"], "nowhere.toml: cannot be read"),
    (["--space", "bad.toml"], "bad.toml: unknown setting 'model.dimm'; did you mean 'model.dim'?"),
    (["--space", "seeds.toml"], "seeds.toml: seed cannot be searched"),
    (["--preset", "papr"], "unknown preset 'papr'"),
    (["--set", "training.learning_rate=1"], "did you mean 'training.lr'?"),
    (["--set", "training.validation_rate=0"], "a search needs newcomers to validate on"),
    (["--trials", "0"], "--trials is 0, but must be an integer from 1"),
    (["--time-limit", "0"], "the time limit is 0 seconds, but must be above 0"),
    (["--device", "gpu"], "unknown device 'gpu'"),
    (["--resume"], "there is no search to resume; leave out --resume"),
    (["--resume", "--force"], "leave out one of them"),
    (["--out", "town"], "choose another place"),
    (["--out", "file"], "is not a folder; choose another place"),
    (["--out", "file/s"], "choose another place"),
    (["--out", "x" * 300], "cannot be read (File name too long)"),
]


@pytest.mark.parametrize(("words", "problem"), MISTAKES, ids=lambda value: " ".join(value)[:40] if value else "")
def test_a_mistake_is_one_sentence_and_leaves_nothing(data, put, words, problem):
    put("file", "")
    put("bad.toml", "model.dimm.choices = [1, 2]")
    put("seeds.toml", "seed.choices = [1, 2]")
    assert problem in sentence(tune(data, *words))
    assert names(data.parent) == ["bad.toml", "file", "seeds.toml", "space.toml", "town"]


def test_without_optuna_the_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'newcomer[tune]'" in sentence(tune(data))
    assert names(data.parent) == ["space.toml", "town"]


def test_trials_that_all_fail_say_why(data):
    (data.parent / "space.toml").write_text("model.dim.choices = [3, 5]")
    done = tune(data, "--set", "model.decoder=complex", "--out", "s")
    assert done.returncode == 2 and done.stdout == ""
    why = "model.dim is 3, but must be even for the decoder complex"
    first = done.stderr.splitlines()[0]
    assert first == f"trial 0: failed ({why}): model.dim=3"
    assert done.stderr.splitlines()[-1] == f"newcomer: none of 2 trials came to its end; the first: {why}"
    assert [row[0] for row in ended(data.parent / "s")] == ["failed", "failed"]


def test_it_goes_on_or_starts_anew_only_when_asked(data):
    assert tune(data, "--out", "s", "--trials", "2").returncode == 0
    two = ended(data.parent / "s")
    assert "pass --resume to go on with it, or --force to start anew" in sentence(tune(data, "--out", "s"))
    more = tune(data, "--out", "s", "--trials", "3", "--resume")
    assert more.returncode == 0 and more.stderr.startswith("trial 2: complete")
    assert ended(data.parent / "s")[:2] == two and len(ended(data.parent / "s")) == 3
    other = sentence(tune(data, "--out", "s", "--resume", "--seed", "1"))
    assert f"s/{STUDY}: was started with seed = 0, not 1" in other
    anew = tune(data, "--out", "s", "--trials", "1", "--force", "--seed", "1")
    assert anew.returncode == 0 and len(ended(data.parent / "s")) == 1
    assert ended(data.parent / "s") != two[:1]


def test_on_a_terminal_the_bars_say_which_trial_it_is(data, monkeypatch):
    class Bars(Listener):
        said: list[Any] = []  # noqa: RUF012

        def stage(self, what: str) -> None:
            self.said.append(what)

        def step(self, done: int, total: int) -> None:
            self.said.append("step")

        def epoch(self, record: Any, state: Any, last: int) -> None:
            self.said.append(record["epoch"])

    @contextmanager
    def watching() -> Any:
        yield verb._lines(Bars())

    monkeypatch.setattr(verb, "_watching", watching)
    assert tune(data, "--trials", "2").returncode == 0
    assert Bars.said[0] == "mining rules" and "step" in Bars.said
    assert {1, 2} < {*Bars.said[Bars.said.index("trial 2/2: search") :]}


def test_a_search_is_stopped_in_order(data, monkeypatch):
    class Stopping(Watcher):
        def epoch(self, record: Any, state: Any, last: int) -> None:
            raise SystemExit(130)

    @contextmanager
    def watching() -> Any:
        yield Stopping()

    monkeypatch.setattr(verb, "_watching", watching)
    done = tune(data, "--out", "s", "--trials", "1", "--force")
    assert done.returncode == 130
    (said,) = done.stderr.splitlines()
    assert said.startswith("newcomer: the search is kept in s; go on with: newcomer tune")
    assert said.endswith("--out s --trials 1 --resume")
    monkeypatch.undo()
    resumed = tune(data, "--out", "s", "--trials", "1", "--resume")
    assert resumed.returncode == 0 and "1 trial (1 complete, 1 interrupted)" in resumed.stdout


def test_an_unexpected_end_is_kept_too(data, monkeypatch):
    @contextmanager
    def watching() -> Any:
        class Stopping(Watcher):
            def begins(self, place: int, goal: int, settings: Any) -> None:
                raise Stopped

        yield Stopping()

    monkeypatch.setattr(verb, "_watching", watching)
    with pytest.raises(Stopped):
        tune(data, "--out", "s")
    assert names(data.parent / "s") == [STUDY, TRIALS]


@contextmanager
def started(data: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A search in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "newcomer", *words_of(data, "--trials", "5", "--out", "cut", *words)]
    with subprocess.Popen(command, cwd=data.parent, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_trials(process: subprocess.Popen[str], folder: Path, wanted: int) -> None:
    while process.poll() is None and len(ended(folder)) < wanted:
        time.sleep(0.005)


def test_killed_and_resumed_it_ends_as_if_it_had_not_been(data):
    """Nobody else works in the folder meanwhile."""
    assert tune(data, "--trials", "5", "--out", "whole").returncode == 0
    cut = data.parent / "cut"
    with started(data) as process:
        wait_for_trials(process, cut, 1)
        process.send_signal(signal.SIGSTOP)  # it must not be done before it is killed
        assert "another training works here" in sentence(tune(data, "--trials", "5", "--out", "cut", "--resume"))
        process.kill()
        complaints = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL and "Traceback" not in complaints, complaints
    before = ended(cut)
    resumed = tune(data, "--trials", "5", "--out", "cut", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert ended(cut)[: len(before)] == before
    assert ended(cut) == ended(data.parent / "whole") and len(ended(cut)) == 5
    assert read_config(cut / BEST) == read_config(data.parent / "whole" / BEST)


def test_a_signal_ends_it_and_says_how_to_go_on(data):
    with started(data, "--set", "training.epochs=150", "--set", "training.patience=150") as process:
        wait_for_trials(process, data.parent / "cut", 1)
        # Not SIGINT, which whoever runs the tests in the background may have had ignored.
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[1].splitlines()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert said[-1] == "newcomer: stopped by SIGTERM"
    assert said[-2].startswith("newcomer: the search is kept in cut; go on with: newcomer tune")
    assert said[-2].endswith("--resume") and set(names(data.parent / "cut")) <= {STUDY, TRIALS, BEST}
