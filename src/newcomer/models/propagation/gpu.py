"""Sums along edges on a GPU without a vector for each edge, for `newcomer.models.propagation.network`.

Kernels in Triton, which PyTorch brings along for NVIDIA's cards. Rows are cut into blocks of a few edges
(`Rows.blocks`), each summed up by one program in the order of its edges, then the blocks of a row: the same bits in
every run. What they replace writes a vector for each edge and reads it again, several times over. Vectors may have
half the bits; sums are added up with all of them.
"""

import os
import shutil
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from newcomer.models.sparse import Rows

WIDEST = 1024  # numbers that one program sums up
BRAIN_FLOATS = (8, 0)  # the first cards that calculate with them
COMPILERS = ("gcc", "clang", "cc")


@dataclass(frozen=True, eq=False)
class Handing:
    """Who hears from whom: row ``i`` from ``rows.columns``, along the edges of these numbers."""

    rows: Rows
    edges: Tensor  # (entries,)
    relations: Tensor  # of each edge, by its number
    weights: Tensor


def available() -> bool:
    """Whether Triton is there, and a compiler, without which it cannot start any kernel."""
    return _kernels() is not None and _has_compiler()


@cache
def keeps_halves() -> bool:
    """Whether the GPU that is there has kernels for vectors of half the bits."""
    return available() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= BRAIN_FLOATS


def summed(handing: Handing, vectors: Tensor, scales: Tensor) -> Tensor:
    """(rows, questions, d): for each row the weighted sum of vectors, each scaled as its edge's relation says."""
    sums, kernels = _blocks_of(handing, vectors), _kernels()
    width = vectors[0].numel()
    tile = min(WIDEST, _power_of_two(width))
    grid = (len(sums), -(-width // tile))
    tables = handing.relations, handing.weights, vectors.contiguous(), scales.contiguous(), sums
    starts, _ = handing.rows.blocks
    kernels.block_sum[grid](starts, handing.rows.columns, handing.edges, *tables, width, vectors.shape[2], tile)
    return _rows_of(handing, sums, vectors.dtype)


def scale_slopes(of_relation: Rows, rows: Rows, weights: Tensor, vectors: Tensor, gradient: Tensor) -> Tensor:
    """(relations, d): the gradient of the scales; ``of_relation`` names each relation's edges, entries of ``rows``."""
    starts, offsets = of_relation.blocks
    _, questions, size = vectors.shape
    sums = torch.empty(len(starts) - 1, size, dtype=torch.float32, device=vectors.device)
    tables = weights, vectors.contiguous(), gradient.contiguous(), sums, questions, size, _power_of_two(questions)
    _kernels().block_slopes[(len(sums),)](starts, of_relation.columns, rows.row_ids(), rows.columns, *tables)
    return torch.segment_reduce(sums, "sum", offsets=offsets, initial=0.0)


def _blocks_of(handing: Handing, vectors: Tensor) -> Tensor:
    """Room for the sum of each block."""
    starts, _ = handing.rows.blocks
    return torch.empty(len(starts) - 1, *vectors.shape[1:], dtype=torch.float32, device=vectors.device)


def _rows_of(handing: Handing, sums: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums of the rows, by those of their blocks."""
    _, offsets = handing.rows.blocks
    rows = torch.empty(handing.rows.num_rows, *sums.shape[1:], dtype=dtype, device=sums.device)
    width = sums[0].numel()
    tile = min(WIDEST, _power_of_two(width))
    _kernels().row_sum[(len(rows), -(-width // tile))](offsets, sums, rows, width, tile)
    return rows


def _power_of_two(number: int) -> int:
    """The smallest that is no smaller than the number."""
    return 1 << (number - 1).bit_length()


@cache
def _has_compiler() -> bool:
    return "CC" in os.environ or any(shutil.which(name) for name in COMPILERS)


@cache
def _kernels() -> Any:
    """The module of kernels, or `None` without Triton."""
    try:
        from newcomer.models.propagation import gpu_kernels as fused_kernels
    except ImportError:
        return None
    return fused_kernels
