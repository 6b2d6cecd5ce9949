"""A trained model, or its rules alone, asked about a data set: whatever ids the two have, names decide.

The facts of a data set that the model was not trained on tell of newcomers, and change nothing about the entities that
the model knows. So the protocol needs no mention here: a transductive model has the newcomers' facts in its observed
graph, and one without final fit meets those who were held out as newcomers.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from newcomer.errors import DatasetError
from newcomer.evaluation.ranking import Scorer
from newcomer.graph import (
    UNKNOWN,
    Graph,
    Ids,
    InductiveDataset,
    Mask,
    Overlay,
    TripleArray,
    Vocabulary,
    about_newcomers,
    concatenate,
)
from newcomer.models.bundle import Bundle
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers
from newcomer.models.serialisation import load_model, load_newcomers
from newcomer.models.triple_classifier import TripleClassifierScorer
from newcomer.rules.limits import thread_count
from newcomer.rules.ranking import RuleRanker, RuleScorer


@dataclass(frozen=True, eq=False)
class Alignment:
    """A data set in a model's ids: its names first, in its order, then those that only the data set has."""

    observed: Graph
    facts: TripleArray  # known facts of the data set that the model was not trained on
    entities: Ids  # of each entity of the data set
    relations: Ids  # of each oriented relation of the data set; UNKNOWN where the model has none of that name

    @classmethod
    def of(cls, bundle: Bundle, dataset: InductiveDataset) -> "Alignment":
        """A data set in the ids of a model."""
        known, relations = bundle.observed, _oriented(bundle.observed.relations, dataset.relations)
        if not (relations != UNKNOWN).any():
            raise DatasetError(f"the model knows none of the relations of {dataset.name}; give data of the same kind")
        entities = known.entities.ids(dataset.entities.names).copy()
        others = np.flatnonzero(entities == UNKNOWN)
        entities[others] = np.arange(len(others)) + len(known.entities)
        observed = known
        if len(others):
            names = [known.entities.names, dataset.entities.names.take(pa.array(others))]
            observed = Graph.build(Vocabulary(pa.concat_arrays(names)), known.relations, known.triples)
        facts = dataset.known_facts().triples
        stated = TripleArray(entities[facts.heads], relations[facts.relations], entities[facts.tails])
        stated = stated.take(stated.relations != UNKNOWN)
        stated = stated.take(~observed.contains(stated.heads, stated.relations, stated.tails))
        return cls(observed, stated, entities, relations)

    def knows(self, relations: Ids) -> Mask:
        """For each oriented relation of the data set, whether the model has it."""
        known: Mask = self.relations[relations] != UNKNOWN
        return known

    def is_stored(self, bundle: Bundle) -> bool:
        """Whether the model was written with just these newcomers and facts."""
        if len(self.observed.entities) != len(bundle.observed.entities):
            return False
        num_seen = int(self.observed.degrees.nonzero()[0].max(initial=-1)) + 1
        stored = TripleArray.empty() if bundle.auxiliary is None else bundle.auxiliary.triples
        mine, theirs = (np.unique(about_newcomers(facts, num_seen).rows, axis=0) for facts in (self.facts, stored))
        return np.array_equal(mine, theirs)


def _oriented(known: Vocabulary, asked: Vocabulary) -> Ids:
    plain = known.ids(asked.names)
    inverse = np.where(plain == UNKNOWN, UNKNOWN, plain + len(known))
    return np.concatenate([plain, inverse]).astype(np.int32)


class AlignedScorer:
    """A scorer asked with the ids of a data set; for a relation that the model lacks all scores are 0."""

    def __init__(self, inner: Scorer, alignment: Alignment) -> None:
        self.inner, self.alignment = inner, alignment
        self._same = np.array_equal(alignment.entities, np.arange(len(alignment.observed.entities)))

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[Any]:
        """One row of scores a query."""
        rows = np.zeros((len(entities), len(self.alignment.entities)), dtype=np.float64)
        known = self.alignment.knows(relations)
        if known.any():
            asked = self.alignment.entities[entities[known]], self.alignment.relations[relations[known]]
            found = self.inner.scores(*asked)
            found = found if self._same else found[:, self.alignment.entities]
            if known.all():
                return found
            rows[known] = found
        return rows


class AlignedModel(AlignedScorer):
    """The same for a trained model, which scores single triples too: by its triple classifier, where it has one."""

    inner: SnapshotScorer

    def __init__(
        self, inner: SnapshotScorer, alignment: Alignment, classifier: TripleClassifierScorer | None = None
    ) -> None:
        super().__init__(inner, alignment)
        self.classifier = classifier

    @property
    def embedding(self) -> AlignedScorer | None:
        """The embedding alone, where it is part of an ensemble."""
        if self.inner.weights is None:
            return None
        alone = SnapshotScorer(self.inner.engine, self.inner.snapshot, embedding_only=True)
        return AlignedScorer(alone, self.alignment)

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float64]:
        """A score a triple."""
        scores = np.zeros(len(heads), dtype=np.float64)
        known = self.alignment.knows(relations)
        if known.any():
            ends = self.alignment.entities[heads[known]], self.alignment.entities[tails[known]]
            along = self.alignment.relations[relations[known]]
            scores[known] = (self.classifier or self.inner).triple_scores(ends[0], along, ends[1])
        return scores


def scorer_for(
    bundle: Bundle, dataset: InductiveDataset, device: torch.device | None = None, threads: int | None = None
) -> AlignedModel:
    """A trained model ready to be asked about a data set: the engine of a predictor that knows the same facts."""
    alignment = Alignment.of(bundle, dataset)
    model, stored = load_model(bundle, device), load_newcomers(bundle, device)
    if not alignment.is_stored(bundle):
        model, stored = replace(model, observed=alignment.observed), StoredNewcomers(alignment.facts)
    engine = InferenceEngine(model, stored, threads)
    classifier = None
    if model.triple_classifier is not None:
        known = concatenate([alignment.observed.triples, alignment.facts])
        known_facts = Graph.build(alignment.observed.entities, alignment.observed.relations, known)
        classifier = TripleClassifierScorer(model.triple_classifier, known_facts)
    return AlignedModel(SnapshotScorer(engine, engine.initial), alignment, classifier)


def rule_scorer_for(bundle: Bundle, dataset: InductiveDataset, threads: int | None = None) -> AlignedScorer:
    """The rules of a trained model alone, on the same facts."""
    alignment = Alignment.of(bundle, dataset)
    overlay = Overlay.of(alignment.observed, alignment.facts)
    return AlignedScorer(RuleScorer(RuleRanker.of(bundle.rules), overlay, thread_count(threads)), alignment)
