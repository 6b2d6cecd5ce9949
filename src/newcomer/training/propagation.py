"""Training propagation (`newcomer.models.propagation.network`).

The queries are observed facts, half of them inverted. A fact must not answer for itself: its edges are masked with
those of all others of its batch. In every other step all facts between the same two entities are masked, too. For where
another fact joins the two, the answer is plain, and nothing would be learned of the paths that lead to the others.

A query whose answer is left without any edge teaches nothing: it would be known by that. Nor does one about a hub that
sends no messages.

There are three `Way`s to do it. *Everyone* is worked out for all entities, as a GPU can; *frontier* for those that
messages reach, which is quick in sparse graphs; *candidates* for some that are drawn (`newcomer.training.candidates`),
by a network of three layers, which a CPU can in any graph.

On a GPU a step is a few hundred small operations, each of which takes longer to start than to do. So they are recorded
once, with room for as many queries as a step has, and started as one from then on.

Which way a CPU takes is told by the distances from a sample of sources: in a sparse graph few entities are near a
source, and all of these are worked out; in a dense one nearly all are near.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from newcomer.config import Config
from newcomer.graph import UNKNOWN, Graph, InductiveDataset, Vocabulary
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.propagation import gpu
from newcomer.models.propagation.cpu import Frontier, distances
from newcomer.models.propagation.edges import Bools, Ids, PropagationEdges, propagation_edges, silent_hubs
from newcomer.models.propagation.network import DIM, KEPT, LAYERS, PREFIX, Propagation, batch_size
from newcomer.models.serialisation import under
from newcomer.training.checkpoint import Tensors, copied, optimiser_tensors, restore_optimiser

BATCH, MIN_RATE, MAX_NORM = 64, 0.05, 1.0
MAX_SHARE = 0.05  # of the facts that a batch may mask
PASSES = 10  # over the facts, at most
SPARSE_TABLE_SIZE = 1 << 29  # numbers that a sparse network may work on together
WARM_UPS = 2  # of what is recorded, before it is
OPTIMISER = f"{PREFIX}adam."
SAMPLE = 64  # sources
MIN_STEPS = 500  # fewer teach too little
AFFORDED = 3_000  # messages of a query in its second layer, in the mean
HUB_FACTS = 0, 5_000, 2_000, 1_000, 500, 200
LOCAL = 8e-3  # seconds of one core for a query; by drawn candidates it takes two or three thousandths
# Seconds of one core for a pair of entity and query, a message, and a candidate.
PAIR, MESSAGE, CANDIDATE = 1.4e-6, 0.5e-6, 5e-9


class Batch(NamedTuple):
    """Queries that are worked on together, and what is masked meanwhile."""

    weights: Tensor  # (edges,): 1, or 0 of masked ones
    degrees: Tensor  # (entities,): edges that are left
    sources: Tensor  # (queries,)
    queries: Tensor
    answers: Tensor
    shares: Tensor  # of each query in the loss
    mask: Tensor  # (queries, entities): 0, or minus infinity of another true answer

    def copy_(self, other: "Batch") -> None:
        """Take over another one's numbers, of at most as many queries; the rest have no share in the loss."""
        count = len(other.sources)
        self.weights.copy_(other.weights)
        self.degrees.copy_(other.degrees)
        self.shares[count:] = 0.0
        for own, given in zip(self[2:], other[2:], strict=True):
            own[:count] = given


class PropagationTrainer:
    """A network and its optimiser; all randomness follows from the seed and the number of the step.

    A ``sparse`` one trains on a CPU, wherever the rest does; by default, what trains on a CPU is sparse.
    """

    LAYERS, RATE = LAYERS, 3e-3
    WARM_STEPS = 0.15  # of the steps, where something was learned on another graph before

    def __init__(
        self,
        observed: Graph,
        num_seen: int,
        max_steps: int,
        seed: int,
        device: torch.device,
        sparse: bool | None = None,
        hub_facts: int = 0,
    ) -> None:
        sparse = device.type == "cpu" if sparse is None else sparse
        device = torch.device("cpu") if sparse else device
        # Queries are found on the CPU: a GPU would be waited for at every turn.
        self.graph = build_graph_tensors(observed, num_seen, None, torch.device("cpu"))
        self.seed, self.device, facts = seed, device, len(self.graph.facts)
        self.batch_size = _batch_size(facts)
        self.steps = num_steps(facts, max_steps)
        generator = torch.Generator().manual_seed(seed)
        hubs = hub_facts if sparse else 0
        self.network = Propagation(observed.num_relations, generator, sparse, self.LAYERS, hubs).to(device)
        relations = self.graph.facts[:, 1]
        self.network.known_relations[torch.cat([relations, relations + observed.num_relations])] = 1.0
        ones = torch.ones(len(self.graph.relations))
        silent = silent_hubs(self.graph.rows.sizes.numpy(), hubs)
        self._is_hub = torch.from_numpy(silent) if hubs else torch.zeros(num_seen, dtype=torch.bool)
        edges = PropagationEdges(self.graph.rows, self.graph.relations, ones, observed.num_relations, silent)
        self.edges = edges.on(device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=self.RATE, fused=device.type == "cuda")
        self._edges_of = torch.argsort(self.graph.sources, stable=True).view(-1, 2)  # of each fact
        self._last_order = -1, torch.empty(0, dtype=torch.int64)  # the last pass, and its order
        self._recorded: _RecordedStep | None = None
        self._constant_until = 0.5  # of the steps: from then on they become smaller

    def begin_with(self, learned: Tensors) -> None:
        """Start from what was learned on another graph (`carried_over`); fewer steps are enough then."""
        self.network.load_state_dict({**self.network.state_dict(), **learned})
        self.steps, self._constant_until = math.ceil(self.WARM_STEPS * self.steps), 0.0

    def step(self, number: int) -> Tensor:
        """Learn from one batch of queries; gives the loss of a query, as a number that may not be there yet."""
        facts = self._facts(number)
        masked = self._edges_of[torch.unique(self.graph.between(facts)) if number % 2 else facts].flatten()
        degrees = self._degrees_without(masked)
        queries = self._queries(facts, number)
        queries = queries[(degrees[queries[:, 2]] > 0) & ~self._is_hub[queries[:, 0]]]
        if len(queries) == 0:
            return torch.zeros((), device=self.device)
        self.optimiser.zero_grad(set_to_none=False)
        loss = self._learn(queries, masked, degrees, number)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), MAX_NORM)
        for group in self.optimiser.param_groups:
            group["lr"] = self.RATE * max(MIN_RATE, min(1.0, (1 - number / self.steps) / (1 - self._constant_until)))
        self.optimiser.step()
        return loss

    def _learn(self, queries: Tensor, masked: Tensor, degrees: Tensor, number: int) -> Tensor:
        """Set the gradients by queries (n, 3), with some edges masked; gives the mean of their losses."""
        loss = torch.zeros((), device=self.device)
        for batch in self._batches(queries, masked, degrees):
            loss = loss + self._add_gradients(batch)
        return loss

    def _facts(self, number: int) -> Tensor:
        """The facts of a step: every pass comes to each of them once."""
        per_pass = math.ceil(len(self.graph.facts) / self.batch_size)
        return self._order(number // per_pass)[number % per_pass * self.batch_size :][: self.batch_size]

    def _order(self, number: int) -> Tensor:
        """The facts in the order of a pass."""
        if self._last_order[0] != number:
            generator = torch.Generator().manual_seed(_seed_of(self.seed, number, 1))
            self._last_order = number, torch.randperm(len(self.graph.facts), generator=generator)
        return self._last_order[1]

    def _queries(self, facts: Tensor, number: int) -> Tensor:
        """(n, 3): source, oriented relation and answer."""
        heads, relations, tails = self.graph.facts[facts].unbind(dim=1)
        generator = torch.Generator().manual_seed(_seed_of(self.seed, number, 2))
        invert = torch.rand(len(facts), generator=generator) < 0.5
        inverted = torch.stack([tails, relations + self.graph.num_relations, heads], dim=1)
        return torch.where(invert[:, None], inverted, torch.stack([heads, relations, tails], dim=1))

    def _degrees_without(self, masked: Tensor) -> Tensor:
        """(entities,): how many edges are left of each."""
        rows = self.graph.rows
        return (rows.sizes - torch.bincount(rows.row_ids[masked], minlength=rows.num_rows)).float()

    def _batches(self, queries: Tensor, masked: Tensor, degrees: Tensor) -> Iterator[Batch]:
        """The queries, as many together as memory allows."""
        weights = torch.ones_like(self.edges.weights).index_fill_(0, masked.to(self.device), 0.0)
        degrees = degrees.to(self.device)
        for some in torch.split(queries, self._queries_together):
            sources, relations, answers = some.to(self.device).unbind(dim=1)
            shares = torch.full((len(some),), 1 / len(queries), device=self.device)
            yield Batch(weights, degrees, sources, relations, answers, shares, self._mask(some))

    @property
    def _queries_together(self) -> int:
        if self.network.is_sparse:  # few pairs; at the worst all
            return min(self.batch_size, max(1, SPARSE_TABLE_SIZE // (DIM * KEPT * self.graph.num_entities)))
        return min(self.batch_size, batch_size(self.edges, self.graph.num_entities))

    def _mask(self, queries: Tensor) -> Tensor:
        """What the answers are not compared with: all other true ones."""
        sources, relations, answers = queries.unbind(dim=1)
        rows, numbers = self.graph.rows.pick(sources)
        query = rows.row_ids
        others = (self.graph.relations[numbers] == relations[query]) & (rows.columns != answers[query])
        places = query[others] * self.graph.num_entities + rows.columns[others]
        mask = torch.zeros(len(queries) * self.graph.num_entities, device=self.device)
        return mask.index_fill_(0, places.to(self.device), -torch.inf).view(len(queries), -1)

    def _add_gradients(self, batch: Batch) -> Tensor:
        """Add a batch's gradients to the others; gives its part of the loss."""
        if not self._uses_kernels():
            return self._backward(batch)
        if self._recorded is None:
            self._recorded = _RecordedStep(self, batch, self._queries_together)
        return self._recorded.replay(batch)

    def _uses_kernels(self) -> bool:
        """Whether a GPU has kernels for all of it: then it is recorded, and vectors have half the bits."""
        return self.device.type == "cuda" and gpu.keeps_halves() and gpu.updates_layers(self._queries_together)

    def _backward(self, batch: Batch) -> Tensor:
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _loss(self, batch: Batch) -> Tensor:
        """The cross entropy of finding each answer among all but the other true ones."""
        edges = self.edges.with_weights(batch.weights, batch.degrees)
        query = [edges], batch.sources, batch.queries, self.graph.num_entities
        if self.network.is_sparse:
            losses = frontier_cross_entropy(*self.network.frontier_scores(*query), batch.answers, batch.mask)
        else:
            scores = self.network(*query, gpu.HALF if self._uses_kernels() else torch.float32)
            losses = functional.cross_entropy(scores + batch.mask, batch.answers, reduction="none")
        return (losses * batch.shares).sum()

    def tensors(self) -> Tensors:
        """Copies of everything that the next step depends on."""
        return copied(PREFIX, self.network.state_dict()) | optimiser_tensors(OPTIMISER, self.optimiser)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from `tensors`."""
        own = {name: value for name, value in tensors.items() if not name.startswith(OPTIMISER)}
        self.network.load_state_dict(under(PREFIX, own))
        restore_optimiser(OPTIMISER, self.optimiser, tensors)


class _RecordedStep:
    """The gradients of a batch, recorded on a GPU with room for ``most`` queries."""

    def __init__(self, trainer: PropagationTrainer, first: Batch, most: int) -> None:
        def room(given: Tensor) -> Tensor:
            return given.new_zeros(most, *given.shape[1:])

        self.batch = Batch(first.weights.clone(), first.degrees.clone(), *map(room, first[2:]))
        self.batch.copy_(first)
        self.graph = torch.cuda.CUDAGraph()
        gradients = [torch.zeros_like(one) for one in trainer.network.parameters()]
        for one, gradient in zip(trainer.network.parameters(), gradients, strict=True):
            one.grad = gradient  # where every replay adds to
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                trainer._backward(self.batch)
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph):
            self.loss = trainer._backward(self.batch)
        for gradient in gradients:
            gradient.zero_()

    def replay(self, batch: Batch) -> Tensor:
        """Add a batch's gradients to the others; gives its part of the loss."""
        self.batch.copy_(batch)
        self.graph.replay()
        return self.loss.clone()


def frontier_cross_entropy(frontier: Frontier, scores: Tensor, others: Tensor, answers: Tensor, mask: Tensor) -> Tensor:
    """(queries,): the cross entropy of each answer among all entities that are not masked.

    ``scores`` are those of the frontier's pairs, ``others`` (queries,) those of all other entities; ``mask`` (queries,
    entities) is 0, or minus infinity.
    """
    entities, queries = torch.from_numpy(frontier.entities), torch.from_numpy(frontier.queries)
    pair_mask = mask[queries, entities]
    masked_scores = scores + pair_mask
    count, num_entities = mask.shape
    reached = torch.bincount(queries[pair_mask == 0], minlength=count)
    # Where messages reach all entities, there still is one more candidate: there are newcomers without any edge.
    others_left = (num_entities - torch.isinf(mask).sum(dim=1) - reached).clamp(min=1)
    with torch.no_grad():
        highest = others.scatter_reduce(0, queries, masked_scores, "amax")
    sums = torch.zeros(count).index_add(0, queries, torch.exp(masked_scores - highest[queries]))
    total = torch.log(sums + others_left * torch.exp(others - highest)) + highest
    found = torch.nonzero(entities == answers[queries])[:, 0]
    return total - others.index_put((queries[found],), scores[found])


def carried_over(learned: Propagation, names: Vocabulary, fresh: Propagation, wanted: Vocabulary) -> Tensors:
    """What a network has learned, for one of another graph; ``names`` and ``wanted`` are those of their relations.

    Relations that the first graph does not have are as in the fresh network; which ones each knows is its own.
    """
    there = names.ids(list(wanted)).astype(np.int64)
    new, old = np.flatnonzero(there != UNKNOWN), there[there != UNKNOWN]
    new, old = np.concatenate([new, new + len(wanted)]), np.concatenate([old, old + len(names)])
    found, tables = copied("", learned.state_dict()), copied("", fresh.state_dict())
    del found["known_relations"]
    for name in ("queries", "scales"):
        table = tables[name]
        table[..., new, :] = found[name][..., old, :]
        found[name] = table
    return found


def num_steps(facts: int, most: int) -> int:
    """How many batches so many facts are learned from."""
    return min(most, math.ceil(PASSES * facts / _batch_size(facts)))


def _batch_size(facts: int) -> int:
    return max(1, min(BATCH, int(MAX_SHARE * facts)))


def _seed_of(seed: int, number: int, use: int) -> int:
    return (seed * 1_000_003 + number * 10 + use) % 2**63


def teaches_enough(dataset: InductiveDataset, config: Config) -> bool:
    """Whether there are facts enough to learn a network from."""
    return num_steps(len(dataset.observed), config.training.propagation_steps) >= MIN_STEPS


def affordable_hubs(observed: Graph) -> int:
    """Of how many facts at most an entity sends messages, so that a query's first two layers stay small; 0: any."""
    return next((most for most in HUB_FACTS if messages_of_a_query(observed, most) <= AFFORDED), HUB_FACTS[-1])


def messages_of_a_query(observed: Graph, hub_facts: int) -> float:
    """How many messages the second layer has, in the mean over queries, where hubs of so many facts are silent."""
    ends = np.concatenate([observed.triples.heads, observed.triples.tails])
    others = np.concatenate([observed.triples.tails, observed.triples.heads])
    degrees = observed.degrees.astype(np.float64)
    sent = np.where(silent_hubs(observed.degrees, hub_facts), 0.0, degrees) if hub_facts else degrees
    messages = np.bincount(ends, weights=sent[others], minlength=len(degrees))[ends[sent[ends] > 0]]
    return float(messages.mean()) if len(messages) else 0.0


def frontier_stays_local(observed: Graph, num_entities: int, hub_facts: int = 0) -> bool:
    """Whether messages reach so few entities that all of them can be worked out."""
    return bool(_query_seconds(observed, num_entities, hub_facts) <= LOCAL)


def _query_seconds(observed: Graph, num_entities: int, hub_facts: int) -> float:
    """Seconds that training on all that a query reaches takes, by the mean of a sample."""
    degrees, total = observed.degrees[:num_entities].astype(np.int64), 0.0
    silent = silent_hubs(degrees, hub_facts)
    sent = np.where(silent, 0, degrees) if len(silent) else degrees
    for found in _sampled_distances(observed, num_entities, silent):
        for layer in range(LAYERS):
            messages = sent[np.flatnonzero(found <= layer)].sum()
            total += PAIR * np.count_nonzero(found <= layer + 1) + MESSAGE * messages
    return total / SAMPLE + CANDIDATE * num_entities


def _sampled_distances(observed: Graph, num_entities: int, silent: Bools) -> Iterator[Ids]:
    """How far all entities are from some ends of facts."""
    triples = observed.triples
    heads, relations, tails = torch.from_numpy(triples.rows.astype(np.int64)).unbind(dim=1)
    edges = replace(propagation_edges(heads, relations, tails, observed.num_relations, num_entities), silent=silent)
    drawn = np.random.default_rng(0).integers(len(triples), size=SAMPLE)
    for source in np.where(np.arange(SAMPLE) % 2, triples.heads[drawn], triples.tails[drawn]).tolist():
        yield distances([edges], source, LAYERS, num_entities)
