"""Any number of newcomers in batches: those of a connected component are added together, asked about and dropped.

The facts are held as ids (12 bytes each, every name once). All that a model makes of newcomers, their neighbourhoods,
vectors and answers, is there for one batch at a time. A stream of facts may never end: there each batch is asked about
as soon as it is complete.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from newcomer.data.tables import NamedTriples
from newcomer.errors import shown
from newcomer.graph import UNKNOWN, Ids, Mask, TripleArray
from newcomer.predictor.fact_store import FactError, Triple
from newcomer.predictor.predictor import Predictor

REMEMBERED = 100_000  # newcomers that were dropped last, to notice one that returns


@dataclass(frozen=True, eq=False)
class NewcomerBatch:
    """A model with a batch of newcomers; ``newcomers`` are those whom the facts name, in the order they do."""

    model: Predictor
    newcomers: tuple[str, ...]

    @classmethod
    def of(cls, model: Predictor, facts: Iterable[Triple], newcomers: Iterable[str]) -> "NewcomerBatch":
        """A copy of a model, with these facts added."""
        copied = model.copy()
        copied.add(facts)
        return cls(copied, tuple(newcomers))


class NewcomerBatches:
    """The newcomers of many facts, and the connected components they form.

    Two newcomers are of one component where a fact is about both, or where others connect them. A component is asked
    about beside the entities the model was trained on and the newcomers it has already; the other facts are not there.
    So an answer does not depend on what else a file holds, nor on its order.

    Facts are checked first: whatever is wrong with one of them is the error that `Predictor.add` has for it, with its
    place among the facts. ``skipped`` counts those with a relation that the model lacks, where they may be skipped.

    >>> from newcomer.data.triples import read_triples
    >>> from newcomer.predictor import NewcomerBatches
    >>> from pathlib import Path
    >>> facts = [("ann", "lives_in", "city1"), ("bob", "lives_in", "city2"), ("cyd", "knows", "ann")]
    >>> written = Path("facts.tsv").write_text("".join("\\t".join(fact) + "\\n" for fact in facts))
    >>> for batch in NewcomerBatches(model, read_triples(Path("facts.tsv"))).batches():
    ...     print(batch.newcomers, batch.model.tails(batch.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, facts: NamedTriples, on_unknown_relation: str = "error") -> None:
        self._model = model
        self._entities, self._relations = facts.entities, facts.relations
        known, ids = model.names.relations.ids(facts.relations) != UNKNOWN, model.names.entities.ids(facts.entities)
        self._is_new = is_new = (ids == UNKNOWN) | (ids >= model.names.num_seen)
        blank = np.array([not name.strip() for name in facts.entities.to_pylist()], dtype=bool)
        triples = facts.triples
        invalid = ~known[triples.relations] | blank[triples.heads] | blank[triples.tails]
        invalid |= ~is_new[triples.heads] & ~is_new[triples.tails]
        try:
            model.check(self._rows(triples.take(invalid)), on_unknown_relation)
        except FactError as error:
            raise FactError(str(error), int(np.flatnonzero(invalid)[error.place]), error.skippable) from None
        if on_unknown_relation == "skip":
            triples = triples.take(known[triples.relations])
        self.skipped = len(facts) - len(triples)
        self._triples, self._starts = _by_component(triples, is_new)

    def __len__(self) -> int:
        """How many newcomers the facts are about."""
        return int(self._members(self._triples).size)

    def named(self, names: Iterable[str]) -> set[str]:
        """Those of the names who are newcomers of these facts."""
        wanted = set(names)
        return {name for name in self._names(self._members(self._triples)) if name in wanted}

    def batches(self, of: Collection[str] | None = None) -> Iterator[NewcomerBatch]:
        """Each batch in turn, or each that has one of those named; in the order in which the facts first name them."""
        wanted = None if of is None else set(of)
        for start, end in zip(self._starts[:-1], self._starts[1:], strict=True):
            component = self._triples.take(np.arange(start, end))
            names = self._names(self._members(component))
            if wanted is None or not wanted.isdisjoint(names):
                yield NewcomerBatch.of(self._model, self._rows(component), names)

    def together(self) -> NewcomerBatch:
        """All of them at once, each among the candidates of the others."""
        return NewcomerBatch.of(self._model, self._rows(self._triples), self._names(self._members(self._triples)))

    def _members(self, triples: TripleArray) -> Ids:
        """The newcomers of facts, in the order in which they are named."""
        ends = np.stack([triples.heads, triples.tails], axis=1).reshape(-1)
        ends = ends[self._is_new[ends]]
        return np.asarray(ends[np.sort(np.unique(ends, return_index=True)[1])], dtype=np.int32)

    def _names(self, entities: Ids) -> list[str]:
        return list(self._entities.take(entities).to_pylist())

    def _rows(self, triples: TripleArray) -> list[Triple]:
        relations = self._relations.take(triples.relations).to_pylist()
        return list(zip(self._names(triples.heads), relations, self._names(triples.tails), strict=True))


class NewcomerStream:
    """Batches of newcomers, found by the order of their facts.

    The facts of a batch are consecutive: each names a newcomer that one before it has named. So a batch is complete
    when a fact names none of its newcomers, at a gap (None), and at the end. It is then asked about as in
    `NewcomerBatches`, and dropped. A newcomer that returns after that is an error, since an answer about it was given
    without all of its facts; the last 100,000 are remembered for that.

    Facts come with a number each, by which an error names the one to blame. ``facts`` counts those that came, and
    ``skipped`` those of them with a relation that the model lacks, where they may be skipped.

    >>> from newcomer.predictor import NewcomerStream
    >>> facts = [("ann", "lives_in", "city1"), ("cyd", "knows", "ann"), None, ("bob", "lives_in", "city2")]
    >>> for batch in NewcomerStream(model).batches(enumerate(facts)):
    ...     print(batch.newcomers, batch.model.tails(batch.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, on_unknown_relation: str = "error") -> None:
        model.check([], on_unknown_relation)
        self._model, self._unknown = model, on_unknown_relation
        self._dropped: dict[str, None] = {}  # in the order in which they went
        self.facts, self.skipped = 0, 0

    def batches(self, facts: Iterable[tuple[int, Triple | None]]) -> Iterator[NewcomerBatch]:
        """Each batch in turn; more facts are taken only when the next one is wanted."""
        batch: list[Triple] = []
        members: dict[str, None] = {}
        for number, fact in facts:
            arrived = None if fact is None else self._newcomers(fact, number)
            if arrived is not None and not arrived:
                continue  # skipped
            if batch and (arrived is None or members.keys().isdisjoint(arrived)):
                yield self._batch(batch, members)
                batch, members = [], {}
            if fact is not None and arrived is not None:
                self._refuse_returning(arrived, number)
                batch.append(fact)
                members |= dict.fromkeys(arrived)
        if batch:
            yield self._batch(batch, members)

    def _newcomers(self, fact: Triple, number: int) -> list[str]:
        """Those whom a fact names; none where it is skipped."""
        self.facts += 1
        try:
            skipped = self._model.check([fact], self._unknown)
        except FactError as error:
            raise FactError(str(error), number, error.skippable) from None
        self.skipped += skipped
        ends = () if skipped else (fact[0], fact[2])
        return [name for name in ends if self._model.names.seen(name) == UNKNOWN]

    def _refuse_returning(self, arrived: list[str], number: int) -> None:
        for name in arrived:
            if name in self._dropped:
                problem = f"the newcomer {shown(name)} was answered about already, without this fact"
                advice = "let all facts of a newcomer, and of those it is tied to, follow each other"
                raise FactError(f"{problem}; {advice}", number)

    def _batch(self, batch: list[Triple], members: dict[str, None]) -> NewcomerBatch:
        self._dropped |= members
        for name in list(islice(self._dropped, max(len(self._dropped) - REMEMBERED, 0))):
            del self._dropped[name]
        return NewcomerBatch.of(self._model, batch, members)


def _by_component(triples: TripleArray, is_new: Mask) -> tuple[TripleArray, npt.NDArray[np.int64]]:
    """The facts by connected component, in the order of first facts, and where each begins (and the last ends)."""
    both = is_new[triples.heads] & is_new[triples.tails]
    ends = triples.heads[both], triples.tails[both]
    edges = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(len(is_new), len(is_new)))
    labels = connected_components(edges, directed=False)[1]
    component = labels[np.where(is_new[triples.heads], triples.heads, triples.tails)]
    _, first, number = np.unique(component, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    sizes = np.bincount(number)[np.argsort(first)]
    return triples.take(order), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def check_relations(model: Predictor, names: Iterable[str]) -> None:
    """An error, with the nearest name there is, for the first relation that the model does not know."""
    for name in names:
        model.names.relation(name)
