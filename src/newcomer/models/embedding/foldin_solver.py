"""The solver behind fold-in, for one newcomer or for many at once.

A newcomer alone is solved for by arrays of numpy, which begin small products sooner. Many at once are for devices where
single small products are slow: their tables are padded to the next power of two, facts by relation, (newcomers, m), and
neighbours, (newcomers, n). Sums over facts are made on the CPU in a fixed order, so that a seed gives the same bits.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.models.embedding.decoders import Decoder

RIDGE = 0.1
MAX_CALLS = 18  # of the cost, to find its minimum
TOLERANCE = 1e-3  # the share of the first gradient's length at which a point is near enough
HISTORY = 5  # steps that tell the curvature of a cost
MIN_DECREASE = 1e-4  # share of the promised decrease that a step must bring
BACKTRACKING = 0.4  # factor of the length of a step that did not
ROUNDING = 1e-6  # share of a cost that is noise
MAX_NUMBERS = 1 << 26  # in the largest table of many


Array = npt.NDArray[Any]
Cost = Callable[[Any], tuple[Any, Any]]  # of points: what they cost, and the gradient


class Arithmetic(NamedTuple):
    """What a descent calculates with."""

    dot: Callable[[Any, Any], Any]
    norm: Callable[[Any], Any]
    plus: Callable[[Any, Any, Any], Any]  # points and so many times the directions
    choose: Callable[[Any, Any, Any], Any]
    any: Callable[[Any], Any]


# One point is an array (d,) of numpy, and numbers are floats; many are a tensor (b, d), and numbers tensors (b, 1).
ONE_POINT = Arithmetic(
    lambda one, other: float(one @ other),
    lambda point: float(np.linalg.norm(point)),
    lambda point, factor, direction: point + factor * direction,
    lambda condition, first, second: first if condition else second,
    bool,
)
MANY_POINTS = Arithmetic(
    lambda one, other: (one * other).sum(dim=1, keepdim=True),
    lambda points: points.norm(dim=1, keepdim=True),
    torch.addcmul,
    torch.where,
    torch.any,
)


class _Step(NamedTuple):
    moved: Any
    bent: Any  # how the gradient changed
    scale: Any  # one by the product of both; 0 where the point stayed


def descend(cost: Cost, start: Any, by: Arithmetic) -> Any:
    """The minima of strictly convex costs, one for each point of ``start``, by limited-memory BFGS."""
    dot, norm, choose = by.dot, by.norm, by.choose
    points = start
    values, gradients = cost(points)
    steep = norm(gradients)
    steps: deque[_Step] = deque(maxlen=HISTORY)
    directions = -gradients / (steep + (steep == 0))
    lengths = curvatures = steep * 0 + 1.0
    for _ in range(MAX_CALLS - 1):
        unfinished = norm(gradients) > TOLERANCE * steep
        if not by.any(unfinished):
            break
        tried = by.plus(points, lengths, directions)
        reached, there = cost(tried)
        allowed = values + MIN_DECREASE * lengths * dot(directions, gradients) + ROUNDING * abs(values)
        go = unfinished & (reached <= allowed)
        moved, bent = choose(go, tried - points, gradients), choose(go, there - gradients, gradients)
        product = dot(moved, bent)
        steps.append(_Step(moved, bent, choose(go, 1 / product, 0.0)))
        curvatures = choose(go, product / dot(bent, bent), curvatures)
        points, gradients = choose(go, tried, points), choose(go, there, gradients)
        values, lengths = choose(go, reached, values), choose(go, 1.0, lengths * BACKTRACKING)
        directions = choose(go, _downhill(gradients, steps, curvatures, by), directions)
    return points


def _downhill(gradients: Any, steps: deque[_Step], curvatures: Any, by: Arithmetic) -> Any:
    """The directions to the minima, if the costs bend everywhere as they did along the last steps."""
    directions, along = -gradients, []
    for moved, bent, scale in reversed(steps):
        along.append(scale * by.dot(moved, directions))
        directions = by.plus(directions, -along[-1], bent)
    directions = directions * curvatures
    for (moved, bent, scale), share in zip(steps, reversed(along), strict=True):
        directions = by.plus(directions, share - scale * by.dot(bent, directions), moved)
    return directions


class Problem(NamedTuple):
    """What all newcomers have in common: the decoder, and negatives (k, d) with what is added to their scores (k,)."""

    decoder: Decoder
    negatives: Tensor
    log_weights: Tensor


class Facts(NamedTuple):
    """The facts of one newcomer, by relation."""

    relations: Tensor  # (m, d): the decoder's vectors
    weights: Tensor  # (m,): of all facts with the relation
    tails: Tensor  # (m, d): the sum of their weighted tails
    neighbors: Tensor  # (n, d): the tails of all relations, each once


def candidates_of(problem: Problem, facts: Facts) -> tuple[Tensor, Tensor]:
    """The negatives and a newcomer's neighbours, and what is added to their scores."""
    log_weights = torch.cat([problem.log_weights, problem.log_weights.new_zeros(len(facts.neighbors))])
    return torch.cat([problem.negatives, facts.neighbors]), log_weights


def solve_one(problem: Problem, facts: Facts) -> Tensor:
    """(d,): the vector of one newcomer, on the CPU.

    Vectors are taken as numbers, of which a query vector is a product; in scores they count as pairs of real ones.
    """
    decoder, (candidates, log_weights) = problem.decoder, candidates_of(problem, facts)
    relations, others = decoder.numbers(facts.relations), _flat(decoder.numbers(candidates))
    stated_tails, weights = decoder.numbers(facts.tails).numpy(), facts.weights.numpy()
    along, inverse = relations.numpy(), relations.conj().resolve_conj().numpy()
    stated = _real((stated_tails * inverse).sum(axis=0))
    queries, expected = np.empty_like(along), np.empty_like(along)
    real_queries, real_expected = torch.from_numpy(_real(queries)), torch.from_numpy(_real(expected))
    scores = others.new_empty(len(relations), len(others))

    def cost(point: Array) -> tuple[float, Array]:
        # Large products by torch, on as many threads as it may use; what is small by numpy, which begins sooner.
        np.multiply(point.view(along.dtype), along, out=queries)
        torch.addmm(log_weights, real_queries, others.T, out=scores)
        top = scores.amax(dim=1)
        total = scores.sub_(top[:, None]).exp_().sum(dim=1).numpy()
        torch.mm(scores, others, out=real_expected)
        np.multiply(expected, (weights / total)[:, None], out=expected)
        np.multiply(expected, inverse, out=expected)
        gradient = _real(expected.sum(axis=0)) - stated + 2 * RIDGE * point
        unlikely = float(weights @ (np.log(total) + top.numpy())) - float(point @ stated)
        return unlikely + RIDGE * float(point @ point), gradient

    found = torch.from_numpy(descend(cost, np.zeros_like(stated), ONE_POINT))
    return decoder.vector(found.view(relations.dtype))


def _flat(numbers: Tensor) -> Tensor:
    """Numbers, real or complex, as real ones in the same place."""
    return torch.view_as_real(numbers).flatten(-2) if numbers.is_complex() else numbers


def _real(numbers: Array) -> Array:
    """The same for arrays of numpy."""
    return numbers.view(numbers.real.dtype)


class UsedFacts(NamedTuple):
    """Facts of newcomers, ascending by newcomer, relation and neighbour; on the CPU."""

    newcomers: Tensor
    relations: Tensor
    columns: Tensor
    weights: Tensor

    def where(self, mask: Tensor) -> "UsedFacts":
        """Those under a mask."""
        return UsedFacts(*(column[mask] for column in self))


class _Table(NamedTuple):
    newcomers: Tensor  # (b,)
    relations: Tensor  # (b, m, d): the decoder's vectors
    weights: Tensor  # (b, m, 1): 0 where padded
    tails: Tensor  # (b, m, d): weighted tails, summed
    neighbors: Tensor  # (b, n, d)
    padding: Tensor  # (b, 1, n): 0, or minus infinity where padded


def solve_all(
    problem: Problem, facts: UsedFacts, vectors: Tensor, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Newcomers that are solved for together, and their vectors; ``vectors`` are those that columns name."""
    for table in _tables(problem, facts, vectors, device):
        cost = partial(_cost, problem, table, problem.decoder.inverse(table.relations))
        yield table.newcomers, descend(cost, torch.zeros_like(table.tails[:, 0]), MANY_POINTS).cpu()


def _cost(problem: Problem, table: _Table, inverse: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    queries = problem.decoder.query_vector(vectors[:, None].expand_as(table.relations), table.relations)
    of_negatives = queries @ problem.negatives.T + problem.log_weights
    scores = torch.cat([of_negatives, queries @ table.neighbors.mT + table.padding], dim=2)
    total = torch.logsumexp(scores, dim=2, keepdim=True)
    negatives, neighbors = torch.exp(scores - total).tensor_split([of_negatives.shape[2]], dim=2)
    expected = negatives @ problem.negatives + neighbors @ table.neighbors
    unlikely = (table.weights * total).sum(dim=(1, 2)) - (queries * table.tails).sum(dim=(1, 2))
    gradients = problem.decoder.query_vector(table.weights * expected - table.tails, inverse)
    values = unlikely + RIDGE * vectors.square().sum(dim=1)
    return values[:, None], torch.add(gradients.sum(dim=1), vectors, alpha=2 * RIDGE)


def _tables(problem: Problem, facts: UsedFacts, vectors: Tensor, device: torch.device) -> Iterator[_Table]:
    """The newcomers in tables of those with about as many relations and neighbours."""
    kinds, dim = 2 * problem.decoder.num_relations, vectors.shape[1]
    pairs, of_pair = torch.unique_consecutive(facts.newcomers * kinds + facts.relations, return_inverse=True)
    links = torch.unique(facts.newcomers * len(vectors) + facts.columns)
    tails = vectors.new_zeros(len(pairs), dim).index_add_(0, of_pair, vectors[facts.columns] * facts.weights[:, None])
    weights = vectors.new_zeros(len(pairs)).index_add_(0, of_pair, facts.weights)
    along = problem.decoder.relation_vectors(torch.arange(kinds, device=problem.negatives.device)).detach().cpu()
    newcomers, num_pairs = torch.unique_consecutive(pairs // kinds, return_counts=True)
    num_links = torch.unique_consecutive(links // len(vectors), return_counts=True)[1]
    first_pair, first_link = (torch.cumsum(count, 0) - count for count in (num_pairs, num_links))
    size = _rounded(num_pairs) * (1 << 20) + _rounded(num_links)
    for kind in torch.unique(size).tolist():
        m, n = kind >> 20, kind & ((1 << 20) - 1)
        members = torch.nonzero(size == kind)[:, 0]
        at_once = max(1, MAX_NUMBERS // (m * (len(problem.negatives) + n) + (m + n) * dim))
        for part in torch.split(members, at_once):
            pair, has_pair = _places(first_pair[part], num_pairs[part], m)
            link, has_link = _places(first_link[part], num_links[part], n)
            near = vectors[links[link] % len(vectors)] * has_link[..., None]
            padding = vectors.new_zeros(len(part), 1, n).masked_fill(~has_link[:, None], -torch.inf)
            mine = has_pair[..., None]
            columns = along[pairs[pair] % kinds], weights[pair][..., None] * mine, tails[pair] * mine, near, padding
            yield _Table(newcomers[part], *(column.to(device) for column in columns))


def _rounded(sizes: Tensor) -> Tensor:
    """The next powers of two."""
    return 2 ** torch.ceil(torch.log2(sizes.double())).long()


def _places(first: Tensor, sizes: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(b, width): the entries of each, and whether there is one."""
    offset = torch.arange(width)
    there = offset < sizes[:, None]
    return torch.where(there, first[:, None] + offset, first[:, None]), there
