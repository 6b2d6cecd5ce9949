"""Candidates for (entity, relation, ?) in the order of the rules that reach them.

Nothing is learned here: by itself this is the baseline that every learned model must beat. A rule's strength is its
smoothed confidence, ``support / (body size + 5)``. Candidates that rules do not tell apart, and those that no rule
reaches, can be ordered by how often they are the answer to the same relation in the observed graph.

Rules start at the entity's own facts and go on over those of the entities they come to, as they do for virtual
neighbours (`newcomer.rules.virtual_neighbors`). They vote from the strongest to the weakest. A candidate is as good as
its best rule; between equals the second best decides, and so on (the lexicographic maximum); or all rules count as
independent chances (noisy-or).

Beside mined rules vote *online* ones: one-atom rules of a rare relation, counted over all known facts when they are
needed (`newcomer.rules.statistics`). Rules are mined from the observed graph, so there are none for a relation that it
lacks, and next to none for one that it has a few times. Newcomers bring facts of such relations, and another relation
between the same two entities is evidence as much as a mined rule would be: of the pairs that ``r`` joins, so many are
joined by the relation asked.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.errors import OptionError, unknown_name
from newcomer.graph import AnswerCounts, Ids, Offsets, Overlay, OverlayArrays
from newcomer.rules.compiled import compiled, is_among, lower_bound, run_of, with_room
from newcomer.rules.grounding import (
    BOTH,
    CONSTANT,
    ONE,
    TWO,
    Facts,
    Floats,
    OrientedRules,
    RuleIndex,
    ends_of_variable,
    holds,
    may_lead,
    tails_of,
)
from newcomer.rules.limits import in_threads
from newcomer.rules.rule import SMOOTHING, Kind, Rule, RuleSet

AGGREGATIONS = ("maximum", "noisy-or")
Votes = tuple[Ids, Floats]  # (candidate, level) of all that speaks for one, the strongest first; each level's strength


@dataclass(frozen=True, eq=False)
class OnlineRules:
    """For each oriented relation the pairs it joins, and how many of these the relation asked joins too."""

    relation: int  # asked, oriented
    support: Offsets  # (2 R,)
    sizes: Offsets  # (2 R,)

    @cached_property
    def confidence(self) -> Floats:
        """(2 R,): as `Rule.smoothed_confidence`."""
        found: Floats = self.support / (self.sizes + SMOOTHING)
        return found

    def added_to(self, votes: Votes, entity: int, relations: Ids, tails: Ids) -> Votes:
        """The votes of mined rules, and those of the entity's own facts, each as strong as its relation."""
        votes_for = (self.support[relations] > 0) & (tails != entity)
        candidates = np.concatenate([votes[0][:, 0], tails[votes_for]])
        strengths = np.concatenate([votes[1][votes[0][:, 1]], self.confidence[relations[votes_for]]])
        distinct, levels = np.unique(-strengths, return_inverse=True)
        order = np.argsort(levels, kind="stable")
        return np.stack([candidates, levels], axis=1).astype(np.int32)[order], -distinct

    def rule(self, relation: int) -> Rule:
        """The rule of which an oriented relation is the body."""
        size = len(self.support) // 2
        body = relation if self.relation < size else (relation + size) % (2 * size)
        figures = int(self.support[relation]), int(self.sizes[relation])
        return Rule(Kind.ONE, self.relation % size, body, support=figures[0], body_size=figures[1])


class RuleEvidence(NamedTuple):
    """What rules say of every entity as an answer to one query."""

    scores: Floats  # (entities,): by these they are ordered
    confidence: Floats  # (entities,): of the best rule that reaches each, 0 where none does


@dataclass(frozen=True, eq=False)
class RuleRanker:
    """Rules ready to rank the candidates of a query over any overlay."""

    index: RuleIndex
    aggregation: str = "maximum"
    by_frequency: bool = True

    @classmethod
    def of(cls, rules: RuleSet, aggregation: str = "maximum", by_frequency: bool = True) -> "RuleRanker":
        """Index the rules by smoothed confidence."""
        if aggregation not in AGGREGATIONS:
            raise unknown_name("aggregation", aggregation, AGGREGATIONS)
        return cls(RuleIndex(rules, rules.smoothed_confidence), aggregation, by_frequency)

    def evidence(
        self,
        overlay: Overlay,
        entity: int,
        relation: int,
        online: OnlineRules | None = None,
        facts: Facts | None = None,
    ) -> RuleEvidence:
        """Scores and confidences for (entity, oriented relation, ?), ``online`` rules counted among the others.

        ``facts`` are the entity's own, where they are at hand.
        """
        size = overlay.num_entities
        scores, confidence = np.zeros(size), np.zeros(size)
        votes, strengths = self._votes(overlay, relation, online, facts or Facts(entity, *overlay.facts_of(entity)))
        if self.aggregation == "maximum":
            _lexicographic_scores(votes, scores)
        else:
            _noisy_or_scores(votes, strengths, scores)
        confidence[votes[::-1, 0]] = strengths[votes[::-1, 1]]  # the strongest rule comes first, and is written last
        if self.by_frequency:  # a share below any difference between rule scores
            frequency = answer_row(overlay.base.observed_counts, relation, size)
            scores += frequency / (frequency.max(initial=0) + 1.0) * (1.0 if self.aggregation == "maximum" else 1e-9)
        return RuleEvidence(scores, confidence)

    def _votes(self, overlay: Overlay, relation: int, online: OnlineRules | None, facts: Facts) -> Votes:
        """All that speaks for a candidate: (candidate, level), strongest first, and the strength of each level."""
        index, edges = self.index, self.index.num_edges
        chosen = _rules_of_query(facts, relation, index.by_query, index.walk_offsets, index.edge_offsets, edges)
        chosen = chosen[np.argsort(index.level[index.by_query.row[chosen]], kind="stable")]
        votes = _collect_votes(facts, overlay.arrays, index.by_query, chosen, edges, index.level)
        mined = votes, index.strength_of_level
        return mined if online is None else online.added_to(mined, facts.entity, facts.relations, facts.tails)


class RuleScorer:
    """Rules alone, asked over one overlay; implements what ranking asks for."""

    def __init__(self, ranker: RuleRanker, overlay: Overlay, threads: int = 1) -> None:
        if threads < 1:
            raise OptionError(f"threads {threads} is not a number of at least 1")
        self.ranker, self.overlay, self.threads = ranker, overlay, threads

    def scores(self, entities: Ids, relations: Ids) -> Floats:
        """One row of scores a query; relation ids from R on ask for heads."""
        rows = np.empty((len(entities), self.overlay.num_entities))

        def fill(row: int) -> None:
            rows[row] = self.ranker.evidence(self.overlay, int(entities[row]), int(relations[row])).scores

        in_threads(fill, range(len(entities)), self.threads)
        return rows


def answer_row(counts: AnswerCounts, relation: int, num_entities: int) -> Floats:
    """(entities,): how often each answers an oriented relation."""
    row, which = np.zeros(num_entities), slice(counts.offsets[relation], counts.offsets[relation + 1])
    row[counts.answers[which]] = counts.counts[which]
    return row


@compiled
def _rules_of_query(
    facts: Facts, relation: int, rules: OrientedRules, chain_offsets: Offsets, edge_offsets: Offsets, num_edges: int
) -> Offsets:
    """Places of the rules that may answer (entity, relation, ?) in `RuleIndex.by_query`."""
    relations, tails = facts.relations, facts.tails
    chosen, count = np.empty(256, dtype=np.int64), 0
    for i in range(chain_offsets[relation], chain_offsets[relation + 1]):
        if is_among(relations, 0, len(relations), rules.body1[i]):
            chosen, count = _with_one_more(chosen, count, i)
    low, high = edge_offsets[relation], edge_offsets[relation + 1]
    for j in range(len(relations)):
        begin, stop = run_of(rules.body1, low, high, relations[j])
        if j == 0 or relations[j] != relations[j - 1]:
            for i in range(begin, lower_bound(rules.body_constant, begin, stop, 0)):  # the body is about anyone
                chosen, count = _with_one_more(chosen, count, i)
        begin, stop = run_of(rules.body_constant, begin, stop, tails[j])
        for i in range(begin, stop):
            chosen, count = _with_one_more(chosen, count, i)
    i = lower_bound(rules.head_constant, num_edges, len(rules.row), facts.entity)
    while i < len(rules.row) and rules.head_constant[i] == facts.entity:
        if rules.head[i] == relation:
            chosen, count = _with_one_more(chosen, count, i)
        i += 1
    return chosen[:count]


@compiled
def _with_one_more(column: npt.NDArray[Any], count: int, value: int) -> tuple[npt.NDArray[Any], int]:
    column = with_room(column, count, count + 1)
    column[count] = value
    return column, count + 1


@compiled
def _ends_of_chain(
    facts: Facts, graph: OverlayArrays, rules: OrientedRules, place: int, ends: Ids, stamps: Ids, stamp: int
) -> tuple[Ids, int]:
    """The distinct ends of a chain's or an intersection's body; ``stamps`` (one an entity) tells which were met."""
    relations, tails, kind, count = facts.relations, facts.tails, rules.kind[place], 0
    observed, seen = graph.observed, graph.num_seen
    first, last = run_of(relations, 0, len(relations), rules.body1[place])
    for middle in tails[first:last]:
        if middle == facts.entity:
            continue
        if kind == ONE or (kind == BOTH and holds(relations, tails, rules.body2[place], middle)):
            ends, count = _with_one_more(ends, count, middle)
        elif kind != BOTH and may_lead(observed.offsets, observed.relations, seen, middle, rules.body2[place]):
            for second in tails_of(graph, middle, rules.body2[place]):
                if second == facts.entity:
                    continue
                if kind == TWO:
                    if stamps[second] != stamp:
                        stamps[second] = stamp
                        ends, count = _with_one_more(ends, count, second)
                elif second != middle:
                    for end in tails_of(graph, second, rules.body3[place]):
                        if end != facts.entity and end != middle and end != second and stamps[end] != stamp:
                            stamps[end] = stamp
                            ends, count = _with_one_more(ends, count, end)
    return ends, count


@compiled
def _collect_votes(
    facts: Facts, graph: OverlayArrays, rules: OrientedRules, chosen: Offsets, num_edges: int, levels: Ids
) -> Ids:
    """(candidate, level) for every rule that reaches a candidate, in the order of the rules chosen."""
    votes, count = np.empty((1024, 2), dtype=np.int32), 0
    ends, stamps = np.empty(256, dtype=np.int32), np.zeros(len(graph.removed), dtype=np.int32)
    for number, place in enumerate(chosen):
        if rules.kind[place] < CONSTANT:
            ends, size = _ends_of_chain(facts, graph, rules, place, ends, stamps, number + 1)
            reached = ends[:size]
        elif place < num_edges:
            reached = rules.head_constant[place : place + 1].copy()
        else:
            reached = ends_of_variable(graph, rules, place)
        votes = with_room(votes, count, count + len(reached))
        for end in reached:
            if end != facts.entity:
                votes[count, 0], votes[count, 1] = end, levels[rules.row[place]]
                count += 1
    return votes[:count]


@compiled
def _stronger(a: int, b: int, starts: Offsets, levels: Ids) -> int:
    """1 if candidate a's levels come first, -1 if b's, 0 for the same; a longer list beats its own beginning."""
    la, lb = starts[a + 1] - starts[a], starts[b + 1] - starts[b]
    for i in range(min(la, lb)):
        x, y = levels[starts[a] + i], levels[starts[b] + i]
        if x != y:
            return 1 if x < y else -1
    return 0 if la == lb else 1 if la > lb else -1


@compiled
def _sorted_candidates(size: int, starts: Offsets, levels: Ids) -> Offsets:
    """Candidates from the weakest to the strongest (a merge sort, so equals keep their order)."""
    items, buffer = np.arange(size), np.empty(size, dtype=np.int64)
    width = 1
    while width < size:
        for low in range(0, size, 2 * width):
            middle, high = min(low + width, size), min(low + 2 * width, size)
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or _stronger(items[i], items[j], starts, levels) <= 0):
                    buffer[k] = items[i]
                    i += 1
                else:
                    buffer[k] = items[j]
                    j += 1
        items, buffer = buffer, items
        width *= 2
    return items


@compiled
def _places(starts: Offsets, levels: Ids) -> Floats:
    """For each candidate 1, 2, 3, ... from the weakest group of equal ones to the strongest."""
    order, places, place = _sorted_candidates(len(starts) - 1, starts, levels), np.empty(len(starts) - 1), 0.0
    for i in range(len(order)):
        if i == 0 or _stronger(order[i], order[i - 1], starts, levels) != 0:
            place += 1.0
        places[order[i]] = place
    return places


def _lexicographic_scores(votes: Ids, scores: Floats) -> None:
    """Fill in a higher score for each group of equal candidates than for all weaker ones: 1, 2, 3, ..."""
    candidates, levels = votes[np.argsort(votes[:, 0], kind="stable")].T
    firsts = np.flatnonzero(np.diff(candidates, prepend=-1))
    starts = np.append(firsts, len(candidates)).astype(np.int64)
    scores[candidates[firsts]] = _places(starts, np.ascontiguousarray(levels))


@compiled
def _noisy_or_scores(votes: Ids, strength_of_level: Floats, scores: Floats) -> None:
    """Fill ``scores`` with -log of the chance that every rule is wrong; the order is that of noisy-or."""
    for i in range(len(votes)):
        scores[votes[i, 0]] -= np.log1p(-min(strength_of_level[votes[i, 1]], 1.0 - 1e-12))
