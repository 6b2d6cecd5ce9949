"""The kernels of `newcomer.nn.fused`; importing this needs Triton."""

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
        total += tl.load(weights + edge) * scale * said
    tl.store(sums + block * width + place, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def block_slopes(  # type: ignore[no-untyped-def]
    starts,
    owners,
    columns,
    edges,
    relations,
    weights,
    vectors,
    scales,
    gradient,
    sums,
    by_edge,
    questions,
    size: tl.constexpr,
    room: tl.constexpr,
):
    """One block of the edges that lead to one entity: its gradient by them, and that of each edge's scale."""
    block = tl.program_id(0).to(tl.int64)
    question, one = tl.arange(0, room)[:, None], tl.arange(0, size)
    inside = (question < questions) & (one[None, :] < size)
    place, width = question * size + one[None, :], questions * size
    own = tl.load(vectors + tl.load(owners + block) * width + place, mask=inside, other=0.0)
    total = tl.zeros([room, size], dtype=tl.float32)
    for at in range(tl.load(starts + block), tl.load(starts + block + 1)):
        edge = tl.load(edges + at)
        scale = tl.load(scales + tl.load(relations + edge) * size + one)
        wanted = tl.load(gradient + tl.load(columns + at) * width + place, mask=inside, other=0.0)
        wanted = wanted * tl.load(weights + edge)
        total += wanted * scale[None, :]
        tl.store(by_edge + edge * size + one, tl.sum(wanted * own, axis=0))
    tl.store(sums + block * width + place, total, mask=inside)
