"""Training: the same every time, from any epoch on; it learns what can be learned, and nothing that is hidden."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import evaluate
from newcomer.config import Config, TrainingConfig
from newcomer.data import load_dataset
from newcomer.graph import Graph, InductiveDataset, Overlay, TripleArray
from newcomer.models.embedding.encoder import States
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.embedding.model import ENCODERS, Negatives, build_model
from newcomer.models.embedding.scorer import lifted
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers, TrainedModel
from newcomer.rules.rule import Kind, Rule, RuleSet
from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, VirtualNeighbors, virtual_neighbors
from newcomer.training.embedding import Trainer, View, cross_entropy, softmax_cross_entropy
from nn_oracle import ENCODER_DECODERS, one_thread
from rule_oracle import graph_of, random_rows, random_rules
from training_world import PAPER_SETTINGS
from whole_graph_oracle import whole_states

CPU = torch.device("cpu")
ANY = NeighborLimits(min_confidence=0.0, min_support=1)
CORRUPTIONS = 8
CHANCE = {"binary": (CORRUPTIONS + 2) * math.log(2), "softmax": math.log(CORRUPTIONS + 2)}
SEEN, NEWCOMERS, RELATIONS = 20, 5, 3
on_one_thread = pytest.fixture(autouse=True)(one_thread)
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
every_pair = pytest.mark.parametrize(("encoder", "decoder"), ENCODER_DECODERS)
# Of fold-in the trained vectors alone are asked, without simulated newcomers: what is hidden hides nothing there.
every_encoder_through_edges = pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "foldin"])
FOLDED = {"answers_by_input": True, "newcomer_share": 0.0}  # all that fold-in can do


def config_of(encoder: str = "vn", decoder: str = "distmult", seed: int = 0, **settings: object) -> Config:
    settings |= FOLDED if encoder == "foldin" else {}
    fields = TrainingConfig.__dataclass_fields__
    training = {name: value for name, value in settings.items() if name in fields}
    model = {name: value for name, value in settings.items() if name not in fields}
    small = {"dim": 8, "layers": 2, "gamma": 3.0, **model}
    loop = {"batches": 6, "negatives": CORRUPTIONS, "lr": 0.02, **training}
    sections = (
        replace(PAPER_SETTINGS.model, encoder=encoder, decoder=decoder, **small),
        replace(PAPER_SETTINGS.training, **loop),
    )
    return replace(PAPER_SETTINGS, preset="made", seed=seed, model=sections[0], training=sections[1])


def random_dataset(seed: int = 0) -> tuple[InductiveDataset, VirtualNeighbors, VirtualNeighbors]:
    """Seen entities and newcomers, one of them linked to another, with what random rules conclude about either."""
    rng = np.random.default_rng(seed)
    ring = [(e, 0, (e + 1) % SEEN) for e in range(SEEN)]
    rows = [*random_rows(rng, SEEN, RELATIONS, 50), *ring]
    observed = graph_of(rows, SEEN + NEWCOMERS, RELATIONS)
    links = [(SEEN + k // 3, k % RELATIONS, int(rng.integers(SEEN))) for k in range(3 * NEWCOMERS)]
    auxiliary = Graph.build(observed.entities, observed.relations, TripleArray.of([*links, (SEEN, 2, SEEN + 1)]))
    tests = TripleArray.of([(SEEN + k, 1, int(rng.integers(SEEN))) for k in range(NEWCOMERS)])
    dataset = InductiveDataset("random", observed, auxiliary, TripleArray.empty(), tests)
    rules = random_rules(rng, SEEN, RELATIONS, 10)
    seen = virtual_neighbors(Grounder(rules, ANY), Overlay.of(observed), np.arange(SEEN, dtype=np.int32))
    return dataset, seen, virtual_neighbors(Grounder(rules, ANY), Overlay.of_dataset(dataset), dataset.newcomers)


DATASET, SEEN_VIRTUAL, NEW_VIRTUAL = random_dataset()
GRAPH = build_graph_tensors(DATASET.observed, SEEN, SEEN_VIRTUAL, CPU)
PLAIN = build_graph_tensors(DATASET.observed, SEEN, None, CPU)
assert len(SEEN_VIRTUAL) > 30 and len(NEW_VIRTUAL) > 10


def trained(config: Config, graph: GraphTensors = GRAPH, epochs: int = 2) -> Trainer:
    trainer = Trainer(config, graph, CPU)
    for number in range(epochs):
        trainer.epoch(number)
    return trainer


def along_of(trainer: Trainer, triples: Tensor) -> Tensor:
    return trainer.model.decoder.relation_vectors(triples[:, 1])


def same(first: Trainer, second: Trainer) -> bool:
    one, other = first.model.state_dict(), second.model.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one) and torch.equal(first.labels, second.labels)


@every_encoder
def test_the_same_seed_gives_the_same_weights_and_another_one_others(encoder):
    first = trained(config_of(encoder))
    torch.rand(7)  # what else is drawn in the process does not matter
    assert same(first, trained(config_of(encoder)))
    assert not same(first, trained(config_of(encoder, seed=1)))


@every_encoder
def test_a_run_goes_on_from_a_saved_epoch_as_if_it_had_never_stopped(encoder):
    config = config_of(encoder)
    stopped, file = trained(config, epochs=2), io.BytesIO()
    torch.save([stopped.model.state_dict(), stopped.optimiser.state_dict(), stopped.labels], file)
    resumed = Trainer(config, GRAPH, CPU)
    file.seek(0)
    model, optimiser, resumed.labels = torch.load(file, weights_only=True)
    resumed.model.load_state_dict(model)
    resumed.optimiser.load_state_dict(optimiser)
    reports = [resumed.epoch(number) for number in (2, 3)]
    uninterrupted = trained(config, epochs=3)
    assert uninterrupted.epoch(3) == reports[-1]
    assert same(uninterrupted, resumed)


@every_pair
def test_a_step_moves_every_parameter(encoder, decoder):
    trainer = trained(config_of(encoder, decoder, batches=1, dropout=0.0, newcomer_share=0.3), epochs=0)
    generator = torch.Generator().manual_seed(0)
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    everything = torch.arange(0, len(GRAPH.facts), 3), torch.arange(0, len(GRAPH.virtual), 2)
    losses = trainer._step(*everything, generator)
    assert bool(torch.isfinite(losses).all())
    for name, value in trainer.model.named_parameters():
        assert value.grad is not None and bool(torch.isfinite(value.grad).all()), name
        assert not torch.equal(value, before[name]), name


def test_soft_labels_are_refreshed_every_epoch_and_stay_between_0_and_1():
    trainer = trained(config_of(), epochs=0)
    assert set(trainer.labels.tolist()) == {0.5}
    seen = [trainer.labels.clone()]
    for number in range(2):
        report = trainer.epoch(number)
        seen.append(trainer.labels.clone())
        assert float(trainer.labels.min()) >= 0 and float(trainer.labels.max()) <= 1
        assert report.mean_label == pytest.approx(float(trainer.labels.mean()))
        assert report.virtual_loss > 0
    assert bool((seen[1] != seen[0]).all()) and bool((seen[2] != seen[1]).all())


@pytest.mark.parametrize("c", [0.0, 0.01, 5.0])
def test_a_label_is_the_truth_plus_what_the_groundings_add(c):
    trainer = trained(config_of("mean", dropout=0.0), epochs=1)
    states = trainer.model.encoder.states(GRAPH.edges(GRAPH.weights(trainer.labels)))
    which = torch.tensor([5, 0, 17, 3])
    trainer.config = replace(trainer.config, model=replace(trainer.config.model, soft_label_c=c))
    with torch.no_grad():
        grounds = GRAPH.grounds(which)
        scores = trainer.model.scores(states, torch.cat([GRAPH.virtual[which], grounds.premises]))
        trainer._virtual_loss(which, grounds, scores)
    labels = trainer.labels[which]
    assert not labels.requires_grad
    for place, label in zip(which.tolist(), labels.tolist(), strict=True):
        added = 0.0
        for row in range(int(SEEN_VIRTUAL.offsets[place]), int(SEEN_VIRTUAL.offsets[place + 1])):
            premises = torch.tensor([p for p in SEEN_VIRTUAL.premises[row].tolist() if p[1] >= 0])
            truths = trainer.model.truths(states, premises).detach()
            added += float(SEEN_VIRTUAL.grounding_strength[row]) * float(truths.prod())
        truth = float(trainer.model.truths(states, GRAPH.virtual[place : place + 1]).detach())
        assert label == pytest.approx(min(1.0, truth + c * added), abs=1e-5)


def test_hard_labels_stay_one_and_no_labels_use_no_virtual_triple():
    hard = trained(config_of(labels="hard"))
    assert set(hard.labels.tolist()) == {1.0}
    none = trained(config_of("mean", labels="none"))
    assert set(none.labels.tolist()) == {0.0}
    assert none.epoch(2).virtual_loss == 0.0
    without = trained(config_of("mean", labels="none"), PLAIN, epochs=3)
    weights = none.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in without.model.state_dict().items())
    assert not same(hard, trained(config_of()))


def test_implications_are_learned_from_facts_alone():
    with_virtual, without = (Trainer(config_of("lan"), graph, CPU).model.encoder for graph in (GRAPH, PLAIN))
    assert torch.equal(with_virtual.implied, without.implied)
    assert 0 < float(without.implied.mean()) < 1


def test_queries_are_the_facts_or_their_inverses():
    trainer = trained(config_of(negatives=50), epochs=0)
    facts = torch.arange(len(GRAPH.facts))
    triples, negatives = trainer._queries(facts, torch.Generator().manual_seed(0))
    turned = 0
    for (h, r, t), fact in zip(triples.tolist(), GRAPH.facts.tolist(), strict=True):
        turned += r >= RELATIONS
        assert ([h, r, t] if r < RELATIONS else [t, r - RELATIONS, h]) == fact
    assert 0.25 < turned / len(facts) < 0.75
    assert torch.equal(negatives.relations[negatives.group], triples[:, 1])
    assert sorted(set(triples[:, 1].tolist())) == negatives.relations.tolist()
    assert negatives.entities.shape == (len(negatives.relations), 50)
    assert set(negatives.entities.unique().tolist()) == set(range(SEEN))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_heads_is_asked_about_as_newcomers(share):
    trainer = trained(config_of(newcomer_share=share, dropout=0.0), epochs=0)
    triples = GRAPH.facts
    view = View(GRAPH.edges(GRAPH.weights(trainer.labels)))
    states = trainer.model.encoder.states(view.edges)
    simulated, asked, _, arriving = trainer._simulate_newcomers(view, triples, None, torch.Generator().manual_seed(0))
    again = asked[:, 0] >= SEEN
    assert arriving.tolist() == sorted(set(triples[again, 0].tolist()))
    assert (share - 0.25 < float(again.float().mean()) < share + 0.25) and bool(again.all()) == (share == 1.0)
    assert torch.equal(asked[:, 1:], triples[:, 1:]) and torch.equal(asked[~again], triples[~again])
    for layer, before in zip(simulated.layers, states.layers, strict=True):
        assert torch.equal(layer[:SEEN], before)
    for copy, entity in zip(asked[again, 0].tolist(), triples[again, 0].tolist(), strict=True):
        assert not simulated.layers[0][copy].any(), "a newcomer has no vector of its own"
        columns, offsets = simulated.edges.rows.columns, simulated.edges.rows.offsets
        assert torch.equal(columns[offsets[copy] : offsets[copy + 1]], columns[offsets[entity] : offsets[entity + 1]])


@pytest.mark.parametrize("fanout", [None, 3])
@pytest.mark.parametrize("heads", [0.0, 1.0])
def test_answers_and_their_corruptions_arrive_together(fanout, heads):
    config = config_of(newcomer_share=heads, newcomer_answers=0.5, dropout=0.0, fanout=fanout)
    trainer, batches = trained(config, epochs=0), 20
    triples, drawn = GRAPH.facts, torch.tensor([[3, 3, 4], [5, 4, 0]])
    negatives = Negatives(torch.tensor([0, 1]), drawn, triples[:, 1] % 2)
    view = View(GRAPH.edges(GRAPH.weights(trainer.labels)))
    together = 0
    for seed in range(batches):
        generator = torch.Generator().manual_seed(seed)
        states, asked, wrong, arriving = trainer._simulate_newcomers(view, triples, negatives, generator)
        newly = asked[:, 2] >= SEEN
        together += bool(newly.all())
        assert bool(newly.all()) == bool(newly.any()) == bool((wrong.entities >= SEEN).all())
        assert ((asked[:, 0] >= SEEN) == (heads == 1.0)).all() and torch.equal(asked[:, 1], triples[:, 1])
        who = torch.cat([torch.arange(SEEN), arriving])  # by place
        assert torch.equal(who[asked[:, ::2]], triples[:, ::2]) and torch.equal(who[wrong.entities], drawn)
        assert states.newcomers == len(arriving) == len(set(arriving.tolist()))
        assert not states.layers[0][SEEN:].any(), "newcomers have no vectors of their own"
        assert (wrong.group is negatives.group) and (wrong.relations is negatives.relations)
    assert 0.2 * batches < together < 0.8 * batches


def test_answers_that_arrive_are_learned_from():
    def loss(share: float) -> float:
        return trained(config_of(newcomer_answers=share, dropout=0.0, lr=1e-12), epochs=0).epoch(0).fact_loss

    assert loss(0.0) != loss(1.0)


def test_more_batches_than_facts_are_as_many_as_facts():
    graph = build_graph_tensors(graph_of([(0, 0, 1), (1, 1, 2)], 3, RELATIONS), 3, None, CPU)
    trainer = trained(config_of(batches=50), graph, epochs=0)
    batches = list(trainer._batches(torch.Generator().manual_seed(0)))
    assert sorted(facts.tolist() for facts, _ in batches) == [[0], [1]]
    assert math.isfinite(trainer.epoch(0).loss)


def test_every_triple_is_in_one_batch_of_an_epoch():
    trainer = trained(config_of(), epochs=0)
    facts, virtual = zip(*trainer._batches(torch.Generator().manual_seed(0)), strict=True)
    assert torch.cat(facts).sort().values.tolist() == list(range(len(GRAPH.facts)))
    assert torch.cat(virtual).sort().values.tolist() == list(range(len(GRAPH.virtual)))
    assert len(facts) == 6


def test_cross_entropy_sums_over_the_corruptions_of_a_fact():
    positive, negative = torch.tensor([0.0, 2.0]), torch.tensor([[0.0, -1.0], [3.0, 0.5]])
    true = sum(-math.log(1 / (1 + math.exp(-s))) for s in (0.0, 2.0)) / 2
    false = sum(-math.log(1 - 1 / (1 + math.exp(-s))) for s in (0.0, -1.0, 3.0, 0.5)) / 2
    assert float(cross_entropy(positive, negative)) == pytest.approx(true + false)


def test_softmax_cross_entropy_is_that_of_finding_the_true_one():
    positive, negative = torch.tensor([1.0, 2.0]), torch.tensor([[0.0, -1.0], [3.0, 0.5]])
    first = -math.log(math.e / (math.e + 1 + math.exp(-1)))
    second = -math.log(math.exp(2) / (math.exp(2) + math.exp(3) + math.exp(0.5)))
    assert float(softmax_cross_entropy(positive, negative)) == pytest.approx((first + second) / 2)


def test_a_model_is_built_as_the_settings_say():
    config = config_of(decoder="transe", layers=1, query_aware=False, residual=True).model
    model = build_model(config, SEEN, RELATIONS, seed=3)
    assert len(model.encoder.structure) == 1 and model.encoder.query is None and not model.encoder.query_aware
    assert model.decoder.gamma == 3.0
    again = build_model(config, SEEN, RELATIONS, seed=3).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    assert type(build_model(replace(config, encoder="lan"), SEEN, RELATIONS, 0).encoder) is ENCODERS["lan"]


# What must not be learned ---------------------------------------------------------------------------------------------


def pairs_at_random(count: int, hub: bool) -> GraphTensors:
    """Entities in random pairs by relation 0, all linked to one hub if asked, and a rule that repeats each pair."""
    order = np.random.default_rng(0).permutation(2 * count).tolist()
    rows = [(order[2 * k], 0, order[2 * k + 1]) for k in range(count)]
    entities = 2 * count + hub
    graph = graph_of(rows + [(e, 1, 2 * count) for e in range(2 * count) if hub], entities, RELATIONS)
    repeats = Rule(Kind.ONE, 2, 0, support=50, body_size=50, pca_body_size=50, head_size=50)
    rules = RuleSet.of([repeats], RELATIONS)
    virtual = virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), np.arange(entities, dtype=np.int32))
    assert len(virtual) == count
    return build_graph_tensors(graph, entities, virtual, CPU)


@every_encoder_through_edges
@pytest.mark.parametrize("decoder", ["distmult", "transe"])
@pytest.mark.parametrize("labels", ["none", "hard"])
@pytest.mark.parametrize("loss", CHANCE)
def test_an_edge_that_is_its_own_only_evidence_stays_at_chance(encoder, decoder, labels, loss):
    graph = pairs_at_random(30, hub=False)
    settings = {"newcomer_share": 1.0, "dropout": 0.0, "labels": labels, "virtual_weight": 0.0, "loss": loss}
    trainer = trained(config_of(encoder, decoder, **settings), graph, epochs=3)
    assert trainer.epoch(3).fact_loss == pytest.approx(CHANCE[loss], abs=1e-5)


@every_encoder_through_edges
def test_the_same_among_everyone(encoder):
    graph = pairs_at_random(30, hub=False)
    settings = {"newcomer_share": 1.0, "dropout": 0.0, "labels": "none", "answers_by_input": True, "loss": "softmax"}
    trainer = trained(config_of(encoder, **settings), graph, epochs=3)
    # A toss-up is one between the true one and everyone.
    assert trainer.epoch(3).fact_loss == pytest.approx(math.log(graph.num_entities + 1), abs=1e-5)


@pytest.mark.parametrize("encoder", ["foldin", "mean"])
@pytest.mark.parametrize("own_weight", [0.0, 1.0])
def test_negatives_stand_for_all(encoder, own_weight):
    """The mean loss over many draws is near that of comparing with everyone; where all can be drawn it is the same."""
    settings = {"answers_by_input": True, "loss": "softmax", "labels": "none", "dropout": 0.0, "own_weight": own_weight}

    def losses(negatives: int | None, count: int) -> list[float]:
        trainer = Trainer(config_of(encoder, softmax_negatives=negatives, lr=1e-12, **settings), GRAPH, CPU)
        return [trainer.epoch(number).loss for number in range(count)]

    everyone = losses(None, 40)
    assert losses(SEEN, 3) == everyone[:3]
    some = losses(SEEN // 2, 40)
    assert some != everyone and some == losses(SEEN // 2, 40)
    assert np.mean(some) == pytest.approx(np.mean(everyone), rel=0.03)


ROWS_ALONE = {
    "softmax_negatives": SEEN // 2,
    "optimiser": "adagrad",
    "grad_clip": 0.0,
    "dropout": 0.0,
    "answers_by_input": True,
}


@pytest.mark.parametrize("settings", [{}, {"own_weight": 1.0}, {"virtual_weight": 0.0, "n3": 0.1, "l2": 0.0}])
def test_moving_the_rows_of_a_batch_is_moving_the_table(settings):
    few, whole_table = (Trainer(config_of("foldin", **ROWS_ALONE, **settings), GRAPH, CPU) for _ in range(2))
    assert few.model.encoder.sparse_gradient
    whole_table.model.encoder.sparse_gradient = False
    for number in range(3):
        found, wanted = few.epoch(number), whole_table.epoch(number)
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        assert few.model.encoder.vectors.grad.is_sparse
    for one, other in zip(few.model.parameters(), whole_table.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "adam"},
        {"softmax_negatives": None},
        {"softmax_negatives": SEEN},
        {"grad_clip": 1.0},
        {"dropout": 0.1},
    ],
    ids=str,
)
def test_where_others_move_too_the_table_is_moved(settings):
    assert not Trainer(config_of("foldin", **{**ROWS_ALONE, **settings}), GRAPH, CPU).model.encoder.sparse_gradient
    assert not Trainer(config_of("mean", **{**ROWS_ALONE, **settings}), GRAPH, CPU).model.encoder.sparse_gradient


def test_vectors_that_are_looked_up_are_trained_without_a_look_at_edges():
    usual, blind = (Trainer(config_of("foldin"), GRAPH, CPU) for _ in range(2))
    blind._edgeless = View(GRAPH.edges(torch.zeros(len(GRAPH.facts) + len(GRAPH.virtual))))
    for trainer in (usual, blind):
        trainer.epoch(0)
    assert same(usual, blind)


@pytest.mark.parametrize("encoder", ["vn", "mean", "lan"])
@pytest.mark.parametrize("fanout", [None, 10_000])
def test_simulated_newcomers_are_answers_as_newcomers_are(encoder, fanout, monkeypatch):
    """The candidates of a batch: trained vectors, and of simulated newcomers what their edges make of them."""
    settings = {"newcomer_share": 1.0, "dropout": 0.0, "labels": "none", "answers_by_input": True, "fanout": fanout}
    trainer, seen = trained(config_of(encoder, **settings), epochs=1), []
    contrast = trainer.model.contrast_with_all

    def watched(states, asked, along, everyone, tails, negatives):
        copies = torch.arange(states.newcomers) + len(states.layers[0]) - states.newcomers
        seen.extend([everyone.detach().clone(), trainer.model.encoder.plain(states, copies).detach()])
        return contrast(states, asked, along, everyone, tails, negatives)

    monkeypatch.setattr(trainer.model, "contrast_with_all", watched)
    facts = torch.arange(0, len(GRAPH.facts), 9)
    triples, _ = trainer._queries(facts, torch.Generator().manual_seed(5))
    vectors = trainer.model.encoder.vectors.detach().clone()
    trainer._step(facts, facts[:0], torch.Generator().manual_seed(5))
    (everyone, by_edges), new = seen, sorted(set(triples[:, 0].tolist()))
    old = [entity for entity in range(SEEN) if entity not in new]
    assert old and torch.equal(everyone[old], vectors[old])
    torch.testing.assert_close(everyone[new], by_edges)
    assert not torch.allclose(everyone[new], vectors[new])


def test_facts_between_the_same_two_are_found_whichever_way_they_point():
    facts = GRAPH.facts.tolist()
    for chosen in ([0], [3, 5], list(range(0, len(facts), 7))):
        pairs = {frozenset((facts[fact][0], facts[fact][2])) for fact in chosen}
        expected = {number for number, (head, _, tail) in enumerate(facts) if frozenset((head, tail)) in pairs}
        assert set(GRAPH.between(torch.tensor(chosen)).tolist()) == expected
    assert GRAPH.between(torch.tensor([], dtype=torch.int64)).tolist() == []


def test_a_predicted_fact_is_hidden_with_its_twins_where_that_is_asked_for():
    facts, nothing = GRAPH.facts.tolist(), torch.tensor([], dtype=torch.int64)
    twins = [n for n, (h, _, t) in enumerate(facts) for m, (a, _, b) in enumerate(facts) if n != m and {h, t} == {a, b}]
    assert twins, "the graph has pairs with two facts"
    batch = torch.tensor(twins[:1])
    for hides in (False, True):
        trainer = trained(config_of(hide_pairs=hides), epochs=0)
        hidden = torch.nonzero(trainer._weights_without(batch, nothing)[: len(facts)] == 0)[:, 0]
        assert torch.equal(hidden, GRAPH.between(batch).sort().values if hides else batch)


@every_encoder_through_edges
@pytest.mark.parametrize("decoder", ["distmult", "transe"])
def test_a_hidden_fact_tells_nothing_of_who_belongs_to_whom(encoder, decoder):
    """All are linked to one hub, so training goes on; heads without their pair are alike and rank all tails alike."""
    graph, size = pairs_at_random(30, hub=True), 10
    trainer = trained(config_of(encoder, decoder, newcomer_share=1.0, dropout=0.0, labels="hard"), graph, epochs=6)
    facts = torch.nonzero(graph.facts[:, 1] == 0)[:, 0]
    for batch in facts.split(size):
        triples = graph.facts[batch]
        tails = triples[:, 2]
        with torch.no_grad():
            view = View(graph.edges(trainer._weights_without(batch, batch[:0])))
            states, asked, _, _ = trainer._simulate_newcomers(view, triples, None, torch.Generator().manual_seed(0))
            assert (asked[:, 0] >= graph.num_entities).all()
            negatives = Negatives(asked[:1, 1], tails[None], torch.zeros(size, dtype=torch.int64))
            _, scores, _ = trainer.model.contrast(states, asked, along_of(trainer, asked), negatives, asked[:0])
        torch.testing.assert_close(scores, scores[:1].expand_as(scores))


@every_encoder_through_edges
def test_a_step_sees_nothing_of_what_it_predicts(encoder, monkeypatch):
    trainer, seen = trained(config_of(encoder), epochs=0), []
    states = trainer.model.encoder.states
    monkeypatch.setattr(
        trainer.model.encoder, "states", lambda edges, nodes: seen.append(edges) or states(edges, nodes)
    )
    for facts, virtual in trainer._batches(torch.Generator().manual_seed(0)):
        trainer._step(facts, virtual, torch.Generator().manual_seed(1))
        visible = torch.ones(len(GRAPH.facts)).index_fill_(0, facts, 0.0)
        resting = torch.nonzero(GRAPH.standing(visible) == 0)[:, 0]
        gone = torch.isin(GRAPH.sources, torch.cat([facts, len(GRAPH.facts) + torch.cat([virtual, resting])]))
        assert torch.equal(seen[-1].weights == 0, gone)


def test_every_epoch_draws_anew():
    trainer, drawn = trained(config_of(), epochs=0), []
    trainer._step = lambda facts, virtual, generator: drawn.append(facts.tolist()) or torch.zeros(3)
    for number in (0, 1, 0):
        trainer.epoch(number)
    assert drawn[:6] == drawn[12:] != drawn[6:12]


def shuffled_dataset() -> InductiveDataset:
    """Everyone has as many facts of each relation as anyone else, with tails at random."""
    rng, seen, new = np.random.default_rng(0), 60, 60

    def at_random(first: int, count: int, times: int) -> list[tuple[int, int, int]]:
        heads = np.repeat(np.arange(first, first + count), times)
        tails = np.concatenate([rng.permutation(seen)[:count] for _ in range(times)])
        relations = np.tile(np.arange(times) % RELATIONS, count)
        return [(int(h), int(r), int(t)) for h, r, t in zip(heads, relations, tails, strict=True)]

    observed = graph_of(at_random(0, seen, 6), seen + new, RELATIONS)
    auxiliary = Graph.build(observed.entities, observed.relations, TripleArray.of(at_random(seen, new, 4)))
    return InductiveDataset(
        "shuffled", observed, auxiliary, TripleArray.empty(), TripleArray.of(at_random(seen, new, 5))
    )


@pytest.mark.parametrize(("encoder", "decoder"), [pair for pair in ENCODER_DECODERS if pair[1] != "complex"])
def test_of_facts_at_random_nothing_is_known_about_newcomers(encoder, decoder):
    dataset = shuffled_dataset()
    graph = build_graph_tensors(dataset.observed, 60, None, CPU)
    trainer = trained(config_of(encoder, decoder, labels="none"), graph, epochs=6)
    scorer = scorer_of(trainer, None, "none", dataset=dataset)
    # 300 ranks at random have a mean whose standard deviation is 0.033 on this scale.
    assert abs(evaluate(dataset, scorer, candidates="seen").metrics()["amri"]) < 0.12
    asked = torch.tensor(dataset.test.rows, dtype=torch.int64)
    drawn = torch.randint(60, (len(asked), CORRUPTIONS), generator=torch.Generator().manual_seed(0))
    negatives = Negatives(asked[:, 1], drawn, torch.arange(len(asked)))  # each its own: what is shared errs together
    with torch.no_grad():
        states = whole_states(trainer.model, graph, trainer.labels, dataset, None, "none")
        positive, negative, _ = trainer.model.contrast(states, asked, along_of(trainer, asked), negatives, asked[:0])
        # Without the newcomer itself, which training has taught to be no answer.
        assert float(softmax_cross_entropy(positive, negative[:, :-1])) > math.log(CORRUPTIONS + 1) - 0.05


# What must be learned -------------------------------------------------------------------------------------------------


def test_training_on_the_sample_graph_places_newcomers_better():
    dataset = load_dataset("sample")
    seen = int(dataset.is_seen.sum())
    graph = build_graph_tensors(dataset.observed, seen, None, CPU)
    config = config_of("mean", "transe", dim=32, gamma=4.0, dropout=0.0, labels="none", batches=20, negatives=16)
    trainer = Trainer(config, graph, CPU)

    def mrr() -> float:
        scorer = scorer_of(trainer, None, "none", dataset=dataset)
        return evaluate(dataset, scorer).metrics()["mrr"]

    untrained = mrr()
    losses = [trainer.epoch(number).fact_loss for number in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.6 * losses[0]
    assert untrained < 0.02 and mrr() > 0.1


# A trained model at work ----------------------------------------------------------------------------------------------


def scorer_of(
    trainer: Trainer,
    virtual: VirtualNeighbors | None = NEW_VIRTUAL,
    labels: str = "soft",
    c: float = 0.01,
    constrained: bool = False,
    dataset: InductiveDataset = DATASET,
) -> SnapshotScorer:
    """The trainer's model, asked with the newcomers of a data set."""
    settings = replace(
        trainer.config.model, labels=labels, soft_label_c=c, constrained=constrained, ensemble=False, propagation=False
    )
    config = replace(trainer.config, model=settings, rules=replace(trainer.config.rules, paths=False))
    parts = trainer.model, trainer.graph, trainer.labels
    model = TrainedModel(config, dataset.observed, RuleSet.empty(len(dataset.relations)), *parts)
    engine = InferenceEngine(model, StoredNewcomers(dataset.auxiliary.triples, virtual), threads=1)
    return SnapshotScorer(engine, engine.initial)


def states_of(trainer: Trainer, virtual: VirtualNeighbors | None = NEW_VIRTUAL, labels: str = "soft") -> States:
    """Everyone in one graph."""
    return whole_states(trainer.model.eval(), trainer.graph, trainer.labels, DATASET, virtual, labels)


def every_query() -> tuple[np.ndarray, np.ndarray]:
    entities, relations = np.meshgrid(np.arange(SEEN + NEWCOMERS), np.arange(2 * RELATIONS), indexing="ij")
    return entities.ravel().astype(np.int32), relations.ravel().astype(np.int32)


@every_pair
def test_scores_of_a_query_are_those_of_its_triples_one_by_one(encoder, decoder):
    trainer = trained(config_of(encoder, decoder), epochs=1)
    scorer, states = scorer_of(trainer), states_of(trainer)
    entities, relations = every_query()
    scores = scorer.scores(entities, relations)
    assert scores.shape == (len(entities), SEEN + NEWCOMERS) and scores.dtype == np.float32
    for query in (0, 31, 64, len(entities) - 1):
        for tail in (0, 7, SEEN, SEEN + NEWCOMERS - 1):
            triple = torch.tensor([[entities[query], relations[query], tail]], dtype=torch.int64)
            one = float(trainer.model.scores(states, triple).detach())
            assert scores[query, tail] == pytest.approx(one, abs=1e-4)


@every_encoder
def test_candidates_are_embedded_as_the_inverse_relation_asks(encoder):
    trainer = trained(config_of(encoder, "complex"), epochs=1)
    scorer, states, everyone = scorer_of(trainer), states_of(trainer), torch.arange(SEEN + NEWCOMERS)
    for relation, inverse in ((1, 1 + RELATIONS), (RELATIONS + 2, 2)):
        candidates = trainer.model.encoder.embed(states, everyone, torch.full_like(everyone, inverse))
        asking = trainer.model.encoder.embed(states, torch.tensor([SEEN]), torch.tensor([relation]))
        decoder = trainer.model.decoder
        query = decoder.query_vector(asking, decoder.relation_vectors(torch.tensor([relation])))
        expected = decoder.fit_candidates(query, candidates).detach().numpy()
        found = scorer.scores(np.array([SEEN], dtype=np.int32), np.array([relation], dtype=np.int32))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@every_encoder
def test_who_else_is_asked_about_does_not_matter(encoder):
    scorer = scorer_of(trained(config_of(encoder), epochs=1))
    entities, relations = every_query()
    together = scorer.scores(entities, relations)
    order = np.random.default_rng(0).permutation(len(entities))
    assert np.array_equal(scorer.scores(entities[order], relations[order]), together[order])
    for query in (3, 77, len(entities) - 1):
        alone = scorer.scores(entities[query : query + 1], relations[query : query + 1])
        assert np.array_equal(alone[0], together[query])
    assert scorer.scores(entities[:0], relations[:0]).shape == (0, SEEN + NEWCOMERS)


@pytest.mark.parametrize("encoder", ["mean", "lstm"])
def test_everyone_is_embedded_some_at_a_time(encoder, monkeypatch):
    trainer, asked, sizes = trained(config_of(encoder), epochs=1), every_query(), []
    together = scorer_of(trainer, None, "none").scores(*asked)
    monkeypatch.setattr("newcomer.models.embedding.newcomers.AT_ONCE", 7)
    scorer = scorer_of(trainer, None, "none")
    embed = trainer.model.encoder.embed

    def counted(states, entities, queries):
        sizes.append(len(entities))
        return embed(states, entities, queries)

    with monkeypatch.context() as patched:
        patched.setattr(trainer.model.encoder, "embed", counted)
        seen, newcomers = scorer.engine.embedding._candidates(scorer.snapshot, 0)
    assert (len(seen), [len(one) for one in newcomers]) == (SEEN, [NEWCOMERS])
    assert max(sizes) == 7 and sum(sizes) == SEEN + NEWCOMERS
    np.testing.assert_allclose(scorer.scores(*asked), together, rtol=1e-4, atol=1e-5)


@every_encoder
def test_seen_entities_are_embedded_as_if_nobody_had_arrived(encoder):
    trainer = trained(config_of(encoder), epochs=1)
    scorer = scorer_of(trainer)
    with torch.no_grad():
        alone = trainer.model.encoder.states(GRAPH.edges(GRAPH.weights(trainer.labels)))
        for entity in range(SEEN):
            asked = torch.tensor([entity]), torch.tensor([entity % (2 * RELATIONS)])
            wanted = trainer.model.encoder.embed(alone, *asked)
            found = scorer.engine.embedding.vector(scorer.snapshot, entity, entity % (2 * RELATIONS))
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        everyone = torch.arange(SEEN)
        for query in range(2 * RELATIONS):
            found = scorer.engine.encoder.everyone(query)
            if trainer.model.answers_by_input:
                assert torch.equal(found, alone.layers[0])
            else:
                wanted = trainer.model.encoder.embed(alone, everyone, torch.full_like(everyone, query))
                assert torch.equal(found, wanted)


@pytest.mark.parametrize("encoder", [name for name, kind in ENCODERS.items() if not kind.uses_virtual_edges])
def test_without_virtual_edges_answers_are_as_if_rules_inferred_nothing(encoder):
    trainer = trained(config_of(encoder), epochs=1)
    queries = every_query()
    without = scorer_of(trainer, None).scores(*queries)
    for mode in ("soft", "hard"):
        assert np.array_equal(scorer_of(trainer, NEW_VIRTUAL, mode).scores(*queries), without)


@pytest.mark.parametrize("encoder", [name for name, kind in ENCODERS.items() if kind.uses_virtual_edges])
def test_what_newcomers_virtual_triples_weigh_follows_the_label_mode(encoder):
    trainer = trained(config_of(encoder), epochs=1)
    queries = np.array([SEEN, SEEN + 2], dtype=np.int32), np.array([0, 4], dtype=np.int32)
    without = scorer_of(trainer, None).scores(*queries)
    assert np.array_equal(scorer_of(trainer, NEW_VIRTUAL, "none").scores(*queries), without)
    soft, hard = (scorer_of(trainer, NEW_VIRTUAL, mode) for mode in ("soft", "hard"))
    assert not np.allclose(soft.scores(*queries), without)
    assert not np.allclose(soft.scores(*queries), hard.scores(*queries))
    softly, hardly = (one.snapshot.members[0].encoded.states.edges.weights for one in (soft, hard))
    assert bool(((softly > 0) & (softly < 1)).any()) and float(softly.max()) <= 1.0
    assert set(hardly.tolist()) <= {0.0, 1.0}


def test_a_data_set_without_newcomers_is_scored_over_its_observed_graph():
    graph = graph_of([tuple(row) for row in DATASET.observed.triples.rows.tolist()], SEEN, RELATIONS)
    nothing = Graph.build(graph.entities, graph.relations, TripleArray.empty())
    dataset = InductiveDataset("seen", graph, nothing, TripleArray.empty(), TripleArray.of([(0, 0, 1)]))
    trainer = trained(config_of(labels="none"), PLAIN, epochs=1)
    scorer = scorer_of(trainer, None, "none", dataset=dataset)
    assert scorer.scores(np.array([3], dtype=np.int32), np.array([1], dtype=np.int32)).shape == (1, SEEN)
    assert not trainer.model.training
    trainer.epoch(1)
    assert trainer.model.training


# What rules infer is scored by its label ------------------------------------------------------------------------------


def constrained_of(trainer: Trainer, labels: str = "soft", c: float = 0.01) -> SnapshotScorer:
    return scorer_of(trainer, NEW_VIRTUAL, labels, c, constrained=True)


def label_of(trainer: Trainer, states: States, head: int, relation: int, tail: int, c: float) -> float | None:
    """The unclipped label of a triple in plain relations by hand; None where no rule infers it."""
    for virtual in (SEEN_VIRTUAL, NEW_VIRTUAL):
        for row, triple in enumerate(virtual.triples.rows.tolist()):
            if triple == [head, relation, tail]:
                added = 0.0
                for place in range(int(virtual.offsets[row]), int(virtual.offsets[row + 1])):
                    premises = torch.tensor([p for p in virtual.premises[place].tolist() if p[1] >= 0])
                    truths = trainer.model.truths(states, premises).detach()
                    added += float(virtual.grounding_strength[place]) * float(truths.prod())
                truth = trainer.model.truths(states, torch.tensor([triple])).detach()
                return float(truth) + c * added
    return None


@pytest.mark.parametrize("c", [0.01, 3.0])
def test_predictions_that_rules_infer_have_the_score_of_their_label(c):
    trainer = trained(config_of("mean"), epochs=1)
    bound = constrained_of(trainer, c=c)
    plain, states = (
        scorer_of(trainer, c=c),
        whole_states(trainer.model, GRAPH, trainer.labels, DATASET, NEW_VIRTUAL, c=c),
    )
    entities, relations = every_query()
    before, after = plain.scores(entities, relations), bound.scores(entities, relations)
    lifted_ones = certain = 0
    for query, (entity, relation) in enumerate(zip(entities.tolist(), relations.tolist(), strict=True)):
        for tail in range(SEEN + NEWCOMERS):
            triple = (entity, relation, tail) if relation < RELATIONS else (tail, relation - RELATIONS, entity)
            label = label_of(trainer, states, *triple, c)
            if label is None:
                assert after[query, tail] == pytest.approx(before[query, tail], abs=1e-3)
            elif label < 0.999:
                lifted_ones += 1
                assert 1 / (1 + math.exp(-after[query, tail])) == pytest.approx(label, abs=1e-4)
            elif label > 1:
                certain += 1
                assert after[query, tail] >= before[query].max() + 1
    assert lifted_ones > 20 and (c == 0.01 or certain > 0)


def test_what_rules_make_certain_is_ordered_by_how_far_they_go_on():
    scores = torch.tensor([0.0, 0.0, 2.0, -40.0, 40.0])
    added = torch.tensor([0.7, 0.9, 0.0, 0.25, 0.5])
    found = lifted(scores, added, torch.full((5,), 5.0))
    assert float(found[1]) > float(found[0]) > 6.0  # 0.5 + 0.9 and 0.5 + 0.7 both exceed one
    assert float(found[2]) == pytest.approx(2.0)
    assert float(found[3]) == pytest.approx(math.log(0.25 / 0.75), abs=1e-5)
    assert float(found[4]) > 40.0


def test_hard_labels_put_what_rules_infer_first():
    trainer = trained(config_of(labels="hard"), epochs=1)
    bound = constrained_of(trainer, "hard")
    entities, relations = every_query()
    scores = bound.scores(entities, relations)
    for head, relation, tail in NEW_VIRTUAL.triples.rows.tolist()[:10]:
        row = scores[head * 2 * RELATIONS + relation]
        triples = [*NEW_VIRTUAL.triples.rows.tolist(), *SEEN_VIRTUAL.triples.rows.tolist()]
        inferred = {t for h, r, t in triples if (h, r) == (head, relation)}
        assert row[tail] > max(row[other] for other in range(SEEN + NEWCOMERS) if other not in inferred)


def test_without_labels_nothing_is_constrained():
    trainer = trained(config_of(labels="none"), epochs=1)
    queries = every_query()
    free = scorer_of(trainer, NEW_VIRTUAL, "none")
    assert np.array_equal(constrained_of(trainer, "none").scores(*queries), free.scores(*queries))


@every_encoder
def test_single_triples_have_the_scores_of_queries(encoder):
    trainer = trained(config_of(encoder), epochs=1)
    for scorer in (scorer_of(trainer), constrained_of(trainer)):
        entities, relations = every_query()
        rows = scorer.scores(entities, relations)
        tails = (entities * 7 + relations) % (SEEN + NEWCOMERS)
        found = scorer.triple_scores(entities, relations, tails)
        expected = rows[np.arange(len(entities)), tails]
        certain = expected > rows.max(axis=1) - 1e-6
        np.testing.assert_allclose(found[~certain], expected[~certain], rtol=1e-3, atol=1e-3)
    assert scorer.triple_scores(entities[:0], relations[:0], tails[:0]).shape == (0,)
