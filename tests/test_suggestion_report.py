"""What is suggested about newcomers of whom relations are masked: the figures of a report.

Covers newcomer.evaluation.suggest and newcomer.evaluation.suggestions.
"""

from functools import cache

import pytest

import newcomer
from newcomer.data.cut import FactsCut
from newcomer.errors import OptionError
from newcomer.models.bundle import Bundle
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import NEWCOMERS, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
MORE = [(f"q{i}", "knows", f"p{i + step:02}") for i in range(NEWCOMERS) for step in (5, 9)]
DATASET = world(aux=[*parts()["aux"], *MORE])


@cache
def trained() -> Bundle:
    changes = ("model.ensemble=yes", "model.graph_statistics=yes")
    return fit(DATASET, settings(*changes), threads=1).bundle(DATASET)


def test_figures_follow_from_what_was_suggested():
    report = newcomer.evaluate(trained(), DATASET, task="suggest", by=["facts", "relation"], threads=1)
    assert report["newcomers"] > 0 and 0 < report["masked"] <= report["missing"]
    from_half = report["thresholds"][0]
    right = from_half["right"] * from_half["suggestions"] if from_half["suggestions"] else 0.0
    assert report["metrics"]["recall@0.5"] == pytest.approx(right / report["missing"])
    assert report["metrics"]["precision@0.5"] == from_half["right"]
    counts = [level["suggestions"] for level in report["thresholds"]]
    assert counts == sorted(counts, reverse=True)
    for by, column in (("facts", "newcomers"), ("facts", "suggestions"), ("relation", "suggestions")):
        total = sum(row[column] for row in report["breakdowns"] if row["by"] == by)
        assert total == (report["newcomers"] if column == "newcomers" else from_half["suggestions"])


def test_facts_that_a_cut_withholds_are_not_counted_as_masked():
    report = newcomer.evaluate(trained(), DATASET, task="suggest", cut=FactsCut(2), threads=1)
    known = report["known_facts"]
    # Each keeps one fact at least of those that the cut leaves.
    assert known["withheld"] > 0 and 0 < report["masked"] <= known["kept"] - report["newcomers"]


def test_a_breakdown_that_suggestions_do_not_have_is_said_in_a_sentence():
    with pytest.raises(OptionError, match="unknown breakdown of suggestions 'class'"):
        newcomer.evaluate(trained(), DATASET, task="suggest", by=["class"], threads=1)
