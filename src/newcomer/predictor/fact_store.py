"""The fact store: newcomers and their facts by name, and who is connected to whom.

A store is immutable: adding and removing make another one, so that whoever reads goes on with what there was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

import numpy as np
import numpy.typing as npt

from newcomer.errors import OptionError, shown, unknown_name
from newcomer.graph import UNKNOWN, Graph, Ids, TripleArray, Vocabulary, about_newcomers
from newcomer.models.embedding.newcomers import Component

Triple = tuple[str, str, str]
Fact = tuple[str, int, str]  # head, relation id, tail
ON_UNKNOWN_RELATION = ("error", "skip")


class FactError(OptionError):
    """What is wrong with one of several facts: which it is, from 0, and whether it could be skipped."""

    def __init__(self, problem: str, place: int, skippable: bool = False) -> None:
        super().__init__(problem)
        self.place, self.skippable = place, skippable


@dataclass(frozen=True, eq=False)
class Names:
    """The names a model knows; the first ``num_seen`` entities are those it was trained on."""

    entities: Vocabulary
    relations: Vocabulary
    num_seen: int
    num_known: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_known", len(self.entities))

    @cached_property
    def _entities(self) -> list[str]:
        return list(self.entities)

    def entity(self, identifier: int) -> str:
        """The name of an id."""
        return self._entities[identifier]

    @cached_property
    def _relations(self) -> list[str]:
        return list(self.relations)

    def relation_name(self, identifier: int) -> str:
        """The name of a relation's id."""
        return self._relations[identifier]

    @cached_property
    def _relation_ids(self) -> dict[str, int]:
        return {name: identifier for identifier, name in enumerate(self._relations)}

    @cached_property
    def _seen(self) -> dict[str, int]:
        return {name: identifier for identifier, name in enumerate(self._entities[: self.num_seen])}

    def seen(self, name: str) -> int:
        """The id of a seen entity, else ``UNKNOWN``."""
        return self._seen.get(name, UNKNOWN)

    def relation(self, name: object) -> int:
        """The id of a relation; an error with the nearest name where there is none."""
        found = self._relation_ids.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
        if found == UNKNOWN:
            near = get_close_matches(str(name), self._relations, n=1, cutoff=0.6)
            guess = f"did you mean {near[0]!r}?" if near else f"it knows {len(self._relations):,} others"
            raise OptionError(f"the model knows no relation {shown(name)}; {guess}")
        return found

    def words(self, fact: Fact) -> Triple:
        """A fact by name."""
        return fact[0], self.relations[fact[1]], fact[2]


def checked(facts: Iterable[Sequence[str]], names: Names, on_unknown_relation: str = "error") -> tuple[list[Fact], int]:
    """The facts, each with a newcomer, and how many were skipped; whatever is wrong with any of them is an error."""
    if on_unknown_relation not in ON_UNKNOWN_RELATION:
        raise unknown_name("on_unknown_relation", on_unknown_relation, ON_UNKNOWN_RELATION)
    if isinstance(facts, str):
        raise OptionError(f"facts are {shown(facts)}, but must be a list of (head, relation, tail)")
    found, skipped = [], 0
    for place, row in enumerate(facts):
        identifier = 0
        try:
            head, relation, tail = named(row)
            identifier = names.relations.id(relation)
            if identifier == UNKNOWN and on_unknown_relation == "skip":
                skipped += 1
                continue
            if names.seen(head) != UNKNOWN and names.seen(tail) != UNKNOWN:
                problem = "is about two entities that the model was trained on"
                advice = "add facts of newcomers, or train it again"
                raise OptionError(f"the fact {shown((head, relation, tail))} {problem}; {advice}")
            found.append((head, identifier if identifier != UNKNOWN else names.relation(relation), tail))
        except OptionError as error:
            raise FactError(str(error), place, skippable=identifier == UNKNOWN) from None
    return found, skipped


def named(row: Sequence[str]) -> Triple:
    """A triple of three names that say something."""
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != 3:
        raise OptionError(f"{shown(row)} is not a triple; give (head, relation, tail)")
    for name in row:
        if not isinstance(name, str) or not name.strip():
            raise OptionError(
                f"the triple {shown(tuple(row))} has the name {shown(name)}; give words that are not empty"
            )
    return row[0], row[1], row[2]


@dataclass(frozen=True, eq=False)
class Stored:
    """The facts of the newcomers that a model was written with, by id; their words are looked up when they are asked.

    Facts between seen entities tell of no newcomer and are left out.
    """

    names: Names
    triples: TripleArray
    _sets: dict[str, frozenset[Fact]] = field(default_factory=dict, repr=False)  # those asked for so far

    @classmethod
    def of(cls, auxiliary: Graph | None, names: Names) -> "Stored":
        """From the facts of a bundle."""
        if auxiliary is None:
            return cls(names, TripleArray.empty())
        return cls(names, about_newcomers(auxiliary.triples, names.num_seen))

    @cached_property
    def _by_end(self) -> tuple[Ids, npt.NDArray[np.intp]]:
        """The ends of all facts, ascending, and the fact that each is of."""
        loops = self.triples.heads == self.triples.tails  # of these one end says all
        ends = np.concatenate([self.triples.heads, self.triples.tails[~loops]])
        facts = np.concatenate([np.arange(len(self.triples)), np.flatnonzero(~loops)])
        order = np.argsort(ends, kind="stable")
        return ends[order], facts[order]

    @cached_property
    def newcomers(self) -> dict[str, int]:
        """The id of each, in the order of ids."""
        ids = np.unique(self._by_end[0])
        ids = ids[ids >= self.names.num_seen]
        return dict(zip(self.names.entities.names_of(ids), ids.tolist(), strict=True))

    def facts(self, name: str) -> frozenset[Fact]:
        """The facts of a newcomer; of another name, none."""
        if name not in self._sets and name in self.newcomers:
            self._sets[name] = frozenset(self.about(self.newcomers[name]))
        return self._sets.get(name, frozenset())

    def about(self, identifier: int) -> list[Fact]:
        """The facts of one entity, seen or new."""
        ends, facts = self._by_end
        first, last = np.searchsorted(ends, [identifier, identifier + 1])
        mine = self.triples.take(facts[first:last])
        entities = self.names.entities
        return list(
            zip(entities.names_of(mine.heads), mine.relations.tolist(), entities.names_of(mine.tails), strict=True)
        )


class Facts(Mapping[str, frozenset[Fact]]):
    """The facts of each newcomer: as they were stored, but for those whose facts have changed since."""

    def __init__(self, stored: Stored, changed: Mapping[str, frozenset[Fact]]) -> None:
        self.stored = stored
        self.changed = changed  # of one who has left: none

    def __getitem__(self, name: str) -> frozenset[Fact]:
        stated = self.changed[name] if name in self.changed else self.stored.facts(name)
        if not stated:
            raise KeyError(name)
        return stated

    def __contains__(self, name: object) -> bool:
        return bool(self.changed[name]) if name in self.changed else name in self.stored.newcomers  # type: ignore[index]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.stored.newcomers if name not in self.changed)
        yield from (name for name, stated in self.changed.items() if stated)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def but(self, changes: Mapping[str, frozenset[Fact]]) -> "Facts":
        """With other facts for some: for those who leave, none."""
        changed = {**self.changed, **changes}
        for name, stated in changes.items():
            if stated == self.stored.facts(name):
                del changed[name]
        return Facts(self.stored, changed)


@dataclass(frozen=True, eq=False)
class FactStore:
    """The facts of every newcomer; one between two newcomers stands with both."""

    facts: Facts

    def with_facts(self, facts: Iterable[Fact], names: Names) -> "FactStore":
        """With more facts; those that are there change nothing."""
        more: dict[str, set[Fact]] = {}
        for fact in facts:
            for name in {fact[0], fact[2]}:
                if names.seen(name) == UNKNOWN:
                    more.setdefault(name, set()).add(fact)
        return FactStore(
            self.facts.but({name: self.facts.get(name, frozenset()) | stated for name, stated in more.items()})
        )

    def without_facts(self, facts: Iterable[Fact]) -> "FactStore":
        """Without these facts; a newcomer that is left with none is no longer there."""
        gone = set(facts)
        concerned = {end for fact in gone for end in (fact[0], fact[2]) if end in self.facts}
        return FactStore(self.facts.but({name: self.facts[name] - gone for name in concerned}))

    def connected(self, name: str) -> set[str]:
        """The connected component of a newcomer: those that facts between newcomers lead to, itself included."""
        found, ahead = {name}, [name]
        while ahead:
            for head, _, tail in self.facts[ahead.pop()]:
                for other in (head, tail):
                    if other in self.facts and other not in found:
                        found.add(other)
                        ahead.append(other)
        return found


@dataclass(frozen=True, eq=False)
class NamedComponent(Component):
    """Newcomers that are encoded together, with their names in the order of their ids."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, members: Iterable[str], store: FactStore, names: Names) -> "NamedComponent":
        """These newcomers of a store; those unknown to the vocabulary are numbered by name."""
        listed = list(members)
        known = dict(zip(listed, names.entities.ids(listed).tolist(), strict=True))
        ordered = sorted(listed, key=lambda name: (known[name] == UNKNOWN, known[name], name))
        new = [name for name in ordered if known[name] == UNKNOWN]
        known |= {name: len(names.entities) + place for place, name in enumerate(new)}
        ids = np.array([known[name] for name in ordered], dtype=np.int32)
        return cls(ids, facts_by_id(ordered, store, names, known), tuple(ordered))

    def id(self, name: str) -> int:
        """The id of a member, else ``UNKNOWN``."""
        return int(self.ids[self.names.index(name)]) if name in self.names else UNKNOWN

    def name(self, identifier: int, names: Names) -> str:
        """The name of a member or of a seen entity."""
        return names.entity(identifier) if identifier < names.num_seen else self._members[identifier]

    @cached_property
    def _members(self) -> dict[int, str]:
        return dict(zip(self.ids.tolist(), self.names, strict=True))


def facts_by_id(members: Iterable[str], store: FactStore, names: Names, ids: Mapping[str, int]) -> TripleArray:
    """The facts of newcomers, each once; ``ids`` has those of all newcomers in them."""

    def number(name: str) -> int:
        return ids[name] if name in ids else names.entities.id(name)

    stated = {fact for name in members for fact in store.facts[name]}
    return TripleArray.of([(number(head), relation, number(tail)) for head, relation, tail in stated])
