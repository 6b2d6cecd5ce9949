"""The ensemble: a score is the weighted sum of all features, with weights for how much is known and who is linked."""

import numpy as np

from conftest import evaluate
from ensemble_world import NAMES, OVERLAY, QUERIES, RANKER, SAMPLE, embeddings, signals_of
from newcomer.models.ensemble import KINDS, ensemble_scores, few_facts, parts
from newcomer.models.features import FEATURES, Signals, columns_of
from newcomer.rules.ranking import RuleScorer

TABLE = embeddings(1.0)
USUAL = np.array([FEATURES[name].prior for name in NAMES], dtype=np.float32)
MORE = np.arange(1, 8, dtype=np.float32) / 4
NONE = np.zeros(7, dtype=np.float32)


def some(count: int = 6) -> list[Signals]:
    asked = zip(QUERIES.entity[:count].tolist(), QUERIES.relation[:count].tolist(), strict=True)
    return [signals_of(TABLE[query], *query) for query in asked]


def facts_of(entity: int) -> int:
    name = list(SAMPLE.entities)[entity]
    stated = [*SAMPLE.observed.named(), *SAMPLE.auxiliary.named()]
    return sum((h == name) + (t == name) for h, _, t in stated)


def test_the_score_is_the_weighted_sum_of_all_features():
    weights = np.array([0.5, 2.0, -1.0, 0.25, 3.0, -0.5, 1.5], dtype=np.float32)
    for signals in some():
        columns = columns_of(signals)
        assert len(columns) == len(NAMES) and len(KINDS) == 3
        found = ensemble_scores(signals, np.stack([weights, NONE, NONE]))
        expected = sum(w * column for w, column in zip(weights, columns, strict=True))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_parts_add_up_to_the_score_in_their_order():
    for signals in some():
        weights, total = np.stack([USUAL, MORE, -MORE]), np.zeros(len(SAMPLE.entities), dtype=np.float32)
        found = list(parts(signals, weights))
        for part in found:
            total += part
        assert len(found) == len(NAMES) and np.array_equal(total, ensemble_scores(signals, weights))


def test_what_is_added_where_little_is_known_counts_the_less_the_more_is():
    counts = [facts_of(int(entity)) for entity in QUERIES.entity[:6]]
    assert len(set(counts)) > 1
    for signals, count in zip(some(), counts, strict=True):
        assert signals.num_facts == count and few_facts(count) == np.float32(1 / count)
        expected = sum((u + f / count) * c for u, f, c in zip(USUAL, MORE, columns_of(signals), strict=True))
        found = ensemble_scores(signals, np.stack([USUAL, MORE, NONE]))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_of_whom_nothing_is_known_as_little_is_known_as_by_one_fact():
    assert few_facts(0) == few_facts(1) == 1 and few_facts(4) == 0.25


def test_what_is_added_for_those_who_are_linked_already_counts_for_them_alone():
    linked_ones = 0
    for signals in some():
        found = ensemble_scores(signals, np.stack([USUAL, NONE, MORE]))
        before, linked = ensemble_scores(signals, np.stack([USUAL, NONE, NONE])), signals.is_linked
        linked_ones += int(linked.sum())
        assert not linked.all()
        np.testing.assert_array_equal(found[~linked], before[~linked])
        more = sum(weight * column for weight, column in zip(MORE, columns_of(signals), strict=True))
        np.testing.assert_allclose(found[linked], (before + more)[linked], rtol=1e-4, atol=1e-4)
    assert linked_ones


class ByRulesAlone:
    """The ensemble, of which the rank by rules counts alone."""

    def scores(self, entities: np.ndarray, relations: np.ndarray) -> np.ndarray:
        weights = np.stack([np.array([float(name == "rule_rank") for name in NAMES], dtype=np.float32), NONE, NONE])
        asked = zip(entities.tolist(), relations.tolist(), strict=True)
        return np.stack([ensemble_scores(signals_of(TABLE[query], *query), weights) for query in asked])


def test_without_the_embedding_the_order_is_that_of_the_rules():
    ranked = evaluate(SAMPLE, RuleScorer(RANKER, OVERLAY), queries=QUERIES).ranks
    assert np.array_equal(evaluate(SAMPLE, ByRulesAlone(), queries=QUERIES).ranks, ranked)
