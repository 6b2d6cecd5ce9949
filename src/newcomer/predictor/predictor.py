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
from newcomer.evaluation.applicability import RelationProfiles, likely_relations
from newcomer.evaluation.breakdown import facts_groups
from newcomer.evaluation.calibration import best
from newcomer.evaluation.questions import Prober, Question, Questions, answers_to, likeliest
from newcomer.evaluation.stored import calibration_of, labelled_curve
from newcomer.evaluation.suggestions import RELATIONS
from newcomer.graph import Mask, TripleArray, about_newcomers
from newcomer.models.bundle import Bundle, read_bundle
from newcomer.models.device import choose_device
from newcomer.models.engine import Scored
from newcomer.models.serialisation import load_engine
from newcomer.predictor.answers import Added, Neighbor, Verdict
from newcomer.predictor.classifier import VerdictMaker
from newcomer.predictor.conclusions import Conclusions
from newcomer.predictor.confidence import Confidence, RelationCooccurrence, RuleReach, expected_of
from newcomer.predictor.explain import Answer, Explanation, Query, Suggestion
from newcomer.predictor.fact_store import (
    FactStore,
    NamedComponent,
    NamedSnapshot,
    Names,
    Skipping,
    Stored,
    checked,
    ends_of,
    named,
    words_at,
)

KEPT_SCORES = 1 << 20  # of all questions behind suggestions, each with its parts, for the reasons to come


def load(folder: str | Path, device: str = "cpu", threads: int | None = None) -> "Predictor":
    """The model in a folder, with the newcomers that were known when it was written.

    >>> newcomer.load("people")
    Predictor(33 seen entities, 4 newcomers, 4 relations)
    """
    return Predictor(read_bundle(Path(folder)), device, threads)


def _checked_k(k: int) -> int:
    """How many are asked for."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise OptionError(f"k is {shown(k)}, but must be an integer from 1")
    return int(k)


def _keeping(kept: dict[int, Scored], prober: Prober, entity: int, relations: Sequence[int]) -> Iterator[Question]:
    """Questions about an entity, the scores of the first of them kept by relation, as far as memory is no matter."""
    for relation in relations:
        question = prober.questions.ask(entity, relation)
        if (len(kept) + 1) * len(question.scores) <= KEPT_SCORES:
            kept[relation] = question.scored
        yield question


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
        self._profiles = cache(lambda: RelationProfiles(observed, self.names.num_seen))
        self._asked: Questions | None = None
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

    def add(
        self, facts: Iterable[Sequence[str]], on_unknown_relation: str = "error", on_seen_fact: str = "error"
    ) -> Added:
        """Add facts (head, relation, tail) of newcomers: all of them or, where one is wrong, none.

        A name that was not trained on is a newcomer. Facts of one who is there already are added to those it has; facts
        that are known change nothing, those of the observed graph included. A fact with a relation that the model
        lacks, and one about two entities that were trained on without it, is an error, or left out ("skip").

        >>> model.add([("yan", "knows", "zoe"), ("yan", "lives_in", "city2"), ("zoe", "lives_in", "city1")])
        Added(newcomers=('yan',), facts=2, repeated=1, skipped=0)
        """
        with self._writing:
            before = self._snapshot
            given = checked(facts, self.names, self.bundle.observed, Skipping(on_unknown_relation, on_seen_fact))
            found = given.facts
            fresh = set(found).difference(*(before.store.get(name, ()) for name in ends_of(found)))
            if fresh:
                self._snapshot = before.added(fresh)
            arrived = sorted(name for name in ends_of(fresh) if name in self._snapshot and name not in before)
            repeated = len(found) - len(fresh) + len(given.known)
            return Added(tuple(arrived), len(fresh), repeated, given.skipped)

    def check(
        self, facts: Iterable[Sequence[str]], on_unknown_relation: str = "error", on_seen_fact: str = "error"
    ) -> int:
        """Complain as `add` would, without adding anything; else the number of facts that it would skip.

        >>> model.check([("yan", "knows", "zoe"), ("yan", "likes", "zoe")], on_unknown_relation="skip")
        1
        """
        return checked(facts, self.names, self.bundle.observed, Skipping(on_unknown_relation, on_seen_fact)).skipped

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

    def tails(
        self,
        entity: str,
        relation: str,
        k: int = 10,
        known: bool = False,
        min_probability: float = 0.0,
        types: Sequence[str] | None = None,
    ) -> list[Answer]:
        """The k best answers to (entity, relation, ?), best first; those known to be true only if asked for.

        Less probable ones are left out with ``min_probability``. With ``types`` an answer has a fact with one of these
        entities as its tail, whatever the relation: it is of that class.

        >>> best, second = model.tails("zoe", "citizen_of", k=2)
        >>> best.entity, best.probability > second.probability
        ('land1', True)
        >>> best.because.groundings[0].rule
        'lives_in(x,z), city_in(z,y) => citizen_of(x,y)'
        >>> best.because.groundings[0].premises
        (('zoe', 'lives_in', 'city1'), ('city1', 'city_in', 'land1'))
        """
        return self._answers(entity, self.names.relation(relation), k, known, min_probability, types)

    def heads(
        self,
        relation: str,
        entity: str,
        k: int = 10,
        known: bool = False,
        min_probability: float = 0.0,
        types: Sequence[str] | None = None,
    ) -> list[Answer]:
        """The k best answers to (?, relation, entity); as `tails`.

        >>> residents = [answer.entity for answer in model.heads("lives_in", "city1", k=100, known=True)]
        >>> "zoe" in residents, "zoe" in [answer.entity for answer in model.heads("lives_in", "city1", k=100)]
        (True, False)
        """
        oriented = self.names.relation(relation) + len(self.names.relations)
        return self._answers(entity, oriented, k, known, min_probability, types)

    def classify(self, triples: Iterable[Sequence[str]]) -> list[Verdict]:
        """Whether each triple counts as true: where its probability is a half at least.

        A model that learned from triples labelled true and false decides by what it learned from these.

        >>> verdicts = model.classify([("zoe", "citizen_of", "land1"), ("zoe", "citizen_of", "land2")])
        >>> [verdict.is_true for verdict in verdicts]
        [True, False]
        """
        snapshot = self._snapshot
        maker = VerdictMaker(snapshot, self._prober(snapshot), labelled_curve(self.bundle), self.bundle.thresholds)
        return maker.verdicts([named(row) for row in triples])

    def confidence(self, entity: str) -> Confidence:
        """How much is known of an entity: whether it is enough for any answer, and which relation to learn next.

        >>> found = model.confidence("zoe")
        >>> found.facts, found.enough, found.best.fact
        (2, True, ('zoe', 'citizen_of', 'land1'))
        >>> [(one.known, one.missing < 0.5) for one in found.expected if one.question == "lives_in(zoe, ?)"]
        [(1, True)]
        """
        snapshot = self._snapshot
        identifier = snapshot.id(entity)
        relations, tails = snapshot.graph.overlay.facts_of(identifier)
        # A fact that joins an entity to itself stands there in both directions.
        facts = int(((tails != identifier) | (relations < len(self.names.relations))).sum())
        codes, groups = facts_groups(np.array([facts]))
        like = groups[int(codes[0])]
        asked, right = (0, 0) if self.calibration is None else self.calibration.first_right.get(like, (0, 0))
        has, likely = self._has_relations(snapshot, entity), self._likely_relations(snapshot, entity)
        counts, total = self._cooccurrence().counts(has)
        return Confidence(
            entity,
            facts,
            like,
            asked,
            right / asked if asked else None,
            self._rule_reach().lessons(has, counts / max(total, 1.0), entity, self.names),
            self.calibration is not None,
            self._questions(snapshot).is_tied(identifier),
            expected_of(self._prober(snapshot), identifier, entity, likely, self.names),
            lambda: next(iter(self._suggested(snapshot, entity, 1, likely)), None),
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

    def suggest(
        self,
        entity: str,
        k: int = 20,
        relations: Sequence[str] | None = None,
        min_probability: float = 0.0,
        types: Sequence[str] | None = None,
    ) -> list[Suggestion]:
        """The k facts of an entity that are most likely missing, over all relations, by probability.

        Where a model has many relations, those are asked about that most probably apply to the entity; name others with
        ``relations``. Each is asked in both directions. ``min_probability`` and ``types`` are as in `tails`.

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
        found = self._suggested(snapshot, entity, _checked_k(k), asked, types)
        return [one for one in found if one.probability >= min_probability]

    def _suggested(
        self, snapshot: NamedSnapshot, entity: str, k: int, relations: Sequence[int], types: Sequence[str] | None = None
    ) -> list[Suggestion]:
        prober, allowed = self._prober(snapshot), None if types is None else self._of_types(snapshot, types)
        queries: dict[int, Query] = {}  # the facts along one relation share what their reasons rest on
        scored: dict[int, Scored] = {}
        questions = _keeping(scored, prober, snapshot.id(entity), relations)
        found = []
        for one in likeliest(prober, snapshot.id(entity), questions, k, allowed):
            if one.relation not in queries:
                left_out = prober.questions.left_out(snapshot.id(entity), one.relation)
                left_out |= False if allowed is None else ~allowed
                queries[one.relation] = Query(snapshot, entity, one.relation, left_out)
                if one.relation in scored:
                    queries[one.relation].__dict__["scored"] = scored[one.relation]  # reasons need not ask again
            query, name = queries[one.relation], snapshot.name_of(one.place)
            figures = one.score, one.probability, one.if_any
            because, calibrated = Explanation(query, name, k), self.calibration is not None
            found.append(Suggestion(self.names.words(query.triple(name)), *figures, because, calibrated))
        return sorted(found, key=lambda one: (-one.probability, -one.score, one.fact))

    def roles(self, entity: str, relation: str) -> tuple[bool, bool]:
        """Whether an entity may be a head, and a tail, of a relation.

        It may be what those entities of the observed graph are that have a relation in common with it. Where none has,
        or the relation was never observed, it may be both.

        >>> model.roles("zoe", "lives_in")
        (True, False)
        """
        snapshot, oriented = self._snapshot, self.names.relation(relation)
        counts, total = self._cooccurrence().counts(self._has_relations(snapshot, entity))
        if not total or not self.engine.model.observed.relation_counts[oriented]:
            return True, True
        return bool(counts[oriented] > 0), bool(counts[oriented + len(self.names.relations)] > 0)

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
        return [(snapshot.name_of(other), float(cosines[other])) for other in best(cosines, left_out, _checked_k(k))]

    def _answers(
        self, entity: str, relation: int, k: int, known: bool, least: float, types: Sequence[str] | None
    ) -> list[Answer]:
        query, question = self._query(self._snapshot, entity, relation, known, types)
        found = []
        for one in answers_to(self._prober(query.snapshot), question, _checked_k(k), query.left_out):
            if one.probability >= least:
                name = query.snapshot.name_of(one.place)
                because, calibrated = Explanation(query, name, k), self.calibration is not None
                found.append(Answer(name, one.score, one.probability, one.if_any, because, calibrated))
        return found

    def _query(
        self, snapshot: NamedSnapshot, entity: str, relation: int, known: bool, types: Sequence[str] | None = None
    ) -> tuple[Query, Question]:
        question = self._questions(snapshot).ask(snapshot.id(entity), relation)
        left_out = ~snapshot.graph.is_present if known else question.left_out
        if types is not None:
            left_out = left_out | ~self._of_types(snapshot, types)
        query = Query(snapshot, entity, relation, left_out)
        query.__dict__["scored"] = question.scored  # reasons need not ask again
        return query, question

    def _of_types(self, snapshot: NamedSnapshot, types: Sequence[str]) -> Mask:
        """(entities,): who has a fact with one of these as its tail."""
        mask = np.zeros(snapshot.graph.num_entities, dtype=bool)
        for name in types:
            relations, others = snapshot.graph.overlay.all_facts_of(snapshot.id(name))
            mask[others[relations >= len(self.names.relations)]] = True
        return mask

    def _questions(self, snapshot: NamedSnapshot) -> Questions:
        """What can be asked in a snapshot; that of the last one is kept."""
        asked = self._asked
        if asked is None or asked.snapshot is not snapshot.graph:
            asked = self._asked = Questions(self.engine, snapshot.graph, self._profiles())
        return asked

    def _prober(self, snapshot: NamedSnapshot) -> Prober:
        return Prober(self._questions(snapshot), self.calibration)

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
        """Oriented relations, those first that most probably apply."""
        applies = self._questions(snapshot).applies(snapshot.id(entity))
        return [int(found) for found in likely_relations(applies, RELATIONS)]

    def _has_relations(self, snapshot: NamedSnapshot, entity: str) -> Mask:
        """(2 relations,): which oriented relations an entity has by its own facts."""
        has = np.zeros(2 * len(self.names.relations), dtype=bool)
        has[snapshot.graph.overlay.facts_of(snapshot.id(entity))[0]] = True
        return has
