"""Fold-in: a newcomer's vector is the one under which its own facts are most likely, all else being as trained.

Seen entities have trained vectors and nothing else. For a newcomer with facts ``(x, r, t)`` of weight ``w`` the vector
is the minimum of

    sum of w * ( log sum over candidates of exp(s(x, r, e) + log weight) - s(x, r, t) )  +  ridge * |x|^2

where ``s`` is the decoder's score, linear in x: a convex problem with one solution. The candidates are a few hundred
seen entities, drawn once, of high degree rather than of low (``log_weights`` make them stand for all), and the
newcomer's own neighbours, which it must tell apart. So the cost of a newcomer follows from its facts, not the graph.

A relation without any fact in training is unknown: it has no trained vector, and its facts are not used. The vector of
an entity for a query with such a relation is the one under which the entities that it is known to be connected to by
that very relation are most likely, and zero where there are none.

At the minimum ``2 ridge x = - sum of w * (the gradient of a fact)``, where a fact's negative gradient points towards
its tail and away from what was expected instead: so each fact's part in the vector, and in every score, is known.
"""

import math

import numpy as np
import torch
from torch import Tensor

from newcomer.models.device import one_thread
from newcomer.models.embedding.decoders import Decoder
from newcomer.models.embedding.encoder import Edges, Encoder, States
from newcomer.models.embedding.foldin_solver import Facts, Problem, UsedFacts, candidates_of, solve_all, solve_one
from newcomer.rules.limits import in_threads, thread_count

AT_ONCE = 16  # newcomers a thread takes at a time
NEGATIVES = 512
MAX_LOG_WEIGHT = 3.0  # how far beyond that of an even draw a negative's weight may be, in the logarithm


class FoldInEncoder(Encoder):
    """Newcomers are embedded by solving for the vector that explains their facts best."""

    hops = 0
    uses_virtual_edges = False  # what rules infer gained nothing here; answers take it into account by themselves
    batch_invariant = True
    trains_on_one_thread = True
    decoder: Decoder

    def __init__(self, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__(num_seen, num_relations, dim, dropout, generator)
        count = min(NEGATIVES, num_seen)
        self.negatives: Tensor
        self.log_weights: Tensor
        self.register_buffer("negatives", torch.arange(count))
        self.register_buffer("log_weights", torch.zeros(count))

    def attach(self, decoder: Decoder) -> None:
        """Refer to the decoder, whose parameters stay its own."""
        if not decoder.is_linear:
            raise TypeError("only scores that are linear in an entity's vector can be folded in")
        object.__setattr__(self, "decoder", decoder)

    def prepare(self, edges: Edges, seed: int) -> None:
        """Draw the negatives, and give unknown relations the vector that changes nothing."""
        self.draw_negatives(edges.degrees, torch.Generator().manual_seed(seed))
        with torch.no_grad():
            vectors = self.decoder.vectors
            unknown = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
            unknown[edges.relations[edges.weights > 0] % len(vectors)] = False
            vectors[unknown] = self.decoder.identity(vectors[unknown])

    def draw_negatives(self, degrees: Tensor, generator: torch.Generator) -> None:
        """Draw entities that stand for all: those of high degree rather, each with a weight by how unlikely it was."""
        share = torch.sqrt(degrees.double().cpu() + 1)
        share = share / share.sum()
        count = len(self.negatives)
        if count == len(share):
            return
        drawn = torch.multinomial(share, count, generator=generator)
        even = math.log(len(share) / count)
        self.negatives.copy_(drawn)
        self.log_weights.copy_((-torch.log(count * share[drawn])).clamp_max(even + MAX_LOG_WEIGHT))

    def is_unknown(self, relations: Tensor) -> Tensor:
        """(n,): whether an oriented relation has no trained vector, but the one that leaves everything as it is."""
        kinds, place = torch.unique(relations % self.num_relations, return_inverse=True)
        own = self.decoder.vectors.detach()[kinds.to(self.decoder.vectors.device)]
        same = (own == self.decoder.identity(own)).all(dim=1)
        return same.to(relations.device)[place]

    def extend(self, seen: States, edges: Edges, threads: int | None = 1) -> States:
        """Newcomers by their seen neighbours first; then those with neighbours among these newcomers, by both."""
        known, device = seen.layers[0].detach().cpu(), seen.layers[0].device
        facts, start = self._used_facts(edges), len(known)
        vectors = torch.cat([known, known.new_zeros(edges.rows.num_rows, known.shape[1])])
        usable = torch.arange(len(vectors)) < start
        with torch.no_grad():
            first = self._solved(facts.where(usable[facts.columns]), vectors, start, device, threads)
            usable[start + facts.newcomers[usable[facts.columns]]] = True
            facts = facts.where(usable[facts.columns])
            again = torch.isin(facts.newcomers, facts.newcomers[facts.columns >= start])
            vectors = self._solved(facts.where(again), first, start, device, threads)
        return seen.joined(vectors[start:].to(device), edges)

    def _used_facts(self, edges: Edges) -> UsedFacts:
        """The visible edges of known relations."""
        row, relations, columns = edges.rows.row_ids.cpu(), edges.relations.cpu(), edges.rows.columns.cpu()
        weights = edges.weights.detach().cpu()
        order = torch.from_numpy(np.lexsort((weights, columns, relations, row)))
        facts = UsedFacts(row[order], relations[order], columns[order], weights[order])
        return facts.where((facts.weights > 0) & ~self.is_unknown(facts.relations))

    def _solved(
        self, facts: UsedFacts, vectors: Tensor, start: int, device: torch.device, threads: int | None
    ) -> Tensor:
        """All vectors, with those of the newcomers, from ``start`` on, solved for who have such facts."""
        found = vectors.clone()
        if device.type != "cpu":
            for newcomers, solved in solve_all(self._problem(device), facts, vectors, device):
                found[start + newcomers] = solved.to(found.dtype)
            return found
        newcomers, counts = torch.unique_consecutive(facts.newcomers, return_counts=True)
        parts = (torch.split(column, counts.tolist()) for column in facts[1:])

        def solve(relations: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
            torch.set_num_threads(1)  # in every thread anew
            return self.solve(self.facts(relations, vectors, columns, weights))

        with one_thread():  # and one by one: then no vector depends on who else arrives
            asked = list(zip(*parts, strict=True))
            vectors_found = in_threads(lambda one: solve(*one), asked, thread_count(threads), AT_ONCE)
        for newcomer, vector in zip(newcomers.tolist(), vectors_found, strict=True):
            found[start + newcomer] = vector
        return found

    def _problem(self, device: torch.device) -> Problem:
        negatives = self.vectors.detach()[self.negatives].to(device)
        return Problem(self.decoder, negatives, self.log_weights.to(device))

    def facts(self, relations: Tensor, vectors: Tensor, columns: Tensor, weights: Tensor) -> Facts:
        """The facts of one newcomer: oriented relations (k,), tails as rows of ``vectors`` (k,), weights (k,)."""
        kinds, place = torch.unique(relations, return_inverse=True)
        tails = vectors.new_zeros(len(kinds), vectors.shape[1])
        tails.index_add_(0, place, vectors[columns] * weights[:, None])
        summed = vectors.new_zeros(len(kinds)).index_add_(0, place, weights)
        return Facts(self._relation_vectors(kinds), summed, tails, vectors[torch.unique(columns)])

    def _relation_vectors(self, relations: Tensor) -> Tensor:
        return self.decoder.relation_vectors(relations.to(self.vectors.device)).detach().cpu()

    def solve(self, facts: Facts) -> Tensor:
        """(d,): the vector under which the facts are most likely."""
        return solve_one(self._problem(torch.device("cpu")), facts)

    def gradients(self, vector: Tensor, relations: Tensor, tails: Tensor, facts: Facts) -> Tensor:
        """(k, d): of the log likelihood of each of an entity's facts, (relation, tail's vector), at its vector."""
        candidates, log_weights = candidates_of(self._problem(torch.device("cpu")), facts)
        _, place = torch.unique(relations, return_inverse=True)
        queries = self.decoder.query_vector(vector.expand_as(facts.relations), facts.relations)
        scores = torch.addmm(log_weights, queries, candidates.T)
        expected = torch.exp(scores - torch.logsumexp(scores, dim=1)[:, None]) @ candidates
        # The adjoint of a query vector's making is its making with the inverse relation.
        return self.decoder.query_vector(tails - expected[place], self.decoder.inverse(facts.relations)[place])

    def plain(self, states: States, entities: Tensor) -> Tensor:
        """The vectors themselves."""
        return self.look_up(entities, states.layers[0])

    def embed(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        if self.training:  # with known relations only
            return self.plain(states, entities)
        vectors = states.layers[0][entities]
        unknown = torch.nonzero(self.is_unknown(queries))[:, 0]
        if len(unknown) == 0:
            return vectors
        # The same pair is asked for with many answers, and takes milliseconds each time.
        asked = torch.stack([entities[unknown], queries[unknown]], dim=1)
        pairs, places = torch.unique(asked, dim=0, return_inverse=True)
        with one_thread():
            solved = torch.stack([self._by_answers(states, entity, query) for entity, query in pairs.tolist()])
        return vectors.index_copy(0, unknown, solved.to(vectors)[places])

    def _by_answers(self, states: States, entity: int, query: int) -> Tensor:
        """(d,): the vector that explains best which seen entities an entity is connected to by an unknown relation."""
        edges, start, end = states.edges, *states.edges.rows.offsets[entity : entity + 2].tolist()
        columns = edges.rows.columns[start:end]
        stated = (edges.relations[start:end] == query) & (edges.weights[start:end] > 0)
        known = columns[stated & (columns < states.num_seen)].sort().values
        vectors = states.layers[0].detach()[known].cpu()
        if len(known) == 0:
            return vectors.new_zeros(vectors.shape[1])
        every = torch.arange(len(known))
        return self.solve(self.facts(torch.full_like(every, query), vectors, every, vectors.new_ones(len(known))))

    def attention(self, states: States, entity: Tensor, query: Tensor) -> Tensor:
        """(edges,): the share of each edge in an entity's (1,) vector, as a query (1,) sees it.

        An edge counts by how far its gradient points towards the vector, both multiplied by the query's relation; those
        that point away have no share.
        """
        rows, entries = states.edges.rows.pick(entity)
        vectors = states.layers[0].detach().cpu()
        shares = vectors.new_zeros(len(entries))
        columns, relations = rows.columns.cpu(), states.edges.relations[entries].cpu()
        weights = states.edges.weights[entries].detach().cpu()
        if bool(self.is_unknown(query)):
            counts = (relations == query.cpu()) & (columns < states.num_seen)
        else:
            counts = ~self.is_unknown(relations)
        used = torch.nonzero((weights > 0) & counts)[:, 0]
        if len(used):
            columns, relations, weights = columns[used], relations[used], weights[used]
            vector = self.embed(states, entity, query).detach().cpu()[0]
            facts = self.facts(relations, vectors, columns, weights)
            gradients = self.gradients(vector, relations, vectors[columns], facts)
            along = self._relation_vectors(query.cpu())
            target = self.decoder.query_vector(vector[None], along)[0]
            shares[used] = (self.decoder.query_vector(gradients, along) @ target * weights).clamp_min(0)
        return (shares / shares.sum().clamp_min(1e-12)).to(entity.device)
