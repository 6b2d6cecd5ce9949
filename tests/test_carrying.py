"""Thresholds on their way from the search's model to the final one, by false triples about doubles of the seen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from newcomer.bundle import read_bundle, write_bundle
from newcomer.graph import InductiveDataset
from newcomer.tasks.triple_classification import labelled
from newcomer.training import carrying
from newcomer.training.carrying import FALSE, FOUND, carried, false_facts, medians, with_doubles
from newcomer.training.fit import fit
from newcomer.training.preparation import seen_count
from newcomer.training.validation import Exam, hold_out_newcomers
from nn_oracle import one_thread
from training_world import StopAfter, Stopped, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)


def judged_world() -> InductiveDataset:
    dataset, rng = world(), np.random.default_rng(0)
    return replace(dataset, **{part: labelled(dataset, getattr(dataset, part), rng) for part in ("valid", "test")})


DATASET = judged_world()


def exam() -> Exam:
    return hold_out_newcomers(DATASET, settings())


def test_false_facts_are_facts_of_the_search_with_another_tail(monkeypatch):
    monkeypatch.setattr(carrying, "DRAWN", 40)
    asked = exam()
    false, observed = false_facts(asked, 0), asked.dataset.observed
    assert set(false.named()).isdisjoint(observed.named())
    assert {row[:2] for row in false.named()} <= {row[:2] for row in observed.named()}
    assert asked.dataset.is_seen[false.triples.tails].all() and 20 < len(false) <= 40
    assert set(false.named()) == set(false_facts(asked, 0).named()) != set(false_facts(asked, 1).named())


@pytest.mark.parametrize(("unseen", "heads", "tails"), [("subject", 1, 0), ("object", 0, 1), ("both", 1, 1)])
@pytest.mark.parametrize("final", [False, True])
def test_doubles_know_what_their_originals_do(unseen, heads, tails, final):
    asked = exam()
    dataset = DATASET if final else asked.dataset  # drawn from one, asked of either
    false = false_facts(asked, 0)
    doubles = with_doubles(dataset, false, unseen)
    seen = seen_count(dataset.observed)
    names, copies = list(dataset.entities)[:seen], doubles.entities.names_of(range(seen, len(doubles.entities)))
    assert list(doubles.entities)[:seen] == names and set(doubles.observed.named()) == set(dataset.observed.named())
    original = {copy: dataset.entities[int(copy[1:])] for copy in copies}
    new = {name for row in false.named() for name, end in ((row[0], heads), (row[2], tails)) if end}
    assert sorted(original.values()) == sorted(new)
    told = list(doubles.auxiliary.named())
    for copy, name in original.items():
        mine = sorted((copy if h == name else h, r, copy if t == name else t) for h, r, t in _of(dataset, name))
        assert sorted(row for row in told if copy in row) == mine
    rows = [tuple(doubles.entities[int(end)] for end in row[::2]) for row in doubles.test.rows]
    assert all((head in original) == heads and (tail in original) == tails for head, tail in rows)
    assert {(original.get(h, h), original.get(t, t)) for h, t in rows} == {row[::2] for row in false.named()}


def _of(dataset: InductiveDataset, name: str) -> list[tuple[str, str, str]]:
    """An entity's facts, but for loops: those would tie a double to itself."""
    return [row for row in dataset.observed.named() if name in row[::2] and row[0] != row[2]]


class Scores:
    """Each triple by a number of its own, further up for some relations."""

    def __init__(self, ups: dict[int, float]) -> None:
        self.ups = ups

    def triple_scores(self, heads, relations, tails):
        plain = np.random.default_rng(0).normal(size=len(heads))
        return (plain + [self.ups.get(int(relation), 0.0) for relation in relations]).astype(np.float32)


def test_thresholds_move_with_what_is_false(monkeypatch):
    monkeypatch.setattr(carrying, "ENOUGH", 5)
    doubles = with_doubles(DATASET, false_facts(exam(), 0), "subject")
    counts = np.bincount(doubles.test.relations, minlength=len(DATASET.relations))
    often, names = int(np.argmax(counts)), list(DATASET.relations)
    then, now = (medians(Scores(ups), doubles) for ups in ({}, {often: 3.0}))
    assert set(then["relations"]) == {name for name, count in zip(names, counts, strict=True) if count >= 5}
    rare = "a relation without any false one"
    found = {"overall": 0.5, "relations": {names[often]: 1.0, rare: 2.0}, "triples": 7, FALSE: then}
    moved = carried(found, now)
    everywhere = now["overall"] - then["overall"]
    assert moved["relations"][names[often]] == pytest.approx(4.0, abs=1e-5) and 0 < everywhere < 3
    assert moved["relations"][rare] == pytest.approx(2.0 + everywhere)
    assert moved["overall"] == pytest.approx(0.5 + everywhere) and moved["triples"] == 7
    assert moved[FOUND] == {"overall": 0.5, "relations": found["relations"]}
    same = carried(found, then)
    assert (same["overall"], same["relations"]) == (0.5, found["relations"])


def test_a_network_keeps_thresholds_of_its_own_scale(tmp_path: Path):
    model = fit(DATASET, settings(), device="cpu")
    found = model.metrics["thresholds"]
    assert found["overall"] != found[FOUND]["overall"] and not found["made_up"]
    write_bundle(tmp_path / "m", model.bundle(DATASET))
    stored = read_bundle(tmp_path / "m").thresholds
    assert stored is not None and stored.overall == found["overall"]
    searched = fit(DATASET, settings("training.final_fit=no"), device="cpu").metrics["thresholds"]
    assert FOUND not in searched and searched["overall"] == found[FOUND]["overall"]
    assert searched[FALSE] == found[FALSE]


def test_a_resumed_training_has_the_same_thresholds(tmp_path: Path):
    whole = fit(DATASET, settings(), device="cpu")
    with pytest.raises(Stopped):  # in the final phase
        fit(DATASET, settings(), device="cpu", folder=tmp_path, report=StopAfter(len(whole.history) - 1))
    resumed = fit(DATASET, settings(), device="cpu", folder=tmp_path, resume=True)
    assert resumed.metrics["thresholds"] == whole.metrics["thresholds"]


def test_where_everything_drawn_is_true_thresholds_stay(monkeypatch):
    monkeypatch.setattr(carrying, "DRAWN", 0)
    found = fit(DATASET, settings(), device="cpu").metrics["thresholds"]
    assert FALSE not in found and FOUND not in found and np.isfinite(found["overall"])


def test_made_up_triples_and_judges_need_no_doubles():
    assert FALSE not in fit(world(), settings(), device="cpu").metrics["thresholds"]
    judged = fit(DATASET, settings("model.judge=yes"), device="cpu").metrics["thresholds"]
    assert FALSE not in judged and FOUND not in judged
