"""Sums along edges on a GPU without a vector for each edge, for `newcomer.nn.propagation`.

Two kernels in Triton, which PyTorch brings along for NVIDIA's cards. Rows are cut into blocks of a few edges
(`Rows.blocks`), each summed up by one program in the order of its edges: the same bits in every run. What they replace
writes a vector for each edge and reads it again, several times over.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from newcomer.nn.sparse import Rows

WIDEST = 1024  # numbers that one program sums up


@dataclass(frozen=True, eq=False)
class Handing:
    """Who hears from whom: row ``i`` from ``rows.columns``, along the edges of these numbers."""

    rows: Rows
    edges: Tensor  # (entries,)
    relations: Tensor  # of each edge, by its number
    weights: Tensor


def available() -> bool:
    """Whether Triton is there."""
    return _kernels() is not None


def summed(handing: Handing, vectors: Tensor, scales: Tensor) -> Tensor:
    """(rows, questions, d): for each row the weighted sum of vectors, each scaled as its edge's relation says."""
    sums, kernels = _blocks_of(handing, vectors), _kernels()
    width = vectors[0].numel()
    tile = min(WIDEST, _power_of_two(width))
    grid = (len(sums), -(-width // tile))
    tables = handing.relations, handing.weights, vectors.contiguous(), scales.contiguous(), sums
    starts, _ = handing.rows.blocks
    kernels.block_sum[grid](starts, handing.rows.columns, handing.edges, *tables, width, vectors.shape[2], tile)
    return _rows_of(handing, sums)


def slopes(handing: Handing, vectors: Tensor, scales: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the vectors, and of its edge's scale by each edge, (edges, d); ``handing`` is turned round.

    That is, its rows are who is heard of, their entries those who hear.
    """
    sums, kernels = _blocks_of(handing, vectors), _kernels()
    _, questions, size = vectors.shape
    by_edge = torch.empty(len(handing.relations), size, device=vectors.device)
    starts, offsets = handing.rows.blocks
    every = torch.arange(len(sums), device=starts.device)
    owners = torch.searchsorted(offsets[1:], every, right=True).clamp_max_(handing.rows.num_rows - 1)
    tables = handing.relations, handing.weights, vectors.contiguous(), scales.contiguous(), gradient.contiguous()
    kernels.block_slopes[(len(sums),)](
        starts,
        owners,
        handing.rows.columns,
        handing.edges,
        *tables,
        sums,
        by_edge,
        questions,
        size,
        _power_of_two(questions),
        num_warps=8,
    )
    return _rows_of(handing, sums), by_edge


def _blocks_of(handing: Handing, vectors: Tensor) -> Tensor:
    """Room for the sum of each block."""
    starts, _ = handing.rows.blocks
    return torch.empty(len(starts) - 1, *vectors.shape[1:], device=vectors.device)


def _rows_of(handing: Handing, sums: Tensor) -> Tensor:
    _, offsets = handing.rows.blocks
    return torch.segment_reduce(sums.flatten(1), "sum", offsets=offsets, initial=0.0).view(-1, *sums.shape[1:])


def _power_of_two(number: int) -> int:
    """The smallest that is no smaller than the number."""
    return 1 << (number - 1).bit_length()


@cache
def _kernels() -> Any:
    """The module of kernels, or `None` without Triton."""
    try:
        from newcomer.nn import fused_kernels
    except ImportError:
        return None
    return fused_kernels
