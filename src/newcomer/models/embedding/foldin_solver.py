"""The descent that folds a newcomer in, and many newcomers at once, for devices where single small products are slow.

The tables of many are padded to the next power of two: facts by relation, (newcomers, m), and neighbours,
(newcomers, n). Sums over facts are made on the processor in a fixed order, so that a seed gives the same bits.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.models.embedding.decoders import Decoder

CALLS = 18  # of the cost, at most, to find its minimum
CLOSE = 1e-3  # the share of the first slope at which one is near enough
KEPT = 5  # steps that tell how a cost bends
ENOUGH = 1e-4  # share of the promised fall that a step must bring
SHORTER = 0.4  # than a step that did not
ROUNDING = 1e-6  # share of a cost that is noise
MOST = 1 << 26  # numbers in the largest table of many


Point = npt.NDArray[np.floating]
OneCost = Callable[[Point], tuple[float, Point]]  # of a point (d,): what it costs, and the slope (d,)
Cost = Callable[[Tensor], tuple[Tensor, Tensor]]  # of points (b, d): what each costs (b,), and the slopes (b, d)


class _Step(NamedTuple):
    moved: Tensor  # (b, d)
    bent: Tensor  # (b, d): how the slope changed
    scale: Tensor  # (b, 1): one by the product of both; 0 of those that stayed


def descend(cost: Cost, start: Tensor) -> Tensor:
    """The minima of strictly convex costs, one a row of ``start`` (b, d), by limited-memory BFGS."""
    points = start
    values, slopes = cost(points)
    near = CLOSE * slopes.norm(dim=1)
    steps: deque[_Step] = deque(maxlen=KEPT)
    ways, lengths, sizes = -slopes / slopes.norm(dim=1, keepdim=True).clamp_min(1e-12), torch.ones_like(values), None
    for _ in range(CALLS - 1):
        open_ones = slopes.norm(dim=1) > near
        if not bool(open_ones.any()):
            break
        tried = torch.addcmul(points, ways, lengths[:, None])
        reached, there = cost(tried)
        allowed = values + ENOUGH * lengths * _dots(ways, slopes)[:, 0] + ROUNDING * values.abs()
        better = open_ones & (reached <= allowed)
        go = better[:, None]
        moved, bent = torch.where(go, tried - points, 0.0), torch.where(go, there - slopes, 0.0)
        product = _dots(moved, bent)
        steps.append(_Step(moved, bent, torch.where(go, 1 / product, 0.0)))
        curve = product / _dots(bent, bent)
        sizes = curve if sizes is None else torch.where(go, curve, sizes)
        points, slopes = torch.where(go, tried, points), torch.where(go, there, slopes)
        values = torch.where(better, reached, values)
        ways = torch.where(go, _downhill(slopes, steps, sizes), ways)
        lengths = torch.where(better, 1.0, lengths * SHORTER)
    return points


class _OneStep(NamedTuple):
    moved: Point
    bent: Point
    scale: float


def descend_one(cost: OneCost, start: Point) -> Point:
    """As `descend`, from one point (d,): a hundred small steps of arithmetic, which arrays of numpy take faster."""
    point = start
    value, slope = cost(point)
    steep = float(np.linalg.norm(slope))
    near, steps = CLOSE * steep, deque[_OneStep](maxlen=KEPT)
    way, length, size = -slope / max(steep, 1e-12), 1.0, 1.0
    for _ in range(CALLS - 1):
        if not float(np.linalg.norm(slope)) > near:
            break
        tried = point + length * way
        reached, there = cost(tried)
        if not reached <= value + ENOUGH * length * float(way @ slope) + ROUNDING * abs(value):
            steps.append(_OneStep(slope, slope, 0.0))  # counts as a step, as it does among many
            length *= SHORTER
            continue
        moved, bent = tried - point, there - slope
        product = float(moved @ bent)
        steps.append(_OneStep(moved, bent, 1 / product))
        size = product / float(bent @ bent)
        point, value, slope, length = tried, reached, there, 1.0
        way = _downhill_one(slope, steps, size)
    return point


def _downhill_one(slope: Point, steps: deque[_OneStep], size: float) -> Point:
    way, along = -slope, []
    for moved, bent, scale in reversed(steps):
        along.append(scale * float(moved @ way))
        way -= along[-1] * bent
    way *= size
    for (moved, bent, scale), share in zip(steps, reversed(along), strict=True):
        way += (share - scale * float(bent @ way)) * moved
    return way


def _downhill(slopes: Tensor, steps: deque[_Step], sizes: Tensor) -> Tensor:
    """(b, d): the ways to the minima, if the costs bend everywhere as they did along the last steps."""
    ways, along = -slopes, []
    for moved, bent, scale in reversed(steps):
        along.append(scale * _dots(moved, ways))
        ways = torch.addcmul(ways, along[-1], bent, value=-1)
    ways = ways * sizes
    for (moved, bent, scale), share in zip(steps, reversed(along), strict=True):
        ways = torch.addcmul(ways, share - scale * _dots(bent, ways), moved)
    return ways


def _dots(one: Tensor, other: Tensor) -> Tensor:
    """(b, 1): the products of the rows."""
    return (one * other).sum(dim=1, keepdim=True)


class Heard(NamedTuple):
    """The facts of newcomers that are heard, ascending by newcomer, relation and neighbour; on the processor."""

    newcomers: Tensor
    relations: Tensor
    columns: Tensor
    weights: Tensor


class Problem(NamedTuple):
    """What is asked of all newcomers alike: the rivals (k, d) with their excess (k,), and the cost of length."""

    decoder: Decoder
    rivals: Tensor
    excess: Tensor
    ridge: float


class _Table(NamedTuple):
    newcomers: Tensor  # (b,)
    relations: Tensor  # (b, m, d): the decoder's vectors
    weights: Tensor  # (b, m, 1): 0 where padded
    tails: Tensor  # (b, m, d): weighted tails, summed
    neighbors: Tensor  # (b, n, d)
    padding: Tensor  # (b, 1, n): 0, or minus infinity where padded


def solve_all(problem: Problem, heard: Heard, vectors: Tensor, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Who is solved for together, and their vectors; ``vectors`` are those that columns name."""
    for table in _tables(problem, heard, vectors, device):
        turned = problem.decoder.inverse(table.relations)
        start = torch.zeros_like(table.tails[:, 0])
        found = descend(partial(_cost, problem, table, turned), start)
        yield table.newcomers, found.cpu()


def _cost(problem: Problem, table: _Table, turned: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    asked = problem.decoder.query_vector(vectors[:, None].expand_as(table.relations), table.relations)
    rivals = asked @ problem.rivals.T + problem.excess
    scores = torch.cat([rivals, asked @ table.neighbors.mT + table.padding], dim=2)
    total = torch.logsumexp(scores, dim=2, keepdim=True)
    of_rivals, of_neighbors = torch.exp(scores - total).tensor_split([rivals.shape[2]], dim=2)
    expected = of_rivals @ problem.rivals + of_neighbors @ table.neighbors
    unlikely = (table.weights * total).sum(dim=(1, 2)) - (asked * table.tails).sum(dim=(1, 2))
    pulled = problem.decoder.query_vector(table.weights * expected - table.tails, turned)
    values = unlikely + problem.ridge * vectors.square().sum(dim=1)
    return values, torch.add(pulled.sum(dim=1), vectors, alpha=2 * problem.ridge)


def _tables(problem: Problem, heard: Heard, vectors: Tensor, device: torch.device) -> Iterator[_Table]:
    """The newcomers in tables of those with about as many relations and neighbours."""
    kinds = 2 * problem.decoder.num_relations
    pairs, of_pair = torch.unique_consecutive(heard.newcomers * kinds + heard.relations, return_inverse=True)
    ties = torch.unique(heard.newcomers * len(vectors) + heard.columns)
    dim = vectors.shape[1]
    tails = vectors.new_zeros(len(pairs), dim).index_add_(0, of_pair, vectors[heard.columns] * heard.weights[:, None])
    weights = vectors.new_zeros(len(pairs)).index_add_(0, of_pair, heard.weights)
    along = problem.decoder.relation_vectors(torch.arange(kinds, device=problem.rivals.device)).detach().cpu()
    everyone = torch.unique_consecutive(heard.newcomers)
    first_pair, num_pairs = _spans(pairs // kinds, everyone)
    first_tie, num_ties = _spans(ties // len(vectors), everyone)
    size = _rounded(num_pairs) * (1 << 20) + _rounded(num_ties)
    for kind in torch.unique(size).tolist():
        m, n = kind >> 20, kind & ((1 << 20) - 1)
        members = torch.nonzero(size == kind)[:, 0]
        at_once = max(1, MOST // (m * (len(problem.rivals) + n) + (m + n) * dim))
        for part in members.tensor_split(tuple(range(at_once, len(members), at_once))):
            pair, has_pair = _places(first_pair[part], num_pairs[part], m)
            tie, has_tie = _places(first_tie[part], num_ties[part], n)
            near = vectors[ties[tie] % len(vectors)] * has_tie[..., None]
            padding = vectors.new_zeros(len(part), 1, n).masked_fill(~has_tie[:, None], -torch.inf)
            mine = has_pair[..., None]
            columns = along[pairs[pair] % kinds], weights[pair][..., None] * mine, tails[pair] * mine, near, padding
            yield _Table(everyone[part], *(column.to(device) for column in columns))


def _spans(owners: Tensor, everyone: Tensor) -> tuple[Tensor, Tensor]:
    """Where the entries of each begin in ascending ``owners``, and how many they are."""
    first = torch.searchsorted(owners, everyone)
    return first, torch.searchsorted(owners, everyone, right=True) - first


def _rounded(sizes: Tensor) -> Tensor:
    """The next powers of two."""
    return 2 ** torch.ceil(torch.log2(sizes.double())).long()


def _places(first: Tensor, sizes: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(b, width): the entries of each, and whether there is one."""
    offset = torch.arange(width)
    there = offset < sizes[:, None]
    return torch.where(there, first[:, None] + offset, first[:, None]), there
