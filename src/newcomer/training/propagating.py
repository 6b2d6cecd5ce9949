"""Learning what paths say (`newcomer.nn.propagation`), and asking them.

The questions are observed facts, half of them turned round. A fact must not answer for itself: it is hidden from the
graph with all others of its batch. In every other step all facts between the same two entities are hidden, too. For
where another fact ties the two, the answer is plain, and nothing would be learned of the ways that lead to the others.

A question whose answer is left without any edge teaches nothing: it would be known by that.

Paths from a newcomer begin with its own facts and go on in the observed graph. So what they say changes neither with
who else arrives, nor for anyone seen.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from newcomer.errors import DatasetError
from newcomer.graph import Adjacency, Graph, Ids
from newcomer.nn.propagation import DIM, PathEdges, Propagation, path_edges
from newcomer.training.graph import build_training_graph

BATCH, RATE, LEAST_RATE, LONGEST = 64, 3e-3, 0.05, 1.0
LARGEST_SHARE = 0.05  # of the facts that a batch may hide
PASSES = 10  # over the facts, at most
AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # numbers that are handed on together
KEPT = 12  # vectors of an entity that learning keeps, in tables of the size of one along an edge
PATHS = "paths."  # the names of the weights begin so
Tensors = dict[str, Tensor]


class PathTrainer:
    """A network of paths and its optimiser; all randomness follows from the seed and the number of the step."""

    def __init__(self, observed: Graph, num_seen: int, most_steps: int, seed: int, device: torch.device) -> None:
        self.graph = build_training_graph(observed, num_seen, None, device)
        self.seed, self.device, facts = seed, device, len(self.graph.facts)
        self.batch = max(1, min(BATCH, int(LARGEST_SHARE * facts)))
        self.steps = min(most_steps, math.ceil(PASSES * facts / self.batch))
        self.network = Propagation(observed.num_relations, torch.Generator().manual_seed(seed)).to(device)
        told = self.graph.facts[:, 1]
        self.network.told[torch.cat([told, told + observed.num_relations])] = 1.0
        ones = torch.ones(len(self.graph.relations), device=device)
        self.edges = PathEdges(self.graph.rows, self.graph.relations, ones, observed.num_relations)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE)
        self._ordered = -1, torch.empty(0, dtype=torch.int64)  # the last pass, and its order

    def step(self, number: int) -> float:
        """Learn from one batch of questions; gives the loss of a question."""
        facts = self._batch(number)
        hidden = self.graph.between(facts) if number % 2 else facts
        visible = torch.ones(len(self.graph.facts), device=self.device).index_fill_(0, hidden, 0.0)
        edges = self.edges.seen_with(visible[self.graph.sources])
        asked = self._questions(facts, number, edges)
        if len(asked) == 0:
            return 0.0
        self.optimiser.zero_grad(set_to_none=True)
        most = _at_once(self.edges, self.graph.num_entities)
        loss = 0.0
        for some in torch.split(asked, most):
            part = self._loss(some, edges) / len(asked)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), LONGEST)
        for group in self.optimiser.param_groups:
            group["lr"] = RATE * max(LEAST_RATE, min(1.0, 2 * (1 - number / self.steps)))
        self.optimiser.step()
        return loss

    def _batch(self, number: int) -> Tensor:
        """The facts of a step: every pass comes to each of them once."""
        a_pass = math.ceil(len(self.graph.facts) / self.batch)
        order = self._order(number // a_pass)
        return order[number % a_pass * self.batch :][: self.batch].to(self.device)

    def _order(self, number: int) -> Tensor:
        """The facts as a pass comes to them."""
        if self._ordered[0] != number:
            generator = torch.Generator().manual_seed(_seed_of(self.seed, number, 1))
            self._ordered = number, torch.randperm(len(self.graph.facts), generator=generator)
        return self._ordered[1]

    def _questions(self, facts: Tensor, number: int, edges: PathEdges) -> Tensor:
        """(n, 3): entity, oriented relation and answer of those that can be answered."""
        heads, relations, tails = self.graph.facts[facts].unbind(dim=1)
        generator = torch.Generator().manual_seed(_seed_of(self.seed, number, 2))
        turn = (torch.rand(len(facts), generator=generator) < 0.5).to(self.device)
        turned = torch.stack([tails, relations + self.graph.num_relations, heads], dim=1)
        asked = torch.where(turn[:, None], turned, torch.stack([heads, relations, tails], dim=1))
        tied = torch.zeros(self.graph.num_entities, dtype=torch.bool, device=self.device)
        tied[edges.rows.row_ids()[edges.weights > 0]] = True
        return asked[tied[asked[:, 2]]]

    def _loss(self, asked: Tensor, edges: PathEdges) -> Tensor:
        """The summed cross entropy of finding each answer among all but the other true ones."""
        entities, relations, answers = asked.unbind(dim=1)
        scores = self.network([edges], entities, relations, self.graph.num_entities)
        rows, entries = self.graph.rows.pick(entities)
        true = self.graph.relations[entries] == relations[rows.row_ids()]
        others = torch.zeros_like(scores, dtype=torch.bool)
        others[rows.row_ids()[true], rows.columns[true]] = True
        others[torch.arange(len(asked), device=self.device), answers] = False
        return functional.cross_entropy(scores.masked_fill(others, -torch.inf), answers, reduction="sum")

    def tensors(self) -> Tensors:
        """Copies of everything that the next step depends on."""
        kept = {f"{PATHS}{name}": value for name, value in self.network.state_dict().items()}
        memory = self.optimiser.state_dict()["state"]
        kept |= {f"{PATHS}adam.{place}.{name}": one for place, held in memory.items() for name, one in held.items()}
        return {name: value.detach().cpu().clone() for name, value in kept.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from `tensors`."""
        own = {name.removeprefix(PATHS): value for name, value in tensors.items() if name.startswith(PATHS)}
        memory: dict[int, Tensors] = {}
        for name, value in own.items():
            if name.startswith("adam."):
                _, place, part = name.split(".", 2)
                memory.setdefault(int(place), {})[part] = value.clone()
        self.network.load_state_dict({name: value for name, value in own.items() if not name.startswith("adam.")})
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": memory})


def _at_once(edges: PathEdges, num_entities: int) -> int:
    """How many questions are asked together, so that their tables are no burden."""
    cells = DIM * max(len(edges.relations), KEPT * num_entities, 1)
    return max(1, AT_ONCE[edges.weights.device.type] // cells)


def _seed_of(seed: int, number: int, use: int) -> int:
    return (seed * 1_000_003 + number * 10 + use) % 2**63


class Asked(NamedTuple):
    """Who is asked about: a seen entity, or a newcomer (``entity`` is None) with its facts.

    Neighbours that are newcomers themselves are numbered from the number of seen entities on.
    """

    entity: int | None
    relations: npt.NDArray[np.int64]  # (k,) oriented
    neighbors: npt.NDArray[np.int64]  # (k,)


class Said(NamedTuple):
    """What paths say of everyone: the log of each one's share in the softmax over all seen entities."""

    seen: Tensor  # (questions, seen)
    itself: Tensor  # (questions,): the newcomer asked about; of a seen entity as `apart`
    neighbors: Tensor  # (questions, newcomers among the neighbours)
    apart: Tensor  # (questions,): anybody whom no path leads to


class Paths:
    """A trained network over the observed graph, ready to be asked."""

    def __init__(self, network: Propagation, observed: Graph, num_seen: int, device: torch.device) -> None:
        self.network, self.num_seen, self.device = network.to(device).eval(), num_seen, device
        heads, relations, tails = self._tensor(observed.triples.rows).unbind(dim=1)
        self.edges = path_edges(heads, relations, tails, observed.num_relations, num_seen)
        self._told = network.told.cpu().numpy() > 0

    def knows(self, relations: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which oriented relations the network has learned of."""
        known: npt.NDArray[np.bool_] = self._told[relations]
        return known

    def ask(self, asked: Asked, relations: npt.NDArray[np.integer]) -> Said:
        """What is said of everyone as an answer to (entity, oriented relation, ?), for relations that are known of."""
        known = self.knows(asked.relations)
        strangers = int((np.unique(asked.neighbors) >= self.num_seen).sum())
        itself = self.num_seen + strangers  # after them; the last one has no edges
        parts, source = [self.edges], asked.entity
        if source is None:
            source = itself
            along, to = self._tensor(asked.relations[known]), self._tensor(asked.neighbors[known])
            parts.append(path_edges(torch.full_like(to, source), along, to, self.edges.num_relations, itself + 1))
        sources, queries = self._tensor(np.full(len(relations), source)), self._tensor(relations)
        with torch.no_grad():
            scores = self.network(parts, sources, queries, itself + 2)
            shares = scores - torch.logsumexp(scores[:, : self.num_seen], dim=1, keepdim=True)
        seen, neighbors, own_share, apart = shares.split([self.num_seen, strangers, 1, 1], dim=1)
        return Said(seen, own_share[:, 0], neighbors, apart[:, 0])

    def _tensor(self, values: npt.NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.device)


class PathScorer:
    """Paths asked about the entities of a data set, each by its own facts."""

    def __init__(self, paths: Paths, own_facts: Adjacency, num_entities: int) -> None:
        self.paths, self.own_facts, self.num_entities = paths, own_facts, num_entities

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of log shares a query; nothing but zeros for a relation that nobody seen has."""
        found = np.zeros((len(entities), self.num_entities), dtype=np.float32)
        known = self.paths.knows(relations)
        for entity in np.unique(entities[known]).tolist():
            places = np.flatnonzero((entities == entity) & known)
            found[places] = self._of(entity, relations[places])
        return found

    def _of(self, entity: int, relations: Ids) -> npt.NDArray[np.float32]:
        seen, nothing = self.paths.num_seen, np.empty(0, dtype=np.int64)
        strangers = nothing
        asked = Asked(entity, nothing, nothing)
        if entity >= seen:
            own, tails = self.own_facts.of(entity)
            others = tails != entity
            own, tails = own[others].astype(np.int64), tails[others].astype(np.int64)
            strangers = np.unique(tails[tails >= seen])
            tails = np.where(tails >= seen, seen + np.searchsorted(strangers, tails), tails)
            asked = Asked(None, own, tails)
        distinct, places = np.unique(relations, return_inverse=True)  # one question may have many answers
        most = _at_once(self.paths.edges, seen)
        parts = [self._rows(entity, asked, strangers, distinct[at : at + most]) for at in range(0, len(distinct), most)]
        found: npt.NDArray[np.float32] = np.concatenate(parts)[places]
        return found

    def _rows(
        self, entity: int, asked: Asked, strangers: npt.NDArray[np.int64], relations: Ids
    ) -> npt.NDArray[np.float32]:
        seen, said = self.paths.num_seen, self.paths.ask(asked, relations)
        rows: npt.NDArray[np.float32] = said.apart[:, None].repeat(1, self.num_entities).cpu().numpy()
        rows[:, :seen] = said.seen.cpu().numpy()
        rows[:, strangers] = said.neighbors.cpu().numpy()
        if entity >= seen:
            rows[:, entity] = said.itself.cpu().numpy()
        return rows


def path_weights(network: Propagation) -> dict[str, npt.NDArray[np.floating]]:
    """Its numbers by name, as a model keeps them."""
    return {f"{PATHS}{name}": value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def propagation_of(weights: Mapping[str, npt.NDArray[np.floating]], num_relations: int) -> Propagation | None:
    """The network of paths that a model keeps, if it has one."""
    own = {name.removeprefix(PATHS): value for name, value in weights.items() if name.startswith(PATHS)}
    if not own:
        return None
    network = Propagation(num_relations, torch.Generator())
    try:
        network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in own.items()})
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise DatasetError(f"the paths do not fit the relations ({reason}); train the model again") from None
    return network.eval()
