"""The ``newcomer`` command for tests: in a process of its own or in this one, and how a mistake must be answered."""

import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from newcomer.cli import main

Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """The variables of this process but for our own, and some more."""
    return {k: v for k, v in os.environ.items() if not k.startswith("NEWCOMER_")} | more


def run(*words: str | Path, cwd: Path | None = None, **variables: str) -> Done:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "newcomer", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment(**variables), capture_output=True, text=True, check=False)


def call(*words: str | Path, cwd: Path | None = None) -> Done:
    """The same in this process: no second is spent on starting."""
    said, complained = StringIO(), StringIO()
    arguments = ["newcomer", *map(str, words)]
    with (
        patch.object(sys, "argv", arguments),
        patch.dict(os.environ, environment(), clear=True),
        chdir(cwd or Path.cwd()),
        redirect_stdout(said),
        redirect_stderr(complained),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(arguments, code, said.getvalue(), complained.getvalue())


def with_defaults(*words: str | Path, **defaults: str) -> list[str | Path]:
    """Words of a command, and options that it is given where the words do not have them: none may stand twice."""
    missing = [(f"--{name}", value) for name, value in defaults.items() if f"--{name}" not in words]
    return [*(word for pair in missing for word in pair), *words]


def sentence(done: Done, after_progress: bool = False) -> str:
    """The one line a user's mistake is answered with; the last one, where progress was shown before."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len([line for line in lines if line.startswith("newcomer: ")]) == 1, done.stderr
    assert after_progress or len(lines) == 1, done.stderr
    return lines[-1]
