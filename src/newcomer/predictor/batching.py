"""Any number of newcomers in batches: those of a connected component are added together, asked about and dropped.

The facts are held as ids (12 bytes each, every name once). All that a model makes of newcomers, their neighbourhoods,
vectors and answers, is there for one batch at a time. A stream of facts may never end: there each batch is asked about
as soon as it is complete.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from newcomer.data.tables import NamedTriples
from newcomer.errors import shown
from newcomer.graph import UNKNOWN, Graph, Ids, Mask, TripleArray
from newcomer.predictor.fact_store import FactError, Skipping, Triple, checked
from newcomer.predictor.predictor import Predictor

REMEMBERED = 100_000  # newcomers that were dropped last, to notice one that returns


@dataclass(frozen=True, eq=False)
class NewcomerBatch:
    """A model with a batch of newcomers; ``newcomers`` are those whom the facts name, in the order they do.

    Where the facts are known already, they are those who were newcomers until they were trained on (`Introduced`).
    """

    model: Predictor
    newcomers: tuple[str, ...]

    @classmethod
    def of(cls, model: Predictor, facts: Iterable[Triple], newcomers: Iterable[str]) -> "NewcomerBatch":
        """A copy of a model, with these facts added."""
        copied = model.copy()
        copied.add(facts)
        return cls(copied, tuple(newcomers))


class Introduced:
    """Facts that the observed graph has, and the seen entities that it has by these facts alone.

    They are asked about as newcomers are: facts of newcomers may be given again when the model was trained on them.
    """

    def __init__(self, observed: Graph) -> None:
        self._degrees = observed.degrees
        self._met: set[tuple[int, int, int]] = set()
        self._left: Counter[int] = Counter()  # facts of the graph that were not given, for those who had any

    def by(self, fact: tuple[int, int, int]) -> list[int]:
        """Those whose last fact this is."""
        if fact in self._met:
            return []
        self._met.add(fact)
        ends = fact[0], fact[2]
        for end in ends:  # a fact about an entity and itself counts twice, as it does in the degrees
            self._left[end] = self._left.get(end, int(self._degrees[end])) - 1
        return [end for end in dict.fromkeys(ends) if self._left[end] == 0]


class NewcomerBatches:
    """The newcomers of many facts, and the connected components they form.

    Two newcomers are of one component where a fact is about both, or where others connect them. A component is asked
    about beside the entities the model was trained on and the newcomers it has already; the other facts are not there.
    So an answer does not depend on what else a file holds, nor on its order.

    Facts are checked first: whatever is wrong with one of them is the error that `Predictor.add` has for it, with its
    place among the facts. ``unknown_relations`` and ``seen_facts`` count those that are skipped, ``known`` those that
    the observed graph has. Of the latter come the ``introduced``: seen entities that the graph has by these facts
    alone. They are the last batch, with the model as it is.

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

    def __init__(
        self,
        model: Predictor,
        facts: NamedTriples,
        on_unknown_relation: str = "error",
        on_seen_fact: str = "error",
    ) -> None:
        self._model = model
        self._entities, self._relations = facts.entities, facts.relations
        known, ids = model.names.relations.ids(facts.relations) != UNKNOWN, model.names.entities.ids(facts.entities)
        self._is_new = is_new = (ids == UNKNOWN) | (ids >= model.names.num_seen)
        blank = np.array([not name.strip() for name in facts.entities.to_pylist()], dtype=bool)
        triples = facts.triples
        others = ~known[triples.relations] | blank[triples.heads] | blank[triples.tails]
        others |= ~is_new[triples.heads] & ~is_new[triples.tails]
        skipping = Skipping(on_unknown_relation, on_seen_fact)
        try:
            found = checked(self._rows(triples.take(others)), model.names, model.bundle.observed, skipping)
        except FactError as error:
            raise FactError(str(error), int(np.flatnonzero(others)[error.place]), error.skipped_by) from None
        self.unknown_relations, self.seen_facts = found.unknown_relations, found.seen_facts
        self.known = len(found.known)
        introduced = Introduced(model.bundle.observed)
        ends = [end for fact in found.known for end in introduced.by(fact)]
        self.introduced = tuple(model.names.entity_names[end] for end in ends)
        self._triples, self._starts = _by_component(triples.take(~others), is_new)

    @property
    def skipped(self) -> int:
        """How many facts were left out because that was asked for."""
        return self.unknown_relations + self.seen_facts

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
        if wanted is None and self.introduced:
            yield NewcomerBatch(self._model, self.introduced)

    def together(self) -> NewcomerBatch:
        """All of them at once, each among the candidates of the others."""
        names = [*self._names(self._members(self._triples)), *self.introduced]
        return NewcomerBatch.of(self._model, self._rows(self._triples), names)

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

    Facts come with a number each, by which an error names the one to blame. ``facts`` counts those that came,
    ``unknown_relations``, ``seen_facts`` and ``known`` those of them that are as in `NewcomerBatches`. Such facts end
    no batch; who is introduced by them is a batch when the last of its facts has come.

    >>> from newcomer.predictor import NewcomerStream
    >>> facts = [("ann", "lives_in", "city1"), ("cyd", "knows", "ann"), None, ("bob", "lives_in", "city2")]
    >>> for batch in NewcomerStream(model).batches(enumerate(facts)):
    ...     print(batch.newcomers, batch.model.tails(batch.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, on_unknown_relation: str = "error", on_seen_fact: str = "error") -> None:
        self._model, self._skipping = model, Skipping(on_unknown_relation, on_seen_fact)
        self._introduced = Introduced(model.bundle.observed)
        self._dropped: dict[str, None] = {}  # in the order in which they went
        self.facts, self.known, self.unknown_relations, self.seen_facts = 0, 0, 0, 0

    def batches(self, facts: Iterable[tuple[int, Triple | None]]) -> Iterator[NewcomerBatch]:
        """Each batch in turn; more facts are taken only when the next one is wanted."""
        batch: list[Triple] = []
        members: dict[str, None] = {}
        for number, fact in facts:
            arrived, introduced = (None, []) if fact is None else self._named_by(fact, number)
            if introduced:
                yield NewcomerBatch(self._model, tuple(introduced))
            if arrived is not None and not arrived:
                continue  # known, or skipped
            if batch and (arrived is None or members.keys().isdisjoint(arrived)):
                yield self._batch(batch, members)
                batch, members = [], {}
            if fact is not None and arrived is not None:
                self._refuse_returning(arrived, number)
                batch.append(fact)
                members |= dict.fromkeys(arrived)
        if batch:
            yield self._batch(batch, members)

    def _named_by(self, fact: Triple, number: int) -> tuple[list[str], list[str]]:
        """The newcomers whom a fact names, and who is introduced by it."""
        self.facts += 1
        names = self._model.names
        try:
            found = checked([fact], names, self._model.bundle.observed, self._skipping)
        except FactError as error:
            raise FactError(str(error), number, error.skipped_by) from None
        self.known += len(found.known)
        self.unknown_relations += found.unknown_relations
        self.seen_facts += found.seen_facts
        arrived = [name for head, _, tail in found.facts for name in (head, tail) if names.seen(name) == UNKNOWN]
        return arrived, [names.entity_names[end] for one in found.known for end in self._introduced.by(one)]

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
