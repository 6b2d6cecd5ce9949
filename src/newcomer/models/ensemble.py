"""The ensemble: a candidate's score is the weighted sum of its features.

    embedding        log of its share in the softmax of the embedding's scores over all seen entities
    rule_rank        minus the log of its rank by the rules alone: all who are not above it, frequency breaking ties
    rule_confidence  log of the smoothed confidence of the best rule that infers it, or of one in a thousand
    rule_odds        log odds of the same
    linked           whether the entity asked about has a fact with it already, of whatever relation
    frequency        log of one more than how often it answers the relation, observed or among all known facts
    unobserved       whether it has no observed fact: its vector was solved for, not trained
    similarity       log of one more than a hundred times how similar it is to the known answers, by all known facts
                     (`newcomer.rules.statistics`); with ``model.graph_statistics``
    propagation      log of its share in the softmax of the propagation network over all seen entities; where there is
                     such a network

A feature is a function of what is known of all candidates, and a line in `FEATURES` with the weight it has before any
query is looked at. How much it counts depends on how much is known of the entity asked about, and on whether it is
linked to the candidate: the weights are ``usual + few / n + linked * link`` where the entity has ``n`` facts. They are
learned on held-out newcomers (`newcomer.training.ensemble`). Since the score is a sum, each feature's part in an answer
is known exactly.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from newcomer.graph import Mask
from newcomer.rules.grounding import Floats
from newcomer.rules.ranking import RuleEvidence

DISSIMILAR = 0.01  # a similarity that is hardly more than none
UNKNOWN = 1e-3  # the confidence where no rule infers a candidate, and how far from certain the best may be
KINDS = ("", ", few facts", ", linked")  # of weights: usual ones, and what is added
Column = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float32]  # (3, features): usual, few and linked


class Signals(NamedTuple):
    """All that is known of every candidate for one query; (entities,) each."""

    num_seen: int
    is_unobserved: Mask
    embedding: Column
    num_facts: int  # of the entity asked about; from here on what `graph_signals` gathers
    rules: RuleEvidence
    is_linked: Mask
    frequency: Floats
    similarity: Floats | None
    propagation: Column | None = None


class Feature(NamedTuple):
    """How a feature is computed, its weight before any query is looked at, and whether a query's signals have it."""

    of: Callable[[Signals], Column]
    prior: float
    is_there: Callable[[Signals], bool] = lambda _: True


def embedding(signals: Signals) -> Column:
    """Log share among the seen entities that were observed."""
    scores = torch.from_numpy(signals.embedding)
    observed = torch.from_numpy(~signals.is_unobserved[: signals.num_seen])
    seen = scores[: signals.num_seen].masked_fill(~observed, -torch.inf)
    found: Column = (scores - torch.logsumexp(seen, dim=0)).numpy()
    return found


def rule_rank(signals: Signals) -> Column:
    """Minus the log rank: 1 and those above; equals share theirs."""
    scores = signals.rules.scores
    better = np.flatnonzero(scores > scores.min())  # few: most have the lowest score, and need no sorting
    top = scores[better]
    ranks = np.full(len(scores), -np.log(1 + len(top)), dtype=np.float32)
    ranks[better] = -np.log(1 + len(top) - np.searchsorted(np.sort(top), top, side="right")).astype(np.float32)
    return ranks


def rule_confidence(signals: Signals) -> Column:
    """Log confidence of the best rule."""
    return np.log(np.maximum(signals.rules.confidence, UNKNOWN)).astype(np.float32)


def rule_odds(signals: Signals) -> Column:
    """Log odds of the same confidence."""
    confidence = np.clip(signals.rules.confidence, UNKNOWN, 1 - UNKNOWN)
    odds: Column = (np.log(confidence) - np.log1p(-confidence)).astype(np.float32)
    return odds


def linked(signals: Signals) -> Column:
    """1 of who is linked already."""
    return signals.is_linked.astype(np.float32)


def frequency(signals: Signals) -> Column:
    """Log of one more than the count."""
    return np.log1p(signals.frequency).astype(np.float32)


def unobserved(signals: Signals) -> Column:
    """1 of who was not observed."""
    return signals.is_unobserved.astype(np.float32)


def similarity(signals: Signals) -> Column:
    """Log similarity to the known answers."""
    assert signals.similarity is not None
    return np.log1p(signals.similarity / DISSIMILAR).astype(np.float32)


def propagation(signals: Signals) -> Column:
    """Log share by the propagation network."""
    assert signals.propagation is not None
    return signals.propagation


def feature_names(statistics: bool, has_propagation: bool) -> tuple[str, ...]:
    """The features of a model, in their order."""
    missing = {"similarity": not statistics, "propagation": not has_propagation}
    return tuple(name for name in FEATURES if not missing.get(name))


def columns_of(signals: Signals) -> list[Column]:
    """(features,) of (entities,): all features that there are, in their order."""
    return [feature.of(signals) for feature in FEATURES.values() if feature.is_there(signals)]


def few_facts(num_facts: float) -> np.float32:
    """1 where there is one fact or none, less with every further one."""
    return np.float32(1 / max(num_facts, 1))


def parts(signals: Signals, weights: Weights) -> Iterator[Column]:
    """What each feature adds to the scores, (entities,) each, in the order of the features."""
    usual, few, with_link = weights
    own = usual + few * few_facts(signals.num_facts)
    is_linked = signals.is_linked.astype(np.float32)
    for weight, added, column in zip(own, with_link, columns_of(signals), strict=True):
        yield (weight + added * is_linked) * column


def ensemble_scores(signals: Signals, weights: Weights) -> Column:
    """(entities,): the parts, added up."""
    return added_up(parts(signals, weights))


def added_up(columns: Iterable[Column]) -> Column:
    """(entities,): the sum of all, in their order."""
    return reduce(add, columns)


FEATURES: dict[str, Feature] = {
    "embedding": Feature(embedding, 0.4),
    "rule_rank": Feature(rule_rank, 0.2),
    "rule_confidence": Feature(rule_confidence, 0.0),
    "rule_odds": Feature(rule_odds, 0.7),
    "linked": Feature(linked, 2.0),
    "frequency": Feature(frequency, 0.4),
    "unobserved": Feature(unobserved, -3.0),
    "similarity": Feature(similarity, 0.2, lambda signals: signals.similarity is not None),
    "propagation": Feature(propagation, 0.5, lambda signals: signals.propagation is not None),
}
LINKED, RULE_RANK = (list(FEATURES).index(name) for name in ("linked", "rule_rank"))
