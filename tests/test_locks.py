"""Locks between processes: one holds a folder, the others are told, and a killed one holds nothing any more."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from newcomer import locks
from newcomer.locks import locked

HOLDING = (
    "import sys\nfrom pathlib import Path\nfrom newcomer.locks import locked\n"
    "with locked(Path(sys.argv[1])):\n    print('mine', flush=True)\n    sys.stdin.read()\n"
)


@contextmanager
def another_process(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the folder until its input ends."""
    command = [sys.executable, "-c", HOLDING, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "mine\n"
        yield other


def is_free(folder: Path) -> bool:
    try:
        with locked(folder):
            return True
    except BlockingIOError:
        return False


def test_one_process_holds_a_folder_at_a_time(tmp_path):
    with another_process(tmp_path) as other:
        assert not is_free(tmp_path)
        other.communicate("")
    assert is_free(tmp_path) and is_free(tmp_path)


def test_a_killed_process_holds_nothing(tmp_path):
    with another_process(tmp_path) as other:
        assert not is_free(tmp_path)
        other.kill()
        other.wait()
        assert is_free(tmp_path)


def test_a_lock_leaves_nothing_behind_and_ends_with_an_error(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(ZeroDivisionError), locked(folder):
        assert not is_free(folder)
        raise ZeroDivisionError
    assert is_free(folder) and list(tmp_path.iterdir()) == [folder] and list(folder.iterdir()) == []


def test_a_folder_that_moves_before_it_is_locked_is_not_held(tmp_path, monkeypatch):
    folder, lock = tmp_path / "run", locks._lock
    folder.mkdir()

    def late(handle: int) -> None:
        folder.rename(tmp_path / "moved")
        lock(handle)

    monkeypatch.setattr(locks, "_lock", late)
    assert not is_free(folder)


def test_a_file_beside_the_folder_serves_as_well(tmp_path, monkeypatch):
    """As on Windows, which locks no folders."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(locks, "_lock_file", lambda folder: folder.with_name(f".{folder.name}.lock"))
    monkeypatch.setattr(locks, "FLAGS", locks.os.O_RDWR | locks.os.O_CREAT)
    with locked(folder):
        assert not is_free(folder)
    assert is_free(folder) and list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_is_not_there_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError), locked(tmp_path / "nowhere"):
        raise AssertionError
