"""What README.md and docs/ show, runs: console blocks with their output, Python blocks with their assertions.

The blocks of a page run in one folder, in the order of the page. Guides begin with what the quick start leaves behind.
"""

import os
import pydoc
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from command_line import Done, call, environment
from newcomer.config import preset_names, setting_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
QUICK_START = DOCS / "quickstart.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
NAMED = re.findall(r"^::: (\S+)", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
SHOWN = ("console", "python")
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "command_reference.py"))["pages"]()


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The kind and the text of each block that can be run."""
    return [(kind, body) for kind, body in BLOCK.findall(page.read_text(encoding="utf-8")) if kind in SHOWN]


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
    """The first expected line that is not in the output, in order; widths do not count.

    A line ``...`` stands for any lines, and one that ends in ``...`` is the beginning of a line.
    """
    rest = [" ".join(line.split()) for line in output.splitlines()]
    for wanted in (" ".join(line.split()) for line in expected):
        if wanted in ("...", ""):
            continue
        start = wanted.removesuffix("...")
        fits = [line.startswith(start) if start != wanted else line == wanted for line in rest]
        if True not in fits:
            return wanted
        rest = rest[fits.index(True) + 1 :]
    return None


def run_page(page: Path, folder: Path) -> None:
    """Run all blocks of a page in a folder, beside the scripts that the page links to."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.endswith(".py") and "://" not in target:
            shutil.copy(page.parent / target, folder)
    names: dict[str, object] = {}
    for kind, block in blocks(page):
        if kind == "python":
            with chdir(folder):
                exec(compile(block, page.name, "exec"), names)
            continue
        for command, expected in commands(block):
            done = done_by(command, folder)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            missing = shows(done.stdout, expected)
            assert missing is None, f"{command} does not print {missing!r}:\n{done.stdout}"


@pytest.fixture(scope="module")
def quick_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the quick start leaves behind: graph.tsv, model, new.tsv."""
    folder = tmp_path_factory.mktemp("quickstart")
    run_page(QUICK_START, folder)
    return folder


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name_of)
def test_what_a_page_shows_runs(page, quick_start, tmp_path):
    if page == QUICK_START:
        return  # it ran to make the folder
    if DOCS in page.parents:
        shutil.copytree(quick_start, tmp_path, dirs_exist_ok=True)
    run_page(page, tmp_path)


def test_a_line_that_is_not_printed_is_noticed():
    assert shows("a\nb\nc\n", ["a", "...", "c"]) is None
    assert shows("a\nb\nc\n", ["c", "a"]) == "a"
    assert shows("a long line\n", ["a long ..."]) is None
    assert shows("a long line\n", ["a short ..."]) == "a short ..."


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    there = {DOCS / name for name in (*REFERENCE, "contributing.md", "changelog.md")}
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            place = (page.parent / target).resolve()
            assert place.exists() or place in there, target


@pytest.mark.parametrize(
    "name", re.findall(r"^::: (\S+)", (DOCS / "reference" / "api.md").read_text("utf-8"), re.MULTILINE)
)
def test_what_the_reference_names_is_there(name):
    assert pydoc.locate(name) is not None


def test_every_command_has_a_page():
    assert "reference/commands/rules-top.md" in REFERENCE
    assert "`--protocol" in REFERENCE["reference/commands/train.md"]


def test_every_setting_and_preset_is_documented():
    page = REFERENCE["reference/settings.md"]
    assert all(f"| `{name}` |" in page for name in setting_names())
    assert all(f"### {name}\n" in page for name in preset_names())
