"""The counting of body pairs and PCA body pairs, in portions that threads can take.

Every rule is looked at from its PCA side here, so that a body pair (x, y) counts for PCA if x has the head's relation.
Rules that share a body, and bodies that share a first atom, are counted together; each portion's counts are its own,
and no thread writes where another does.

For every x and first atom b1 the number of distinct y that each second atom b2 reaches is a group's size, unless
several middle entities lead to b2; then the groups are united.
"""

from typing import NamedTuple

import numpy as np

from newcomer.graph import Ids, Mask, Offsets, changes
from newcomer.rules.compiled import compiled, lower_bound
from newcomer.rules.mining.index import MiningIndex
from newcomer.rules.rule import Kind, RuleSet


class Portion(NamedTuple):
    """The rules with one kind and one first atom, in *slots* of one body each, and where their counts go."""

    slot_of: Ids  # second atom -> slot, or -1
    slot_rules: Offsets  # slot -> its rules
    heads: Ids  # rule -> oriented head
    body: Offsets  # slot -> body pairs
    pca: Offsets  # rule -> PCA body pairs
    weights: Offsets  # scratch, zero between uses: how many of the x at hand have each oriented relation


@compiled
def _weigh(index: MiningIndex, entity: int, step: int, weights: Offsets) -> None:
    """Add ``step`` to the weight of every relation that leaves an entity."""
    for group in range(index.group_offsets[entity], index.group_offsets[entity + 1]):
        weights[index.group_relations[group]] += step


@compiled
def _credit(portion: Portion, slot: int, pairs: int) -> None:
    """Give each rule of a slot ``pairs`` PCA pairs for every x at hand that has its head."""
    for rule in range(portion.slot_rules[slot], portion.slot_rules[slot + 1]):
        portion.pca[rule] += pairs * portion.weights[portion.heads[rule]]


@compiled
def count_edges(index: MiningIndex, first: int, portion: Portion) -> None:
    """Rules of one atom, all in one slot: the pairs of ``first`` itself."""
    for at in range(index.relation_offsets[first], index.relation_offsets[first + 1]):
        own = index.relation_groups[at]
        pairs = index.group_starts[own + 1] - index.group_starts[own]
        portion.body[0] += pairs
        _weigh(index, index.group_entities[own], 1, portion.weights)
        _credit(portion, 0, pairs)
        _weigh(index, index.group_entities[own], -1, portion.weights)


@compiled
def count_links(index: MiningIndex, first: int, portion: Portion) -> None:
    """Intersections of ``first`` with the relations of the slots."""
    for at in range(index.relation_offsets[first], index.relation_offsets[first + 1]):
        own = index.relation_groups[at]
        x = index.group_entities[own]
        _weigh(index, x, 1, portion.weights)
        link = index.link_offsets[x]
        for edge in range(index.group_starts[own], index.group_starts[own + 1]):
            link = lower_bound(index.link_entities, link, index.link_offsets[x + 1], index.tails[edge])
            for i in range(index.link_starts[link], index.link_starts[link + 1]):
                slot = portion.slot_of[index.link_relations[i]]
                if slot >= 0:
                    portion.body[slot] += 1
                    _credit(portion, slot, 1)
        _weigh(index, x, -1, portion.weights)


@compiled
def count_single(index: MiningIndex, first: int, inverse: int, portion: Portion, degree: Ids) -> None:
    """Chains from the x that reach one middle entity by ``first``: all x of a middle entity at once."""
    for at in range(index.relation_offsets[first], index.relation_offsets[first + 1]):
        group = index.relation_groups[at]
        degree[index.group_entities[group]] = index.group_starts[group + 1] - index.group_starts[group]
    for at in range(index.relation_offsets[inverse], index.relation_offsets[inverse + 1]):
        own = index.relation_groups[at]
        low, high = index.group_starts[own], index.group_starts[own + 1]
        starters = 0
        for edge in range(low, high):
            if degree[index.tails[edge]] == 1:
                starters += 1
                _weigh(index, index.tails[edge], 1, portion.weights)
        if starters == 0:
            continue
        middle = index.group_entities[own]
        for group in range(index.group_offsets[middle], index.group_offsets[middle + 1]):
            slot = portion.slot_of[index.group_relations[group]]
            if slot >= 0:
                pairs = index.group_starts[group + 1] - index.group_starts[group]
                portion.body[slot] += pairs * starters
                _credit(portion, slot, pairs)
        for edge in range(low, high):
            if degree[index.tails[edge]] == 1:
                _weigh(index, index.tails[edge], -1, portion.weights)


@compiled
def _distinct_tails(index: MiningIndex, last: int, groups: Offsets, previous: Ids, seen: Offsets, stamp: int) -> int:
    """How many distinct tails a chain of groups has; ``seen`` notes the stamp under which an entity was last met."""
    count = 0
    while last >= 0:
        group = groups[last]
        for edge in range(index.group_starts[group], index.group_starts[group + 1]):
            tail = index.tails[edge]
            if seen[tail] != stamp:
                seen[tail] = stamp
                count += 1
        last = previous[last]
    return count


@compiled
def count_several(index: MiningIndex, first: int, portion: Portion, seen: Offsets, stamp: int) -> int:
    """Chains from the x that reach several middle entities by ``first``; returns the last stamp used."""
    slots = len(portion.body)
    most = len(index.group_entities)  # an x reaches no group twice, since it reaches no middle entity twice
    # The groups of each slot hang together as a chain: newest[slot], then previous of that, and so on.
    newest, touched = np.full(slots, -1, np.int32), np.empty(slots, np.int32)
    groups, previous = np.empty(most, np.int64), np.empty(most, np.int32)
    for at in range(index.relation_offsets[first], index.relation_offsets[first + 1]):
        own = index.relation_groups[at]
        if index.group_starts[own + 1] - index.group_starts[own] < 2:
            continue
        met, entries = 0, 0
        for edge in range(index.group_starts[own], index.group_starts[own + 1]):
            middle = index.tails[edge]
            for group in range(index.group_offsets[middle], index.group_offsets[middle + 1]):
                slot = portion.slot_of[index.group_relations[group]]
                if slot < 0:
                    continue
                if newest[slot] < 0:
                    touched[met] = slot
                    met += 1
                groups[entries], previous[entries] = group, newest[slot]
                newest[slot] = entries
                entries += 1
        x = index.group_entities[own]
        _weigh(index, x, 1, portion.weights)
        for i in range(met):
            slot = touched[i]
            last = newest[slot]
            newest[slot] = -1
            if previous[last] < 0:
                pairs = index.group_starts[groups[last] + 1] - index.group_starts[groups[last]]
            else:
                stamp += 1
                pairs = _distinct_tails(index, last, groups, previous, seen, stamp)
            portion.body[slot] += pairs
            _credit(portion, slot, pairs)
        _weigh(index, x, -1, portion.weights)
    return stamp


class JoinPlan:
    """Candidates seen from their PCA side, sorted by kind, first atom, second atom and head.

    A *slot* is a run of candidates with one body; a *portion* is a run of slots with one kind and one first atom.
    """

    def __init__(self, candidates: RuleSet, by_tail: Mask) -> None:
        kinds, first, second, heads = _from_pca_side(candidates, by_tail)
        self.order = np.lexsort([heads, second, first, kinds])
        self.kinds, self.first, self.second = kinds[self.order], first[self.order], second[self.order]
        self.heads: Ids = heads[self.order]
        new_portion = changes(self.kinds, self.first)
        self.slot_starts = np.append(np.flatnonzero(new_portion | changes(self.second)), len(self.heads))
        self.portion_slots = np.append(np.flatnonzero(new_portion[self.slot_starts[:-1]]), len(self.slot_starts) - 1)
        self.body = np.zeros(len(self.slot_starts) - 1, dtype=np.int64)
        self.pca = np.zeros(len(self.heads), dtype=np.int64)

    @property
    def portions(self) -> int:
        return len(self.portion_slots) - 1

    def costliest_first(self, relation_sizes: Offsets) -> Offsets:
        """Portions with the most work at the start, so that threads end together."""
        starts = self.slot_starts[self.portion_slots[:-1]]
        work = relation_sizes[self.first[starts]] * np.diff(self.portion_slots)
        return np.argsort(-work, kind="stable")

    def results(self) -> tuple[Offsets, Offsets]:
        """Body size and PCA body size in the order of the candidates."""
        body, pca = np.empty_like(self.pca), np.empty_like(self.pca)
        body[self.order] = np.repeat(self.body, np.diff(self.slot_starts))
        pca[self.order] = self.pca
        return body, pca


def _from_pca_side(candidates: RuleSet, by_tail: Mask) -> tuple[Ids, Ids, Ids, Ids]:
    """Kinds, first atoms, second atoms and oriented heads, turned round where the PCA side is y."""
    turn, size = by_tail[candidates.heads], candidates.num_relations
    first, second = candidates.body1, candidates.body2
    first_back = (first + size) % (2 * size)
    second_back = (second + size) % (2 * size)  # not used if it is -1
    chain, single = candidates.kinds == Kind.TWO, candidates.kinds == Kind.ONE
    low, high = np.minimum(first_back, second_back), np.maximum(first_back, second_back)
    turned_first = np.where(chain, second_back, np.where(single, first_back, low))
    turned_second = np.where(chain, first_back, np.where(single, -1, high))
    first, second = np.where(turn, turned_first, first), np.where(turn, turned_second, second)
    return candidates.kinds, first, second, np.where(turn, candidates.heads + size, candidates.heads)


class BodyCounter:
    """One thread's scratch space for counting bodies."""

    def __init__(self, index: MiningIndex, plan: JoinPlan, size: int, entities: int) -> None:
        self.index, self.plan, self.size = index, plan, size
        self.slot_of = np.full(2 * size, -1, dtype=np.int32)
        self.weights = np.zeros(2 * size, dtype=np.int64)
        self.seen = np.zeros(entities, dtype=np.int64)
        self.degree = np.zeros(entities, dtype=np.int32)
        self.stamp = 0

    def count(self, portion: int) -> None:
        """Fill in the plan's figures for one portion; no other portion shares them."""
        plan = self.plan
        slots = slice(plan.portion_slots[portion], plan.portion_slots[portion + 1])
        starts = plan.slot_starts[slots.start : slots.stop + 1]
        rules = slice(starts[0], starts[-1])
        seconds = plan.second[starts[:-1]]
        columns = plan.heads[rules], plan.body[slots], plan.pca[rules]
        rows = Portion(self.slot_of, starts - starts[0], *columns, self.weights)
        kind, first = int(plan.kinds[rules.start]), int(plan.first[rules.start])
        if kind == Kind.ONE:
            count_edges(self.index, first, rows)
            return
        self.slot_of[seconds] = np.arange(len(seconds), dtype=np.int32)
        if kind == Kind.BOTH:
            count_links(self.index, first, rows)
        else:
            count_single(self.index, first, (first + self.size) % (2 * self.size), rows, self.degree)
            self.stamp = count_several(self.index, first, rows, self.seen, self.stamp)
        self.slot_of[seconds] = -1
