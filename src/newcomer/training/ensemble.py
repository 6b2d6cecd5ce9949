"""Learning the weights of the ensemble on held-out newcomers (`newcomer.training.ensemble_weights`).

The usual weights, and those added for linked candidates, are learned from the queries of the hold-out and from masked
facts of its busiest newcomers; those added where little is known, on the same newcomers with few of their facts left.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from newcomer.data.cut import FactsCut
from newcomer.graph import InductiveDataset
from newcomer.models.engine import InferenceEngine, SnapshotScorer
from newcomer.models.ensemble import Weights
from newcomer.models.trained import StoredNewcomers, TrainedModel
from newcomer.training.ensemble_weights import Examples, examples, few_weights_for, weights_for
from newcomer.training.holdout import HoldOut
from newcomer.training.masking import mask_facts_of_busiest
from newcomer.training.preparation import Prepared, mined_rules

THINNED = (1, 2, 4)  # facts that are left of newcomers, to learn the weights for then
THINNED_QUERIES = 400


@dataclass(frozen=True, eq=False)
class EnsembleLearner:
    """A model whose ensemble has no weights yet, and the newcomers of a prepared data set."""

    model: TrainedModel
    prepared: Prepared
    threads: int | None = None

    @cached_property
    def engine(self) -> InferenceEngine:
        """The model with these newcomers."""
        return self._engine_with(self.prepared.dataset)

    @property
    def embedding(self) -> SnapshotScorer:
        """The embedding alone."""
        return SnapshotScorer(self.engine, self.engine.initial, embedding_only=True)

    def scorer(self, weights: Weights) -> SnapshotScorer:
        """The ensemble with these weights."""
        scorer = SnapshotScorer(self.engine, self.engine.initial)
        scorer.weights = weights
        return scorer

    def learned_from(self, held_out: HoldOut) -> Weights:
        """(3, features): the usual weights, those added where little is known, and those added for who is linked."""
        names = self.engine.feature_names
        as_drawn = examples(self.engine, held_out.dataset, held_out.queries)
        usual, with_link = weights_for([*as_drawn, *self._busiest(held_out)], names)
        thinned = [example for most in THINNED for example in self._thinned(held_out, most)]
        weights: Weights = np.stack([usual, few_weights_for(thinned, usual, with_link), with_link])
        return weights

    def _thinned(self, held_out: HoldOut, most: int) -> Iterator[Examples]:
        """The queries once more, or some of them, with at most so many facts left of each newcomer."""
        dataset, seed = self.prepared.dataset, self.model.config.seed
        if len(dataset.newcomers) == 0:  # they are trained on as well, and their vectors cannot unlearn
            return
        chosen = np.random.default_rng([seed, most]).permutation(len(held_out.queries))[:THINNED_QUERIES]
        left = FactsCut(most, seed).of(dataset)
        yield from examples(self._engine_with(left), left, held_out.queries.take(np.sort(chosen)))

    def _busiest(self, held_out: HoldOut) -> Iterator[Examples]:
        """Queries for masked facts of the busiest newcomers, as many as the hold-out has at most."""
        prepared, config = self.prepared, self.model.config
        if len(prepared.dataset.newcomers) == 0:
            return
        left, queries = mask_facts_of_busiest(prepared.dataset, held_out.unseen, len(held_out.queries), config.seed)
        if len(queries) == 0:
            return
        learner = self
        if prepared.mined and config.protocol == "refreshed":  # those rules have seen what is masked now
            rules = mined_rules(left, config, self.threads)
            learner = replace(self, model=replace(self.model, rules=rules))
        yield from examples(learner._engine_with(left), left, queries)

    def _engine_with(self, dataset: InductiveDataset) -> InferenceEngine:
        """The model with the newcomers of a data set, known by its auxiliary facts."""
        return InferenceEngine(self.model, StoredNewcomers(dataset.auxiliary.triples), self.threads)
