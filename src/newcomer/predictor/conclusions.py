"""What rules conclude about entities, by name: every grounding of a conclusion, strongest first."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from newcomer.graph import UNKNOWN
from newcomer.predictor.answers import SHOWN, Grounding
from newcomer.predictor.fact_store import Fact, NamedComponent, Names, Triple
from newcomer.rules.rule import NONE
from newcomer.rules.virtual_neighbors import PATH, VirtualNeighbors

Rows = npt.NDArray[np.int64]  # of all groundings


@dataclass(frozen=True, eq=False)
class Conclusions:
    """What rules conclude about entities, by the ids of a component; ``paths`` has what symmetric paths do, if apart.

    Without a component ids are those of the vocabulary.
    """

    names: Names
    component: NamedComponent | None
    found: VirtualNeighbors | None
    paths: VirtualNeighbors | None = None

    def groundings(self, fact: Fact) -> tuple[Grounding, ...]:
        """All groundings of one conclusion, strongest first."""
        return in_order(one for part, rows in self._rows_of(fact) for one in self._in_words(part, rows))

    def strongest(self, fact: Fact) -> Grounding | None:
        """The first of them; the others are not put into words."""
        best = [one for part, rows in self._rows_of(fact) for one in self._in_words(part, _strongest(part, rows))]
        return in_order(best)[0] if best else None

    def _rows_of(self, fact: Fact) -> Iterator[tuple[VirtualNeighbors, Rows]]:
        """Where the groundings of a conclusion stand."""
        triple = self.id(fact[0]), fact[1], self.id(fact[2])
        if self.found is not None:
            yield self.found, _rows_of(self.found, *triple)
        if self.paths is not None:
            rows = _rows_of(self.paths, *triple)
            yield self.paths, rows[self.paths.grounding_source[rows] == PATH]

    def id(self, name: str) -> int:
        """The id that rules know an entity by."""
        known = self.names.entities.index.get(name, UNKNOWN)
        return known if known != UNKNOWN or self.component is None else self.component.id(name)

    @property
    def _newcomers(self) -> tuple[int, Mapping[int, str]]:
        """The id from which on the component has the names, and these."""
        if self.component is None:
            return len(self.names.entity_names), {}
        return self.names.num_seen, self.component.names_by_id

    def _in_words(self, virtual: VirtualNeighbors, rows: Rows) -> Iterator[Grounding]:
        """These groundings by name."""
        # As lists: there may be hundreds, and single numbers of an array are slow to get at.
        columns = virtual.grounding_strength, virtual.premises, virtual.logic
        strengths, premises, logic = (column[rows].tolist() for column in columns)
        texts, supports = self._texts(virtual, rows), _supports(virtual, rows).tolist()
        facts, is_path = self._facts(premises), [not one for one in logic]
        return map(Grounding, texts, strengths, supports, facts, repeat(False), is_path)

    def _texts(self, virtual: VirtualNeighbors, rows: Rows) -> list[str]:
        """The rules of these groundings in words."""
        rules, logic = virtual.grounding_rule[rows], virtual.logic[rows]
        texts = iter(self.names.rules_in_words(virtual.rules, rules[logic].tolist()))
        each, relations = zip(rules.tolist(), logic.tolist(), strict=True), self.names.relations
        return [next(texts) if is_logic else virtual.path_rules.text(rule, relations) for rule, is_logic in each]

    def _facts(self, premises: Iterable[list[list[int]]]) -> list[tuple[Triple, ...]]:
        """The premises of each grounding by name."""
        names, relations = self.names.entity_names, self.names.relation_names
        first, newcomers = self._newcomers
        return [
            tuple(
                (
                    names[head] if head < first else newcomers[head],
                    relations[relation],
                    names[tail] if tail < first else newcomers[tail],
                )
                for head, relation, tail in edges
                if relation != NONE
            )
            for edges in premises
        ]


def _rows_of(virtual: VirtualNeighbors, head: int, relation: int, tail: int) -> Rows:
    """The groundings of this triple, which stands there at most once."""
    triples = virtual.triples
    which = np.flatnonzero((triples.tails == tail) & (triples.heads == head) & (triples.relations == relation))
    return np.arange(*virtual.offsets[which[0] : which[0] + 2]) if len(which) else np.empty(0, dtype=np.int64)


def _strongest(virtual: VirtualNeighbors, rows: Rows) -> Rows:
    """Those of which one comes first; only words could tell them apart."""
    if len(rows) < 2:
        return rows
    confidences = virtual.grounding_strength[rows]
    rounded = np.array([round(one, SHOWN) for one in confidences.tolist()])
    facts = (virtual.premises[rows, :, 1] != NONE).sum(axis=1)
    keep = np.arange(len(rows))
    for column in (-rounded, facts, -confidences, -_supports(virtual, rows)):
        keep = keep[column[keep] == column[keep].min()]
    return rows[keep]


def _supports(virtual: VirtualNeighbors, rows: Rows) -> npt.NDArray[np.int64]:
    rules, logic = virtual.grounding_rule[rows], virtual.logic[rows]
    found = np.zeros(len(rules), dtype=np.int64)
    found[logic], found[~logic] = virtual.rules.support[rules[logic]], virtual.path_rules.common[rules[~logic]]
    return found


def in_order(found: Iterable[Grounding]) -> tuple[Grounding, ...]:
    """Groundings strongest first."""

    def key(one: Grounding) -> tuple[float, int, float, int, str, tuple[Triple, ...]]:
        # Of reasons that read alike in strength the shorter one goes first.
        return -round(one.confidence, SHOWN), len(one.premises), -one.confidence, -one.support, one.rule, one.premises

    return tuple(sorted(found, key=key))
