"""Facts of the busiest newcomers are masked and asked for; what is masked is true, and stated nowhere."""

from collections import Counter

import numpy as np
import pytest

from conftest import make_dataset
from newcomer.data import load_dataset
from newcomer.data.cut import FactsCut
from newcomer.graph import InductiveDataset
from newcomer.training import holdout
from newcomer.training.holdout import mask_facts_of_busiest

SAMPLE = load_dataset("sample")
Triple = tuple[int, int, int]


def facts_of(dataset: InductiveDataset) -> set[Triple]:
    return set(map(tuple, dataset.auxiliary.triples.rows.tolist()))


@pytest.fixture(autouse=True)
def more_is_masked(monkeypatch):
    monkeypatch.setattr(holdout, "MASKED", 0.5)


@pytest.mark.parametrize("unseen", ["subject", "object", "both"])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_masked_is_asked_and_nothing_else_changes(unseen, seed):
    left, queries = mask_facts_of_busiest(SAMPLE, unseen, 1_000, seed)
    hidden = facts_of(SAMPLE) - facts_of(left)
    assert facts_of(left) < facts_of(SAMPLE) and len(hidden) == len(queries) == len(left.withheld)
    assert left.observed is SAMPLE.observed and np.array_equal(left.known().triples.rows, SAMPLE.known().triples.rows)
    size, asked = len(SAMPLE.relations), set()
    for entity, relation, answer in zip(queries.entity, queries.relation, queries.answer, strict=True):
        assert not SAMPLE.is_seen[entity] and SAMPLE.is_seen[answer]
        assert unseen == "both" or (relation < size) == (unseen == "subject")
        asked.add((entity, relation, answer) if relation < size else (answer, relation - size, entity))
    assert asked == hidden


def test_those_asked_about_are_the_busiest():
    told = Counter(end for head, _, tail in facts_of(SAMPLE) for end in (head, tail) if not SAMPLE.is_seen[end])
    _, queries = mask_facts_of_busiest(SAMPLE, "both", 1_000, 0)
    asked = set(queries.entity.tolist())
    others = [count for one, count in told.items() if one not in asked]
    assert min(told[one] for one in asked) >= max(others) and min(told[one] for one in asked) >= holdout.LEAST
    assert sum(sorted(told.values(), reverse=True)[: len(asked) - 1]) < holdout.SHARE * sum(told.values())


def test_draws_follow_from_the_seed_and_are_as_many_as_asked_for():
    drawn = [mask_facts_of_busiest(SAMPLE, "both", most, seed) for most, seed in ((7, 0), (7, 0), (7, 1))]
    assert [len(queries) for _, queries in drawn] == [7, 7, 7]
    assert facts_of(drawn[0][0]) == facts_of(drawn[1][0]) != facts_of(drawn[2][0])


def test_where_nobody_is_busy_nothing_is_masked(monkeypatch):
    few = [("x", "likes", name) for name in "abcd"]
    dataset = make_dataset(train=[("a", "likes", "b"), ("c", "likes", "d")], aux=few, test=[("a", "likes", "x")])
    left, queries = mask_facts_of_busiest(dataset, "subject", 10, 0)
    assert len(queries) == 0 and facts_of(left) == facts_of(dataset)
    monkeypatch.setattr(holdout, "LEAST", 4)
    assert len(mask_facts_of_busiest(dataset, "subject", 10, 0)[1]) == 2


def test_what_was_withheld_before_stays_true():
    cut = FactsCut(12, 0).of(SAMPLE)
    left, queries = mask_facts_of_busiest(cut, "both", 1_000, 0)
    assert len(queries) and len(left.withheld) == len(cut.withheld) + len(queries)
    assert np.array_equal(left.known().triples.rows, SAMPLE.known().triples.rows)
