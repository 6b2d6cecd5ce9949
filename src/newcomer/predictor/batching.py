"""Any number of newcomers, a few at a time: those whom facts tie to each other come together, are asked, and go.

The facts are held as ids (12 bytes each, every name once). All that a model makes of newcomers, their neighbourhoods,
vectors and answers, is there for one party at a time.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from newcomer.data.tables import NamedTriples
from newcomer.graph import Ids, Mask, TripleArray
from newcomer.predictor.fact_store import FactError, Names, Triple
from newcomer.predictor.predictor import Predictor


@dataclass(frozen=True, eq=False)
class NewcomerBatch:
    """A model with a party of newcomers; ``newcomers`` are those whom the facts name, in the order they do."""

    model: Predictor
    newcomers: tuple[str, ...]


class NewcomerBatches:
    """The newcomers of many facts, and the parties they form.

    Two newcomers are of one party where a fact is about both, or where others tie them so. A party is asked about
    beside the entities the model was trained on and the newcomers it has already; the rest of the facts is not there.
    So an answer does not depend on what else a file holds, nor on its order.

    Facts are checked when the visitors are announced, before anyone is asked about: whatever is wrong with one of them
    is the error that `Predictor.add` has for it, with its place among the facts. ``skipped`` counts those with a
    relation that the model lacks, where they may be skipped.

    >>> from newcomer.data.triples import read_triples
    >>> from newcomer.predictor import NewcomerBatches
    >>> from pathlib import Path
    >>> facts = [("ann", "lives_in", "city1"), ("bob", "lives_in", "city2"), ("cyd", "knows", "ann")]
    >>> written = Path("facts.tsv").write_text("".join("\\t".join(fact) + "\\n" for fact in facts))
    >>> for visit in NewcomerBatches(model, read_triples(Path("facts.tsv"))).visits():
    ...     print(visit.newcomers, visit.model.tails(visit.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, facts: NamedTriples, on_unknown_relation: str = "error") -> None:
        self._model = model
        self._entities, self._relations = facts.entities, facts.relations
        known = _known_relations(model, facts)
        is_new, blank = self._look_at_names()
        triples = facts.triples
        strange = ~known[triples.relations] | blank[triples.heads] | blank[triples.tails]
        strange |= ~is_new[triples.heads] & ~is_new[triples.tails]
        self._complain(triples.take(strange), np.flatnonzero(strange), on_unknown_relation)
        if on_unknown_relation == "skip":
            triples = triples.take(known[triples.relations])
        self.skipped = len(facts) - len(triples)
        self._is_new = is_new
        self._triples, self._starts = _by_party(triples, is_new)

    def _complain(self, strange: TripleArray, places: npt.NDArray[np.intp], on_unknown_relation: str) -> None:
        """The error for the first fact that has one, with its place among all."""
        try:
            self._model.check(self._rows(strange), on_unknown_relation)
        except FactError as error:
            raise FactError(str(error), int(places[error.place]), error.skippable) from None

    def __len__(self) -> int:
        """How many newcomers the facts are about."""
        return int(self._members(self._triples).size)

    def named(self, names: Iterable[str]) -> set[str]:
        """Those of the names who are newcomers of these facts."""
        wanted = set(names)
        return {name for name in self._names(self._members(self._triples)) if name in wanted}

    def visits(self, of: Collection[str] | None = None) -> Iterator[NewcomerBatch]:
        """Each party in turn, or each that has one of those named; in the order in which the facts first name them."""
        wanted = None if of is None else set(of)
        for start, end in zip(self._starts[:-1], self._starts[1:], strict=True):
            party = self._triples.take(np.arange(start, end))
            names = self._names(self._members(party))
            if wanted is None or not wanted.isdisjoint(names):
                yield NewcomerBatch(self._with(party), tuple(names))

    def together(self) -> NewcomerBatch:
        """All of them at once, each among the candidates of the others."""
        return NewcomerBatch(self._with(self._triples), tuple(self._names(self._members(self._triples))))

    def _with(self, triples: TripleArray) -> Predictor:
        model = self._model.copy()
        model.add(self._rows(triples))
        return model

    def _look_at_names(self) -> tuple[Mask, Mask]:
        """Which entities are newcomers, and which have a name that says nothing."""
        model, size = self._model, len(self._entities)
        there = set(model.newcomers)
        names = [scalar.as_py() for scalar in self._entities]
        is_new = np.fromiter((name in there or name not in model for name in names), dtype=bool, count=size)
        return is_new, np.fromiter((not name.strip() for name in names), dtype=bool, count=size)

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


def _known_relations(model: Predictor, facts: NamedTriples) -> Mask:
    known = set(model.relations)
    return np.fromiter((name in known for name in facts.relations.to_pylist()), dtype=bool, count=len(facts.relations))


def _by_party(triples: TripleArray, is_new: Mask) -> tuple[TripleArray, npt.NDArray[np.int64]]:
    """The facts party by party, in the order of each one's first fact, and where each begins (and the last ends)."""
    roots = _roots(triples, is_new)
    party = roots[np.where(is_new[triples.heads], triples.heads, triples.tails)]
    _, first, number = np.unique(party, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    sizes = np.bincount(number)[np.argsort(first)]
    return triples.take(order), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _roots(triples: TripleArray, is_new: Mask) -> Ids:
    """One newcomer of each party, for each of its members."""
    parent = list(range(len(is_new)))

    def root(member: int) -> int:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    ties = is_new[triples.heads] & is_new[triples.tails]
    for head, tail in zip(triples.heads[ties].tolist(), triples.tails[ties].tolist(), strict=True):
        parent[root(head)] = root(tail)
    return np.array([root(member) for member in range(len(parent))], dtype=np.int32)


def check_relations(model: Predictor, names: Iterable[str]) -> None:
    """An error, with the nearest name there is, for the first relation that the model does not know."""
    observed = model.bundle.observed
    known = Names(observed.entities, observed.relations, observed.num_entities)
    for name in names:
        known.relation(name)
