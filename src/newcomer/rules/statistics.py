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

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Adjacency, Ids, Mask, Offsets, Overlay, OverlayArrays, read_only
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
            chosen = _some(answers)
            features = np.sort(_answer_features(self.overlay.arrays, entity, chosen, self.fact_counts))
            _add_similarity(self.overlay.arrays, chosen, features, self.fact_counts, found)
        return found

    @cached_property
    def fact_counts(self) -> Offsets:
        """(entities,): how many facts each has; one of an entity with itself counts twice."""
        overlay = self.overlay
        counts, stored, added = np.zeros(overlay.num_entities, np.int64), overlay.base.rows.sizes, overlay.delta.sizes
        counts[: len(stored)] = stored
        counts -= np.bincount(self._removed_facts[1], minlength=len(counts))
        counts[overlay.removed] = 0
        counts[: len(added)] += added
        return read_only(counts)

    def shared(
        self, entity: int, answers: npt.NDArray[np.integer], other: int, named: int | None = None
    ) -> list[Shared]:
        """What the similarity of one entity is made of: the known answers, itself apart, the most similar first.

        The features of the first ones are ``named``; of None all.
        """
        arrays, chosen = self.overlay.arrays, _some(answers)
        chosen = chosen[chosen != other]
        features = self._counting_features(entity, other)
        found = _shared_gains(arrays, chosen, *features)
        facts = self.fact_counts[chosen] * self.fact_counts[other] * len(_some(answers))
        found /= np.sqrt(np.maximum(facts, 1))  # those who have none share nothing
        order = np.lexsort((chosen, -found))[: np.count_nonzero(found)]
        rows = zip(chosen[order].tolist(), found[order].tolist(), strict=True)
        mine = list(zip(features[0].tolist(), features[1].tolist(), strict=True))
        listed = len(order) if named is None else named
        return [
            Shared(answer, similarity, self._in_common(mine, answer) if place < listed else ())
            for place, (answer, similarity) in enumerate(rows)
        ]

    def _counting_features(self, entity: int, of: int) -> tuple[Ids, Ids, Floats]:
        """The relations and ends of somebody's features, and what it counts to share each: what counts most first."""
        overlay = self.overlay
        features = np.unique(np.stack(overlay.all_facts_of(of)), axis=1)
        relations, ends = features[:, features[1] != entity]
        having = _counts_of_having(overlay.arrays, relations, ends)
        gains = np.where(having > WIDEST, 0.0, np.log((overlay.num_seen + 1) / (having + 1)))
        order = np.argsort(-gains, kind="stable")[: np.count_nonzero(gains > 0)]
        return relations[order], ends[order], gains[order]

    def _in_common(self, features: Sequence[tuple[int, int]], other: int) -> tuple[tuple[int, int], ...]:
        relations, tails = self.overlay.all_facts_of(other)
        known = set(zip(relations.tolist(), tails.tolist(), strict=True))
        return tuple(one for one in features if one in known)


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
def _having(graph: OverlayArrays, end: int, inverse: int) -> tuple[Ids, Ids]:
    """Those who have a feature, of whom the first ones may be removed; they follow from its end."""
    first, stop = edges_of(graph.base.offsets, graph.base.relations, end, inverse)
    stored = graph.base.tails[first : first if graph.removed[end] else stop]
    first, stop = edges_of(graph.delta.offsets, graph.delta.relations, end, inverse)
    return stored, graph.delta.tails[first:stop]


@compiled
def _counts_of_having(graph: OverlayArrays, relations: Ids, ends: Ids) -> npt.NDArray[np.int64]:
    """(features,): how many have each."""
    found = np.empty(len(ends), dtype=np.int64)
    for place in range(len(ends)):
        stored, added = _having(graph, ends[place], inverse_of(relations[place], graph.num_relations))
        found[place] = len(added)
        for one in stored:
            found[place] += not graph.removed[one]
    return found


@compiled
def _shared_gains(
    graph: OverlayArrays, answers: npt.NDArray[np.int64], relations: Ids, ends: Ids, gains: Floats
) -> Floats:
    """(answers,): what the features count that each has."""
    places, found = np.full(len(graph.removed), -1, dtype=np.int64), np.zeros(len(answers))
    for place in range(len(answers)):
        places[answers[place]] = place
    for feature in range(len(ends)):
        stored, added = _having(graph, ends[feature], inverse_of(relations[feature], graph.num_relations))
        for one in stored:
            if places[one] >= 0 and not graph.removed[one]:
                found[places[one]] += gains[feature]
        for one in added:
            if places[one] >= 0:
                found[places[one]] += gains[feature]
    return found


@compiled
def _answer_features(
    graph: OverlayArrays, entity: int, answers: npt.NDArray[np.int64], counts: Offsets
) -> npt.NDArray[np.int64]:
    """The features of all answers, each as one number: by relation, end and answer."""
    size, many, room = len(graph.removed), len(answers), 0
    for answer in answers:
        room += counts[answer]
    keys, count = np.empty(room, dtype=np.int64), 0
    for place in range(many):
        answer = answers[place]
        if not graph.removed[answer]:
            first, end = row_of(graph.base.offsets, answer)
            for edge in range(first, end):
                tail = graph.base.tails[edge]
                if tail != entity and not graph.removed[tail]:
                    keys[count] = (np.int64(graph.base.relations[edge]) * size + tail) * many + place
                    count += 1
        first, end = row_of(graph.delta.offsets, answer)
        for edge in range(first, end):
            tail = graph.delta.tails[edge]
            if tail != entity:
                keys[count] = (np.int64(graph.delta.relations[edge]) * size + tail) * many + place
                count += 1
    return keys[:count]


@compiled
def _count_staying(entities: Ids, first: int, stop: int, removed: Mask) -> int:
    """How many of ``entities[first:stop]`` are not removed."""
    count = 0
    for place in range(first, stop):
        count += not removed[entities[place]]
    return count


@compiled
def _add_to_staying(entities: Ids, first: int, stop: int, removed: Mask, gain: float, found: Floats) -> None:
    """Add to those of ``entities[first:stop]`` that are not removed."""
    for place in range(first, stop):
        if not removed[entities[place]]:
            found[entities[place]] += gain


@compiled
def _add_similarity(
    graph: OverlayArrays,
    answers: npt.NDArray[np.int64],
    features: npt.NDArray[np.int64],
    counts: Offsets,
    found: Floats,
) -> None:
    """Add what the answers' features count, which come sorted, to all who have them.

    Who has a feature is looked up here by places: to have `_having` hand over arrays takes longer than all the rest.
    """
    shares, size, many, place = np.empty(len(answers)), len(graph.removed), len(answers), 0
    base, delta, removed, nobody = graph.base, graph.delta, graph.removed, np.zeros_like(graph.removed)
    for one in range(many):
        shares[one] = 1 / np.sqrt(max(counts[answers[one]], 1) * many)
    while place < len(features):
        key, share = features[place] // many, 0.0
        while place < len(features) and features[place] // many == key:
            share += shares[features[place] % many]
            place += 1
        end, inverse = key % size, inverse_of(key // size, graph.num_relations)
        first, stop = edges_of(base.offsets, base.relations, end, inverse)
        stop = first if removed[end] else stop
        more, last = edges_of(delta.offsets, delta.relations, end, inverse)
        if stop - first + last - more > WIDEST:
            continue
        having = _count_staying(base.tails, first, stop, removed) + last - more
        gain = np.log((graph.num_seen + 1) / (having + 1)) * share
        if gain > 0:
            _add_to_staying(base.tails, first, stop, removed, gain, found)
            _add_to_staying(delta.tails, more, last, nobody, gain, found)
    for one in range(size):
        if found[one] > 0:
            found[one] /= np.sqrt(counts[one])


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
