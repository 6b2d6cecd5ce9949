"""One layer of `newcomer.models.propagation.network` on a GPU, after its sums along edges, by one kernel each way.

What it replaces writes and reads a dozen tables of (entities, questions, d); this reads two and writes one, and on the
way back reads three and writes two. Gradients that all rows have a part in are summed up by a fixed number of
programs, each over its own rows in their order, and then over the programs: the same bits in every run.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

PRECISION = {torch.float32: "ieee", torch.bfloat16: "tf32"}  # of products of matrices, by what vectors are kept in
WIDEST = 8  # questions in a tile
ROWS = 16  # entities times questions, of a tile: of more, a thread has too few registers for the products
WARPS = {torch.float32: 4, torch.bfloat16: 2}  # that share a tile
PROGRAMS = 1056  # about so many on the way back: the buffers have a slot for each


def pays(questions: int) -> bool:
    """Whether there are enough questions for a whole tile; of other tiles there would have to be a kernel each."""
    return questions >= WIDEST and _kernels() is not None


def updated(
    vectors: Tensor,
    sums: Tensor,
    sources: Tensor,
    asked: Tensor,
    gain: Tensor,
    sizes: Tensor,
    weight: Tensor,
    bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
) -> Tensor:
    """(entities, questions, d): the vectors after a layer.

    ``sums`` are what edges brought, to which ``asked``, (questions, d), is added at each question's source, all
    multiplied by its ``gain``; ``sizes`` are what each entity's mean divides by, and the rest are those of a linear
    map from 3 d numbers to d, a power of two and at least 16, and of a layer norm.
    """
    tables = vectors, sums, sources, asked, gain, sizes, weight, bias, gamma, beta
    result: Tensor = _Updated.apply(*(one.contiguous() for one in tables))  # type: ignore[no-untyped-call]
    return result


class _Updated(torch.autograd.Function):
    """The kernels; what the way back needs of the way there, it finds again."""

    @staticmethod
    def forward(ctx: Any, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(*tables)
        vectors, (entities, questions, size) = tables[0], tables[0].shape
        result, (wide, blocks) = torch.empty_like(vectors), _question_blocks(questions)
        grid = (blocks * _blocks(entities, ROWS // wide),)
        shape = entities, questions, blocks, size, ROWS, wide, PRECISION[vectors.dtype]
        _kernels().layer[grid](*tables, result, *shape, num_warps=WARPS[vectors.dtype])
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        tables = ctx.saved_tensors
        vectors, _, sources, _, gain = tables[:5]
        entities, questions, size = vectors.shape
        wide, blocks = _question_blocks(questions)
        tiles = _blocks(entities, ROWS // wide)
        shares = max(1, min(tiles, PROGRAMS // blocks))
        of_vectors, of_sums = torch.empty_like(vectors), torch.empty_like(vectors)
        of_weight = gain.new_empty(shares * blocks, 3, size, size)
        of_rest = gain.new_empty(shares * blocks, 3, size)
        of_gain = gain.new_empty(shares, blocks * wide, size)
        found = of_vectors, of_sums, of_weight, of_rest, of_gain
        shape = entities, questions, blocks, tiles, shares, size, ROWS, wide, PRECISION[vectors.dtype]
        _kernels().layer_slopes[(shares * blocks,)](
            *tables, gradients[0].contiguous(), *found, *shape, num_warps=WARPS[vectors.dtype]
        )
        of_asked = of_sums[sources, torch.arange(questions, device=sources.device)].float()  # it was added there
        by_part = of_weight.sum(dim=0).permute(1, 0, 2).reshape(size, 3 * size)
        rest = of_rest.sum(dim=0)
        by_question = of_gain.sum(dim=0)[:questions]
        return of_vectors, of_sums, None, of_asked, by_question, None, by_part, *rest.unbind()


def _question_blocks(questions: int) -> tuple[int, int]:
    """How many questions a tile has, a power of two, and how many such blocks there are."""
    wide = min(WIDEST, 1 << max(0, questions - 1).bit_length())
    return wide, _blocks(questions, wide)


def _blocks(number: int, size: int) -> int:
    return max(1, -(-number // size))


@cache
def _kernels() -> Any:
    """The module of kernels, or `None` without Triton."""
    try:
        from newcomer.models.propagation import gpu_layer_kernels as fused_layer_kernels
    except ImportError:
        return None
    return fused_layer_kernels
