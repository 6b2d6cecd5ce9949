"""Learning what paths say (`newcomer.models.propagation.network`).

The questions are observed facts, half of them turned round. A fact must not answer for itself: it is hidden from the
graph with all others of its batch. In every other step all facts between the same two entities are hidden, too. For
where another fact ties the two, the answer is plain, and nothing would be learned of the ways that lead to the others.

A question whose answer is left without any edge teaches nothing: it would be known by that.

On a GPU a step is a few hundred small operations, each of which takes longer to ask for than to do. So they are
recorded once, with room for as many questions as a step has, and asked for as one from then on.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from newcomer.graph import UNKNOWN, Graph, Vocabulary
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.propagation import gpu as fused
from newcomer.models.propagation import gpu_layer as fused_layer
from newcomer.models.propagation.frontier import cross_entropy
from newcomer.models.propagation.network import DIM, HALF, KEPT, PATHS, Propagation, PropagationEdges, at_once
from newcomer.models.sparse import Rows

BATCH, RATE, LEAST_RATE, LONGEST = 64, 3e-3, 0.05, 1.0
LARGEST_SHARE = 0.05  # of the facts that a batch may hide
PASSES = 10  # over the facts, at most
SILENT_AT_ONCE = 1 << 29
FURTHER = 0.3  # of the steps, where something was learned on another graph before
REHEARSALS = 2  # of what is recorded, before it is
Tensors = dict[str, Tensor]


class Lesson(NamedTuple):
    """Questions that are asked together, and what is hidden meanwhile."""

    weights: Tensor  # (edges,): 1, or 0 of those hidden
    sizes: Tensor  # (entities,): edges that are left
    sources: Tensor  # (questions,)
    queries: Tensor
    answers: Tensor
    shares: Tensor  # of each question in the loss
    barred: Tensor  # (questions, entities): 0, or minus infinity of another true answer

    def copy_(self, other: "Lesson") -> None:
        """Take over another one's numbers, of at most as many questions; the rest have no share in the loss."""
        count = len(other.sources)
        self.weights.copy_(other.weights)
        self.sizes.copy_(other.sizes)
        self.shares[count:] = 0.0
        for own, given in zip(self[2:], other[2:], strict=True):
            own[:count] = given


class PropagationTrainer:
    """A network of paths and its optimiser; all randomness follows from the seed and the number of the step.

    A ``silent`` one learns on a processor, wherever else training is; unless told, what learns on a processor is.
    """

    def __init__(
        self,
        observed: Graph,
        num_seen: int,
        most_steps: int,
        seed: int,
        device: torch.device,
        silent: bool | None = None,
    ) -> None:
        silent = device.type == "cpu" if silent is None else silent
        device = torch.device("cpu") if silent else device
        # What to ask is found on the processor: a GPU would be waited for at every turn.
        self.graph = build_graph_tensors(observed, num_seen, None, torch.device("cpu"))
        self.seed, self.device, facts = seed, device, len(self.graph.facts)
        self.batch = _batch_of(facts)
        self.steps = steps_of(facts, most_steps)
        self.network = Propagation(observed.num_relations, torch.Generator().manual_seed(seed), silent).to(device)
        told = self.graph.facts[:, 1]
        self.network.told[torch.cat([told, told + observed.num_relations])] = 1.0
        rows, relations = self.graph.rows, self.graph.relations.to(device)
        on_device = Rows(rows.offsets.to(device), rows.columns.to(device), rows.width)
        self.edges = PropagationEdges(
            on_device, relations, torch.ones(len(relations), device=device), observed.num_relations
        )
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE, fused=device.type == "cuda")
        self._places = torch.argsort(self.graph.sources, stable=True).view(-1, 2)  # of each fact's edges
        self._ordered = -1, torch.empty(0, dtype=torch.int64)  # the last pass, and its order
        self._recorded: _Recorded | None = None
        self._slowing_from = 0.5  # of the steps: from then on they become smaller

    def begin_with(self, learned: Tensors) -> None:
        """Start from what was learned on another graph (`carried_over`); fewer steps are enough then."""
        silent = torch.tensor(0.0)  # as all were that do not say so
        self.network.load_state_dict({**self.network.state_dict(), "silent": silent, **learned})
        self.steps, self._slowing_from = math.ceil(FURTHER * self.steps), 0.0

    def step(self, number: int) -> Tensor:
        """Learn from one batch of questions; gives the loss of a question, as a number that may not be there yet."""
        facts = self._batch(number)
        hidden = self._places[torch.unique(self.graph.between(facts)) if number % 2 else facts].flatten()
        sizes = self._left(hidden)
        asked = self._questions(facts, number)
        asked = asked[sizes[asked[:, 2]] > 0]
        loss = torch.zeros((), device=self.device)
        if len(asked) == 0:
            return loss
        self.optimiser.zero_grad(set_to_none=False)
        for lesson in self._lessons(asked, hidden, sizes):
            loss = loss + self._learn(lesson)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), LONGEST)
        for group in self.optimiser.param_groups:
            group["lr"] = RATE * max(LEAST_RATE, min(1.0, (1 - number / self.steps) / (1 - self._slowing_from)))
        self.optimiser.step()
        return loss

    def _batch(self, number: int) -> Tensor:
        """The facts of a step: every pass comes to each of them once."""
        a_pass = math.ceil(len(self.graph.facts) / self.batch)
        return self._order(number // a_pass)[number % a_pass * self.batch :][: self.batch]

    def _order(self, number: int) -> Tensor:
        """The facts as a pass comes to them."""
        if self._ordered[0] != number:
            generator = torch.Generator().manual_seed(_seed_of(self.seed, number, 1))
            self._ordered = number, torch.randperm(len(self.graph.facts), generator=generator)
        return self._ordered[1]

    def _questions(self, facts: Tensor, number: int) -> Tensor:
        """(n, 3): entity, oriented relation and answer."""
        heads, relations, tails = self.graph.facts[facts].unbind(dim=1)
        generator = torch.Generator().manual_seed(_seed_of(self.seed, number, 2))
        turn = torch.rand(len(facts), generator=generator) < 0.5
        turned = torch.stack([tails, relations + self.graph.num_relations, heads], dim=1)
        return torch.where(turn[:, None], turned, torch.stack([heads, relations, tails], dim=1))

    def _left(self, hidden: Tensor) -> Tensor:
        """(entities,): how many edges are left of each."""
        rows = self.graph.rows
        return (rows.sizes - torch.bincount(rows.row_ids()[hidden], minlength=rows.num_rows)).float()

    def _lessons(self, asked: Tensor, hidden: Tensor, sizes: Tensor) -> Iterator[Lesson]:
        """The questions, as many at once as memory allows."""
        weights = torch.ones_like(self.edges.weights).index_fill_(0, hidden.to(self.device), 0.0)
        sizes = sizes.to(self.device)
        for some in torch.split(asked, self._at_once):
            sources, queries, answers = some.to(self.device).unbind(dim=1)
            shares = torch.full((len(some),), 1 / len(asked), device=self.device)
            yield Lesson(weights, sizes, sources, queries, answers, shares, self._barred(some))

    @property
    def _at_once(self) -> int:
        if self.network.is_silent:  # of whom paths come to few; at the worst to everyone
            return min(self.batch, max(1, SILENT_AT_ONCE // (DIM * KEPT * self.graph.num_entities)))
        return min(self.batch, at_once(self.edges, self.graph.num_entities))

    def _barred(self, asked: Tensor) -> Tensor:
        """Whom the answers are not compared with: all other true ones."""
        entities, relations, answers = asked.unbind(dim=1)
        rows, entries = self.graph.rows.pick(entities)
        question = rows.row_ids()
        others = (self.graph.relations[entries] == relations[question]) & (rows.columns != answers[question])
        places = question[others] * self.graph.num_entities + rows.columns[others]
        barred = torch.zeros(len(asked) * self.graph.num_entities, device=self.device)
        return barred.index_fill_(0, places.to(self.device), -torch.inf).view(len(asked), -1)

    def _learn(self, lesson: Lesson) -> Tensor:
        """Add what a lesson teaches to the gradients; gives its part of the loss."""
        if not self._by_kernels():
            return self._slopes(lesson)
        if self._recorded is None:
            self._recorded = _Recorded(self, lesson, self._at_once)
        return self._recorded.play(lesson)

    def _by_kernels(self) -> bool:
        """Whether a GPU has kernels for all of it: then it is recorded, and vectors have half the bits."""
        return self.device.type == "cuda" and fused.keeps_halves() and fused_layer.pays(self._at_once)

    def _slopes(self, lesson: Lesson) -> Tensor:
        loss = self._loss(lesson)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _loss(self, lesson: Lesson) -> Tensor:
        """The cross entropy of finding each answer among all but the other true ones."""
        edges = self.edges.seen_with(lesson.weights, lesson.sizes)
        if self.network.is_silent:
            heard = self.network.heard([edges], lesson.sources, lesson.queries, self.graph.num_entities)
            return (cross_entropy(*heard, lesson.answers, lesson.barred) * lesson.shares).sum()
        kept = HALF if self._by_kernels() else torch.float32
        scores = self.network([edges], lesson.sources, lesson.queries, self.graph.num_entities, kept)
        each = functional.cross_entropy(scores + lesson.barred, lesson.answers, reduction="none")
        return (each * lesson.shares).sum()

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


class _Recorded:
    """What a lesson teaches, recorded on a GPU with room for ``most`` questions."""

    def __init__(self, trainer: PropagationTrainer, first: Lesson, most: int) -> None:
        def room(given: Tensor) -> Tensor:
            return given.new_zeros(most, *given.shape[1:])

        self.lesson = Lesson(first.weights.clone(), first.sizes.clone(), *map(room, first[2:]))
        self.lesson.copy_(first)
        self.graph = torch.cuda.CUDAGraph()
        gradients = [torch.zeros_like(one) for one in trainer.network.parameters()]
        for one, gradient in zip(trainer.network.parameters(), gradients, strict=True):
            one.grad = gradient  # where every play adds to
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(REHEARSALS):
                trainer._slopes(self.lesson)
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph):
            self.loss = trainer._slopes(self.lesson)
        for gradient in gradients:
            gradient.zero_()

    def play(self, lesson: Lesson) -> Tensor:
        """Add what a lesson teaches to the gradients; gives its part of the loss."""
        self.lesson.copy_(lesson)
        self.graph.replay()
        return self.loss.clone()


def carried_over(learned: Propagation, names: Vocabulary, fresh: Propagation, wanted: Vocabulary) -> Tensors:
    """What a network has learned, for one of another graph; ``names`` and ``wanted`` are those of their relations.

    Relations that the first graph does not have are as in the fresh network, and what each was told of is its own.
    """
    there = names.ids(list(wanted)).astype(np.int64)
    new, old = np.flatnonzero(there != UNKNOWN), there[there != UNKNOWN]
    new, old = np.concatenate([new, new + len(wanted)]), np.concatenate([old, old + len(names)])
    found = {name: value.detach().cpu().clone() for name, value in learned.state_dict().items() if name != "told"}
    for name in ("queries", "scales"):
        table = fresh.state_dict()[name].detach().cpu().clone()
        table[..., new, :] = found[name][..., old, :]
        found[name] = table
    return found


def steps_of(facts: int, most: int) -> int:
    """How many batches so many facts are learned from."""
    return min(most, math.ceil(PASSES * facts / _batch_of(facts)))


def _batch_of(facts: int) -> int:
    return max(1, min(BATCH, int(LARGEST_SHARE * facts)))


def _seed_of(seed: int, number: int, use: int) -> int:
    return (seed * 1_000_003 + number * 10 + use) % 2**63
