"""Sparse products with gradients: sums over neighbours without a vector for each edge.

``weighted_sum`` is ``out_i = sum over entries (i, j) of value_ij * dense_j``: one sparse-dense product forwards,
another one with the transpose backwards for ``dense``, and a sampled dense-dense product for the values.
"""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Torch says once a process that its compressed layouts are young; nothing here depends on what may change. It is made
# to say so here, where nobody listens, rather than silenced by a filter that would stay behind for all other code.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))


class Rows(NamedTuple):
    """Sparse rows: the entries of row ``i`` are ``columns[offsets[i]:offsets[i + 1]]``, each below ``width``."""

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

    def row_ids(self) -> Tensor:
        """The row of each entry, (entries,)."""
        return torch.repeat_interleave(torch.arange(self.num_rows, device=self.offsets.device), self.sizes)

    def pick(self, rows: Tensor) -> tuple["Rows", Tensor]:
        """These rows (any of them several times), and where each of their entries stands in this one."""
        sizes = self.sizes[rows]
        offsets = torch.zeros(len(rows) + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(sizes, 0, out=offsets[1:])
        shift = torch.repeat_interleave(self.offsets[rows] - offsets[:-1], sizes)
        entries = shift + torch.arange(len(shift), device=rows.device)
        return Rows(offsets, self.columns[entries], self.width), entries

    def where(self, mask: Tensor) -> "Rows":
        """All rows, with the entries under a mask (entries,) only."""
        before = torch.zeros(len(mask) + 1, dtype=torch.int64, device=mask.device)
        torch.cumsum(mask, 0, out=before[1:])
        return Rows(before[self.offsets], self.columns[mask], self.width)


def _csr(rows: Rows, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        rows.offsets, rows.columns, values, (rows.num_rows, rows.width), check_invariants=False
    )


def transposed(rows: Rows) -> tuple[Rows, Tensor]:
    """The rows of the transpose, and which entry stands at each of its places."""
    order = torch.argsort(rows.columns, stable=True)
    offsets = torch.zeros(rows.width + 1, dtype=torch.int64, device=order.device)
    torch.cumsum(torch.bincount(rows.columns, minlength=rows.width), 0, out=offsets[1:])
    return Rows(offsets, rows.row_ids()[order], rows.num_rows), order


def _sampled_products(rows: Rows, left: Tensor, right: Tensor) -> Tensor:
    """(entries,): for entry (i, j) the product of the vectors ``left_i`` and ``right_j``."""
    if len(rows.columns) > rows.num_rows * rows.width:
        # Torch refuses a pattern of more entries than places. Only small, dense graphs of many relations have one.
        return (left[rows.row_ids()] * right[rows.columns]).sum(dim=1)
    pattern = _csr(rows, left.new_zeros(len(rows.columns)))
    products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.T.contiguous(), beta=0.0).values()
    return products


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, offsets: Tensor, columns: Tensor, values: Tensor, dense: Tensor) -> Tensor:
        ctx.save_for_backward(offsets, columns, values, dense)
        return _csr(Rows(offsets, columns, len(dense)), values) @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        offsets, columns, values, dense = ctx.saved_tensors
        gradient, rows = gradients[0].contiguous(), Rows(offsets, columns, len(dense))
        for_values = for_dense = None
        if ctx.needs_input_grad[2]:
            for_values = _sampled_products(rows, gradient, dense)
        if ctx.needs_input_grad[3]:
            turned, order = transposed(rows)
            for_dense = _csr(turned, values[order]) @ gradient
        return None, None, for_values, for_dense


def weighted_sum(rows: Rows, values: Tensor, dense: Tensor) -> Tensor:
    """(rows, d): for each row the sum of ``values`` (entries,) times the vectors ``dense`` (width, d) it points to."""
    if len(rows.columns) == 0:
        return dense.new_zeros(rows.num_rows, dense.shape[1])
    result: Tensor = _WeightedSum.apply(rows.offsets, rows.columns, values, dense)  # type: ignore[no-untyped-call]
    return result


def row_sums(rows: Rows, values: Tensor) -> Tensor:
    """(rows,): the sum of each row's values."""
    if len(values) == 0:
        return values.new_zeros(rows.num_rows)
    # A product with a column of ones: the same order of addition on every run, on every device.
    places = Rows(rows.offsets, torch.arange(len(values), device=values.device), len(values))
    ones = torch.ones_like(values)
    return weighted_sum(places, ones, values[:, None])[:, 0]


def row_softmax(rows: Rows, logits: Tensor, weights: Tensor) -> Tensor:
    """(entries,): ``w * exp(logit)`` shared out within each row; zero where a row has no weight at all.

    No gradient flows to the weights. They count as logarithms beside the logits: so an entry without weight cannot
    push the others out of range, and a row whose weights are all tiny has gradients of the common size.
    """
    if len(logits) == 0:
        return logits
    row, raised = rows.row_ids(), logits + weights.detach().log()
    top = logits.new_full((rows.num_rows,), -torch.inf).scatter_reduce(0, row, raised.detach(), "amax")
    top = top.masked_fill(top == -torch.inf, 0.0)
    shares = torch.exp(raised - top[row])
    total = row_sums(rows, shares)  # at least 1, the highest entry's own share, or 0 of nothing
    return shares / total.masked_fill(total == 0, 1.0)[row]
