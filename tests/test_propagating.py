"""Learning what paths say: what is hidden while it is learned, what is learned, and who is asked by which facts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import complaint, make_dataset
from newcomer.errors import DatasetError
from newcomer.graph import Graph, InductiveDataset, TripleArray
from newcomer.nn.propagation import PathEdges, Propagation, path_edges
from newcomer.training import propagating
from newcomer.training.fit import Fitted, Listener, fit
from newcomer.training.journal import CHECKPOINT
from newcomer.training.propagating import (
    Asked,
    Paths,
    PathScorer,
    PathTrainer,
    path_weights,
    propagation_of,
)
from newcomer.training.restore import blend_of, load_model, paths_of
from nn_oracle import one_thread
from training_world import FOLDED, Stopped, settings, weights, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
DATASET = world()
PATHS = (*FOLDED, "model.evidence=yes", "model.propagation=yes", "training.propagation_steps=6", "training.epochs=2")


def trainer_of(dataset: InductiveDataset = DATASET, steps: int = 40, seed: int = 0) -> PathTrainer:
    return PathTrainer(dataset.observed, int(dataset.is_seen.sum()), steps, seed, CPU)


def scorer_of(trainer: PathTrainer, dataset: InductiveDataset) -> PathScorer:
    paths = Paths(trainer.network, dataset.observed, int(dataset.is_seen.sum()), CPU)
    return PathScorer(paths, dataset.own_facts, len(dataset.entities))


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


class Watched(PathTrainer):
    """Remembers what was asked, over which edges."""

    def _loss(self, asked: torch.Tensor, edges: PathEdges) -> torch.Tensor:
        self.seen = asked, edges
        return super()._loss(asked, edges)


def pairs_between(rows: list[tuple[int, int]]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in rows}


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_no_fact_answers_for_itself_and_every_other_time_no_twin_does(number, monkeypatch):
    monkeypatch.setattr(propagating, "LARGEST_SHARE", 8 / 65)
    facts = [*[(f"a{i}", "r", f"b{i % 5}") for i in range(20)], *[(f"a{i}", "s", f"b{i % 5}") for i in range(20)]]
    others = [(f"a{i}", "t", f"a{(i + 1) % 20}") for i in range(20)]
    dataset = make_dataset(
        train=[*facts, *others, *[(f"b{i}", "t", f"b{(i + 1) % 5}") for i in range(5)]], aux=[], test=[]
    )
    trainer = Watched(dataset.observed, len(dataset.entities), 40, 0, CPU)
    trainer.step(number)
    asked, edges = trainer.seen
    assert len(asked) == 8
    shown = edges.weights > 0
    visible = set(
        zip(
            *(part[shown].tolist() for part in (edges.rows.row_ids(), edges.relations, edges.rows.columns)), strict=True
        )
    )
    size = trainer.graph.num_relations
    for entity, relation, answer in asked.tolist():
        assert (entity, relation, answer) not in visible
        assert (answer, (relation + size) % (2 * size), entity) not in visible
    tied = pairs_between([(row, column) for row, _, column in visible])
    twins = [frozenset((entity, answer)) in tied for entity, _, answer in asked.tolist()]
    assert any(twins) if number % 2 == 0 else not any(twins)
    assert len(visible) >= 2 * (len(facts) - 2 * 8)  # and all others are


def test_who_would_be_known_by_having_no_edges_left_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(propagating, "LARGEST_SHARE", 1.0)
    alone = [(f"x{i}", "r", f"y{i}") for i in range(6)]
    dataset = make_dataset(train=[*alone, ("y0", "s", "y1")], aux=[], test=[])
    trainer = Watched(dataset.observed, len(dataset.entities), 5, 0, CPU)
    before = path_weights(trainer.network)["paths.queries"].copy()
    assert trainer.step(0) == 0.0  # all facts are hidden, so nobody has any
    assert np.array_equal(path_weights(trainer.network)["paths.queries"], before)
    trainer.batch = 1
    tied = set()
    for number in range(0, 14, 2):
        if trainer.step(number):
            tied |= {tuple(row) for row in trainer.seen[0][:, [2]].tolist()}
    assert tied <= {(dataset.entities.id(name),) for name in ("y0", "y1", "x0", "x1")} and tied


def test_another_true_answer_is_no_rival():
    dataset = make_dataset(train=[("x", "r", "y"), ("x", "r", "z"), ("x", "s", "u")], aux=[], test=[])
    trainer, entity = trainer_of(dataset), dataset.entities.id
    scores = torch.zeros(1, len(dataset.entities))
    scores[0, entity("z")] = 9.0
    trainer.network = lambda *_: scores  # type: ignore[assignment]
    losses = []
    for relation, answer in (("r", "y"), ("s", "u")):
        asked = torch.tensor([[entity("x"), dataset.relations.id(relation), entity(answer)]])
        losses.append(float(trainer._loss(asked, trainer.edges)))
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


def test_a_way_of_two_steps_is_learned_and_serves_newcomers():
    dataset = chained()
    trainer = trainer_of(dataset, steps=150)
    losses = [trainer.step(number) for number in range(trainer.steps)]
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    scorer, entity = scorer_of(trainer, dataset), dataset.entities.id
    pays = dataset.relations.id("pays")
    for number in range(7):
        found = scorer.scores(ids(entity(f"q{number}")), ids(pays))[0]
        assert found.argmax() == entity(f"town{number}")
        np.testing.assert_allclose(np.exp(found[dataset.is_seen]).sum(), 1.0, rtol=1e-4)


def test_the_same_steps_in_one_go_and_with_a_break_give_the_same_bits():
    whole, first, second = trainer_of(), trainer_of(), trainer_of()
    losses = [whole.step(number) for number in range(6)]
    assert losses[:3] == [first.step(number) for number in range(3)]
    second.restore(first.tensors())
    assert losses[3:] == [second.step(number) for number in range(3, 6)]
    kept, wanted = (path_weights(one.network) for one in (second, whole))
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)
    assert trainer_of(seed=1).step(0) != losses[0]


def test_a_batch_in_parts_teaches_the_same(monkeypatch):
    whole, parts = trainer_of(), trainer_of()
    loss = whole.step(0)
    monkeypatch.setitem(propagating.AT_ONCE, "cpu", 1)
    assert whole.batch > 1 and parts.step(0) == pytest.approx(loss, rel=1e-5)
    for one, other in zip(parts.network.parameters(), whole.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_every_pass_comes_to_every_fact_once(monkeypatch):
    monkeypatch.setattr(propagating, "LARGEST_SHARE", 0.3)
    trainer = trainer_of(steps=10_000)
    a_pass = -(-len(trainer.graph.facts) // trainer.batch)
    assert 3 < a_pass < len(trainer.graph.facts)
    for start in (0, a_pass):
        facts = torch.cat([trainer._batch(number) for number in range(start, start + a_pass)])
        assert facts.sort().values.tolist() == list(range(len(trainer.graph.facts)))
    assert trainer.steps == -(-propagating.PASSES * len(trainer.graph.facts) // trainer.batch)


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
    whole = path_edges(heads, relations, tails, len(dataset.relations), seen + 1)
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
    assert list(fitted.metrics["blend"])[7] == "paths" and len(fitted.metrics["blend"]) == 16
    assert fitted.paths is not None and fitted.paths.told.any()
    bundle = fitted.bundle(DATASET)
    assert bundle.weights["blend"].shape == (2, 8)
    again = paths_of(bundle)
    assert again is not None
    stored, trained = path_weights(again.network), path_weights(fitted.paths)
    assert stored.keys() == trained.keys() and all(np.array_equal(stored[name], trained[name]) for name in stored)
    load_model(bundle)  # the network beside them is not confused
    # The final ones are learned anew, on everyone.
    alone = trainer_of(steps=6)
    for number in range(6):
        alone.step(number)
    assert all(np.array_equal(value, trained[name]) for name, value in path_weights(alone.network).items())


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


@pytest.mark.parametrize(("step", "times"), [(1, 1), (3, 1), (6, 1), (2, 2), (6, 2)])
def test_learning_goes_on_where_it_was_interrupted(tmp_path, monkeypatch, step, times):
    monkeypatch.setattr("newcomer.training.fit.KEPT_EVERY", 2)
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
    assert text == "model.propagation is true, but paths have a say beside rules only; set model.evidence=true"


def test_weights_of_other_relations_are_refused():
    stored = path_weights(Propagation(3, torch.Generator().manual_seed(0)))
    assert propagation_of({"blend": stored["paths.told"]}, 3) is None
    with pytest.raises(DatasetError, match=r"the paths do not fit the relations .*; train the model again"):
        propagation_of(stored, 4)


def test_too_little_memory_is_said_in_words_before_anything_else_is_learned(monkeypatch, tmp_path):
    def starved(*_: object) -> float:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(PathTrainer, "step", starved)
    text = str(complaint(fitted_with, folder=tmp_path))
    assert text == "there is too little memory to learn what paths say; set model.propagation=false"
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_loss_that_is_no_number_is_said_in_words(monkeypatch):
    monkeypatch.setattr(PathTrainer, "step", lambda *_: float("nan"))
    text = str(complaint(fitted_with))
    wanted = "take another seed, or set model.propagation=false"
    assert text == f"the loss is nan after step 1 of learning what paths say; {wanted}"


def test_weights_that_are_missing_are_missed():
    bundle = fitted_with().bundle(DATASET)
    kept = {name: value for name, value in bundle.weights.items() if not name.startswith("paths.")}
    text = str(complaint(blend_of, replace(bundle, weights=kept)))
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
    monkeypatch.setitem(propagating.AT_ONCE, "cpu", 2 * 32 * propagating.KEPT * int(DATASET.is_seen.sum()))
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
