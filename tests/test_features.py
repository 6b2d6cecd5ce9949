"""Each feature against its definition, from names and plain lists of facts."""

import math

import numpy as np
import pytest

from ensemble_world import NAMES, OVERLAY, QUERIES, RANKER, SAMPLE, embeddings, signals_of
from newcomer.models.features import FEATURES, LINKED, UNKNOWN, columns_of, feature_names, rule_rank
from newcomer.rules.ranking import RuleEvidence
from newcomer.rules.statistics import GraphStatistics

TABLE = embeddings(1.0)
STATED = [*SAMPLE.observed.named(), *SAMPLE.auxiliary.named()]


def query(place: int) -> tuple[int, int]:
    return int(QUERIES.entity[place]), int(QUERIES.relation[place])


def by_definition(entity: int, relation: int) -> dict[str, list[float]]:
    """What is said of every candidate, one by one."""
    scores, evidence = TABLE[entity, relation], RANKER.evidence(OVERLAY, entity, relation)
    rules, best = evidence.scores.tolist(), evidence.confidence.tolist()
    count, names = len(SAMPLE.relations), list(SAMPLE.entities)
    observed = [fact for fact in SAMPLE.observed.named() if SAMPLE.relations.id(fact[1]) == relation % count]
    answers = [fact[2] if relation < count else fact[0] for fact in observed]
    occurring = {name for h, _, t in SAMPLE.observed.named() for name in (h, t)}
    linked = {h if t == names[entity] else t for h, _, t in STATED if names[entity] in (h, t)}
    total = sum(math.exp(score) for name, score in zip(names, scores, strict=True) if name in occurring)
    certain = [min(max(one, UNKNOWN), 1 - UNKNOWN) for one in best]
    return {
        "embedding": [math.log(math.exp(score) / total) for score in scores],
        "rule_rank": [-math.log(1 + sum(other > one for other in rules)) for one in rules],
        "rule_confidence": [math.log(max(one, UNKNOWN)) for one in best],
        "rule_odds": [math.log(one / (1 - one)) for one in certain],
        "linked": [float(name in linked) for name in names],
        "frequency": [math.log(1 + answers.count(name)) for name in names],
        "unobserved": [float(name not in occurring) for name in names],
    }


@pytest.mark.parametrize("place", [11, 25])
def test_each_feature_is_what_it_stands_for(place):
    expected = by_definition(*query(place))
    columns = columns_of(signals_of(TABLE[query(place)], *query(place)))
    assert feature_names(statistics=False, has_propagation=False) == NAMES == tuple(expected)
    for name, found in zip(NAMES, columns, strict=True):
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
        assert found.dtype == np.float32 and len(set(expected[name])) > 1, f"{name} is the same of everyone"


def test_with_graph_statistics_all_known_facts_are_counted_and_similarity_is_a_feature():
    statistics, count, names = GraphStatistics(OVERLAY), len(SAMPLE.relations), list(SAMPLE.entities)
    ordered = feature_names(statistics=True, has_propagation=False)
    similar = 0
    for place in range(0, len(QUERIES), 3):
        entity, relation = query(place)
        plain = signals_of(TABLE[entity, relation], entity, relation)
        columns = dict(
            zip(ordered, columns_of(signals_of(TABLE[entity, relation], entity, relation, statistics)), strict=True)
        )
        facts = [
            (h, t) if relation < count else (t, h) for h, r, t in STATED if r == SAMPLE.relations[relation % count]
        ]
        answers = [answer for _, answer in facts]
        expected = [math.log(1 + answers.count(name)) for name in names]
        np.testing.assert_allclose(columns["frequency"], expected, rtol=1e-5)
        known = SAMPLE.entities.ids([answer for head, answer in facts if head == names[entity]])
        similarity = statistics.similarity(entity, known)
        np.testing.assert_allclose(columns["similarity"], np.log(1 + 100 * similarity), rtol=1e-5)
        similar += bool(similarity.any())
        for name, column in zip(NAMES, columns_of(plain), strict=True):
            assert name == "frequency" or np.array_equal(columns[name], column)
    assert similar


def test_what_the_propagation_network_says_is_the_last_feature():
    signals = signals_of(TABLE[query(0)], *query(0))
    shares = np.linspace(-9, 0, len(SAMPLE.entities)).astype(np.float32)
    columns = columns_of(signals._replace(propagation=shares))
    assert len(columns) == len(NAMES) + 1 and np.array_equal(columns[-1], shares)


@pytest.mark.parametrize(("statistics", "propagation"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_model_has_the_features_that_its_signals_have(statistics, propagation):
    signals = signals_of(TABLE[query(3)], *query(3), GraphStatistics(OVERLAY) if statistics else None)
    if propagation:
        signals = signals._replace(propagation=np.zeros(len(SAMPLE.entities), dtype=np.float32))
    names = feature_names(statistics, propagation)
    assert len(columns_of(signals)) == len(names) == 7 + statistics + propagation
    assert names == tuple(name for name in FEATURES if name in names) and names[LINKED] == "linked"


def test_ranks_count_who_is_above():
    nothing = np.zeros(4)
    signals = signals_of(TABLE[query(0)], *query(0))
    for scores, ranks in (([3.0, 1.0, 3.0, 2.0], [1, 4, 1, 3]), ([0.0, 0.0, 0.0, 0.0], [1, 1, 1, 1])):
        found = rule_rank(signals._replace(rules=RuleEvidence(np.array(scores), nothing)))
        np.testing.assert_allclose(np.exp(-found), ranks, rtol=1e-6)


def test_the_confidence_is_that_of_the_best_rule():
    strengths = set(np.round(RANKER.index.strength, 12).tolist())
    for place in range(10):
        evidence = RANKER.evidence(OVERLAY, *query(place))
        assert set(np.round(evidence.confidence[evidence.confidence > 0], 12).tolist()) <= strengths
        order = np.argsort(-evidence.scores, kind="stable")
        assert (np.diff(evidence.confidence[order]) <= 1e-12).all(), "who stands higher has no weaker best rule"
