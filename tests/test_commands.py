"""Options that stand twice: several values where a command takes several, else one sentence."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from command_line import call, sentence
from newcomer.cli.app import app


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, one in (inner or {}).items():
        yield from commands(one, (*words, name))


OPTIONS = [
    (words, option)
    for words, command in commands(typer.main.get_command(app))
    for option in command.params
    if option.param_type_name == "option" and (option.secondary_opts or not option.is_flag)
]
SEVERAL = {
    "--cors",
    "--allow-host",
    "--relations",
    "--types",
    "--facts",
    "--entity",
    "--relation",
    "--set",
    "--by",
    "--only",
}


@pytest.mark.parametrize(
    ("words", "option"), OPTIONS, ids=[" ".join((*words, option.opts[0])) for words, option in OPTIONS]
)
def test_an_option_that_stands_twice_counts_twice_or_is_refused(words, option):
    if option.multiple:
        assert option.opts[0] in SEVERAL
        return
    name = option.opts[0]
    given = (name, *option.secondary_opts) if option.is_flag else (name, "1", name, "2")
    said = sentence(call(*words, *given))
    assert said.endswith("is given 2 times, but takes one value; leave out all but one") and name in said


def test_the_commands_about_newcomers_take_several_files_of_facts():
    takes = {words[-1] for words, option in OPTIONS if option.opts[0] == "--facts" and option.multiple}
    assert takes == {"predict", "suggest", "explain", "classify", "confidence", "embed", "similar", "draw"}


WRITES = [
    ("predict", "model", "--facts", "f.tsv", "--out"),
    ("suggest", "model", "--facts", "f.tsv", "--out"),
    ("similar", "model", "--facts", "f.tsv", "--out"),
    ("classify", "model", "f.tsv", "--out"),
    ("embed", "model", "--facts", "f.tsv", "--out"),
    ("draw", "model", "zoe", "--out"),
    ("describe", "f.tsv", "--plot"),
    ("evaluate", "model", "--out"),
    ("evaluate", "model", "--ranks"),
    ("mine", "f.tsv", "--out"),
    ("data", "convert", "f.tsv"),
    ("rules", "convert", "f.tsv"),
    ("reproduce", "report", "--page"),
]


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_a_file_in_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path, words):
    (tmp_path / "f.tsv").write_text("a\tr\tb\n")
    before = sorted(tmp_path.rglob("*"))
    name = {"draw": "x.png", "--plot": "x.png", "--ranks": "x.parquet"}.get(words[-1], "x.tsv")
    said = sentence(call(*words, f"no/{name}", cwd=tmp_path))
    assert said == f"newcomer: no/{name}: there is no folder no; make it first, or choose another place"
    assert sorted(tmp_path.rglob("*")) == before


def test_what_can_only_be_switched_on_may_be_switched_on_twice():
    assert call("data", "list", "--json", "--json").returncode == 0
