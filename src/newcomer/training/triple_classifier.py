"""Learning to tell true triples from false ones, where a data set says what its false triples are like.

A share of the observed pairs is hidden, with all facts between the two: what is left is the graph that is looked at.
The hidden facts are true; each is set beside a false one that is made as the data set's own are. From what is seen
around both ends (`newcomer.models.pair_features`) a few small networks (`newcomer.models.triple_classifier`) learn
which is which. They have no number of any entity's own, so newcomers are judged as everybody is.

Pairs are hidden and not single facts because what is asked about is never tied already, while in a graph with inverse
relations nearly every fact has a twin that would give it away.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from newcomer.errors import DatasetError
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, TripleArray, concatenate
from newcomer.models.pair_features import Numbers, Surroundings, pairs_of, width_of
from newcomer.models.triple_classifier import Judge

HIDDEN_SHARE = 0.3
ROUNDS = 5  # of hiding
EPOCHS, BATCH, RATE = 8, 256, 0.002
MOST = 1 << 26  # numbers that are learned from


@dataclass(frozen=True)
class Corruption:
    """How a data set's false triples are made: how often the head is the end that is replaced, and by whom.

    ``fitting``: whether by an entity that stands at that end of the relation elsewhere; else by any.
    """

    heads: float
    fitting: bool


def corruption_of(dataset: InductiveDataset) -> Corruption | None:
    """The habit that shows in the labelled valid triples; None where these do not say that anything is false."""
    valid, observed = dataset.valid, dataset.observed.triples
    if valid.labels is None or not (valid.labels <= 0).any() or not (valid.labels > 0).any():
        return None
    true, false = valid.positives, valid.take(valid.labels <= 0)
    size = len(dataset.entities)
    kept_heads = np.isin(_keys(false.relations, false.heads, size), _keys(true.relations, true.heads, size))
    kept_tails = np.isin(_keys(false.relations, false.tails, size), _keys(true.relations, true.tails, size))
    heads = float(kept_tails.sum()) / max(float(kept_heads.sum() + kept_tails.sum()), 1.0)
    fitting_head = np.isin(_keys(false.relations, false.heads, size), _keys(observed.relations, observed.heads, size))
    fitting_tail = np.isin(_keys(false.relations, false.tails, size), _keys(observed.relations, observed.tails, size))
    fits = np.where(kept_tails & ~kept_heads, fitting_head, fitting_tail)
    return Corruption(heads, float(fits.mean()) > 0.5)


def _keys(relations: Ids, ends: Ids, size: int) -> npt.NDArray[np.int64]:
    return relations.astype(np.int64) * size + ends


def learn_triple_classifier(observed: Graph, habit: Corruption, seed: int) -> Judge:
    """A judge that practised on a graph; the same seed gives the same one."""
    generator = np.random.default_rng([seed, 4])
    numbers, relations, truths = _practice(observed, habit, generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        judge = Judge(observed.num_relations, width_of(observed.num_relations))
        _fit(judge, torch.from_numpy(numbers), torch.from_numpy(relations), torch.from_numpy(truths))
    return judge.eval()


def _fit(judge: Judge, numbers: torch.Tensor, relations: torch.Tensor, truths: torch.Tensor) -> None:
    judge.measure(numbers)
    judge.train()
    optimiser = torch.optim.Adam(judge.parameters(), lr=RATE, weight_decay=1e-5)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(truths)), BATCH):
            odds = judge.each(numbers[batch], relations[batch])  # every member learns for itself
            wanted = truths[batch].expand_as(odds)
            loss = functional.binary_cross_entropy_with_logits(odds, wanted, reduction="sum") / len(batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _practice(
    observed: Graph, habit: Corruption, generator: np.random.Generator
) -> tuple[Numbers, npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Numbers of true and false triples, their relations, and which are true."""
    pair = pairs_of(observed)
    most = max(1, MOST // width_of(observed.num_relations) // (2 * ROUNDS))
    parts: list[tuple[Numbers, Ids, Mask]] = []
    for _ in range(ROUNDS):
        hidden = generator.random(int(pair.max()) + 1) < HIDDEN_SHARE
        rest = Graph.build(observed.entities, observed.relations, observed.triples.take(~hidden[pair]))
        asked = observed.triples.take(hidden[pair])
        known = rest.degrees > 0
        asked = _some(asked.take(known[asked.heads] & known[asked.tails]), most, generator)
        false = _false_ones(asked, observed, rest, habit, generator)
        both = concatenate([asked, false])
        truths = np.arange(len(both)) < len(asked)
        parts.append((Surroundings(rest).of(both.heads, both.tails), both.relations, truths))
    numbers, relations, truths = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(truths) == 0:
        raise DatasetError(
            "the observed graph is too small to learn what is true from; set "
            "model.triple_classifier=false, or give more facts"
        )
    return numbers, relations.astype(np.int64), truths.astype(np.float32)


def _some(triples: TripleArray, most: int, generator: np.random.Generator) -> TripleArray:
    if len(triples) <= most:
        return triples
    return triples.take(np.sort(generator.choice(len(triples), size=most, replace=False)))


def _false_ones(
    asked: TripleArray, observed: Graph, rest: Graph, habit: Corruption, generator: np.random.Generator
) -> TripleArray:
    """These with one end of each replaced, without those that happen to be observed facts."""
    at_head = generator.random(len(asked)) < habit.heads
    ends = np.where(at_head, asked.heads, asked.tails)
    everyone = np.flatnonzero(rest.degrees > 0).astype(np.int32)
    drawn = everyone[generator.integers(len(everyone), size=len(asked))] if len(asked) else ends
    if habit.fitting:
        drawn = _fitting(asked.relations, at_head, drawn, rest, generator)
    heads, tails = np.where(at_head, drawn, asked.heads), np.where(at_head, asked.tails, drawn)
    return TripleArray(heads, asked.relations, tails).take(~observed.contains(heads, asked.relations, tails))


def _fitting(relations: Ids, at_head: Mask, drawn: Ids, rest: Graph, generator: np.random.Generator) -> Ids:
    """For each an entity that stands at this end of the relation; who was drawn before, where there is none."""
    found = drawn.copy()
    for is_head, column in ((True, rest.triples.heads), (False, rest.triples.tails)):
        for relation in np.unique(relations).tolist():
            places = np.flatnonzero((relations == relation) & (at_head == is_head))
            pool = np.unique(column[rest.triples.relations == relation])
            if len(pool):
                found[places] = pool[generator.integers(len(pool), size=len(places))]
    return found
