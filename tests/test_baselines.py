"""The baselines: which neighbours they use, and how relations imply each other."""

import pytest
import torch

from newcomer.models.baselines import LANEncoder, MeanEncoder
from newcomer.models.embedding.model import ENCODERS
from nn_oracle import LOOPS, edges_of, random_edges
from test_encoder import DIM, RELATIONS, SEEN, prepared


@pytest.mark.parametrize("name", LOOPS)
def test_baselines_use_no_newcomers_as_neighbors(name):
    edges = random_edges(0)
    encoder = prepared(name, edges)
    seen = encoder.states(edges)
    both = encoder.extend(seen, edges_of([[(0, 3, 1.0), (1, SEEN + 1, 1.0)], [(2, SEEN, 1.0)]], SEEN + 2))
    alone = encoder.extend(seen, edges_of([[(0, 3, 1.0)]], SEEN + 1))
    ask = torch.full((6,), SEEN), torch.arange(6)
    torch.testing.assert_close(encoder.embed(both, *ask), encoder.embed(alone, *ask))
    assert not encoder.embed(both, torch.full((6,), SEEN + 1), torch.arange(6)).any()


@pytest.mark.parametrize("size", [5, 6, 7, 11, 12, 100])
def test_with_many_neighbors_an_evenly_spread_part_is_looked_at(size):
    lists = [[(0, k, 1.0) for k in range(size)]] + [[] for _ in range(size - 1)]
    encoder = MeanEncoder(size, RELATIONS, DIM, 0.0, torch.Generator().manual_seed(0)).double()
    encoder.max_neighbors = 6
    rows, _, _ = encoder.neighbors(encoder.states(edges_of(lists, size)), torch.tensor([0]))
    columns = rows.columns.tolist()
    assert len(columns) == min(size, 6)
    gaps = {b - a for a, b in zip(columns, [*columns[1:], size], strict=True)}
    assert columns[0] == 0 and max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("name", LOOPS)
def test_a_hidden_edge_does_not_decide_which_others_are_looked_at(name):
    encoder = ENCODERS[name](20, RELATIONS, DIM, 0.0, torch.Generator().manual_seed(0)).double()
    encoder.max_neighbors = 4
    around = [(k % 4, k, float(k not in (3, 4, 8))) for k in range(12)]
    others = [[] for _ in range(19)]
    hidden, without = (edges_of([row, *others], 20) for row in (around, [e for e in around if e[2]]))
    encoder.prepare(hidden, 0)
    ask = torch.zeros(6, dtype=torch.int64), torch.arange(6)
    expected = encoder.embed(encoder.states(without), *ask)
    assert torch.equal(encoder.embed(encoder.states(hidden), *ask), expected)


def test_implications_are_shares_of_entities_that_have_both():
    encoder = LANEncoder(4, RELATIONS, DIM, 0.0, torch.Generator().manual_seed(0)).double()
    edges = edges_of([[(0, 1, 1.0), (1, 2, 1.0), (1, 3, 1.0)], [(0, 0, 1.0)], [(0, 0, 1.0), (2, 0, 0.0)], []], 4)
    encoder.prepare(edges, 0)
    assert encoder.implied[0].tolist() == pytest.approx([1.0, 1 / 3, 0, 0, 0, 0])
    assert encoder.implied[1].tolist() == [1.0, 1.0, 0, 0, 0, 0]
    assert not encoder.implied[2:].any()  # the only edge of relation 2 is hidden
