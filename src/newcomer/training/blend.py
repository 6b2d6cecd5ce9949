"""Two voices, one answer: what the network says of a candidate and what the rules say, weighed on held-out newcomers.

A candidate's score is a weighted sum of five numbers. The weights are those under which the true answers of the
validation queries are most likely, near to a plain guess where there are few queries to learn them from:

    network      log of its share in the network's softmax over all candidates
    confidence   log of the smoothed confidence of the best rule that infers it
    fired        1 where any rule infers it
    place        where it stands among all that rules infer, by all rules that infer it: 0 (no rule) to 1 (first)
    frequency    log of 1 + how often it answers this relation in the observed graph
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

VOICES = ("network", "confidence", "fired", "place", "frequency")
GUESS = (0.3, 1.0, 6.0, 1.0, 0.1)  # what is believed before any query is looked at
FIRMNESS = 1.0  # how many queries' worth the guess is
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
    """The five numbers of every candidate, (queries, entities) each, in the order of `VOICES`."""
    scores = torch.from_numpy(network.scores(entities, relations))
    yield torch.log_softmax(scores, dim=1).numpy()
    evidence = rules.evidence(entities, relations)
    fired = evidence.confidence > 0
    yield np.log(np.where(fired, evidence.confidence, 1.0)).astype(np.float32)
    yield fired.astype(np.float32)
    yield evidence.place.astype(np.float32)
    yield np.log1p(evidence.frequency).astype(np.float32)


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
