"""Learning the weights of the ensemble (`newcomer.models.ensemble`): those under which true answers are likeliest."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.evaluation.ranking import Queries
from newcomer.graph import Ids, InductiveDataset
from newcomer.models.embedding.scorer import ModelScorer
from newcomer.models.ensemble import COMPANY, FEATURES, LINK, PATHS, Weights, asked_of, few_facts, query_batches, voices
from newcomer.models.scorer import Scorer
from newcomer.rules.ranking import Evidence, RuleRanker

PRIOR = (0.4, 0.2, 0.0, 0.7, 2.0, 0.4, -3.0)  # what is believed before any query is looked at

GUESS_OF_MORE = {COMPANY: 0.2, PATHS: 0.5}

FIRMNESS = 50.0  # how hard it is to move from there: dozens of queries must agree

COMPARED = 20_000  # candidates of a query to learn weights from; of more, some are drawn that stand for the others

ROUNDS = 25


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


def prior_of(names: Collection[str]) -> Tensor:
    """(voices,): what is believed of these before any query is looked at."""
    guesses = dict(zip(FEATURES, PRIOR, strict=True)) | GUESS_OF_MORE
    return torch.tensor([guesses[name] for name in names])


def weights_for(batches: list[Examples], names: Collection[str] = FEATURES, silent: Collection[str] = ()) -> Weights:
    """(2, voices): the usual and the tied weights under which the answers are most likely, however much is known.

    ``silent`` voices have none; without the link nobody is known to be tied.
    """
    heard = torch.tensor([voice not in silent for voice in names])
    beside_link = heard & (torch.arange(len(names)) != LINK)  # which says no more of those who are tied
    heard_of = torch.stack([heard, beside_link & heard[LINK]])
    guess = torch.stack([prior_of(names) * heard, torch.zeros(len(names))])

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
    for part in query_batches(len(queries), network.num_entities):
        asked = queries.take(np.arange(part.start, part.stop))
        evidence = rules.evidence(asked.entity, asked.relation)
        kept, weight = _candidates(evidence, asked.answer, compared, np.random.default_rng([3, part.start]))
        by_paths = asked_of(paths, asked.entity, asked.relation)
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
