"""Newcomers and their facts by name: what is stated, who is tied to whom, and which ids rules know them by.

A book is never changed: adding and removing make another one, so that whoever reads goes on with what there was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from newcomer.errors import OptionError, shown, unknown_name
from newcomer.graph import UNKNOWN, Graph, Ids, TripleArray, Vocabulary

Triple = tuple[str, str, str]
Fact = tuple[str, int, str]  # head, relation id, tail
ON_UNKNOWN_RELATION = ("error", "skip")


@dataclass(frozen=True, eq=False)
class Names:
    """The names a model knows; the first ``num_seen`` entities are those it was trained on."""

    entities: Vocabulary
    relations: Vocabulary
    num_seen: int

    def seen(self, name: str) -> int:
        """The id of a seen entity, else ``UNKNOWN``."""
        found = self.entities.id(name)
        return found if found < self.num_seen else UNKNOWN

    def relation(self, name: object) -> int:
        """The id of a relation; an error with the nearest name where there is none."""
        found = self.relations.id(name) if isinstance(name, str) else UNKNOWN
        if found == UNKNOWN:
            near = get_close_matches(str(name), list(self.relations), n=1, cutoff=0.6)
            guess = f"did you mean {near[0]!r}?" if near else f"it knows {len(self.relations):,} others"
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
    for row in facts:
        head, relation, tail = named(row)
        if on_unknown_relation == "skip" and relation not in names.relations:
            skipped += 1
            continue
        if names.seen(head) != UNKNOWN and names.seen(tail) != UNKNOWN:
            problem = "is about two entities that the model was trained on; add facts of newcomers, or train it again"
            raise OptionError(f"the fact {shown((head, relation, tail))} {problem}")
        found.append((head, names.relation(relation), tail))
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
class Book:
    """The facts of every newcomer; one between two newcomers stands with both."""

    facts: Mapping[str, frozenset[Fact]]

    @classmethod
    def of(cls, auxiliary: Graph | None, num_seen: int) -> "Book":
        """From stored facts; those between seen entities tell of no newcomer and are left out."""
        if auxiliary is None:
            return cls({})
        triples = auxiliary.triples
        kept = triples.take((triples.heads >= num_seen) | (triples.tails >= num_seen))
        heads, tails = (auxiliary.entities.names_of(ends) for ends in (kept.heads, kept.tails))
        found: dict[str, set[Fact]] = {}
        for fact, ends in zip(
            zip(heads, kept.relations.tolist(), tails, strict=True), kept.rows[:, [0, 2]], strict=True
        ):
            for name, end in zip((fact[0], fact[2]), ends, strict=True):
                if end >= num_seen:
                    found.setdefault(name, set()).add(fact)
        return cls({name: frozenset(stated) for name, stated in found.items()})

    def with_facts(self, facts: Iterable[Fact], names: Names) -> "Book":
        """The book with more facts; those that it has change nothing."""
        more: dict[str, set[Fact]] = {}
        for fact in facts:
            for name in {fact[0], fact[2]}:
                if names.seen(name) == UNKNOWN:
                    more.setdefault(name, set()).add(fact)
        grown = {name: self.facts.get(name, frozenset()) | stated for name, stated in more.items()}
        return Book({**self.facts, **grown})

    def without_facts(self, facts: Iterable[Fact]) -> "Book":
        """The book without these facts; a newcomer that is left with none is no longer in it."""
        gone, left = set(facts), dict(self.facts)
        for name in {end for fact in gone for end in (fact[0], fact[2]) if end in left}:
            rest = left.pop(name) - gone
            if rest:
                left[name] = rest
        return Book(left)

    def tied(self, name: str) -> set[str]:
        """The newcomers that facts between newcomers lead to, this one included."""
        found, ahead = {name}, [name]
        while ahead:
            for head, _, tail in self.facts[ahead.pop()]:
                for other in (head, tail):
                    if other in self.facts and other not in found:
                        found.add(other)
                        ahead.append(other)
        return found


@dataclass(frozen=True, eq=False)
class Group:
    """Newcomers that are looked at together, with ids: those of the vocabulary have theirs, others follow by name.

    So what is found for a group depends on its facts alone: not on when it came, nor on who else is there.
    """

    names: tuple[str, ...]  # in the order of the ids
    ids: Ids
    facts: TripleArray

    @classmethod
    def of(cls, members: Iterable[str], book: Book, names: Names) -> "Group":
        """The newcomers of a book under these names."""
        listed = list(members)
        stored = dict(zip(listed, names.entities.ids(listed).tolist(), strict=True))
        ordered = sorted(listed, key=lambda name: (stored[name] == UNKNOWN, stored[name], name))
        first_free = len(names.entities)
        new = [name for name in ordered if stored[name] == UNKNOWN]
        stored |= {name: first_free + place for place, name in enumerate(new)}

        def number(name: str) -> int:
            return stored[name] if name in stored else names.seen(name)

        stated = {fact for name in ordered for fact in book.facts[name]}
        triples = TripleArray.of([(number(head), relation, number(tail)) for head, relation, tail in stated])
        return cls(tuple(ordered), np.array([stored[name] for name in ordered], dtype=np.int32), triples)

    def id(self, name: str) -> int:
        """The id of a member, else ``UNKNOWN``."""
        return int(self.ids[self.names.index(name)]) if name in self.names else UNKNOWN

    def name(self, identifier: int, names: Names) -> str:
        """The name of a member or of a seen entity."""
        if identifier < names.num_seen:
            return names.entities[identifier]
        return self.names[int(np.searchsorted(self.ids, identifier))]
