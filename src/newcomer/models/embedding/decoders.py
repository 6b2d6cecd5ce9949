"""Decoders: how well two entity vectors fit a relation.

    distmult   sum of h * r * t                                     (Yang et al., 2015)
    transe     gamma - |h + r - t|, the L1 distance                 (Bordes et al., 2013)
    complex    real part of the sum of h * r * conj(t)              (Trouillon et al., 2016)

A score is any real number; its sigmoid is the truth of the triple. Relation ids run over [0, 2R), the inverse of ``r``
being ``r + R``, yet only R vectors are learned. The vector of an inverse is derived (DistMult: the same, TransE:
negated, ComplEx: conjugated) so that (h, r, t) and (t, r + R, h) have one score: they are one statement, a model that
rates them differently contradicts itself, and with this tie asking for heads is asking for tails of the inverse.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

CHUNK_BYTES = 1 << 28
TINY = 1e-12  # keeps the gradient of a root finite


class Decoder(nn.Module, ABC):
    """The contract: score triples one by one, or queries against many candidates, with equal results.

    Every decoder turns (head, relation) into one query vector of the entities' size and compares that with tails, so
    the cost of scoring all tails is one comparison a candidate.

    Vectors start uniform with expected squared norm 1, whatever the size. They are drawn on the generator's device:
    draw on the CPU and move the module, and every machine starts from the same numbers.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = ()  # settings of the model that its constructor takes
    is_linear = False  # whether a score is linear in the vector of the head

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.num_relations, self.dim = num_relations, dim
        bound = math.sqrt(3 / dim)
        start = torch.empty(num_relations, dim, device=generator.device)
        self.vectors = nn.Parameter(start.uniform_(-bound, bound, generator=generator))  # (R, dim)

    def triples(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """Scores (n,) of n triples: heads (n, dim), relations (n,), tails (n, dim)."""
        return self.fit_pairs(self.query_vector(heads, self.relation_vectors(relations)), tails)

    @staticmethod
    def cubes(vectors: Tensor) -> Tensor:
        """(n,): the cubed sizes of the numbers of vectors (n, dim), summed: what the nuclear 3-norm charges."""
        return vectors.abs().pow(3).sum(dim=-1)

    @staticmethod
    def penalty(vectors: Tensor) -> Tensor:
        """Mean squared L2 norm of relation vectors (n, dim); 0 of none."""
        return vectors.square().sum() / max(1, len(vectors))

    def relation_vectors(self, relations: Tensor) -> Tensor:
        """Vectors (n, dim) of relations in [0, 2R); an id beyond the range is an IndexError."""
        if not torch.is_grad_enabled():  # a few are looked up among many: invert those alone
            inverse = relations >= self.num_relations
            found = functional.embedding(torch.where(inverse, relations - self.num_relations, relations), self.vectors)
            return torch.where(inverse[:, None], self.inverse(found), found)
        return functional.embedding(relations, torch.cat([self.vectors, self.inverse(self.vectors)]))

    @staticmethod
    def numbers(vectors: Tensor) -> Tensor:
        """Vectors (n, dim) of a linear decoder as numbers, real or complex.

        A query vector is the product of the head's and the relation's; inverse relations are conjugates.
        """
        return vectors

    @staticmethod
    def vector(numbers: Tensor) -> Tensor:
        """The vectors of such numbers."""
        return numbers

    @classmethod
    def identity(cls, vectors: Tensor) -> Tensor:
        """Relation vectors of that shape under which the query vector is the head itself."""
        return cls.vector(torch.ones_like(cls.numbers(vectors)))

    @staticmethod
    @abstractmethod
    def inverse(vectors: Tensor) -> Tensor:
        """The vectors (R, dim) of the inverse relations."""

    @staticmethod
    @abstractmethod
    def query_vector(heads: Tensor, vectors: Tensor) -> Tensor:
        """(n, dim): what tails are compared with, from heads (n, dim) and relation vectors (n, dim)."""

    @abstractmethod
    def fit_pairs(self, queries: Tensor, tails: Tensor) -> Tensor:
        """Scores (n,) of queries (n, dim) with tails (n, dim), row by row."""

    @abstractmethod
    def fit_candidates(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Scores of n queries (n, dim) with candidate tails.

        Candidates (m, dim) are common to all queries and give (n, m); candidates (n, k, dim) are each query's own, as
        negatives are, and give (n, k).
        """


class DotDecoder(Decoder):
    """Decoders whose score is the dot product of query vector and tail, and whose query vector is a product."""

    is_linear = True

    def fit_pairs(self, queries: Tensor, tails: Tensor) -> Tensor:
        return (queries * tails).sum(dim=-1)

    def fit_candidates(self, queries: Tensor, candidates: Tensor) -> Tensor:
        if candidates.dim() == 3:
            return (candidates @ queries.unsqueeze(-1)).squeeze(-1)
        return queries @ candidates.mT


class DistMult(DotDecoder):
    """score = sum of h * r * t; symmetric, so a relation and its inverse share a vector."""

    @staticmethod
    def inverse(vectors: Tensor) -> Tensor:
        return vectors

    @staticmethod
    def query_vector(heads: Tensor, vectors: Tensor) -> Tensor:
        return heads * vectors


class ComplEx(DotDecoder):
    """score = real part of the sum of h * r * conj(t), over dim / 2 complex numbers.

    A vector holds the real parts in its first half and the imaginary parts in its second; the real part of
    q * conj(t) is then the plain dot product of q and t.
    """

    @staticmethod
    def numbers(vectors: Tensor) -> Tensor:
        return torch.complex(*vectors.chunk(2, dim=-1))

    @staticmethod
    def vector(numbers: Tensor) -> Tensor:
        return torch.cat([numbers.real, numbers.imag], dim=-1)

    @staticmethod
    def cubes(vectors: Tensor) -> Tensor:
        real, imaginary = vectors.chunk(2, dim=-1)
        return (real.square() + imaginary.square() + TINY).pow(1.5).sum(dim=-1)

    @staticmethod
    def inverse(vectors: Tensor) -> Tensor:
        real, imaginary = vectors.chunk(2, dim=-1)
        return torch.cat([real, -imaginary], dim=-1)

    @staticmethod
    def query_vector(heads: Tensor, vectors: Tensor) -> Tensor:
        head_real, head_imaginary = heads.chunk(2, dim=-1)
        real, imaginary = vectors.chunk(2, dim=-1)
        product = [head_real * real - head_imaginary * imaginary, head_real * imaginary + head_imaginary * real]
        return torch.cat(product, dim=-1)


class TransE(Decoder):
    """score = gamma - |h + r - t|, the L1 distance.

    A distance is never negative, so without the constant ``gamma`` no truth would exceed one half. Gamma moves all
    scores alike and changes no ranking.

    Differences of all queries to all candidates, (n, m, dim), are never held at once: ``cdist`` keeps its operands
    and its result only, but on a GPU its backward pass spreads the differences out, so it is called on tiles whose
    differences fit in ``CHUNK_BYTES``.
    """

    OPTIONS = ("gamma",)

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator, gamma: float = 12.0) -> None:
        super().__init__(num_relations, dim, generator)
        self.gamma = gamma

    @classmethod
    def identity(cls, vectors: Tensor) -> Tensor:
        return torch.zeros_like(vectors)

    @staticmethod
    def inverse(vectors: Tensor) -> Tensor:
        return -vectors

    @staticmethod
    def query_vector(heads: Tensor, vectors: Tensor) -> Tensor:
        return heads + vectors

    def fit_pairs(self, queries: Tensor, tails: Tensor) -> Tensor:
        return self.gamma - (queries - tails).abs().sum(dim=-1)

    def fit_candidates(self, queries: Tensor, candidates: Tensor) -> Tensor:
        pairs = max(1, CHUNK_BYTES // (self.dim * queries.element_size()))
        width = max(1, min(pairs, candidates.shape[-2]))
        bands = [self._band(queries, part, max(1, pairs // width)) for part in torch.split(candidates, width, dim=-2)]
        return self.gamma - torch.cat(bands, dim=-1)

    @staticmethod
    def _band(queries: Tensor, candidates: Tensor, height: int) -> Tensor:
        """Distances of all queries to some candidates, ``height`` queries at a time."""
        if candidates.dim() == 3:
            own = zip(torch.split(queries.unsqueeze(1), height), torch.split(candidates, height), strict=True)
            return torch.cat([torch.cdist(some, theirs, p=1.0).squeeze(1) for some, theirs in own])
        return torch.cat([torch.cdist(some, candidates, p=1.0) for some in torch.split(queries, height)])


DECODERS: dict[str, type[Decoder]] = {
    "distmult": DistMult,
    "transe": TransE,
    "complex": ComplEx,
}
