"""Learning the weights of the ensemble (`newcomer.models.ensemble`) on held-out newcomers.

Usual weights, and those added for linked candidates, are those under which answers have the highest likelihood, held
near to the features' priors where there are few queries to learn from: the queries of the hold-out, and masked facts of
its busiest newcomers. The weights added where little is known are then learned in the same way on the same newcomers
with few of their facts left.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.data.cut import FactsCut
from newcomer.evaluation.ranking import Queries
from newcomer.graph import Ids, InductiveDataset
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers, TrainedModel, query_batches
from newcomer.models.ensemble import FEATURES, KINDS, LINKED, Signals, Weights, columns_of, few_facts
from newcomer.training.holdout import HoldOut, mask_facts_of_busiest
from newcomer.training.preparation import Prepared, mined_rules

THINNED = (1, 2, 4)  # facts that are left of newcomers, to learn the weights for then
THINNED_QUERIES = 400
FIRMNESS = 50.0  # how hard it is to move from the priors: dozens of queries must agree
COMPARED = 20_000  # candidates of a query to learn weights from; of more, some are drawn that stand for the others
ROUNDS = 25


class Examples(NamedTuple):
    """Queries to learn weights from."""

    features: Tensor  # (queries, candidates, features)
    offset: Tensor  # (queries, candidates): log of how many one stands for; minus infinity for another known answer
    answers: Tensor  # (queries,): places among the candidates
    few: Tensor  # (queries,): how little is known of the entity asked about

    def scores(self, usual: Tensor, with_link: Tensor) -> Tensor:
        """(queries, candidates): by these weights, however much is known."""
        both = self.features @ torch.stack([usual, with_link], dim=1)  # the table is large: it is read once
        return both[:, :, 0] + self.features[:, :, LINKED] * both[:, :, 1]


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


def examples(
    engine: InferenceEngine, dataset: InductiveDataset, queries: Queries, compared: int = COMPARED
) -> Iterator[Examples]:
    """The features of every candidate, or of so many, a part of the queries at a time."""
    true = dataset.known().adjacency
    for part in query_batches(len(queries), engine.initial.num_entities):
        asked = queries.take(np.arange(part.start, part.stop))
        signals = engine.signals_of_many(engine.initial, asked.entity, asked.relation)
        kept, weight = _candidates(signals, asked.answer, compared, np.random.default_rng([3, part.start]))
        table = np.stack([np.stack([column[kept] for column in columns_of(one)], axis=1) for one in signals])
        left_out = np.zeros((len(asked), engine.initial.num_entities), dtype=bool)
        for row, (entity, relation, answer) in enumerate(zip(asked.entity, asked.relation, asked.answer, strict=True)):
            relations, tails = true.of(int(entity))
            left_out[row, tails[relations == relation]] = True
            left_out[row, answer] = False
        offset = np.where(left_out[:, kept], -np.inf, weight).astype(np.float32)
        answers = torch.from_numpy(np.searchsorted(kept, asked.answer))
        few = torch.from_numpy(np.array([few_facts(one.num_facts) for one in signals]))
        yield Examples(torch.from_numpy(table), torch.from_numpy(offset), answers, few)


def _candidates(
    signals: list[Signals], answers: Ids, most: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Whom to compare, ascending, and the log of how many each stands for.

    Where there are more than ``most``, the answers and those who are linked to an entity asked about stand
    for themselves; of the others that a rule reaches, and of all the rest, up to half as many are drawn each.
    """
    certain = np.any([one.is_linked for one in signals], axis=0)
    certain[answers] = True
    reached = np.any([one.rules.confidence > 0 for one in signals], axis=0) & ~certain
    weight = np.full(len(certain), -np.inf, dtype=np.float32)
    weight[certain] = 0.0
    for group in (np.flatnonzero(reached), np.flatnonzero(~certain & ~reached)):
        room = len(group) if len(certain) <= most else min(len(group), most // 2)
        drawn = generator.choice(group, size=room, replace=False)
        weight[drawn] = np.log(max(len(group), 1) / max(room, 1))
    kept = np.flatnonzero(np.isfinite(weight))
    return kept, weight[kept]


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
