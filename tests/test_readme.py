"""What README.md and docs/ show, runs: console blocks with their output, Python blocks with their assertions."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import Done, call, environment

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each ``$ command`` with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def done_by(command: str, folder: Path) -> Done:
    """What a command does in a folder; one of ours without anything for a shell is spared a process of its own."""
    words = shlex.split(command)
    if words[0] == "newcomer" and not set(command) & set("|&;<>$*`"):
        return call(*words[1:], cwd=folder)
    variables = environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def shows(output: str, expected: list[str]) -> str | None:
    """The first expected line that is not in the output, in order; ``...`` is any lines, widths do not count."""
    rest = [" ".join(line.split()) for line in output.splitlines()]
    for line in (" ".join(wanted.split()) for wanted in expected):
        if line in ("...", ""):
            continue
        if line not in rest:
            return line
        rest = rest[rest.index(line) + 1 :]
    return None


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")], ids=lambda p: p.name)
def test_the_commands_of_a_page_do_what_it_shows(page, tmp_path):
    for block in blocks(page, "console"):
        for command, expected in commands(block):
            done = done_by(command, tmp_path)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            missing = shows(done.stdout, expected)
            assert missing is None, f"{command} does not print {missing!r}:\n{done.stdout}"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


def test_a_line_that_is_not_printed_is_noticed():
    assert shows("a\nb\nc\n", ["a", "...", "c"]) is None
    assert shows("a\nb\nc\n", ["c", "a"]) == "a"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
