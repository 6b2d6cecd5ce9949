"""Several voices, one answer: what the network says of a candidate, what the rules say, and what is plain to see.

A candidate's score is a weighted sum of a few numbers. The weights are those under which the true answers of the
validation queries are most likely, near to a plain guess where there are few queries to learn them from:

    network      log of its share in the network's softmax over all seen entities
    order        minus the log of its rank by the rules alone: all who are not above it, frequency breaking ties
    confidence   log of the smoothed confidence of the best rule that infers it, or of one in a thousand
    odds         log odds of the same
    link         whether the entity asked about is tied to it already, by whatever relation
    frequency    log of one more than how often it answers the relation in the observed graph
    newcomer     whether it does not occur there: its vector was solved for, not trained

Since the score is a sum, the part of each voice in an answer is known exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Ids, InductiveDataset
from newcomer.rules.ranking import RuleRanker
from newcomer.tasks.link_prediction import Queries
from newcomer.training.scorer import ModelScorer

VOICES = ("network", "order", "confidence", "odds", "link", "frequency", "newcomer")
GUESS = (0.4, 0.2, 0.0, 0.7, 2.0, 0.4, -3.0)  # what is believed before any query is looked at
FIRMNESS = 50.0  # how hard it is to move from there: dozens of queries must agree
UNKNOWN = 1e-3  # the confidence where no rule speaks, and how far from certain the best may be
AT_ONCE = 128  # queries, when the weights are learned
ROUNDS = 25


@dataclass(frozen=True, eq=False)
class BlendedScorer:
    """Scores all entities for (entity, relation, ?) by the weighted sum; implements what ranking asks for."""

    network: ModelScorer
    rules: RuleRanker
    weights: npt.NDArray[np.float32]

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of scores a query."""
        total: npt.NDArray[np.float32] = np.zeros((len(entities), self.network.num_entities), dtype=np.float32)
        for weight, voice in zip(self.weights, voices(self.network, self.rules, entities, relations), strict=True):
            total += weight * voice
        return total

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float32]:
        """(n,): the score of each triple, as an answer among all; relation ids from R on are inverses."""
        found: npt.NDArray[np.float32] = np.empty(len(heads), dtype=np.float32)
        for start in range(0, len(heads), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found[part] = self.scores(heads[part], relations[part])[np.arange(len(heads[part])), tails[part]]
        return found


def voices(network: ModelScorer, rules: RuleRanker, entities: Ids, relations: Ids) -> Iterator[npt.NDArray[np.float32]]:
    """The numbers of every candidate, (queries, entities) each, in the order of `VOICES`."""
    evidence = rules.evidence(entities, relations)
    scores = torch.from_numpy(network.scores(entities, relations))
    seen = scores.masked_fill(torch.from_numpy(evidence.unseen > 0), -torch.inf)
    yield (scores - torch.logsumexp(seen, dim=1, keepdim=True)).numpy()
    yield -np.log(ranks_of(evidence.scores)).astype(np.float32)
    confidence = np.clip(evidence.confidence, UNKNOWN, 1 - UNKNOWN)
    yield np.log(np.maximum(evidence.confidence, UNKNOWN)).astype(np.float32)
    yield (np.log(confidence) - np.log1p(-confidence)).astype(np.float32)
    yield evidence.linked.astype(np.float32)
    yield np.log1p(evidence.frequency).astype(np.float32)
    yield evidence.unseen.astype(np.float32)


def ranks_of(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The rank of each score in its row: 1 and those above; equals share theirs."""
    ascending = np.sort(scores, axis=1)
    above = [row.size - np.searchsorted(row, given, side="right") for row, given in zip(ascending, scores, strict=True)]
    return 1 + np.array(above).reshape(scores.shape)


def learn_weights(
    network: ModelScorer, rules: RuleRanker, dataset: InductiveDataset, queries: Queries
) -> npt.NDArray[np.float32]:
    """The weights under which the answers are most likely among all candidates that are not known to be true."""
    batches = [_batch(network, rules, dataset, queries, start) for start in range(0, len(queries), AT_ONCE)]
    guess = torch.tensor(GUESS)
    weights = guess.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = 0.5 * FIRMNESS * (weights - guess).square().sum()
        for table, left_out, answers in batches:
            scores = (table @ weights).masked_fill(left_out, -torch.inf)
            loss = loss + torch.nn.functional.cross_entropy(scores, answers, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach().numpy().astype(np.float32)


def _batch(
    network: ModelScorer, rules: RuleRanker, dataset: InductiveDataset, queries: Queries, start: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(queries, entities, voices) of a part of the queries, who is left out, and the answers."""
    part = queries.take(np.arange(start, min(start + AT_ONCE, len(queries))))
    table = np.stack(list(voices(network, rules, part.entity, part.relation)), axis=2)
    left_out = np.zeros(table.shape[:2], dtype=bool)
    true = dataset.known().adjacency
    for row, (entity, relation, answer) in enumerate(zip(part.entity, part.relation, part.answer, strict=True)):
        relations, tails = true.of(int(entity))
        left_out[row, tails[relations == relation]] = True
        left_out[row, answer] = False
    return torch.from_numpy(table), torch.from_numpy(left_out), torch.tensor(part.answer, dtype=torch.int64)
