"""All that is known in a state: the observed graph and the facts of every newcomer who is there, tied or not.

Vectors and mined rules go by an entity's own facts and by those of whom it is tied to. What is counted here is counted
over everything, so that what one newcomer tells of seen entities is heard when the next one is asked about.
"""

from functools import cached_property

import numpy as np

from newcomer.graph import Graph, Ids
from newcomer.predictor.answers import Alike
from newcomer.predictor.book import Names, Stored, Triple
from newcomer.predictor.state import State
from newcomer.rules.company import Company, Shared
from newcomer.rules.index import Floats
from newcomer.rules.ties import Ties


class Hearing:
    """Listens to everyone, in any state."""

    def __init__(self, observed: Graph, stored: Stored, names: Names) -> None:
        self.observed, self.stored, self.names = observed, stored, names
        self._last: tuple[State, Company] | None = None

    def says(self, state: State, name: str, relation: int) -> tuple[Floats, Floats]:
        """(candidates,) each: how often everyone answers, and how like everyone is to the answers known already."""
        company, ids = self._company(state), state.ids
        likeness = company.likeness(int(ids[state.candidate(name)]), self._answers(state, name, relation))
        return company.answered(relation)[ids], likeness[ids]

    def ties(self, state: State, relation: int) -> Ties | None:
        """What speaks beside the rules of an oriented relation that was seldom observed; None for others."""
        return self._company(state).ties(relation)

    def alike(self, state: State, name: str, relation: int, answer: str) -> tuple[Alike, ...]:
        """The known answers that an answer is like, those first that make up most of its likeness."""
        company, ids = self._company(state), state.ids
        asked, other = (int(ids[state.candidate(one)]) for one in (name, answer))
        found = company.shared(asked, self._answers(state, name, relation), other)
        total = sum(one.likeness for one in found)
        return tuple(self._in_words(state, one, total) for one in found)

    def _in_words(self, state: State, shared: Shared, total: float) -> Alike:
        known, size = self._name(state, shared.answer), len(self.names.relations)
        facts: list[Triple] = []
        for relation, end in shared.features:
            ends = (known, self._name(state, end)) if relation < size else (self._name(state, end), known)
            facts.append((ends[0], self.names.relation_name(relation % size), ends[1]))
        return Alike(known, shared.likeness / total, tuple(facts))

    def _name(self, state: State, identifier: int) -> str:
        if identifier < len(self.names.entities):
            return self.names.entity(identifier)
        return state.latest.name(identifier, self.names)

    def _answers(self, state: State, name: str, relation: int) -> Ids:
        """Who is known to answer by the entity's own facts, by id."""
        if name in state.seats:
            return state.ids[[state.candidate(one) for one in state.book.answers(name, relation, self.names)]]
        relations, tails = self.observed.adjacency.of(self.names.seen(name))
        answers: Ids = tails[relations == relation]
        return answers

    def _company(self, state: State) -> Company:
        last = self._last  # the same for all questions of a state
        if last is not None and last[0] is state:
            return last[1]
        changed = [self.stored.newcomers[name] for name in state.book.facts.changed if name in self.stored.newcomers]
        found = self._at_first.since(state.latest.facts, np.array(changed, dtype=np.int32))
        self._last = state, found
        return found

    @cached_property
    def _at_first(self) -> Company:
        """All that was known when the model was written."""
        return Company.of(self.observed, self.stored.triples, self.names.num_seen)
