"""Fitting: two phases, early stopping, the same weights however often it is interrupted, and nothing it may not see."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import complaint, evaluate, parts_by_name
from newcomer.config import Config, TrainingConfig
from newcomer.errors import DatasetError, OptionError
from newcomer.graph import Graph, InductiveDataset, TripleArray
from newcomer.models.device import choose_device
from newcomer.models.embedding.model import ENCODERS
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers
from newcomer.rules.rule import Kind, Rule, RuleSet
from newcomer.training import phases as fitting
from newcomer.training import runtime as conditions
from newcomer.training.checkpoint import CHECKPOINT, METRICS, Figures, RunState
from newcomer.training.embedding import EpochReport, Trainer
from newcomer.training.holdout import HoldOut
from newcomer.training.phases import is_due
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.preparation import Prepared
from nn_oracle import one_thread
from training_world import StopAfter, Stopped, choosing, parts, settings, weights, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
CPU = torch.device("cpu")


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def timeless(history: list[Figures]) -> list[Figures]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


def phases(fitted: Fitted) -> list[tuple[str, int]]:
    return [(record["phase"], record["epoch"]) for record in fitted.history]


def rigged(monkeypatch: pytest.MonkeyPatch, sequence: list[float]) -> None:
    """Exams that end as told, whatever the model says; the rules' own comes first."""
    figures = iter([0.5, *sequence])
    monkeypatch.setattr(HoldOut, "ranking_metrics", lambda *_: {"mrr": next(figures), "mr": 1.0})


def test_a_search_then_a_final_fit_of_as_many_epochs():
    fitted = fit(DATASET, settings("training.epochs=3", "training.validate_every=2"))
    best = fitted.metrics["validation"]["epoch"]
    assert phases(fitted) == [("search", n) for n in (1, 2, 3)] + [("final", n) for n in range(1, best + 1)]
    examined = {record["epoch"] for record in fitted.history if "mrr" in record}
    assert examined == {2, 3}  # every second one, and the last
    validation = fitted.metrics["validation"]
    assert set(validation) == {"unseen", "newcomers", "queries", "rules", "epoch", "model"}
    found = next(r for r in fitted.history if r["epoch"] == best and r["phase"] == "search")
    assert validation["model"] == {name: found[name] for name in ("mrr", "hits@1", "hits@3", "hits@10", "mr")}
    assert validation["rules"]["mrr"] == 1.0  # living somewhere and citizenship go together
    assert fitted.metrics["history"] == timeless(fitted.history)
    assert fitted.metrics["trained_on"] == "everyone"
    assert parts_by_name(fitted.dataset) == parts_by_name(DATASET)
    assert len(fitted.model.labels) == len(fitted.model.graph.virtual) > 0 and not fitted.model.embedding.training


@pytest.mark.parametrize(
    ("sequence", "best", "stops"),
    [
        ([0.1, 0.3, 0.2, 0.3], 2, 4),  # no better twice
        ([0.1, 0.3, 0.2, 0.4, 0.4, 0.1], 4, 6),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 8, 8),  # the end of all epochs
        ([0.5, 0.4, 0.3], 1, 3),
        ([0.0, 0.0, 0.0], 1, 3),
    ],
)
def test_it_stops_when_validation_gets_no_better(monkeypatch, sequence, best, stops):
    rigged(monkeypatch, sequence)
    fitted = fit(DATASET, settings("training.epochs=8", "training.validate_every=1", "training.patience=2"))
    assert phases(fitted) == [("search", n + 1) for n in range(stops)] + [("final", n + 1) for n in range(best)]
    assert fitted.metrics["epochs"] == best and fitted.metrics["validation"]["model"]["mrr"] == max(sequence)


def test_the_final_fit_is_a_fresh_one_on_everyone():
    fitted = fit(DATASET, settings("training.epochs=2"))
    alone = fit(DATASET, settings("training.epochs=2", "training.validation_rate=0"))
    assert fitted.metrics["epochs"] == 2
    assert weights(fitted) == weights(alone)


def test_without_validation_there_is_one_phase_of_all_epochs():
    fitted = fit(DATASET, settings("training.epochs=3", "training.validation_rate=0", "training.patience=1"))
    assert phases(fitted) == [("final", 1), ("final", 2), ("final", 3)]
    assert "validation" not in fitted.metrics and fitted.metrics["epochs"] == 3


def test_without_the_final_fit_the_best_of_the_search_is_kept(monkeypatch):
    rigged(monkeypatch, [0.1, 0.3, 0.2, 0.2])
    changes = ["training.validate_every=1", "training.patience=2", "training.final_fit=no"]
    fitted = fit(DATASET, settings(*changes))
    assert [phase for phase, _ in phases(fitted)] == ["search"] * 4
    rigged(monkeypatch, [0.1, 0.3])
    best = fit(DATASET, settings(*changes, "training.epochs=2"))
    assert weights(fitted) == weights(best)
    rigged(monkeypatch, [0.1])
    assert weights(fitted) != weights(fit(DATASET, settings(*changes, "training.epochs=1")))


def test_without_the_final_fit_those_held_out_are_newcomers_of_the_model():
    fitted = fit(DATASET, settings("training.final_fit=no"))
    source, own = parts_by_name(DATASET), parts_by_name(fitted.dataset)
    assert own["train"] and own["aux"] and {*own["train"], *own["aux"]} <= set(source["train"])
    arrived = set(fitted.dataset.entities.names_of(fitted.dataset.newcomers))
    assert arrived and not arrived & {name for h, _, t in own["train"] for name in (h, t)}
    vectors = fitted.model.embedding.state_dict()["encoder.vectors"]
    assert len(vectors) == len(fitted.dataset.entities) - len(arrived) == int(fitted.dataset.is_seen.sum())
    bundle = fitted.bundle(DATASET)
    assert bundle.observed is fitted.dataset.observed and bundle.auxiliary is fitted.dataset.auxiliary
    assert bundle.metrics["trained_on"] == "those who were not held out"


class Silent(Listener):
    """Remembers the stages."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, what: str) -> None:
        self.stages.append(what)


TOTAL = 7  # epochs of the whole run below: 4 of the search and 3 of the final fit


def interrupted(folder: Path, at: list[int], config: Config, dataset: InductiveDataset = DATASET) -> Fitted:
    for epochs in at:
        with pytest.raises(Stopped):
            fit(dataset, config, folder=folder, resume=True, report=StopAfter(epochs))
    return fit(dataset, config, folder=folder, resume=True)


@pytest.mark.parametrize("at", [[n] for n in range(1, TOTAL + 1)] + [[1] * TOTAL, [2, 3], [4, 1, 1]])
def test_a_run_ends_with_the_same_weights_wherever_it_was_interrupted(tmp_path, monkeypatch, at):
    grades = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.3}
    model_grade = HoldOut.ranking_metrics

    def grade(exam: HoldOut, scorer: object) -> dict[str, float]:
        figures = model_grade(exam, scorer)  # type: ignore[arg-type]
        return figures | {"mrr": grades[states[-1].epoch]} if isinstance(scorer, SnapshotScorer) else figures

    states: list[RunState] = []
    made = fitting.Run.__init__

    def noted(run: Any, *arguments: Any, **named: Any) -> None:
        made(run, *arguments, **named)
        states.append(run.state)

    monkeypatch.setattr(HoldOut, "ranking_metrics", grade)
    monkeypatch.setattr(fitting.Run, "__init__", noted)
    config = settings("training.validate_every=1", "model.dropout=0.2")
    whole = fit(DATASET, config, folder=tmp_path / "whole")
    assert len(whole.history) == TOTAL
    resumed = interrupted(tmp_path / "cut", at, config)
    assert weights(resumed) == weights(whole)
    assert resumed.metrics == whole.metrics
    assert timeless(lines(tmp_path / "cut")) == timeless(lines(tmp_path / "whole")) == timeless(whole.history)


def test_the_best_weights_survive_an_interruption(tmp_path, monkeypatch):
    config = settings("training.validate_every=1", "training.final_fit=no")
    rigged(monkeypatch, [0.9, 0.1, 0.1, 0.1])
    whole = fit(DATASET, config)
    rigged(monkeypatch, [0.9, 0.1, 0.1, 0.1])
    assert weights(interrupted(tmp_path, [2, 1], config)) == weights(whole)
    assert whole.metrics["epochs"] == 1


def test_a_finished_search_is_not_prepared_again(tmp_path):
    config, watched = settings("training.epochs=2"), Silent()
    with pytest.raises(Stopped):
        fit(DATASET, config, folder=tmp_path, report=StopAfter(3))
    fit(DATASET, config, folder=tmp_path, resume=True, report=watched)
    assert watched.stages.count("mining rules") == watched.stages.count("inferring virtual neighbours") == 1
    assert "search" not in watched.stages and "asking the rules alone" not in watched.stages


def test_a_checkpoint_of_other_settings_or_data_is_refused_and_kept(tmp_path):
    with pytest.raises(Stopped):
        fit(DATASET, settings(), folder=tmp_path, report=StopAfter(1))
    before = (tmp_path / CHECKPOINT).read_bytes()
    for dataset, config in ((DATASET, settings("training.lr=0.3")), (world(test=[]), settings())):
        complaint(fit, dataset, config, folder=tmp_path, resume=True)
    complaint(fit, DATASET, settings(), folder=tmp_path)
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_a_checkpoint_that_fits_no_more_is_named(tmp_path, monkeypatch):
    with pytest.raises(Stopped):
        fit(DATASET, settings(), folder=tmp_path, report=StopAfter(1))
    monkeypatch.setattr(fitting, "prepare", lambda data, *_: Prepared(data, RuleSet.empty(4), None, None))
    text = str(complaint(fit, DATASET, settings(), folder=tmp_path, resume=True))
    assert f"{tmp_path / CHECKPOINT}: does not fit what was prepared" in text and text.endswith("anew with --force")


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_number_of_threads_does_not_matter(encoder):
    # Batches large enough that torch shares its loops out.
    small = ["training.validation_rate=0", "training.epochs=1", "training.batches=2"]
    config = settings(*choosing(encoder), "model.dim=32", "training.negatives=128", *small)
    one, two = (fit(DATASET, config, threads=threads) for threads in (1, 2))
    assert weights(one) == weights(two)
    assert timeless(one.history) == timeless(two.history)


def test_the_seed_matters():
    one, two = (fit(DATASET, settings("training.validation_rate=0", f"seed={seed}")) for seed in (0, 1))
    assert weights(one) != weights(two)


def test_the_process_is_left_as_it_was():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        fit(DATASET, settings("training.epochs=1", "training.validation_rate=0"), threads=2)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == 1
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        complaint(fit, DATASET, settings(), device="tpu")
    finally:
        torch.use_deterministic_algorithms(False)
    fit(DATASET, settings("training.epochs=1"))
    assert not torch.are_deterministic_algorithms_enabled()


OTHER_TEST = [("q0", "knows", "p02"), ("q1", "lives_in", "city4")]
OTHER_AUX = [("q0", "knows", "p05"), ("q1", "citizen_of", "land1"), ("q2", "lives_in", "city2"), ("q3", "knows", "q0")]


def test_test_triples_never_matter():
    one, two = (fit(dataset, settings()) for dataset in (DATASET, world(test=OTHER_TEST)))
    assert weights(one) == weights(two) and one.metrics == two.metrics


def test_under_the_inductive_protocol_newcomers_facts_do_not_matter():
    one, two = (fit(dataset, settings()) for dataset in (DATASET, world(aux=OTHER_AUX)))
    assert weights(one) == weights(two) and one.metrics == two.metrics


def test_refreshed_changes_what_rules_say_and_nothing_else():
    config = settings("protocol=refreshed", "training.validation_rate=0")
    rows = parts()
    # A newcomers' habit: where they live they know somebody, which nobody else does.
    habit = [(f"q{n}", "knows", f"city{n}") for n in range(4)]
    dataset = world(aux=[*rows["aux"], *habit])
    plain = fit(dataset, replace(config, protocol="inductive"))
    refreshed = fit(dataset, config)
    assert len(refreshed.model.rules) > len(plain.model.rules)
    assert parts_by_name(refreshed.dataset) == parts_by_name(plain.dataset)
    vectors = [fitted.model.embedding.state_dict()["encoder.vectors"] for fitted in (plain, refreshed)]
    assert vectors[0].shape == vectors[1].shape
    given = fit(dataset, replace(config, protocol="inductive"), rules=refreshed.model.rules)
    assert weights(given) == weights(refreshed)


def test_under_the_transductive_protocol_newcomers_are_trained_on():
    config = settings("protocol=transductive")
    one, two = (fit(dataset, config) for dataset in (DATASET, world(aux=OTHER_AUX)))
    assert weights(one) != weights(two)
    assert len(one.model.embedding.state_dict()["encoder.vectors"]) == len(DATASET.entities)
    assert len(one.model.graph.facts) == len(DATASET.observed) + len(DATASET.auxiliary)
    assert one.bundle(DATASET).auxiliary is None
    assert one.metrics["validation"]["newcomers"] > 0
    kept = fit(DATASET, replace(config, training=replace(config.training, final_fit=False)))
    assert len(kept.model.embedding.state_dict()["encoder.vectors"]) == len(kept.dataset.entities)


def test_given_rules_serve_both_phases_in_their_own_ids():
    relation = DATASET.relations.id
    rule = Rule(Kind.ONE, relation("citizen_of"), relation("knows"), support=9, body_size=9, pca_body_size=9)
    rules = RuleSet.of([rule], len(DATASET.relations))
    fitted = fit(DATASET, settings("rules.paths=no"), rules=rules)
    assert len(fitted.model.rules) == 1 and fitted.metrics["validation"]["rules"] is not None
    known = {(h, t) for h, r, t in DATASET.observed.named() if r == "knows"}
    graph = Graph.build(DATASET.entities, DATASET.relations, TripleArray.of(fitted.model.graph.virtual.numpy()))
    assert len(graph) and all(r == "citizen_of" and (h, t) in known for h, r, t in graph.named())


@pytest.mark.parametrize("encoder", ["mean", "lan"])
def test_a_baseline_has_no_rules_and_no_row_for_them(encoder):
    fitted = fit(DATASET, settings(f"model.encoder={encoder}", "model.labels=none", "model.decoder=transe"))
    assert len(fitted.model.rules) == 0 and fitted.model.neighbors is None and len(fitted.model.labels) == 0
    assert fitted.metrics["validation"]["rules"] is None


def test_it_learns():
    config = settings("training.epochs=30", "training.validation_rate=0", "training.batches=12", "model.dropout=0")
    fitted = fit(DATASET, config)
    assert fitted.history[-1]["loss"] < 0.8 * fitted.history[0]["loss"]


def test_with_all_that_is_true_both_filters_are_reported():
    fitted = fit(DATASET, settings(), full=DATASET.known())
    assert {"mrr", "full_mrr", "full_hits@10"} <= set(fitted.metrics["validation"]["model"])
    assert "full_mrr" in fitted.metrics["validation"]["rules"]


def test_the_validation_of_the_kept_model_can_be_measured_again():
    fitted = fit(DATASET, settings("training.final_fit=no", "training.validation_queries=none"))
    engine = InferenceEngine(fitted.model, StoredNewcomers(fitted.dataset.auxiliary.triples))
    scorer = SnapshotScorer(engine, engine.initial, embedding_only=True)
    again = evaluate(fitted.dataset, scorer).metrics()
    stated = fitted.metrics["validation"]["model"]
    assert {name: again[name] for name in stated} == stated


def test_rehearsing_does_not_change_the_result(monkeypatch):
    rehearsed = fit(DATASET, settings())
    monkeypatch.setattr(fitting.Run, "rehearse", lambda *_: None)
    assert weights(fit(DATASET, settings())) == weights(rehearsed)


def test_a_rehearsal_is_two_batches_on_the_whole_graph(monkeypatch):
    seen: list[tuple[str, int, int]] = []
    step = Trainer._step

    def noted(trainer: Trainer, facts: Any, *rest: Any) -> Any:
        seen.append((type(trainer).__name__, len(trainer.graph.facts), len(facts)))
        return step(trainer, facts, *rest)

    monkeypatch.setattr(Trainer, "_step", noted)
    fit(DATASET, settings("training.epochs=1"))
    facts = len(DATASET.observed)
    assert seen[:2] == [("ShortTrainer", facts, facts // 3)] * 2
    assert [kind for kind, *_ in seen].count("ShortTrainer") == 2  # the smaller graph of the search is not


MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"),
]


@pytest.mark.parametrize("error", MEMORY, ids=lambda error: type(error).__name__)
def test_too_little_memory_says_which_settings_to_lower(monkeypatch, tmp_path, error):
    def failing(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Trainer, "_step", failing)
    caught = complaint(fit, DATASET, settings(), folder=tmp_path)
    assert isinstance(caught, OptionError)
    for name in ("model.dim (8)", "training.negatives (4)", "training.batches (3)", "training.fanout"):
        assert name in str(caught)
    assert not (tmp_path / CHECKPOINT).exists()
    among_everyone = complaint(fit, DATASET, settings("model.answers_by_input=true"), folder=tmp_path / "own")
    assert "lower model.dim (8) or training.softmax_negatives (50000), raise" in str(among_everyone)


def test_another_error_is_not_taken_for_too_little_memory(monkeypatch):
    def failing(*_: Any) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(Trainer, "_step", failing)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        fit(DATASET, settings())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("after", [0, 2])
def test_a_loss_that_is_no_number_stops_with_a_sentence(monkeypatch, tmp_path, bad, after):
    epoch = Trainer.epoch

    def failing(trainer: Trainer, number: int) -> EpochReport:
        report = epoch(trainer, number)
        rehearsal = type(trainer) is not Trainer
        return replace(report, loss=bad) if rehearsal == (after == 0) and number + 1 >= after else report

    monkeypatch.setattr(Trainer, "epoch", failing)
    text = str(complaint(fit, DATASET, settings(), folder=tmp_path))
    place = "the rehearsal" if after == 0 else "epoch 2"
    assert text == f"the loss is {bad} after {place}; lower training.lr (now 0.02)"
    assert (tmp_path / CHECKPOINT).exists() == (after > 0)


def test_devices_by_name(monkeypatch):
    assert choose_device("cpu") == CPU
    assert "unknown device 'gpu'" in str(complaint(choose_device, "gpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    assert "no GPU that PyTorch can use here; choose the device cpu or auto" in str(complaint(choose_device, "cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto").type == choose_device("cuda").type == "cuda"
    assert choose_device("cpu") == CPU


def test_validations_are_due_every_so_many_epochs_and_at_the_end():
    training = TrainingConfig(epochs=7, validate_every=3)
    assert [epoch for epoch in range(1, 8) if is_due(epoch, training)] == [3, 6, 7]


def test_a_graph_that_cannot_be_trained_on_is_refused(tmp_path):
    nothing = Graph.build(DATASET.entities, DATASET.relations, TripleArray.empty())
    empty = replace(DATASET, observed=nothing, auxiliary=nothing)
    assert isinstance(complaint(fit, empty, settings()), DatasetError)
    small = world(train=[("a", "r", "b")], aux=[], valid=[], test=[])
    assert "set training.validation_rate=0" in str(complaint(fit, small, settings()))
    assert len(fit(small, settings("training.validation_rate=0")).history) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_small_graph_is_trained_on_one_thread_unless_more_are_asked_for():
    assert conditions.torch_threads(DATASET, settings(), None) == 1
    assert conditions.torch_threads(DATASET, settings(), 2) == 2
    assert conditions.torch_threads(DATASET, settings("model.dim=100000"), None) is None
    assert conditions.torch_threads(DATASET, settings("model.encoder=lstm"), 2) == 1  # whose sums threads would change
