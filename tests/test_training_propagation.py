"""Training propagation: what is masked meanwhile, its loss, what is learned; a fit that trains it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from conftest import complaint, make_dataset
from newcomer.graph import InductiveDataset, Overlay
from newcomer.models.propagation import gpu
from newcomer.models.propagation import network as propagation_network
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.scorer import PropagationScorer
from newcomer.models.serialisation import PROPAGATION, load_model, part_weights, propagation_of
from newcomer.training import propagation as training
from newcomer.training.checkpoint import CHECKPOINT, began_with_propagation
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.propagation import (
    Batch,
    PropagationTrainer,
    carried_over,
    frontier_cross_entropy,
)
from newcomer.training.runtime import memory_in_words, settled
from nn_oracle import one_thread
from propagation_oracle import drawn, edges_of, network_of
from training_world import FOLDED, StopAfter, Stopped, settings, weights, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
DATASET = world()
PROPAGATING = (
    *(*FOLDED, "model.ensemble=yes", "model.propagation=yes"),
    *("training.propagation_steps=6", "training.epochs=2"),
)


def trainer_of(
    dataset: InductiveDataset = DATASET,
    steps: int = 40,
    seed: int = 0,
    device: torch.device = CPU,
    sparse: bool | None = None,
) -> PropagationTrainer:
    return PropagationTrainer(dataset.observed, int(dataset.is_seen.sum()), steps, seed, device, sparse)


def losses_of(trainer: PropagationTrainer, *numbers: int) -> list[float]:
    return [float(trainer.step(number)) for number in numbers]


class Watched(PropagationTrainer):
    """Keeps its last batch."""

    def _loss(self, batch: Batch) -> torch.Tensor:
        self.last = batch
        return super()._loss(batch)

    @property
    def last_queries(self) -> list[tuple[int, int, int]]:
        columns = self.last.sources, self.last.queries, self.last.answers
        return list(zip(*(one.tolist() for one in columns), strict=True))


def pairs_between(rows: list[tuple[int, int]]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in rows}


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_no_fact_answers_for_itself_and_every_other_time_no_parallel_one_does(number, monkeypatch):
    monkeypatch.setattr(training, "MAX_SHARE", 8 / 65)
    facts = [*[(f"a{i}", "r", f"b{i % 5}") for i in range(20)], *[(f"a{i}", "s", f"b{i % 5}") for i in range(20)]]
    others = [(f"a{i}", "t", f"a{(i + 1) % 20}") for i in range(20)]
    dataset = make_dataset(
        train=[*facts, *others, *[(f"b{i}", "t", f"b{(i + 1) % 5}") for i in range(5)]], aux=[], test=[]
    )
    trainer = Watched(dataset.observed, len(dataset.entities), 40, 0, CPU)
    trainer.step(number)
    assert len(trainer.last_queries) == 8
    shown, edges = trainer.last.weights > 0, trainer.edges
    visible = set(
        zip(*(part[shown].tolist() for part in (edges.rows.row_ids, edges.relations, edges.rows.columns)), strict=True)
    )
    size = trainer.graph.num_relations
    for entity, relation, answer in trainer.last_queries:
        assert (entity, relation, answer) not in visible
        assert (answer, (relation + size) % (2 * size), entity) not in visible
    joined = pairs_between([(row, column) for row, _, column in visible])
    parallel = [frozenset((entity, answer)) in joined for entity, _, answer in trainer.last_queries]
    assert any(parallel) if number % 2 == 0 else not any(parallel)
    assert len(visible) >= 2 * (len(facts) - 2 * 8)  # and all others are
    # What is masked twice over, as one of two facts that join the same pair, is masked once.
    assert torch.equal(trainer.last.degrees, edges.with_weights(trainer.last.weights).degrees)


def test_an_answer_without_any_edge_left_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(training, "MAX_SHARE", 1.0)
    alone = [(f"x{i}", "r", f"y{i}") for i in range(6)]
    dataset = make_dataset(train=[*alone, ("y0", "s", "y1")], aux=[], test=[])
    trainer = Watched(dataset.observed, len(dataset.entities), 5, 0, CPU)
    before = part_weights(PROPAGATION, trainer.network)["propagation.queries"].copy()
    assert trainer.step(0) == 0.0  # all facts are masked, so no entity has any
    assert np.array_equal(part_weights(PROPAGATION, trainer.network)["propagation.queries"], before)
    trainer.batch_size = 1
    joined = set()
    for number in range(0, 14, 2):
        if trainer.step(number):
            joined |= {(answer,) for _, _, answer in trainer.last_queries}
    assert joined <= {(dataset.entities.id(name),) for name in ("y0", "y1", "x0", "x1")} and joined


def test_another_true_answer_is_masked(monkeypatch):
    dataset = make_dataset(train=[("x", "r", "y"), ("x", "r", "z"), ("x", "s", "u")], aux=[], test=[])
    trainer, entity = trainer_of(dataset, sparse=False), dataset.entities.id
    scores = torch.zeros(1, len(dataset.entities))
    scores[0, entity("z")] = 9.0
    monkeypatch.setattr(trainer.network, "forward", lambda *_: scores)
    losses = []
    for relation, answer in (("r", "y"), ("s", "u")):
        asked = torch.tensor([[entity("x"), dataset.relations.id(relation), entity(answer)]])
        masked = torch.empty(0, dtype=torch.int64)
        (batch,) = trainer._batches(asked, masked, trainer._degrees_without(masked))
        losses.append(float(trainer._loss(batch)))
    assert losses[0] == pytest.approx(np.log(3))  # among x, y and u
    assert losses[1] == pytest.approx(np.log(3 + np.exp(9)), rel=1e-5)


def chained() -> InductiveDataset:
    """Who works at a firm of a town pays there: a path of two edges, beside others that mean nothing."""
    rng = np.random.default_rng(0)
    works = [(f"p{i:02}", "works", f"firm{i % 7}") for i in range(42)]
    pays = [(f"p{i:02}", "pays", f"town{i % 7}") for i in range(42)]
    lies = [(f"firm{i}", "lies", f"town{i}") for i in range(7)]
    likes = [(f"p{i:02}", "likes", f"p{j:02}") for i, j in rng.integers(42, size=(40, 2)) if i != j]
    new = [(f"q{i}", "works", f"firm{i}") for i in range(7)]
    return make_dataset(train=[*works, *pays, *lies, *likes], aux=new, test=[("q0", "pays", "town0")])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_path_of_two_edges_is_learned_and_serves_newcomers(sparse):
    dataset = chained()
    trainer = trainer_of(dataset, steps=150, sparse=sparse)
    losses = losses_of(trainer, *range(trainer.steps))
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    overlay, entity = Overlay.of_dataset(dataset), dataset.entities.id
    scorer, pays = PropagationScorer(trainer.network, overlay.base, CPU), dataset.relations.id("pays")
    for number in range(7):
        found = scorer.scores(overlay, np.array([entity(f"q{number}")]), np.array([pays]))[0]
        assert found.argmax() == entity(f"town{number}")
        np.testing.assert_allclose(np.exp(found[dataset.is_seen]).sum(), 1.0, rtol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_steps_in_one_go_and_with_a_break_give_the_same_bits(sparse):
    whole, first, second = (trainer_of(sparse=sparse) for _ in range(3))
    losses = losses_of(whole, *range(6))
    assert losses[:3] == losses_of(first, 0, 1, 2)
    second.restore(first.tensors())
    assert losses[3:] == losses_of(second, 3, 4, 5)
    kept, wanted = (part_weights(PROPAGATION, one.network) for one in (second, whole))
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)
    assert losses_of(trainer_of(seed=1), 0) != losses[:1]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_batch_in_parts_has_the_same_gradients(monkeypatch, sparse):
    whole, parts = trainer_of(sparse=sparse), trainer_of(sparse=sparse)
    (loss,) = losses_of(whole, 0)
    monkeypatch.setitem(propagation_network.TABLE_SIZE, "cpu", 1)
    monkeypatch.setattr(training, "SPARSE_TABLE_SIZE", 1)
    assert parts._queries_together == 1
    assert whole.batch_size > 1 and losses_of(parts, 0) == pytest.approx([loss], rel=1e-5)
    for one, other in zip(parts.network.parameters(), whole.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_every_pass_comes_to_every_fact_once(monkeypatch):
    monkeypatch.setattr(training, "MAX_SHARE", 0.3)
    trainer = trainer_of(steps=10_000)
    per_pass = -(-len(trainer.graph.facts) // trainer.batch_size)
    assert 3 < per_pass < len(trainer.graph.facts)
    for start in (0, per_pass):
        facts = torch.cat([trainer._facts(number) for number in range(start, start + per_pass)])
        assert facts.sort().values.tolist() == list(range(len(trainer.graph.facts)))
    assert trainer.steps == -(-training.PASSES * len(trainer.graph.facts) // trainer.batch_size)


def test_what_was_learned_serves_another_graph_by_the_names_of_relations():
    learned, fresh = (Propagation(3, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    learned.known_relations[:] = 1.0
    before = make_dataset(train=[("a", "r", "b"), ("a", "s", "b"), ("a", "u", "b")], aux=[], test=[]).relations
    after = make_dataset(train=[("a", "new", "b"), ("a", "u", "b"), ("a", "r", "b")], aux=[], test=[]).relations
    found = carried_over(learned, before, fresh, after)
    assert "known_relations" not in found
    for name in ("r", "u"):
        for turned in (0, 3):
            old, new = before.id(name) + turned, after.id(name) + turned
            assert torch.equal(found["queries"][new], learned.queries[old])
            assert torch.equal(found["scales"][:, new], learned.scales[:, old])
    unknown = after.id("new")
    assert torch.equal(found["queries"][unknown + 3], fresh.queries[unknown + 3])
    assert torch.equal(found["scales"][:, unknown], fresh.scales[:, unknown])
    assert torch.equal(found["first.weight"], learned.first.weight)


def test_what_begins_with_what_was_learned_before_takes_fewer_and_ever_smaller_steps():
    trainer, other = trainer_of(steps=40), trainer_of(seed=1)
    trainer.begin_with(carried_over(other.network, DATASET.relations, trainer.network, DATASET.relations))
    assert torch.equal(trainer.network.queries, other.network.queries) and trainer.network.is_sparse
    assert trainer.steps == round(PropagationTrainer.WARM_STEPS * 40)
    rates = []
    for number in range(trainer.steps):
        trainer.step(number)
        rates.append(trainer.optimiser.param_groups[0]["lr"])
    assert rates[0] == PropagationTrainer.RATE and all(later < one for one, later in pairwise(rates))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("table_size", [1 << 29, 10 * 32 * propagation_network.KEPT * int(DATASET.is_seen.sum()), 1])
def test_a_gpu_learns_what_a_cpu_does_and_twice_the_same(monkeypatch, table_size):
    monkeypatch.setattr(training, "MAX_SHARE", 0.5)
    monkeypatch.setitem(propagation_network.TABLE_SIZE, "cuda", table_size)
    wanted = losses_of(trainer_of(sparse=False), *range(20))
    first, second = (trainer_of(device=torch.device("cuda")) for _ in range(2))
    found = losses_of(first, *range(20))
    assert found == losses_of(second, *range(20))
    assert found == pytest.approx(wanted, rel=0.05)
    kept, again = (part_weights(PROPAGATION, one.network) for one in (first, second))
    assert all(np.array_equal(kept[name], again[name]) for name in kept)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_a_frontier_is_that_among_everyone(seed):
    net, entities = network_of(seed, sparse=True), 14
    edges, rng = edges_of(drawn(seed), entities), np.random.default_rng(seed)
    asked = torch.tensor([0, 5, 13, 4]), torch.tensor([0, 2, 1, 5])  # 13 has no edges
    answers = torch.tensor([1, 12, 3, 4])
    mask = torch.from_numpy(np.where(rng.random((4, entities)) < 0.4, -np.inf, 0.0)).float()
    mask[torch.arange(4), answers] = 0.0
    frontier, scores, others = net.frontier_scores([edges], *asked, entities)
    reached = torch.zeros(4, entities, dtype=torch.bool)
    reached[torch.from_numpy(frontier.queries), torch.from_numpy(frontier.entities)] = True
    answers[0] = 0
    mask[0] = torch.where(reached[0], 0.0, -torch.inf)  # no entity is left beside the frontier, so there is one more
    extra = torch.where((reached | torch.isinf(mask)).all(dim=1), others, -torch.inf)
    assert torch.isfinite(extra[0]) and not torch.isfinite(extra).all()
    table = torch.cat([net([edges], *asked, entities) + mask, extra[:, None]], dim=1)
    wanted = torch.nn.functional.cross_entropy(table, answers, reduction="none")
    found = frontier_cross_entropy(frontier, scores, others, answers, mask)
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad(one.sum(), net.first.weight, retain_graph=True)[0] for one in (found, wanted)]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_what_trains_on_a_cpu_is_sparse_and_stays_so():
    trainer = trainer_of(steps=5)
    for number in range(trainer.steps):
        trainer.step(number)  # a fresh one gives entities beside the frontier the same scores in any case
    assert trainer.network.is_sparse
    stored = part_weights(PROPAGATION, trainer.network)
    again = propagation_of(stored, len(DATASET.relations))
    dense = propagation_of({**stored, "propagation.sparse": np.zeros(())}, len(DATASET.relations))
    assert again is not None and again.is_sparse and dense is not None and not dense.is_sparse
    edges = trainer.edges
    asked = [edges], torch.tensor([0]), torch.tensor([0]), edges.rows.num_rows
    assert not torch.allclose(dense(*asked), again(*asked))


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_do_not_depend_on_threads(sparse):
    rng = np.random.default_rng(0)
    columns = rng.integers(4_000, size=12_000), rng.integers(5, size=12_000), rng.integers(4_000, size=12_000)
    rows = sorted({(f"e{h}", f"r{k}", f"e{t}") for h, k, t in zip(*columns, strict=True)})
    dataset, found = make_dataset(train=rows, aux=[], test=[]), []
    trainer = trainer_of(dataset, 5, sparse=sparse)
    overlay = Overlay.of(dataset.observed)
    scorer = PropagationScorer(trainer.network, overlay.base, CPU)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(scorer.scores(overlay, np.full(5, 7, dtype=np.int32), np.arange(5, dtype=np.int32)))
    assert np.array_equal(*found)


# In a fit -------------------------------------------------------------------------------------------------------------


def fitted_with(*changes: str, **options: object) -> Fitted:
    return fit(DATASET, settings(*PROPAGATING, *changes), device="cpu", **options)  # type: ignore[arg-type]


def test_a_fit_trains_weighs_and_stores_the_network():
    fitted = fitted_with()
    assert list(fitted.metrics["ensemble"])[7] == "propagation" and len(fitted.metrics["ensemble"]) == 24
    assert fitted.model.propagation is not None and fitted.model.propagation.known_relations.any()
    bundle = fitted.bundle(DATASET)
    assert bundle.weights["ensemble"].shape == (3, 8)
    again = load_model(bundle).propagation
    assert again is not None
    stored, trained = part_weights(PROPAGATION, again), part_weights(PROPAGATION, fitted.model.propagation)
    assert stored.keys() == trained.keys() and all(np.array_equal(stored[name], trained[name]) for name in stored)
    # The final ones go on from those of the search, on everyone.
    found, alone = fitted_with("training.final_fit=no"), trainer_of(steps=6)
    assert found.model.propagation is not None
    alone.begin_with(carried_over(found.model.propagation, found.dataset.relations, alone.network, DATASET.relations))
    assert alone.steps == np.ceil(6 * PropagationTrainer.WARM_STEPS)
    for number in range(alone.steps):
        alone.step(number)
    assert all(np.array_equal(value, trained[name]) for name, value in part_weights(PROPAGATION, alone.network).items())


@pytest.mark.parametrize(
    ("device", "changes", "learned"), [("cpu", (), False), ("cuda", (), True), ("cuda", ("model.ensemble=no",), False)]
)
def test_whether_it_is_trained_may_be_left_to_the_machine(device, changes, learned, monkeypatch):
    monkeypatch.setattr(gpu, "keeps_halves", lambda: True)
    config = settings(*FOLDED, "model.ensemble=yes", "model.propagation=auto", *changes)
    assert config.model.propagation == "auto"
    assert settings(*FOLDED, "model.ensemble=yes", "model.propagation=AUTO", *changes) == config
    text = str(complaint(settings, "model.propagation=perhaps"))
    assert text == "model.propagation is 'perhaps', but must be true, false or auto"
    assert settled(config, DATASET, torch.device(device)).model.propagation is learned
    assert settled(config, DATASET, torch.device("cpu"), before=True).model.propagation is (not changes)
    assert settled(config, DATASET, torch.device("cuda"), before=False).model.propagation is False
    told = settings(*FOLDED, "model.ensemble=yes", "model.propagation=yes", "model.propagation_hubs=7")
    assert settled(told, DATASET, torch.device(device)) is told
    monkeypatch.setattr(gpu, "keeps_halves", lambda: False)
    assert settled(config, DATASET, torch.device(device)).model.propagation is False


@pytest.mark.parametrize("begun", ["yes", "no"])
def test_what_was_decided_when_a_training_began_stays_when_it_goes_on_elsewhere(tmp_path, begun):
    with pytest.raises(Stopped):
        fitted_with(f"model.propagation={begun}", folder=tmp_path, report=StopAfter(1))
    resumed = fitted_with("model.propagation=auto", folder=tmp_path, resume=True)
    learned = resumed.model.propagation is not None
    assert resumed.config.model.propagation is learned is (begun == "yes")
    assert began_with_propagation(tmp_path / "nothing") is None
    (tmp_path / "broken").write_bytes(b"no checkpoint")
    assert began_with_propagation(tmp_path / "broken") is None


def test_a_fit_says_what_it_decided():
    fitted = fitted_with("model.propagation=auto")
    assert fitted.config.model.propagation is False and fitted.model.propagation is None
    assert fitted.bundle(DATASET).config.model.propagation is False


class StopInPropagation(Listener):
    """Ends everything at a step of training propagation; ``times``: the how many-th time that it comes there."""

    def __init__(self, step: int, times: int) -> None:
        self.at, self.times, self.inside = step, times, False

    def stage(self, what: str) -> None:
        self.inside = what == "training the propagation network"

    def step(self, done: int, total: int) -> None:
        if self.inside and done == self.at:
            self.times -= 1
            if self.times == 0:
                raise Stopped


@pytest.mark.parametrize(("step", "times"), [(1, 1), (3, 1), (6, 1), (1, 2), (2, 2)])
def test_learning_goes_on_where_it_was_interrupted(tmp_path, monkeypatch, step, times):
    monkeypatch.setattr("newcomer.training.phases.KEPT_EVERY", 2)
    monkeypatch.setattr(PropagationTrainer, "WARM_STEPS", 0.3)  # two of six
    whole = fitted_with()
    with pytest.raises(Stopped):
        fitted_with(folder=tmp_path, report=StopInPropagation(step, times))
    assert (tmp_path / CHECKPOINT).exists()
    resumed = fitted_with(folder=tmp_path, resume=True)
    assert weights(resumed) == weights(whole) and resumed.metrics == whole.metrics
    assert whole.model.propagation is not None and resumed.model.propagation is not None
    kept, wanted = (part_weights(PROPAGATION, one.model.propagation) for one in (resumed, whole))
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)


def test_without_validation_its_weight_is_the_prior():
    fitted = fitted_with("training.validation_rate=0")
    assert (
        fitted.metrics["ensemble"]["propagation"] == 0.5 and fitted.metrics["ensemble"]["propagation, few facts"] == 0.0
    )


def test_propagation_without_an_ensemble_is_regpu():
    text = str(complaint(settings, "model.propagation=yes"))
    assert text == "model.propagation is true, but propagation is part of the ensemble only; set model.ensemble=true"


def test_too_little_memory_is_said_in_words_before_anything_else_is_learned(monkeypatch, tmp_path):
    def starved(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(PropagationTrainer, "step", starved)
    text = str(complaint(fitted_with, folder=tmp_path))
    assert text == "there is too little memory for the propagation network; set model.propagation=false"
    assert not (tmp_path / CHECKPOINT).exists()


def test_only_too_little_memory_is_called_so():
    def failing(error: BaseException) -> None:
        with memory_in_words("to learn"):
            try:
                raise error
            finally:
                raise RuntimeError("the recording was cut short")

    assert str(complaint(failing, torch.OutOfMemoryError("no"))) == "there is too little memory to learn"
    with pytest.raises(RuntimeError, match="cut short"):
        failing(torch.AcceleratorError("an illegal memory access"))


def test_a_loss_that_is_no_number_is_said_in_words(monkeypatch):
    monkeypatch.setattr(PropagationTrainer, "step", lambda *_: torch.tensor(torch.nan))
    text = str(complaint(fitted_with))
    wanted = "take another seed, or set model.propagation=false"
    assert text == f"the loss is nan after step 6 of the propagation network; {wanted}"


def test_weights_that_are_missing_are_missed():
    bundle = fitted_with().bundle(DATASET)
    kept = {name: value for name, value in bundle.weights.items() if not name.startswith("propagation.")}
    text = str(complaint(load_model, replace(bundle, weights=kept)))
    assert text == "the ensemble has a propagation network, but its weights are missing; train the model again"
