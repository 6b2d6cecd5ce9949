"""`Predictor`: a trained model that newcomers can be added to, and asked about.

Everything is by name. Whoever reads sees one state of newcomers from beginning to end, whatever others add meanwhile.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch

from newcomer.errors import OptionError, shown
from newcomer.evaluation.breakdown import facts_groups
from newcomer.evaluation.calibration import best, evidence, uncalibrated
from newcomer.evaluation.stored import calibration_of
from newcomer.graph import Mask, TripleArray, about_newcomers
from newcomer.models.bundle import Bundle, read_bundle
from newcomer.models.device import choose_device
from newcomer.models.embedding.scorer import Scores
from newcomer.models.serialisation import load_engine
from newcomer.predictor.answers import Added, Neighbor, Verdict
from newcomer.predictor.classifier import VerdictMaker
from newcomer.predictor.confidence import Confidence, RelationCooccurrence, RuleReach
from newcomer.predictor.explain import Answer, Conclusions, Explanation, Query, Suggestion
from newcomer.predictor.fact_store import FactStore, NamedComponent, Names, Stored, Triple, checked, ends_of, named
from newcomer.predictor.snapshot import NamedSnapshot, known_answers, words_at

RELATIONS = 32  # oriented relations that `suggest` asks about by itself


def load(folder: str | Path, device: str = "cpu", threads: int | None = None) -> "Predictor":
    """The model in a folder, with the newcomers that were known when it was written.

    >>> newcomer.load("people")
    Predictor(33 seen entities, 4 newcomers, 4 relations)
    """
    return Predictor(read_bundle(Path(folder)), device, threads)


class Predictor:
    """A trained model: add newcomers by their facts, embed them, ask about them and about everyone else.

    The examples ask a model of a small world: people live in cities, cities lie in countries, people are citizens of
    these. They begin with a newcomer, zoe, who lives in city1 and knows p03.

    ``calibration`` turns scores into probabilities; without it (None) probabilities are as `Answer` says.
    """

    def __init__(self, bundle: Bundle, device: str = "cpu", threads: int | None = None) -> None:
        self.bundle = bundle
        self.calibration = calibration_of(bundle)
        self.engine = load_engine(bundle, choose_device(device), threads)
        self.names = Names(bundle.observed.entities, bundle.observed.relations, self.engine.model.num_seen)
        auxiliary = TripleArray.empty() if bundle.auxiliary is None else bundle.auxiliary.triples
        stored = Stored(self.names, about_newcomers(auxiliary, self.names.num_seen))
        self._snapshot = NamedSnapshot(self.engine, self.names, FactStore(stored, {}))
        # Worked out when they are first needed, for this predictor and its copies.
        observed, reasons = self.engine.model.observed, self.engine.rules.reasons
        index = None if reasons is None else reasons.index
        self._cooccurrence = cache(lambda: RelationCooccurrence.of(observed))
        self._rule_reach = cache(lambda: RuleReach.of(index, observed.num_relations))
        self._writing = Lock()

    def __repr__(self) -> str:
        seen, newcomers = f"{self.names.num_seen:,}", f"{len(self.newcomers):,}"
        return f"Predictor({seen} seen entities, {newcomers} newcomers, {len(self.relations):,} relations)"

    def __contains__(self, entity: object) -> bool:
        return isinstance(entity, str) and (entity in self._snapshot or self.names.seen(entity) >= 0)

    @property
    def newcomers(self) -> tuple[str, ...]:
        """Those who are there now, by name."""
        return tuple(self._snapshot.newcomers)

    @property
    def relations(self) -> tuple[str, ...]:
        """All relations the model knows."""
        return tuple(self.names.relations)

    def add(self, facts: Iterable[Sequence[str]], on_unknown_relation: str = "error") -> Added:
        """Add facts (head, relation, tail) of newcomers: all of them or, where one is wrong, none.

        A name that was not trained on is a newcomer. Facts of one who is there already are added to those it has; facts
        that are known change nothing. A fact with a relation that the model lacks is an error, or left out ("skip").

        >>> model.add([("yan", "knows", "zoe"), ("yan", "lives_in", "city2"), ("zoe", "lives_in", "city1")])
        Added(newcomers=('yan',), facts=2, repeated=1, skipped=0)
        """
        with self._writing:
            before = self._snapshot
            found, skipped = checked(facts, self.names, on_unknown_relation)
            fresh = set(found).difference(*(before.store.get(name, ()) for name in ends_of(found)))
            if fresh:
                self._snapshot = before.added(fresh)
            arrived = sorted(name for name in ends_of(fresh) if name in self._snapshot and name not in before)
            return Added(tuple(arrived), len(fresh), len(found) - len(fresh), skipped)

    def check(self, facts: Iterable[Sequence[str]], on_unknown_relation: str = "error") -> int:
        """Complain as `add` would, without adding anything; else the number of facts that it would skip.

        >>> model.check([("yan", "knows", "zoe"), ("yan", "likes", "zoe")], on_unknown_relation="skip")
        1
        """
        return checked(facts, self.names, on_unknown_relation)[1]

    def remove(self, entity: str) -> tuple[str, ...]:
        """Forget a newcomer and its facts; names whoever is gone: also those who were known by it alone.

        >>> model.remove("zoe")
        ('zoe',)
        """
        with self._writing:
            before = self._snapshot
            if before.id(entity) < self.names.num_seen:
                raise OptionError(f"the entity {shown(entity)} was trained on; only newcomers can be removed")
            facts = before.store[entity]
            self._snapshot = before.removed(facts)
            return tuple(sorted(name for name in ends_of(facts) if name in before and name not in self._snapshot))

    def copy(self) -> "Predictor":
        """Another one with the same newcomers, to which others may come; both share the trained model.

        >>> other = model.copy()
        >>> added = other.add([("yan", "knows", "zoe")])
        >>> "yan" in other, "yan" in model
        (True, False)
        """
        other = copy(self)
        other._writing = Lock()
        return other

    def embed(self, entity: str, relation: str | None = None) -> npt.NDArray[np.float32]:
        """The vector of an entity; with a relation, as a question about its tails asks for it.

        >>> model.embed("zoe").shape
        (8,)
        """
        snapshot, scorer = self._snapshot, self.engine.embedding
        if relation is None:
            vector = scorer.plain_vector(snapshot.graph, snapshot.id(entity))
        else:
            vector = scorer.vector(snapshot.graph, snapshot.id(entity), self.names.relation(relation))
        return np.asarray(vector[0].float().cpu())

    def tails(self, entity: str, relation: str, k: int = 10, known: bool = False) -> list[Answer]:
        """The k best answers to (entity, relation, ?), best first; those known to be true only if asked for.

        >>> best, second = model.tails("zoe", "citizen_of", k=2)
        >>> best.entity, best.probability > second.probability
        ('land1', True)
        >>> best.because.groundings[0].rule
        'lives_in(x,z), city_in(z,y) => citizen_of(x,y)'
        >>> best.because.groundings[0].premises
        (('zoe', 'lives_in', 'city1'), ('city1', 'city_in', 'land1'))
        """
        return self._answers(entity, self.names.relation(relation), k, known)

    def heads(self, relation: str, entity: str, k: int = 10, known: bool = False) -> list[Answer]:
        """The k best answers to (?, relation, entity); as `tails`.

        >>> residents = [answer.entity for answer in model.heads("lives_in", "city1", k=100, known=True)]
        >>> "zoe" in residents, "zoe" in [answer.entity for answer in model.heads("lives_in", "city1", k=100)]
        (True, False)
        """
        return self._answers(entity, self.names.relation(relation) + len(self.names.relations), k, known)

    def classify(self, triples: Iterable[Sequence[str]]) -> list[Verdict]:
        """Whether each triple counts as true: by the model's thresholds; where it has none, by a probability of a half.

        >>> verdicts = model.classify([("zoe", "citizen_of", "land1"), ("zoe", "citizen_of", "land2")])
        >>> [verdict.is_true for verdict in verdicts]
        [True, False]
        """
        curve = None if self.calibration is None else self.calibration.triples
        maker = VerdictMaker(self._snapshot, curve, self.bundle.thresholds)
        return maker.verdicts([named(row) for row in triples])

    def confidence(self, entity: str) -> Confidence:
        """How much is known of an entity: whether it is enough for any answer, and which relation to learn next.

        >>> found = model.confidence("zoe")
        >>> found.facts, found.enough, found.best.fact
        (2, True, ('zoe', 'citizen_of', 'land1'))
        """
        snapshot = self._snapshot
        identifier = snapshot.id(entity)
        relations, tails = snapshot.graph.overlay.facts_of(identifier)
        # A fact that joins an entity to itself stands there in both directions.
        facts = int(((tails != identifier) | (relations < len(self.names.relations))).sum())
        codes, groups = facts_groups(np.array([facts]))
        like = groups[int(codes[0])]
        asked, right = (0, 0) if self.calibration is None else self.calibration.first_right.get(like, (0, 0))
        has = self._has_relations(snapshot, entity)
        counts, total = self._cooccurrence().counts(has)
        return Confidence(
            entity,
            facts,
            like,
            asked,
            right / asked if asked else None,
            self._rule_reach().lessons(has, counts / max(total, 1.0), entity, self.names),
            self.calibration is not None,
            lambda: next(iter(self._suggested(snapshot, entity, 1, self._likely_relations(snapshot, entity))), None),
        )

    def neighbors(self, entity: str) -> list[Neighbor]:
        """What an entity's vector rests on: its facts by name, then its virtual neighbours, highest label first.

        >>> for neighbor in model.neighbors("zoe"):
        ...     print(neighbor.fact, "inferred" if neighbor.virtual else "stated")
        ('zoe', 'knows', 'p03') stated
        ('zoe', 'lives_in', 'city1') stated
        ('zoe', 'citizen_of', 'land1') inferred
        """
        found = list(self._neighbors(self._snapshot, entity))
        return sorted(found, key=lambda one: (one.virtual, -one.label, one.fact))

    def suggest(self, entity: str, k: int = 20, relations: Sequence[str] | None = None) -> list[Suggestion]:
        """The k facts of an entity that are most likely missing, over all relations, by probability.

        Where a model has many relations, those are asked about that go with the entity's own in the observed graph;
        name others with ``relations``. Each is asked in both directions.

        >>> model.suggest("zoe", k=1)[0].fact
        ('zoe', 'citizen_of', 'land1')
        """
        snapshot, size = self._snapshot, len(self.names.relations)
        snapshot.id(entity)
        if relations is None:
            asked = self._likely_relations(snapshot, entity)
        else:
            plain = [self.names.relation(name) for name in relations]
            asked = [*plain, *(relation + size for relation in plain)]
        return self._suggested(snapshot, entity, k, asked)

    def _suggested(self, snapshot: NamedSnapshot, entity: str, k: int, relations: Sequence[int]) -> list[Suggestion]:
        found: dict[Triple, Suggestion] = {}
        for relation in relations:
            query, scores = self._query(snapshot, entity, relation, known=False)
            for one in self._best(query, scores, k):
                fact = self.names.words(query.triple(one.entity))
                found.setdefault(fact, Suggestion(fact, one.score, one.probability, one.because, one.calibrated))
        return sorted(found.values(), key=lambda one: (-one.probability, -one.score, one.fact))[:k]

    def similar(self, entity: str, k: int = 10) -> list[tuple[str, float]]:
        """The k entities whose vectors point most nearly the same way, with the cosine.

        >>> names = [name for name, cosine in model.similar("zoe", k=3)]
        >>> len(names), "zoe" in names
        (3, False)
        """
        snapshot = self._snapshot
        own = snapshot.id(entity)
        vectors = self.engine.embedding.plain_vectors(snapshot.graph)
        cosines = torch.nn.functional.cosine_similarity(vectors, vectors[own][None], dim=1).cpu().numpy()
        left_out = ~snapshot.graph.is_present
        left_out[own] = True
        return [(snapshot.name_of(other), float(cosines[other])) for other in best(cosines, left_out, k)]

    def _answers(self, entity: str, relation: int, k: int, known: bool) -> list[Answer]:
        return self._best(*self._query(self._snapshot, entity, relation, known), k)

    def _query(self, snapshot: NamedSnapshot, entity: str, relation: int, known: bool) -> tuple[Query, Scores]:
        identifier = snapshot.id(entity)
        scores = self.engine.scores(snapshot.graph, identifier, relation)
        left_out = ~snapshot.graph.is_present
        if not known:
            left_out |= known_answers(snapshot, identifier, relation)
        return Query(snapshot, entity, relation, left_out), scores

    def _best(self, query: Query, scores: Scores, k: int) -> list[Answer]:
        places = best(scores, query.left_out, k)
        probabilities = self._probabilities(query, scores, places)
        names = [query.snapshot.name_of(place) for place in places]
        return [
            Answer(name, float(scores[place]), probability, Explanation(query, name, k), self.calibration is not None)
            for name, place, probability in zip(names, places, probabilities, strict=True)
        ]

    def _probabilities(self, query: Query, scores: Scores, places: npt.NDArray[np.intp]) -> list[float]:
        """Of candidates, given the scores of all."""
        if self.calibration is None:
            there = query.snapshot.graph.is_present  # nobody else has a share
            found = uncalibrated(scores[there], np.cumsum(there)[places] - 1, self.engine.model.weights is not None)
        else:
            found = self.calibration.answers.probabilities(evidence(scores, query.left_out, places), query.relation)
        return [float(probability) for probability in found]

    def _neighbors(self, snapshot: NamedSnapshot, entity: str) -> Iterator[Neighbor]:
        engine, identifier = self.engine, snapshot.id(entity)
        slot, encoded, component, row = snapshot.graph.slot(identifier), None, None, identifier
        graph, labels, virtual = engine.model.graph, engine.model.labels, engine.model.neighbors
        if slot is not None:
            encoded = engine.with_virtual_neighbors(slot.encoded)
            component = encoded.component if isinstance(encoded.component, NamedComponent) else None
            graph, labels, virtual = encoded.graph, encoded.labels, encoded.virtual
            row = len(encoded.near) + slot.number
        edges = slice(int(graph.rows.offsets[row]), int(graph.rows.offsets[row + 1]))
        sources = torch.unique(graph.sources[edges])
        stated, inferred = sources[sources < len(graph.facts)], sources[sources >= len(graph.facts)] - len(graph.facts)
        for fact in words_at(self.names, graph.facts[stated], encoded):
            yield Neighbor(fact, False, 1.0)
        conclusions = Conclusions(self.names, component, virtual)
        words = words_at(self.names, graph.virtual[inferred], encoded)
        for fact, label in zip(words, labels[inferred].tolist(), strict=True):
            conclusion = fact[0], self.names.relation(fact[1]), fact[2]
            yield Neighbor(fact, True, label, conclusions.groundings(conclusion))

    def _likely_relations(self, snapshot: NamedSnapshot, entity: str) -> list[int]:
        """Oriented relations, those first that the entities with its relations have most often."""
        size = len(self.names.relations)
        if 2 * size <= RELATIONS:
            return list(range(2 * size))
        counts, _ = self._cooccurrence().counts(self._has_relations(snapshot, entity))
        order = np.argsort(-counts, kind="stable")[:RELATIONS]
        return [int(found) for found in order if counts[found] > 0]

    def _has_relations(self, snapshot: NamedSnapshot, entity: str) -> Mask:
        """(2 relations,): which oriented relations an entity has by its own facts."""
        has = np.zeros(2 * len(self.names.relations), dtype=bool)
        has[snapshot.graph.overlay.facts_of(snapshot.id(entity))[0]] = True
        return has
