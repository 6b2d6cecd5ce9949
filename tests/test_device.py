"""The same numbers, however many threads there are: what weights are learned from, and the weights.

Covers newcomer.models.device.
"""

import numpy as np
import torch

from conftest import make_dataset
from newcomer.config import load_preset, with_overrides
from newcomer.graph import InductiveDataset
from newcomer.models.device import one_thread
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers
from newcomer.training.pipeline import Fitted, fit

SMALL = (
    "training.epochs=1",
    "training.validation_rate=0",
    "rules.kinds=[]",
    "rules.paths=false",
    "model.labels=none",
    "model.ensemble=false",
    "model.graph_statistics=false",
    "model.propagation=false",
)


def town(entities: int = 4_000, facts: int = 6_000, newcomers: int = 40) -> InductiveDataset:
    """Large enough that torch shares its sums out."""
    rng = np.random.default_rng(0)
    heads, tails = rng.integers(entities, size=(2, facts))
    kinds = rng.integers(3, size=facts)
    told = {(f"e{h}", f"r{k}", f"e{t}") for h, k, t in zip(heads, kinds, tails, strict=True)}
    aux = [(f"n{who}", f"r{kind}", f"e{heads[who * 3 + kind]}") for who in range(newcomers) for kind in range(3)]
    return make_dataset(train=sorted(told), aux=aux, test=[("n0", "r0", "e1")])


def scores_of(fitted: Fitted) -> np.ndarray:
    dataset = fitted.dataset
    engine = InferenceEngine(fitted.model, StoredNewcomers(dataset.auxiliary.triples))
    scorer, asked = SnapshotScorer(engine, engine.initial), dataset.newcomers.astype(np.int32)
    return scorer.scores(asked, np.repeat([0, 1, 2, 3, 4, 5], [1, 5, 6, 7, 9, 12]).astype(np.int32))  # few of each


def test_newcomers_are_scored_alike_with_any_number_of_threads():
    before, found = torch.get_num_threads(), []
    fitted = fit(town(), with_overrides(load_preset("default"), list(SMALL)), device="cpu", threads=1)
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(scores_of(fitted))
    finally:
        torch.set_num_threads(before)
    assert np.isfinite(found[0]).all() and np.array_equal(*found)


def test_threads_are_as_many_as_before_afterwards():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with one_thread():
            assert torch.get_num_threads() == 1
            with one_thread():
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
