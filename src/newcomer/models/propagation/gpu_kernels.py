"""The kernels of `newcomer.models.propagation.gpu`; importing this needs Triton.

Sums of messages come block by block of a few edges, and then row by row. A layer comes tile by tile: some entities
times some queries, ``rows`` together, query after query of one entity and then the next, which are long runs of
memory. The queries of a tile are the same for all tiles of a program, for the gradient of their gates.
"""

import triton
import triton.language as tl

EPSILON = tl.constexpr(1e-5)  # as `torch.nn.LayerNorm` has it
ANY_NUMBER = ["entities", "queries", "blocks", "tiles", "shares"]  # no kernel of their own for round ones


@triton.jit  # type: ignore[untyped-decorator]
def block_sum(  # type: ignore[no-untyped-def]
    starts, columns, edges, relations, weights, vectors, scales, sums, width, size: tl.constexpr, tile: tl.constexpr
):
    """One block of one row, some of its numbers: the sum of the messages along its edges."""
    block = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = place < width
    total = tl.zeros([tile], dtype=tl.float32)
    for entry in range(tl.load(starts + block), tl.load(starts + block + 1)):
        edge = tl.load(edges + entry)
        scale = tl.load(scales + tl.load(relations + edge) * size + place % size)
        vector = tl.load(vectors + tl.load(columns + entry) * width + place, mask=inside, other=0.0)
        total += tl.load(weights + edge) * scale * vector.to(tl.float32)
    tl.store(sums + block * width + place, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def block_scale_gradients(  # type: ignore[no-untyped-def]
    starts, edges, rows, columns, weights, vectors, gradient, sums, queries, size: tl.constexpr, room: tl.constexpr
):
    """One block of the edges of one relation: the gradient of its scale by them."""
    block = tl.program_id(0).to(tl.int64)
    query, i = tl.arange(0, room)[:, None], tl.arange(0, size)
    inside = (query < queries) & (i[None, :] < size)
    place, width = query * size + i[None, :], queries * size
    total = tl.zeros([room, size], dtype=tl.float32)
    for entry in range(tl.load(starts + block), tl.load(starts + block + 1)):
        edge = tl.load(edges + entry)
        vector = tl.load(vectors + tl.load(columns + edge) * width + place, mask=inside, other=0.0)
        slope = tl.load(gradient + tl.load(rows + edge) * width + place, mask=inside, other=0.0)
        total += tl.load(weights + edge) * vector.to(tl.float32) * slope.to(tl.float32)
    tl.store(sums + block * size + i, tl.sum(total, axis=0))


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


@triton.jit(do_not_specialize=ANY_NUMBER[:3])  # type: ignore[untyped-decorator]
def layer(  # type: ignore[no-untyped-def]
    vectors,
    sums,
    sources,
    query_vectors,
    gate,
    degrees,
    weight,
    bias,
    gamma,
    beta,
    result,
    entities,
    queries,
    blocks,
    size: tl.constexpr,
    rows: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """One tile: the new vectors."""
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    i = tl.arange(0, size)
    entity, query, inside = _rows(tile, block, entities, queries, rows, wide)
    base, place = _places(tile, block, queries, i, size, rows, wide)
    own = tl.load(vectors + base + place, mask=inside[:, None], other=0.0).to(tl.float32)
    received = _received(sums + base + place, sources, query_vectors, entity, query, inside, i, size)
    gated = received * tl.load(gate + query[:, None] * size + i[None, :], mask=inside[:, None], other=0.0)
    share = 1.0 / tl.load(degrees + entity, mask=inside, other=1.0)
    normed, _ = _normed(own, _small(gated), gated * share[:, None], weight, bias, i, size, precision)
    shifted = normed * tl.load(gamma + i)[None, :] + tl.load(beta + i)[None, :]
    tl.store(result + base + place, own + tl.where(shifted > 0.0, shifted, 0.0), mask=inside[:, None])


@triton.jit(do_not_specialize=ANY_NUMBER)  # type: ignore[untyped-decorator]
def layer_gradients(  # type: ignore[no-untyped-def]
    vectors,
    sums,
    sources,
    query_vectors,
    gate,
    degrees,
    weight,
    bias,
    gamma,
    beta,
    gradient,
    of_vectors,
    of_sums,
    of_weight,
    of_rest,
    of_gate,
    entities,
    queries,
    blocks,
    tiles,
    shares,
    size: tl.constexpr,
    rows: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """Every so many tiles of the same queries: their gradients, and their part of those that all rows have."""
    program = tl.program_id(0).to(tl.int64)
    block, i = tl.program_id(0) % blocks, tl.arange(0, size)
    by_own = tl.zeros([size, size], dtype=tl.float32)
    by_small = tl.zeros([size, size], dtype=tl.float32)
    by_mean = tl.zeros([size, size], dtype=tl.float32)
    for_gate = tl.zeros([rows, size], dtype=tl.float32)
    for_bias = tl.zeros([size], dtype=tl.float32)
    for_gamma = tl.zeros([size], dtype=tl.float32)
    for_beta = tl.zeros([size], dtype=tl.float32)
    for tile in range(tl.program_id(0) // blocks, tiles, shares):
        entity, query, inside = _rows(tile, block, entities, queries, rows, wide)
        base, place = _places(tile, block, queries, i, size, rows, wide)
        own = tl.load(vectors + base + place, mask=inside[:, None], other=0.0).to(tl.float32)
        received = _received(sums + base + place, sources, query_vectors, entity, query, inside, i, size)
        gates = tl.load(gate + query[:, None] * size + i[None, :], mask=inside[:, None], other=0.0)
        gated = received * gates
        share = 1.0 / tl.load(degrees + entity, mask=inside, other=1.0)
        small, mean = _small(gated), gated * share[:, None]
        normed, steepness = _normed(own, small, mean, weight, bias, i, size, precision)

        wanted = tl.load(gradient + base + place, mask=inside[:, None], other=0.0)  # so others add nothing to any sum
        wanted = wanted.to(tl.float32)
        scale, shift = tl.load(gamma + i)[None, :], tl.load(beta + i)[None, :]
        shown = tl.where(normed * scale + shift > 0.0, wanted, 0.0)
        for_beta += tl.sum(shown, axis=0)
        for_gamma += tl.sum(shown * normed, axis=0)
        shown = shown * scale
        level, along = tl.sum(shown, axis=1) / size, tl.sum(shown * normed, axis=1) / size
        mixed = steepness[:, None] * (shown - level[:, None] - normed * along[:, None])
        for_bias += tl.sum(mixed, axis=0)
        turned = tl.trans(mixed)
        by_own = tl.dot(turned, own, by_own, input_precision=precision)
        by_small = tl.dot(turned, small, by_small, input_precision=precision)
        by_mean = tl.dot(turned, mean, by_mean, input_precision=precision)

        wanted = tl.dot(mixed, _part(weight, 0, i, size), wanted, input_precision=precision)
        tl.store(of_vectors + base + place, wanted, mask=inside[:, None])
        of_small = tl.dot(mixed, _part(weight, 1, i, size), input_precision=precision)
        of_gated = tl.dot(mixed, _part(weight, 2, i, size), input_precision=precision) * share[:, None]
        # At 0 the slope is 1, but `torch.sign` has it 0, and so has what this stands for.
        of_gated += tl.where(gated == 0.0, 0.0, of_small / (1.0 + tl.abs(gated)))
        tl.store(of_sums + base + place, of_gated * gates, mask=inside[:, None])
        for_gate += of_gated * received

    square = i[:, None] * size + i[None, :]
    tl.store(of_weight + (program * 3 + 0) * size * size + square, by_own)
    tl.store(of_weight + (program * 3 + 1) * size * size + square, by_small)
    tl.store(of_weight + (program * 3 + 2) * size * size + square, by_mean)
    tl.store(of_rest + (program * 3 + 0) * size + i, for_bias)
    tl.store(of_rest + (program * 3 + 1) * size + i, for_gamma)
    tl.store(of_rest + (program * 3 + 2) * size + i, for_beta)
    by_query = tl.sum(tl.reshape(for_gate, [rows // wide, wide, size]), axis=0)
    tl.store(of_gate + program * wide * size + tl.arange(0, wide)[:, None] * size + i[None, :], by_query)


@triton.jit  # type: ignore[untyped-decorator]
def _rows(tile, block, entities, queries, rows: tl.constexpr, wide: tl.constexpr):  # type: ignore[no-untyped-def]
    """Entity and query of each row of a tile, and whether there is such a row."""
    row = tl.arange(0, rows)
    entity, query = tile * (rows // wide) + row // wide, block * wide + row % wide
    return entity, query, (entity < entities) & (query < queries)


@triton.jit  # type: ignore[untyped-decorator]
def _places(tile, block, queries, i, size: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where a tile starts in a table, in 64 bits, and its places from there, in 32: half the registers."""
    row = tl.arange(0, rows)
    first = tl.cast(tile, tl.int64) * (rows // wide) * queries + block * wide
    return first * size, (row // wide * queries + row % wide)[:, None] * size + i[None, :]


@triton.jit  # type: ignore[untyped-decorator]
def _received(sums, sources, query_vectors, entity, query, inside, i, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums, with the query's vector added at its source."""
    starts = (tl.load(sources + query, mask=inside, other=-1) == entity) & inside
    start = tl.load(query_vectors + query[:, None] * size + i[None, :], mask=starts[:, None], other=0.0)
    return tl.load(sums, mask=inside[:, None], other=0.0).to(tl.float32) + start


@triton.jit
def _small(gated):  # type: ignore[no-untyped-def]
    """The logarithm of one more than the size, with its sign; exact for small numbers as well."""
    far = tl.abs(gated)
    more = 1.0 + far
    # What was lost in adding 1 is lost in the divisor too.
    log = tl.where(more == 1.0, far, tl.log(more) * (far / tl.where(more == 1.0, 1.0, more - 1.0)))
    return tl.where(gated < 0.0, -log, log)


@triton.jit  # type: ignore[untyped-decorator]
def _normed(own, small, mean, weight, bias, i, size: tl.constexpr, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """The mix with mean 0 and variance 1 in each row, and what it was multiplied by for that."""
    mixed = tl.dot(own, tl.trans(_part(weight, 0, i, size)), input_precision=precision)
    mixed = tl.dot(small, tl.trans(_part(weight, 1, i, size)), mixed, input_precision=precision)
    mixed = tl.dot(mean, tl.trans(_part(weight, 2, i, size)), mixed, input_precision=precision)
    mixed += tl.load(bias + i)[None, :]
    mixed -= (tl.sum(mixed, axis=1) / size)[:, None]
    steepness = 1.0 / tl.sqrt(tl.sum(mixed * mixed, axis=1) / size + EPSILON)
    return mixed * steepness[:, None], steepness


@triton.jit  # type: ignore[untyped-decorator]
def _part(weight, part: tl.constexpr, i, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The square of the weights of one of the three parts of the input: own vector, logarithm, mean."""
    return tl.load(weight + i[:, None] * (3 * size) + part * size + i[None, :])
