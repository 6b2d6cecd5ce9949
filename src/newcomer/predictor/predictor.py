"""`Predictor`: a trained model that newcomers can be added to, and asked about.

Everything is by name. Whoever reads sees one state of newcomers from beginning to end, whatever others add meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch

from newcomer.bundle import Bundle, read_bundle
from newcomer.errors import OptionError, shown
from newcomer.graph import Mask
from newcomer.predictor.answers import Added, Answer, Neighbor, Suggestion, Verdict
from newcomer.predictor.book import Fact, Triple, checked, named
from newcomer.predictor.reasons import Because, Query, groundings_of
from newcomer.predictor.state import Mind, Scores, State
from newcomer.training.fit import choose_device

RELATIONS = 32  # oriented relations that `suggest` asks about by itself
Calibration = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.floating]]


def load(folder: str | Path, device: str = "cpu", threads: int | None = None) -> "Predictor":
    """The model in a folder, with the newcomers that were known when it was written."""
    return Predictor(read_bundle(Path(folder)), device, threads)


class Predictor:
    """A trained model: add newcomers by their facts, embed them, ask about them and about everyone else.

    ``calibration`` turns scores into truths where one is set; see `Answer` for what a truth is without it.
    """

    def __init__(self, bundle: Bundle, device: str = "cpu", threads: int | None = None) -> None:
        self.bundle = bundle
        self.calibration: Calibration | None = None
        self._mind = Mind(bundle, choose_device(device), threads)
        self._state = self._mind.first
        self._writing = Lock()

    def __repr__(self) -> str:
        seen, newcomers = f"{self._mind.names.num_seen:,}", f"{len(self._state.seats):,}"
        return f"Predictor({seen} seen entities, {newcomers} newcomers, {len(self.relations):,} relations)"

    def __contains__(self, entity: object) -> bool:
        return isinstance(entity, str) and (entity in self._state.seats or self._mind.names.seen(entity) >= 0)

    @property
    def newcomers(self) -> tuple[str, ...]:
        """Those who are there now, by name."""
        return tuple(self._state.newcomers)

    @property
    def relations(self) -> tuple[str, ...]:
        """All relations the model knows."""
        return tuple(self._mind.names.relations)

    def add(self, facts: Iterable[Sequence[str]], on_unknown_relation: str = "error") -> Added:
        """Add facts (head, relation, tail) of newcomers: all of them or, where one is wrong, none.

        A name that was not trained on is a newcomer. Facts of one who is there already are added to those it has; facts
        that are known change nothing. A fact with a relation that the model lacks is an error, or left out ("skip").
        """
        with self._writing:
            before, mind = self._state, self._mind
            found, skipped = checked(facts, mind.names, on_unknown_relation)
            fresh = {fact for fact in found if not self._has(before, fact)}
            if fresh:
                self._state = mind.added(before, fresh)
            arrived = sorted(name for name in _ends(fresh) if name in self._state.seats and name not in before.seats)
            return Added(tuple(arrived), len(fresh), len(found) - len(fresh), skipped)

    @staticmethod
    def _has(state: State, fact: Fact) -> bool:
        return any(fact in state.book.facts.get(name, ()) for name in (fact[0], fact[2]))

    def remove(self, entity: str) -> tuple[str, ...]:
        """Forget a newcomer and its facts; names whoever is gone: also those who were known by it alone."""
        with self._writing:
            before = self._state
            if before.seat(entity) is None:
                raise OptionError(f"the entity {shown(entity)} was trained on; only newcomers can be removed")
            facts = before.book.facts[entity]
            self._state = self._mind.removed(before, facts)
            return tuple(
                sorted(name for name in _ends(facts) if name in before.seats and name not in self._state.seats)
            )

    def embed(self, entity: str, relation: str | None = None) -> npt.NDArray[np.float32]:
        """The vector of an entity; with a relation, as a question about its tails asks for it."""
        state = self._state
        if relation is None:
            vector = self._mind.plain_vector(state, entity)
        else:
            vector = self._mind.vector(state, entity, self._mind.names.relation(relation))
        found: npt.NDArray[np.float32] = vector[0].float().cpu().numpy()
        return found

    def tails(self, entity: str, relation: str, k: int = 10, known: bool = False) -> list[Answer]:
        """The k best answers to (entity, relation, ?), best first; those known to be true only if asked for."""
        return self._answers(self._state, entity, self._mind.names.relation(relation), k, known)

    def heads(self, relation: str, entity: str, k: int = 10, known: bool = False) -> list[Answer]:
        """The k best answers to (?, relation, entity); as `tails`."""
        oriented = self._mind.names.relation(relation) + len(self._mind.names.relations)
        return self._answers(self._state, entity, oriented, k, known)

    def classify(self, triples: Iterable[Sequence[str]]) -> list[Verdict]:
        """Whether each triple counts as true: by the model's thresholds; where it has none, by a truth of a half."""
        state, names = self._state, self._mind.names
        rows = [named(row) for row in triples]
        asked: dict[tuple[str, int], Scores] = {}  # those about one head and relation are scored together
        return [self._verdict(state, row, names.relation(row[1]), asked) for row in rows]

    def neighbors(self, entity: str) -> list[Neighbor]:
        """What an entity's vector rests on: its facts by name, then its virtual neighbours, highest label first."""
        found = list(self._neighbors(self._state, entity))
        return sorted(found, key=lambda one: (one.virtual, -one.label, one.fact))

    def suggest(self, entity: str, k: int = 20, relations: Sequence[str] | None = None) -> list[Suggestion]:
        """The k facts of an entity that are most likely missing, over all relations, by truth.

        Where a model has many relations, those are asked about that go with the entity's own in the observed graph;
        name others with ``relations``. Each is asked in both directions.
        """
        state, size = self._state, len(self._mind.names.relations)
        state.seat(entity)
        if relations is None:
            asked = self._likely_relations(state, entity)
        else:
            plain = [self._mind.names.relation(name) for name in relations]
            asked = [*plain, *(relation + size for relation in plain)]
        found: dict[Triple, Suggestion] = {}
        for relation in asked:
            query, scores = self._query(state, entity, relation, known=False)
            for one in self._best(query, scores, k):
                fact = self._mind.names.words(query.triple(one.entity))
                found.setdefault(fact, Suggestion(fact, one.score, one.truth, one.because))
        return sorted(found.values(), key=lambda one: (-one.truth, -one.score, one.fact))[:k]

    def similar(self, entity: str, k: int = 10) -> list[tuple[str, float]]:
        """The k entities whose vectors point most nearly the same way, with the cosine."""
        state = self._state
        own, place = self._mind.plain_vector(state, entity)[0], state.candidate(entity)
        everyone = self._mind.plain_vectors(state)
        cosines = torch.nn.functional.cosine_similarity(everyone, own[None], dim=1).cpu().numpy()
        left_out = np.zeros(len(cosines), dtype=bool)
        left_out[place] = True
        return [(state.name_of(other), float(cosines[other])) for other in best(cosines, left_out, k)]

    def _answers(self, state: State, entity: str, relation: int, k: int, known: bool) -> list[Answer]:
        query, scores = self._query(state, entity, relation, known)
        return self._best(query, scores, k)

    def _query(self, state: State, entity: str, relation: int, known: bool) -> tuple[Query, Scores]:
        scores = self._mind.scores(state, entity, relation)
        left_out = np.zeros(len(scores), dtype=bool) if known else self._mind.known(state, entity, relation)
        return Query(self._mind, state, entity, relation, left_out), scores

    def _best(self, query: Query, scores: Scores, k: int) -> list[Answer]:
        if k < 1:
            raise OptionError(f"k is {shown(k)}, but must be at least 1")
        places = best(scores, query.left_out, k)
        truths = self._truths(scores, places)
        names = [query.state.name_of(place) for place in places]
        return [
            Answer(name, float(scores[place]), truth, Because(query, name, k))
            for name, place, truth in zip(names, places, truths, strict=True)
        ]

    def _truths(self, scores: Scores, places: npt.NDArray[np.intp]) -> list[float]:
        """Of candidates, given the scores of all."""
        if self.calibration is not None:
            return [float(truth) for truth in self.calibration(scores[places])]
        exact = scores.astype(np.float64)
        if self._mind.blend is not None:
            shares = np.exp(exact - exact.max())
            return [float(share) for share in (shares / shares.sum())[places]]
        return [float(truth) for truth in 1 / (1 + np.exp(-exact[places].clip(-500, 500)))]

    def _verdict(self, state: State, fact: Triple, relation: int, asked: dict[tuple[str, int], Scores]) -> Verdict:
        head, name, tail = fact
        answer = state.candidate(tail)
        if self._mind.blend is None:
            score = self._mind.triple_score(state, head, relation, tail)
            truth = self._truths(np.array([score], dtype=np.float32), np.zeros(1, dtype=np.intp))[0]
        else:
            if (head, relation) not in asked:
                asked[head, relation] = self._mind.scores(state, head, relation)
            scores = asked[head, relation]
            score, truth = float(scores[answer]), self._truths(scores, np.array([answer]))[0]
        limits = self.bundle.thresholds
        if limits is None:
            return Verdict(fact, truth >= 0.5, score, truth)
        return Verdict(fact, score >= limits.relations.get(name, limits.overall), score, truth)

    def _neighbors(self, state: State, entity: str) -> Iterator[Neighbor]:
        mind, seat = self._mind, state.seat(entity)
        graph = mind.embedder.graph if seat is None else seat.arrival.graph
        labels = mind.embedder.labels if seat is None else seat.arrival.labels
        row = mind.names.seen(entity) if seat is None else seat.place
        edges = slice(int(graph.rows.offsets[row]), int(graph.rows.offsets[row + 1]))
        for source in sorted(set(graph.sources[edges].tolist())):
            number = source - len(graph.facts)
            if number < 0:
                yield Neighbor(mind.words_at(graph.facts[source].tolist(), seat), False, 1.0)
                continue
            fact = mind.words_at(graph.virtual[number].tolist(), seat)
            stated = fact[0], mind.names.relation(fact[1]), fact[2]
            if seat is None:
                virtual, group = mind.walks.conclusions(None, row, stated[1]), None
            else:
                virtual, group = seat.arrival.virtual, seat.arrival.group
            yield Neighbor(fact, True, float(labels[number]), groundings_of(mind, virtual, group, stated))

    def _likely_relations(self, state: State, entity: str) -> list[int]:
        """Oriented relations, those first that the entities with its relations have most often."""
        mind, size = self._mind, len(self._mind.names.relations)
        if 2 * size <= RELATIONS:
            return list(range(2 * size))
        rows = mind.observed.adjacency
        starts = np.repeat(np.arange(len(rows.offsets) - 1, dtype=np.int64), np.diff(rows.offsets))
        pairs = np.unique(starts * 2 * size + rows.relations)
        whose, relation = pairs // (2 * size), pairs % (2 * size)
        own = np.zeros(2 * size, dtype=bool)
        own[list(self._own_relations(state, entity))] = True
        alike = np.bincount(whose[own[relation]], minlength=len(rows.offsets) - 1)
        counts = np.bincount(relation, weights=alike[whose], minlength=2 * size)
        order = np.argsort(-counts, kind="stable")[:RELATIONS]
        return [int(found) for found in order if counts[found] > 0]

    def _own_relations(self, state: State, entity: str) -> Iterator[int]:
        if entity not in state.seats:
            yield from self._mind.observed.adjacency.of(self._mind.names.seen(entity))[0].tolist()
        for head, relation, _ in state.book.facts.get(entity, ()):
            yield relation if head == entity else relation + len(self._mind.names.relations)


def _ends(facts: Iterable[Fact]) -> set[str]:
    return {name for fact in facts for name in (fact[0], fact[2])}


def best(scores: npt.NDArray[np.floating], left_out: Mask, k: int) -> npt.NDArray[np.intp]:
    """The places of the k highest scores, highest first, of equals the first one first."""
    there = np.flatnonzero(~left_out)
    if len(there) > k:
        least = np.partition(scores[there], len(there) - k)[len(there) - k]
        there = there[scores[there] >= least]
    order = np.argsort(-scores[there], kind="stable")[:k]
    found: npt.NDArray[np.intp] = there[order]
    return found
