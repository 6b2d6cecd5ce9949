"""Why an answer is given: rules that infer it, facts that weighed most, and the fact without which it would not be.

All of it is found when it is looked at, in the state of newcomers in which the question was asked.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from newcomer.graph import UNKNOWN, Mask
from newcomer.models.ensemble import Column
from newcomer.predictor.answers import Chain, Grounding, Plain, Similar, Weighed, plain
from newcomer.predictor.fact_store import Fact, NamedComponent, NamedSnapshot, Names, Triple, words_at
from newcomer.rules.ranking import OnlineRules
from newcomer.rules.rule import NONE
from newcomer.rules.virtual_neighbors import LOGIC, PATH, VirtualNeighbors

Rows = npt.NDArray[np.int64]  # of all groundings
SHOWN = 2  # digits of a confidence that a reader sees
TRIES = 20  # facts that are left out in turn to find the one that an answer hangs on


@dataclass(frozen=True, eq=False)
class Query:
    """What was asked: (entity, oriented relation, ?), in which snapshot, and whom a ranking leaves out."""

    snapshot: NamedSnapshot
    entity: str
    relation: int
    left_out: Mask
    _concluded: dict[str, "Conclusions"] = field(default_factory=dict)  # about entities that were needed so far

    def triple(self, answer: str) -> Fact:
        """The fact that an answer states."""
        size = len(self.snapshot.names.relations)
        ends = (self.entity, answer) if self.relation < size else (answer, self.entity)
        return ends[0], self.relation % size, ends[1]

    def finds(self, answer: str, k: int, snapshot: NamedSnapshot) -> bool:
        """Whether an answer is among the first k in another snapshot, of the candidates of this query."""
        names = self.snapshot.names
        if not all(name in snapshot or names.seen(name) >= 0 for name in (self.entity, answer)):
            return False
        scores = self.snapshot.engine.scores(snapshot.graph, snapshot.id(self.entity), self.relation)
        place, seen = snapshot.id(answer), names.num_seen
        mask = ~snapshot.graph.is_present
        mask[:seen] = self.left_out[:seen]
        for other in np.flatnonzero(self.left_out[seen:] & self.snapshot.graph.is_present[seen:]) + seen:
            name = self.snapshot.name_of(int(other))
            if name in snapshot:
                mask[snapshot.id(name)] = True
        better = scores > scores[place]
        better[:place] |= scores[:place] == scores[place]  # of equals the first counts as better
        mask[place] = False
        return int((better & ~mask).sum()) < k

    @cached_property
    def weighed(self) -> tuple[Weighed, ...]:
        """The entity's known facts by the share of the query-aware layer's attention; the same for all answers."""
        identifier, encoder = self.snapshot.id(self.entity), self.snapshot.engine.encoder
        slot = self.snapshot.graph.slot(identifier)
        with torch.no_grad():
            if slot is not None:
                graph, row = slot.encoded.graph, slot.place
                shares = encoder.attention(slot.encoded.states, row, self.relation)
            else:
                graph, row = encoder.graph, identifier
                states, _ = encoder.around(torch.tensor([row], device=encoder.device))
                shares = encoder.attention(states, 0, self.relation)
        if shares is None:
            return ()
        edges = slice(int(graph.rows.offsets[row]), int(graph.rows.offsets[row + 1]))
        total: dict[int, float] = {}
        for source, share in zip(graph.sources[edges].tolist(), shares.tolist(), strict=True):
            if source < len(graph.facts):
                total[source] = total.get(source, 0.0) + share  # a fact about an entity and itself is two edges
        words = words_at(self.snapshot.names, graph.facts[list(total)], None if slot is None else slot.encoded)
        facts = map(Weighed, words, total.values())
        return tuple(sorted(facts, key=lambda one: (-one.share, one.fact)))

    @cached_property
    def parts(self) -> dict[str, Column]:
        """What each feature adds to the scores of all candidates."""
        return self.snapshot.engine.parts(self.snapshot.graph, self.snapshot.id(self.entity), self.relation)

    @cached_property
    def online(self) -> OnlineRules | None:
        """The online rules of the relation, if it has any; the same for all answers."""
        return self.snapshot.engine.online_rules(self.snapshot.graph, self.relation)

    @cached_property
    def connected(self) -> set[str]:
        """The newcomers that rules may lead to from the entity, if that is new."""
        return self.snapshot.connected(self.entity)

    def concluded(self, name: str) -> "Conclusions":
        """What rules conclude of the relation about an entity."""
        if name not in self._concluded:
            names, rules = self.snapshot.names, self.snapshot.engine.rules
            component = self.snapshot.component(name) if name in self.snapshot else None
            entity = names.seen(name) if component is None else component.id(name)
            paths = self._paths(name, component)
            logic = rules.conclusions(component, entity, self.relation % len(names.relations), paths=paths is None)
            self._concluded[name] = Conclusions(names, component, logic, paths)
        return self._concluded[name]

    def _paths(self, name: str, component: NamedComponent | None) -> VirtualNeighbors | None:
        """What was concluded when a newcomer came, where that spares another search for symmetric paths."""
        if component is None or not self.snapshot.engine.rules.has_all_paths(component):
            return None
        slot = self.snapshot.slots.get(name)
        return slot.encoded.virtual if slot is not None and slot.encoded.component is component else None

    @property
    def ids(self) -> tuple[int, int]:
        """Entity and relation, as the inference engine is asked."""
        return self.snapshot.id(self.entity), self.relation

    def in_words(self, head: int, relation: int, tail: int) -> Triple:
        """A fact with oriented relation, by name and as it was stated."""
        names, size = self.snapshot.names, len(self.snapshot.names.relations)
        ends = self.snapshot.name_of(head), self.snapshot.name_of(tail)
        first, last = ends if relation < size else ends[::-1]
        return first, names.relation_names[relation % size], last


@dataclass(frozen=True, eq=False)
class Conclusions:
    """What rules conclude about entities, by the ids of a component; ``paths`` has what symmetric paths do, if apart.

    Without a component ids are those of the vocabulary.
    """

    names: Names
    component: NamedComponent | None
    found: VirtualNeighbors | None
    paths: VirtualNeighbors | None = None

    def groundings(self, fact: Fact) -> tuple[Grounding, ...]:
        """All groundings of one conclusion, strongest first."""
        return in_order(one for part, rows in self._rows_of(fact) for one in self._in_words(part, rows))

    def strongest(self, fact: Fact) -> Grounding | None:
        """The first of them; the others are not put into words."""
        best = [one for part, rows in self._rows_of(fact) for one in self._in_words(part, _strongest(part, rows))]
        return in_order(best)[0] if best else None

    def _rows_of(self, fact: Fact) -> Iterator[tuple[VirtualNeighbors, Rows]]:
        """Where the groundings of a conclusion stand."""
        triple = self._id(fact[0]), fact[1], self._id(fact[2])
        if self.found is not None:
            yield self.found, _rows_of(self.found, *triple)
        if self.paths is not None:
            rows = _rows_of(self.paths, *triple)
            yield self.paths, rows[self.paths.grounding_source[rows] == PATH]

    def _id(self, name: str) -> int:
        """The id that rules know an entity by."""
        known = self.names.entities.index.get(name, UNKNOWN)
        return known if known != UNKNOWN or self.component is None else self.component.id(name)

    def _name(self, identifier: int) -> str:
        if self.component is None:
            return self.names.entity_names[identifier]
        return self.component.name(identifier, self.names)

    def _in_words(self, virtual: VirtualNeighbors, rows: Rows) -> Iterator[Grounding]:
        """These groundings by name."""
        name, relations = self._name, self.names.relation_names
        # As lists: there may be hundreds, and single numbers of an array are slow to get at.
        columns = virtual.grounding_source, virtual.grounding_rule, virtual.grounding_strength, virtual.premises
        each = zip(*(column[rows].tolist() for column in columns), _supports(virtual, rows).tolist(), strict=True)
        for source, rule, strength, premises, support in each:
            if source == LOGIC:
                text = self.names.rule(virtual.rules, rule)
            else:
                text = virtual.path_rules.text(rule, self.names.relations)
            edges = (edge for edge in premises if edge[1] != NONE)
            facts = tuple((name(head), relations[relation], name(tail)) for head, relation, tail in edges)
            yield Grounding(text, strength, support, facts)


def _rows_of(virtual: VirtualNeighbors, head: int, relation: int, tail: int) -> Rows:
    """The groundings of this triple, which stands there at most once."""
    triples = virtual.triples
    which = np.flatnonzero((triples.tails == tail) & (triples.heads == head) & (triples.relations == relation))
    return np.arange(*virtual.offsets[which[0] : which[0] + 2]) if len(which) else np.empty(0, dtype=np.int64)


def _strongest(virtual: VirtualNeighbors, rows: Rows) -> Rows:
    """Those of which one comes first; only words could tell them apart."""
    if len(rows) < 2:
        return rows
    confidences = virtual.grounding_strength[rows]
    rounded = np.array([round(one, SHOWN) for one in confidences.tolist()])
    facts = (virtual.premises[rows, :, 1] != NONE).sum(axis=1)
    keep = np.arange(len(rows))
    for column in (-rounded, facts, -confidences, -_supports(virtual, rows)):
        keep = keep[column[keep] == column[keep].min()]
    return rows[keep]


def _supports(virtual: VirtualNeighbors, rows: Rows) -> npt.NDArray[np.int64]:
    rules, logic = virtual.grounding_rule[rows], virtual.grounding_source[rows] == LOGIC
    found = np.zeros(len(rules), dtype=np.int64)
    found[logic], found[~logic] = virtual.rules.support[rules[logic]], virtual.path_rules.common[rules[~logic]]
    return found


class Explanation:
    """The reasons for one answer; going through them gives the groundings, and as text it is the first one in words."""

    def __init__(self, query: Query, answer: str, k: int) -> None:
        self._query, self._answer, self._k = query, answer, k

    def __iter__(self) -> Iterator[Grounding]:
        return iter(self.groundings)

    def __len__(self) -> int:
        return len(self.groundings)

    def __str__(self) -> str:
        if self.strongest is not None:
            return f"because {self.strongest}"
        if self.weighed:
            head, relation, tail = self.weighed[0].fact
            return f"no rule infers it; {relation}({head}, {tail}) weighed most ({self.weighed[0].share:.0%})"
        return "no rule infers it"

    def __repr__(self) -> str:
        return f"Explanation({self._query.entity!r} and {self._answer!r})"

    @cached_property
    def groundings(self) -> tuple[Grounding, ...]:
        """The rules that infer the answer, each with its premises, strongest first."""
        found = next(filter(None, (concluded.groundings(self._fact) for concluded in self._concluded())), ())
        more = tuple(counted(self._query, self._answer))
        if not more:
            return found
        # A rule may have been mined and be counted as well: the stronger figure is the one that counts in the score.
        best: dict[tuple[str, tuple[Triple, ...]], Grounding] = {}
        for one in sorted([*found, *more], key=lambda one: one.confidence):
            best[one.rule, one.premises] = one
        return in_order(best.values())

    @cached_property
    def strongest(self) -> Grounding | None:
        """The first of the groundings, which is found sooner than all."""
        if self._query.online is not None:
            return next(iter(self.groundings), None)
        return next(filter(None, (concluded.strongest(self._fact) for concluded in self._concluded())), None)

    def to_dict(self) -> dict[str, Any]:
        """All reasons as plain values, which takes as long as working them out: `json.dumps` takes them."""
        names = ("groundings", "parts", "chains", "weighed", "similar", "without")
        return {name: plain(getattr(self, name)) for name in names}

    @property
    def _fact(self) -> Fact:
        return self._query.triple(self._answer)

    def _concluded(self) -> Iterator[Conclusions]:
        """What rules conclude about the ends of the answer: the first that has it tells why."""
        query, names = self._query, (self._query.entity, self._answer)
        new = [name for name in names if name in query.snapshot]
        if len(new) == len(names) and self._answer not in query.connected:
            return
        for name in new or names[:1]:
            yield query.concluded(name)

    @cached_property
    def weighed(self) -> tuple[Weighed, ...]:
        """The entity's known facts by the attention they have; none where the encoder has no query-aware layer."""
        return self._query.weighed

    @cached_property
    def similar(self) -> tuple[Similar, ...]:
        """The known answers to the same query that this one is similar to; none without ``model.graph_statistics``."""
        query, snapshot = self._query, self._query.snapshot.graph
        statistics = query.snapshot.engine.statistics(snapshot)
        if statistics is None:
            return ()
        entity, relation = query.ids
        answer = query.snapshot.id(self._answer)
        found = statistics.shared(entity, snapshot.overlay.answers(entity, relation), answer)
        total = sum(one.similarity for one in found)
        return tuple(
            Similar(
                query.snapshot.name_of(one.answer),
                one.similarity / total,
                tuple(query.in_words(one.answer, relation, end) for relation, end in one.features),
            )
            for one in found
        )

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The chains of at most 4 known facts by which messages lead to the answer, at most 3, strongest first.

        Each is measured by masking its facts. There are none where the model has no propagation network.
        """
        query, snapshot = self._query, self._query.snapshot
        network = query.snapshot.engine.propagation
        if network is None:
            return ()
        found = network.chains(snapshot.graph.overlay, *query.ids, snapshot.id(self._answer))
        return tuple(Chain(tuple(query.in_words(*fact) for fact in one.facts), one.loss) for one in found)

    @property
    def parts(self) -> dict[str, float]:
        """What each feature adds to the answer's score, which is their sum.

        There are none where the embedding alone decides (a model without ``model.ensemble``).
        """
        place = self._query.snapshot.id(self._answer)
        return {feature: float(part[place]) for feature, part in self._query.parts.items()}

    @cached_property
    def without(self) -> Triple | None:
        """A known fact of the newcomer without which the answer would not be among the first k.

        Facts are left out one at a time, those that the reasons name first, at most 20 of them. None where no single
        one decides, where the answer is not among the first k anyway, and where both ends are trained on.
        """
        query, snapshot, words = self._query, self._query.snapshot, self._query.snapshot.names.words
        if not query.finds(self._answer, self._k, snapshot):
            return None
        others = ((fact, snapshot.removed([fact])) for fact in self._facts_in_order()[:TRIES])
        return next((words(fact) for fact, other in others if not query.finds(self._answer, self._k, other)), None)

    def _facts_in_order(self) -> list[Fact]:
        """The newcomers' facts: those named by rules, then by attention, then the rest by name."""
        query, words = self._query, self._query.snapshot.names.words
        new = [name for name in (query.entity, self._answer) if name in query.snapshot]
        facts = {words(fact): fact for name in new[:1] for fact in sorted(query.snapshot.store[name])}
        named = [premise for grounding in self.groundings for premise in grounding.premises]
        named += [weighed.fact for weighed in self.weighed]
        first = dict.fromkeys(triple for triple in named if triple in facts)
        return [facts[triple] for triple in [*first, *(triple for triple in facts if triple not in first)]]


def counted(query: Query, answer: str) -> Iterator[Grounding]:
    """What the facts between the entity and the answer say by online rules."""
    online = query.online
    if online is None or query.entity == answer:
        return
    names, (entity, _) = query.snapshot.names, query.ids
    other, own = query.snapshot.id(answer), query.snapshot.graph.overlay.facts_of(entity)
    along = own[0][own[1] == other].tolist()
    if query.relation in along:  # it is known, and so needs no rule
        return
    for fact, relation in sorted((query.in_words(entity, relation, other), relation) for relation in along):
        if online.support[relation] > 0:
            rule = online.rule(relation)
            text = rule.text(names.relations, names.entities)
            yield Grounding(text, rule.smoothed_confidence, rule.support, (fact,), counted=True)


def in_order(found: Iterable[Grounding]) -> tuple[Grounding, ...]:
    """Groundings strongest first."""

    def key(one: Grounding) -> tuple[float, int, float, int, str, tuple[Triple, ...]]:
        # Of reasons that read alike in strength the shorter one goes first.
        return -round(one.confidence, SHOWN), len(one.premises), -one.confidence, -one.support, one.rule, one.premises

    return tuple(sorted(found, key=key))


@dataclass(frozen=True)
class Answer(Plain):
    """An entity that may complete a query.

    ``score`` orders the answers to one query. ``probability`` is that of the fact, whatever it is an answer to: that
    the relation applies to the entity and is not filled yet, and that the answer is right. ``if_any`` is how probable
    it is if the query has an answer that is not known. Where they are ``calibrated``, of the answers with a probability
    of 0.8 about 80 % were right on held-out newcomers; else both are the sigmoid of the score, or, of an ensemble, the
    answer's share in the softmax over all candidates. ``because`` is found when it is first looked at.
    """

    entity: str
    score: float
    probability: float
    if_any: float
    because: Explanation = field(compare=False, repr=False)
    calibrated: bool = False


@dataclass(frozen=True)
class Suggestion(Plain):
    """A fact that is likely missing; figures and reasons as in `Answer`."""

    fact: Triple
    score: float
    probability: float
    if_any: float
    because: Explanation = field(compare=False, repr=False)
    calibrated: bool = False
