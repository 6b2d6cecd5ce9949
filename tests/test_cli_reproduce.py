"""``newcomer reproduce``: cells run and skipped, what was not run and why, the page."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import Done, call, environment, sentence
from newcomer.reproduction.stored import read_results
from nn_oracle import one_thread
from reproduction_world import SMALL, make_data

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CHANGES = [word for change in SMALL for word in ("--set", change)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("data"))


def words(what: str, data: Path, *more: str | Path) -> list[str | Path]:
    return ["reproduce", what, "--data-root", data, "--device", "cpu", "--threads", "1", *CHANGES, *more]


def reproduce(where: Path, what: str, data: Path, *more: str | Path) -> Done:
    return call(*words(what, data, *more), cwd=where)


def test_a_table_is_run_once_and_written_down(tmp_path, data):
    done = reproduce(tmp_path, "ablation", data, "--only", "vn-structure", "--only", "vn-full")
    assert done.returncode == 0, done.stderr
    assert "1/2 ablation-fb15k-subject-10-vn-structure-inductive-0: MRR " in done.stdout
    assert "the page of results is docs/RESULTS.md" in done.stdout and "not run" not in done.stdout
    cells = [result["cell"] for result in read_results(tmp_path / "docs" / "results")]
    assert cells == [f"ablation-fb15k-subject-10-vn-{row}-inductive-0" for row in ("full", "structure")]
    page = (tmp_path / "docs" / "RESULTS.md").read_text()
    assert "2 of 5 cells of the plan are done." in page
    again = reproduce(tmp_path, "ablation", data, "--only", "vn-structure", "--only", "vn-full")
    assert again.stdout.count("done already") == 2 and again.returncode == 0
    assert (tmp_path / "docs" / "RESULTS.md").read_text() == page


def test_other_settings_are_done_anew_with_a_sentence(tmp_path, data):
    first = reproduce(tmp_path, "ablation", data, "--only", "vn-structure")
    second = reproduce(tmp_path, "ablation", data, "--only", "vn-structure", "--set", "model.dim=4")
    assert (first.returncode, second.returncode) == (0, 0)
    assert "done anew, for it was run with other settings (model.dim)" in second.stdout
    (result,) = read_results(tmp_path / "docs" / "results")
    assert result["settings"]["model"]["dim"] == 4


def test_a_dry_run_lists_and_runs_nothing(tmp_path, data):
    done = reproduce(tmp_path, "link-prediction", data, "--dry-run")
    assert done.returncode == 0 and not (tmp_path / "docs").exists()
    assert "72 cells" in done.stdout and "56 open, 16 absent" in done.stdout
    assert "link-prediction-fb15k-subject-10-vn-inductive-2" in done.stdout
    reproduce(tmp_path, "link-prediction", data, "--only", "subject-10-rules-inductive")
    done = reproduce(tmp_path, "link-prediction", data, "--dry-run", "--only", "rules")
    assert "3 open" in done.stdout and "1 done" in done.stdout


def test_data_that_are_not_there_are_said_and_skipped(tmp_path, data):
    done = reproduce(tmp_path, "statistics", data, "--only", "yago37", "--only", "fb15k-subject")
    assert done.returncode == 0, done.stderr
    assert "yago37-subject-10-rules-inductive-0: not run" in done.stdout
    assert "not run (3 of 11): " in done.stdout and "newcomer data get yago37" in done.stdout
    found = {result["cell"] for result in read_results(tmp_path / "docs" / "results")}
    assert found == {f"statistics-fb15k-subject-{share}-rules-inductive-0" for share in (10, 15, 20, 25)}


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path, data):
    own = Path(shutil.copytree(data, tmp_path / "data"))
    for role in ("train", "aux", "valid", "test"):
        (own / "fb15k-object-10" / f"{role}.tsv").write_text("only\ttwo\n")
    done = reproduce(tmp_path, "link-prediction", own, "--only", "-rules-inductive", "--results", "here")
    assert done.returncode == 0  # what cannot be read cannot be run
    assert "not run (1 of 2): " in done.stdout and "object-10" in done.stdout
    assert (tmp_path / "here" / "RESULTS.md").exists() and not (tmp_path / "docs").exists()
    done = reproduce(tmp_path, "link-prediction", data, "--only", "10-mean-inductive-0", "--set", "training.lr=1e30")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stdout.count("failed (") == 1 and "lower training.lr" in done.stdout
    assert (tmp_path / "docs" / "RESULTS.md").exists()


def test_a_killed_run_goes_on(tmp_path, data):
    more = ["--only", "vn-structure", "--set", "training.epochs=60", "--set", "training.patience=60"]
    command = [sys.executable, "-m", "newcomer", *map(str, words("ablation", data, *more))]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(OMP_NUM_THREADS="1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    work = tmp_path / "docs" / "results" / ".work" / "ablation-fb15k-subject-10-vn-structure-inductive-0"
    checkpoint = work / "training" / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert checkpoint.exists() and not list((tmp_path / "docs" / "results").glob("*.json"))
    done = reproduce(tmp_path, "ablation", data, *more)
    assert done.returncode == 0, done.stderr
    assert "going on with the training that was begun" in done.stderr
    (result,) = read_results(tmp_path / "docs" / "results")
    assert result["training"]["resumed"] is True and not work.exists()


def test_the_report_alone(tmp_path, data):
    reproduce(tmp_path, "ablation", data, "--only", "vn-hard", "--page", "first.md")
    done = call("reproduce", "report", "--page", "second.md", cwd=tmp_path)
    assert done.returncode == 0 and "second.md" in done.stdout
    assert (tmp_path / "first.md").read_bytes() == (tmp_path / "second.md").read_bytes()
    (tmp_path / "docs" / "results" / "reading.md").write_text("Read this.\n")
    call("reproduce", "report", cwd=tmp_path)
    assert "Read this." in (tmp_path / "docs" / "RESULTS.md").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["ablatoin"], "did you mean 'ablation'?"),
        (["ablation", "--protocol", "transductiv"], "did you mean 'transductive'?"),
        (["ablation", "--seeds", "0"], "--seeds is 0"),
        (["ablation", "--only", "nothing"], "see their names with: --dry-run"),
        (["ablation", "--set", "training.epoch=1"], "did you mean 'training.epochs'?"),
        (["ablation", "--data-root", "nowhere"], "nowhere: is not a folder"),
        (["ablation", "--device", "gpu"], "unknown device 'gpu'"),
        (["report"], "docs/results: is not a folder of results"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(tmp_path, options, expected):
    assert expected in sentence(call("reproduce", *options, cwd=tmp_path))
    assert not list(tmp_path.iterdir())
