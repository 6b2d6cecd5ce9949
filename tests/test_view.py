"""Neighbours drawn around a batch: nothing changes where all are drawn, and never more is drawn than asked for."""

import pytest
import torch

from newcomer.models.embedding.model import ENCODERS, Negatives
from newcomer.training.embedding import Trainer, View, around
from nn_oracle import one_thread
from test_training_embedding import CPU, GRAPH, SEEN, config_of

on_one_thread = pytest.fixture(autouse=True)(one_thread)
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
WEIGHTS = torch.ones(len(GRAPH.facts) + len(GRAPH.virtual))
WEIGHTS[::3] = 0.0
EVERYONE = 1000


def drawn(entities: list[int], fanout: int, hops: int, seed: int = 0) -> View:
    return around(GRAPH, WEIGHTS, torch.tensor(entities), fanout, hops, torch.Generator().manual_seed(seed))


def edges_of(view: View) -> list[tuple[int, int, int]]:
    """(entity, oriented relation, neighbour) of every edge of a view."""
    assert view.nodes is not None
    rows, columns = view.nodes[view.edges.rows.row_ids], view.nodes[view.edges.rows.columns]
    return list(zip(rows.tolist(), view.edges.relations.tolist(), columns.tolist(), strict=True))


def visible_edges() -> set[tuple[int, int, int]]:
    edges = GRAPH.edges(WEIGHTS)
    kept = edges.weights > 0
    columns = (edges.rows.row_ids[kept], edges.relations[kept], edges.rows.columns[kept])
    return set(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("fanout", [1, 2, 5])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_at_most_so_many_visible_edges_are_drawn_around_the_batch(fanout, hops):
    view = drawn([3, 11, 3], fanout, hops)
    edges = edges_of(view)
    assert len(set(edges)) == len(edges) and set(edges) <= visible_edges()
    degrees = {entity: sum(1 for e, _, _ in visible_edges() if e == entity) for entity in range(SEEN)}
    distance, rim = {3: 0, 11: 0}, {3, 11}
    for step in range(1, hops + 1):
        rim = {n for e, _, n in edges if e in rim} - set(distance)
        distance |= dict.fromkeys(rim, step)
    assert view.nodes is not None and view.nodes.tolist() == sorted(distance)
    for entity, steps in distance.items():
        expected = min(fanout, degrees[entity]) if steps < hops else 0
        assert sum(1 for e, _, _ in edges if e == entity) == expected


def test_every_neighbour_has_the_same_chance_and_each_seed_its_own_draw():
    draws = [edges_of(drawn([5], 2, 1, seed)) for seed in range(400)]
    own = [edge for edge in visible_edges() if edge[0] == 5]
    counts = [sum(edge in draw for draw in draws) for edge in own]
    expected = 400 * 2 / len(own)
    assert len(own) > 3 and 0.7 * expected < min(counts) and max(counts) < 1.3 * expected
    assert draws[0] == edges_of(drawn([5], 2, 1, 0))


@every_encoder
@pytest.mark.parametrize("query_aware", [True, False])
def test_where_all_neighbours_are_drawn_vectors_are_those_over_the_whole_graph(encoder, query_aware):
    model = Trainer(config_of(encoder, query_aware=query_aware, residual=True), GRAPH, CPU).model.eval()
    batch, queries = torch.tensor([4, 9, 17, 4]), torch.tensor([0, 5, 2, 3])
    full = View(GRAPH.edges(WEIGHTS))
    part = drawn(batch.tolist(), EVERYONE, model.encoder.hops)
    vectors = [
        model.encoder.embed(model.encoder.states(view.edges, view.nodes), view.places(batch), queries)
        for view in (full, part)
    ]
    torch.testing.assert_close(*vectors)


@pytest.mark.parametrize(
    ("encoder", "answers_by_input"), [(e, own) for e in ENCODERS for own in (False, True) if own or e != "foldin"]
)
def test_a_step_with_all_neighbours_drawn_costs_the_same_loss(encoder, answers_by_input, monkeypatch):
    losses, draw = [], Negatives.draw
    monkeypatch.setattr(Negatives, "draw", lambda *given: draw(*given[:5], shared=True))
    for fanout in (None, EVERYONE, 2):
        settings = {"newcomer_share": 1.0, "fanout": fanout, "own_weight": 0.5, "answers_by_input": answers_by_input}
        config = config_of(encoder, dropout=0.0, **settings)
        trainer = Trainer(config, GRAPH, CPU)
        batch = torch.arange(0, len(GRAPH.facts), 5), torch.arange(0, len(GRAPH.virtual), 4)
        losses.append(trainer._step(*batch, torch.Generator().manual_seed(0)))
        assert bool((trainer.labels[batch[1]] != 0.5).all())
    torch.testing.assert_close(losses[0], losses[1])
    # Fewer neighbours cost another loss, unless none are used.
    assert torch.allclose(losses[0], losses[2]) == (trainer.model.encoder.hops == 0)


def test_the_cost_of_a_step_follows_from_the_batch():
    view = drawn([0], 1, 2)
    assert view.nodes is not None and len(view.nodes) <= 3
    assert view.edges.rows.num_rows == view.edges.rows.width == len(view.nodes)
