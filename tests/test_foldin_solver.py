"""The descent: minima against closed forms; many newcomers at once come out as one by one."""

import numpy as np
import pytest
import torch
from torch import Tensor

from newcomer.models.embedding import foldin_solver as folding
from newcomer.models.embedding.foldin_solver import MANY_POINTS, MAX_CALLS, ONE_POINT, Array, descend, solve_all
from nn_oracle import edges_of, one_thread
from test_foldin import SEEN, encoder_of, random_facts

on_one_thread = pytest.fixture(autouse=True)(one_thread)


def bowls(seed: int, count: int, dim: int) -> tuple[Tensor, Tensor]:
    """Positive definite matrices, and where their bowls are lowest."""
    generator = torch.Generator().manual_seed(seed)
    roots = torch.randn(count, dim, dim, generator=generator, dtype=torch.float64)
    eyes = torch.eye(dim, dtype=torch.float64)
    return roots @ roots.mT / dim + 0.5 * eyes, torch.randn(count, dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_bowls_are_descended_to_their_lowest_point(seed):
    shapes, lowest = bowls(seed, 7, 10)
    lowest[3] = 0.0  # begins at its minimum
    calls = []

    def cost(points: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(len(points))
        slopes = ((points - lowest)[:, None] @ shapes)[:, 0]
        return (slopes * (points - lowest)).sum(dim=1, keepdim=True) / 2, slopes

    found = descend(cost, torch.zeros_like(lowest), MANY_POINTS)
    assert float((found - lowest).abs().max()) < 0.01 and torch.equal(found[3], lowest[3])
    assert len(calls) <= MAX_CALLS


def test_a_step_that_is_too_long_is_shortened():
    """Steep walls: a step of length one from the origin costs far more than it brings."""
    lowest = torch.tensor([[0.01, -0.02]], dtype=torch.float64)

    def cost(points: Tensor) -> tuple[Tensor, Tensor]:
        away = 300 * (points - lowest)
        return torch.cosh(away).sum(dim=1, keepdim=True), 300 * torch.sinh(away)

    values = [
        float(cost(points)[0])
        for points in (torch.zeros_like(lowest), descend(cost, torch.zeros_like(lowest), MANY_POINTS))
    ]
    assert values[1] < 0.5 * values[0]


def test_each_goes_its_own_way():
    shapes, lowest = bowls(0, 4, 6)
    shapes[1] *= 1e4

    def cost_of(rows: list[int]) -> folding.Cost:
        def cost(points: Tensor) -> tuple[Tensor, Tensor]:
            slopes = ((points - lowest[rows])[:, None] @ shapes[rows])[:, 0]
            return (slopes * (points - lowest[rows])).sum(dim=1, keepdim=True) / 2, slopes

        return cost

    together = descend(cost_of([0, 1, 2, 3]), torch.zeros_like(lowest), MANY_POINTS)
    for row in range(4):
        alone = descend(cost_of([row]), torch.zeros_like(lowest[:1]), MANY_POINTS)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steep", [1.0, 1e4])
def test_one_goes_the_way_it_goes_among_many(seed, steep):
    shapes, lowest = bowls(seed, 5, 10)
    shapes, lowest[3] = shapes * steep, 0.0
    together = descend(_many(shapes, lowest), torch.zeros_like(lowest), MANY_POINTS)
    for row in range(5):
        calls = []

        def cost(point: Array, row: int = row, calls: list[Array] = calls) -> tuple[float, Array]:
            calls.append(point)
            values, slopes = _many(shapes[row : row + 1], lowest[row : row + 1])(torch.from_numpy(point)[None])
            return float(values), slopes[0].numpy()

        alone = torch.from_numpy(descend(cost, np.zeros(10), ONE_POINT))
        torch.testing.assert_close(alone, together[row], rtol=1e-6, atol=1e-9)
        assert len(calls) <= MAX_CALLS and (row != 3 or len(calls) == 1)


def _many(shapes: Tensor, lowest: Tensor) -> folding.Cost:
    def cost(points: Tensor) -> tuple[Tensor, Tensor]:
        slopes = ((points - lowest)[:, None] @ shapes)[:, 0]
        return (slopes * (points - lowest)).sum(dim=1, keepdim=True) / 2, slopes

    return cost


@pytest.mark.parametrize("decoder", ["distmult", "complex"])
@pytest.mark.parametrize("most", [1, 2000, folding.MAX_NUMBERS])
def test_many_are_solved_for_as_one_by_one(decoder, most, monkeypatch):
    monkeypatch.setattr(folding, "MAX_NUMBERS", most)
    encoder = encoder_of(decoder)
    known = encoder.vectors.detach()
    lists = [random_facts(seed, count) for seed, count in enumerate((1, 9, 0, 4, 3, 17, 2))]
    lists[4] = [(relation, neighbor, 0.0) for relation, neighbor, _ in lists[4]]
    edges = edges_of(lists, SEEN + len(lists))
    expected = encoder.extend(encoder.states(edges_of([[] for _ in range(SEEN)], SEEN)), edges).layers[0][SEEN:]
    facts = encoder._used_facts(edges)
    problem = encoder._problem(torch.device("cpu"))
    found, solved = torch.zeros_like(expected), []
    for some, vectors in solve_all(problem, facts, known, torch.device("cpu")):
        found[some] = vectors
        solved += some.tolist()
    assert sorted(solved) == [0, 1, 3, 5, 6]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
