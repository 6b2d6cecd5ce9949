"""Whom to believe: a trained network, its rules and what is counted beside them, weighed on the newcomers of an exam.

The usual weights, and what is added to them for candidates who are tied already, are learned from what the exam asks,
and from hidden facts of its busiest newcomers; what is added where little is known, on the same newcomers with few of
their facts left.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from newcomer.config import Config
from newcomer.data.cut import FactsCut
from newcomer.evaluation.ranking import Queries
from newcomer.graph import InductiveDataset
from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.embedding.scorer import ModelScorer
from newcomer.models.ensemble import EnsembleScorer, Weights, features_of
from newcomer.models.grounding import ground
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.wide import path_scorer
from newcomer.models.scorer import Scorer
from newcomer.rules.limits import thread_count
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.similarity import Company
from newcomer.rules.virtual_neighbors import VirtualNeighbors
from newcomer.training.embedding import Trainer
from newcomer.training.ensemble_weights import Examples, examples, few_weights_for, weights_for
from newcomer.training.holdout import HoldOut
from newcomer.training.masking import mask_facts_of_busiest
from newcomer.training.preparation import Prepared, mined_rules

THINNED = (1, 2, 4)  # facts that are left of newcomers, to learn whom to believe then
THINNED_QUERIES = 400


@dataclass(frozen=True, eq=False)
class World:
    """A prepared data set and its graph on the device."""

    prepared: Prepared
    graph: GraphTensors


@dataclass(frozen=True, eq=False)
class EnsembleLearner:
    """All that has a say in a world, by a network as it is trained when it is first asked."""

    config: Config
    threads: int | None
    trainer: Trainer
    world: World
    paths: Propagation | None = None

    @cached_property
    def network(self) -> ModelScorer:
        """What the network says of those in the world."""
        return self._network_on(self.world.prepared.dataset, self.world.prepared.newcomer_neighbors)

    def blended(self, weights: Weights) -> EnsembleScorer:
        """What all say together."""
        dataset = self.world.prepared.dataset
        return EnsembleScorer(self.network, self._ranker, weights, self._paths_on(dataset))

    def learned_from(self, exam: HoldOut) -> Weights:
        """(3, voices): the usual weights, and what is added where little is known, and for who is tied already."""
        dataset = self.world.prepared.dataset
        said = self.network, self._ranker
        as_drawn = examples(*said, exam.dataset, exam.queries, paths=self._paths_on(dataset))
        heard = features_of(self.config.model.graph_statistics, self.paths is not None)
        usual, tied = weights_for([*as_drawn, *self._busiest(exam)], heard)
        thinned = [example for most in THINNED for example in self._thinned(exam, most)]
        weights: Weights = np.stack([usual, few_weights_for(thinned, usual, tied), tied])
        return weights

    def _thinned(self, exam: HoldOut, most: int) -> Iterator[Examples]:
        """The queries once more, or some of them, with at most so many facts left of each newcomer."""
        dataset, seed = self.world.prepared.dataset, self.config.seed
        if len(dataset.newcomers) == 0:  # they train as well, and their vectors cannot unlearn
            return
        chosen = np.random.default_rng([seed, most]).permutation(len(exam.queries))[:THINNED_QUERIES]
        yield from self._with_fewer_facts(FactsCut(most, seed).of(dataset), exam.queries.take(np.sort(chosen)))

    def _busiest(self, exam: HoldOut) -> Iterator[Examples]:
        """What is asked about the busiest newcomers, as many questions as the exam has at most."""
        prepared, config = self.world.prepared, self.config
        if len(prepared.dataset.newcomers) == 0:
            return
        left, queries = mask_facts_of_busiest(prepared.dataset, exam.unseen, len(exam.queries), config.seed)
        if len(queries) == 0:
            return
        heard = self
        if prepared.mined and config.protocol == "refreshed":  # those rules have seen what is hidden now
            without = replace(prepared, rules=mined_rules(left, config, self.threads))
            heard = replace(self, world=replace(self.world, prepared=without))
        yield from heard._with_fewer_facts(left, queries)

    def _with_fewer_facts(self, left: InductiveDataset, queries: Queries) -> Iterator[Examples]:
        """What all say where less is known of newcomers."""
        virtual = None
        if self.trainer.model.encoder.uses_virtual_edges:
            virtual = ground(self.world.prepared.rules, left.own_facts, left.newcomers, self.config, self.threads)
        said = self._network_on(left, virtual), self._ranker_on(left)
        yield from examples(*said, left, queries, paths=self._paths_on(left))

    def _network_on(self, dataset: InductiveDataset, virtual: VirtualNeighbors | None) -> ModelScorer:
        model, trainer = self.config.model, self.trainer
        options = model.labels, model.soft_label_c, model.constrained
        return ModelScorer(trainer.model, self.world.graph, trainer.labels, dataset, virtual, *options)

    @cached_property
    def _ranker(self) -> RuleRanker:
        return self._ranker_on(self.world.prepared.dataset)

    def _ranker_on(self, dataset: InductiveDataset) -> RuleRanker:
        """The rules over the facts of a data set, and what is counted beside them."""
        company = None
        if self.config.model.graph_statistics:
            company = Company.of(dataset.observed, dataset.auxiliary.triples, self.world.prepared.num_seen)
        return rules_over(self.world.prepared, dataset, self.threads, company)

    def _paths_on(self, dataset: InductiveDataset) -> Scorer | None:
        if self.paths is None:
            return None
        seen, place = self.world.prepared.num_seen, self.world.graph.facts.device
        return path_scorer(self.paths, dataset, seen, place, self.config.model.propagates_newcomers)


def rules_over(
    prepared: Prepared, dataset: InductiveDataset, threads: int | None, company: Company | None = None
) -> RuleRanker:
    """The rules of a world over the facts of a data set; alone, or with what is counted in company."""
    rules, count = prepared.rules, thread_count(threads)
    return RuleRanker.build(rules, dataset.own_facts, dataset.observed, threads=count, company=company)
