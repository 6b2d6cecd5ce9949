"""Queries to learn the weights of the ensemble from: a compact table of candidates for each.

A table has the right answer, the best candidates by each feature, and of all others a few that are drawn and stand for
the rest of their group: those linked to the entity asked about, those that a rule infers, and everyone else. The log of
how many a candidate stands for is added to its score, so that a softmax over the table estimates the one over all
entities. What a table costs does not depend on the size of the graph.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.evaluation.ranking import Queries
from newcomer.graph import Ids, InductiveDataset, Mask
from newcomer.models.engine import InferenceEngine, query_batches
from newcomer.models.ensemble import LINKED, Signals, columns_of, few_facts
from newcomer.training.preparation import Progress

COMPARED = 1_000  # candidates of a query, if there are no more; of more, the best by each feature and some others
BEST = 48  # by each feature
DRAWN = 96  # of each group of others


class Examples(NamedTuple):
    """Queries to learn weights from."""

    features: Tensor  # (queries, candidates, features)
    offset: Tensor  # (queries, candidates): log of how many one stands for; minus infinity where there are fewer
    answers: Tensor  # (queries,): places among the candidates
    few: Tensor  # (queries,): how little is known of the entity asked about

    def scores(self, usual: Tensor, with_link: Tensor) -> Tensor:
        """(queries, candidates): by these weights, however much is known."""
        both = self.features @ torch.stack([usual, with_link], dim=1)  # the table is large: it is read once
        return both[:, :, 0] + self.features[:, :, LINKED] * both[:, :, 1]


class _Table(NamedTuple):
    """The candidates of one query, the right answer first."""

    features: npt.NDArray[np.float32]  # (candidates, features)
    offset: npt.NDArray[np.float32]  # (candidates,)
    few: np.float32


def examples(
    engine: InferenceEngine,
    dataset: InductiveDataset,
    queries: Queries,
    compared: int = COMPARED,
    progress: Progress = lambda *_: None,
) -> Iterator[Examples]:
    """The features of every candidate, or of some; a part of the queries at a time."""
    true = dataset.known().adjacency
    for part in query_batches(len(queries), engine.initial.num_entities):
        asked = queries.take(np.arange(part.start, part.stop))
        tables = []
        signals = engine.signals_of_many(engine.initial, asked.entity, asked.relation)
        rows = zip(asked.entity, asked.relation, asked.answer, signals, strict=True)
        for number, (entity, relation, answer, one) in enumerate(rows, part.start):
            relations, tails = true.of(int(entity))
            others = tails[(relations == relation) & (tails != answer)]  # also right: they are compared with nothing
            tables.append(_table(one, int(answer), others, compared, np.random.default_rng([3, number])))
        progress(part.stop, len(queries))
        yield _joined(tables)


def _table(signals: Signals, answer: int, others: Ids, compared: int, generator: np.random.Generator) -> _Table:
    columns = np.stack(columns_of(signals), axis=1)
    left = np.ones(len(columns), dtype=bool)  # who is not in the table yet
    left[others] = left[answer] = False
    kept, weights = [np.array([answer])], [np.zeros(1)]
    if len(columns) <= compared:
        kept.append(np.flatnonzero(left))
        weights.append(np.zeros(len(kept[-1])))
    else:
        for column in columns.T:
            best = _best(column, left)
            left[best] = False
            kept.append(best)
            weights.append(np.zeros(len(best)))
        for group in _groups(signals, left):
            drawn = generator.choice(group, size=min(len(group), DRAWN), replace=False)
            kept.append(drawn)
            weights.append(np.full(len(drawn), np.log(max(len(group), 1) / max(len(drawn), 1))))
    places = np.concatenate(kept)
    return _Table(columns[places], np.concatenate(weights).astype(np.float32), few_facts(signals.num_facts))


def _best(column: npt.NDArray[np.float32], left: Mask) -> npt.NDArray[np.int64]:
    """Who is best by a feature, of those who are left."""
    there = np.flatnonzero(left)
    if len(there) <= BEST:
        return there
    return np.sort(there[np.argpartition(-column[there], BEST)[:BEST]])


def _groups(signals: Signals, left: Mask) -> list[npt.NDArray[np.int64]]:
    """Those who are left, in three groups: the linked, those that a rule infers, and everyone else."""
    linked, inferred = signals.is_linked, (signals.rules.confidence > 0) & ~signals.is_linked
    return [np.flatnonzero(left & one) for one in (linked, inferred, ~linked & ~inferred)]


def _joined(tables: list[_Table]) -> Examples:
    """Tables of the same size: the shorter ones are filled up with candidates that count nothing."""
    size, width = max(len(one.offset) for one in tables), tables[0].features.shape[1]
    features = np.zeros((len(tables), size, width), dtype=np.float32)
    offset = np.full((len(tables), size), -np.inf, dtype=np.float32)
    for row, one in enumerate(tables):
        features[row, : len(one.offset)], offset[row, : len(one.offset)] = one.features, one.offset
    few = torch.from_numpy(np.array([one.few for one in tables]))
    return Examples(
        torch.from_numpy(features), torch.from_numpy(offset), torch.zeros(len(tables), dtype=torch.int64), few
    )
