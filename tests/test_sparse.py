"""Sparse sums against plain loops, and their gradients against differences."""

import pytest
import torch

from newcomer.models.sparse import (
    BLOCK,
    Rows,
    by_column,
    distinct,
    row_softmax,
    row_sums,
    sampled_by_bags,
    single_rows,
    summed_by_blocks,
    weighted_sum,
)
from nn_oracle import one_thread, random_edges, rows_of

SEEDS = range(4)
on_one_thread = pytest.fixture(autouse=True)(one_thread)
NOTHING = rows_of([[], [], []], 4)


def dense(width: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(width, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def lists(rows: Rows) -> list[list[int]]:
    return [part.tolist() for part in rows.columns.split(rows.sizes.tolist())]


def test_picked_rows_come_in_the_order_asked_and_as_often():
    rows = rows_of([[3, 1], [], [2], [0, 0, 3]], 4)
    picked, entries = rows.pick(torch.tensor([3, 1, 0, 3]))
    assert lists(picked) == [[0, 0, 3], [], [3, 1], [0, 0, 3]]
    assert entries.tolist() == [3, 4, 5, 0, 1, 3, 4, 5]
    assert picked.row_ids.tolist() == [0, 0, 0, 2, 2, 3, 3, 3]
    assert rows.pick(torch.tensor([], dtype=torch.int64))[0].num_rows == 0


def test_a_mask_keeps_all_rows_and_some_entries():
    rows = rows_of([[3, 1], [], [2], [0, 0, 3]], 4)
    mask = torch.tensor([False, True, False, True, False, True])
    assert lists(rows.where(mask)) == [[1], [], [], [0, 3]]
    assert lists(NOTHING.where(torch.zeros(0, dtype=torch.bool))) == [[], [], []]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_transpose_has_every_entry_at_its_mirrored_place(seed):
    rows = random_edges(seed, width=9).rows
    turned, order = rows.transposed
    there = list(zip(rows.row_ids[order].tolist(), rows.columns[order].tolist(), strict=True))
    assert list(zip(turned.columns.tolist(), turned.row_ids.tolist(), strict=True)) == there
    assert (turned.num_rows, turned.width) == (9, rows.num_rows)
    assert sorted(order.tolist()) == list(range(len(order)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_sum_equals_a_loop(seed, dtype):
    edges = random_edges(seed, width=9, dtype=dtype)
    vectors = dense(9, 5, seed).to(dtype)
    expected = torch.zeros(edges.rows.num_rows, 5, dtype=dtype)
    for row, column, weight in zip(edges.rows.row_ids, edges.rows.columns, edges.weights, strict=True):
        expected[row] += weight * vectors[column]
    torch.testing.assert_close(weighted_sum(edges.rows, edges.weights, vectors), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_row_sums_equal_a_loop(seed):
    edges = random_edges(seed)
    expected = [sum(part.tolist()) for part in edges.weights.split(edges.rows.sizes.tolist())]
    torch.testing.assert_close(row_sums(edges.rows, edges.weights), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("seed", SEEDS)
def test_row_softmax_equals_a_loop(seed):
    edges = random_edges(seed)
    logits = dense(len(edges.weights), 1, seed)[:, 0] * 3
    expected = []
    for part, weights in zip(*(x.split(edges.rows.sizes.tolist()) for x in (logits, edges.weights)), strict=True):
        raised = weights * torch.exp(part)
        expected.append(raised / raised.sum() if raised.sum() > 0 else torch.zeros_like(raised))
    torch.testing.assert_close(row_softmax(edges.rows, logits, edges.weights), torch.cat(expected))


def long_rows(seed: int, width: int = 9) -> Rows:
    """Rows that end just before, at and after the end of a block, with empty ones around them."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [0, 1, BLOCK - 1, BLOCK, 0, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 7, 0]
    return rows_of([torch.randint(width, (size,), generator=generator).tolist() for size in sizes], width)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_cut_every_row_into_runs_of_a_few_entries(seed):
    rows = long_rows(seed)
    starts, offsets = rows.blocks
    needed = [min(BLOCK, size - begin) for size in rows.sizes.tolist() for begin in range(0, size, BLOCK)]
    sizes = (starts[1:] - starts[:-1]).tolist()
    assert sizes == needed + [0] * (len(sizes) - len(needed))
    assert starts[offsets[:-1]].tolist() == rows.offsets[:-1].tolist()
    assert (offsets[1:] - offsets[:-1]).tolist() == [-(-size // BLOCK) for size in rows.sizes.tolist()]


@pytest.mark.parametrize("sizes", [[], [0, 0], [BLOCK] * 3, [1] * 5, [BLOCK + 1] * 4])
def test_there_is_room_for_as_many_blocks_as_rows_may_need(sizes):
    rows = rows_of([[0] * size for size in sizes], 1)
    starts, offsets = rows.blocks
    assert int(offsets[-1]) < len(starts) and int(starts[-1]) == sum(sizes)


@pytest.mark.parametrize("seed", SEEDS)
def test_by_blocks_as_on_a_gpu_the_products_are_the_same(seed):
    rows = long_rows(seed)
    values, vectors = dense(len(rows.columns), 1, seed)[:, 0], dense(9, 5, seed)
    torch.testing.assert_close(summed_by_blocks(rows, values, vectors), weighted_sum(rows, values, vectors))
    left = dense(rows.num_rows, 5, seed + 1)
    expected = (left[rows.row_ids] * vectors[rows.columns]).sum(dim=1)
    torch.testing.assert_close(sampled_by_bags(rows, left, vectors), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_looked_up_values_and_their_gradients_are_those_of_indexing(seed):
    edges, vectors = random_edges(seed, width=9), dense(9, 3, seed).requires_grad_()
    lookup, table = single_rows(edges.relations, 6), dense(6, 1, seed + 1)[:, 0].requires_grad_()
    given = weighted_sum(edges.rows, table[edges.relations] * edges.weights, vectors)
    found = weighted_sum(edges.rows, by_column(lookup, table) * edges.weights, vectors)
    assert torch.equal(found, given)
    for gradients in zip(
        *(torch.autograd.grad(sums.sin().sum(), (table, vectors)) for sums in (found, given)), strict=True
    ):
        torch.testing.assert_close(*gradients)
    assert torch.autograd.gradcheck(lambda values: by_column(lookup, values), (table,))


@pytest.mark.parametrize("given", [[3, 0, 3, 6, 0], [2], []])
def test_distinct_values_are_those_that_sorting_finds(given):
    values = torch.tensor(given, dtype=torch.int64)
    for found, expected in zip(distinct(values, 7), torch.unique(values, return_inverse=True), strict=True):
        assert torch.equal(found, expected)
    chosen = torch.arange(len(values)) % 2 == 0
    found, places = distinct(values, 7, chosen)
    assert torch.equal(found, torch.unique(values[chosen])) and torch.equal(found[places[chosen]], values[chosen])


def test_without_entries_every_sum_is_zero():
    nothing = torch.zeros(0, dtype=torch.float64)
    assert torch.equal(weighted_sum(NOTHING, nothing, dense(4, 2)), torch.zeros(3, 2, dtype=torch.float64))
    assert torch.equal(row_sums(NOTHING, nothing), torch.zeros(3, dtype=torch.float64))
    assert len(row_softmax(NOTHING, nothing, nothing)) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_weighted_sum(seed):
    edges = random_edges(seed, width=9)
    vectors, weights = dense(9, 3, seed).requires_grad_(), edges.weights.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda w, v: weighted_sum(edges.rows, w, v), (weights, vectors))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_row_sums_and_row_softmax(seed):
    edges = random_edges(seed)
    values = dense(len(edges.weights), 1, seed)[:, 0].requires_grad_()
    assert torch.autograd.gradcheck(lambda v: row_sums(edges.rows, v), (values,))
    assert torch.autograd.gradcheck(lambda v: row_softmax(edges.rows, v, edges.weights), (values,))


def test_gradients_of_more_entries_than_places():
    rows = rows_of([[0, 1, 0, 0], [1, 1, 0]], 2)
    vectors, weights = dense(2, 3).requires_grad_(), dense(7, 1, 1)[:, 0].requires_grad_()
    assert torch.autograd.gradcheck(lambda w, v: weighted_sum(rows, w, v), (weights, vectors))


def test_only_what_needs_a_gradient_gets_one():
    edges = random_edges(1)
    vectors, weights = dense(7, 3), edges.weights.clone().requires_grad_()
    weighted_sum(edges.rows, weights, vectors).sum().backward()
    assert vectors.grad is None
    expected = vectors.sum(dim=1)[edges.rows.columns]
    torch.testing.assert_close(weights.grad, expected)


def test_a_hidden_entry_cannot_push_the_visible_ones_out_of_range():
    rows = rows_of([[0, 1, 2]], 3)
    shares = row_softmax(rows, torch.tensor([1e4, 1.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
    assert shares.tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1e-44, 1e-44], [0.0, 1e-30]])
def test_rows_of_hardly_any_weight_have_finite_gradients(weights):
    rows = rows_of([[0, 1]], 2)
    logits = torch.tensor([0.3, -0.2], requires_grad=True)
    shares = row_softmax(rows, logits, torch.tensor(weights))
    (shares * torch.tensor([1e3, -1e3])).sum().backward()
    assert bool(torch.isfinite(logits.grad).all())
    assert float(shares.sum().detach()) == pytest.approx(float(sum(weights) > 0))
