"""The fact store: newcomers and their facts by name, and who is connected to whom; and its snapshots.

A snapshot has a store and the ids that the inference engine knows its newcomers by. Both are immutable: adding and
removing make others, so that whoever reads goes on with what there was.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from torch import Tensor

from newcomer.errors import OptionError, shown, unknown_name
from newcomer.graph import UNKNOWN, Graph, Ids, TripleArray, Vocabulary
from newcomer.models.embedding.newcomers import Component, EncodedComponent
from newcomer.models.embedding.scorer import ABSENT, Members, Slot, Snapshot
from newcomer.models.engine import InferenceEngine
from newcomer.rules.rule import RuleSet

Triple = tuple[str, str, str]
Fact = tuple[str, int, str]  # head, relation id, tail
CHOICES = ("error", "skip")


class FactError(OptionError):
    """What is wrong with one of several facts: which it is, from 0, and the option that skips such facts, if any."""

    def __init__(self, problem: str, place: int, skipped_by: str = "") -> None:
        super().__init__(problem)
        self.place, self.skipped_by = place, skipped_by


class UnknownNameError(OptionError):
    """A name that is not known, as that of a relation."""

    def __init__(self, problem: str, name: str) -> None:
        super().__init__(problem)
        self.name = name


class UnknownEntityError(UnknownNameError):
    """A name that is neither that of an entity which was trained on nor that of a newcomer who is there."""


@dataclass(frozen=True)
class Skipping:
    """Which facts that a model cannot use are left out and counted ("skip"); others are errors ("error")."""

    on_unknown_relation: str = "error"
    on_seen_fact: str = "error"  # between seen entities, and not in the observed graph

    def __post_init__(self) -> None:
        for name, choice in vars(self).items():
            if choice not in CHOICES:
                raise unknown_name(name, choice, CHOICES)


@dataclass(frozen=True, eq=False)
class Names:
    """The names a model knows; the first ``num_seen`` entities are those it was trained on."""

    entities: Vocabulary
    relations: Vocabulary
    num_seen: int
    _rules: WeakKeyDictionary[RuleSet, dict[int, str]] = field(default_factory=WeakKeyDictionary, repr=False)

    @cached_property
    def entity_names(self) -> list[str]:
        """Of all entities, by id."""
        return list(self.entities)

    @cached_property
    def relation_names(self) -> list[str]:
        """Of all relations, by id."""
        return list(self.relations)

    def seen(self, name: str) -> int:
        """The id of a seen entity, else ``UNKNOWN``."""
        found = self.entities.index.get(name, UNKNOWN)
        return found if found < self.num_seen else UNKNOWN

    def relation(self, name: object) -> int:
        """The id of a relation; an error with the nearest name where there is none."""
        found = self.relations.index.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
        if found == UNKNOWN:
            near = get_close_matches(str(name), self.relation_names, n=1, cutoff=0.6)
            guess = f"did you mean {near[0]!r}?" if near else f"it knows {len(self.relations):,} others"
            raise UnknownNameError(f"the model knows no relation {shown(name)}; {guess}", str(name))
        return found

    def rules_in_words(self, rules: RuleSet, rows: Sequence[int]) -> list[str]:
        """Some of these rules in words; many answers have the same."""
        texts = self._rules.setdefault(rules, {})
        for row in rows:
            if row not in texts:
                texts[row] = rules[row].text(self.relations, self.entities)
        return [texts[row] for row in rows]

    def words(self, fact: Fact) -> Triple:
        """A fact by name."""
        return fact[0], self.relation_names[fact[1]], fact[2]


@dataclass
class Checked:
    """Facts that were checked: each with a newcomer, those the observed graph has (by id), and counts of others."""

    facts: list[Fact] = field(default_factory=list)
    known: list[tuple[int, int, int]] = field(default_factory=list)
    unknown_relations: int = 0
    seen_facts: int = 0

    @property
    def skipped(self) -> int:
        """How many were left out."""
        return self.unknown_relations + self.seen_facts


def checked(facts: Iterable[Sequence[str]], names: Names, observed: Graph, skipping: Skipping) -> Checked:
    """The facts by what they are; whatever is wrong with any of them, and not skipped, is an error."""
    if isinstance(facts, str):
        raise OptionError(f"facts are {shown(facts)}, but must be a list of (head, relation, tail)")
    found, fault = Checked(), None
    between: list[tuple[int, Triple]] = []  # seen entities: with their places, to be looked up all at once
    for place, row in enumerate(facts):
        skipped_by = ""
        try:
            head, relation, tail = named(row)
            if relation not in names.relations.index:
                skipped_by = "on_unknown_relation"
                if skipping.on_unknown_relation == "error":
                    names.relation(relation)
                found.unknown_relations += 1
            elif UNKNOWN in (names.seen(head), names.seen(tail)):
                found.facts.append((head, names.relations.index[relation], tail))
            else:
                between.append((place, (head, relation, tail)))
        except OptionError as error:
            fault = FactError(str(error), place, skipped_by)
            break
    _look_up(between, found, names, observed, skipping)  # of two that are wrong the first is the error
    if fault is not None:
        raise fault
    return found


def _look_up(
    between: Sequence[tuple[int, Triple]], found: Checked, names: Names, observed: Graph, skipping: Skipping
) -> None:
    """Tell facts between seen entities that the observed graph has from those that it lacks."""
    ids = [
        (names.seen(head), names.relations.index[relation], names.seen(tail)) for _, (head, relation, tail) in between
    ]
    is_known = observed.contains(*np.array(ids, dtype=np.int32).reshape(-1, 3).T)
    for (place, fact), triple, known in zip(between, ids, is_known.tolist(), strict=True):
        if known:
            found.known.append(triple)
        elif skipping.on_seen_fact == "skip":
            found.seen_facts += 1
        else:
            problem = "is about two entities that the model was trained on, and not in the graph it was trained on"
            raise FactError(f"the fact {shown(fact)} {problem}; train it again to use the fact", place, "on_seen_fact")


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

    @cached_property
    def _by_end(self) -> tuple[Ids, npt.NDArray[np.intp]]:
        """The ends of all facts, ascending, and the fact that each is of."""
        ends = np.concatenate([self.triples.heads, self.triples.tails])
        order = np.argsort(ends, kind="stable")
        return ends[order], order % max(len(self.triples), 1)

    @cached_property
    def newcomers(self) -> dict[str, int]:
        """The id of each, in the order of ids."""
        ids = np.unique(self._by_end[0])
        ids = ids[ids >= self.names.num_seen]
        return dict(zip(self.names.entities.names_of(ids), ids.tolist(), strict=True))

    def facts(self, name: str) -> frozenset[Fact]:
        """The facts of a newcomer; of another name, none."""
        if name not in self._sets and name in self.newcomers:
            ends, facts = self._by_end
            first, last = np.searchsorted(ends, [self.newcomers[name], self.newcomers[name] + 1])
            mine, words = self.triples.take(facts[first:last]), self.names.entities.names_of
            rows = zip(words(mine.heads), mine.relations.tolist(), words(mine.tails), strict=True)
            self._sets[name] = frozenset(rows)
        return self._sets.get(name, frozenset())


class FactStore(Mapping[str, frozenset[Fact]]):
    """The facts of each newcomer: as they were stored, but for those whose facts have changed since.

    A fact between two newcomers stands with both.
    """

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

    def with_facts(self, facts: Iterable[Fact]) -> "FactStore":
        """With more facts; those that are there change nothing."""
        more: dict[str, set[Fact]] = {}
        for fact in facts:
            for name in {fact[0], fact[2]}:
                if self.stored.names.seen(name) == UNKNOWN:
                    more.setdefault(name, set()).add(fact)
        return self._but({name: self.get(name, frozenset()) | stated for name, stated in more.items()})

    def without_facts(self, facts: Iterable[Fact]) -> "FactStore":
        """Without these facts; a newcomer that is left with none is no longer there."""
        gone = set(facts)
        return self._but({name: self[name] - gone for name in ends_of(gone) if name in self})

    def _but(self, changes: Mapping[str, frozenset[Fact]]) -> "FactStore":
        """With other facts for some: for those who leave, none."""
        changed = {**self.changed, **changes}
        for name, stated in changes.items():
            if stated == self.stored.facts(name):
                del changed[name]
        return FactStore(self.stored, changed)

    def connected(self, name: str) -> set[str]:
        """The connected component of a newcomer: those that facts between newcomers lead to, itself included."""
        found, ahead = {name}, [name]
        while ahead:
            others = {end for end in ends_of(self[ahead.pop()]) if end in self} - found
            found |= others
            ahead += others
        return found


def ends_of(facts: Iterable[Fact]) -> set[str]:
    """Everyone whom facts are about."""
    return {name for fact in facts for name in (fact[0], fact[2])}


@dataclass(frozen=True, eq=False)
class NamedComponent(Component):
    """Newcomers that are encoded together, with their names in the order of their ids."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, members: Iterable[str], store: FactStore, names: Names) -> "NamedComponent":
        """These newcomers of a store; those unknown to the vocabulary are numbered by name."""
        ids = {name: names.entities.index.get(name, UNKNOWN) for name in members}
        new = sorted(name for name, identifier in ids.items() if identifier == UNKNOWN)
        ids |= {name: len(names.entities.index) + place for place, name in enumerate(new)}
        ordered = sorted(ids, key=ids.__getitem__)
        numbers = np.array([ids[name] for name in ordered], dtype=np.int32)
        return cls(numbers, facts_by_id(ordered, store, names, ids), tuple(ordered))

    def id(self, name: str) -> int:
        """The id of a member, else ``UNKNOWN``."""
        return int(self.ids[self.names.index(name)]) if name in self.names else UNKNOWN

    def name(self, identifier: int, names: Names) -> str:
        """The name of a member or of a seen entity."""
        return names.entity_names[identifier] if identifier < names.num_seen else self.names_by_id[identifier]

    @cached_property
    def names_by_id(self) -> dict[int, str]:
        """The names of the members."""
        return dict(zip(self.ids.tolist(), self.names, strict=True))


def facts_by_id(members: Iterable[str], store: FactStore, names: Names, ids: Mapping[str, int]) -> TripleArray:
    """The facts of newcomers, each once; ``ids`` has those of all newcomers in them."""

    known = names.entities.index
    stated = {fact for name in members for fact in store[name]}
    numbers = [
        number
        for head, relation, tail in stated
        for number in (
            ids[head] if head in ids else known[head],
            relation,
            ids[tail] if tail in ids else known[tail],
        )
    ]
    return TripleArray.of(np.array(numbers, dtype=np.int32).reshape(-1, 3))


@dataclass(frozen=True, eq=False)
class NamedSnapshot:
    """The newcomers that are there, with their facts and slots; never changed.

    Newcomers have the ids of the vocabulary; those that it lacks follow by name. So ids depend on who is there, not on
    the order in which they came.
    """

    engine: InferenceEngine
    names: Names
    store: FactStore
    slots: Mapping[str, Slot | None] = field(default_factory=dict)  # of who has changed since loading; None: has left

    def __contains__(self, name: object) -> bool:
        return name in self.store

    @cached_property
    def newcomers(self) -> list[str]:
        """By name."""
        return sorted(self.store)

    @cached_property
    def _unknown(self) -> list[str]:
        """The newcomers that the vocabulary lacks, by name."""
        return sorted(name for name, slot in self.slots.items() if slot and name not in self.names.entities.index)

    def id(self, name: str) -> int:
        """The id of an entity; an error where it is not there."""
        found = self.names.entities.index.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
        if not 0 <= found < self.names.num_seen and name not in self:
            raise UnknownEntityError(f"the entity {shown(name)} is not known; add facts of it first", name)
        return found if found != UNKNOWN else len(self.names.entities.index) + bisect_left(self._unknown, name)

    def name_of(self, identifier: int) -> str:
        """The name of an id."""
        known = self.names.entity_names
        return known[identifier] if identifier < len(known) else self._unknown[identifier - len(known)]

    @cached_property
    def graph(self) -> Snapshot:
        """The snapshot that the inference engine is asked in."""
        first, slots = self.engine.initial, self.slots
        if not slots:
            return first
        present = [name for name, slot in slots.items() if slot is not None]
        ids = {name: self.id(name) for name in present}
        known = self.names.entities.index
        changed = np.array(sorted(known[name] for name in slots if name in known), dtype=np.int32)
        overlay = first.overlay.with_delta(facts_by_id(present, self.store, self.names, ids), changed)
        is_present = np.ones(len(known) + len(self._unknown), dtype=bool)
        is_present[: len(first.is_present)] = first.is_present
        is_present[changed] = False
        is_present[list(ids.values())] = True
        members = [Members(one.encoded, np.where(np.isin(one.ids, changed), ABSENT, one.ids)) for one in first.members]
        return Snapshot(overlay, (*members, *self._members_since(ids)), is_present)

    def _members_since(self, ids: Mapping[str, int]) -> Iterable[Members]:
        """The components encoded since the model was loaded, with the ids of who still has a slot there."""
        places: dict[EncodedComponent, Ids] = {}
        for name, slot in self.slots.items():
            if slot is not None:
                own = places.setdefault(slot.encoded, np.full(slot.encoded.size, ABSENT, dtype=np.int32))
                own[slot.number] = ids[name]
        return (Members(encoded, own) for encoded, own in places.items())

    def added(self, facts: Collection[Fact]) -> "NamedSnapshot":
        """The snapshot with more facts."""
        return self._with_store(self.store.with_facts(facts), facts)

    def removed(self, facts: Collection[Fact]) -> "NamedSnapshot":
        """The snapshot without some facts; newcomers that are left with none go."""
        return self._with_store(self.store.without_facts(facts), facts)

    def _with_store(self, store: FactStore, facts: Collection[Fact]) -> "NamedSnapshot":
        """Whoever is connected to one of these facts is encoded anew; all others keep their slots, to the bit."""
        concerned = ends_of(facts)
        if self.engine.rules.names_newcomers:
            concerned |= set(self.newcomers)
        # Whoever was connected to an end of such a fact still is, so that all it concerns are found from its ends.
        slots: dict[str, Slot | None] = dict(self.slots)
        slots |= dict.fromkeys(name for name in concerned if name in self)
        waiting = {name for name in concerned if name in store}
        while waiting:
            members = self.connected(min(waiting), store)
            waiting -= members
            everyone = not self.engine.rules.names_newcomers or len(members) == len(store.stored.newcomers)
            if everyone and store.changed.keys().isdisjoint(members):  # all is as it was when the model was loaded
                for name in members:
                    slots.pop(name, None)
            else:
                component = NamedComponent.of(members, store, self.names)
                encoded = self.engine.encode(component)
                slots |= {name: Slot(encoded, number) for number, name in enumerate(component.names)}
        gone = [name for name, slot in slots.items() if slot is None and name not in store.stored.newcomers]
        for name in gone:  # nobody misses who came and left since the model was loaded
            del slots[name]
        return NamedSnapshot(self.engine, self.names, store, slots)

    def connected(self, name: str, store: FactStore | None = None) -> set[str]:
        """The newcomers whose vectors depend on each other, by the facts of another store where it is given."""
        facts = self.store if store is None else store
        return set(facts) if self.engine.rules.names_newcomers else facts.connected(name)

    def component(self, name: str) -> NamedComponent:
        """A newcomer with those it is connected to."""
        slot = self.slots.get(name)
        if slot is not None and isinstance(slot.encoded.component, NamedComponent):
            return slot.encoded.component
        return NamedComponent.of(self.connected(name), self.store, self.names)


def words_at(names: Names, triples: Tensor, encoded: EncodedComponent | None) -> list[Triple]:
    """By name triples (n, 3) of ids of seen entities, or of the places of a component."""
    words = names.entity_names
    if encoded is not None:
        own = encoded.component
        newcomers = own.names if isinstance(own, NamedComponent) else names.entities.names_of(own.ids)
        words = [*(words[place] for place in encoded.near.tolist()), *newcomers]
    return [(words[head], names.relation_names[relation], words[tail]) for head, relation, tail in triples.tolist()]
