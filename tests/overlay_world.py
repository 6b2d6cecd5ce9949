"""Small overlays of drawn facts, as they were loaded and as newcomers come and go, and Python sets beside them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from newcomer.graph import Graph, Overlay, TripleArray, Vocabulary

ENTITIES, RELATIONS, SEEN = 9, 3, 6
Fact = tuple[int, int, int]
FACT = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
NOBODY = np.empty(0, dtype=np.int32)


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def triples(facts: set[Fact]) -> TripleArray:
    return TripleArray.of(sorted(facts))


def vocabularies(entities: int = ENTITIES) -> tuple[Vocabulary, Vocabulary]:
    return Vocabulary([f"e{i}" for i in range(entities)]), Vocabulary([f"r{i}" for i in range(RELATIONS)])


def of_newcomers(facts: set[Fact]) -> set[Fact]:
    return {fact for fact in facts if max(fact[0], fact[2]) >= SEEN}


def overlay_of(facts: set[Fact], entities: int = ENTITIES) -> Overlay:
    """All facts as they are when a model is loaded."""
    observed = Graph.build(*vocabularies(entities), triples(facts - of_newcomers(facts)))
    return Overlay.of(observed, triples(of_newcomers(facts)), SEEN)


class Change(NamedTuple):
    """Facts, which newcomers have gone since, and what has been stated since, of them again and of new ones."""

    before: set[Fact]
    removed: set[int]
    added: set[Fact]

    @property
    def now(self) -> set[Fact]:
        return {fact for fact in self.before if not {fact[0], fact[2]} & self.removed} | self.added

    @property
    def derived(self) -> Overlay:
        """The overlay of now over that of before."""
        return overlay_of(self.before).with_delta(triples(self.added), ids(*sorted(self.removed)))

    @property
    def fresh(self) -> Overlay:
        """The overlay of now, made of all its facts at once."""
        return overlay_of(self.now, self.num_entities)

    @property
    def num_entities(self) -> int:
        return max(ENTITIES, 1 + max((max(head, tail) for head, _, tail in self.added), default=0))


def connected(facts: set[Fact], some: set[int]) -> set[int]:
    """The newcomers that facts connect to some, and these."""
    found = set(some)
    while more := {end for fact in facts for end in fact[::2] if found & set(fact[::2]) and end >= SEEN} - found:
        found |= more
    return found


@st.composite
def changes(draw: Callable[..., object], most: int = 40) -> Change:
    """Connected newcomers change together; those who are new have ids of their own."""
    facts: set[Fact] = draw(st.sets(FACT, max_size=most))  # type: ignore[assignment]
    removed = connected(facts, draw(st.sets(st.integers(SEEN, ENTITIES - 1))))  # type: ignore[arg-type]
    end = st.sampled_from([*range(SEEN), *sorted(removed), ENTITIES, ENTITIES + 1])
    stated = draw(st.sets(st.tuples(end, st.integers(0, RELATIONS - 1), end), max_size=25))
    return Change(facts, removed, of_newcomers(stated))  # type: ignore[arg-type]


def oriented(facts: set[Fact]) -> set[Fact]:
    """Each fact as seen from either end."""
    return facts | {(tail, relation + RELATIONS, head) for head, relation, tail in facts}


def own(facts: set[Fact], entity: int) -> set[Fact]:
    """The facts that an entity goes by: a seen one by those of seen ones."""
    known = facts if entity >= SEEN else facts - of_newcomers(facts)
    return {fact for fact in known if entity in fact[::2]}


def rows_of(facts: set[Fact], entity: int) -> list[tuple[int, int]]:
    """(oriented relation, other end) of facts as seen from an entity, ascending."""
    return sorted((relation, tail) for head, relation, tail in oriented(facts) if head == entity)
