"""What paths say where each is asked about by its own facts, in any state.

Those over all that is known are heard by `newcomer.predictor.hearing`.
"""

import numpy as np
import numpy.typing as npt

from newcomer.graph import UNKNOWN
from newcomer.models.propagation.own import Asked, Paths
from newcomer.predictor.answers import Chain
from newcomer.predictor.fact_store import Names
from newcomer.predictor.hearing import chains_in_words
from newcomer.predictor.snapshot import State


class OwnPaths:
    """Paths that begin with an entity's own facts and go on in the observed graph."""

    def __init__(self, paths: Paths, names: Names) -> None:
        self.paths, self.names = paths, names

    def say(self, state: State, name: str, relation: int) -> npt.NDArray[np.float32]:
        """(candidates,): what is said of everyone; nothing of a relation that nobody seen has."""
        scores = np.zeros(state.num_candidates, dtype=np.float32)
        if not self.paths.knows(np.array([relation]))[0]:
            return scores
        asked, strangers = self._asked(state, name)
        said = self.paths.ask(asked, np.array([relation]))
        scores[:] = said.apart.item()
        scores[: self.names.num_seen] = said.seen[0].cpu().numpy()
        scores[[state.place(stranger) for stranger in strangers]] = said.neighbors[0].cpu().numpy()
        if name in state.seats:
            scores[state.place(name)] = said.itself.item()
        return scores

    def ways(self, state: State, name: str, relation: int, answer: str) -> tuple[Chain, ...]:
        """The facts along which paths lead to an answer."""
        asked, strangers = self._asked(state, name)
        first, numbered = self.names.num_seen, [*strangers, name]  # as `Paths` numbers them
        other = first + numbered.index(answer) if answer in numbered else self.names.seen(answer)
        if other == UNKNOWN:  # a newcomer that it is not tied to
            return ()

        def called(number: int) -> str:
            return self.names.entity(number) if number < first else numbered[number - first]

        return chains_in_words(self.paths.ways(asked, relation, other), self.names, called)

    def _asked(self, state: State, name: str) -> tuple[Asked, list[str]]:
        """Who paths are asked about, and by name the newcomers it is tied to."""
        nothing = np.empty(0, dtype=np.int64)
        if name not in state.seats:
            return Asked(self.names.seen(name), nothing, nothing), []
        size = len(self.names.relations)
        facts = [
            (relation if head == name else relation + size, tail if head == name else head)
            for head, relation, tail in state.book.facts[name]
            if head != tail
        ]
        strangers = sorted({other for _, other in facts if other in state.seats})
        numbers = {other: self.names.num_seen + number for number, other in enumerate(strangers)}
        pairs = sorted((relation, numbers.get(other, self.names.seen(other))) for relation, other in facts)
        relations, neighbors = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return Asked(None, relations, neighbors), strangers
