"""Paths by an entity's own facts: a loaded model says of everyone what an examination of the same facts does."""

import numpy as np
import pytest
import torch

from newcomer.models.propagation.wide import path_scorer
from newcomer.models.serialisation import paths_of
from newcomer.predictor import Predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import FOLDED, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
TIES = [("q0", "knows", "q1"), ("q3", "knows", "q3"), ("q2", "flies_to", "city1")]
DATASET = world(aux=[*parts()["aux"], *TIES])
CHANGES = (*FOLDED, "model.ensemble=yes", "model.propagation=yes", "training.propagation_steps=6", "training.epochs=2")


def test_what_is_said_is_what_an_examination_finds_and_who_else_came_changes_nothing():
    bundle = fit(DATASET, settings(*CHANGES), device="cpu").bundle(DATASET)
    network, predictor = paths_of(bundle), Predictor(bundle, threads=1)
    new = [("a_new", "lives_in", "city2"), ("a_new", "knows", "other"), ("other", "lives_in", "city3")]
    predictor.add(new)
    now = world(aux=[*parts()["aux"], *TIES, *new])
    assert network is not None and predictor._mind.own_paths is not None
    scorer = path_scorer(network, now, int(now.is_seen.sum()), CPU, wide=False)
    state, at = predictor._state, now.entities.id
    candidates = [at(state.name_of(place)) for place in range(state.num_candidates)]
    before = Predictor(bundle, threads=1)
    for name in ("a_new", "q0", "q3", "p03"):
        for relation in range(2 * len(now.relations)):
            found = predictor._mind.own_paths.say(state, name, relation)
            wanted = scorer.scores(np.array([at(name)]), np.array([relation]))[0]
            np.testing.assert_allclose(found, wanted[candidates], rtol=1e-4, atol=1e-5)
            if name != "a_new":
                alone = before._mind.own_paths.say(before._state, name, relation)
                assert np.array_equal(found[: state.names.num_seen], alone[: state.names.num_seen])


def test_a_relation_that_nobody_seen_has_is_not_asked():
    bundle = fit(DATASET, settings(*CHANGES), device="cpu").bundle(DATASET)
    predictor = Predictor(bundle, threads=1)
    paths, flies = predictor._mind.own_paths, predictor._mind.names.relations.id("flies_to")
    assert paths is not None and not paths.say(predictor._state, "q2", flies).any()
    assert paths.ways(predictor._state, "q2", flies, "city1") == ()
