"""Why an answer is given: the reasons for and against it, and the fact without which it would not be.

All of it is found when it is looked at, in the state of newcomers in which the question was asked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from newcomer.graph import Mask
from newcomer.models.engine import Scored
from newcomer.predictor.answers import Chain, Evidence, Grounding, Plain, Reason, Similar, Weighed, in_logic, plain
from newcomer.predictor.conclusions import Conclusions, in_order
from newcomer.predictor.fact_store import Fact, NamedComponent, NamedSnapshot, Triple, words_at
from newcomer.predictor.reasons import (
    NOTHING,
    RULES,
    Case,
    Parts,
    added_by_each,
    parts_of,
    readable,
    reason,
    typical_parts,
    without_parts,
)
from newcomer.rules.ranking import OnlineRules
from newcomer.rules.statistics import frequencies
from newcomer.rules.virtual_neighbors import Sought, VirtualNeighbors

UNNAMED = "?"  # stands for the entity asked about, where a fact of anyone is meant
TRIES = 20  # facts that are left out in turn to find the one that an answer hangs on


@dataclass(frozen=True, eq=False)
class Query:
    """What was asked: (entity, oriented relation, ?), in which snapshot, and whom a ranking leaves out."""

    snapshot: NamedSnapshot
    entity: str
    relation: int
    left_out: Mask
    explained: list[str] = field(default_factory=list)  # the answers whose reasons may be asked for
    _concluded: dict[tuple[str, bool, int], Conclusions] = field(default_factory=dict)  # needed so far

    @property
    def is_about_tails(self) -> bool:
        return self.relation < len(self.snapshot.names.relations)

    def triple(self, answer: str) -> Fact:
        """The fact that an answer states."""
        ends = (self.entity, answer) if self.is_about_tails else (answer, self.entity)
        return ends[0], self.relation % len(self.snapshot.names.relations), ends[1]

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
    def scored(self) -> Scored:
        """The scores of all candidates, and what they are made of."""
        return self.snapshot.engine.scored(self.snapshot.graph, *self.ids)

    @cached_property
    def typical(self) -> Parts:
        """The parts of the typical candidate's score (`newcomer.predictor.reasons`)."""
        return typical_parts(self.scored, ~self.left_out)

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
    def online(self) -> OnlineRules | None:
        """The online rules of the relation, if it has any; the same for all answers."""
        return self.snapshot.engine.online_rules(self.snapshot.graph, self.relation)

    @cached_property
    def connected(self) -> set[str]:
        """The newcomers that rules may lead to from the entity, if that is new."""
        return self.snapshot.connected(self.entity)

    def concluded(self, name: str, with_paths: bool) -> Conclusions:
        """What rules, and symmetric paths where they are asked for, conclude of the relation about one of the ends.

        Of all the answers that are explained at once: rules are followed as far for one as for all of them.
        """
        key = name, with_paths, len(self.explained)
        if key not in self._concluded:
            names, rules = self.snapshot.names, self.snapshot.engine.rules
            component = self.snapshot.component(name) if name in self.snapshot else None
            paths = self._paths(name, component) if with_paths else None
            empty = Conclusions(names, component, None, paths)
            search = with_paths and paths is None
            logic = rules.conclusions(component, empty.id(name), self._sought(name, empty), paths=search)
            self._concluded[key] = replace(empty, found=logic)
        return self._concluded[key]

    def _sought(self, name: str, known: Conclusions) -> Sought:
        """The conclusions about one end of the answers that join it to the other."""
        size = len(self.snapshot.names.relations)
        others, along = self.explained, self.relation
        if name != self.entity:
            others, along = [self.entity], (self.relation + size) % (2 * size)
        return Sought(along, np.array([known.id(other) for other in others], dtype=np.int32))

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


class Explanation:
    """The reasons for one answer, and all that they rest on; as text it is the best reason in words.

    Going through it gives the groundings.
    """

    def __init__(self, query: Query, answer: str, k: int) -> None:
        self._query, self._answer, self._k = query, answer, k
        query.explained.append(answer)

    def __iter__(self) -> Iterator[Grounding]:
        return iter(self.groundings)

    def __len__(self) -> int:
        return len(self.groundings)

    def __str__(self) -> str:
        return NOTHING if self.best is None else self.best.sentence

    def __repr__(self) -> str:
        return f"Explanation({self._query.entity!r} and {self._answer!r})"

    @property
    def parts(self) -> Mapping[str, float]:
        """What each feature adds to the answer's score, which is their sum.

        There are none where the embedding alone decides (a model without ``model.ensemble``).
        """
        return self._parts.of

    @cached_property
    def _parts(self) -> Parts:
        return parts_of(self._query.scored, self._query.snapshot.id(self._answer))

    @cached_property
    def adds(self) -> dict[str, float]:
        """What each feature adds to the answer's score beyond the typical candidate's, most first; none as `parts`."""
        return added_by_each(self._parts, self._query.typical)

    @property
    def typical(self) -> float | None:
        """The score of the typical candidate; with all that `adds` to it, it is the answer's. None as `parts`."""
        return sum(self._query.typical.of.values()) if self.parts else None

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """What speaks for the answer and what against it, by what it adds to the score: most comes first."""
        if not self.parts:
            return without_parts(self.groundings, self.weighed)
        found = (reason(self._case(name, added, brief=False)) for name, added in self.adds.items())
        return tuple(one for one in found if one is not None)

    @cached_property
    def best(self) -> Reason | None:
        """The first reason, if it speaks for the answer; what it rests on is found no further than its sentence needs.

        So the chains behind propagation are not looked for: that takes longer than all else together.
        """
        if not self.parts:
            rules = self._evidence(RULES, brief=True)
            return without_parts(rules, () if readable(rules) else self.weighed)[0]
        name, added = next(iter(self.adds.items()))
        return reason(self._case(name, added, brief=True)) if added > 0 else None

    def _case(self, feature: str, adds: float, brief: bool) -> Case:
        """One feature of the answer, ready to be put into words."""
        query, place = self._query, self._query.snapshot.id(self._answer)
        overlay, engine = query.snapshot.graph.overlay, query.snapshot.engine

        def frequency() -> int:
            statistics = engine.statistics(query.snapshot.graph)
            return int(frequencies(overlay, statistics, query.relation)[place])

        head, relation, tail = query.snapshot.names.words(query.triple(self._answer))
        asked = (UNNAMED, relation, tail) if query.is_about_tails else (head, relation, UNNAMED)
        is_unobserved = bool(overlay.is_unobserved[place])
        evidence = self._evidence(feature, brief or adds < 0)
        return Case(feature, adds, evidence, query.entity, in_logic([asked]), frequency, is_unobserved)

    def _evidence(self, feature: str, brief: bool) -> tuple[Evidence, ...]:
        """What a feature rests on; if ``brief``, only what the first sentence about it needs and is found soon."""
        match feature:
            case "rules":
                paths = not self.parts  # they are no part of an ensemble
                if not brief:
                    return tuple(one for one in self.groundings if paths or not one.is_path)
                strongest = self._strongest(paths)
                return () if strongest is None else (strongest,)
            case "embedding":
                return self.weighed
            case "propagation":
                return () if brief else self.chains
            case "similarity":
                return self._similar(1) if brief else self.similar
            case "linked":
                return self.links
        return ()

    @cached_property
    def groundings(self) -> tuple[Grounding, ...]:
        """The rules that infer the answer, each with its premises, strongest first."""
        found = next(
            filter(None, (concluded.groundings(self._fact) for concluded in self._concluded(with_paths=True))), ()
        )
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
        return self._strongest(with_paths=True)

    def _strongest(self, with_paths: bool) -> Grounding | None:
        if self._query.online is not None:
            return next((one for one in self.groundings if with_paths or not one.is_path), None)
        concluded = self._concluded(with_paths)
        return next(filter(None, (one.strongest(self._fact) for one in concluded)), None)

    def to_dict(self) -> dict[str, Any]:
        """All reasons as plain values, which takes as long as working them out: `json.dumps` takes them."""
        reasons = [{name: getattr(one, name) for name in ("feature", "adds", "sentence")} for one in self.reasons]
        names = ("groundings", "typical", "parts", "chains", "weighed", "similar", "links", "without")
        return {"reasons": reasons} | {name: plain(getattr(self, name)) for name in names}

    @property
    def _fact(self) -> Fact:
        return self._query.triple(self._answer)

    def _concluded(self, with_paths: bool) -> Iterator[Conclusions]:
        """What rules conclude about the ends of the answer: the first that has it tells why."""
        query, names = self._query, (self._query.entity, self._answer)
        new = [name for name in names if name in query.snapshot]
        if len(new) == len(names) and self._answer not in query.connected:
            return
        for name in new or names[:1]:
            yield query.concluded(name, with_paths)

    @cached_property
    def weighed(self) -> tuple[Weighed, ...]:
        """The entity's known facts by the attention they have; none where the encoder has no query-aware layer."""
        return self._query.weighed

    @cached_property
    def similar(self) -> tuple[Similar, ...]:
        """The known answers to the same query that this one is similar to; none without ``model.graph_statistics``."""
        return self._similar()

    def _similar(self, most: int | None = None) -> tuple[Similar, ...]:
        """The same, or the first of them."""
        query, snapshot = self._query, self._query.snapshot.graph
        statistics = query.snapshot.engine.statistics(snapshot)
        if statistics is None:
            return ()
        entity, relation = query.ids
        answer = query.snapshot.id(self._answer)
        found = statistics.shared(entity, snapshot.overlay.answers(entity, relation), answer, most)
        total = sum(one.similarity for one in found)
        return tuple(
            Similar(
                query.snapshot.name_of(one.answer),
                one.similarity / total,
                tuple(query.in_words(one.answer, relation, end) for relation, end in one.features),
            )
            for one in found[:most]
        )

    @cached_property
    def links(self) -> tuple[Triple, ...]:
        """The entity's own facts with the answer."""
        query = self._query
        entity, answer = query.snapshot.id(query.entity), query.snapshot.id(self._answer)
        relations, tails = query.snapshot.graph.overlay.facts_of(entity)
        found = {query.in_words(entity, relation, answer) for relation in relations[tails == answer].tolist()}
        return tuple(sorted(found))

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
