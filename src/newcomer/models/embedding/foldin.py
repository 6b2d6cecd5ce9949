"""Fold-in: a newcomer's vector is the one under which its own facts are most likely, all else being as trained.

Seen entities have trained vectors and nothing else. For a newcomer with facts ``(x, r, t)`` of weight ``w`` the vector
is the minimum of

    sum of w * ( log sum over rivals of exp(s(x, r, e) + excess) - s(x, r, t) )  +  ridge * |x|^2

where ``s`` is the decoder's score, linear in x: a convex problem with one solution. The rivals are a few hundred seen
entities, drawn once by how busy they are (``excess`` makes them stand for all), and the newcomer's own neighbours, whom
it must tell apart. So the cost of a newcomer follows from its facts, never from the graph.

A relation that nobody seen is told of by has no trained vector: its facts are not heard. Asked about it, an entity is
the vector that explains best what it is known to be tied to by that very relation, and nothing where that is nobody.

At the minimum ``2 ridge x = sum of w * (the pull of a fact)``, where a fact pulls towards its tail and away from what
was expected instead: each fact's part in the vector, and so in every score, can be told.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.models.embedding.decoders import Decoder, DotDecoder
from newcomer.models.embedding.encoders import Encoder, States, join_edges
from newcomer.models.embedding.foldin_solver import Heard, Point, Problem, descend_one, solve_all
from newcomer.models.sparse import Rows
from newcomer.models.threads import one_thread
from newcomer.models.vn.layers import Edges

RIVALS = 512
RIDGE = 0.1
MOST_EXCESS = 3.0  # how far beyond an even draw a rival may count, in the logarithm


class Facts(NamedTuple):
    """What is known of one newcomer, by relation."""

    relations: Tensor  # (m, d): the decoder's vectors
    weights: Tensor  # (m,): of all facts with the relation
    tails: Tensor  # (m, d): the sum of their weighted tails
    neighbors: Tensor  # (n, d): the tails of all relations, each once


class FoldInEncoder(Encoder):
    """Newcomers are embedded by solving for the vector that explains their facts best."""

    hops = 0
    uses_virtual_edges = False  # what rules infer gained nothing here; they have a say of their own in the answers

    def __init__(self, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__(num_seen, num_relations, dim, dropout, generator)
        count = min(RIVALS, num_seen)
        self.rivals: Tensor
        self.excess: Tensor
        self.register_buffer("rivals", torch.arange(count))
        self.register_buffer("excess", torch.zeros(count))

    def meet(self, decoder: Decoder) -> None:
        """Know the decoder, whose parameters stay its own."""
        if not isinstance(decoder, DotDecoder):
            raise TypeError("only scores that are linear in an entity's vector can be folded in")
        object.__setattr__(self, "decoder", decoder)

    def draw_rivals(self, degrees: Tensor, generator: torch.Generator) -> None:
        """Choose those who stand for everyone: busy ones rather, each counting as much as it was unlikely."""
        share = torch.sqrt(degrees.double().cpu() + 1)
        share = share / share.sum()
        count = len(self.rivals)
        if count == len(share):
            return
        drawn = torch.multinomial(share, count, generator=generator)
        even = math.log(len(share) / count)
        self.rivals.copy_(drawn)
        self.excess.copy_((-torch.log(count * share[drawn])).clamp_max(even + MOST_EXCESS))

    def states(self, edges: Edges, nodes: Tensor | None = None) -> States:
        return States((self.inputs(nodes),), edges, nodes)

    def extend(self, seen: States, edges: Edges) -> States:
        """Newcomers by their seen neighbours first; then those who are tied to others so told of, by both."""
        known, device = seen.layers[0].detach().cpu(), seen.layers[0].device
        rows = _on_cpu(edges)
        rows = rows._replace(weights=rows.weights.masked_fill(self.is_untold(rows.relations), 0.0))
        start, count = len(known), edges.rows.num_rows
        with torch.no_grad():
            found, told = self._placed(rows, range(count), known, known.new_zeros(count, known.shape[1]), device)
            among = torch.cat([torch.ones(start, dtype=torch.bool), told])
            by_seen = torch.cat([known, found])
            found, _ = self._placed(rows, _tied(rows, start, told), by_seen, found, device, among)
        layers = (torch.cat([seen.layers[0], found.to(device)]),)
        return States(layers, join_edges(seen.edges, edges), seen.nodes, count)

    def _placed(
        self,
        rows: "_Rows",
        newcomers: Iterable[int],
        vectors: Tensor,
        before: Tensor,
        device: torch.device,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Vectors of all with these newcomers solved for by their neighbours, and who of these has any."""
        found, told = before.clone(), torch.zeros(len(before), dtype=torch.bool)
        if device.type == "cpu":  # one by one: then nobody's vector depends on who else arrives
            with one_thread():
                for newcomer in newcomers:
                    told[newcomer] = self._place(rows, newcomer, vectors, found, among)
            return found, told
        heard = rows.heard(newcomers, len(vectors), among)
        problem = Problem(self._decoder, self.vectors.detach()[self.rivals], self.excess, RIDGE)
        for some, solved in solve_all(problem, heard, vectors, device):
            found[some], told[some] = solved.to(found.dtype), True
        return found, told

    def _place(self, rows: "_Rows", newcomer: int, vectors: Tensor, found: Tensor, among: Tensor | None = None) -> bool:
        """Solve for one newcomer by its neighbours within ``vectors`` (those ``among``); whether it has any."""
        relations, columns, weights = rows.of(newcomer)
        heard = _audible(columns, weights, len(vectors), among)
        if not bool(heard.any()):
            return False
        found[newcomer] = self.solve(self.facts(relations[heard], vectors, columns[heard], weights[heard]))
        return True

    def facts(self, relations: Tensor, vectors: Tensor, columns: Tensor, weights: Tensor) -> Facts:
        """The facts of one newcomer: oriented relations (k,), tails as rows of ``vectors`` (k,), weights (k,)."""
        kinds, place = torch.unique(relations, return_inverse=True)
        distinct = torch.unique(columns)
        size = len(kinds), vectors.shape[1]
        tails = vectors.new_zeros(size).index_add_(0, place, vectors[columns] * weights[:, None])
        summed = vectors.new_zeros(size[0]).index_add_(0, place, weights)
        return Facts(self._along(kinds), summed, tails, vectors[distinct])

    def solve(self, facts: Facts) -> Tensor:
        """(d,): the vector.

        Every vector is taken as numbers of which asking is a product; in scores they count as pairs of real ones.
        """
        decoder, (candidates, excess) = self._decoder, self._candidates(facts)
        relations, others = decoder.numbers(facts.relations), _flat(decoder.numbers(candidates))
        stated_tails, weights = decoder.numbers(facts.tails).numpy(), facts.weights.numpy()
        along, turned = relations.numpy(), relations.conj().resolve_conj().numpy()
        stated = _real((stated_tails * turned).sum(axis=0))
        asked, expected = np.empty_like(along), np.empty_like(along)
        asking, expecting = torch.from_numpy(_real(asked)), torch.from_numpy(_real(expected))
        scores = others.new_empty(len(relations), len(others))

        def cost(point: Point) -> tuple[float, Point]:
            # Large products by torch, on as many threads as it may use; what is small by numpy, which begins sooner.
            np.multiply(point.view(along.dtype), along, out=asked)
            torch.addmm(excess, asking, others.T, out=scores)
            top = scores.amax(dim=1)
            total = scores.sub_(top[:, None]).exp_().sum(dim=1).numpy()
            torch.mm(scores, others, out=expecting)
            np.multiply(expected, (weights / total)[:, None], out=expected)
            np.multiply(expected, turned, out=expected)
            slope = _real(expected.sum(axis=0)) - stated + 2 * RIDGE * point
            unlikely = float(weights @ (np.log(total) + top.numpy())) - float(point @ stated)
            return unlikely + RIDGE * float(point @ point), slope

        found = torch.from_numpy(descend_one(cost, np.zeros_like(stated)))
        return decoder.vector(found.view(relations.dtype))

    def pulls(self, vector: Tensor, relations: Tensor, tails: Tensor, facts: Facts) -> Tensor:
        """(k, d): which way each of an entity's facts, (relation, tail's vector), pulls its vector."""
        candidates, excess = self._candidates(facts)
        kinds, place = torch.unique(relations, return_inverse=True)
        _, expected = self._expected(self._asked(vector, facts), candidates, excess)
        ones = tails.new_ones(len(relations))
        return -self._pull(expected[place], ones, tails, self._turned(self._along(kinds)[place]))

    def _candidates(self, facts: Facts) -> tuple[Tensor, Tensor]:
        rivals = self.vectors.detach()[self.rivals].cpu()
        excess = torch.cat([self.excess.cpu(), self.excess.new_zeros(len(facts.neighbors)).cpu()])
        return torch.cat([rivals, facts.neighbors]), excess

    def _asked(self, vector: Tensor, facts: Facts) -> Tensor:
        """(m, d): what the tails of each relation should fit."""
        return self._decoder.query_vector(vector.expand_as(facts.relations), facts.relations)

    @staticmethod
    def _expected(asked: Tensor, candidates: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
        """For each relation the log of the candidates' sum, (m,), and the tail that is expected, (m, d)."""
        scores = torch.addmm(excess, asked, candidates.T)
        total = torch.logsumexp(scores, dim=1)
        return total, torch.exp(scores - total[:, None]) @ candidates

    def _pull(self, expected: Tensor, weights: Tensor, tails: Tensor, towards: Tensor) -> Tensor:
        """(m, d): the gradient of each relation's part; asking the other way round is the adjoint of asking."""
        return self._decoder.query_vector(torch.addcmul(-tails, weights[:, None], expected), towards)

    @property
    def _decoder(self) -> DotDecoder:
        decoder: DotDecoder = self.__dict__["decoder"]
        return decoder

    def _along(self, relations: Tensor) -> Tensor:
        """(m, d): the decoder's vectors of oriented relations."""
        vectors = self._decoder.relation_vectors(relations.to(self.vectors.device))
        return vectors.detach().cpu()

    def _turned(self, along: Tensor) -> Tensor:
        return self._decoder.inverse(along)

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """The vectors themselves."""
        return self.look_up(entities, states.layers[0])

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        vectors = self.plain(states, entities)
        if self.training:  # on relations that are told of
            return vectors
        untold = torch.nonzero(self.is_untold(queries))[:, 0]
        if len(untold) == 0:
            return vectors
        # The same is asked with many answers, and takes milliseconds each time.
        asked = torch.stack([entities[untold], queries[untold]], dim=1)
        pairs, places = torch.unique(asked, dim=0, return_inverse=True)
        with one_thread():
            alike = torch.stack([self._alike(states, entity, query) for entity, query in pairs.tolist()])
        return vectors.index_copy(0, untold, alike.to(vectors)[places])

    def is_untold(self, relations: Tensor) -> Tensor:
        """(n,): whether an oriented relation has no trained vector, but the one that leaves everything as it is."""
        decoder = self._decoder
        own = decoder.vectors.detach()
        same = (own == decoder.identity(own)).all(dim=1)
        return same.to(relations.device)[relations % decoder.num_relations]

    def _alike(self, states: States, entity: int, query: int) -> Tensor:
        """(d,): the vector that explains best whom an entity is tied to by a relation without a trained vector."""
        known = self._answers(states, entity, query)
        vectors = states.layers[0].detach()[known].cpu()
        if len(known) == 0:
            return vectors.new_zeros(vectors.shape[1])
        every = torch.arange(len(known))
        return self.solve(self.facts(torch.full_like(every, query), vectors, every, vectors.new_ones(len(known))))

    @staticmethod
    def _answers(states: States, entity: int, query: int) -> Tensor:
        """The seen entities, by place, that someone is known to be tied to by an oriented relation."""
        edges, start, end = states.edges, *states.edges.rows.offsets[entity : entity + 2].tolist()
        columns = edges.rows.columns[start:end]
        told = (edges.relations[start:end] == query) & (edges.weights[start:end] > 0)
        return columns[told & (columns < len(states.layers[0]) - states.newcomers)].sort().values

    def attention(self, states: States, entity: Tensor, query: Tensor) -> Tensor:
        """(edges,): the share of each edge in what makes an entity (1,) what it is for a query (1,).

        An edge counts by how far it pulls the vector towards where it is, as the query sees both; those that pull it
        away have no share.
        """
        rows, entries = states.edges.rows.pick(entity)
        vectors = states.layers[0].detach().cpu()
        shares = vectors.new_zeros(len(entries))
        columns, relations = rows.columns.cpu(), states.edges.relations[entries].cpu()
        weights = states.edges.weights[entries].detach().cpu()
        heard = torch.nonzero((weights > 0) & self._is_heard(relations, columns, query.cpu(), states))[:, 0]
        if len(heard):
            columns, relations, weights = columns[heard], relations[heard], weights[heard]
            vector = self.embed(states, entity, query).detach().cpu()[0]
            facts = self.facts(relations, vectors, columns, weights)
            along = self._along(query.cpu())
            seen_so = self._decoder.query_vector(vector[None], along)
            pulls = self._decoder.query_vector(self.pulls(vector, relations, vectors[columns], facts), along)
            shares[heard] = (pulls @ seen_so[0] * weights).clamp_min(0)
        return (shares / shares.sum().clamp_min(1e-12)).to(entity.device)

    def _is_heard(self, relations: Tensor, columns: Tensor, query: Tensor, states: States) -> Tensor:
        """(edges,): which edges a vector owes to that a query (1,) asks for."""
        if bool(self.is_untold(query)):
            return (relations == query) & (columns < len(states.layers[0]) - states.newcomers)
        return ~self.is_untold(relations)


def _flat(numbers: Tensor) -> Tensor:
    """Numbers, real or complex, as real ones in the same place."""
    return torch.view_as_real(numbers).flatten(-2) if numbers.is_complex() else numbers


def _real(numbers: npt.NDArray[Any]) -> Point:
    """The same for arrays of numpy."""
    return numbers.view(numbers.real.dtype)


class _Rows(NamedTuple):
    """Edges on the processor, each row by relation, neighbour and weight, so that sums keep their order."""

    offsets: list[int]
    relations: Tensor
    columns: Tensor
    weights: Tensor

    def of(self, row: int) -> tuple[Tensor, Tensor, Tensor]:
        part = slice(self.offsets[row], self.offsets[row + 1])
        return self.relations[part], self.columns[part], self.weights[part]

    def heard(self, newcomers: Iterable[int], width: int, among: Tensor | None) -> Heard:
        """The facts of some that tie them to the first ``width`` entities (those ``among``)."""
        wanted = torch.zeros(len(self.offsets) - 1, dtype=torch.bool)
        wanted[list(newcomers)] = True
        row = torch.repeat_interleave(torch.arange(len(wanted)), torch.diff(torch.tensor(self.offsets)))
        kept = wanted[row] & _audible(self.columns, self.weights, width, among)
        return Heard(row[kept], self.relations[kept], self.columns[kept], self.weights[kept])


def _audible(columns: Tensor, weights: Tensor, width: int, among: Tensor | None) -> Tensor:
    heard = (columns < width) & (weights > 0)
    return heard if among is None else heard & among[columns.clamp_max(len(among) - 1)]


def _on_cpu(edges: Edges) -> _Rows:
    rows: Rows = edges.rows
    row, relations, columns = rows.row_ids().cpu(), edges.relations.cpu(), rows.columns.cpu()
    weights = edges.weights.detach().cpu()
    order = torch.argsort(weights, stable=True)
    for ids in (columns, relations, row):
        order = order[torch.argsort(ids[order], stable=True)]
    return _Rows(rows.offsets.tolist(), relations[order], columns[order], weights[order])


def _tied(rows: _Rows, start: int, told: Tensor) -> list[int]:
    """Newcomers with a neighbour that arrived, too, and is told of by someone seen."""
    tied = (rows.columns >= start) & (rows.weights > 0)
    tied &= told[(rows.columns - start).clamp_min(0)]
    row = torch.repeat_interleave(torch.arange(len(told)), torch.diff(torch.tensor(rows.offsets)))
    found: list[int] = torch.unique(row[tied]).tolist()
    return found
