"""The weights follow from who is right: what is learned from which queries, in a run and by itself.

Covers newcomer.training.ensemble; the tables of candidates are in test_examples.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from conftest import evaluate
from ensemble_world import NAMES, QUERIES, SAMPLE, TableEngine
from newcomer.config import load_preset, with_overrides
from newcomer.models.ensemble import KINDS, LINKED, RULE_RANK, ensemble_scores, feature_names
from newcomer.models.serialisation import ENSEMBLE
from newcomer.training.ensemble import (
    THINNED,
    few_weights_for,
    mean_reciprocal_rank,
    no_worse_than_rules,
    priors_of,
    weights_for,
)
from newcomer.training.examples import Examples, examples
from newcomer.training.pipeline import fit
from newcomer.training.preparation import mined_rules
from training_world import choosing, settings, world

PRIOR = priors_of(NAMES)


def examples_of(right: float, compared: int = 20_000) -> Iterator[Examples]:
    engine: Any = TableEngine(right)
    return examples(engine, SAMPLE, QUERIES, compared)


def learned_from(right: float) -> np.ndarray:
    """(3, features)"""
    usual, with_link = weights_for(list(examples_of(right)), NAMES)
    return np.stack([usual, 0 * usual, with_link])


class Weighed:
    """The ensemble with some weights."""

    def __init__(self, right: float, weights: np.ndarray) -> None:
        self.engine, self.weights = TableEngine(right), weights

    def scores(self, entities: np.ndarray, relations: np.ndarray) -> np.ndarray:
        signals = self.engine.signals_of_many(None, entities, relations)
        return np.stack([ensemble_scores(one, self.weights) for one in signals])


def test_before_any_query_is_looked_at_the_weights_are_the_priors():
    assert PRIOR.shape == (len(KINDS), len(NAMES)) and PRIOR[0].tolist() == pytest.approx(
        [0.4, 0.2, 0, 0.7, 2, 0.4, -3]
    )
    assert not PRIOR[1:].any()
    assert priors_of(feature_names(True, True))[0, 7:].tolist() == pytest.approx([0.2, 0.5])


@pytest.mark.parametrize(("right", "low", "high"), [(0.0, -0.3, 0.6 * PRIOR[0, 0]), (9.0, 1.2 * PRIOR[0, 0], 20.0)])
def test_an_embedding_that_is_right_is_believed_and_one_that_guesses_is_not(right, low, high):
    assert low < learned_from(right)[0, 0] < high


def alone(feature: int) -> np.ndarray:
    """(3, features): weights under which one feature decides."""
    weights = np.zeros_like(PRIOR)
    weights[0, feature] = 1.0
    return weights


@pytest.mark.parametrize("compared", [20_000, 3])
def test_tables_tell_how_weights_rank_the_answers_among_all_candidates(compared):
    batches = list(examples_of(3.0, compared))
    for weights in (PRIOR, alone(RULE_RANK), np.ones_like(PRIOR)):
        asked = evaluate(SAMPLE, Weighed(3.0, weights), queries=QUERIES).metrics()["mrr"]
        assert mean_reciprocal_rank(batches, weights) == pytest.approx(asked, rel=1e-4 if compared > 3 else 0.2)


def test_weights_that_rank_worse_than_the_rules_alone_are_mended_and_better_ones_stay():
    batches = list(examples_of(0.0))
    misled = 10 * alone(0)  # by an embedding that guesses
    rules = mean_reciprocal_rank(batches, alone(RULE_RANK))
    assert mean_reciprocal_rank(batches, misled) < rules
    mended = no_worse_than_rules(batches, misled)
    assert mean_reciprocal_rank(batches, mended) >= rules
    assert mended[0, RULE_RANK] > misled[0, RULE_RANK]
    assert no_worse_than_rules(batches, mended) is mended


def test_together_they_do_better_than_the_prior_on_what_they_were_weighed_on():
    learned = learned_from(3.0)
    guessed, weighed = (
        evaluate(SAMPLE, Weighed(3.0, weights), queries=QUERIES).metrics()["mrr"] for weights in (PRIOR, learned)
    )
    assert weighed >= guessed
    assert np.array_equal(learned, learned_from(3.0))


def test_an_embedding_that_is_right_about_those_who_are_linked_is_believed_there():
    """The features are noise but the embedding, which knows the answers that are linked, and the link."""
    rng, count, size = np.random.default_rng(0), 400, 30
    answers = torch.from_numpy(rng.integers(size, size=count))
    table = torch.from_numpy(rng.normal(size=(count, size, len(NAMES))).astype(np.float32))
    table[:, :, LINKED] = torch.from_numpy(rng.integers(2, size=(count, size)).astype(np.float32))
    who = torch.arange(count)
    table[who, answers, 0] += 4 * table[who, answers, LINKED]
    usual, linked = weights_for([Examples(table, torch.zeros(count, size), answers, torch.zeros(count))], NAMES)
    assert linked[0] > 0.3 and linked[0] > np.abs(np.delete(linked, 0)).max() and linked[LINKED] == 0.0
    assert usual[0] < linked[0]


def test_an_embedding_that_is_right_where_little_is_known_is_believed_there():
    """The features are noise but the embedding, of which those with one fact learn more than the usual."""
    rng, count, size = np.random.default_rng(0), 200, 30
    answers = torch.from_numpy(rng.integers(size, size=count))
    table = torch.from_numpy(rng.normal(size=(count, size, len(NAMES))).astype(np.float32))
    few = torch.tensor([1.0, 0.01]).repeat(count // 2)
    table[torch.arange(count), answers, 0] += 4 * few
    batch = Examples(table, torch.zeros(count, size), answers, few)
    usual, linked = weights_for([Examples(*(part[few < 1] for part in batch))], NAMES)
    added = few_weights_for([batch], usual, linked)
    assert added[0] > 0.3 and added[0] > np.abs(added[1:]).max()


def test_a_run_with_an_ensemble_weighs_both_and_keeps_the_weights():
    small = ["model.dim=8", "training.epochs=2", "training.batches=4", "training.validate_every=1"]
    quick = ["rules.walks=10", "rules.kinds=one,two,both"]
    fitted = fit(SAMPLE, with_overrides(load_preset("default"), [*small, *quick]), threads=1)
    about = fitted.metrics["validation"]
    assert about["model"]["mrr"] > about["embedding"]["mrr"]
    names = feature_names(statistics=True, has_propagation=True)
    assert list(fitted.metrics["ensemble"]) == [f"{feature}{kind}" for kind in KINDS for feature in names]
    stored = fitted.bundle(SAMPLE).weights[ENSEMBLE]
    assert np.array_equal(stored, fitted.model.weights) and not np.allclose(stored[0], priors_of(names)[0])
    assert stored.reshape(-1).tolist() == list(fitted.metrics["ensemble"].values())
    assert stored[1].any() and stored[2].any() and stored[2, LINKED] == 0.0


@pytest.mark.parametrize("hidden", [0.0, 0.5])
def test_weights_are_learned_as_drawn_on_the_busiest_and_where_few_facts_were_left(hidden, monkeypatch):
    monkeypatch.setattr("newcomer.training.holdout.MASKED", hidden)
    monkeypatch.setattr("newcomer.training.holdout.LEAST", 1)
    found: list[float] = []

    def watched(*asked: Any, **options: Any) -> Iterator[Examples]:
        for batch in examples(*asked, **options):
            found.append(float(batch.few.min()))
            yield batch

    monkeypatch.setattr("newcomer.training.ensemble.examples", watched)

    def counted(batches: list[Examples], names: Any) -> tuple[np.ndarray, np.ndarray]:
        guess = priors_of(names)[0]
        return len(batches) * guess, 0 * guess

    monkeypatch.setattr("newcomer.training.ensemble.weights_for", counted)
    fitted = fit(world(), settings(*choosing("foldin"), "model.ensemble=yes", "training.epochs=1"), device="cpu")
    usual = 1 + (hidden > 0)  # batches: as drawn, and where a fact of each was hidden
    assert len(found) == usual + len(THINNED)  # one batch each
    assert found[:usual] == pytest.approx([1 / 3, 1 / 2][:usual])
    assert found[usual] == 1 and all(least >= 1 / most for most, least in zip(THINNED, found[usual:], strict=True))
    assert fitted.model.weights is not None
    np.testing.assert_allclose(fitted.model.weights[0], usual * PRIOR[0])


@pytest.mark.parametrize("protocol", ["inductive", "refreshed"])
def test_rules_have_not_seen_what_is_hidden_of_the_busiest(protocol, monkeypatch):
    monkeypatch.setattr("newcomer.training.holdout.MASKED", 0.5)
    monkeypatch.setattr("newcomer.training.holdout.LEAST", 1)
    seen: list[int] = []

    def watched(dataset: Any, *options: Any) -> Any:
        seen.append(len(dataset.auxiliary))
        return mined_rules(dataset, *options)

    monkeypatch.setattr("newcomer.training.ensemble.mined_rules", watched)
    changes = "model.ensemble=yes", "training.epochs=1", f"protocol={protocol}", "training.final_fit=no"
    fitted = fit(world(), settings(*choosing("foldin"), *changes), device="cpu")
    assert len(seen) == (protocol == "refreshed") and all(count < len(fitted.dataset.auxiliary) for count in seen)
