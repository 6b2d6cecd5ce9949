"""The tables of candidates that weights are learned from.

Covers newcomer.training.examples.
"""

from typing import Any

import numpy as np
import torch

from ensemble_world import NAMES, QUERIES, SAMPLE, TableEngine
from newcomer.models.ensemble import LINKED, columns_of
from newcomer.training.ensemble import weights_for
from newcomer.training.examples import BEST, Examples, examples

EVERYONE = 20_000


def examples_of(right: float, compared: int = EVERYONE) -> list[Examples]:
    engine: Any = TableEngine(right)
    return list(examples(engine, SAMPLE, QUERIES, compared))


def columns_of_all(right: float) -> list[np.ndarray]:
    """(queries,) of (entities, features)"""
    signals = TableEngine(right).signals_of_many(None, QUERIES.entity, QUERIES.relation)
    return [np.stack(columns_of(one), axis=1) for one in signals]


def right_answers(number: int) -> set[int]:
    relations, tails = SAMPLE.known().adjacency.of(int(QUERIES.entity[number]))
    return set(tails[relations == QUERIES.relation[number]].tolist())


def rows_of(table: np.ndarray) -> list[tuple[float, ...]]:
    return sorted(map(tuple, table.tolist()))


def test_where_candidates_are_few_everyone_is_compared_but_the_other_right_answers():
    (found,) = examples_of(1.0)
    for number, columns in enumerate(columns_of_all(1.0)):
        counts = torch.isfinite(found.offset[number])
        others = sorted(right_answers(number) - {int(QUERIES.answer[number])})
        assert rows_of(found.features[number][counts].numpy()) == rows_of(np.delete(columns, others, axis=0))
        assert not found.offset[number][counts].any()


def test_the_right_answer_comes_first():
    for most in (EVERYONE, 300):
        (found,) = examples_of(1.0, most)
        assert not found.answers.any() and not found.offset[:, 0].any()
        answers = [columns[answer] for columns, answer in zip(columns_of_all(1.0), QUERIES.answer, strict=True)]
        np.testing.assert_array_equal(found.features[:, 0].numpy(), np.stack(answers))


def test_of_many_candidates_the_best_are_there_and_the_others_stand_for_the_rest():
    (everyone,), (few,) = examples_of(3.0), examples_of(3.0, 300)
    assert few.features.shape[1] < everyone.features.shape[1] / 2
    torch.testing.assert_close(few.offset.exp().sum(1), everyone.offset.exp().sum(1))
    for number, columns in enumerate(columns_of_all(3.0)):
        allowed = np.delete(columns, sorted(right_answers(number)), axis=0)
        table = few.features[number][few.offset[number] == 0].numpy()
        for place in range(allowed.shape[1]):
            best = np.sort(allowed[:, place])[-BEST:]
            there = np.sort(table[1:, place])[-BEST:]
            np.testing.assert_array_equal(there, best)


def test_weights_learned_from_some_candidates_are_nearly_those_learned_from_all():
    whole, drawn = weights_for(examples_of(3.0), NAMES), weights_for(examples_of(3.0, 300), NAMES)
    np.testing.assert_allclose(drawn, whole, atol=0.15)
    (again,), (few,) = examples_of(3.0, 300), examples_of(3.0, 300)
    assert torch.equal(again.offset, few.offset) and torch.equal(again.features, few.features)


def test_the_links_of_hubs_are_drawn_like_all_others(monkeypatch):
    monkeypatch.setattr("newcomer.training.examples.BEST", 2)
    monkeypatch.setattr("newcomer.training.examples.DRAWN", 3)
    (few,) = examples_of(1.0, 10)
    assert few.features.shape[1] <= 1 + 2 * len(NAMES) + 3 * 3
    (everyone,) = examples_of(1.0)
    linked = [(one.offset.exp() * one.features[..., LINKED]).sum(1) for one in (few, everyone)]
    torch.testing.assert_close(*linked)


def test_the_parts_of_a_large_graphs_queries_are_small_and_do_not_change_them(monkeypatch):
    (whole,) = examples_of(1.0, 300)
    monkeypatch.setattr("newcomer.models.engine.CELLS_AT_ONCE", 3 * len(SAMPLE.entities))
    batches = examples_of(1.0, 300)
    assert [len(batch.answers) for batch in batches] == [3] * 13 + [1]
    rows = [row for batch in batches for row in batch.features]
    for row, expected in zip(rows, whole.features, strict=True):
        assert torch.equal(row, expected[: len(row)]) and not expected[len(row) :].any()
