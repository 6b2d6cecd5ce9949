"""The wheel works on its own: built, installed into an empty environment, used from an empty folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, cwd=folder)
    return next(folder.glob("newcomer-*.whl"))


def test_the_wheel_holds_every_file_of_the_package(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        p.relative_to(source).as_posix()
        for p in (source / "newcomer").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert wanted <= inside
    assert {"newcomer/py.typed", "newcomer/data/sample/train.tsv", "newcomer/data/catalogue.toml"} <= inside


def test_the_wheel_runs_in_an_empty_environment(wheel, tmp_path):
    environment, empty = tmp_path / "env", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", environment, cwd=empty)
    pip = [environment / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    run(*pip, wheel, cwd=empty)
    command = environment / "bin" / "newcomer"
    assert run(command, "--version", cwd=empty).startswith("newcomer 0.")
    listed = run(command, "data", "list", cwd=empty)
    assert "fb15k-subject-10" in listed and "wn11-both-5000" in listed
    assert "newcomers" in run(command, "describe", "sample", cwd=empty)
    assert list(empty.iterdir()) == []
