"""The kernels of `newcomer.models.propagation.gpu`; importing this needs Triton."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def block_sum(  # type: ignore[no-untyped-def]
    starts, columns, edges, relations, weights, vectors, scales, sums, width, size: tl.constexpr, tile: tl.constexpr
):
    """One block of one row, some of its numbers: the weighted, scaled sum of what its edges bring."""
    block = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = place < width
    total = tl.zeros([tile], dtype=tl.float32)
    for at in range(tl.load(starts + block), tl.load(starts + block + 1)):
        edge = tl.load(edges + at)
        scale = tl.load(scales + tl.load(relations + edge) * size + place % size)
        said = tl.load(vectors + tl.load(columns + at) * width + place, mask=inside, other=0.0)
        total += tl.load(weights + edge) * scale * said.to(tl.float32)
    tl.store(sums + block * width + place, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def block_slopes(  # type: ignore[no-untyped-def]
    starts, edges, rows, columns, weights, vectors, gradient, sums, questions, size: tl.constexpr, room: tl.constexpr
):
    """One block of the edges of one relation: the gradient of its scale by them."""
    block = tl.program_id(0).to(tl.int64)
    question, one = tl.arange(0, room)[:, None], tl.arange(0, size)
    inside = (question < questions) & (one[None, :] < size)
    place, width = question * size + one[None, :], questions * size
    total = tl.zeros([room, size], dtype=tl.float32)
    for at in range(tl.load(starts + block), tl.load(starts + block + 1)):
        edge = tl.load(edges + at)
        said = tl.load(vectors + tl.load(columns + edge) * width + place, mask=inside, other=0.0)
        wanted = tl.load(gradient + tl.load(rows + edge) * width + place, mask=inside, other=0.0)
        total += tl.load(weights + edge) * said.to(tl.float32) * wanted.to(tl.float32)
    tl.store(sums + block * size + one, tl.sum(total, axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def row_sum(offsets, sums, rows, width, tile: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row, some of its numbers: the sum of its blocks."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = place < width
    total = tl.zeros([tile], dtype=tl.float32)
    for block in range(tl.load(offsets + row), tl.load(offsets + row + 1)):
        total += tl.load(sums + block * width + place, mask=inside, other=0.0)
    tl.store(rows + row * width + place, total, mask=inside)
