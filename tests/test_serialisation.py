"""A fitted model and its folder: read back, it scores exactly as before; what does not fit is refused."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import complaint
from newcomer.evaluation.alignment import scorer_for
from newcomer.graph import Ids, InductiveDataset, Overlay, seen_count
from newcomer.models.bundle import Bundle, read_bundle, write_bundle
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers
from newcomer.models.ensemble import FEATURES
from newcomer.models.rule_engine import ground
from newcomer.models.serialisation import (
    BESIDE,
    ENSEMBLE,
    LABELS,
    NEWCOMER_LABELS,
    NEWCOMER_VECTORS,
    load_engine,
    load_model,
    weights_of,
)
from newcomer.predictor import Predictor
from newcomer.rules.virtual_neighbors import VirtualNeighbors
from newcomer.training.pipeline import Fitted, fit
from nn_oracle import ENCODER_DECODERS, one_thread
from training_world import choosing, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()


def stored(fitted: Fitted, folder: Path, dataset: InductiveDataset = DATASET) -> Bundle:
    write_bundle(folder, fitted.bundle(dataset))
    return read_bundle(folder)


def fitted_engine(fitted: Fitted) -> InferenceEngine:
    """A model asked before it is written, with nothing that was inferred for it."""
    return InferenceEngine(fitted.model, StoredNewcomers(fitted.dataset.auxiliary.triples))


def scores(engine: InferenceEngine) -> bytes:
    """Of every answer to every query, newcomers included."""
    size, relations = engine.overlay.num_entities, 2 * engine.overlay.num_relations
    asked: Ids = np.arange(size * relations, dtype=np.int32)
    return SnapshotScorer(engine, engine.initial).scores(asked // relations, asked % relations).tobytes()


@pytest.mark.parametrize(("encoder", "decoder"), ENCODER_DECODERS)
def test_a_model_read_back_scores_exactly_as_the_fitted_one(tmp_path, encoder, decoder):
    config = settings(*choosing(encoder), f"model.decoder={decoder}", "training.epochs=1", "rules.walks=200")
    fitted = fit(DATASET, config)
    engine = load_engine(stored(fitted, tmp_path / "m"))
    model = engine.model
    assert len(model.labels) > 0 and torch.equal(model.labels, fitted.model.labels) and not model.embedding.training
    assert scores(engine) == scores(fitted_engine(fitted))
    assert torch.equal(model.graph.virtual, fitted.model.graph.virtual)


@pytest.mark.parametrize(
    "changes",
    [
        ["protocol=refreshed"],
        ["protocol=transductive"],
        ["training.final_fit=no"],
        ["protocol=transductive", "training.final_fit=no"],
        ["model.labels=none"],
        ["model.labels=hard"],
        ["rules.kinds="],
        ["rules.kinds=one,two,both,constant,exists"],
        ["model.ensemble=yes", "model.constrained=no"],
        ["training.validation_rate=0", "seed=11"],
    ],
    ids=" ".join,
)
def test_so_does_one_of_any_protocol(tmp_path, changes):
    fitted = fit(DATASET, settings("training.epochs=1", *changes))
    bundle = stored(fitted, tmp_path / "m")
    found = scores(load_engine(bundle, torch.device("cpu"), threads=2))
    assert found == scores(fitted_engine(fitted))
    again = InferenceEngine(load_model(bundle), StoredNewcomers(fitted.dataset.auxiliary.triples))
    assert found == scores(again)
    assert list(bundle.observed.named()) == list(fitted.dataset.observed.named())
    assert (bundle.auxiliary is not None) == (len(fitted.dataset.auxiliary) > 0)


SETTINGS = [
    (),
    ("model.constrained=no", "model.ensemble=yes"),
    ("model.labels=hard",),
    ("protocol=refreshed", "rules.kinds=one,two,both,constant,exists", "rules.max_per_entity=3"),
]


@pytest.mark.parametrize("changes", SETTINGS, ids=" ".join)
def test_what_is_stored_is_what_would_be_inferred_again(tmp_path, changes):
    bundle = stored(fit(DATASET, settings("training.epochs=1", "rules.walks=200", *changes)), tmp_path / "m")
    bare = {name: value for name, value in bundle.weights.items() if name in (LABELS, ENSEMBLE) or name not in BESIDE}
    old = replace(bundle, newcomer_neighbors=None, weights=bare)
    everyone = np.arange(seen_count(bundle.observed), dtype=np.int32)
    again = ground(bundle.rules, Overlay.of(bundle.observed), everyone, bundle.config, None)
    assert bundle.neighbors is not None and same_reasons(bundle.neighbors, again)
    quick, slow = Predictor(bundle, threads=1), Predictor(old, threads=1)
    assert quick.newcomers == slow.newcomers and len(quick.newcomers) == 4
    arrived, inferred = (
        one.engine.with_virtual_neighbors(one.engine.initial.members[0].encoded) for one in (quick, slow)
    )
    assert arrived.virtual is not None and len(arrived.virtual) and same_reasons(arrived.virtual, inferred.virtual)
    np.testing.assert_allclose(arrived.labels, inferred.labels, atol=1e-6)
    for name in ("q0", "q3", "p01", "city1"):
        assert [n.fact for n in quick.neighbors(name)] == [n.fact for n in slow.neighbors(name)]
        for relation in range(2 * len(quick.relations)):
            found = [one.engine.scores(one._snapshot.graph, one._snapshot.id(name), relation) for one in (quick, slow)]
            np.testing.assert_allclose(*found, atol=2e-6)


def same_reasons(one: VirtualNeighbors, other: VirtualNeighbors | None) -> bool:
    """The same triples for the same reasons; the rows of rules may be numbered otherwise."""
    assert other is not None
    same = np.array_equal(one.triples.rows, other.triples.rows) and np.array_equal(one.premises, other.premises)
    same &= np.array_equal(one.grounding_strength, other.grounding_strength)
    texts = [[found.rules[rule] for rule in found.grounding_rule[found.logic]] for found in (one, other)]
    return bool(same) and texts[0] == texts[1] and np.array_equal(one.offsets, other.offsets)


def test_the_same_run_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        stored(fit(DATASET, settings("training.epochs=2")), tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path


def test_weights_that_do_not_fit_are_refused(tmp_path):
    fitted = fit(DATASET, settings("training.epochs=1"))
    bundle = stored(fitted, tmp_path / "m")
    assert set(weights_of(fitted.model)) | set(BESIDE) - {ENSEMBLE, NEWCOMER_VECTORS} == set(bundle.weights)
    fewer = {name: value for name, value in bundle.weights.items() if name != LABELS}
    assert "the model has no labels" in str(complaint(load_model, replace(bundle, weights=fewer)))
    short = {**bundle.weights, NEWCOMER_LABELS: bundle.weights[NEWCOMER_LABELS][:-1]}
    assert "newcomer_labels, but needs" in str(complaint(Predictor, replace(bundle, weights=short)))
    cut = {**bundle.weights, "encoder.vectors": bundle.weights["encoder.vectors"][:-1]}
    assert "the weights do not fit the settings" in str(complaint(load_model, replace(bundle, weights=cut)))
    lost = {name: value for name, value in bundle.weights.items() if name != "encoder.vectors"}
    assert "the weights do not fit the settings" in str(complaint(load_model, replace(bundle, weights=lost)))


@pytest.mark.parametrize("row", [-1, 10**9])
def test_negatives_that_are_no_entities_are_refused(tmp_path, row):
    bundle = stored(fit(DATASET, settings(*choosing("foldin"), "training.epochs=1")), tmp_path / "m")
    drawn = bundle.weights["encoder.negatives"].copy()
    drawn[-1] = row
    other = replace(bundle, weights={**bundle.weights, "encoder.negatives": drawn})
    assert "encoder.negatives names no seen entities" in str(complaint(load_model, other))


@pytest.mark.parametrize("shape", [(3,), (4, len(FEATURES)), (3, 2), ()])
def test_an_ensemble_of_other_features_is_refused(tmp_path, shape):
    bundle = stored(fit(DATASET, settings("training.epochs=1")), tmp_path / "m")
    other = replace(bundle, weights={**bundle.weights, ENSEMBLE: np.ones(shape, dtype=np.float32)})
    for use in (Predictor, partial(scorer_for, dataset=DATASET)):
        text = str(complaint(use, other))
        assert text == "the ensemble's weights do not fit its features; train the model again with this version"
