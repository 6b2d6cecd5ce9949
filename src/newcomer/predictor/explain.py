"""Why an answer is given: rules that infer it, facts that weighed most, and the fact without which it would not be.

All of it is found when it is looked at, in the state of newcomers in which the question was asked.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from newcomer.graph import Mask
from newcomer.predictor.answers import Alike, Chain, Grounding, Weighed
from newcomer.predictor.engine import InferenceEngine, Scores
from newcomer.predictor.fact_store import Fact, Group, Triple
from newcomer.predictor.snapshot import State
from newcomer.rules.online import OnlineRules
from newcomer.rules.rule import NONE
from newcomer.rules.virtual_neighbors import LOGIC, PATH, VirtualNeighbors

SHOWN = 2  # digits of a confidence that a reader sees
TRIES = 20  # facts that are left out in turn to find the one that an answer hangs on


@dataclass(frozen=True, eq=False)
class Query:
    """What was asked: (entity, oriented relation, ?), in which state, and whom a ranking leaves out."""

    mind: InferenceEngine
    state: State
    entity: str
    relation: int
    left_out: Mask

    def triple(self, answer: str) -> Fact:
        """The fact that an answer states."""
        size = self.mind.model.num_relations
        ends = (self.entity, answer) if self.relation < size else (answer, self.entity)
        return ends[0], self.relation % size, ends[1]

    def rank_in(self, state: State, answer: str) -> int | None:
        """The answer's place in another state, among the candidates of this query; None where an end is gone."""
        if not all(name in state.seats or self.mind.names.seen(name) >= 0 for name in (self.entity, answer)):
            return None
        scores = self.mind.scores(state, self.entity, self.relation)
        place, seen = state.candidate(answer), self.mind.names.num_seen
        mask = np.zeros(len(scores), dtype=bool)
        mask[:seen] = self.left_out[:seen]
        for other in np.flatnonzero(self.left_out[seen:]):
            name = self.state.newcomers[other]
            if name in state.seats:
                mask[state.place(name)] = True
        mask[place] = False
        return rank_of(scores, place, mask)

    @cached_property
    def weighed(self) -> tuple[Weighed, ...]:
        """The entity's known facts by the attention they have; the same for all answers."""
        return attention(self.mind, self.state, self.entity, self.relation)

    @cached_property
    def parts(self) -> dict[str, Scores]:
        """What each voice adds to the scores of all candidates."""
        return self.mind.parts(self.state, self.entity, self.relation)

    @cached_property
    def ties(self) -> OnlineRules | None:
        """What speaks beside rules, if anything does; the same for all answers."""
        return self.mind.ties(self.state, self.relation)

    @cached_property
    def tied(self) -> set[str]:
        """The newcomers that rules may come to from the entity, if that is new."""
        return self.mind.tied(self.state.book, self.entity)

    @cached_property
    def conclusions(self) -> dict[str, "Conclusions"]:
        """What rules conclude of the relation about entities that were needed so far."""
        return {}

    def concluded(self, name: str) -> "Conclusions":
        """What rules conclude of the relation about an entity."""
        if name not in self.conclusions:
            mind, new = self.mind, name in self.state.seats
            group = mind.group(self.state, name) if new else None
            entity = mind.names.seen(name) if group is None else group.id(name)
            paths = self._paths(name, group)
            relation = self.relation % mind.model.num_relations
            logic = mind.walks.conclusions(group, entity, relation, walk=paths is None)
            self.conclusions[name] = Conclusions(mind, group, logic, paths)
        return self.conclusions[name]

    def _paths(self, name: str, group: Group | None) -> VirtualNeighbors | None:
        """What was concluded when a newcomer came, where that spares another walk for symmetric paths."""
        if group is None or not self.mind.walks.has_all_paths(group):
            return None
        arrival = self.state.seats[name].arrival
        return arrival.virtual if arrival.group is group else None


@dataclass(frozen=True, eq=False)
class Conclusions:
    """What rules conclude about an entity, in the ids of its group; ``paths`` has what symmetric paths do, if apart."""

    mind: InferenceEngine
    group: Group | None
    found: VirtualNeighbors | None
    paths: VirtualNeighbors | None

    def groundings(self, fact: Fact) -> tuple[Grounding, ...]:
        """All groundings of one conclusion, strongest first."""
        return in_order(one for part in self._parts(fact) for one in part.told(self.mind, self.group))

    def strongest(self, fact: Fact) -> Grounding | None:
        """The first of them; the others are not put into words."""
        best = [one for part in self._parts(fact) for one in part.strongest().told(self.mind, self.group)]
        return in_order(best)[0] if best else None

    def _parts(self, fact: Fact) -> list["Grounds"]:
        ends = ends_of(self.mind, self.group, fact)
        found = [] if self.found is None else [Grounds.of(self.found, *ends)]
        return found if self.paths is None else [*found, Grounds.of(self.paths, *ends).by(PATH)]


@dataclass(frozen=True, eq=False)
class Grounds:
    """The groundings of one conclusion: rows of those of all."""

    virtual: VirtualNeighbors
    rows: npt.NDArray[np.int64]

    @classmethod
    def of(cls, virtual: VirtualNeighbors, head: int, relation: int, tail: int) -> "Grounds":
        """Of this triple, which stands there at most once."""
        triples = virtual.triples
        which = np.flatnonzero((triples.tails == tail) & (triples.heads == head) & (triples.relations == relation))
        spans = [np.arange(virtual.offsets[row], virtual.offsets[row + 1]) for row in which.tolist()]
        return cls(virtual, spans[0] if spans else np.empty(0, dtype=np.int64))

    def by(self, source: int) -> "Grounds":
        """Those by logic rules, or by symmetric paths."""
        return replace(self, rows=self.rows[self.virtual.grounding_source[self.rows] == source])

    def strongest(self) -> "Grounds":
        """Those of which one comes first; only words could tell them apart."""
        if len(self.rows) < 2:
            return self
        confidences = self.virtual.grounding_strength[self.rows]
        rounded = np.array([round(one, SHOWN) for one in confidences.tolist()])
        facts = (self.virtual.premises[self.rows, :, 1] != NONE).sum(axis=1)
        keep = np.arange(len(self.rows))
        for column in (-rounded, facts, -confidences, -self._supports()):
            keep = keep[column[keep] == column[keep].min()]
        return replace(self, rows=self.rows[keep])

    def _supports(self) -> npt.NDArray[np.int64]:
        virtual, rules = self.virtual, self.virtual.grounding_rule[self.rows]
        logic, found = virtual.grounding_source[self.rows] == LOGIC, np.zeros(len(rules), dtype=np.int64)
        found[logic], found[~logic] = virtual.rules.support[rules[logic]], virtual.path_rules.common[rules[~logic]]
        return found

    def told(self, mind: InferenceEngine, group: Group | None) -> Iterator[Grounding]:
        """In words."""
        names, virtual = mind.names, self.virtual

        def name(identifier: int) -> str:
            return names.entity(identifier) if group is None else group.name(identifier, names)

        # As lists: there may be hundreds, and single numbers of an array are slow to get at.
        columns = virtual.grounding_source, virtual.grounding_rule, virtual.grounding_strength, virtual.premises
        rows = zip(*(column[self.rows].tolist() for column in columns), self._supports().tolist(), strict=True)
        for source, rule, strength, premises, support in rows:
            if source == LOGIC:
                text = mind.rule_text(virtual.rules, rule)
            else:
                text = virtual.path_rules.text(rule, names.relations)
            facts = tuple(
                (name(head), names.relation_name(relation), name(tail))
                for head, relation, tail in premises
                if relation != NONE
            )
            yield Grounding(text, strength, support, facts)


def rank_of(scores: Scores, place: int, left_out: Mask) -> int:
    """The place of a candidate, from 1; of equals the first counts as better."""
    better = scores > scores[place]
    better[:place] |= scores[:place] == scores[place]
    return int((better & ~left_out).sum()) + 1


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
        ties = self._query.ties
        more = () if ties is None else tuple(counted(self._query, ties, self._answer))
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
        if self._query.ties is not None:
            return next(iter(self.groundings), None)
        return next(filter(None, (concluded.strongest(self._fact) for concluded in self._concluded())), None)

    @property
    def _fact(self) -> Fact:
        return self._query.triple(self._answer)

    def _concluded(self) -> Iterator[Conclusions]:
        """What rules conclude about the ends of the answer: the first that has it tells why."""
        query, names = self._query, (self._query.entity, self._answer)
        new = [name for name in names if name in query.state.seats]
        if len(new) == len(names) and self._answer not in query.tied:
            return
        for name in new or names[:1]:
            yield query.concluded(name)

    @cached_property
    def weighed(self) -> tuple[Weighed, ...]:
        """The entity's known facts by the attention they have; none where the encoder has no query-aware layer."""
        return self._query.weighed

    @cached_property
    def alike(self) -> tuple[Alike, ...]:
        """The known answers to the same question that this one is like; none without ``model.graph_statistics``."""
        query = self._query
        return query.mind.alike(query.state, query.entity, query.relation, self._answer)

    @cached_property
    def ways(self) -> tuple[Chain, ...]:
        """The chains of at most 4 known facts by which paths lead to the answer, at most 3, strongest first.

        Each is asked for by hiding its facts. There are none where the model has no paths (``model.propagation``).
        """
        query = self._query
        return query.mind.ways(query.state, query.entity, query.relation, self._answer)

    @property
    def parts(self) -> dict[str, float]:
        """What network, rules and counts each add to the answer's score, which is their sum.

        There are none where the network alone decides (a model without ``model.ensemble``).
        """
        place = self._query.state.candidate(self._answer)
        return {voice: float(part[place]) for voice, part in self._query.parts.items()}

    @cached_property
    def without(self) -> Triple | None:
        """A known fact of the newcomer without which the answer would not be among the first k.

        Facts are left out one at a time, those that the reasons name first, at most 20 of them. None where no single
        one decides, where the answer is not among the first k anyway, and where both ends are trained on.
        """
        query, state = self._query, self._query.state
        rank = query.rank_in(state, self._answer)
        if rank is None or rank > self._k:
            return None
        for fact in self._facts_in_order()[:TRIES]:
            other = query.mind.removed(state, [fact])
            rank = query.rank_in(other, self._answer)
            if rank is None or rank > self._k:
                return query.mind.names.words(fact)
        return None

    def _facts_in_order(self) -> list[Fact]:
        """The newcomers' facts: those named by rules, then by attention, then the rest by name."""
        query, words = self._query, self._query.mind.names.words
        new = [name for name in (query.entity, self._answer) if name in query.state.seats]
        facts = {words(fact): fact for name in new[:1] for fact in sorted(query.state.book.facts[name])}
        named = [premise for grounding in self.groundings for premise in grounding.premises]
        named += [weighed.fact for weighed in self.weighed]
        first = dict.fromkeys(triple for triple in named if triple in facts)
        return [facts[triple] for triple in [*first, *(triple for triple in facts if triple not in first)]]


def counted(query: Query, ties: OnlineRules, answer: str) -> Iterator[Grounding]:
    """What the facts between the entity and the answer say, where ties are counted."""
    names, size = query.mind.names, query.mind.model.num_relations
    facts = query.mind.facts_between(query.state, query.entity, answer)
    if query.triple(answer) in facts:  # it is known, and so needs no rule
        return
    for fact in facts:
        relation = fact[1] if fact[0] == query.entity else fact[1] + size
        if ties.support[relation] > 0:
            rule = ties.rule(relation)
            text = rule.text(names.relations, names.entities)
            yield Grounding(text, rule.smoothed_confidence, rule.support, (names.words(fact),), counted=True)


def groundings_of(
    mind: InferenceEngine, virtual: VirtualNeighbors | None, group: Group | None, fact: Fact
) -> tuple[Grounding, ...]:
    """All groundings of one conclusion, strongest first."""
    return Conclusions(mind, group, virtual, None).groundings(fact)


def ends_of(mind: InferenceEngine, group: Group | None, fact: Fact) -> tuple[int, int, int]:
    """A fact by the ids that rules know its ends by."""
    ends = []
    for name in (fact[0], fact[2]):
        seen = mind.names.seen(name)
        ends.append(seen if seen >= 0 or group is None else group.id(name))
    return ends[0], fact[1], ends[1]


def in_order(found: Iterable[Grounding]) -> tuple[Grounding, ...]:
    """Groundings strongest first."""

    def key(one: Grounding) -> tuple[float, int, float, int, str, tuple[Triple, ...]]:
        # Of reasons that read alike in strength the shorter one is the better told.
        return -round(one.confidence, SHOWN), len(one.premises), -one.confidence, -one.support, one.rule, one.premises

    return tuple(sorted(found, key=key))


def attention(mind: InferenceEngine, state: State, entity: str, relation: int) -> tuple[Weighed, ...]:
    """The known facts of an entity by the share of the query-aware layer's attention that each has."""
    seat, embedder = state.seat(entity), mind.embedder
    with torch.no_grad():
        if seat is not None:
            graph, row = seat.arrival.graph, seat.place
            shares = embedder.shares(seat.arrival.states, seat.place, relation)
        else:
            graph, row = embedder.graph, mind.names.seen(entity)
            states, _ = embedder.around(torch.tensor([row], device=mind.device))
            shares = embedder.shares(states, 0, relation)
    if shares is None:
        return ()
    edges = slice(int(graph.rows.offsets[row]), int(graph.rows.offsets[row + 1]))
    sources = graph.sources[edges].tolist()
    total: dict[int, float] = {}
    for source, share in zip(sources, shares.tolist(), strict=True):
        if source < len(graph.facts):
            total[source] = total.get(source, 0.0) + share  # a fact about an entity and itself is two edges
    words = mind.words_at(graph.facts[list(total)], seat)
    facts = zip(words, total.values(), strict=True)
    return tuple(Weighed(fact, share) for fact, share in sorted(facts, key=lambda one: (-one[1], one[0])))
