"""Asking what paths say: who is asked by which facts, and a fit that learns it, weighs it and keeps it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import complaint
from newcomer.errors import DatasetError
from newcomer.graph import Graph, InductiveDataset, TripleArray
from newcomer.models.propagation import gpu as fused
from newcomer.models.propagation import network as propagation_network
from newcomer.models.propagation import own as propagating
from newcomer.models.propagation.edges import propagation_edges
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.own import Asked, Paths, PathScorer, path_weights, propagation_of
from newcomer.models.serialisation import ensemble_weights_of, load_model, paths_of
from newcomer.training.checkpoint import learned_paths
from newcomer.training.journal import CHECKPOINT
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.propagation import WARM_STEPS, PropagationTrainer, carried_over
from newcomer.training.runtime import memory_in_words, settled
from nn_oracle import one_thread
from training_world import FOLDED, StopAfter, Stopped, settings, weights, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
DATASET = world()
PATHS = (*FOLDED, "model.ensemble=yes", "model.propagation=yes", "training.propagation_steps=6", "training.epochs=2")


def trainer_of(dataset: InductiveDataset = DATASET, steps: int = 40, seed: int = 0) -> PropagationTrainer:
    return PropagationTrainer(dataset.observed, int(dataset.is_seen.sum()), steps, seed, CPU)


def scorer_of(trainer: PropagationTrainer, dataset: InductiveDataset) -> PathScorer:
    paths = Paths(trainer.network, dataset.observed, int(dataset.is_seen.sum()), CPU)
    return PathScorer(paths, dataset.own_facts, len(dataset.entities))


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def with_another(dataset: InductiveDataset, *facts: tuple[int, int, int]) -> InductiveDataset:
    told = TripleArray.of([*map(tuple, dataset.auxiliary.triples.rows.tolist()), *facts])
    auxiliary = Graph.build(dataset.entities, dataset.relations, told)
    return InductiveDataset(dataset.name, dataset.observed, auxiliary, dataset.valid, dataset.test)


def test_who_else_arrives_changes_nothing():
    dataset = world(aux=[("q0", "lives_in", "city0"), ("q1", "lives_in", "city1"), ("q2", "knows", "q1")])
    trainer = trainer_of(dataset)
    first, second, third = (dataset.entities.id(name) for name in ("q0", "q1", "q2"))
    city = dataset.entities.id("city0")
    more = with_another(dataset, (second, dataset.relations.id("lives_in"), city))
    asked = ids(first, city), ids(0, 1)
    before, after = (scorer_of(trainer, one).scores(*asked) for one in (dataset, more))
    assert np.array_equal(before, after)
    told = [scorer_of(trainer, one).scores(ids(second), ids(0)) for one in (dataset, more)]
    assert not np.allclose(*told)
    # A newcomer that one is tied to is an answer like others; one that is not is like anybody whom no path leads to.
    found = scorer_of(trainer, dataset).scores(ids(third), ids(0))[0]
    assert found[second] != found[first] and len({found[first], found[second], found[third]}) == 3


def test_relations_that_nobody_seen_has_are_neither_asked_nor_heard():
    dataset = world(aux=[("q0", "lives_in", "city0"), ("q0", "flies_to", "city1"), ("q1", "lives_in", "city0")])
    trainer, size = trainer_of(dataset), len(dataset.relations)
    flies, lives = (dataset.relations.id(name) for name in ("flies_to", "lives_in"))
    scorer = scorer_of(trainer, dataset)
    one, other = (dataset.entities.id(name) for name in ("q0", "q1"))
    assert not scorer.scores(ids(one, one), ids(flies, flies + size)).any()
    found = scorer.scores(ids(one, other), ids(lives, lives))
    seen = dataset.is_seen
    np.testing.assert_allclose(found[0, seen], found[1, seen], rtol=1e-5)


def test_a_seen_entity_is_asked_by_the_observed_graph_alone():
    trainer = trainer_of()
    paths = Paths(trainer.network, DATASET.observed, int(DATASET.is_seen.sum()), CPU)
    said = paths.ask(Asked(0, np.empty(0, np.int64), np.empty(0, np.int64)), ids(1))
    row = scorer_of(trainer, DATASET).scores(ids(0), ids(1))[0]
    np.testing.assert_array_equal(row[: paths.num_seen], said.seen[0].numpy())
    assert set(row[paths.num_seen :].tolist()) == {said.apart.item()}


def test_a_newcomer_is_asked_about_as_if_it_had_been_there_with_its_facts():
    dataset = world(aux=[("q0", "lives_in", "city0"), ("q0", "knows", "p03"), ("p05", "knows", "q0")])
    trainer, seen = trainer_of(dataset), int(dataset.is_seen.sum())
    heads, relations, tails = torch.from_numpy(dataset.known_facts().triples.rows.astype(np.int64)).unbind(dim=1)
    whole = propagation_edges(heads, relations, tails, len(dataset.relations), seen + 1)
    with torch.no_grad():
        wanted = trainer.network([whole], torch.tensor([seen]), torch.tensor([1]), seen + 1)
    wanted = (wanted - torch.logsumexp(wanted[:, :seen], dim=1, keepdim=True)).numpy()
    assert dataset.entities.id("q0") == seen
    found = scorer_of(trainer, dataset).scores(ids(seen), ids(1))
    np.testing.assert_allclose(found[:, : seen + 1], wanted, rtol=1e-4, atol=1e-5)


def fitted_with(*changes: str, **options: object) -> Fitted:
    return fit(DATASET, settings(*PATHS, *changes), device="cpu", **options)  # type: ignore[arg-type]


def test_a_fit_learns_weighs_and_stores_them():
    fitted = fitted_with()
    assert list(fitted.metrics["blend"])[7] == "paths" and len(fitted.metrics["blend"]) == 24
    assert fitted.paths is not None and fitted.paths.known_relations.any()
    bundle = fitted.bundle(DATASET)
    assert bundle.weights["blend"].shape == (3, 8)
    again = paths_of(bundle)
    assert again is not None
    stored, trained = path_weights(again), path_weights(fitted.paths)
    assert stored.keys() == trained.keys() and all(np.array_equal(stored[name], trained[name]) for name in stored)
    load_model(bundle)  # the network beside them is not confused
    # The final ones go on from those of the search, on everyone.
    found, alone = fitted_with("training.final_fit=no"), trainer_of(steps=6)
    assert found.paths is not None
    alone.begin_with(carried_over(found.paths, found.dataset.relations, alone.network, DATASET.relations))
    assert alone.steps == 2 == np.ceil(6 * WARM_STEPS)
    for number in range(alone.steps):
        alone.step(number)
    assert all(np.array_equal(value, trained[name]) for name, value in path_weights(alone.network).items())


@pytest.mark.parametrize(
    ("device", "changes", "learned"), [("cpu", (), False), ("cuda", (), True), ("cuda", ("model.ensemble=no",), False)]
)
def test_whether_they_are_learned_may_be_left_to_the_machine(device, changes, learned, monkeypatch):
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
    learned = resumed.paths is not None
    assert resumed.config.model.propagation is learned is (begun == "yes")
    assert learned_paths(tmp_path / "nothing") is None
    (tmp_path / "broken").write_bytes(b"no checkpoint")
    assert learned_paths(tmp_path / "broken") is None


def test_a_fit_says_what_it_decided():
    fitted = fitted_with("model.propagation=auto")
    assert fitted.config.model.propagation is False and fitted.paths is None
    assert fitted.bundle(DATASET).config.model.propagation is False


class StopInPaths(Listener):
    """Ends everything at a step of learning what paths say; ``times``: the how many-th time that it comes there."""

    def __init__(self, step: int, times: int) -> None:
        self.at, self.times, self.inside = step, times, False

    def stage(self, what: str) -> None:
        self.inside = what == "learning what paths say"

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
        fitted_with(folder=tmp_path, report=StopInPaths(step, times))
    assert (tmp_path / CHECKPOINT).exists()
    resumed = fitted_with(folder=tmp_path, resume=True)
    assert weights(resumed) == weights(whole) and resumed.metrics == whole.metrics
    assert whole.paths is not None and resumed.paths is not None
    kept, wanted = path_weights(resumed.paths), path_weights(whole.paths)
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)


def test_without_validation_they_are_believed_as_a_guess():
    fitted = fitted_with("training.validation_rate=0")
    assert fitted.metrics["blend"]["paths"] == 0.5 and fitted.metrics["blend"]["paths, few facts"] == 0.0


def test_paths_without_evidence_are_refused():
    text = str(complaint(settings, "model.propagation=yes"))
    assert text == "model.propagation is true, but paths have a say beside rules only; set model.ensemble=true"


def test_weights_of_other_relations_are_refused():
    stored = path_weights(Propagation(3, torch.Generator().manual_seed(0)))
    assert propagation_of({"blend": stored["propagation.known_relations"]}, 3) is None
    with pytest.raises(DatasetError, match=r"the paths do not fit the relations .*; train the model again"):
        propagation_of(stored, 4)


def test_too_little_memory_is_said_in_words_before_anything_else_is_learned(monkeypatch, tmp_path):
    def starved(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(PropagationTrainer, "step", starved)
    text = str(complaint(fitted_with, folder=tmp_path))
    assert text == "there is too little memory to learn what paths say; set model.propagation=false"
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
    assert text == f"the loss is nan after step 6 of learning what paths say; {wanted}"


def test_weights_that_are_missing_are_missed():
    bundle = fitted_with().bundle(DATASET)
    kept = {name: value for name, value in bundle.weights.items() if not name.startswith("propagation.")}
    text = str(complaint(ensemble_weights_of, replace(bundle, weights=kept)))
    assert text == "the model weighs what paths say, but their weights are missing; train it again"


def test_the_same_question_is_asked_once_and_many_in_parts(monkeypatch):
    scorer, asked = scorer_of(trainer_of(), DATASET), []
    entity = int(DATASET.newcomers[0])
    relations = ids(0, 1, 0, 0, 2, 1)
    wanted = np.concatenate([scorer.scores(ids(entity), relations[[place]]) for place in range(6)])
    ask = scorer.paths.ask

    def watched(who: Asked, some: np.ndarray) -> propagating.Said:
        asked.append(some.tolist())
        return ask(who, some)

    monkeypatch.setattr(scorer.paths, "ask", watched)
    size = 2 * 32 * propagation_network.KEPT * int(DATASET.is_seen.sum())
    monkeypatch.setitem(propagation_network.TABLE_SIZE, "cpu", size)
    found = scorer.scores(np.full(6, entity, dtype=np.int32), relations)
    assert asked == [[0, 1], [2]]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_nobody_elses_random_numbers_are_drawn():
    stored = path_weights(Propagation(3, torch.Generator().manual_seed(0)))
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    assert propagation_of(stored, 3) is not None
    assert torch.equal(torch.rand(3), first)
