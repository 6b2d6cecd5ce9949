"""Symmetric-path rules: entities reached there and back by the same relations hint at facts an entity lacks.

A symmetric path of length 2k leads from e along oriented relations ``r1..rk`` to a middle node and returns by their
inverses, in reverse order, to another entity e'. Its *type* is ``(r1..rk)``. For one entity e,

    confidence(sp_i => sp_j) = |pairs (e, e') with both| / |pairs (e, e') with sp_i|

counted over the ends that its walks have met. A pair that has sp_i and lacks sp_j is completed: sp_j is walked from e'
until one edge to e is missing. That edge is the conclusion; the first edge of sp_i, its last edge and the edge of sp_j
at e' are its premises.

A walk draws its length and its first arm freely; on the second it takes only edges that keep the symmetry, and stops
where there is none. The paper leaves that open; this reading was chosen among four knowing the count of neighbours the
paper reports, which it meets with 1,000 walks (the literal one, any edge back, meets it with 10,000).

Results depend on the graph, the seed and the entity's id, not on threads or on the other entities asked about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.errors import OptionError
from newcomer.graph import Adjacency, Ids, Offsets, Vocabulary, changes
from newcomer.rules.limits import in_threads, require, require_counts, require_seed, thread_count
from newcomer.rules.mining.symmetric_walks import (
    MAX_ARM,
    NONE,
    WalkGraph,
    complete_rules,
    count_common,
    walk_paths,
)
from newcomer.rules.rule import Shares, quoted

AT_ONCE = 64  # entities that a thread takes together


@dataclass(frozen=True)
class PathLimits:
    """How many random walks an entity, of which lengths, and which rules are trusted."""

    walks: int = 1000
    lengths: tuple[int, ...] = (2, 4, 6)
    min_pairs: int = 5
    min_confidence: float = 0.8

    def __post_init__(self) -> None:
        known = bool(self.lengths) and set(self.lengths) <= {2, 4, 6} and len(set(self.lengths)) == len(self.lengths)
        require(known, "lengths", self.lengths, "one or more of 2, 4 and 6, each once")
        require_counts(self, "walks", "min_pairs")
        require(0 < self.min_confidence <= 1, "min_confidence", self.min_confidence, "above 0 and at most 1")

    @property
    def arms(self) -> Ids:
        """Half of each length."""
        return np.array(sorted(self.lengths), dtype=np.int32) // 2


@dataclass(frozen=True, eq=False)
class SymmetricPaths:
    """The paths found from some entities: one for each start, type and end, sorted by these. Unused places hold -1."""

    types: Ids  # (paths, 3) oriented relations
    nodes: Ids  # (paths, 7) the entity, the nodes on the way, the end

    def __len__(self) -> int:
        return len(self.types)

    @property
    def arms(self) -> Ids:
        """Half of each path's length."""
        arms: Ids = np.sum(self.types != NONE, axis=1, dtype=np.int32)
        return arms

    @property
    def starts(self) -> Ids:
        """Where each path begins."""
        return self.nodes[:, 0]

    @property
    def ends(self) -> Ids:
        """Where each path ends."""
        return _node_at(self.nodes, 2 * self.arms)

    def take(self, rows: npt.NDArray[Any]) -> "SymmetricPaths":
        """These paths."""
        return SymmetricPaths(self.types[rows], self.nodes[rows])


def _node_at(nodes: Ids, places: Ids) -> Ids:
    picked: Ids = nodes[np.arange(len(nodes)), places]
    return picked


@dataclass(frozen=True, eq=False)
class PathRules:
    """Rules ``premise => conclusion`` as columns, each about one entity; only those that leave a pair to complete."""

    num_relations: int
    types: Ids  # (types, 3) oriented relations, -1 where the arm is shorter; sorted
    entities: Ids
    premises: Ids  # rows of `types`
    conclusions: Ids
    common: Ids  # pairs with both
    pairs: Ids  # pairs with the premise

    @classmethod
    def empty(cls, num_relations: int) -> "PathRules":
        """No rules."""
        nothing = np.empty(0, dtype=np.int32)
        return cls(num_relations, nothing.reshape(0, MAX_ARM), *[nothing] * 5)

    def __len__(self) -> int:
        return len(self.entities)

    @property
    def confidence(self) -> Shares:
        """Pairs with both / pairs with the premise."""
        shares: Shares = self.common / self.pairs
        return shares

    def text(self, rule: int, relations: Vocabulary) -> str:
        """As people read it: ``plays_role, role_in ~ starred_in ~ 0.80 (4 of 5)``; ``^-1`` marks an inverse."""
        premise, conclusion = (self._type_text(rows[rule], relations) for rows in (self.premises, self.conclusions))
        figures = f"{self.common[rule] / self.pairs[rule]:.2f} ({self.common[rule]} of {self.pairs[rule]})"
        return f"{premise} ~ {conclusion} ~ {figures}"

    def _type_text(self, row: int, relations: Vocabulary) -> str:
        """The relations from the entity to the middle node."""
        steps = [divmod(int(r), self.num_relations) for r in self.types[row] if r != NONE]
        return ", ".join(quoted(relations[relation]) + "^-1" * inverse for inverse, relation in steps)


@dataclass(frozen=True, eq=False)
class PathGroundings:
    """Virtual edges ``entity -relation-> other`` as columns, one row a grounding; a conclusion may have several.

    ``premises`` has shape (groundings, 3, 3), each triple as (head, oriented relation, tail) in the order in which the
    paths are walked: the first edge of the premise path, its last edge, and the edge of the conclusion path at the end.
    """

    rules: PathRules
    rule: Ids  # rows of `rules`
    entities: Ids
    relations: Ids  # oriented
    others: Ids
    premises: Ids

    def __len__(self) -> int:
        return len(self.rule)

    @property
    def confidence(self) -> Shares:
        """The confidence of each grounding's rule."""
        return self.rules.confidence[self.rule]


def virtual_edges(
    adjacency: Adjacency,
    entities: Ids | Sequence[int],
    num_relations: int,
    limits: PathLimits | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> PathGroundings:
    """What symmetric-path rules conclude about these entities, in the order of their ids."""
    limits = limits or PathLimits()
    require_seed(seed)
    graph = WalkGraph(adjacency, num_relations)
    asked = _asked(entities, len(adjacency.offsets) - 1)
    parts = [asked[place : place + AT_ONCE] for place in range(0, len(asked), AT_ONCE)]
    found = in_threads(lambda part: _infer(graph, part, limits, seed), parts, thread_count(threads))
    return _assemble(found, num_relations)


def _asked(entities: Ids | Sequence[int], size: int) -> Ids:
    asked = np.unique(np.asarray(entities, dtype=np.int64))
    if len(asked) and not 0 <= asked[0] <= asked[-1] < size:
        wrong = int(asked[0] if asked[0] < 0 else asked[-1])
        raise OptionError(f"entity id {wrong} is not in the graph; give ids in 0..{size - 1}")
    return asked.astype(np.int32)


def symmetric_paths(graph: WalkGraph, entities: Ids, limits: PathLimits, seed: int) -> SymmetricPaths:
    """The paths from some entities that their rules are counted on."""
    found = SymmetricPaths(*walk_paths(graph, entities, limits.arms, limits.walks, seed))
    types, starts, ends = found.types, found.starts, found.ends
    # A stable sort: of several paths with one start, type and end, the first that was found stays.
    order = np.lexsort((ends, types[:, 2], types[:, 1], types[:, 0], starts))
    types, starts, ends = types[order], starts[order], ends[order]
    return found.take(order[changes(starts, *types.T, ends)])


class _Inferred(NamedTuple):
    """What was found for some entities; the columns of `rules` and `groundings` are those of the compiled code."""

    entities: Ids  # of each rule
    types: Ids  # (types, 3), those of one entity after those of another
    rules: Offsets  # (rules, 4): premise, conclusion, common, pairs
    groundings: Offsets  # (groundings, 2): rule, other
    premises: Ids  # (groundings, 3, 3)


def _infer(graph: WalkGraph, entities: Ids, limits: PathLimits, seed: int) -> _Inferred:
    paths = symmetric_paths(graph, entities, limits, seed)
    begins = np.append(np.flatnonzero(changes(paths.starts, *paths.types.T)), len(paths))
    rules = _confident_rules(paths, begins, limits)
    found = complete_rules(graph, paths.starts, paths.types, paths.ends, begins, rules, seed)
    premises = _premises(paths, begins, rules, found, graph.num_relations)
    first = begins[:-1]
    return _Inferred(paths.starts[first[rules[:, 0]]], paths.types[first], rules, found[:, [0, 2]], premises)


def _confident_rules(paths: SymmetricPaths, begins: Offsets, limits: PathLimits) -> Offsets:
    """Those of one entity after those of another, the most confident first."""
    starts, ends = paths.starts, paths.ends
    by_end = np.lexsort((ends, starts))
    is_first = changes(starts[by_end], ends[by_end])
    places = np.empty(len(paths), dtype=np.int64)
    places[by_end] = np.cumsum(is_first) - 1
    end_starts = np.append(np.flatnonzero(is_first), len(paths))
    type_of = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    counted = count_common(begins, places, end_starts, type_of[by_end], limits.min_pairs, limits.min_confidence)
    pairs = np.diff(begins)[counted[:, 0]]
    rules = np.column_stack([counted, pairs])
    owners = starts[begins[counted[:, 0]]]
    order = np.lexsort((rules[:, 1], rules[:, 0], -pairs, -rules[:, 2] / np.maximum(pairs, 1), owners))
    return np.ascontiguousarray(rules[order])


def _premises(paths: SymmetricPaths, begins: Offsets, rules: Offsets, found: Offsets, num_relations: int) -> Ids:
    path, nodes = found[:, 1], paths.nodes[found[:, 1]]
    first, last = paths.types[path, 0], 2 * paths.arms[path]
    conclusion = paths.types[begins[rules[found[:, 0], 1]], 0]
    end = _node_at(nodes, last)
    back = np.where(first >= num_relations, first - num_relations, first + num_relations)
    columns = [nodes[:, 0], first, nodes[:, 1], _node_at(nodes, last - 1), back, end, end, conclusion, found[:, 3]]
    return np.stack(columns, axis=1).astype(np.int32).reshape(-1, 3, 3)


def _assemble(found: list[_Inferred], num_relations: int) -> PathGroundings:
    """All parts in one table, over one table of the types that some rule uses."""
    premises, conclusions = (_stacked([f.types[f.rules[:, c]] for f in found], (MAX_ARM,)) for c in (0, 1))
    types, places = np.unique(np.concatenate([premises, conclusions]), axis=0, return_inverse=True)
    places = places.reshape(2, -1).astype(np.int32)
    counts = np.array([len(f.rules) for f in found], dtype=np.int64)
    figures = _stacked([f.rules for f in found], (4,))
    owners = _stacked([f.entities for f in found], ())
    rules = PathRules(num_relations, types, owners, places[0], places[1], figures[:, 2], figures[:, 3])
    before = np.cumsum(counts) - counts
    ground = _stacked([f.groundings + np.array([shift, 0]) for f, shift in zip(found, before, strict=True)], (2,))
    triples = _stacked([f.premises for f in found], (3, 3))
    return PathGroundings(rules, ground[:, 0], triples[:, 0, 0], triples[:, 2, 1], ground[:, 1], triples)


def _stacked(parts: list[npt.NDArray[Any]], shape: tuple[int, ...]) -> Ids:
    """Rows one after the other as int32; none where there is no part."""
    return np.concatenate([np.empty((0, *shape), dtype=np.int64), *parts]).astype(np.int32)
