"""Queries of the sample with made-up embeddings: what the ensemble is computed and learned from, without training."""

from types import SimpleNamespace

import numpy as np

from newcomer.data import load_dataset
from newcomer.evaluation.ranking import queries_of
from newcomer.graph import Overlay
from newcomer.models.ensemble import Signals
from newcomer.rules.mining import mine_rules
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.statistics import GraphStatistics, graph_signals

SAMPLE = load_dataset("sample")
QUERIES = queries_of(SAMPLE).take(np.arange(40))
OVERLAY = Overlay.of_dataset(SAMPLE)
RANKER = RuleRanker.of(mine_rules(SAMPLE.observed).rules)
NAMES = ("embedding", "rule_rank", "rule_confidence", "rule_odds", "linked", "frequency", "unobserved")


def embeddings(right: float) -> dict[tuple[int, int], np.ndarray]:
    """By query: noise, with ``right`` added to the answers."""
    rng, table = np.random.default_rng(0), dict[tuple[int, int], np.ndarray]()
    for entity, relation, answer in zip(QUERIES.entity, QUERIES.relation, QUERIES.answer, strict=True):
        noise = rng.normal(size=len(SAMPLE.entities)).astype(np.float32)
        table.setdefault((int(entity), int(relation)), noise)[answer] += np.float32(right)
    return table


def signals_of(embedding: np.ndarray, entity: int, relation: int, statistics: GraphStatistics | None = None) -> Signals:
    """All that is known of every candidate, as the engine gathers it."""
    found = graph_signals(RANKER, OVERLAY, statistics, entity, relation)
    return Signals(OVERLAY.num_seen, OVERLAY.is_unobserved, embedding, *found)


class TableEngine:
    """Stands for an inference engine whose embedding is made up."""

    def __init__(self, right: float) -> None:
        self.table = embeddings(right)
        self.initial = SimpleNamespace(num_entities=len(SAMPLE.entities))

    def signals_of_many(self, _: object, entities: np.ndarray, relations: np.ndarray) -> list[Signals]:
        queries = zip(entities.tolist(), relations.tolist(), strict=True)
        return [signals_of(self.table[query], *query) for query in queries]
