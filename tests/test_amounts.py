"""Times and sizes as people type them (`newcomer.cli.amounts`), and what is answered to anything else."""

import pytest

from command_line import call, sentence
from conftest import complaint
from newcomer.cli.amounts import bytes_of, seconds_of
from newcomer.cli.train import limits_of
from newcomer.data import write_dataset
from training_world import world

TIMES = {
    "90": 90, "90s": 90, " 90 S ": 90, "10m": 600, "10min": 600, "10 min": 600, "1.5h": 5400, "2H": 7200, "1d": 86400,
    "0.25m": 15, "none": None, "None": None,
}  # fmt: skip
SIZES = {
    "1": 1, "500M": 5e8, "500MB": 5e8, "500 mb": 5e8, "4G": 4e9, "4GiB": 4e9, "0.5g": 5e8, "1T": 1e12,
    "64k": 64e3, "none": None,
}  # fmt: skip
NONSENSE = [
    "",
    " ",
    "0",
    "0s",
    "-5",
    "-5m",
    "ten",
    "1h30m",
    "10x",
    "1e3",
    "inf",
    "nan",
    "m",
    "1.",
    ".5",
    "1,5h",
    "5 5",
    "٣m",
]


@pytest.mark.parametrize(("text", "seconds"), TIMES.items())
def test_a_time(text, seconds):
    assert seconds_of(text, "--time") == seconds


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_a_size(text, size):
    assert bytes_of(text, "--memory") == size


@pytest.mark.parametrize("text", NONSENSE)
def test_anything_else_is_refused_with_examples(text):
    assert str(complaint(seconds_of, text, "--time")).endswith(", but must be like 90s, 10m, 2h or none")
    assert str(complaint(bytes_of, text, "--memory")).endswith(", but must be like 500M, 4G or none")


@pytest.mark.parametrize("text", ["10k", "10g", "10sin", "10in", "10min min"])
def test_what_is_a_size_or_a_slip_is_no_time(text):
    assert repr(text) in str(complaint(seconds_of, text, "--time")).replace('"', "'")


@pytest.mark.parametrize("text", ["10m10", "10h", "4B", "4i", "noneb"])
def test_what_is_a_time_or_a_slip_is_no_size(text):
    assert repr(text) in str(complaint(bytes_of, text, "--memory")).replace('"', "'")


def test_a_cpu_has_a_quarter_of_an_hour_where_nothing_is_said():
    assert limits_of("auto", "none", "cpu").seconds == limits_of("AUTO", "none", "cpu").seconds == 900
    assert limits_of("auto", "none", "cuda").seconds is None
    assert limits_of("none", "none", "cpu").seconds is None
    given = limits_of("2m", "4G", "cuda")
    assert (given.seconds, given.memory) == (120, 4e9)


@pytest.mark.parametrize("words", [("--time", "soon"), ("--time", "-5m"), ("--memory", "much"), ("--memory", "0")])
def test_a_mistake_is_one_sentence_and_leaves_nothing(tmp_path, words):
    write_dataset(world(), tmp_path / "town")
    said = sentence(call("train", "town", "--out", "m", *words, cwd=tmp_path))
    assert said.startswith(f"newcomer: {words[0]} is '{words[1]}', but must be like ")
    assert [path.name for path in tmp_path.iterdir()] == ["town"]
