"""All that is known in a state: the observed graph and the facts of every newcomer who is there, tied or not.

Vectors and mined rules go by an entity's own facts and by those of whom it is tied to. What is counted here is counted
over everything, and wide paths go along everything, so that what one newcomer tells of seen entities is heard when the
next one is asked about.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Graph, Ids
from newcomer.models.propagation import attribution as ways
from newcomer.models.propagation.wide import WidePaths
from newcomer.predictor.answers import Alike, Chain
from newcomer.predictor.fact_store import Names, Stored, Triple
from newcomer.predictor.snapshot import State
from newcomer.rules.online import OnlineRules
from newcomer.rules.rule_index import Floats
from newcomer.rules.similarity import Company, Shared


class _Now(NamedTuple):
    """All that is known in a state."""

    state: State
    company: Company
    paths: WidePaths | None


class Hearing:
    """Listens to everyone, in any state; ``paths`` go over what was known when the model was written, if they do."""

    def __init__(self, observed: Graph, stored: Stored, names: Names, paths: WidePaths | None = None) -> None:
        self.observed, self.stored, self.names, self.paths = observed, stored, names, paths
        self._last: _Now | None = None

    def says(self, state: State, name: str, relation: int) -> tuple[Floats, Floats]:
        """(candidates,) each: how often everyone answers, and how like everyone is to the answers known already."""
        company, ids = self._now(state).company, state.ids
        likeness = company.likeness(int(ids[state.candidate(name)]), self._answers(state, name, relation))
        return company.answered(relation)[ids], likeness[ids]

    def ties(self, state: State, relation: int) -> OnlineRules | None:
        """What speaks beside the rules of an oriented relation that was seldom observed; None for others."""
        return self._now(state).company.ties(relation)

    def paths_say(self, state: State, name: str, relation: int) -> npt.NDArray[np.float32] | None:
        """(candidates,): what paths over all that is known say of everyone; None where there are none."""
        paths, ids = self._now(state).paths, state.ids
        if paths is None:
            return None
        asked = ids[[state.candidate(name)]]
        said: npt.NDArray[np.float32] = paths.scores(asked, np.array([relation], dtype=np.int32))[0, ids]
        return said

    def ways(self, state: State, name: str, relation: int, answer: str) -> tuple[Chain, ...] | None:
        """The facts along which paths over all that is known lead to an answer; None where there are no such paths."""
        paths, ids = self._now(state).paths, state.ids
        if paths is None:
            return None
        asked, other = (int(ids[state.candidate(one)]) for one in (name, answer))
        return chains_in_words(paths.ways(asked, relation, other), self.names, lambda one: self._name(state, one))

    def alike(self, state: State, name: str, relation: int, answer: str) -> tuple[Alike, ...]:
        """The known answers that an answer is like, those first that make up most of its likeness."""
        company, ids = self._now(state).company, state.ids
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

    def _now(self, state: State) -> _Now:
        last = self._last  # the same for all questions of a state
        if last is not None and last.state is state:
            return last
        changed = [self.stored.newcomers[name] for name in state.book.facts.changed if name in self.stored.newcomers]
        since = state.latest.facts, np.array(changed, dtype=np.int32)
        paths = None if self.paths is None else self.paths.since(*since)
        self._last = found = _Now(state, self._at_first.since(*since), paths)
        return found

    @cached_property
    def _at_first(self) -> Company:
        """All that was known when the model was written."""
        return Company.of(self.observed, self.stored.triples, self.names.num_seen)


def chains_in_words(found: Iterable[ways.Chain], names: Names, name: Callable[[int], str]) -> tuple[Chain, ...]:
    """Ways with the names of those whom they lead along."""

    def words(head: int, relation: int, tail: int) -> Triple:
        return name(head), names.relation_name(relation), name(tail)

    return tuple(Chain(tuple(words(*fact) for fact in way.facts), way.loss) for way in found)
