"""Sparse products with gradients: sums over neighbours without a vector for each edge.

``weighted_sum`` is ``out_i = sum over entries (i, j) of value_ij * dense_j``: a weighted bag of vectors a row forwards,
the same over the transpose backwards for ``dense``, and a sampled dense-dense product for the values.

On a GPU the library's sparse product adds in another order every run, and its sampled product is slow. There rows are
cut into blocks of a few entries, summed up block by block and then row by row: the same bits in every run, and an
entity with thousands of neighbours does not delay all others.

There, too, a small operation costs as much as a large one, and asking how large a result is costs a wait. So gradients
are written out, what follows from a graph's structure is found once, and no size is asked for that can be bounded.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64  # entries that one thread of a GPU adds up by itself

# Torch warns once a process that its compressed layouts are young; nothing here depends on what may change. It is made
# to warn here, unseen, rather than silenced by a filter that would stay behind for all other code.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))


@dataclass(frozen=True, eq=False)
class Rows:
    """Sparse rows: the entries of row ``i`` are ``columns[offsets[i]:offsets[i + 1]]``, each below ``width``.

    What follows from them (the row of each entry, the transpose) is found once: a graph is trained on many times.
    """

    offsets: Tensor  # (rows + 1,) int64
    columns: Tensor  # (entries,) int64
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Tensor:
        """Entries a row, (rows,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def row_ids(self) -> Tensor:
        """The row of each entry, (entries,)."""
        return _row_ids(self.sizes, len(self.columns))

    def knowing(self, row_ids: Tensor, sizes: Tensor | None = None) -> "Rows":
        """These rows, given the row of each entry (and the entries a row) where they are known already."""
        self.__dict__["row_ids"] = row_ids  # as the cached properties would find them
        if sizes is not None:
            self.__dict__["sizes"] = sizes
        return self

    @cached_property
    def transposed(self) -> tuple["Rows", Tensor]:
        """The rows of the transpose, and which entry stands at each of its places."""
        # Half as many bits take half as long to sort.
        narrow = self.columns.int() if self.width < 2**31 else self.columns
        ascending, order = torch.sort(narrow, stable=True)
        every = torch.arange(self.width + 1, dtype=narrow.dtype, device=order.device)
        offsets = torch.searchsorted(ascending, every)
        return Rows(offsets, self.row_ids[order], self.num_rows), order

    @cached_property
    def blocks(self) -> tuple[Tensor, Tensor]:
        """Rows cut into blocks of at most `BLOCK` entries: where each begins (and the last ends), and each row's first.

        There are as many as there can be at most; those that no row needs are empty ones at the end.
        """
        offsets = _offsets((self.sizes + (BLOCK - 1)) // BLOCK)
        place = torch.arange(len(self.columns) // BLOCK + self.num_rows + 1, device=offsets.device)
        row = torch.searchsorted(offsets[1:], place, right=True)
        starts = torch.sub(self.offsets, offsets, alpha=BLOCK)[row].add_(place, alpha=BLOCK)
        return starts.clamp_max_(len(self.columns)), offsets

    def pick(self, rows: Tensor) -> tuple["Rows", Tensor]:
        """These rows (any of them several times), and where each of their entries stands in this one."""
        sizes = self.sizes[rows]
        offsets = _offsets(sizes)
        row = _row_ids(sizes, int(offsets[-1]))
        entries = (self.offsets[rows] - offsets[:-1])[row] + torch.arange(len(row), device=rows.device)
        return Rows(offsets, self.columns[entries], self.width).knowing(row, sizes), entries

    def where(self, mask: Tensor) -> "Rows":
        """All rows, with the entries under a mask (entries,) only."""
        return Rows(_offsets(mask)[self.offsets], self.columns[mask], self.width)


def _offsets(sizes: Tensor) -> Tensor:
    """Where parts of these sizes begin, and where the last ends."""
    offsets = torch.zeros(len(sizes) + 1, dtype=torch.int64, device=sizes.device)
    torch.cumsum(sizes, 0, out=offsets[1:])
    return offsets


def _row_ids(sizes: Tensor, total: int) -> Tensor:
    """The number of each part as often as its size; with the total known, a GPU need not be waited for."""
    return torch.repeat_interleave(sizes, output_size=total)


def _sampled_products(rows: Rows, left: Tensor, right: Tensor) -> Tensor:
    """(entries,): for entry (i, j) the product of the vectors ``left_i`` and ``right_j``."""
    if left.is_cuda:
        return sampled_by_bags(rows, left, right)
    if len(rows.columns) > rows.num_rows * rows.width:
        # Torch refuses a pattern of more entries than places. Only small, dense graphs of many relations have one.
        return (left[rows.row_ids] * right[rows.columns]).sum(dim=1)
    zeros, shape = left.new_zeros(len(rows.columns)), (rows.num_rows, rows.width)
    pattern = torch.sparse_csr_tensor(rows.offsets, rows.columns, zeros, shape, check_invariants=False)
    products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.T.contiguous(), beta=0.0).values()
    return products


def _product(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    if dense.is_cuda:
        return summed_by_blocks(rows, values, dense)
    # A bag adds up its entries one after the other. The library's sparse product groups them by where they stand, on
    # some CPUs, so that a row would be rounded differently beside others.
    return _weighted_bags(rows.columns, dense, rows.offsets, values)


def _weighted_bags(columns: Tensor, dense: Tensor, offsets: Tensor, values: Tensor) -> Tensor:
    return functional.embedding_bag(
        columns, dense, offsets, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def summed_by_blocks(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    """The sparse product by blocks: each a weighted bag of vectors, then the sum of a row's blocks."""
    starts, offsets = rows.blocks
    bags = _weighted_bags(rows.columns, dense, starts, values)
    return torch.segment_reduce(bags, "sum", offsets=offsets, initial=0.0)


def sampled_by_bags(rows: Rows, left: Tensor, right: Tensor) -> Tensor:
    """The sampled product: what the weights of bags have as their gradient, without a vector for each entry."""
    bags = rows.columns, rows.offsets, rows.row_ids
    products: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(left, right, *bags, mode=0)
    return products


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
        ctx.rows = rows
        ctx.save_for_backward(values, dense)
        return _product(rows, values, dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        values, dense = ctx.saved_tensors
        gradient, rows = gradients[0].contiguous(), ctx.rows
        for_values = for_dense = None
        if ctx.needs_input_grad[1]:
            for_values = _sampled_products(rows, gradient, dense)
        if ctx.needs_input_grad[2]:
            transposed, order = rows.transposed
            for_dense = _product(transposed, values[order], gradient)
        return None, for_values, for_dense


def weighted_sum(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    """(rows, d): for each row the sum of ``values`` (entries,) times the vectors ``dense`` (width, d) it points to."""
    if len(rows.columns) == 0:
        return dense.new_zeros(rows.num_rows, dense.shape[1])
    result: Tensor = _WeightedSum.apply(rows, values, dense)  # type: ignore[no-untyped-call]
    return result


Map = Callable[[Tensor], Tensor]


class _Linear(torch.autograd.Function):
    """A linear map of values, whose gradient is its adjoint."""

    @staticmethod
    def forward(ctx: Any, forwards: Map, adjoint: Map, values: Tensor) -> Tensor:
        ctx.adjoint = adjoint
        return forwards(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, ctx.adjoint(gradients[0].contiguous())


def row_sums(rows: Rows, values: Tensor) -> Tensor:
    """(rows,): the sum of each row's values (entries,)."""
    return _linear(lambda one: _segment_sums(one, rows.offsets), lambda one: one[rows.row_ids], values)


def by_row(rows: Rows, values: Tensor) -> Tensor:
    """(entries,): for each entry the value (rows,) of its row."""
    return _linear(lambda one: one[rows.row_ids], lambda one: _segment_sums(one, rows.offsets), values)


def by_column(rows: Rows, values: Tensor) -> Tensor:
    """(entries,): for each entry the value (width,) of its column."""

    def column_sums(one: Tensor) -> Tensor:
        transposed, order = rows.transposed
        return _segment_sums(one[order], transposed.offsets)

    return _linear(lambda one: one[rows.columns], column_sums, values)


def _linear(forwards: Map, adjoint: Map, values: Tensor) -> Tensor:
    result: Tensor = _Linear.apply(forwards, adjoint, values)  # type: ignore[no-untyped-call]
    return result


def _segment_sums(values: Tensor, offsets: Tensor) -> Tensor:
    """Sums of runs of values: in the same order of addition on every run, which scattered additions are not."""
    return torch.segment_reduce(values, "sum", offsets=offsets)


def single_rows(columns: Tensor, width: int) -> Rows:
    """Rows of one entry each."""
    offsets = torch.arange(len(columns) + 1, device=columns.device)
    return Rows(offsets, columns, width).knowing(offsets[:-1])


class _RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, logits: Tensor, weights: Tensor) -> Tensor:
        raised = logits + weights.log()
        lowest = torch.finfo(raised.dtype).min  # of a row without any weight: its shares are then zero
        top = torch.segment_reduce(raised, "max", offsets=rows.offsets, initial=lowest)
        shares = torch.exp(raised - top[rows.row_ids])
        total = _segment_sums(shares, rows.offsets)  # at least 1, the highest entry's own share, or 0 of nothing
        shares = shares / total.clamp_min_(1.0)[rows.row_ids]
        ctx.rows = rows
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (shares,), rows = ctx.saved_tensors, ctx.rows
        shared = shares * gradients[0]
        total = _segment_sums(shared, rows.offsets)
        return None, torch.addcmul(shared, shares, total[rows.row_ids], value=-1), None


def row_softmax(rows: Rows, logits: Tensor, weights: Tensor) -> Tensor:
    """(entries,): ``w * exp(logit)`` shared out within each row; zero where a row has no weight at all.

    No gradient flows to the weights. They count as logarithms beside the logits: so an entry without weight cannot
    push the others out of range, and a row whose weights are all tiny has gradients of the common size.
    """
    if len(logits) == 0:
        return logits
    result: Tensor = _RowSoftmax.apply(rows, logits, weights)  # type: ignore[no-untyped-call]
    return result


def distinct(values: Tensor, below: int, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The values (n,) in [0, below), each once and ascending, and where each of the given ones stands among them.

    As `torch.unique`, without sorting: for values that are few enough to have a mark each. With ``chosen`` (n,) only
    these count; where others stand has no meaning.
    """
    marked = values if chosen is None else values.masked_fill(~chosen, below)
    marks = torch.zeros(below + 1, dtype=torch.bool, device=values.device).index_fill_(0, marked, True)
    count = torch.cumsum(marks[:below], 0)
    wanted = torch.arange(1, int(count[-1]) + 1 if below else 1, device=values.device)
    return torch.searchsorted(count, wanted), count[values] - 1
