"""What a CPU can afford: propagation where messages stay near their source, or where embeddings take as long."""

import numpy as np
import pytest

from conftest import make_dataset
from newcomer.config import load_preset, with_overrides
from newcomer.graph import InductiveDataset
from newcomer.models.serialisation import PROPAGATION, load_model, part_weights
from newcomer.training import propagation as cost_model
from newcomer.training.pipeline import fit
from newcomer.training.propagation import affords_propagation, frontier_stays_local
from training_world import FOLDED, StopAfter, Stopped, settings, world

AUTO = (*FOLDED, "model.ensemble=yes", "model.propagation=auto", "training.propagation_steps=6", "training.epochs=2")


def graph(entities: int, facts: int, near: int) -> InductiveDataset:
    """Each joined to others nearby only, or (0) to any."""
    rng = np.random.default_rng(0)
    heads = rng.integers(entities, size=facts)
    tails = heads + 1 + rng.integers(near, size=facts) if near else rng.integers(entities, size=facts)
    kinds = rng.integers(5, size=facts)
    rows = {(f"e{h}", f"r{k}", f"e{t % entities}") for h, k, t in zip(heads, kinds, tails, strict=True)}
    return make_dataset(train=sorted(rows), aux=[], test=[])


@pytest.mark.parametrize(
    ("entities", "facts", "near", "affords"),
    [(8_000, 10_000, 3, True), (8_000, 60_000, 0, False), (800, 1_000, 3, False)],
)
def test_a_cpu_affords_what_stays_nearby(entities, facts, near, affords):
    dataset = graph(entities, facts, near)
    assert affords_propagation(dataset, load_preset("default")) is affords
    assert frontier_stays_local(dataset.observed, len(dataset.entities)) is (near > 0)


def test_what_it_affords_goes_by_what_embeddings_take(monkeypatch):
    monkeypatch.setattr(cost_model, "CHEAP", 0.0)
    dataset = graph(8_000, 10_000, 3)
    small = with_overrides(load_preset("default"), ["model.dim=20"])
    quick, slow = (with_overrides(small, [f"training.epochs={many}"]) for many in (1, 1_000))
    assert not affords_propagation(dataset, quick) and affords_propagation(dataset, slow)
    few_compared = ["model.encoder=vn", "model.answers_by_input=false", "training.negatives=4"]
    assert not affords_propagation(dataset, with_overrides(slow, few_compared))
    fewer = with_overrides(load_preset("default"), ["training.propagation_steps=400"])
    assert not affords_propagation(dataset, with_overrides(fewer, ["training.epochs=1000"]))


def test_without_a_search_both_are_trained_once(monkeypatch):
    monkeypatch.setattr(cost_model, "CHEAP", 0.0)
    dataset, config = graph(8_000, 10_000, 3), load_preset("default")
    steps = cost_model.num_steps(len(dataset.observed), 4_000)
    propagation = steps * cost_model.BATCH * cost_model._query_seconds(dataset)
    embeddings = cost_model._embedding_seconds(dataset, config)
    for change, afforded in (((), 2 / 1.3), (("training.validation_rate=0",), 1.0), (("training.final_fit=no",), 1.0)):
        changed = with_overrides(config, list(change))
        for times, affords in ((0.99, False), (1.01, True)):
            monkeypatch.setattr(cost_model, "MAX_RATIO", times * propagation / embeddings / afforded)
            assert affords_propagation(dataset, changed) is affords


def test_a_fit_trains_propagation_where_it_is_cheap(monkeypatch, tmp_path):
    assert fit(world(), settings(*AUTO), device="cpu").model.propagation is None  # there is too little to learn from
    monkeypatch.setattr(cost_model, "MIN_STEPS", 1)
    dense = fit(world(), settings(*AUTO), device="cpu")
    assert dense.model.propagation is not None and not dense.model.propagation.is_sparse  # messages reach everyone here
    monkeypatch.setattr("newcomer.training.pipeline.frontier_stays_local", lambda *_: True)
    whole = fit(world(), settings(*AUTO), device="cpu")
    assert (
        whole.model.propagation is not None
        and whole.model.propagation.is_sparse
        and whole.config.model.propagation is True
    )
    stored = load_model(whole.bundle(world())).propagation
    assert stored is not None and stored.is_sparse
    with pytest.raises(Stopped):
        fit(world(), settings(*AUTO), device="cpu", folder=tmp_path, report=StopAfter(3))
    monkeypatch.undo()
    resumed = fit(world(), settings(*AUTO), device="cpu", folder=tmp_path, resume=True)
    assert resumed.model.propagation is not None
    kept, wanted = (part_weights(PROPAGATION, one.model.propagation) for one in (resumed, whole))
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)
