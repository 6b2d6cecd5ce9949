"""Learning the weights of the ensemble (`newcomer.models.ensemble`) on held-out newcomers.

Usual weights, and those added for linked candidates, are those under which answers have the highest likelihood, held
near to the features' priors where there are few queries to learn from: the queries of the hold-out, and masked facts of
its busiest newcomers. The weights added where little is known are then learned in the same way on the same newcomers
with few of their facts left.

The most likely weights need not rank best. Where the rules alone rank the hold-out better, as they do beside vectors
that were trained for too short a time, the rank by rules is given as much more weight as ranks it best.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from newcomer.data.cut import FactsCut
from newcomer.graph import InductiveDataset
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers, TrainedModel
from newcomer.models.ensemble import FEATURES, KINDS, LINKED, RULE_RANK, Weights
from newcomer.training.examples import Examples, examples
from newcomer.training.holdout import HoldOut, mask_facts_of_busiest
from newcomer.training.preparation import Prepared, Progress, mined_rules

THINNED = (1, 2, 4)  # facts that are left of newcomers, to learn the weights for then
THINNED_QUERIES = 400
FIRMNESS = 50.0  # how hard it is to move from the priors: dozens of queries must agree
ROUNDS = 25
MORE_RANK = 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0  # weight of the rank by rules, where these alone are better


def priors_of(names: Collection[str]) -> Weights:
    """(3, features): the weights before any query is looked at."""
    usual = np.array([FEATURES[name].prior for name in names], dtype=np.float32)
    weights: Weights = np.stack([usual, *[np.zeros_like(usual)] * (len(KINDS) - 1)])
    return weights


def weights_for(batches: list[Examples], names: Collection[str]) -> Weights:
    """(2, features): the usual weights and those for linked candidates, however much is known."""
    mask = torch.ones(2, len(names))
    mask[1, LINKED] = 0.0  # among the linked it tells nobody apart
    start = torch.from_numpy(priors_of(names)[:2])
    return _most_likely(batches, start, lambda batch, weights: batch.scores(*(weights * mask)))


def few_weights_for(batches: list[Examples], usual: Weights, with_link: Weights) -> Weights:
    """What to add to the usual weights where little is known."""
    known = torch.from_numpy(usual), torch.from_numpy(with_link)
    before = [batch._replace(offset=batch.offset + batch.scores(*known)) for batch in batches]
    start = torch.zeros_like(known[0])
    return _most_likely(before, start, lambda batch, weights: (batch.features @ weights) * batch.few[:, None])


def no_worse_than_rules(batches: list[Examples], weights: Weights) -> Weights:
    """These weights; with more for the rank by rules, where that alone ranks the answers better than they do."""
    alone = np.zeros_like(weights)
    alone[0, RULE_RANK] = 1.0
    learned = mean_reciprocal_rank(batches, weights)
    if learned >= mean_reciprocal_rank(batches, alone):
        return weights
    found = [*(weights + more * alone for more in MORE_RANK), alone]
    best: Weights = max(found, key=lambda one: mean_reciprocal_rank(batches, one))
    return best


def mean_reciprocal_rank(batches: list[Examples], weights: Weights) -> float:
    """How these weights rank the answers among the candidates and all whom these stand for; ties at the mean rank."""
    usual, few, with_link = torch.from_numpy(weights)
    total, count = 0.0, 0
    for batch in batches:
        scores = batch.scores(usual, with_link) + (batch.features @ few) * batch.few[:, None]
        own = scores.gather(1, batch.answers[:, None])
        standing_for = torch.exp(batch.offset)
        above = (standing_for * (scores > own)).sum(dim=1)
        equal = (standing_for * (scores == own)).sum(dim=1)  # itself included
        total += float((1 / (above + (1 + equal) / 2)).sum())
        count += len(batch.answers)
    return total / max(count, 1)


def _most_likely(batches: list[Examples], prior: Tensor, scores: Callable[[Examples, Tensor], Tensor]) -> Weights:
    """The weights under which the answers have the highest likelihood, held near to the prior."""
    weights = prior.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = 0.5 * FIRMNESS * (weights - prior).square().sum()
        for batch in batches:
            among = scores(batch, weights) + batch.offset
            loss = loss + torch.nn.functional.cross_entropy(among, batch.answers, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach().numpy().astype(np.float32)


@dataclass(frozen=True, eq=False)
class EnsembleLearner:
    """A model whose ensemble has no weights yet, and the newcomers of a prepared data set."""

    model: TrainedModel
    prepared: Prepared
    threads: int | None = None
    progress: Progress = lambda *_: None

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
        as_drawn = list(examples(self.engine, held_out.dataset, held_out.queries, progress=self.progress))
        usual, with_link = weights_for([*as_drawn, *self._busiest(held_out)], names)
        thinned = [example for most in THINNED for example in self._thinned(held_out, most)]
        weights: Weights = np.stack([usual, few_weights_for(thinned, usual, with_link), with_link])
        return no_worse_than_rules(as_drawn, weights)

    def _thinned(self, held_out: HoldOut, most: int) -> Iterator[Examples]:
        """The queries once more, or some of them, with at most so many facts left of each newcomer."""
        dataset, seed = self.prepared.dataset, self.model.config.seed
        if len(dataset.newcomers) == 0:  # they are trained on as well, and their vectors cannot unlearn
            return
        chosen = np.random.default_rng([seed, most]).permutation(len(held_out.queries))[:THINNED_QUERIES]
        left = FactsCut(most, seed).of(dataset)
        yield from examples(
            self._engine_with(left), left, held_out.queries.take(np.sort(chosen)), progress=self.progress
        )

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
        yield from examples(learner._engine_with(left), left, queries, progress=self.progress)

    def _engine_with(self, dataset: InductiveDataset) -> InferenceEngine:
        """The model with the newcomers of a data set, known by its auxiliary facts."""
        return InferenceEngine(self.model, StoredNewcomers(dataset.auxiliary.triples), self.threads)
