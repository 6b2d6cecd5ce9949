"""The kernels of `newcomer.models.propagation.gpu_layer`; importing this needs Triton.

A tile is some entities times some questions, ``rows`` together, question after question of one entity and then the
next: long runs of memory. Its questions are the same for all tiles of a program, for the gradient of their gains.
"""

import triton
import triton.language as tl

EPSILON = tl.constexpr(1e-5)  # as `torch.nn.LayerNorm` has it
ANY_NUMBER = ["entities", "questions", "blocks", "tiles", "shares"]  # no kernel of their own for round ones


@triton.jit(do_not_specialize=ANY_NUMBER[:3])  # type: ignore[untyped-decorator]
def layer(  # type: ignore[no-untyped-def]
    vectors,
    sums,
    sources,
    asked,
    gain,
    sizes,
    weight,
    bias,
    gamma,
    beta,
    result,
    entities,
    questions,
    blocks,
    size: tl.constexpr,
    rows: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """One tile: the new vectors."""
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    one = tl.arange(0, size)
    entity, question, inside = _rows(tile, block, entities, questions, rows, wide)
    base, place = _places(tile, block, questions, one, size, rows, wide)
    own = tl.load(vectors + base + place, mask=inside[:, None], other=0.0).to(tl.float32)
    said = _said(sums + base + place, sources, asked, entity, question, inside, one, size)
    told = said * tl.load(gain + question[:, None] * size + one[None, :], mask=inside[:, None], other=0.0)
    share = 1.0 / tl.load(sizes + entity, mask=inside, other=1.0)
    normed, _ = _normed(own, _small(told), told * share[:, None], weight, bias, one, size, precision)
    shifted = normed * tl.load(gamma + one)[None, :] + tl.load(beta + one)[None, :]
    tl.store(result + base + place, own + tl.where(shifted > 0.0, shifted, 0.0), mask=inside[:, None])


@triton.jit(do_not_specialize=ANY_NUMBER)  # type: ignore[untyped-decorator]
def layer_slopes(  # type: ignore[no-untyped-def]
    vectors,
    sums,
    sources,
    asked,
    gain,
    sizes,
    weight,
    bias,
    gamma,
    beta,
    gradient,
    of_vectors,
    of_sums,
    of_weight,
    of_rest,
    of_gain,
    entities,
    questions,
    blocks,
    tiles,
    shares,
    size: tl.constexpr,
    rows: tl.constexpr,
    wide: tl.constexpr,
    precision: tl.constexpr,
):
    """Every so many tiles of the same questions: their gradients, and their part of those that all rows have."""
    program = tl.program_id(0).to(tl.int64)
    block, one = tl.program_id(0) % blocks, tl.arange(0, size)
    by_own = tl.zeros([size, size], dtype=tl.float32)
    by_small = tl.zeros([size, size], dtype=tl.float32)
    by_mean = tl.zeros([size, size], dtype=tl.float32)
    for_gain = tl.zeros([rows, size], dtype=tl.float32)
    for_bias = tl.zeros([size], dtype=tl.float32)
    for_gamma = tl.zeros([size], dtype=tl.float32)
    for_beta = tl.zeros([size], dtype=tl.float32)
    for tile in range(tl.program_id(0) // blocks, tiles, shares):
        entity, question, inside = _rows(tile, block, entities, questions, rows, wide)
        base, place = _places(tile, block, questions, one, size, rows, wide)
        own = tl.load(vectors + base + place, mask=inside[:, None], other=0.0).to(tl.float32)
        said = _said(sums + base + place, sources, asked, entity, question, inside, one, size)
        gains = tl.load(gain + question[:, None] * size + one[None, :], mask=inside[:, None], other=0.0)
        told = said * gains
        share = 1.0 / tl.load(sizes + entity, mask=inside, other=1.0)
        small, mean = _small(told), told * share[:, None]
        normed, steepness = _normed(own, small, mean, weight, bias, one, size, precision)

        wanted = tl.load(gradient + base + place, mask=inside[:, None], other=0.0)  # so others add nothing to any sum
        wanted = wanted.to(tl.float32)
        scale, shift = tl.load(gamma + one)[None, :], tl.load(beta + one)[None, :]
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

        wanted = tl.dot(mixed, _part(weight, 0, one, size), wanted, input_precision=precision)
        tl.store(of_vectors + base + place, wanted, mask=inside[:, None])
        of_small = tl.dot(mixed, _part(weight, 1, one, size), input_precision=precision)
        of_told = tl.dot(mixed, _part(weight, 2, one, size), input_precision=precision) * share[:, None]
        # At 0 the slope is 1, but `torch.sign` has it 0, and so has what this stands for.
        of_told += tl.where(told == 0.0, 0.0, of_small / (1.0 + tl.abs(told)))
        tl.store(of_sums + base + place, of_told * gains, mask=inside[:, None])
        for_gain += of_told * said

    square = one[:, None] * size + one[None, :]
    tl.store(of_weight + (program * 3 + 0) * size * size + square, by_own)
    tl.store(of_weight + (program * 3 + 1) * size * size + square, by_small)
    tl.store(of_weight + (program * 3 + 2) * size * size + square, by_mean)
    tl.store(of_rest + (program * 3 + 0) * size + one, for_bias)
    tl.store(of_rest + (program * 3 + 1) * size + one, for_gamma)
    tl.store(of_rest + (program * 3 + 2) * size + one, for_beta)
    by_question = tl.sum(tl.reshape(for_gain, [rows // wide, wide, size]), axis=0)
    tl.store(of_gain + program * wide * size + tl.arange(0, wide)[:, None] * size + one[None, :], by_question)


@triton.jit  # type: ignore[untyped-decorator]
def _rows(tile, block, entities, questions, rows: tl.constexpr, wide: tl.constexpr):  # type: ignore[no-untyped-def]
    """Entity and question of each row of a tile, and whether there is such a row."""
    row = tl.arange(0, rows)
    entity, question = tile * (rows // wide) + row // wide, block * wide + row % wide
    return entity, question, (entity < entities) & (question < questions)


@triton.jit  # type: ignore[untyped-decorator]
def _places(tile, block, questions, one, size: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where a tile starts in a table, in 64 bits, and its places from there, in 32: half the registers."""
    row = tl.arange(0, rows)
    first = tl.cast(tile, tl.int64) * (rows // wide) * questions + block * wide
    return first * size, (row // wide * questions + row % wide)[:, None] * size + one[None, :]


@triton.jit  # type: ignore[untyped-decorator]
def _said(sums, sources, asked, entity, question, inside, one, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums, with what is asked added where the question starts."""
    starts = (tl.load(sources + question, mask=inside, other=-1) == entity) & inside
    start = tl.load(asked + question[:, None] * size + one[None, :], mask=starts[:, None], other=0.0)
    return tl.load(sums, mask=inside[:, None], other=0.0).to(tl.float32) + start


@triton.jit
def _small(told):  # type: ignore[no-untyped-def]
    """The logarithm of one more than the size, with its sign; exact for small numbers as well."""
    far = tl.abs(told)
    more = 1.0 + far
    # What was lost in adding 1 is lost in the divisor too.
    log = tl.where(more == 1.0, far, tl.log(more) * (far / tl.where(more == 1.0, 1.0, more - 1.0)))
    return tl.where(told < 0.0, -log, log)


@triton.jit  # type: ignore[untyped-decorator]
def _normed(own, small, mean, weight, bias, one, size: tl.constexpr, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """The mix with mean 0 and variance 1 in each row, and what it was multiplied by for that."""
    mixed = tl.dot(own, tl.trans(_part(weight, 0, one, size)), input_precision=precision)
    mixed = tl.dot(small, tl.trans(_part(weight, 1, one, size)), mixed, input_precision=precision)
    mixed = tl.dot(mean, tl.trans(_part(weight, 2, one, size)), mixed, input_precision=precision)
    mixed += tl.load(bias + one)[None, :]
    mixed -= (tl.sum(mixed, axis=1) / size)[:, None]
    steepness = 1.0 / tl.sqrt(tl.sum(mixed * mixed, axis=1) / size + EPSILON)
    return mixed * steepness[:, None], steepness


@triton.jit  # type: ignore[untyped-decorator]
def _part(weight, part: tl.constexpr, one, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The square of the weights that one of the three parts of what is heard meets."""
    return tl.load(weight + one[:, None] * (3 * size) + part * size + one[None, :])
