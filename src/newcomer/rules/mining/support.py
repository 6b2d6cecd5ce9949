"""The compiled counting of support: which bodies join the two ends of a head's triples, and how often.

For every triple r(x, y) the distinct bodies are found by meeting x's links with y's, and counted in a hash table of the
bodies of r. A body is one number, its *code*: ``first * (4R + 1) + second`` with second = 0 for one atom, 1 + b2 for a
chain and 1 + 2R + b2 for an intersection; atoms are oriented relations.
"""

import numpy as np

from newcomer.graph import Ids, Offsets
from newcomer.rules.compiled import compiled, inverse_of, lower_bound
from newcomer.rules.mining.index import MiningIndex

FREE = -1
Table = tuple[Offsets, Ids, Ids]  # body codes, the last triple that counted each, counts


@compiled
def _place(keys: Offsets, key: int) -> int:
    """The place of a key in an open-addressing table, or the free place where it belongs."""
    mask = len(keys) - 1
    mixed = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    place = np.int64(mixed) & mask
    while keys[place] != FREE and keys[place] != key:
        place = (place + 1) & mask
    return int(place)


@compiled
def _new_table(size: int) -> Table:
    return np.full(size, FREE, np.int64), np.zeros(size, np.int32), np.zeros(size, np.int32)


@compiled
def _with_room(table: Table, used: int, coming: int, most: int) -> Table:
    """The table, or a larger copy of it, with room for ``coming`` more; empty if that is over ``most`` places."""
    keys, stamps, counts = table
    size = len(keys)
    while size < 2 * (used + coming):
        size *= 2
    if size == len(keys):
        return table
    if size > most:
        return keys[:0], stamps[:0], counts[:0]
    larger = _new_table(size)
    for i in range(len(keys)):
        if keys[i] != FREE:
            place = _place(larger[0], keys[i])
            larger[0][place], larger[1][place], larger[2][place] = keys[i], stamps[i], counts[i]
    return larger


@compiled
def _add(table: Table, key: int, stamp: int) -> int:
    """Count a body once for the triple with this stamp; 1 if the body is new to the table."""
    keys, stamps, counts = table
    place = _place(keys, key)
    if stamps[place] == stamp:
        return 0
    fresh = 1 if keys[place] == FREE else 0
    keys[place] = key
    stamps[place] = stamp
    counts[place] += 1
    return fresh


@compiled
def _at_least(table: Table, minimum: int) -> tuple[Offsets, Ids]:
    """The bodies counted at least ``minimum`` (>= 1) times, and their counts."""
    keys, _, counts = table
    kept = 0
    for i in range(len(keys)):
        if counts[i] >= minimum:
            keys[kept], counts[kept] = keys[i], counts[i]
            kept += 1
    return keys[:kept].copy(), counts[:kept].copy()


@compiled
def link_support(
    index: MiningIndex, head: int, relations: int, one: bool, both: bool, minimum: int
) -> tuple[Offsets, Ids]:
    """One-atom bodies and intersections of a head relation: other relations that hold between the same two ends."""
    width = 4 * relations + 1
    table = _new_table(64)
    used, stamp = 0, 0
    for at in range(index.relation_offsets[head], index.relation_offsets[head + 1]):
        group = index.relation_groups[at]
        x = index.group_entities[group]
        link = index.link_offsets[x]
        for edge in range(index.group_starts[group], index.group_starts[group + 1]):
            stamp += 1
            link = lower_bound(index.link_entities, link, index.link_offsets[x + 1], index.tails[edge])
            low, high = index.link_starts[link], index.link_starts[link + 1]
            table = _with_room(table, used, (high - low) * (high - low), 1 << 62)
            for i in range(low, high):
                first = index.link_relations[i]
                if first == head:
                    continue
                if one:
                    used += _add(table, first * width, stamp)
                for j in range(i + 1, high if both else i + 1):
                    second = index.link_relations[j]
                    if second != head:
                        used += _add(table, first * width + 1 + 2 * relations + second, stamp)
    return _at_least(table, minimum)


@compiled
def _meet(index: MiningIndex, a: int, b: int, mark: Offsets, marked: bool, met: Offsets) -> int:
    """The links of a and of b that lead to the same entity, written in pairs to ``met``; returns how many pairs.

    With a's links marked, b's are looked through; else each of a's links is searched among b's.
    """
    found = 0
    if marked:
        for link in range(index.link_offsets[b], index.link_offsets[b + 1]):
            other = mark[index.link_entities[link]]
            if other >= 0:
                met[2 * found], met[2 * found + 1] = other, link
                found += 1
        return found
    low, end = index.link_offsets[b], index.link_offsets[b + 1]
    for link in range(index.link_offsets[a], index.link_offsets[a + 1]):
        wanted = index.link_entities[link]
        low = lower_bound(index.link_entities, low, end, wanted)
        if low < end and index.link_entities[low] == wanted:
            met[2 * found], met[2 * found + 1] = link, low
            found += 1
    return found


@compiled
def _mark(index: MiningIndex, entity: int, mark: Offsets, on: bool) -> None:
    """Note at each neighbour which link of ``entity`` leads there, or wipe the notes."""
    for link in range(index.link_offsets[entity], index.link_offsets[entity + 1]):
        mark[index.link_entities[link]] = link if on else FREE


@compiled
def _add_chains(
    index: MiningIndex, x_link: int, y_link: int, relations: int, part: int, parts: int, table: Table, stamp: int
) -> int:
    """Count the chains x -> z -> y of one middle entity; returns how many are new to the table."""
    width = 4 * relations + 1
    fresh = 0
    for i in range(index.link_starts[x_link], index.link_starts[x_link + 1]):
        first = index.link_relations[i]
        if first % parts != part:
            continue
        for j in range(index.link_starts[y_link], index.link_starts[y_link + 1]):
            last = index.link_relations[j]  # leads from y to z: read from z it is inverse
            fresh += _add(table, first * width + 1 + inverse_of(last, relations), stamp)
    return fresh


@compiled
def chain_support(
    index: MiningIndex, head: int, relations: int, minimum: int, part: int, parts: int, most: int,
    mark: Offsets, met: Offsets,
) -> tuple[bool, Offsets, Ids]:  # fmt: skip
    """Whether the table fits, and the chains of two atoms for a head relation.

    ``part`` of ``parts`` takes the chains whose first atom is ``part`` modulo ``parts``: when the table would need more
    than ``most`` places it does not fit, and the caller asks again in smaller parts.
    """
    table = _new_table(256)
    used, stamp = 0, 0
    for at in range(index.relation_offsets[head], index.relation_offsets[head + 1]):
        group = index.relation_groups[at]
        x = index.group_entities[group]
        x_links = index.link_offsets[x + 1] - index.link_offsets[x]
        marked = False
        for edge in range(index.group_starts[group], index.group_starts[group + 1]):
            y = index.tails[edge]
            stamp += 1
            look_through = 16 * x_links >= index.link_offsets[y + 1] - index.link_offsets[y]
            if look_through and not marked:
                _mark(index, x, mark, True)
                marked = True
            for i in range(_meet(index, x, y, mark, look_through, met)):
                x_link, y_link = met[2 * i], met[2 * i + 1]
                coming = (index.link_starts[x_link + 1] - index.link_starts[x_link]) * (
                    index.link_starts[y_link + 1] - index.link_starts[y_link]
                )
                table = _with_room(table, used, coming, most)
                if len(table[0]) == 0:
                    if marked:
                        _mark(index, x, mark, False)
                    return False, table[0], table[2]
                used += _add_chains(index, x_link, y_link, relations, part, parts, table, stamp)
        if marked:
            _mark(index, x, mark, False)
    codes, counts = _at_least(table, minimum)
    return True, codes, counts
