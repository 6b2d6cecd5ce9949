"""Several voices, one answer: what the network says of a candidate, what the rules say, and what is plain to see.

A candidate's score is a weighted sum of a few numbers:

    network      log of its share in the network's softmax over all seen entities
    order        minus the log of its rank by the rules alone: all who are not above it, frequency breaking ties
    confidence   log of the smoothed confidence of the best rule that infers it, or of one in a thousand
    odds         log odds of the same
    link         whether the entity asked about is tied to it already, by whatever relation
    frequency    log of one more than how often it answers the relation in the observed graph, or in all that is known
    newcomer     whether it was never observed: its vector was solved for, not trained
    company      log of one more than a hundred times how like it is to the answers that are known already
                 (`newcomer.rules.similarity`); of models that hear all that is known
    paths        log of its share in what paths say of all seen entities; of models that have learned from them

Whom to believe depends on how much is known of the entity asked about, and on whether it is tied to the candidate: the
weights are ``usual + few / n + tied * link`` where ``n`` facts tell of it. Usual and tied are those under which the
true answers of the validation queries are most likely, near to a plain guess where there are few queries to learn from.
Then ``few`` is learned in the same way on the same newcomers with most of their facts taken away.

Since the score is a sum, the part of each voice in an answer is known exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from newcomer.graph import Ids
from newcomer.models.embedding.scorer import ModelScorer
from newcomer.models.scorer import Scorer
from newcomer.rules.ranking import Evidence, RuleRanker

FEATURES = ("network", "order", "confidence", "odds", "link", "frequency", "newcomer")
LINK = FEATURES.index("link")
AT_ONCE = 128  # queries whose tables are made together
CELLS_AT_ONCE = 1 << 21  # candidates of these queries, all together
KINDS = ("", ", few facts", ", tied")  # of weights: usual ones, and what is added
COMPANY, PATHS = "company", "paths"  # more voices, of models that have them
UNLIKE = 0.01  # a likeness that is hardly more than none
UNKNOWN = 1e-3  # the confidence where no rule speaks, and how far from certain the best may be
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EnsembleScorer:
    """Scores all entities for (entity, relation, ?) by the weighted sum; implements what ranking asks for."""

    network: ModelScorer
    rules: RuleRanker
    weights: Weights  # (3, voices), usual, few and tied; or the first of these
    paths: Scorer | None = None

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of scores a query."""
        total: npt.NDArray[np.float32] = np.zeros((len(entities), self.network.num_entities), dtype=np.float32)
        for part in self.parts(entities, relations):
            total += part
        return total

    def parts(self, entities: Ids, relations: Ids) -> Iterator[npt.NDArray[np.float32]]:
        """What each feature, in the order of `FEATURES`, adds to the scores: their sum in this order is the score."""
        evidence = self.rules.evidence(entities, relations)
        usual, few, tied = all_kinds(self.weights)
        weights = (usual + few * few_facts(evidence.facts)[:, None]).astype(np.float32)
        linked = evidence.linked.astype(np.float32)
        said = voices(self.network.scores(entities, relations), evidence, asked_of(self.paths, entities, relations))
        for weight, added, voice in zip(weights.T, tied, said, strict=True):
            yield (weight[:, None] + added * linked) * voice

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float32]:
        """(n,): the score of each triple, as an answer among all; relation ids from R on are inverses."""
        found: npt.NDArray[np.float32] = np.empty(len(heads), dtype=np.float32)
        for part in query_batches(len(heads), self.network.num_entities):
            found[part] = self.scores(heads[part], relations[part])[np.arange(len(heads[part])), tails[part]]
        return found


def all_kinds(weights: Weights) -> Weights:
    """(3, voices): with zeros for the kinds that a model does not have."""
    given = np.atleast_2d(weights)
    found: Weights = np.concatenate([given, np.zeros((len(KINDS) - len(given), given.shape[1]), dtype=np.float32)])
    return found


def few_facts(facts: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """1 where there is one fact or none, less with every further one."""
    found: npt.NDArray[np.float32] = (1 / np.maximum(facts, 1)).astype(np.float32)
    return found


def asked_of(paths: Scorer | None, entities: Ids, relations: Ids) -> npt.NDArray[np.float32] | None:
    """What the propagation network says, where there is one."""
    return None if paths is None else paths.scores(entities, relations)


def voices(
    said: npt.NDArray[np.float32], evidence: Evidence, by_paths: npt.NDArray[np.float32] | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """The features of every candidate, (queries, entities) each, in the order of `FEATURES`."""
    scores = torch.from_numpy(said)
    seen = scores.masked_fill(torch.from_numpy(evidence.unseen > 0), -torch.inf)
    yield (scores - torch.logsumexp(seen, dim=1, keepdim=True)).numpy()
    yield -np.log(ranks_of(evidence.scores)).astype(np.float32)
    confidence = np.clip(evidence.confidence, UNKNOWN, 1 - UNKNOWN)
    yield np.log(np.maximum(evidence.confidence, UNKNOWN)).astype(np.float32)
    yield (np.log(confidence) - np.log1p(-confidence)).astype(np.float32)
    yield evidence.linked.astype(np.float32)
    yield np.log1p(evidence.frequency).astype(np.float32)
    yield evidence.unseen.astype(np.float32)
    if evidence.likeness is not None:
        yield np.log1p(evidence.likeness / UNLIKE).astype(np.float32)
    if by_paths is not None:
        yield by_paths


def ranks_of(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The rank of each score in its row: 1 and those above; equals share theirs."""
    ascending = np.sort(scores, axis=1)
    above = [row.size - np.searchsorted(row, given, side="right") for row, given in zip(ascending, scores, strict=True)]
    return 1 + np.array(above).reshape(scores.shape)


def features_of(company: bool, paths: bool) -> tuple[str, ...]:
    """The names of the voices of a model, in their order."""
    return (*FEATURES, *[COMPANY] * company, *[PATHS] * paths)


def query_batches(queries: int, candidates: int) -> Iterator[slice]:
    """Some queries at a time, so few that the tables of all candidates are no burden."""
    step = max(1, min(AT_ONCE, CELLS_AT_ONCE // max(candidates, 1)))
    return (slice(start, min(start + step, queries)) for start in range(0, queries, step))
