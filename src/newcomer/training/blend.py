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
                 (`newcomer.rules.company`); of models that hear all that is known
    paths        log of its share in what paths say of all seen entities; of models that have learned from them

Whom to believe depends on how much is known of the entity asked about, and on whether it is tied to the candidate: the
weights are ``usual + few / n + tied * link`` where ``n`` facts tell of it. Usual and tied are those under which the
true answers of the validation queries are most likely, near to a plain guess where there are few queries to learn from.
Then ``few`` is learned in the same way on the same newcomers with most of their facts taken away.

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
from newcomer.tasks.link_prediction import Queries, Scorer
from newcomer.training.scorer import ModelScorer

VOICES = ("network", "order", "confidence", "odds", "link", "frequency", "newcomer")
LINK = VOICES.index("link")
KINDS = ("", ", few facts", ", tied")  # of weights: usual ones, and what is added
COMPANY, PATHS = "company", "paths"  # more voices, of models that have them
GUESS = (0.4, 0.2, 0.0, 0.7, 2.0, 0.4, -3.0)  # what is believed before any query is looked at
GUESS_OF_MORE = {COMPANY: 0.2, PATHS: 0.5}
FIRMNESS = 50.0  # how hard it is to move from there: dozens of queries must agree
UNLIKE = 0.01  # a likeness that is hardly more than none
UNKNOWN = 1e-3  # the confidence where no rule speaks, and how far from certain the best may be
AT_ONCE = 128  # queries whose tables are made together
CELLS_AT_ONCE = 1 << 21  # candidates of these queries, all together
COMPARED = 20_000  # candidates of a query to learn weights from; of more, some are drawn that stand for the others
ROUNDS = 25
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class BlendedScorer:
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
        """What each voice, in the order of `VOICES`, adds to the scores: added up in this order they are the scores."""
        evidence = self.rules.evidence(entities, relations)
        usual, few, tied = all_kinds(self.weights)
        weights = (usual + few * few_facts(evidence.facts)[:, None]).astype(np.float32)
        linked = evidence.linked.astype(np.float32)
        said = voices(self.network.scores(entities, relations), evidence, _asked(self.paths, entities, relations))
        for weight, added, voice in zip(weights.T, tied, said, strict=True):
            yield (weight[:, None] + added * linked) * voice

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float32]:
        """(n,): the score of each triple, as an answer among all; relation ids from R on are inverses."""
        found: npt.NDArray[np.float32] = np.empty(len(heads), dtype=np.float32)
        for part in _parts(len(heads), self.network.num_entities):
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


def _asked(paths: Scorer | None, entities: Ids, relations: Ids) -> npt.NDArray[np.float32] | None:
    return None if paths is None else paths.scores(entities, relations)


def voices(
    said: npt.NDArray[np.float32], evidence: Evidence, by_paths: npt.NDArray[np.float32] | None = None
) -> Iterator[npt.NDArray[np.float32]]:
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
    if evidence.likeness is not None:
        yield np.log1p(evidence.likeness / UNLIKE).astype(np.float32)
    if by_paths is not None:
        yield by_paths


def ranks_of(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The rank of each score in its row: 1 and those above; equals share theirs."""
    ascending = np.sort(scores, axis=1)
    above = [row.size - np.searchsorted(row, given, side="right") for row, given in zip(ascending, scores, strict=True)]
    return 1 + np.array(above).reshape(scores.shape)


def _parts(queries: int, candidates: int) -> Iterator[slice]:
    """Some queries at a time, so few that the tables of all candidates are no burden."""
    step = max(1, min(AT_ONCE, CELLS_AT_ONCE // max(candidates, 1)))
    return (slice(start, min(start + step, queries)) for start in range(0, queries, step))


class Examples(NamedTuple):
    """Queries to learn weights from."""

    voices: Tensor  # (queries, candidates, voices)
    prior: Tensor  # (queries, candidates): log of how many one stands for; minus infinity for another known answer
    answers: Tensor  # (queries,): places among the candidates
    few: Tensor  # (queries,): how little is known of the entity asked about

    def scores(self, usual: Tensor, tied: Tensor) -> Tensor:
        """(queries, candidates): by these weights, however much is known."""
        both = self.voices @ torch.stack([usual, tied], dim=1)  # the table is large: it is read once
        return both[:, :, 0] + self.voices[:, :, LINK] * both[:, :, 1]


def voices_of(company: bool, paths: bool) -> tuple[str, ...]:
    """The names of the voices of a model, in their order."""
    return (*VOICES, *[COMPANY] * company, *[PATHS] * paths)


def guess_of(names: Collection[str]) -> Tensor:
    """(voices,): what is believed of these before any query is looked at."""
    guesses = dict(zip(VOICES, GUESS, strict=True)) | GUESS_OF_MORE
    return torch.tensor([guesses[name] for name in names])


def weights_for(batches: list[Examples], names: Collection[str] = VOICES, silent: Collection[str] = ()) -> Weights:
    """(2, voices): the usual and the tied weights under which the answers are most likely, however much is known.

    ``silent`` voices have none; without the link nobody is known to be tied.
    """
    heard = torch.tensor([voice not in silent for voice in names])
    beside_link = heard & (torch.arange(len(names)) != LINK)  # which says no more of those who are tied
    heard_of = torch.stack([heard, beside_link & heard[LINK]])
    guess = torch.stack([guess_of(names) * heard, torch.zeros(len(names))])

    def scores(batch: Examples, weights: Tensor) -> Tensor:
        return batch.scores(*(weights * heard_of))

    return _most_likely(batches, guess, scores)


def few_weights_for(batches: list[Examples], usual: Weights, tied: Weights) -> Weights:
    """What to add to the usual and tied weights where little is known."""
    known = torch.from_numpy(usual), torch.from_numpy(tied)
    before = [batch._replace(prior=batch.prior + batch.scores(*known)) for batch in batches]

    def scores(batch: Examples, weights: Tensor) -> Tensor:
        return (batch.voices @ weights) * batch.few[:, None]

    return _most_likely(before, torch.zeros_like(known[0]), scores)


def _most_likely(batches: list[Examples], guess: Tensor, scores: Callable[[Examples, Tensor], Tensor]) -> Weights:
    """The weights under which the answers have the highest likelihood, held back by the guess."""
    weights = guess.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = 0.5 * FIRMNESS * (weights - guess).square().sum()
        for batch in batches:
            among = scores(batch, weights) + batch.prior
            loss = loss + torch.nn.functional.cross_entropy(among, batch.answers, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach().numpy().astype(np.float32)


def examples(
    network: ModelScorer,
    rules: RuleRanker,
    dataset: InductiveDataset,
    queries: Queries,
    compared: int = COMPARED,
    paths: Scorer | None = None,
) -> Iterator[Examples]:
    """What the voices say of every candidate, or of so many, a part of the queries at a time."""
    true = dataset.known().adjacency
    for part in _parts(len(queries), network.num_entities):
        asked = queries.take(np.arange(part.start, part.stop))
        evidence = rules.evidence(asked.entity, asked.relation)
        kept, weight = _candidates(evidence, asked.answer, compared, np.random.default_rng([3, part.start]))
        by_paths = _asked(paths, asked.entity, asked.relation)
        said = voices(network.scores(asked.entity, asked.relation), evidence, by_paths)
        table = np.stack([voice[:, kept] for voice in said], axis=2)
        left_out = np.zeros(evidence.linked.shape, dtype=bool)
        for row, (entity, relation, answer) in enumerate(zip(asked.entity, asked.relation, asked.answer, strict=True)):
            relations, tails = true.of(int(entity))
            left_out[row, tails[relations == relation]] = True
            left_out[row, answer] = False
        prior = np.where(left_out[:, kept], -np.inf, weight).astype(np.float32)
        answers = torch.from_numpy(np.searchsorted(kept, asked.answer))
        few = torch.from_numpy(few_facts(evidence.facts))
        yield Examples(torch.from_numpy(table), torch.from_numpy(prior), answers, few)


def _candidates(
    evidence: Evidence, answers: Ids, most: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Whom to compare, ascending, and the log of how many each stands for.

    Where there are more than ``most``, the answers and those who are tied to an entity asked about stand for
    themselves; of the others that a rule reaches, and of all the rest, up to half as many are drawn each.
    """
    certain = np.any(evidence.linked > 0, axis=0)
    certain[answers] = True
    reached = np.any(evidence.confidence > 0, axis=0) & ~certain
    weight = np.full(len(certain), -np.inf, dtype=np.float32)
    weight[certain] = 0.0
    for group in (np.flatnonzero(reached), np.flatnonzero(~certain & ~reached)):
        room = len(group) if len(certain) <= most else min(len(group), most // 2)
        drawn = generator.choice(group, size=room, replace=False)
        weight[drawn] = np.log(max(len(group), 1) / max(room, 1))
    kept = np.flatnonzero(np.isfinite(weight))
    return kept, weight[kept]
