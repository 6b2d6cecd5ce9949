"""A model over a store: each question is answered from the facts that the store holds at one position of its log.

An entity is asked about beside those that the model knows by itself and the newcomers of the store that facts between
newcomers connect it to; where a question is about an entity that the model was trained on, beside newcomers that have a
fact with it. So an answer, and a newcomer's vector, depend on the model and on these facts alone: every process gives
the same to the bit, and what it costs does not grow with the store.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.errors import OptionError, shown
from newcomer.graph import UNKNOWN
from newcomer.models.bundle.manifest import read_manifest
from newcomer.predictor import Added, Answer, Confidence, Neighbor, Predictor, Suggestion, Verdict
from newcomer.predictor.fact_store import Skipping, checked
from newcomer.store import Change, Fact, GivenAnswer, Newcomer, Recorded
from newcomer.store.reading import Reading
from newcomer.store.store import Store

MOST_CONNECTED = 1_000  # newcomers that one is asked about with
NEARBY = 20  # newcomers that an entity which was trained on is asked about with
KEPT = 64  # sets of facts whose newcomers stay encoded: about a megabyte each on 14,000 entities
NOBODY = "unnamed"  # who asks, where no one is named


class Scope(NamedTuple):
    """A model with the newcomers that a question is about.

    ``position`` is that of the store's log. Where more newcomers are connected than are looked at, it is not
    ``complete``.
    """

    model: Predictor
    position: int
    complete: bool


class Arrived(NamedTuple):
    """What adding facts did: to the store, and how many were left out or are of the model's own graph.

    Of those left out, so many have ``unknown_relations``; the others are between entities that were trained on.
    """

    change: Change
    skipped: int
    known: int
    unknown_relations: int

    @property
    def added(self) -> Added:
        """The same as `Predictor.add` tells it."""
        return Added(self.change.arrived, self.change.facts, self.change.repeated + self.known, self.skipped)


def model_version(folder: str | Path) -> str:
    """What tells a model from any other: the beginning of its checksum."""
    return str(read_manifest(Path(folder))["checksum"])[:12]


@dataclass(eq=False)
class StoredPredictor:
    """A trained model and a store of newcomers; it may be used by several threads.

    >>> live = newcomer.open("people", store="arrivals.db")
    >>> live.add([("yan", "knows", "p03"), ("yan", "lives_in", "city1")], who="registry").newcomers
    ('yan',)
    >>> live.tails("yan", "citizen_of", k=1)[0].entity
    'land1'
    >>> live.close()
    """

    model: Predictor
    store: Store
    version: str = ""

    def __post_init__(self) -> None:
        self._encoded: OrderedDict[tuple[Fact, ...], Predictor] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, entity: object) -> bool:
        if not isinstance(entity, str):
            return False
        with self.store.reading() as state:
            return entity in self.model or bool(state.component([entity], self.is_seen, 1).newcomers)

    def __enter__(self) -> "StoredPredictor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the store."""
        self.store.close()

    def is_seen(self, name: str) -> bool:
        """Whether the model was trained on an entity."""
        return self.model.names.seen(name) != UNKNOWN

    def add(
        self,
        facts: Iterable[Sequence[str]],
        *,
        who: str = "",
        source: str | None = None,
        key: str | None = None,
        on_unknown_relation: str = "error",
        on_seen_fact: str = "error",
    ) -> Added:
        """State facts of newcomers in the store, as `Predictor.add` would: all of them or, where one is wrong, none."""
        skipping = Skipping(on_unknown_relation, on_seen_fact)
        return self.arrived(facts, skipping, who=who, source=source, key=key).added

    def arrived(
        self,
        facts: Iterable[Sequence[str]],
        skipping: Skipping,
        *,
        who: str = "",
        source: str | None = None,
        key: str | None = None,
    ) -> Arrived:
        """The same, with the position of the store's log."""
        names, asked = self.model.names, facts if isinstance(facts, str) else list(facts)
        given = checked(asked, names, self.model.bundle.observed, skipping)
        stated = [names.words(fact) for fact in given.facts]
        change = self.store.add(stated, is_seen=self.is_seen, who=who or NOBODY, source=source, key=key, asked=asked)
        return Arrived(change, given.skipped, len(given.known), given.unknown_relations)

    def retract(
        self, facts: Iterable[Sequence[str]], *, who: str = "", source: str | None = None, key: str | None = None
    ) -> Change:
        """Retract facts; newcomers that are left without any leave."""
        return self.store.retract(facts, who=who or NOBODY, source=source, key=key)

    def remove(self, *entities: str, who: str = "", source: str | None = None, key: str | None = None) -> Change:
        """Retract all facts of newcomers; others that no other fact is about leave with them."""
        for entity in entities:
            if self.is_seen(entity):
                raise OptionError(f"the entity {shown(entity)} was trained on; only newcomers can be removed")
        return self.store.remove(entities, who=who or NOBODY, source=source, key=key)

    def newcomers(self, after: str = "", limit: int = 100, prefix: str = "") -> list[Newcomer]:
        """A page of the newcomers in the store, by name."""
        with self.store.reading() as state:
            return state.newcomers(after, limit, prefix)

    def scope(self, *entities: str) -> Scope:
        """The model with the newcomers that questions about these entities are answered beside."""
        with self.store.reading() as state:
            return self.scope_in(state, entities)

    def scope_in(self, state: Reading, entities: Sequence[str]) -> Scope:
        """The same, at a state of the store."""
        asked, complete = list(dict.fromkeys(entities)), True
        for entity in entities:
            if isinstance(entity, str) and self.is_seen(entity):
                near = self._near(state, entity)
                asked += near[:NEARBY]
                complete &= len(near) <= NEARBY
        names = [name for name in asked if isinstance(name, str) and not self.is_seen(name)]
        found = state.component(names, self.is_seen, MOST_CONNECTED)
        return Scope(self._with(found.facts), state.position, complete and found.complete)

    def _near(self, state: Reading, entity: str) -> list[str]:
        """Newcomers that have a fact with an entity, a few more than are looked at; who was trained on is none."""
        limit = NEARBY + 1
        while True:
            found = state.near(entity, limit)
            near = [name for name in found if not self.is_seen(name)]
            if len(near) > NEARBY or len(found) < limit:
                return near
            limit *= 4

    def _with(self, facts: tuple[Fact, ...]) -> Predictor:
        """The model with some facts; that of facts which were lately asked about is kept."""
        if not facts:
            return self.model
        with self._lock:
            if facts in self._encoded:
                self._encoded.move_to_end(facts)
                return self._encoded[facts]
        model = self.model.copy()
        # Facts may have been stated beside an older model: what this one was trained on by now, or lacks, is left out.
        model.add(facts, on_unknown_relation="skip", on_seen_fact="skip")
        with self._lock:
            self._encoded[facts] = model
            while len(self._encoded) > KEPT:
                self._encoded.popitem(last=False)
        return model

    def tails(self, entity: str, relation: str, k: int = 10, **options: Any) -> list[Answer]:
        """The k best answers to (entity, relation, ?), as `Predictor.tails`."""
        return self.scope(entity).model.tails(entity, relation, k, **options)

    def heads(self, relation: str, entity: str, k: int = 10, **options: Any) -> list[Answer]:
        """The k best answers to (?, relation, entity), as `Predictor.heads`."""
        return self.scope(entity).model.heads(relation, entity, k, **options)

    def suggest(self, entity: str, k: int = 20, **options: Any) -> list[Suggestion]:
        """The k facts of an entity that are most likely missing, as `Predictor.suggest`."""
        return self.scope(entity).model.suggest(entity, k, **options)

    def classify(self, triples: Iterable[Sequence[str]]) -> list[Verdict]:
        """Whether each triple counts as true, as `Predictor.classify`; all at one position of the log."""
        asked = [tuple(one) for one in triples]
        with self.store.reading() as state:
            scopes = [self.scope_in(state, [one[place] for place in (0, -1) if one]) for one in asked]
        return [scope.model.classify([one])[0] for scope, one in zip(scopes, asked, strict=True)]

    def embed(self, entity: str, relation: str | None = None) -> npt.NDArray[np.float32]:
        """The vector of an entity, as `Predictor.embed`."""
        return self.scope(entity).model.embed(entity, relation)

    def similar(self, entity: str, k: int = 10) -> list[tuple[str, float]]:
        """The k entities with the most similar vectors: of those trained on, and of newcomers connected to it."""
        return self.scope(entity).model.similar(entity, k)

    def confidence(self, entity: str) -> Confidence:
        """How much is known of an entity, as `Predictor.confidence`."""
        return self.scope(entity).model.confidence(entity)

    def neighbors(self, entity: str) -> list[Neighbor]:
        """What an entity's vector rests on, as `Predictor.neighbors`."""
        return self.scope(entity).model.neighbors(entity)

    def record(
        self, answers: Iterable[GivenAnswer], scope: Scope, *, who: str = "", key: str | None = None
    ) -> Recorded:
        """Write down what was answered in a scope, with the model and the position it was made from."""
        return self.store.record(answers, model=self.version, made_from=scope.position, who=who or NOBODY, key=key)
