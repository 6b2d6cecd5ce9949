"""A trained model, or its rules alone, at work on a data set: whatever ids the two have, names decide.

The *world* of a model on a data set holds the model's names first, in its order, then those that only the data set has.
Its observed graph is the one that was trained on. Every other known fact of the data set is auxiliary: it tells about
newcomers and changes nothing about those the model knows. So the protocol needs no mention here: a transductive model
has the newcomers' facts in its observed graph, and one without final fit meets those who were held out as newcomers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from newcomer.errors import DatasetError
from newcomer.graph import UNKNOWN, Graph, Ids, InductiveDataset, Mask, TripleArray, Vocabulary
from newcomer.models.bundle import Bundle
from newcomer.models.embedding.scorer import ModelScorer
from newcomer.models.ensemble import EnsembleScorer
from newcomer.models.grounding import ground as ground
from newcomer.models.propagation.wide import path_scorer
from newcomer.models.scorer import Scorer
from newcomer.models.serialisation import ensemble_weights_of, load_model, paths_of
from newcomer.models.triple_classifier import TripleClassifierScorer, triple_classifier_of
from newcomer.rules.limits import thread_count
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.similarity import Company


@dataclass(frozen=True, eq=False)
class World:
    """A data set as a model sees it, and what the ids of the data set are there."""

    dataset: InductiveDataset
    entities: Ids  # of each entity of the data set
    relations: Ids  # of each oriented relation of the data set; UNKNOWN where the model has none of that name

    @classmethod
    def of(cls, bundle: Bundle, dataset: InductiveDataset) -> "World":
        """The world of a model on a data set."""
        known, relations = bundle.observed, _oriented(bundle.observed.relations, dataset.relations)
        if not (relations != UNKNOWN).any():
            raise DatasetError(f"the model knows none of the relations of {dataset.name}; give data of the same kind")
        entities = known.entities.ids(dataset.entities.names).copy()
        others = np.flatnonzero(entities == UNKNOWN)
        entities[others] = np.arange(len(others)) + len(known.entities)
        names = [known.entities.names, dataset.entities.names.take(pa.array(others))]
        vocabulary = Vocabulary(pa.concat_arrays(names))
        observed = Graph.build(vocabulary, known.relations, known.triples)
        facts = dataset.known_facts().triples
        stated = TripleArray(entities[facts.heads], relations[facts.relations], entities[facts.tails])
        stated = stated.take(stated.relations != UNKNOWN)
        stated = stated.take(~observed.contains(stated.heads, stated.relations, stated.tails))
        auxiliary = Graph.build(vocabulary, known.relations, stated)
        nothing = TripleArray.empty()
        return cls(InductiveDataset(dataset.name, observed, auxiliary, nothing, nothing), entities, relations)

    def knows(self, relations: Ids) -> Mask:
        """For each oriented relation of the data set, whether the model has it."""
        known: Mask = self.relations[relations] != UNKNOWN
        return known


def _oriented(known: Vocabulary, asked: Vocabulary) -> Ids:
    plain = known.ids(asked.names)
    inverse = np.where(plain == UNKNOWN, UNKNOWN, plain + len(known))
    return np.concatenate([plain, inverse]).astype(np.int32)


class WorldScorer:
    """A scorer of a world, asked with the ids of the data set; of a relation that the model lacks all scores are 0."""

    def __init__(self, inner: Scorer, world: World) -> None:
        self.inner, self.world = inner, world
        everyone = np.arange(len(world.dataset.entities))
        self.same = np.array_equal(world.entities, everyone)

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[Any]:
        """One row of scores a query."""
        rows = np.zeros((len(entities), len(self.world.entities)), dtype=np.float64)
        known = self.world.knows(relations)
        if known.any():
            asked = self.world.entities[entities[known]], self.world.relations[relations[known]]
            found = self.inner.scores(*asked)
            found = found if self.same else found[:, self.world.entities]
            if known.all():
                return found
            rows[known] = found
        return rows


class ModelWorldScorer(WorldScorer):
    """The same for a model, by its network or by network and rules together, which scores single triples too.

    Where the model has a judge, single triples are left to it.
    """

    inner: ModelScorer | EnsembleScorer

    def __init__(
        self, inner: ModelScorer | EnsembleScorer, world: World, judge: TripleClassifierScorer | None = None
    ) -> None:
        super().__init__(inner, world)
        self.judge = judge

    @property
    def network(self) -> WorldScorer | None:
        """The network alone, where rules have a say beside it."""
        return WorldScorer(self.inner.network, self.world) if isinstance(self.inner, EnsembleScorer) else None

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float64]:
        """A score a triple."""
        scores = np.zeros(len(heads), dtype=np.float64)
        known = self.world.knows(relations)
        if known.any():
            ends = self.world.entities[heads[known]], self.world.entities[tails[known]]
            scores[known] = (self.judge or self.inner).triple_scores(
                ends[0], self.world.relations[relations[known]], ends[1]
            )
        return scores


def scorer_for(
    bundle: Bundle, dataset: InductiveDataset, device: torch.device | None = None, threads: int | None = None
) -> ModelWorldScorer:
    """A trained model ready to be asked about a data set, with newcomers embedded by their facts and virtual facts."""
    world, settings = World.of(bundle, dataset), bundle.config.model
    model, labels, graph = load_model(bundle, device, threads)
    arrived = world.dataset
    virtual = ground(bundle.rules, arrived.own_facts, arrived.newcomers, bundle.config, threads)
    options = settings.labels, settings.soft_label_c, settings.constrained
    network = ModelScorer(model, graph, labels, arrived, virtual, *options)
    judge = triple_classifier_of(bundle.weights, bundle.observed.num_relations)
    judging = None if judge is None else TripleClassifierScorer(judge, arrived.known_facts())
    weights = ensemble_weights_of(bundle)
    if weights is None:
        return ModelWorldScorer(network, world, judging)
    paths, place = paths_of(bundle), device or torch.device("cpu")
    asked = (
        None if paths is None else path_scorer(paths, arrived, graph.num_entities, place, settings.propagates_newcomers)
    )
    company = None
    if settings.graph_statistics:
        company = Company.of(arrived.observed, arrived.auxiliary.triples, graph.num_entities)
    blended = EnsembleScorer(network, _ranker(bundle, world, threads, company), weights, asked)
    return ModelWorldScorer(blended, world, judging)


def rule_scorer_for(bundle: Bundle, dataset: InductiveDataset, threads: int | None = None) -> WorldScorer:
    """The rules of a trained model without the network, on the same facts."""
    world = World.of(bundle, dataset)
    return WorldScorer(_ranker(bundle, world, threads), world)


def _ranker(bundle: Bundle, world: World, threads: int | None, company: Company | None = None) -> RuleRanker:
    facts, observed = world.dataset.own_facts, world.dataset.observed
    return RuleRanker.build(bundle.rules, facts, observed, threads=thread_count(threads), company=company)
