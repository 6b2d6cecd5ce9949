"""Training the propagation network: what is masked meanwhile, what is learned, and a fit that trains and keeps it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from conftest import complaint, make_dataset
from newcomer.graph import InductiveDataset, Overlay
from newcomer.models.propagation import gpu as fused
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.scorer import PropagationScorer, propagation_weights
from newcomer.models.serialisation import load_model
from newcomer.training import propagation as path_training
from newcomer.training.checkpoint import began_with_propagation
from newcomer.training.journal import CHECKPOINT
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.propagation import FURTHER, Lesson, PropagationTrainer, carried_over
from newcomer.training.runtime import memory_in_words, settled
from nn_oracle import one_thread
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
    silent: bool | None = None,
) -> PropagationTrainer:
    return PropagationTrainer(dataset.observed, int(dataset.is_seen.sum()), steps, seed, device, silent)


def losses_of(trainer: PropagationTrainer, *numbers: int) -> list[float]:
    return [float(trainer.step(number)) for number in numbers]


class Watched(PropagationTrainer):
    """Remembers what was asked."""

    def _loss(self, lesson: Lesson) -> torch.Tensor:
        self.lesson = lesson
        return super()._loss(lesson)

    @property
    def asked(self) -> list[tuple[int, int, int]]:
        columns = self.lesson.sources, self.lesson.queries, self.lesson.answers
        return list(zip(*(one.tolist() for one in columns), strict=True))


def pairs_between(rows: list[tuple[int, int]]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in rows}


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_no_fact_answers_for_itself_and_every_other_time_no_twin_does(number, monkeypatch):
    monkeypatch.setattr(path_training, "LARGEST_SHARE", 8 / 65)
    facts = [*[(f"a{i}", "r", f"b{i % 5}") for i in range(20)], *[(f"a{i}", "s", f"b{i % 5}") for i in range(20)]]
    others = [(f"a{i}", "t", f"a{(i + 1) % 20}") for i in range(20)]
    dataset = make_dataset(
        train=[*facts, *others, *[(f"b{i}", "t", f"b{(i + 1) % 5}") for i in range(5)]], aux=[], test=[]
    )
    trainer = Watched(dataset.observed, len(dataset.entities), 40, 0, CPU)
    trainer.step(number)
    assert len(trainer.asked) == 8
    shown, edges = trainer.lesson.weights > 0, trainer.edges
    visible = set(
        zip(
            *(part[shown].tolist() for part in (edges.rows.row_ids(), edges.relations, edges.rows.columns)), strict=True
        )
    )
    size = trainer.graph.num_relations
    for entity, relation, answer in trainer.asked:
        assert (entity, relation, answer) not in visible
        assert (answer, (relation + size) % (2 * size), entity) not in visible
    tied = pairs_between([(row, column) for row, _, column in visible])
    twins = [frozenset((entity, answer)) in tied for entity, _, answer in trainer.asked]
    assert any(twins) if number % 2 == 0 else not any(twins)
    assert len(visible) >= 2 * (len(facts) - 2 * 8)  # and all others are
    # Who is hidden twice over, as one of two facts that tie the same pair, is hidden once.
    assert torch.equal(trainer.lesson.sizes, edges.seen_with(trainer.lesson.weights).sizes)


def test_who_would_be_known_by_having_no_edges_left_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(path_training, "LARGEST_SHARE", 1.0)
    alone = [(f"x{i}", "r", f"y{i}") for i in range(6)]
    dataset = make_dataset(train=[*alone, ("y0", "s", "y1")], aux=[], test=[])
    trainer = Watched(dataset.observed, len(dataset.entities), 5, 0, CPU)
    before = propagation_weights(trainer.network)["propagation.queries"].copy()
    assert trainer.step(0) == 0.0  # all facts are hidden, so nobody has any
    assert np.array_equal(propagation_weights(trainer.network)["propagation.queries"], before)
    trainer.batch = 1
    tied = set()
    for number in range(0, 14, 2):
        if trainer.step(number):
            tied |= {(answer,) for _, _, answer in trainer.asked}
    assert tied <= {(dataset.entities.id(name),) for name in ("y0", "y1", "x0", "x1")} and tied


def test_another_true_answer_is_no_rival(monkeypatch):
    dataset = make_dataset(train=[("x", "r", "y"), ("x", "r", "z"), ("x", "s", "u")], aux=[], test=[])
    trainer, entity = trainer_of(dataset, silent=False), dataset.entities.id
    scores = torch.zeros(1, len(dataset.entities))
    scores[0, entity("z")] = 9.0
    monkeypatch.setattr(trainer.network, "forward", lambda *_: scores)
    losses = []
    for relation, answer in (("r", "y"), ("s", "u")):
        asked = torch.tensor([[entity("x"), dataset.relations.id(relation), entity(answer)]])
        hidden = torch.empty(0, dtype=torch.int64)
        (lesson,) = trainer._lessons(asked, hidden, trainer._left(hidden))
        losses.append(float(trainer._loss(lesson)))
    assert losses[0] == pytest.approx(np.log(3))  # among x, y and u
    assert losses[1] == pytest.approx(np.log(3 + np.exp(9)), rel=1e-5)


def chained() -> InductiveDataset:
    """Who works at a firm of a town pays there: a way of two steps, beside ties that mean nothing."""
    rng = np.random.default_rng(0)
    works = [(f"p{i:02}", "works", f"firm{i % 7}") for i in range(42)]
    pays = [(f"p{i:02}", "pays", f"town{i % 7}") for i in range(42)]
    lies = [(f"firm{i}", "lies", f"town{i}") for i in range(7)]
    likes = [(f"p{i:02}", "likes", f"p{j:02}") for i, j in rng.integers(42, size=(40, 2)) if i != j]
    new = [(f"q{i}", "works", f"firm{i}") for i in range(7)]
    return make_dataset(train=[*works, *pays, *lies, *likes], aux=new, test=[("q0", "pays", "town0")])


@pytest.mark.parametrize("silent", [False, True])
def test_a_way_of_two_steps_is_learned_and_serves_newcomers(silent):
    dataset = chained()
    trainer = trainer_of(dataset, steps=150, silent=silent)
    losses = losses_of(trainer, *range(trainer.steps))
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    overlay, entity = Overlay.of_dataset(dataset), dataset.entities.id
    scorer, pays = PropagationScorer(trainer.network, overlay.base, CPU), dataset.relations.id("pays")
    for number in range(7):
        found = scorer.scores(overlay, np.array([entity(f"q{number}")]), np.array([pays]))[0]
        assert found.argmax() == entity(f"town{number}")
        np.testing.assert_allclose(np.exp(found[dataset.is_seen]).sum(), 1.0, rtol=1e-4)


@pytest.mark.parametrize("silent", [False, True])
def test_the_same_steps_in_one_go_and_with_a_break_give_the_same_bits(silent):
    whole, first, second = (trainer_of(silent=silent) for _ in range(3))
    losses = losses_of(whole, *range(6))
    assert losses[:3] == losses_of(first, 0, 1, 2)
    second.restore(first.tensors())
    assert losses[3:] == losses_of(second, 3, 4, 5)
    kept, wanted = (propagation_weights(one.network) for one in (second, whole))
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)
    assert losses_of(trainer_of(seed=1), 0) != losses[:1]


@pytest.mark.parametrize("silent", [False, True])
def test_a_batch_in_parts_teaches_the_same(monkeypatch, silent):
    whole, parts = trainer_of(silent=silent), trainer_of(silent=silent)
    (loss,) = losses_of(whole, 0)
    monkeypatch.setitem(path_training.AT_ONCE, "cpu", 1)
    monkeypatch.setattr(path_training, "SILENT_AT_ONCE", 1)
    assert parts._at_once == 1
    assert whole.batch > 1 and losses_of(parts, 0) == pytest.approx([loss], rel=1e-5)
    for one, other in zip(parts.network.parameters(), whole.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_every_pass_comes_to_every_fact_once(monkeypatch):
    monkeypatch.setattr(path_training, "LARGEST_SHARE", 0.3)
    trainer = trainer_of(steps=10_000)
    a_pass = -(-len(trainer.graph.facts) // trainer.batch)
    assert 3 < a_pass < len(trainer.graph.facts)
    for start in (0, a_pass):
        facts = torch.cat([trainer._batch(number) for number in range(start, start + a_pass)])
        assert facts.sort().values.tolist() == list(range(len(trainer.graph.facts)))
    assert trainer.steps == -(-path_training.PASSES * len(trainer.graph.facts) // trainer.batch)


def test_what_was_learned_serves_another_graph_by_the_names_of_relations():
    learned, fresh = (Propagation(3, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    learned.told[:] = 1.0
    before = make_dataset(train=[("a", "r", "b"), ("a", "s", "b"), ("a", "u", "b")], aux=[], test=[]).relations
    after = make_dataset(train=[("a", "new", "b"), ("a", "u", "b"), ("a", "r", "b")], aux=[], test=[]).relations
    found = carried_over(learned, before, fresh, after)
    assert "told" not in found
    for name in ("r", "u"):
        for turned in (0, 3):
            old, new = before.id(name) + turned, after.id(name) + turned
            assert torch.equal(found["queries"][new], learned.queries[old])
            assert torch.equal(found["scales"][:, new], learned.scales[:, old])
    unheard = after.id("new")
    assert torch.equal(found["queries"][unheard + 3], fresh.queries[unheard + 3])
    assert torch.equal(found["scales"][:, unheard], fresh.scales[:, unheard])
    assert torch.equal(found["first.weight"], learned.first.weight)


def test_who_begins_with_what_was_learned_before_takes_fewer_and_ever_smaller_steps():
    trainer, other = trainer_of(steps=40), trainer_of(seed=1)
    trainer.begin_with(carried_over(other.network, DATASET.relations, trainer.network, DATASET.relations))
    assert torch.equal(trainer.network.queries, other.network.queries) and trainer.network.is_silent
    assert trainer.steps == round(FURTHER * 40)
    rates = []
    for number in range(trainer.steps):
        trainer.step(number)
        rates.append(trainer.optimiser.param_groups[0]["lr"])
    assert rates[0] == path_training.RATE and all(later < one for one, later in pairwise(rates))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("at_once", [1 << 29, 10 * 32 * path_training.KEPT * int(DATASET.is_seen.sum()), 1])
def test_a_gpu_learns_what_a_processor_does_and_twice_the_same(monkeypatch, at_once):
    monkeypatch.setattr(path_training, "LARGEST_SHARE", 0.5)
    monkeypatch.setitem(path_training.AT_ONCE, "cuda", at_once)
    wanted = losses_of(trainer_of(silent=False), *range(20))
    first, second = (trainer_of(device=torch.device("cuda")) for _ in range(2))
    found = losses_of(first, *range(20))
    assert found == losses_of(second, *range(20))
    assert found == pytest.approx(wanted, rel=0.05)
    kept, again = (propagation_weights(one.network) for one in (first, second))
    assert all(np.array_equal(kept[name], again[name]) for name in kept)


# In a fit -------------------------------------------------------------------------------------------------------------


def fitted_with(*changes: str, **options: object) -> Fitted:
    return fit(DATASET, settings(*PROPAGATING, *changes), device="cpu", **options)  # type: ignore[arg-type]


def test_a_fit_trains_weighs_and_stores_the_network():
    fitted = fitted_with()
    assert list(fitted.metrics["ensemble"])[7] == "propagation" and len(fitted.metrics["ensemble"]) == 24
    assert fitted.model.propagation is not None and fitted.model.propagation.told.any()
    bundle = fitted.bundle(DATASET)
    assert bundle.weights["ensemble"].shape == (3, 8)
    again = load_model(bundle).propagation
    assert again is not None
    stored, trained = propagation_weights(again), propagation_weights(fitted.model.propagation)
    assert stored.keys() == trained.keys() and all(np.array_equal(stored[name], trained[name]) for name in stored)
    # The final ones go on from those of the search, on everyone.
    found, alone = fitted_with("training.final_fit=no"), trainer_of(steps=6)
    assert found.model.propagation is not None
    alone.begin_with(carried_over(found.model.propagation, found.dataset.relations, alone.network, DATASET.relations))
    assert alone.steps == 2 == np.ceil(6 * FURTHER)
    for number in range(alone.steps):
        alone.step(number)
    assert all(np.array_equal(value, trained[name]) for name, value in propagation_weights(alone.network).items())


@pytest.mark.parametrize(
    ("device", "changes", "learned"), [("cpu", (), False), ("cuda", (), True), ("cuda", ("model.ensemble=no",), False)]
)
def test_whether_it_is_trained_may_be_left_to_the_machine(device, changes, learned, monkeypatch):
    monkeypatch.setattr(fused, "keeps_halves", lambda: True)
    config = settings(*FOLDED, "model.ensemble=yes", "model.propagation=auto", *changes)
    assert config.model.propagation == "auto"
    assert settings(*FOLDED, "model.ensemble=yes", "model.propagation=AUTO", *changes) == config
    text = str(complaint(settings, "model.propagation=perhaps"))
    assert text == "model.propagation is 'perhaps', but must be true, false or auto"
    assert settled(config, DATASET, torch.device(device)).model.propagation is learned
    assert settled(config, DATASET, torch.device("cpu"), before=True).model.propagation is (not changes)
    assert settled(config, DATASET, torch.device("cuda"), before=False).model.propagation is False
    told = settings(*FOLDED, "model.ensemble=yes", "model.propagation=yes")
    assert settled(told, DATASET, torch.device(device)) is told
    monkeypatch.setattr(fused, "keeps_halves", lambda: False)
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
    """Ends everything at a step of training the propagation network; ``times``: the how many-th time that it comes there."""

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
    monkeypatch.setattr("newcomer.training.pipeline.KEPT_EVERY", 2)
    whole = fitted_with()
    with pytest.raises(Stopped):
        fitted_with(folder=tmp_path, report=StopInPropagation(step, times))
    assert (tmp_path / CHECKPOINT).exists()
    resumed = fitted_with(folder=tmp_path, resume=True)
    assert weights(resumed) == weights(whole) and resumed.metrics == whole.metrics
    assert whole.model.propagation is not None and resumed.model.propagation is not None
    kept, wanted = propagation_weights(resumed.model.propagation), propagation_weights(whole.model.propagation)
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)


def test_without_validation_its_weight_is_the_prior():
    fitted = fitted_with("training.validation_rate=0")
    assert (
        fitted.metrics["ensemble"]["propagation"] == 0.5 and fitted.metrics["ensemble"]["propagation, few facts"] == 0.0
    )


def test_propagation_without_an_ensemble_is_refused():
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
