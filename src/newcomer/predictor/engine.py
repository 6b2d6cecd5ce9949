"""A loaded model: it makes states of newcomers (`newcomer.predictor.snapshot`), and scores what is asked in them."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from threading import RLock
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.errors import DatasetError
from newcomer.graph import UNKNOWN, Mask
from newcomer.models.bundle import Bundle
from newcomer.models.embedding.scorer import CERTAIN, Inferred, ModelScorer, lifted
from newcomer.models.ensemble import EnsembleScorer, features_of
from newcomer.models.propagation.own import Paths
from newcomer.models.propagation.wide import WidePaths
from newcomer.models.serialisation import (
    NEWCOMER_LABELS,
    NEWCOMER_SUPPORT,
    NEWCOMER_VECTORS,
    SUPPORT,
    beside,
    ensemble_weights_of,
    load_model,
    paths_of,
    with_neighbors,
)
from newcomer.predictor.answers import Alike, Chain
from newcomer.predictor.fact_store import Fact, Facts, FactStore, Group, Names, Stored, Triple
from newcomer.predictor.hearing import Hearing
from newcomer.predictor.own_paths import OwnPaths
from newcomer.predictor.slots import FirstSlots, Slot, Slots, slots_of
from newcomer.predictor.snapshot import State
from newcomer.predictor.vectors import Arrival, Embedder
from newcomer.predictor.walks import Walks
from newcomer.rules.online import OnlineRules
from newcomer.rules.ranking import Evidence, RuleRanker
from newcomer.rules.rule import RuleSet

NOBODY = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)  # for those who were asked already
TABLE_BYTES = 1 << 30  # of vectors that are kept for queries to come
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Table:
    """Vectors of all candidates for one query: of the seen entities, and of each arrival that was needed so far."""

    seen: Tensor
    arrived: WeakKeyDictionary[Arrival, Tensor] = field(default_factory=WeakKeyDictionary)


@dataclass(frozen=True, eq=False)
class _Heard:
    """What network or rules said, for the formula that blends them."""

    said: Scores | Evidence
    num_entities: int

    def scores(self, *_: object) -> Scores:
        return cast(Scores, self.said)

    def evidence(self, *_: object) -> Evidence:
        return cast(Evidence, self.said)


class InferenceEngine:
    """A loaded model: makes states, and scores candidates in them."""

    def __init__(self, bundle: Bundle, device: torch.device, threads: int | None = None) -> None:
        settings, bundle = bundle.config.model, with_neighbors(bundle, threads)
        model, labels, graph = load_model(bundle, device, threads)
        self.observed, self.neighbors = bundle.observed, bundle.neighbors
        self.names = Names(bundle.observed.entities, bundle.observed.relations, graph.num_entities)
        self.blend, self.network_of_paths = ensemble_weights_of(bundle), paths_of(bundle)
        self.walks = Walks.of(bundle, graph.num_entities, self.blend is not None)
        support = beside(bundle, SUPPORT, device, len(graph.virtual))
        options = settings.labels, settings.soft_label_c, settings.constrained
        self.embedder = Embedder(model, graph, labels, *options, support)
        self.model, self.device = model, device
        self.inferred = _inferred(self.embedder)
        size = len(self.names.entities) * settings.dim * 4
        self._keep = max(4, TABLE_BYTES // size) if model.encoder.query_aware else 1
        self._tables: OrderedDict[int, _Table] = OrderedDict()
        self._inferred_later: WeakKeyDictionary[Arrival, Arrival] = WeakKeyDictionary()
        self._texts: WeakKeyDictionary[RuleSet, dict[int, str]] = WeakKeyDictionary()
        self._last_told: tuple[State, str, int, Scores] | None = None
        self._lock = RLock()
        self._first: State | None = None
        self.hearing: Hearing | None = None
        self.own_paths: OwnPaths | None = None  # where each is asked about by its own facts
        self._first = self._start(bundle, threads)

    @property
    def first(self) -> State:
        """The state after loading."""
        return cast(State, self._first)

    def _start(self, bundle: Bundle, threads: int | None) -> State:
        """All newcomers that the model was written with, at once."""
        stored = Stored.of(bundle.auxiliary, self.names)
        network, wide = self.network_of_paths, None
        if network is not None and bundle.config.model.propagates_newcomers:
            wide = WidePaths(network, self.observed, stored.triples, self.names.num_seen, self.device)
        elif network is not None:
            paths = Paths(network, self.observed, self.names.num_seen, self.device)
            self.own_paths = OwnPaths(paths, self.names)
        if self.blend is not None and bundle.config.model.graph_statistics:
            self.hearing = Hearing(self.observed, stored, self.names, wide)
        if not stored.newcomers:
            return State(self.names, FactStore(Facts(stored, {})), Slots(FirstSlots(None), {}))
        group, virtual = Group.stored(stored), bundle.newcomer_neighbors
        if virtual is None or NEWCOMER_LABELS not in bundle.weights:
            virtual = self.walks.ground(group, threads)
            arrival = self.embedder.arrive(group, virtual)
        else:
            labels = beside(bundle, NEWCOMER_LABELS, self.device, len(virtual))
            support = beside(bundle, NEWCOMER_SUPPORT, self.device, len(virtual))
            vectors = self._solved(bundle, group)
            arrival = self.embedder.arrive(group, virtual, labels, support, vectors)
        return State(self.names, FactStore(Facts(stored, {})), Slots(FirstSlots(arrival), {}))

    def _solved(self, bundle: Bundle, group: Group) -> Tensor | None:
        """(newcomers, d): the stored newcomers as they were solved for when the model was written, if they were."""
        vectors, seen = beside(bundle, NEWCOMER_VECTORS, self.device), self.names.num_seen
        if vectors is None:
            return None
        expected = len(self.names.entities) - seen, self.embedder.states.layers[0].shape[1]
        if vectors.shape != expected:
            shape = " x ".join(map(str, vectors.shape))
            wanted = f"{expected[0]} x {expected[1]}"
            raise DatasetError(f"the model has {NEWCOMER_VECTORS} of {shape}, not {wanted}; train it again")
        return vectors[self._ids((group.ids - seen).tolist())]

    def added(self, state: State, facts: Iterable[Fact]) -> State:
        """The state with more facts."""
        stated = list(facts)
        return self._changed(state, state.book.with_facts(stated, self.names), stated)

    def removed(self, state: State, facts: Iterable[Fact]) -> State:
        """The state without some facts; newcomers that are left with none go."""
        stated = list(facts)
        return self._changed(state, state.book.without_facts(stated), stated)

    def _changed(self, state: State, book: FactStore, facts: list[Fact]) -> State:
        """The state with another book: newcomers whom these facts do not concern keep their seats, to the bit."""
        concerned = {name for fact in facts for name in (fact[0], fact[2])}
        if self.walks.names_newcomers:
            concerned |= state.seats.keys()
        # Whoever was tied to an end of such a fact still is, so that all it concerns are found from its ends.
        seats: dict[str, Slot | None] = dict.fromkeys(name for name in concerned if name in state.seats)
        waiting = {name for name in concerned if name in book.facts}
        while waiting:
            members = self.tied(book, min(waiting))
            waiting -= members
            seats |= self._seats_at_start(members, book) or self._seated(members, book)
        return State(self.names, book, state.seats.but(seats))

    def tied(self, book: FactStore, name: str) -> set[str]:
        """The newcomers whose vectors depend on each other."""
        return set(book.facts) if self.walks.names_newcomers else book.tied(name)

    def _seats_at_start(self, members: set[str], book: FactStore) -> dict[str, Slot] | None:
        """The seats that these newcomers had after loading, if they have the same facts again."""
        start = self._first
        if start is None or not all(start.book.facts.get(name) == book.facts[name] for name in members):
            return None
        if self.walks.names_newcomers and len(members) < len(start.seats):
            return None
        return {name: start.seats[name] for name in members}

    def _seated(self, members: Iterable[str], book: FactStore) -> dict[str, Slot]:
        group = Group.of(members, book, self.names)
        virtual = self.walks.ground(group) if self.embedder.uses_virtual_edges else None
        return slots_of(self.embedder.arrive(group, virtual))

    def inferred_seat(self, seat: Slot) -> Slot:
        """The seat with what rules infer about those who came; found now where their vectors did not need it."""
        arrival = seat.arrival
        if self.embedder.uses_virtual_edges or arrival.virtual is not None:
            return seat
        with self._lock:
            if arrival not in self._inferred_later:
                vectors = arrival.states.layers[0][len(arrival.near) :]
                virtual = self.walks.ground(arrival.group)
                self._inferred_later[arrival] = self.embedder.arrive(arrival.group, virtual, vectors=vectors)
            return Slot(self._inferred_later[arrival], seat.number)

    def group(self, state: State, name: str) -> Group:
        """A newcomer with those it is tied to."""
        arrival = state.seats[name].arrival
        if arrival not in state.seats.first.arrivals:  # there everyone is together, tied or not
            return arrival.group
        return Group.of(self.tied(state.book, name), state.book, self.names)

    def vector(self, state: State, name: str, query: int) -> Tensor:
        """(1, d): an entity as an oriented relation asks for it."""
        seat = state.seat(name)
        with torch.no_grad():
            if seat is not None:
                return self.embedder.encoder.embed(seat.arrival.states, self._ids([seat.place]), self._ids([query]))
            return self.embedder.seen(self._ids([self.names.seen(name)]), self._ids([query]))

    def plain_vector(self, state: State, name: str) -> Tensor:
        """(1, d): an entity as it is when nothing is asked."""
        seat = state.seat(name)
        with torch.no_grad():
            if seat is not None:
                return self.embedder.plain(seat.arrival.states, self._ids([seat.place]))
            return self.embedder.plain_seen(self._ids([self.names.seen(name)]))

    def plain_vectors(self, state: State) -> Tensor:
        """(candidates, d): everyone as they are when nothing is asked."""
        with torch.no_grad():
            everyone = torch.arange(self.names.num_seen, device=self.device)
            seen = self.embedder.plain(self.embedder.states, everyone)
            parts = [self.embedder.plain(arrival.states, arrival.everyone) for arrival in state.seats.arrivals]
            return self._followed(state, seen, parts)

    def words_at(self, triples: Tensor, seat: Slot | None) -> list[Triple]:
        """By name triples (n, 3) of ids, or of the places of an arrival."""
        heads, relations, tails = triples.cpu().numpy().T
        of_relations = self.names.relations.names_of(relations)
        return list(zip(self._names_at(heads, seat), of_relations, self._names_at(tails, seat), strict=True))

    def _names_at(self, ends: npt.NDArray[np.integer], seat: Slot | None) -> list[str]:
        name = self.names.entity
        if seat is None:
            return [name(end) for end in ends.tolist()]
        near, newcomers = seat.arrival.near.tolist(), seat.arrival.group.names
        return [name(near[end]) if end < len(near) else newcomers[end - len(near)] for end in ends.tolist()]

    def rule_text(self, rules: RuleSet, row: int) -> str:
        """A rule in words; many answers have the same."""
        texts = self._texts.setdefault(rules, {})
        if row not in texts:
            texts[row] = rules[row].text(self.names.relations, self.names.entities)
        return texts[row]

    def _ids(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def scores(self, state: State, name: str, relation: int) -> Scores:
        """(candidates,): everyone as an answer to (entity, oriented relation, ?)."""
        if self.blend is None:
            return self.network_scores(state, name, relation)
        blended: Scores = self._blended(state, name, relation, self.blend).scores(*NOBODY)[0]
        return blended

    def parts(self, state: State, name: str, relation: int) -> dict[str, Scores]:
        """(candidates,) each: what every voice adds to the scores; none where one alone decides."""
        if self.blend is None:
            return {}
        parts = self._blended(state, name, relation, self.blend).parts(*NOBODY)
        voices = features_of(self.hearing is not None, self.network_of_paths is not None)
        return {voice: part[0] for voice, part in zip(voices, parts, strict=True)}

    def _blended(self, state: State, name: str, relation: int, blend: Scores) -> EnsembleScorer:
        """What network and rules say, ready to be weighed."""
        scores = self.network_scores(state, name, relation)
        network = cast(ModelScorer, _Heard(scores[None], len(scores)))
        rules = cast(RuleRanker, _Heard(self._evidence(state, name, relation), len(scores)))
        told = self.path_scores(state, name, relation)
        paths = None if told is None else _Heard(told[None], len(told))
        return EnsembleScorer(network, rules, blend, paths)

    def path_scores(self, state: State, name: str, relation: int) -> Scores | None:
        """(candidates,): what paths say of everyone; None where they have no say."""
        if self.network_of_paths is None:
            return None
        last = self._last_told  # reasons come after answers, and to go along all edges again takes its time
        if last is not None and last[0] is state and last[1:3] == (name, relation):
            return last[3]
        scores = self._told_by_paths(state, name, relation)
        self._last_told = state, name, relation, scores
        return scores

    def _told_by_paths(self, state: State, name: str, relation: int) -> Scores:
        over_all = None if self.hearing is None else self.hearing.paths_say(state, name, relation)
        if over_all is not None:
            return over_all
        return cast(OwnPaths, self.own_paths).say(state, name, relation)

    def ways(self, state: State, name: str, relation: int, answer: str) -> tuple[Chain, ...]:
        """The facts along which paths lead to an answer; none where paths have no say."""
        over_all = None if self.hearing is None else self.hearing.ways(state, name, relation, answer)
        if over_all is not None:
            return over_all
        return () if self.own_paths is None else self.own_paths.ways(state, name, relation, answer)

    def network_scores(self, state: State, name: str, relation: int) -> Scores:
        """(candidates,): the same by the network alone, with what rules infer scored by its label where that is set."""
        vector, decoder = self.vector(state, name, relation), self.model.decoder
        with torch.no_grad():
            query = decoder.query_vector(vector, decoder.relation_vectors(self._ids([relation])))
            seen, arrived = self._candidates(state, relation)
            # One by one: a product of matrices would round a newcomer's score differently with the number of them.
            newcomers = [decoder.fit_pairs(query.expand_as(vectors), vectors) for vectors in arrived]
            of_seen = decoder.fit_candidates(query, seen)[0]
            scores = self._followed(state, of_seen, newcomers).float()[None]
            answers, added = self._lifts(state, name, relation)
            if len(answers):
                Inferred(torch.zeros_like(answers), answers, added).lift(scores, self._ids([0]))
        found: Scores = scores[0].cpu().numpy()
        return found

    def triple_score(self, state: State, head: str, relation: int, tail: str) -> float:
        """The score of one triple: by the blend as an answer among all, else by itself."""
        answer = state.candidate(tail)
        if self.blend is not None:
            return float(self.scores(state, head, relation)[answer])
        if self.model.answers_by_input and state.seat(tail) is not None and state.seat(head) is None:
            # A newcomer is asked about, whichever end it is.
            head, relation, tail = tail, (relation + self.model.num_relations) % (2 * self.model.num_relations), head
            answer = state.candidate(tail)
        ends = self.vector(state, head, relation), self._answer(state, tail, relation)
        with torch.no_grad():
            score = self.model.decoder.triples(ends[0], self._ids([relation]), ends[1]).float()
            answers, added = self._lifts(state, head, relation)
            mine = answers == answer
            if bool(mine.any()):
                score = lifted(score, added[mine][:1], score.new_tensor(CERTAIN))
        return float(score[0])

    def _answer(self, state: State, name: str, relation: int) -> Tensor:
        """(1, d): an entity as an answer to an oriented relation."""
        if self.model.answers_by_input and state.seat(name) is None:
            return self.embedder.states.layers[0][self._ids([self.names.seen(name)])]
        if self.model.answers_by_input:
            return self.plain_vector(state, name)
        return self.vector(state, name, (relation + self.model.num_relations) % (2 * self.model.num_relations))

    def _candidates(self, state: State, relation: int) -> tuple[Tensor, list[Tensor]]:
        """(seen, d), and (newcomers, d) of each arrival: vectors to compare with what (?, relation) looks for."""
        query = (relation + self.model.num_relations) % (2 * self.model.num_relations)
        query = query if self.model.encoder.query_aware and not self.model.answers_by_input else 0
        with self._lock:
            table = self._tables.get(query) or _Table(self.embedder.everyone(query))
            self._tables[query] = table
            self._tables.move_to_end(query)
            while len(self._tables) > self._keep:
                self._tables.popitem(last=False)

            missing = [arrival for arrival in state.seats.arrivals if arrival not in table.arrived]
            table.arrived.update(zip(missing, self.embedder.all_arrived(missing, query), strict=True))
            return table.seen, [table.arrived[arrival] for arrival in state.seats.arrivals]

    def _followed(self, state: State, seen: Tensor, parts: list[Tensor]) -> Tensor:
        """A row for each candidate, of rows for the seen entities and for each arrival."""
        if not parts:
            return seen
        return torch.cat([seen, torch.cat(parts)[torch.from_numpy(state.seats.rows).to(self.device)]])

    def _lifts(self, state: State, name: str, relation: int) -> tuple[Tensor, Tensor]:
        """Candidates that rules infer as answers, and what they add to the probability of each."""
        if self.inferred is None:
            return self._ids([]), torch.empty(0, device=self.device)
        seat = state.seat(name)
        arrivals = state.seats.arrivals if seat is None else [seat.arrival]
        found = [self._lifts_of(state, arrival, name, relation) for arrival in arrivals]
        if seat is None:
            key = self._ids([self.names.seen(name) * 2 * self.model.num_relations + relation])
            first, end = (int(torch.searchsorted(self.inferred.keys, key, right=right)) for right in (False, True))
            found.append((self.inferred.answers[first:end], self.inferred.added[first:end]))
        return torch.cat([answers for answers, _ in found]), torch.cat([added for _, added in found])

    def _lifts_of(self, state: State, arrival: Arrival, name: str, relation: int) -> tuple[Tensor, Tensor]:
        group, virtual, size = arrival.group, arrival.virtual, self.model.num_relations
        if virtual is None or arrival.added is None or len(virtual) == 0:
            return self._ids([]), torch.empty(0, device=self.device)
        triples, asked = virtual.triples, group.id(name) if name in state.seats else self.names.seen(name)
        starts, ends = (triples.heads, triples.tails) if relation < size else (triples.tails, triples.heads)
        which = np.flatnonzero((starts == asked) & (triples.relations == relation % size))
        others = [group.name(int(end), self.names) for end in ends[which]]
        there = [place for place, other in enumerate(others) if self._sits(state, other, arrival)]
        answers = self._ids([state.candidate(others[place]) for place in there])
        return answers, arrival.added[torch.from_numpy(which[there]).to(self.device)]

    def _sits(self, state: State, name: str, arrival: Arrival) -> bool:
        """Whether an entity is seen, or a newcomer that still has the seat it took with this arrival."""
        if name in state.seats:
            return state.seats[name].arrival is arrival
        return self.names.seen(name) != UNKNOWN

    def _evidence(self, state: State, name: str, relation: int) -> Evidence:
        """What rules say of every candidate; one row."""
        group, seen, ties = self._asking_group(state, name), self.names.seen(name), self.ties(state, relation)
        if group is None:
            starts = state.starts if self.walks.about_anyone(seen, relation) else None
            found = self.walks.evidence(None, seen, relation, starts, ties)
        else:
            found = self.walks.evidence(group, group.id(name) if name in state.seats else seen, relation, ties=ties)
        of_candidates = [one.name for one in fields(Evidence) if one.name not in ("facts", "likeness")]
        rows = {one: self._by_candidate(state, group, getattr(found, one)[0]) for one in of_candidates}
        rows["unseen"][self.names.num_seen :] = 1.0  # all who arrived, those whom no rule may come to as well
        if self.hearing is not None:
            rows["frequency"], rows["likeness"] = self.hearing.says(state, name, relation)
        return Evidence(**{name: row[None] for name, row in rows.items()}, facts=found.facts)

    def _asking_group(self, state: State, name: str) -> Group | None:
        """The newcomers whose facts rules may walk over from an entity."""
        if name in state.seats:
            return self.group(state, name)
        return state.everyone if self.walks.names_newcomers and state.seats else None

    def _by_candidate(
        self, state: State, group: Group | None, values: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        row = np.zeros(state.num_candidates)
        if group is None:  # then newcomers, if any are reached, stand at their places already
            size = min(len(values), len(row))
            row[:size] = values[:size]
            return row
        row[: self.names.num_seen] = values[: self.names.num_seen]
        row[[state.place(name) for name in group.names]] = values[group.ids]
        return row

    def known(self, state: State, name: str, relation: int) -> Mask:
        """(candidates,): who is known to be an answer."""
        mask = np.zeros(state.num_candidates, dtype=bool)
        if name in state.seats:
            mask[[state.candidate(one) for one in state.book.answers(name, relation, self.names)]] = True
            return mask
        relations, tails = self.observed.adjacency.of(self.names.seen(name))
        mask[tails[relations == relation]] = True
        mask[[state.place(other) for asked, other in state.told_of(name) if asked == relation]] = True
        return mask

    def ties(self, state: State, relation: int) -> OnlineRules | None:
        """What speaks beside rules where a relation was seldom observed and all that is known is heard."""
        return None if self.hearing is None else self.hearing.ties(state, relation)

    def facts_between(self, state: State, name: str, answer: str) -> list[Fact]:
        """An entity's own facts with another one, in order; what newcomers tell of a seen one is theirs."""
        if name == answer:
            return []
        if name in state.seats:
            return sorted(fact for fact in state.book.facts[name] if answer in (fact[0], fact[2]))
        seen, other, size = self.names.seen(name), self.names.seen(answer), len(self.names.relations)
        relations, tails = self.observed.adjacency.of(seen)
        plain = [(one % size, one < size) for one in relations[tails == other].tolist()]
        return sorted({(name, one, answer) if forward else (answer, one, name) for one, forward in plain})

    def alike(self, state: State, name: str, relation: int, answer: str) -> tuple[Alike, ...]:
        """The known answers that an answer is like; none where only vectors and rules are heard."""
        return () if self.hearing is None else self.hearing.alike(state, name, relation, answer)


def _inferred(embedder: Embedder) -> Inferred | None:
    """What rules add to the probability of virtual triples between seen entities, by query; as `ModelScorer` has it."""
    if embedder.added is None:
        return None
    triples, size = embedder.graph.virtual, 2 * embedder.num_relations
    forward = triples[:, 0] * size + triples[:, 1]
    backward = triples[:, 2] * size + embedder.model.inverse(triples[:, 1])
    keys, order = torch.sort(torch.cat([forward, backward]), stable=True)
    answers = torch.cat([triples[:, 2], triples[:, 0]])[order]
    return Inferred(keys, answers, embedder.added.repeat(2)[order])
