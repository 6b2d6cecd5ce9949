"""Several voices, one answer: what the network says of a candidate, what the rules say, and what is plain to see.

A candidate's score is a weighted sum of a few numbers:

    network      log of its share in the network's softmax over all seen entities
    order        minus the log of its rank by the rules alone: all who are not above it, frequency breaking ties
    confidence   log of the smoothed confidence of the best rule that infers it, or of one in a thousand
    odds         log odds of the same
    link         whether the entity asked about is tied to it already, by whatever relation
    frequency    log of one more than how often it answers the relation in the observed graph
    newcomer     whether it does not occur there: its vector was solved for, not trained

Whom to believe depends on how much is known of the entity asked about: the weights are ``usual + few / n`` where ``n``
facts tell of it. The usual ones are those under which the true answers of the validation queries are most likely, near
to a plain guess where there are few queries to learn them from. Then ``few`` is learned in the same way on the same
newcomers with most of their facts taken away.

Since the score is a sum, the part of each voice in an answer is known exactly.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Ids, InductiveDataset
from newcomer.rules.ranking import Evidence, RuleRanker
from newcomer.tasks.link_prediction import Queries
from newcomer.training.scorer import ModelScorer

VOICES = ("network", "order", "confidence", "odds", "link", "frequency", "newcomer")
GUESS = (0.4, 0.2, 0.0, 0.7, 2.0, 0.4, -3.0)  # what is believed before any query is looked at
FIRMNESS = 50.0  # how hard it is to move from there: dozens of queries must agree
UNKNOWN = 1e-3  # the confidence where no rule speaks, and how far from certain the best may be
AT_ONCE = 128  # queries, when the weights are learned
ROUNDS = 25
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class BlendedScorer:
    """Scores all entities for (entity, relation, ?) by the weighted sum; implements what ranking asks for."""

    network: ModelScorer
    rules: RuleRanker
    weights: Weights  # (2, voices), usual and few; or the usual ones alone

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of scores a query."""
        total: npt.NDArray[np.float32] = np.zeros((len(entities), self.network.num_entities), dtype=np.float32)
        for part in self.parts(entities, relations):
            total += part
        return total

    def parts(self, entities: Ids, relations: Ids) -> Iterator[npt.NDArray[np.float32]]:
        """What each voice, in the order of `VOICES`, adds to the scores: added up in this order they are the scores."""
        evidence = self.rules.evidence(entities, relations)
        weights = weights_at(self.weights, evidence.facts)
        said = voices(self.network.scores(entities, relations), evidence)
        for weight, voice in zip(weights.T, said, strict=True):
            yield weight[:, None] * voice

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float32]:
        """(n,): the score of each triple, as an answer among all; relation ids from R on are inverses."""
        found: npt.NDArray[np.float32] = np.empty(len(heads), dtype=np.float32)
        for start in range(0, len(heads), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found[part] = self.scores(heads[part], relations[part])[np.arange(len(heads[part])), tails[part]]
        return found


def weights_at(weights: Weights, facts: npt.NDArray[np.floating]) -> Weights:
    """(queries, voices): the weights for entities of which so many facts are known."""
    usual, few = weights if weights.ndim == 2 else (weights, np.zeros_like(weights))
    found: Weights = (usual + few * few_facts(facts)[:, None]).astype(np.float32)
    return found


def few_facts(facts: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """1 where there is one fact or none, less with every further one."""
    found: npt.NDArray[np.float32] = (1 / np.maximum(facts, 1)).astype(np.float32)
    return found


def voices(said: npt.NDArray[np.float32], evidence: Evidence) -> Iterator[npt.NDArray[np.float32]]:
    """The numbers of every candidate, (queries, entities) each, in the order of `VOICES`; the network has ``said``."""
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


def ranks_of(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The rank of each score in its row: 1 and those above; equals share theirs."""
    ascending = np.sort(scores, axis=1)
    above = [row.size - np.searchsorted(row, given, side="right") for row, given in zip(ascending, scores, strict=True)]
    return 1 + np.array(above).reshape(scores.shape)


class Examples(NamedTuple):
    """Queries to learn weights from."""

    voices: Tensor  # (queries, entities, voices)
    left_out: Tensor  # (queries, entities): who is known to be another answer
    answers: Tensor  # (queries,)
    few: Tensor  # (queries,): how little is known of the entity asked about


def learn_weights(network: ModelScorer, rules: RuleRanker, dataset: InductiveDataset, queries: Queries) -> Weights:
    """The weights under which the answers are most likely among all candidates that are not known to be true."""
    return weights_for(list(examples(network, rules, dataset, queries)))


def weights_for(batches: list[Examples], silent: Collection[str] = ()) -> Weights:
    """The weights that suit these examples best, however much is known; ``silent`` voices have none."""
    heard = torch.tensor([voice not in silent for voice in VOICES])
    guess = torch.tensor(GUESS) * heard

    def scores(batch: Examples, weights: Tensor) -> Tensor:
        return batch.voices @ (weights * heard)

    return _most_likely(batches, guess, scores)


def few_weights_for(batches: list[Examples], usual: Weights) -> Weights:
    """What to add to the usual weights where little is known."""
    known = torch.from_numpy(usual)

    def scores(batch: Examples, weights: Tensor) -> Tensor:
        return batch.voices @ known + (batch.voices @ weights) * batch.few[:, None]

    return _most_likely(batches, torch.zeros(len(VOICES)), scores)


def _most_likely(batches: list[Examples], guess: Tensor, scores: Callable[[Examples, Tensor], Tensor]) -> Weights:
    """The weights under which the answers have the highest likelihood, held back by the guess."""
    weights = guess.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = 0.5 * FIRMNESS * (weights - guess).square().sum()
        for batch in batches:
            among = scores(batch, weights).masked_fill(batch.left_out, -torch.inf)
            loss = loss + torch.nn.functional.cross_entropy(among, batch.answers, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach().numpy().astype(np.float32)


def examples(
    network: ModelScorer, rules: RuleRanker, dataset: InductiveDataset, queries: Queries
) -> Iterator[Examples]:
    """What the voices say of every candidate, a part of the queries at a time."""
    true = dataset.known().adjacency
    for start in range(0, len(queries), AT_ONCE):
        part = queries.take(np.arange(start, min(start + AT_ONCE, len(queries))))
        evidence = rules.evidence(part.entity, part.relation)
        table = np.stack(list(voices(network.scores(part.entity, part.relation), evidence)), axis=2)
        left_out = np.zeros(table.shape[:2], dtype=bool)
        for row, (entity, relation, answer) in enumerate(zip(part.entity, part.relation, part.answer, strict=True)):
            relations, tails = true.of(int(entity))
            left_out[row, tails[relations == relation]] = True
            left_out[row, answer] = False
        answers = torch.tensor(part.answer, dtype=torch.int64)
        few = torch.from_numpy(few_facts(evidence.facts))
        yield Examples(torch.from_numpy(table), torch.from_numpy(left_out), answers, few)
