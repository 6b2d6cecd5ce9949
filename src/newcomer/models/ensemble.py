"""The ensemble: a candidate's score is the weighted sum of its features (`newcomer.models.features`).

How much a feature counts depends on how much is known of the entity asked about, and on whether it is linked to the
candidate: the weights are ``usual + few / n + linked * link`` where the entity has ``n`` facts. They are learned on
held-out newcomers (`newcomer.training.ensemble`). Since the score is a sum, each feature's part in an answer is
known exactly.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from newcomer.models.features import Column, Signals, columns_of

KINDS = ("", ", few facts", ", linked")  # of weights: usual ones, and what is added
Weights = npt.NDArray[np.float32]  # (3, features): usual, few and linked


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
    """(entities,): the parts, added up in their order."""
    total = np.zeros(len(signals.embedding), dtype=np.float32)
    for part in parts(signals, weights):
        total += part
    return total
