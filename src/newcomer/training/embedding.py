"""Training of an encoder and a decoder: Algorithm 1, readable from top to bottom.

Each mini-batch of facts is hidden from the graph together with every virtual triple inferred from it. A share of the
heads are simulated newcomers: embedded as newcomers are, without a vector of their own, beside the seen entities. The
soft labels of a mini-batch of virtual triples are refreshed with the current embeddings. The loss is cross entropy on
facts and corrupted facts, plus cross entropy of the virtual triples against their labels, plus a penalty on long
vectors.

A fact that leaves one of its ends without any visible edge has the score zero, whatever the model gives it: nothing is
left to infer it from, yet that an entity has become empty would give it away.

With a fanout each entity looks at that many of its visible neighbours, drawn anew for every batch, and only what is
reached from the batch is embedded: the cost of a step then follows from the batch, not from the graph.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional

from newcomer.config import Config
from newcomer.models.embedding.encoder import Edges, States
from newcomer.models.embedding.graph_tensors import GraphTensors, Groundings, soft_labels
from newcomer.models.embedding.model import Negatives, build_model
from newcomer.models.sparse import Rows, distinct

FIRST_LABELS = {"soft": 0.5, "hard": 1.0, "none": 0.0}  # of virtual triples that training has not come to yet
LABELS_AT_ONCE = 4_000  # each has a few premises, and each of these two vectors


@dataclass
class EpochReport:
    """What an epoch cost and gave."""

    loss: float
    fact_loss: float
    virtual_loss: float
    mean_label: float


@dataclass(frozen=True, eq=False)
class View:
    """Edges between entities that have places of their own: ``nodes`` are their ids, ascending (all where None)."""

    edges: Edges
    nodes: Tensor | None = None

    def places(self, entities: Tensor) -> Tensor:
        """Where these entities stand; they must be within the view."""
        return entities if self.nodes is None else torch.searchsorted(self.nodes, entities.contiguous())

    def triples(self, triples: Tensor) -> Tensor:
        """Triples (n, 3) with places for their ends."""
        if self.nodes is None:
            return triples
        heads, relations, tails = triples.unbind(dim=1)
        return torch.stack([self.places(heads), relations, self.places(tails)], dim=1)


def around(
    graph: GraphTensors, weights: Tensor, entities: Tensor, fanout: int, hops: int, generator: torch.Generator
) -> View:
    """What is at most ``hops`` drawn edges away from ``entities``; those at the rim have no edges."""
    reached = frontier = torch.unique(entities)
    rows, entries = [frontier[:0]], [frontier[:0]]
    for _ in range(hops):
        drawn_rows, drawn = _draw(graph, weights, frontier, fanout, generator)
        rows.append(frontier[drawn_rows])
        entries.append(drawn)
        found = torch.unique(graph.rows.columns[drawn])
        frontier = found[~torch.isin(found, reached)]
        reached = torch.cat([reached, frontier]).sort().values
    return View(_edges(graph, weights, reached, torch.cat(rows), torch.cat(entries)), reached)


def _draw(
    graph: GraphTensors, weights: Tensor, entities: Tensor, fanout: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """At most ``fanout`` visible edges of each entity: whose (a place among ``entities``) and which, ascending."""
    rows, entries = graph.rows.pick(entities)
    visible = weights[graph.sources[entries]] > 0
    rows, entries = rows.where(visible), entries[visible]
    row = rows.row_ids
    keys = torch.rand(len(entries), generator=generator, dtype=torch.float64, device=generator.device)
    order = torch.argsort(row + keys)  # by row, at random within
    first = order[torch.arange(len(order), device=row.device) - rows.offsets[row] < fanout].sort().values
    return row[first], entries[first]


def _edges(graph: GraphTensors, weights: Tensor, nodes: Tensor, rows: Tensor, entries: Tensor) -> Edges:
    """Edges (entity, entry of the graph) as rows of ``nodes``."""
    place, order = torch.sort(torch.searchsorted(nodes, rows), stable=True)
    entries = entries[order]
    offsets = torch.searchsorted(place, torch.arange(len(nodes) + 1, device=place.device))
    columns = torch.searchsorted(nodes, graph.rows.columns[entries])
    return Edges(Rows(offsets, columns, len(nodes)), graph.relations[entries], weights[graph.sources[entries]])


class Trainer:
    """A model, its optimiser and the current labels; one call of `epoch` is one pass over the facts."""

    def __init__(self, config: Config, graph: GraphTensors, device: torch.device) -> None:
        self.config, self.graph, self.device = config, graph, device
        self.model = build_model(config.model, graph.num_entities, graph.num_relations, config.seed).to(device)
        stated = View(graph.edges(graph.weights(torch.zeros(len(graph.virtual), device=device))))
        self.model.encoder.prepare(stated.edges, config.seed)
        self._edgeless = stated if self._uses_no_edges else None
        self.model.encoder.sparse_gradient = self._updates_few_rows()
        self.labels = torch.full((len(graph.virtual),), FIRST_LABELS[config.model.labels], device=device)
        self.optimiser = self._optimiser()

    def _optimiser(self) -> torch.optim.Optimizer:
        # Above it torch would complain of 32 bits; at it the loss is not finite, which is answered with what to do.
        rate, parameters = min(self.config.training.lr, 1e30), self.model.parameters()
        if self.config.training.optimiser == "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate)
        # One launch for all parameters where launches are what costs.
        return torch.optim.Adam(parameters, lr=rate, fused=self.device.type == "cuda")

    def _updates_few_rows(self) -> bool:
        """Whether a batch moves the vectors of its own entities and of drawn negatives only, and no others.

        Adagrad leaves a number without a gradient as it is. On a GPU the whole table takes no time, and always the same
        order of addition.
        """
        training = self.config.training
        drawn = training.softmax_negatives is not None and training.softmax_negatives < self.graph.num_entities
        moved_alone = training.optimiser == "adagrad" and not training.grad_clip and not self.config.model.dropout
        return self.device.type == "cpu" and self._uses_no_edges and drawn and moved_alone

    @property
    def _uses_no_edges(self) -> bool:
        """Whether vectors are looked up, and there are no simulated newcomers: then all batches have the same view."""
        return self.model.encoder.hops == 0 and not self.config.training.newcomer_share

    def epoch(self, number: int) -> EpochReport:
        """One pass; all randomness follows from the seed and the epoch, so a run can go on from any epoch."""
        self.model.train()
        seed = (self.config.seed * 1_000_003 + number) % 2**63  # all that torch takes
        generator = torch.Generator(self.device).manual_seed(seed)
        torch.manual_seed(seed)  # dropout draws from the global generator of the device
        sums = torch.zeros(3, device=self.device)
        batches = list(self._batches(generator))
        for facts, virtual in batches:
            sums += self._step(facts, virtual, generator)
        loss, fact_loss, virtual_loss = (sums / len(batches)).tolist()
        if self._labels_teach_nothing:
            virtual_loss = self._refresh_labels(len(batches))
        mean_label = float(self.labels.mean()) if len(self.labels) else 0.0
        return EpochReport(loss, fact_loss, virtual_loss, mean_label)

    def _batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        count = self.config.training.batches_of(len(self.graph.facts))
        facts = torch.randperm(len(self.graph.facts), generator=generator, device=self.device)
        used = 0 if self._labels_teach_nothing or self.config.model.labels == "none" else len(self.graph.virtual)
        virtual = torch.randperm(used, generator=generator, device=self.device)
        yield from zip(facts.tensor_split(count), virtual.tensor_split(count), strict=True)

    @property
    def _labels_teach_nothing(self) -> bool:
        """Whether no vector follows from virtual triples: then labels are found once an epoch, with all else done."""
        return self._edgeless is not None and self.config.training.virtual_weight == 0

    def _label_parts(self, used: int, parts: int) -> Iterator[Tensor]:
        """The virtual triples in parts, none of them large."""
        parts = max(parts, math.ceil(used / LABELS_AT_ONCE))
        yield from torch.arange(used, device=self.device).tensor_split(parts)

    def _refresh_labels(self, parts: int) -> float:
        """Find all labels with the current vectors; gives the mean loss of the virtual triples."""
        assert self._edgeless is not None
        used = len(self.graph.virtual) if self.config.model.labels != "none" else 0
        self.model.eval()
        losses, edges = [torch.zeros((), device=self.device)], self._edgeless.edges
        with torch.no_grad():
            states = self.model.encoder.states(edges)
            for virtual in self._label_parts(used, parts):
                triples, groundings = self._virtual_and_premises(virtual)
                scores = self._virtual_scores(states, triples, len(virtual))
                losses.append(len(virtual) * self._virtual_loss(virtual, groundings, scores))
        return float(torch.stack(losses).sum()) / max(used, 1)

    def _step(self, facts: Tensor, virtual: Tensor, generator: torch.Generator) -> Tensor:
        """Learn from a mini-batch; gives (3,): the loss, and the parts of facts and of virtual triples."""
        training = self.config.training
        triples, drawn = self._queries(facts, generator)
        view = self._view(facts, triples, drawn, virtual, generator)
        placed = None if drawn is None else drawn._replace(entities=view.places(drawn.entities))
        states, asked, negatives, arriving = self._simulate_newcomers(view, view.triples(triples), placed, generator)
        learned, groundings = self._virtual_and_premises(virtual)
        learned = view.triples(learned)
        along = self.model.decoder.relation_vectors(triples[:, 1])
        shared = self._shared_negatives(generator)
        if negatives is None:
            candidates = self._candidates(states, view, arriving)
            positive, negative = self.model.contrast_with_all(states, asked, along, candidates, triples[:, 2], shared)
            virtual_scores = self._virtual_scores(states, learned, len(virtual))
            inferred = arriving  # all others are answers by a vector that no edge is needed for
        else:
            positive, negative, virtual_scores = self.model.contrast(states, asked, along, negatives, learned)
            inferred = None
        fact_loss = self._fact_loss(states, asked, positive, negative, inferred)
        virtual_loss = self._virtual_loss(virtual, groundings, virtual_scores)
        loss = fact_loss + training.virtual_weight * virtual_loss + self._penalty(triples, along)
        if training.own_weight:
            positive, negative = self.model.own_contrast(triples, along, drawn, shared)
            loss = loss + training.own_weight * self._loss(positive, negative)
        self._descend(loss)
        return torch.stack([loss.detach(), fact_loss.detach(), virtual_loss.detach()])

    def _queries(self, facts: Tensor, generator: torch.Generator) -> tuple[Tensor, Negatives | None]:
        """The facts, half of them inverted, and entities to replace their tails with: either end is corrupted."""
        triples = self.graph.facts[facts]
        turn = torch.rand(len(facts), generator=generator, device=self.device) < 0.5
        triples = torch.where(turn[:, None], self.model.inverted(triples), triples)
        if self.model.answers_by_input:
            return triples, None  # all seen entities are candidates already
        # Around a batch only its own entities cost: then the queries of all relations share the same few.
        shared, count = self.config.training.fanout is not None, self.config.training.negatives
        return triples, Negatives.draw(
            triples[:, 1], 2 * self.graph.num_relations, count, self.graph.num_entities, generator, shared
        )

    def _view(
        self, facts: Tensor, triples: Tensor, negatives: Negatives | None, virtual: Tensor, generator: torch.Generator
    ) -> View:
        """The graph that this batch is embedded over."""
        if self._edgeless is not None:
            return self._edgeless
        weights, fanout = self._weights_without(facts, virtual), self.config.training.fanout
        if fanout is None:
            return View(self.graph.edges(weights))
        ends = [triples[:, ::2].reshape(-1), self.graph.mentioned(virtual)]
        if negatives is not None:
            ends.append(negatives.entities.reshape(-1))
        return around(self.graph, weights, torch.cat(ends), fanout, self.model.encoder.hops, generator)

    def _weights_without(self, facts: Tensor, virtual: Tensor) -> Tensor:
        """The weights of all triples; these facts, what is inferred from them, and these virtual triples are hidden."""
        hidden = self.graph.between(facts) if self.config.training.hide_pairs else facts
        visible = torch.ones(len(self.graph.facts), device=self.device).index_fill_(0, hidden, 0.0)
        weights = torch.cat([visible, self.labels * self.graph.standing(visible)])
        return weights.index_fill_(0, virtual + len(visible), 0.0)

    def _simulate_newcomers(
        self, view: View, triples: Tensor, negatives: Negatives | None, generator: torch.Generator
    ) -> tuple[States, Tensor, Negatives | None, Tensor]:
        """Embed all, and some once more as newcomers; the triples and negatives with these; which entities they are.

        Each head is drawn by itself. Tails are newcomers all or none, with their corruptions: else being new would tell
        which of them are right.
        """
        training, encoder = self.config.training, self.model.encoder
        heads, relations, tails = triples.unbind(dim=1)
        new = [torch.rand(len(triples), generator=generator, device=self.device) < training.newcomer_share]
        ends, known = [heads], view.edges.rows.num_rows
        if negatives is not None and training.newcomer_answers:
            answers = torch.cat([tails, negatives.entities.reshape(-1)])
            arrive = torch.rand(1, generator=generator, device=self.device) < training.newcomer_answers
            ends, new = [heads, answers], [*new, arrive.expand(len(answers))]
        arriving, places = distinct(torch.cat(ends), known, torch.cat(new))
        if len(arriving) == 0:
            return encoder.states(view.edges, view.nodes), triples, negatives, arriving
        places = torch.where(torch.cat(new), known + places, torch.cat(ends))
        heads, places = places.tensor_split([len(triples)])
        if negatives is not None and len(places):
            tails, drawn = places.tensor_split([len(triples)])
            negatives = negatives._replace(entities=drawn.reshape(negatives.entities.shape))
        edges = view.edges.pick(arriving, known + len(arriving), 2 * self.graph.num_relations)
        asked = torch.stack([heads, relations, tails], dim=1)
        return encoder.states_with_newcomers(view.edges, edges, view.nodes), asked, negatives, arriving

    def _shared_negatives(self, generator: torch.Generator) -> Tensor | None:
        """The seen entities that answers are compared with in this batch; None: with all."""
        most, count = self.config.training.softmax_negatives, self.graph.num_entities
        if not self.model.answers_by_input or most is None or count <= most:
            return None
        return torch.randperm(count, generator=generator, device=self.device)[:most]

    def _candidates(self, states: States, view: View, arriving: Tensor) -> Tensor:
        """(seen, d): all seen entities as answers; simulated newcomers are embedded as such."""
        encoder, known = self.model.encoder, states.layers[0]
        if states.newcomers:
            known = known[: states.num_seen]
        candidates = known if view.nodes is None else encoder.inputs()
        if len(arriving) == 0:
            return candidates
        ids = arriving if view.nodes is None else view.nodes[arriving]
        copies = torch.arange(len(arriving), device=self.device) + len(known)
        return candidates.index_copy(0, ids, encoder.plain(states, copies))

    def _virtual_and_premises(self, virtual: Tensor) -> tuple[Tensor, Groundings | None]:
        """These virtual triples, then the premises that their soft labels follow from; and their groundings."""
        triples = self.graph.virtual[virtual]
        if len(virtual) == 0 or self.config.model.labels != "soft":
            return triples, None
        groundings = self.graph.grounds(virtual)
        return torch.cat([triples, groundings.premises]), groundings

    def _virtual_scores(self, states: States, triples: Tensor, learned: int) -> Tensor:
        """Scores of the first triples, which are learned from, and of their premises, which are not."""
        if len(triples) == 0:
            return states.edges.weights.new_zeros(0)
        scores = self.model.scores(states, triples[:learned])
        if learned == len(triples):
            return scores
        with torch.no_grad():
            premises = self.model.scores(states, triples[learned:])
        return torch.cat([scores, premises])

    def _fact_loss(
        self, states: States, triples: Tensor, positive: Tensor, negative: Tensor, inferred: Tensor | None
    ) -> Tensor:
        """Compare the scores of true and corrupted triples with what they are; ``inferred`` are tails by edges only."""
        if self.model.encoder.hops == 0:  # nothing is inferred by edges
            return self._loss(positive, negative)
        empty = states.edges.degrees <= 0
        tails = empty if inferred is None else torch.zeros_like(empty).index_copy_(0, inferred, empty[inferred])
        without = empty[triples[:, 0]] | tails[triples[:, 2]]  # head, or inferred tail, has no edge left
        return self._loss(positive.masked_fill(without, 0.0), negative.masked_fill(without[:, None], 0.0))

    def _loss(self, positive: Tensor, negative: Tensor) -> Tensor:
        training, others = self.config.training, self.graph.num_entities - 1
        if self.model.answers_by_input and negative.shape[1] <= others and training.loss == "softmax":
            negative = negative + math.log(others / negative.shape[1])  # so many negatives stand for all
        return LOSSES[training.loss](positive, negative)

    def _virtual_loss(self, virtual: Tensor, groundings: Groundings | None, scores: Tensor) -> Tensor:
        """Refresh the labels of these virtual triples and compare their scores with them; premises' scores follow."""
        if len(virtual) == 0:
            return scores.new_zeros(())
        config = self.config.model
        truth, premises = torch.sigmoid(scores.detach()).tensor_split([len(virtual)])
        support = torch.zeros_like(truth) if groundings is None else groundings.support(premises)
        labels = soft_labels(truth, support, config.soft_label_c, config.labels)
        self.labels[virtual] = labels
        return functional.binary_cross_entropy_with_logits(scores[: len(virtual)], labels)

    def _descend(self, loss: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.training.grad_clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.training.grad_clip)
        self.optimiser.step()

    def _penalty(self, triples: Tensor, along: Tensor) -> Tensor:
        """The cost of large vectors: by their squares, by the cubes of their numbers."""
        training, decoder = self.config.training, self.model.decoder
        vectors = self.model.encoder.look_up(triples[:, ::2], self.model.encoder.vectors)
        cost = training.l2 * (vectors.square().mean() + decoder.penalty(along))
        if training.n3:
            cost = cost + training.n3 * (decoder.cubes(vectors).sum() + decoder.cubes(along).sum()) / len(triples)
        return cost


class ShortTrainer(Trainer):
    """A trainer whose epochs end after a few batches: to see whether they work, and how long they take."""

    def __init__(self, config: Config, graph: GraphTensors, device: torch.device, count: int) -> None:
        super().__init__(config, graph, device)
        self.count = min(count, config.training.batches_of(len(graph.facts)))

    def _batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        yield from islice(super()._batches(generator), self.count)

    def _label_parts(self, used: int, parts: int) -> Iterator[Tensor]:
        yield from islice(super()._label_parts(used, parts), self.count)


def cross_entropy(positive: Tensor, negative: Tensor) -> Tensor:
    """Cross entropy of scores that should be true (n,) and false (n, k), per true one."""
    return functional.softplus(-positive).mean() + functional.softplus(negative).sum(dim=1).mean()


def softmax_cross_entropy(positive: Tensor, negative: Tensor) -> Tensor:
    """Cross entropy of finding the true one (n,) among itself and its corruptions (n, k)."""
    scores = torch.cat([positive[:, None], negative], dim=1)
    return functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64, device=scores.device))


LOSSES = {"binary": cross_entropy, "softmax": softmax_cross_entropy}
