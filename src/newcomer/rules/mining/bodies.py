"""The compiled counting of body pairs and PCA body pairs.

Every rule is looked at from its PCA side here, so that a body pair (x, y) counts for PCA if x has the head's relation.
For every x and first atom b1 the number of distinct y that each second atom b2 reaches is a group's size, unless
several middle entities lead to b2; then the groups are united.
"""

from typing import NamedTuple

import numpy as np

from newcomer.graph import Ids, Offsets
from newcomer.rules.compiled import compiled, lower_bound
from newcomer.rules.mining.index import MiningIndex


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
