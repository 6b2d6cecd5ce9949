"""Whatever was added, removed and asked before, answers are those of a fresh model with the same facts, to the bit.

Covers newcomer.predictor.fact_store and newcomer.models.embedding.newcomers.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from newcomer.models.bundle import Bundle, read_bundle, write_bundle
from newcomer.models.vn.encoder import VNQueryTable as QueryTable
from newcomer.predictor import Predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import lives, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
Triple = tuple[str, str, str]
TIES = [("q0", "knows", "q1"), ("q3", "knows", "q3"), ("club", "city_in", "land1"), ("p00", "member_of", "club")]
DATASET = world(aux=[*parts()["aux"], *TIES])
STORED = sorted(DATASET.auxiliary.named())
NEW = [f"new{i}" for i in range(6)]
# Newcomers come by themselves, tied to those who are stored, and tied to each other.
POOL = sorted(
    {
        *STORED,
        *(lives(name, i) for i, name in enumerate(NEW)),
        *((name, "knows", f"p{3 * i:02}") for i, name in enumerate(NEW)),
        *((f"p{2 * i:02}", "knows", name) for i, name in enumerate(NEW[:3])),
        *((name, "knows", NEW[i - 1]) for i, name in enumerate(NEW) if i % 2),
        ("new2", "knows", "q1"),
        ("new4", "citizen_of", "land2"),
        ("q2", "lives_in", "city5"),
    }
)
BLENDED = ("model.ensemble=yes", "model.constrained=no")
HEARING = (*BLENDED, "model.graph_statistics=yes")
NAMING = ("protocol=refreshed", "rules.kinds=one,two,both,constant,exists")


@cache
def trained(*changes: str) -> Bundle:
    fitted = fit(DATASET, settings("training.epochs=1", *changes), device="cpu")
    with TemporaryDirectory() as folder:
        write_bundle(Path(folder) / "m", fitted.bundle(DATASET))
        return read_bundle(Path(folder) / "m")


def newcomers_of(facts: set[Triple], predictor: Predictor) -> set[str]:
    return {name for fact in facts for name in fact[::2] if predictor.names.seen(name) < 0}


def fresh(bundle: Bundle, facts: set[Triple]) -> Predictor:
    """A model loaded anew, with these facts of newcomers and no others."""
    predictor = Predictor(bundle, threads=1)
    for name in predictor.newcomers:
        mine = {fact for fact in STORED if name in fact[::2]}
        if name in predictor and not mine <= facts:
            predictor.remove(name)
    predictor.add(sorted(facts))
    return predictor


def everything(predictor: Predictor) -> list[bytes]:
    """Every vector and every answer to every question, to the bit."""
    engine, snapshot = predictor.engine, predictor._snapshot
    names = [*predictor.names.entities.names_of(range(predictor.names.num_seen)), *predictor.newcomers]
    ids = [snapshot.id(name) for name in names]
    vectors = [predictor.embed(name, relation).tobytes() for name in names for relation in (None, "knows")]
    asked = [(entity, relation) for entity in ids for relation in range(2 * len(predictor.relations))]
    return [*vectors, *(engine.scores(snapshot.graph, *query)[ids].tobytes() for query in asked)]


class History:
    """A model that is changed, and the facts it should have."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle, self.predictor, self.facts = bundle, Predictor(bundle, threads=1), set(STORED)

    def add(self, facts: list[Triple]) -> None:
        added = self.predictor.add(facts)
        assert added.facts == len(set(facts) - self.facts)
        self.facts |= set(facts)

    def remove(self, name: str) -> None:
        before = newcomers_of(self.facts, self.predictor)
        self.facts = {fact for fact in self.facts if name not in fact[::2]}
        gone = before - newcomers_of(self.facts, self.predictor)
        assert set(self.predictor.remove(name)) == gone

    def ask(self, name: str, relation: str) -> None:
        answers = self.predictor.tails(name, relation, k=5)
        scores = [answer.score for answer in answers]
        assert scores == sorted(scores, reverse=True)
        assert all((name, relation, answer.entity) not in self.facts for answer in answers)

    def check(self) -> None:
        other = fresh(self.bundle, self.facts)
        assert list(self.predictor.newcomers) == sorted(newcomers_of(self.facts, other)) == list(other.newcomers)
        assert everything(self.predictor) == everything(other)


@pytest.mark.parametrize(
    ("changes", "operations"),
    [
        (BLENDED, 4_000),
        ((*BLENDED, "model.graph_statistics=yes"), 1_000),
        ((*HEARING, "model.propagation=yes", "training.propagation_steps=5"), 300),
        ((), 200),
        (NAMING, 40),
        (("model.encoder=lan",), 100),
    ],
    ids=str,
)
def test_any_history_leaves_the_answers_of_a_fresh_model(changes, operations):
    rng, history = np.random.default_rng(3), History(trained(*changes, "rules.paths=no"))
    for step in range(operations):
        there, turn = history.predictor.newcomers, rng.random()
        if turn < 0.35 or not there:
            history.add([POOL[i] for i in rng.integers(len(POOL), size=rng.integers(1, 4))])
        elif turn < 0.6:
            history.remove(there[rng.integers(len(there))])
        else:
            names = [*there, "p00", "city1"]
            history.ask(names[rng.integers(len(names))], DATASET.relations[int(rng.integers(len(DATASET.relations)))])
        if (step + 1) % 2_000 == 0 or step + 1 == operations:
            history.check()


class AnyHistory(RuleBasedStateMachine):
    """The same with histories that hypothesis makes up, and shortens when one goes wrong."""

    @initialize()
    def load(self) -> None:
        torch.set_num_threads(1)
        self.history = History(trained("rules.walks=20"))

    @rule(facts=st.lists(st.sampled_from(POOL), min_size=1, max_size=6))
    def add(self, facts: list[Triple]) -> None:
        self.history.add(facts)

    @precondition(lambda self: self.history.predictor.newcomers)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.history.remove(data.draw(st.sampled_from(self.history.predictor.newcomers)))

    @rule(relation=st.sampled_from(list(DATASET.relations)), data=st.data())
    def ask(self, relation: str, data: st.DataObject) -> None:
        names = [*self.history.predictor.newcomers, "p00", "land1"]
        self.history.ask(data.draw(st.sampled_from(names)), relation)

    @invariant()
    def candidates_are_in_order(self) -> None:
        snapshot = self.history.predictor._snapshot
        names = sorted(newcomers_of(self.history.facts, self.history.predictor))
        assert snapshot.newcomers == names == sorted(snapshot.store)
        ids = [snapshot.id(name) for name in names]
        present = np.flatnonzero(snapshot.graph.is_present)
        assert sorted(ids) == present[present >= snapshot.names.num_seen].tolist()
        for name, entity in zip(names, ids, strict=True):
            slot = snapshot.graph.slot(entity)
            assert snapshot.name_of(entity) == name
            assert name not in snapshot.slots or slot == snapshot.slots[name]

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.check()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = hypothesis_settings(max_examples=5, stateful_step_count=20, deadline=None)


def test_what_comes_and_goes_leaves_nothing_behind():
    predictor = Predictor(trained(*BLENDED, "rules.paths=no"), threads=1)
    for number in range(30):
        predictor.add([lives(f"guest{number}", number), (f"guest{number}", "knows", "q0")])
        predictor.remove(f"guest{number}")
    snapshot = predictor._snapshot
    assert not snapshot.slots and not snapshot.store.changed


@pytest.mark.parametrize("residual", ["yes", "no"])
def test_a_crowd_is_embedded_as_its_members_are(residual):
    bundle = trained(*BLENDED, f"model.residual={residual}")
    engine = Predictor(bundle, threads=1).engine
    embedder, encoded = engine.encoder, engine.initial.members[0].encoded
    with torch.no_grad():
        for states, first in ((embedder.states, 0), (encoded.states, len(encoded.near))):
            places = torch.arange(first, len(states.layers[0]))
            table = QueryTable(embedder.encoder.query, states, first)
            for query in range(2 * embedder.num_relations):
                wanted = embedder.encoder.embed(states, places, torch.full_like(places, query))
                assert torch.equal(table.vectors_for(query), wanted) and wanted.std() > 0


def test_many_who_arrived_together_are_a_crowd(monkeypatch):
    bundle = trained(*BLENDED, "rules.paths=no")
    usual = everything(Predictor(bundle, threads=1))
    monkeypatch.setattr("newcomer.models.embedding.newcomers.MANY", 2)
    assert everything(Predictor(bundle, threads=1)) == usual


def test_without_stored_newcomers_nobody_is_there():
    predictor = Predictor(replace(trained(*BLENDED, "rules.paths=no"), auxiliary=None), threads=1)
    assert predictor.newcomers == () and not predictor._snapshot.graph.is_present[predictor.names.num_seen :].any()
    predictor.add([lives("Nemo", 1)])
    assert predictor.newcomers == ("Nemo",) and len(predictor.tails("Nemo", "knows", k=100)) == 34
