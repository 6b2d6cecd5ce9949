"""Snapshots of the fact store: which newcomers are there, by name, and the ids the inference engine knows them by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from newcomer.errors import OptionError, shown
from newcomer.graph import UNKNOWN, Ids, Mask
from newcomer.models.embedding.newcomers import ABSENT, EncodedComponent, Members, Slot, Snapshot
from newcomer.models.engine import InferenceEngine
from newcomer.predictor.fact_store import Fact, FactStore, NamedComponent, Names, Triple, facts_by_id
from newcomer.rules.rule import RuleSet


@dataclass(frozen=True, eq=False)
class NamedSnapshot:
    """The newcomers that are there, with their facts and slots; made by `Arrivals` and never changed.

    Newcomers have the ids of the vocabulary; those that it lacks follow by name. So ids depend on who is there, not on
    the order in which they came.
    """

    names: Names
    store: FactStore
    first: Snapshot  # as the model was loaded
    slots: Mapping[str, Slot | None] = field(default_factory=dict)  # of who has changed since; None: has left

    def __contains__(self, name: object) -> bool:
        return name in self.store.facts

    @cached_property
    def newcomers(self) -> list[str]:
        """By name."""
        return sorted(self.store.facts)

    @cached_property
    def _unknown(self) -> list[str]:
        """The newcomers that the vocabulary lacks, by name."""
        return sorted(name for name, slot in self.slots.items() if slot and name not in self.names.entities)

    @cached_property
    def _unknown_ids(self) -> dict[str, int]:
        first = self.names.num_known
        return {name: first + place for place, name in enumerate(self._unknown)}

    def id(self, name: str) -> int:
        """The id of an entity; an error where it is not there."""
        found = self.names.seen(name) if isinstance(name, str) else UNKNOWN
        if found != UNKNOWN:
            return found
        if name not in self:
            raise OptionError(f"the entity {shown(name)} is not known; add facts of it first")
        return self._unknown_ids[name] if name in self._unknown_ids else self.names.entities.id(name)

    def is_newcomer(self, name: str) -> bool:
        """Whether an entity is a newcomer; an error where it is not there."""
        return self.id(name) >= self.names.num_seen

    def name_of(self, identifier: int) -> str:
        """The name of an id."""
        known = self.names.num_known
        return self.names.entity(identifier) if identifier < known else self._unknown[identifier - known]

    @cached_property
    def graph(self) -> Snapshot:
        """The snapshot that the inference engine is asked in."""
        first, slots = self.first, self.slots
        if not slots:
            return first
        present = [name for name, slot in slots.items() if slot is not None]
        ids = {name: self.id(name) for name in present}
        known = self.names.entities.ids(list(slots))
        changed = np.sort(known[known != UNKNOWN])
        overlay = first.overlay.with_delta(facts_by_id(present, self.store, self.names, ids), changed)
        is_present = np.ones(self.names.num_known + len(self._unknown), dtype=bool)
        is_present[: len(first.is_present)] = first.is_present
        is_present[changed] = False
        is_present[list(ids.values())] = True
        members = [Members(one.encoded, _without(one.ids, changed)) for one in first.members]
        return Snapshot(overlay, (*members, *self._members_since(ids)), is_present)

    def _members_since(self, ids: Mapping[str, int]) -> Iterable[Members]:
        """The components encoded since the model was loaded, with the ids of who still has a slot there."""
        places: dict[EncodedComponent, Ids] = {}
        for name, slot in self.slots.items():
            if slot is not None:
                own = places.setdefault(slot.encoded, np.full(slot.encoded.size, ABSENT, dtype=np.int32))
                own[slot.number] = ids[name]
        return (Members(encoded, own) for encoded, own in places.items())


def _without(ids: Ids, changed: Ids) -> Ids:
    found: Ids = np.where(np.isin(ids, changed), ABSENT, ids).astype(np.int32)
    return found


class Arrivals:
    """Makes snapshots: whoever is connected to a changed fact is encoded anew, everyone else stays as it is."""

    def __init__(self, engine: InferenceEngine, names: Names, store: FactStore) -> None:
        self.engine, self.names = engine, names
        self.first = NamedSnapshot(names, store, engine.initial)
        self._texts: WeakKeyDictionary[RuleSet, dict[int, str]] = WeakKeyDictionary()

    def added(self, snapshot: NamedSnapshot, facts: Iterable[Fact]) -> NamedSnapshot:
        """The snapshot with more facts."""
        stated = list(facts)
        return self._changed(snapshot, snapshot.store.with_facts(stated, self.names), stated)

    def removed(self, snapshot: NamedSnapshot, facts: Iterable[Fact]) -> NamedSnapshot:
        """The snapshot without some facts; newcomers that are left with none go."""
        stated = list(facts)
        return self._changed(snapshot, snapshot.store.without_facts(stated), stated)

    def _changed(self, snapshot: NamedSnapshot, store: FactStore, facts: list[Fact]) -> NamedSnapshot:
        """The snapshot with another store: newcomers whom these facts do not concern keep their slots, to the bit."""
        concerned = {name for fact in facts for name in (fact[0], fact[2])}
        if self.engine.rules.names_newcomers:
            concerned |= set(snapshot.newcomers)
        # Whoever was connected to an end of such a fact still is, so that all it concerns are found from its ends.
        slots: dict[str, Slot | None] = dict(snapshot.slots)
        slots |= dict.fromkeys(name for name in concerned if name in snapshot)
        waiting = {name for name in concerned if name in store.facts}
        while waiting:
            members = self.connected(store, min(waiting))
            waiting -= members
            if self._is_as_at_first(members, store):
                for name in members:
                    slots.pop(name, None)
            else:
                slots |= self._encoded(members, store)
        gone = [name for name, slot in slots.items() if slot is None and name not in self.first]
        for name in gone:  # nobody misses who came and left since the model was loaded
            del slots[name]
        return NamedSnapshot(self.names, store, self.first.first, slots)

    def connected(self, store: FactStore, name: str) -> set[str]:
        """The newcomers whose vectors depend on each other."""
        return set(store.facts) if self.engine.rules.names_newcomers else store.connected(name)

    def _is_as_at_first(self, members: set[str], store: FactStore) -> bool:
        """Whether these newcomers have the same facts again that they had when the model was loaded."""
        first = self.first.store.facts
        if not all(name in first and first[name] == store.facts[name] for name in members):
            return False
        return not self.engine.rules.names_newcomers or len(members) == len(first)

    def _encoded(self, members: Iterable[str], store: FactStore) -> dict[str, Slot]:
        component = NamedComponent.of(members, store, self.names)
        encoded = self.engine.encode(component)
        return {name: Slot(encoded, number) for number, name in enumerate(component.names)}

    def rule_text(self, rules: RuleSet, row: int) -> str:
        """A rule in words; many answers have the same."""
        texts = self._texts.setdefault(rules, {})
        if row not in texts:
            texts[row] = rules[row].text(self.names.relations, self.names.entities)
        return texts[row]

    def component(self, snapshot: NamedSnapshot, name: str) -> NamedComponent:
        """A newcomer with those it is connected to."""
        slot = snapshot.slots.get(name)
        if slot is not None and isinstance(slot.encoded.component, NamedComponent):
            return slot.encoded.component
        return NamedComponent.of(self.connected(snapshot.store, name), snapshot.store, self.names)


def known_answers(snapshot: NamedSnapshot, entity: int, relation: int) -> Mask:
    """(entities,): who is known, by anyone's facts, to answer (entity, oriented relation, ?)."""
    mask = np.zeros(snapshot.graph.num_entities, dtype=bool)
    relations, tails = snapshot.graph.overlay.all_facts_of(entity)
    mask[tails[relations == relation]] = True
    return mask


def words_at(names: Names, triples: Tensor, encoded: EncodedComponent | None) -> list[Triple]:
    """By name triples (n, 3) of ids of seen entities, or of the places of a component."""
    heads, relations, tails = triples.cpu().numpy().T
    ends = (_names_at(names, column.tolist(), encoded) for column in (heads, tails))
    first, last = ends
    return list(zip(first, names.relations.names_of(relations), last, strict=True))


def _names_at(names: Names, places: list[int], encoded: EncodedComponent | None) -> list[str]:
    if encoded is None:
        return [names.entity(place) for place in places]
    near, component = encoded.near.tolist(), encoded.component
    if isinstance(component, NamedComponent):
        newcomers: Sequence[str] = component.names
    else:
        newcomers = names.entities.names_of(component.ids)
    return [names.entity(near[place]) if place < len(near) else newcomers[place - len(near)] for place in places]
