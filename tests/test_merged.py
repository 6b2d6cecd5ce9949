"""Edges of which those between the same two entities are one: against the edges, one by one."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from newcomer.models.propagation.merged import MASKED, MergedEdges, Part, plain_part
from propagation_oracle import RELATIONS, drawn, edges_of, seeded

ENTITIES = 12
PLACES = pytest.mark.parametrize("facts", [drawn(0), drawn(2, 5, 80), [(0, 1, 0), (0, 1, 2)], []])


def oriented(facts: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(receiver, relation, sender) of every fact, from both of its ends."""
    return [*facts, *((tail, relation + RELATIONS, head) for head, relation, tail in facts)]


def entries(part: Part) -> list[tuple[int, int, int, int]]:
    rows = np.repeat(np.arange(len(part.offsets) - 1), np.diff(part.offsets))
    return list(zip(*(column.tolist() for column in (rows, *part[1:])), strict=True))


@PLACES
def test_each_neighbour_has_one_entry_with_the_scales_of_all_edges(facts):
    merged, scales = MergedEdges.of(edges_of(facts, ENTITIES)), torch.randn(2 * RELATIONS, 4, generator=seeded(1))
    wanted: dict[tuple[int, int], list[int]] = defaultdict(list)
    for receiver, relation, sender in oriented(facts):
        wanted[receiver, sender].append(relation)
    found, of_kinds = entries(merged.part), merged.scales(scales)
    assert [one[:2] for one in found] == sorted(wanted)
    for row, neighbor, received, sent in found:
        for kind, relations in ((received, wanted[row, neighbor]), (sent, wanted[neighbor, row])):
            assert merged.sizes[kind] == len(relations)
            np.testing.assert_allclose(of_kinds[kind], scales[relations].sum(dim=0).numpy(), rtol=1e-5, atol=1e-6)


def test_the_same_relations_are_one_kind():
    facts = [(0, 1, 2), (0, 2, 2), (3, 2, 4), (3, 1, 4), (5, 1, 6), (5, 2, 6), (5, 0, 6)]
    merged = MergedEdges.of(edges_of(facts, ENTITIES))
    kinds = {one[:2]: one[2] for one in entries(merged.part)}
    assert kinds[0, 2] == kinds[3, 4] and kinds[2, 0] == kinds[4, 3]
    assert len({kinds[0, 2], kinds[2, 0], kinds[5, 6], kinds[6, 5]}) == 4 == merged.sets.num_rows
    assert np.array_equal(merged.scales(torch.eye(2 * RELATIONS))[kinds[5, 6]], [1, 1, 1, 0, 0, 0])


@PLACES
def test_what_is_removed_is_masked_from_both_ends(facts):
    merged, removed = MergedEdges.of(edges_of(facts, ENTITIES)), np.zeros(ENTITIES, dtype=bool)
    removed[[2, 3]] = True
    part, degrees = merged.without(removed)
    for (row, neighbor, *kinds), before in zip(entries(part), entries(merged.part), strict=True):
        assert kinds == ([MASKED, MASKED] if {row, neighbor} & {2, 3} else list(before[2:]))
    left = Counter(receiver for receiver, _, sender in oriented(facts) if not {receiver, sender} & {2, 3})
    assert degrees.tolist() == [left[one] for one in range(ENTITIES)]


def test_masked_edges_are_left_out():
    edges = edges_of([(0, 1, 2), (0, 2, 2), (1, 0, 3)], ENTITIES)
    weights = (edges.relations % RELATIONS != 2).float()
    found = entries(MergedEdges.of(edges.with_weights(weights)).part)
    assert found == [(0, 2, 1, 4), (1, 3, 0, 3), (2, 0, 4, 1), (3, 1, 3, 0)]


def test_few_edges_stay_as_they_are():
    found = entries(plain_part(edges_of([(0, 1, 2), (0, 2, 2)], 4)))
    assert sorted(found) == [(0, 2, 1, 4), (0, 2, 2, 5), (2, 0, 4, 1), (2, 0, 5, 2)]
