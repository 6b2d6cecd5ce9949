"""Propagation on a GPU, by kernels in Triton, which PyTorch brings along for NVIDIA's cards.

Sums of messages need no vector for each edge. Rows are cut into blocks of a few edges (`Rows.blocks`), each summed up
by one program in the order of its edges, then the blocks of a row: the same bits in every run. Vectors may have half
the bits; sums are added up with all of them.

The rest of a layer is one kernel forward and one backward. Plain operations write and read a dozen tables of (entities,
queries, d); these read two and write one, and backward read three and write two. Gradients that all rows have a part
in are summed up by a fixed number of programs, each over its own rows in their order, and then over the programs: the
same bits in every run.
"""

import os
import shutil
from functools import cache
from typing import Any

import torch
from torch import Tensor

from newcomer.models.propagation.edges import PropagationEdges
from newcomer.models.sparse import Rows

HALF = torch.bfloat16  # what vectors may be kept in while training
HALF_CAPABILITY = (8, 0)  # the first cards that calculate with it
COMPILERS = ("gcc", "clang", "cc")
LARGEST_TILE = 1024  # numbers that one program sums up
LARGEST_QUERY_BLOCK = 8  # queries in a tile of a layer
TILE_ROWS = 16  # entities times queries, of a tile: of more, a thread has too few registers for the products
PRECISION = {torch.float32: "ieee", HALF: "tf32"}  # of products of matrices, by what vectors are kept in
WARPS = {torch.float32: 4, HALF: 2}  # that share a tile
PROGRAMS = 1056  # about so many in a backward pass: the buffers have a slot for each


def available() -> bool:
    """Whether Triton is there, and a compiler, without which it cannot start any kernel."""
    return _kernels() is not None and _has_compiler()


@cache
def keeps_halves() -> bool:
    """Whether the GPU that is there has kernels for vectors of half the bits."""
    return available() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= HALF_CAPABILITY


def updates_layers(num_queries: int) -> bool:
    """Whether `updated` serves so many queries: a whole tile of them; other tiles would need a kernel each."""
    return num_queries >= LARGEST_QUERY_BLOCK and available()


def message_sums(edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
    """(rows, queries, d): for each row the sum of the messages along its edges."""
    if len(edges.relations) == 0:
        return vectors.new_zeros(edges.rows.num_rows, *vectors.shape[1:])
    result: Tensor = _MessageSums.apply(edges, vectors, scales)  # type: ignore[no-untyped-call]
    return result


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(vectors, scales)
        return _summed(edges.rows, edges.numbers.columns, edges, vectors, scales)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (vectors, scales), edges = ctx.saved_tensors, ctx.edges
        turned, numbers = edges.rows.transposed
        of_vectors = _summed(turned, numbers, edges, gradients[0], scales)
        return None, of_vectors, _scale_gradients(edges, vectors, gradients[0])


def _summed(rows: Rows, numbers: Tensor, edges: PropagationEdges, vectors: Tensor, scales: Tensor) -> Tensor:
    """(rows, queries, d): the sums for rows whose entries are the edges of these numbers, in either direction."""
    starts, offsets = rows.blocks
    sums = torch.empty(len(starts) - 1, *vectors.shape[1:], dtype=torch.float32, device=vectors.device)
    width = vectors[0].numel()
    tile = min(LARGEST_TILE, _power_of_two(width))
    tiles = -(-width // tile)
    tables = edges.relations, edges.weights, vectors.contiguous(), scales.contiguous(), sums
    _kernels().block_sum[(len(sums), tiles)](starts, rows.columns, numbers, *tables, width, vectors.shape[2], tile)
    found = torch.empty(rows.num_rows, *vectors.shape[1:], dtype=vectors.dtype, device=vectors.device)
    _kernels().row_sum[(len(found), tiles)](offsets, sums, found, width, tile)
    return found


def _scale_gradients(edges: PropagationEdges, vectors: Tensor, gradient: Tensor) -> Tensor:
    """(relations, d): the gradient of the scales."""
    starts, offsets = edges.by_relation.blocks
    _, queries, size = vectors.shape
    sums = torch.empty(len(starts) - 1, size, dtype=torch.float32, device=vectors.device)
    places = starts, edges.by_relation.columns, edges.rows.row_ids, edges.rows.columns
    tables = edges.weights, vectors.contiguous(), gradient.contiguous(), sums
    _kernels().block_scale_gradients[(len(sums),)](*places, *tables, queries, size, _power_of_two(queries))
    return torch.segment_reduce(sums, "sum", offsets=offsets, initial=0.0)


def updated(
    vectors: Tensor, sums: Tensor, sources: Tensor, query_vectors: Tensor, gate: Tensor, degrees: Tensor, *rest: Tensor
) -> Tensor:
    """(entities, queries, d): the vectors after a layer.

    ``sums`` are those of messages, to which ``query_vectors``, (queries, d), are added at the sources, all multiplied
    by the ``gate``; means are sums divided by ``degrees``, and the rest are the parameters (weight, bias) of a linear
    map from 3 d numbers to d, a power of two and at least 16, and (gamma, beta) of a layer norm.
    """
    tables = vectors, sums, sources, query_vectors, gate, degrees, *rest
    result: Tensor = _Updated.apply(*(one.contiguous() for one in tables))  # type: ignore[no-untyped-call]
    return result


class _Updated(torch.autograd.Function):
    """The backward pass works out again what it needs of the forward pass."""

    @staticmethod
    def forward(ctx: Any, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(*tables)
        vectors, (entities, queries, size) = tables[0], tables[0].shape
        result, (wide, blocks) = torch.empty_like(vectors), _query_blocks(queries)
        grid = (blocks * _blocks(entities, TILE_ROWS // wide),)
        shape = entities, queries, blocks, size, TILE_ROWS, wide, PRECISION[vectors.dtype]
        _kernels().layer[grid](*tables, result, *shape, num_warps=WARPS[vectors.dtype])
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        tables = ctx.saved_tensors
        vectors, _, sources, _, gate = tables[:5]
        entities, queries, size = vectors.shape
        wide, blocks = _query_blocks(queries)
        tiles = _blocks(entities, TILE_ROWS // wide)
        shares = max(1, min(tiles, PROGRAMS // blocks))
        of_vectors, of_sums = torch.empty_like(vectors), torch.empty_like(vectors)
        of_weight = gate.new_empty(shares * blocks, 3, size, size)
        of_rest = gate.new_empty(shares * blocks, 3, size)
        of_gate = gate.new_empty(shares, blocks * wide, size)
        found = of_vectors, of_sums, of_weight, of_rest, of_gate
        shape = entities, queries, blocks, tiles, shares, size, TILE_ROWS, wide, PRECISION[vectors.dtype]
        _kernels().layer_gradients[(shares * blocks,)](
            *tables, gradients[0].contiguous(), *found, *shape, num_warps=WARPS[vectors.dtype]
        )
        # A query's vector was added to the sums at its source.
        of_query_vectors = of_sums[sources, torch.arange(queries, device=sources.device)].float()
        of_gate, rest = of_gate.sum(dim=0)[:queries], of_rest.sum(dim=0)
        by_part = of_weight.sum(dim=0).permute(1, 0, 2).reshape(size, 3 * size)
        return of_vectors, of_sums, None, of_query_vectors, of_gate, None, by_part, *rest.unbind()


def _query_blocks(queries: int) -> tuple[int, int]:
    """How many queries a tile has, a power of two, and how many such blocks there are."""
    wide = min(LARGEST_QUERY_BLOCK, _power_of_two(max(1, queries)))
    return wide, _blocks(queries, wide)


def _blocks(number: int, size: int) -> int:
    return max(1, -(-number // size))


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
        from newcomer.models.propagation import gpu_kernels
    except ImportError:
        return None
    return gpu_kernels
