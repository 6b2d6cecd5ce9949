"""The demo runs every command it shows and prints the same text twice; with a model hardly trained."""

import runpy
import sys
from pathlib import Path

import pytest

from newcomer.graph import Vocabulary
from newcomer.rules.rule import parse_rule
from nn_oracle import one_thread

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DEMO = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "demo.py"))
QUICK = [
    "training.epochs=1",
    "training.batches=3",
    "training.validate_every=1",
    "model.dim=8",
    "rules.walks=10",
]


def output_of(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[str, bytes]:
    folder.mkdir()
    monkeypatch.chdir(folder)
    DEMO["run_all"](Path("demo"), QUICK)
    return capsys.readouterr().out, (folder / "demo" / "newcomer.png").read_bytes()


def test_the_same_output_twice_with_all_chapters(tmp_path, monkeypatch, capsys):
    text, picture = output_of(tmp_path / "once", monkeypatch, capsys)
    assert (text, picture) == output_of(tmp_path / "again", monkeypatch, capsys)
    shown = [line for line in text.splitlines() if line.startswith("$ newcomer ")]
    assert [line.split()[2] for line in shown] == [
        "describe",
        "split",
        "mine",
        "train",
        "evaluate",
        "suggest",
        "explain",
        "draw",
    ]
    assert "rules alone" in text and "Of 100 such queries the model has the right answer first in " in text
    assert "if A in_region B and B part_of C, then A on_continent C: 99 of 100, 131 times" in text
    assert "in_region(Atlantis, Southern Europe)" in text and picture.startswith(b"\x89PNG")


def test_durations_are_left_out_and_nothing_else():
    assert (
        DEMO["DURATION"].sub("", "148 rules in 5.6 s, written; in demo, after 1,094 s") == "148 rules, written; in demo"
    )
    assert DEMO["DURATION"].sub("", "after 16 epochs, in 3 sets") == "after 16 epochs, in 3 sets"


def test_a_rule_is_a_sentence():
    relations = Vocabulary(["borders", "in_region"])
    rule = parse_rule("borders(z,x), in_region(z,y) => in_region(x,y)", relations)
    assert DEMO["in_words"](rule, list(relations)) == "if B borders A and B in_region C, then A in_region C"


@pytest.mark.parametrize(("better", "says"), [(0.5, False), (0.9, True)])
def test_the_verdict_says_when_rules_alone_do_better(better, says):
    model, rules = {"mrr": 0.7, "hits@1": 0.61, "hits@10": 0.8}, {"mrr": better, "hits@1": 0.5, "hits@10": 0.98}
    text = DEMO["verdict"]({"metrics": model, "rules": [{"metrics": rules}]})
    assert "first in 61 and among its first ten in 80" in text and "alone in 50 and 98." in text
    assert text.endswith("the rules alone do better.") == says


def test_a_wrong_setting_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--set", "model.dim=none of these"])
    with pytest.raises(SystemExit) as ended:
        DEMO["main"]()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("demo: model.dim is ")
