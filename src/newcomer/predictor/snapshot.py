"""Snapshots of the fact store: which newcomers are there, by name, and the ids the inference engine knows them by."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from newcomer.errors import OptionError, shown
from newcomer.graph import UNKNOWN, Ids, Mask
from newcomer.models.embedding.newcomers import ABSENT, EncodedComponent, Members, Slot, Snapshot
from newcomer.models.engine import InferenceEngine
from newcomer.predictor.fact_store import Fact, FactStore, NamedComponent, Names, Triple, ends_of, facts_by_id


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
        return sorted(name for name, slot in self.slots.items() if slot and name not in self.names.entity_ids)

    def id(self, name: str) -> int:
        """The id of an entity; an error where it is not there."""
        found = self.names.entity_ids.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
        if not 0 <= found < self.names.num_seen and name not in self:
            raise OptionError(f"the entity {shown(name)} is not known; add facts of it first")
        return found if found != UNKNOWN else len(self.names.entity_ids) + bisect_left(self._unknown, name)

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
        known = self.names.entity_ids
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


def known_answers(snapshot: NamedSnapshot, entity: int, relation: int) -> Mask:
    """(entities,): who is known, by anyone's facts, to answer (entity, oriented relation, ?)."""
    mask = np.zeros(snapshot.graph.num_entities, dtype=bool)
    relations, tails = snapshot.graph.overlay.all_facts_of(entity)
    mask[tails[relations == relation]] = True
    return mask


def words_at(names: Names, triples: Tensor, encoded: EncodedComponent | None) -> list[Triple]:
    """By name triples (n, 3) of ids of seen entities, or of the places of a component."""
    words = names.entity_names
    if encoded is not None:
        own = encoded.component
        newcomers = own.names if isinstance(own, NamedComponent) else names.entities.names_of(own.ids)
        words = [*(words[place] for place in encoded.near.tolist()), *newcomers]
    return [(words[head], names.relation_names[relation], words[tail]) for head, relation, tail in triples.tolist()]
