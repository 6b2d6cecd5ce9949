"""Graph statistics over all known facts: how often entities answer a relation, and how similar they are to answers.

With rules and links they are what a graph says of every candidate of a query (`graph_signals`).

All facts of an overlay count, the observed ones and those of every newcomer. So what one newcomer states about seen
entities counts when the next one is asked about, though nobody's vector changes. For a relation that was hardly
observed, rules are counted here too (`OnlineRules`).

An entity's *features* are its facts as seen from it: (oriented relation, other end). The similarity of ``y`` to the
known answers S of (x, r, ?) is

    1 / sqrt(|S|) * sum over s in S and features f that y shares with s of log((n + 1) / (n_f + 1)) / sqrt(d_s d_y)

where ``n`` is the number of seen entities, ``n_f`` that of entities with the feature (one that more than ``n`` have
counts nothing), and ``d`` that of an entity's facts. Facts with x itself do not count.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Adjacency, Ids, Mask, Offsets, Overlay, OverlayArrays
from newcomer.rules.compiled import compiled, edges_of, inverse_of, row_of
from newcomer.rules.grounding import Facts, Floats
from newcomer.rules.ranking import OnlineRules, RuleEvidence, RuleRanker, answer_row

RARE = 5  # observed facts of a relation, or fewer: then rules are counted over all known facts
MOST_ANSWERS = 2_000  # of more known answers, so many stand for all
WIDEST = 50_000  # entities that share a feature: one that more have says too little for its cost
MOST_RELATIONS = 256  # relations whose online rules are kept for the next query


class Shared(NamedTuple):
    """A known answer, its part in somebody's similarity, and the features of both, those that fewest have first."""

    answer: int
    similarity: float
    features: tuple[tuple[int, int], ...]


class GraphStatistics:
    """What is counted over all facts of an overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self._online: dict[int, OnlineRules] = {}  # of the relations asked so far

    def answer_counts(self, relation: int) -> Floats:
        """(entities,): how often each answers an oriented relation."""
        overlay = self.overlay
        row = answer_row(overlay.base.counts, relation, overlay.num_entities)
        relations, tails = self._removed_facts
        row -= np.bincount(tails[relations == relation], minlength=len(row))
        row[overlay.removed] = 0  # removed newcomers are joined in the base to seen entities and to each other only
        return row + answer_row(overlay.delta_counts, relation, overlay.num_entities)

    @cached_property
    def _removed_facts(self) -> tuple[Ids, Ids]:
        """The relations and tails that removed newcomers have in the base."""
        rows = [self.overlay.base.rows.of(newcomer) for newcomer in self.overlay.removed.tolist()]
        nothing = [np.empty(0, dtype=np.int32)]
        return (
            np.concatenate(nothing + [relations for relations, _ in rows]),
            np.concatenate(nothing + [tails for _, tails in rows]),
        )

    def online_rules(self, relation: int) -> OnlineRules | None:
        """The rules of an oriented relation that is rare in the observed graph; None for others."""
        if self.overlay.base.observed_counts.totals[relation] > RARE:
            return None
        found = self._online.get(relation)
        if found is None:
            if len(self._online) >= MOST_RELATIONS:
                self._online.clear()
            found = self._online[relation] = self._counted(relation)
        return found

    def _counted(self, relation: int) -> OnlineRules:
        overlay, size = self.overlay, self.overlay.num_relations
        support = np.zeros(2 * size, dtype=np.int64)
        heads = overlay.base.counts.answering((relation + size) % (2 * size))
        # All facts of a pair stand in one table: those of a removed newcomer in the delta alone.
        _count_online(overlay.base.rows, overlay.is_removed, heads, relation, size, support)
        heads = overlay.delta_counts.answering((relation + size) % (2 * size))
        _count_online(overlay.delta, np.zeros_like(overlay.is_removed), heads, relation, size, support)
        support[relation] = 0
        return OnlineRules(relation, support, self._relation_counts)

    @cached_property
    def _relation_counts(self) -> Offsets:
        """(2 relations,): how many facts each oriented relation has."""
        overlay, size = self.overlay, self.overlay.num_relations
        relations, tails = self._removed_facts
        once = ~overlay.is_removed[tails]  # a fact between two removed newcomers is found from either side
        counts: Offsets = (
            overlay.base.counts.totals
            + overlay.delta_counts.totals
            - np.bincount(relations, minlength=2 * size)
            - np.bincount((relations[once] + size) % (2 * size), minlength=2 * size)
        )
        return counts

    def similarity(self, entity: int, answers: npt.NDArray[np.integer]) -> Floats:
        """(entities,): how similar each is to the known answers of a query about the entity."""
        found = np.zeros(self.overlay.num_entities)
        if len(answers):
            _add_similarity(self.overlay.arrays, entity, _some(answers), found)
        return found

    def shared(self, entity: int, answers: npt.NDArray[np.integer], other: int) -> list[Shared]:
        """What the similarity of one entity is made of: the known answers, itself apart, the most similar first."""
        chosen, mine = _some(answers), self._features(entity, other)
        gains = {one: gain for one in mine if (gain := self._gain(*one)) > 0}
        found = []
        for answer in chosen[chosen != other].tolist():
            features = gains.keys() & self._features(entity, answer)
            if features:
                facts = self._num_facts(answer) * self._num_facts(other) * len(chosen)
                ordered = sorted(features, key=lambda one: (-gains[one], one))
                found.append(Shared(answer, sum(gains[one] for one in ordered) / facts**0.5, tuple(ordered)))
        return sorted(found, key=lambda one: (-one.similarity, one.answer))

    def _features(self, entity: int, of: int) -> set[tuple[int, int]]:
        relations, tails = self.overlay.all_facts_of(of)
        return {one for one in zip(relations.tolist(), tails.tolist(), strict=True) if one[1] != entity}

    def _num_facts(self, entity: int) -> int:
        return len(self.overlay.all_facts_of(entity)[0])

    def _gain(self, relation: int, end: int) -> float:
        """What it counts to share a feature."""
        size = self.overlay.num_relations
        inverse = (relation + size) % (2 * size)
        having = int((self.overlay.all_facts_of(end)[0] == inverse).sum())
        return 0.0 if having > WIDEST else max(0.0, float(np.log((self.overlay.num_seen + 1) / (having + 1))))


class GraphSignals(NamedTuple):
    """Of one query; (entities,) each, but for the number of facts of the entity asked about."""

    num_facts: int
    rules: RuleEvidence
    is_linked: Mask  # whether the entity has a fact with a candidate already, of whatever relation
    frequency: Floats  # how often a candidate answers the relation: among all known facts, or the observed ones
    similarity: Floats | None  # to the known answers, where graph statistics are used


def graph_signals(
    ranker: RuleRanker, overlay: Overlay, statistics: GraphStatistics | None, entity: int, relation: int
) -> GraphSignals:
    """What rules and, where they are used, graph statistics say of (entity, oriented relation, ?)."""
    facts = Facts(entity, *overlay.facts_of(entity))
    is_linked = np.zeros(overlay.num_entities, dtype=bool)
    is_linked[facts.tails] = True
    frequency = frequencies(overlay, statistics, relation)
    if statistics is None:
        evidence = ranker.evidence(overlay, entity, relation, facts=facts)
        return GraphSignals(len(facts.tails), evidence, is_linked, frequency, None)
    similarity = statistics.similarity(entity, facts.tails[facts.relations == relation])
    evidence = ranker.evidence(overlay, entity, relation, statistics.online_rules(relation), facts)
    return GraphSignals(len(facts.tails), evidence, is_linked, frequency, similarity)


def frequencies(overlay: Overlay, statistics: GraphStatistics | None, relation: int) -> Floats:
    """(entities,): how often each answers an oriented relation, among the facts that count."""
    if statistics is not None:
        return statistics.answer_counts(relation)
    return answer_row(overlay.base.observed_counts, relation, overlay.num_entities)


def _some(answers: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The answers, or of very many those at even distances."""
    ordered = np.unique(answers).astype(np.int64)
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_ANSWERS)).astype(np.int64)
    chosen: npt.NDArray[np.int64] = ordered[places]
    return chosen


@compiled
def _count_facts(graph: OverlayArrays, entity: int) -> Any:
    """How many facts an entity has."""
    first, end = row_of(graph.delta.offsets, entity)
    count = end - first
    if not graph.removed[entity]:
        first, end = row_of(graph.base.offsets, entity)
        for tail in graph.base.tails[first:end]:
            count += not graph.removed[tail]
    return count


@compiled
def _answer_features(
    graph: OverlayArrays, entity: int, answers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The features of all answers, as numbers, and how much each counts."""
    size, room = len(graph.removed), 0
    for answer in answers:
        room += _count_facts(graph, answer)
    keys, shares, count = np.empty(room, dtype=np.int64), np.empty(room), 0
    for answer in answers:
        share = 1 / np.sqrt(max(_count_facts(graph, answer), 1) * len(answers))
        if not graph.removed[answer]:
            first, end = row_of(graph.base.offsets, answer)
            for place in range(first, end):
                tail = graph.base.tails[place]
                if tail != entity and not graph.removed[tail]:
                    keys[count], shares[count] = np.int64(graph.base.relations[place]) * size + tail, share
                    count += 1
        first, end = row_of(graph.delta.offsets, answer)
        for place in range(first, end):
            tail = graph.delta.tails[place]
            if tail != entity:
                keys[count], shares[count] = np.int64(graph.delta.relations[place]) * size + tail, share
                count += 1
    return keys[:count], shares[:count]


@compiled
def _add_feature(graph: OverlayArrays, end: int, inverse: int, share: float, found: Floats) -> None:
    """Add to everyone who has a feature what it counts."""
    first, stop = edges_of(graph.base.offsets, graph.base.relations, end, inverse)
    stored = graph.base.tails[first : first if graph.removed[end] else stop]
    first, stop = edges_of(graph.delta.offsets, graph.delta.relations, end, inverse)
    added = graph.delta.tails[first:stop]
    having = len(added)
    if having + len(stored) > WIDEST:
        return
    for one in stored:
        having += not graph.removed[one]
    gain = np.log((graph.num_seen + 1) / (having + 1)) * share
    if gain <= 0:
        return
    for one in stored:
        if not graph.removed[one]:
            found[one] += gain
    for one in added:
        found[one] += gain


@compiled
def _add_similarity(graph: OverlayArrays, entity: int, answers: npt.NDArray[np.int64], found: Floats) -> None:
    keys, shares = _answer_features(graph, entity, answers)
    order, size, place = np.argsort(keys, kind="mergesort"), len(graph.removed), 0
    while place < len(order):
        key, share = keys[order[place]], 0.0
        while place < len(order) and keys[order[place]] == key:
            share += shares[order[place]]
            place += 1
        _add_feature(graph, key % size, inverse_of(key // size, graph.num_relations), share, found)
    for one in range(size):
        if found[one] > 0:
            found[one] /= np.sqrt(_count_facts(graph, one))


@compiled
def _count_between(rows: Adjacency, head: int, tail: int, size: int, support: Offsets) -> None:
    """Count every fact of two entities, from the end that has fewer."""
    offsets, relations = rows.offsets, rows.relations
    turned = offsets[tail + 1] - offsets[tail] < offsets[head + 1] - offsets[head]
    one, other = (tail, head) if turned else (head, tail)
    for place in range(offsets[one], offsets[one + 1]):
        if rows.tails[place] == other:
            support[inverse_of(relations[place], size) if turned else relations[place]] += 1


@compiled
def _count_online(rows: Adjacency, removed: Mask, heads: Ids, relation: int, size: int, support: Offsets) -> None:
    """Add for each pair that an oriented relation joins all that joins it; ``heads`` are those of such pairs.

    The rows of ``removed`` entities do not count, nor do edges that lead to them.
    """
    for head in heads:
        if removed[head]:
            continue
        first, end = edges_of(rows.offsets, rows.relations, head, relation)
        for tail in rows.tails[first:end]:
            if not removed[tail]:
                _count_between(rows, head, tail, size, support)
