"""Training the triple classifier, where a data set states what its false triples are like.

A share of the observed pairs is masked, with all facts between the two; features are those of the graph that is left.
The masked facts are the true triples; each is corrupted as the data set's own false ones are, and the networks
(`newcomer.models.triple_classifier`) learn to tell the two apart. Nothing they use belongs
to a single entity, so newcomers are classified as everyone else is.

Pairs are masked and not single facts because the ends of a triple to classify are never linked already, while in a
graph with inverse relations nearly every fact has a twin that would give it away.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from newcomer.errors import DatasetError
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, TripleArray, concatenate
from newcomer.models.triple_classifier import Features, PairFeatures, TripleClassifier, feature_count, pair_ids

MASKED_SHARE = 0.3
ROUNDS = 5  # of masking
EPOCHS, BATCH, RATE = 8, 256, 0.002
MOST = 1 << 26  # numbers that are learned from


@dataclass(frozen=True)
class Corruption:
    """How a data set's false triples are made: how often the head is the end that is replaced, and by whom.

    ``type_constrained``: whether by an entity that stands at that end of the relation elsewhere; else by any.
    """

    heads: float
    type_constrained: bool


def corruption_of(dataset: InductiveDataset) -> Corruption | None:
    """How the labelled valid triples were corrupted; None where these do not state that anything is false."""
    valid, observed = dataset.valid, dataset.observed.triples
    if valid.labels is None or not (valid.labels <= 0).any() or not (valid.labels > 0).any():
        return None
    true, false = valid.positives, valid.take(valid.labels <= 0)

    def stands_in(facts: TripleArray, end: str) -> Mask:
        """Which false triples have at this end an entity that stands there in facts of the same relation."""
        size = len(dataset.entities)
        wanted, there = (one.relations.astype(np.int64) * size + getattr(one, end) for one in (false, facts))
        return np.isin(wanted, there)

    kept_heads, kept_tails = stands_in(true, "heads"), stands_in(true, "tails")
    heads = float(kept_tails.sum()) / max(float(kept_heads.sum() + kept_tails.sum()), 1.0)
    fits = np.where(kept_tails & ~kept_heads, stands_in(observed, "heads"), stands_in(observed, "tails"))
    return Corruption(heads, float(fits.mean()) > 0.5)


def learn_triple_classifier(observed: Graph, corruption: Corruption, seed: int) -> TripleClassifier:
    """A classifier trained on a graph; the same seed gives the same one."""
    generator = np.random.default_rng([seed, 4])
    features, relations, truths = (torch.from_numpy(one) for one in _examples(observed, corruption, generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classifier = TripleClassifier(observed.num_relations, feature_count(observed.num_relations))
        _fit(classifier, features, relations, truths)
    return classifier.eval()


def _fit(classifier: TripleClassifier, features: torch.Tensor, relations: torch.Tensor, truths: torch.Tensor) -> None:
    classifier.standardise_by(features)
    classifier.train()
    optimiser = torch.optim.Adam(classifier.parameters(), lr=RATE, weight_decay=1e-5)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(truths)), BATCH):
            odds = classifier.by_member(features[batch], relations[batch])  # every member learns for itself
            wanted = truths[batch].expand_as(odds)
            loss = functional.binary_cross_entropy_with_logits(odds, wanted, reduction="sum") / len(batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _examples(
    observed: Graph, corruption: Corruption, generator: np.random.Generator
) -> tuple[Features, npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Features of true and false triples, their relations, and which are true."""
    pair = pair_ids(observed)
    most = max(1, MOST // feature_count(observed.num_relations) // (2 * ROUNDS))
    parts: list[tuple[Features, Ids, Mask]] = []
    for _ in range(ROUNDS):
        masked = (generator.random(int(pair.max()) + 1) < MASKED_SHARE)[pair]
        rest = Graph.build(observed.entities, observed.relations, observed.triples.take(~masked))
        true, known = observed.triples.take(masked), rest.degrees > 0
        true = true.take(known[true.heads] & known[true.tails])
        if len(true) > most:
            true = true.take(np.sort(generator.choice(len(true), size=most, replace=False)))
        both = concatenate([true, _corrupted(true, observed, rest, corruption, generator)])
        parts.append((PairFeatures(rest).of(both.heads, both.tails), both.relations, np.arange(len(both)) < len(true)))
    features, relations, truths = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(truths) == 0:
        raise DatasetError(
            "the observed graph is too small to learn what is true from; set "
            "model.triple_classifier=false, or give more facts"
        )
    return features, relations.astype(np.int64), truths.astype(np.float32)


def _corrupted(
    true: TripleArray, observed: Graph, rest: Graph, corruption: Corruption, generator: np.random.Generator
) -> TripleArray:
    """These with one end of each replaced, without those that happen to be observed facts."""
    at_head = generator.random(len(true)) < corruption.heads
    drawn = np.where(at_head, true.heads, true.tails)
    if len(true):
        everyone = np.flatnonzero(rest.degrees > 0).astype(np.int32)
        drawn = everyone[generator.integers(len(everyone), size=len(true))]
    if corruption.type_constrained:
        drawn = _type_constrained(true.relations, at_head, drawn, rest, generator)
    heads, tails = np.where(at_head, drawn, true.heads), np.where(at_head, true.tails, drawn)
    return TripleArray(heads, true.relations, tails).take(~observed.contains(heads, true.relations, tails))


def _type_constrained(relations: Ids, at_head: Mask, drawn: Ids, rest: Graph, generator: np.random.Generator) -> Ids:
    """For each an entity that stands at this end of the relation; as drawn before where there is none."""
    found = drawn.copy()
    for is_head, column in ((True, rest.triples.heads), (False, rest.triples.tails)):
        for relation in np.unique(relations).tolist():
            places = np.flatnonzero((relations == relation) & (at_head == is_head))
            pool = np.unique(column[rest.triples.relations == relation])
            if len(pool):
                found[places] = pool[generator.integers(len(pool), size=len(places))]
    return found
