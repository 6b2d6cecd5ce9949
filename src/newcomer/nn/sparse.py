"""Sparse products with gradients: sums over neighbours without a vector for each edge.

``weighted_sum`` is ``out_i = sum over entries (i, j) of value_ij * dense_j``: one sparse-dense product forwards,
another one with the transpose backwards for ``dense``, and a sampled dense-dense product for the values.

On a GPU the library's sparse product adds in another order every run, and its sampled product is slow. There rows are
cut into blocks of a few entries, summed up block by block and then row by row: the same bits in every run, and an
entity with thousands of neighbours does not keep everyone waiting.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64  # entries that one thread of a GPU adds up by itself

# Torch says once a process that its compressed layouts are young; nothing here depends on what may change. It is made
# to say so here, where nobody listens, rather than silenced by a filter that would stay behind for all other code.
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

    @property
    def sizes(self) -> Tensor:
        """Entries a row, (rows,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def _row_ids(self) -> Tensor:
        return _row_ids(self.sizes, len(self.columns))

    def row_ids(self) -> Tensor:
        """The row of each entry, (entries,)."""
        return self._row_ids

    @cached_property
    def transposed(self) -> tuple["Rows", Tensor]:
        """The rows of the transpose, and which entry stands at each of its places."""
        ascending, order = torch.sort(self.columns, stable=True)
        offsets = torch.searchsorted(ascending, torch.arange(self.width + 1, device=order.device))
        return Rows(offsets, self.row_ids()[order], self.num_rows), order

    @cached_property
    def blocks(self) -> tuple[Tensor, "Rows"]:
        """Rows cut into blocks of at most `BLOCK` entries: where each begins (and the last ends), and each row's."""
        counts = (self.sizes + BLOCK - 1) // BLOCK
        offsets = _offsets(counts)
        row = _row_ids(counts, int(offsets[-1]))
        place = torch.arange(len(row), device=row.device)
        starts = self.offsets[row] + (place - offsets[row]) * BLOCK
        blocks = Rows(offsets, place, len(row))
        blocks.__dict__["_row_ids"] = row
        return torch.cat([starts, self.offsets[-1:]]), blocks

    def pick(self, rows: Tensor) -> tuple["Rows", Tensor]:
        """These rows (any of them several times), and where each of their entries stands in this one."""
        sizes = self.sizes[rows]
        offsets = _offsets(sizes)
        row = _row_ids(sizes, int(offsets[-1]))
        entries = (self.offsets[rows] - offsets[:-1])[row] + torch.arange(len(row), device=rows.device)
        picked = Rows(offsets, self.columns[entries], self.width)
        picked.__dict__["_row_ids"] = row  # as the cached property would find them
        return picked, entries

    def where(self, mask: Tensor) -> "Rows":
        """All rows, with the entries under a mask (entries,) only."""
        return Rows(_offsets(mask)[self.offsets], self.columns[mask], self.width)


def _offsets(sizes: Tensor) -> Tensor:
    """Where parts of these sizes begin, and where the last ends."""
    offsets = torch.zeros(len(sizes) + 1, dtype=torch.int64, device=sizes.device)
    torch.cumsum(sizes, 0, out=offsets[1:])
    return offsets


def _row_ids(sizes: Tensor, total: int) -> Tensor:
    """The number of each part as often as its size says; told the total, a GPU need not be waited for."""
    return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes, output_size=total)


def _csr(rows: Rows, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        rows.offsets, rows.columns, values, (rows.num_rows, rows.width), check_invariants=False
    )


def _sampled_products(rows: Rows, left: Tensor, right: Tensor) -> Tensor:
    """(entries,): for entry (i, j) the product of the vectors ``left_i`` and ``right_j``."""
    if left.is_cuda:
        return sampled_by_blocks(rows, left, right)
    if len(rows.columns) > rows.num_rows * rows.width:
        # Torch refuses a pattern of more entries than places. Only small, dense graphs of many relations have one.
        return (left[rows.row_ids()] * right[rows.columns]).sum(dim=1)
    pattern = _csr(rows, left.new_zeros(len(rows.columns)))
    products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.T.contiguous(), beta=0.0).values()
    return products


def _product(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    return summed_by_blocks(rows, values, dense) if dense.is_cuda else _csr(rows, values) @ dense


def summed_by_blocks(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    """The sparse product by blocks: each a weighted bag of vectors, then the sum of a row's blocks."""
    starts, blocks = rows.blocks
    bags = _bags(rows.columns, dense, starts, values)
    return torch.segment_reduce(bags, "sum", offsets=blocks.offsets, initial=0.0)


def sampled_by_blocks(rows: Rows, left: Tensor, right: Tensor) -> Tensor:
    """The sampled product: what the weights of such bags have as their gradient, without a vector for each entry."""
    starts, blocks = rows.blocks
    with torch.enable_grad():
        weights = left.new_zeros(len(rows.columns)).requires_grad_()
        bags = _bags(rows.columns, right.detach(), starts, weights)
    products: Tensor = torch.autograd.grad(bags, weights, left[blocks.row_ids()])[0]
    return products


def _bags(columns: Tensor, dense: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    return functional.embedding_bag(
        columns, dense, starts, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
        ctx.rows = rows
        ctx.save_for_backward(values, dense)
        return _product(rows, values, dense)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        values, dense = ctx.saved_tensors
        gradient, rows = gradients[0].contiguous(), ctx.rows
        for_values = for_dense = None
        if ctx.needs_input_grad[1]:
            for_values = _sampled_products(rows, gradient, dense)
        if ctx.needs_input_grad[2]:
            turned, order = rows.transposed
            for_dense = _product(turned, values[order], gradient)
        return None, for_values, for_dense


def weighted_sum(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    """(rows, d): for each row the sum of ``values`` (entries,) times the vectors ``dense`` (width, d) it points to."""
    if len(rows.columns) == 0:
        return dense.new_zeros(rows.num_rows, dense.shape[1])
    result: Tensor = _WeightedSum.apply(rows, values, dense)  # type: ignore[no-untyped-call]
    return result


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, values: Tensor) -> Tensor:
        ctx.rows = rows
        return _segment_sums(values, rows.offsets)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, gradients[0][ctx.rows.row_ids()]


class _ByRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, values: Tensor) -> Tensor:
        ctx.rows = rows
        return values[rows.row_ids()]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, _segment_sums(gradients[0].contiguous(), ctx.rows.offsets)


class _ByColumn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, values: Tensor) -> Tensor:
        ctx.rows = rows
        return values[rows.columns]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        turned, order = ctx.rows.transposed
        return None, _segment_sums(gradients[0][order], turned.offsets)


def _segment_sums(values: Tensor, offsets: Tensor) -> Tensor:
    """Sums of runs of values: in the same order of addition on every run, which scattered additions are not."""
    return torch.segment_reduce(values, "sum", offsets=offsets)


def row_sums(rows: Rows, values: Tensor) -> Tensor:
    """(rows,): the sum of each row's values (entries,)."""
    result: Tensor = _RowSums.apply(rows, values)  # type: ignore[no-untyped-call]
    return result


def by_row(rows: Rows, values: Tensor) -> Tensor:
    """(entries,): for each entry the value (rows,) of its row."""
    result: Tensor = _ByRow.apply(rows, values)  # type: ignore[no-untyped-call]
    return result


def by_column(rows: Rows, values: Tensor) -> Tensor:
    """(entries,): for each entry the value (width,) of its column."""
    result: Tensor = _ByColumn.apply(rows, values)  # type: ignore[no-untyped-call]
    return result


def single_rows(columns: Tensor, width: int) -> Rows:
    """Rows of one entry each."""
    return Rows(torch.arange(len(columns) + 1, device=columns.device), columns, width)


def row_softmax(rows: Rows, logits: Tensor, weights: Tensor) -> Tensor:
    """(entries,): ``w * exp(logit)`` shared out within each row; zero where a row has no weight at all.

    No gradient flows to the weights. They count as logarithms beside the logits: so an entry without weight cannot
    push the others out of range, and a row whose weights are all tiny has gradients of the common size.
    """
    if len(logits) == 0:
        return logits
    raised = logits + weights.detach().log()
    top = torch.segment_reduce(raised.detach(), "max", offsets=rows.offsets, initial=-torch.inf)
    top = top.masked_fill(top == -torch.inf, 0.0)
    shares = torch.exp(raised - top[rows.row_ids()])
    total = row_sums(rows, shares)  # at least 1, the highest entry's own share, or 0 of nothing
    return shares / by_row(rows, total.masked_fill(total == 0, 1.0))
