"""A training under limits: the first model, what is cut short, and what an interruption leaves."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import newcomer
from command_line import Done, call
from conftest import complaint, make_dataset
from newcomer.api import checkpoint_folder, is_preliminary, train_into
from newcomer.config import with_overrides
from newcomer.data import write_dataset
from newcomer.models.bundle import metrics_of, read_bundle
from newcomer.models.embedding.model import ENCODERS
from newcomer.training.checkpoint import has_checkpoint
from newcomer.training.fitted import CUT_SHORT, PRELIMINARY, Fitted
from newcomer.training.pipeline import ASKED, FEWEST, Limits, Listener, fit, questions_of_first
from newcomer.training.preparation import prepare
from newcomer.training.schedule import PROPAGATION, VECTORS, Schedule, Stage
from nn_oracle import one_thread
from reproduction_world import with_labels
from training_world import FOLDED, SMALL, StopAfter, Stopped, choosing, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
CONFIG = settings(
    *(*FOLDED, "training.optimiser=adagrad", "model.ensemble=yes", "model.propagation=yes"),
    *("training.propagation_steps=6", "training.epochs=2", "training.calibration_questions=40"),
)
PLENTY = Limits(1e9, 1e15)
NO_SEARCH = ("training.validation_rate=0",)
SET = [word for change in SMALL for word in ("--set", change)]


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first model is worth its time in any training."""
    monkeypatch.setattr("newcomer.training.pipeline.FIRST_PAYS", 0.0)


def trained(place: Path, limits: Limits | None = PLENTY, **options: Any) -> Fitted:
    return train_into(place, DATASET, CONFIG, device="cpu", threads=1, limits=limits, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def answers(place: Path) -> list[str]:
    return [one.entity for one in newcomer.load(place).tails("q0", "citizen_of", k=3)]


class Looking(Listener):
    """Asks the first model as soon as it is there."""

    found: list[str] | None = None

    def first(self, place: Path) -> None:
        self.found, self.metrics = answers(place), read_bundle(place).metrics


class StopAtFirst(Listener):
    def first(self, place: Path) -> None:
        raise Stopped


class StopAtStage(Listener):
    """Ends everything when the stage of this number begins."""

    def __init__(self, number: int = -1) -> None:
        self.number, self.stages = number, list[str]()

    def stage(self, what: str) -> None:
        self.stages.append(what)
        if len(self.stages) == self.number:
            raise Stopped


def test_the_first_model_answers_and_is_replaced_in_the_end(tmp_path, pays):
    looking, place = Looking(), tmp_path / "m"
    trained(place, report=looking)
    assert looking.found is not None and len(looking.found) == 3
    assert looking.metrics[PRELIMINARY] is True and looking.metrics["epochs"] == 1
    assert looking.metrics["trained_on"] == "everyone" and looking.metrics["calibration"]
    assert not is_preliminary(place) and PRELIMINARY not in metrics_of(place)
    assert answers(place) and [path.name for path in tmp_path.iterdir()] == ["m"]


def test_neither_generous_limits_nor_a_first_model_change_the_result(tmp_path, monkeypatch):
    looking = Looking()
    trained(tmp_path / "free", limits=None)
    trained(tmp_path / "limited", report=looking)
    assert looking.found is None  # it is all done in a moment
    monkeypatch.setattr("newcomer.training.pipeline.FIRST_PAYS", 0.0)
    trained(tmp_path / "first", report=looking)
    assert looking.found
    assert contents(tmp_path / "free") == contents(tmp_path / "limited") == contents(tmp_path / "first")


def test_a_first_model_asks_fewer_questions_where_each_takes_long():
    def asked(seconds: float, question: float) -> int:
        return questions_of_first(Schedule(CONFIG, (Stage(VECTORS, seconds),), 0.0, PLENTY, {}, question))

    assert asked(600.0, 0.001) == 30_000  # a twentieth of the time
    assert asked(1_200.0, 0.2) == 300
    assert asked(600.0, 0.2) == FEWEST == asked(600.0, 1_000.0)
    assert asked(600.0, 0.0) >= 2 * ASKED  # rules alone are not asked that way


def test_without_limits_there_is_no_first_model(tmp_path, pays):
    looking = Looking()
    trained(tmp_path / "m", limits=None, report=looking)
    assert looking.found is None


def test_what_is_interrupted_after_the_first_model_leaves_it_and_goes_on_to_the_same_end(tmp_path, pays):
    trained(tmp_path / "whole")
    with pytest.raises(Stopped):
        trained(tmp_path / "cut", report=StopAtFirst())
    assert is_preliminary(tmp_path / "cut") and len(answers(tmp_path / "cut")) == 3
    problem = complaint(trained, tmp_path / "cut")
    assert str(problem).endswith(
        "cut: holds the first model of a training that is not finished; pass --resume to go on "
        "with it, or --force to start anew"
    )
    looking = Looking()
    trained(tmp_path / "cut", limits=Limits(1e-3, 1.0), resume=True, report=looking)  # sizes stay as they began
    assert looking.found is None and contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_sizes_that_were_made_smaller_stay_when_it_goes_on_without_limits(tmp_path):
    tight = Limits(1e-3)
    trained(tmp_path / "whole", tight)
    for epochs in (1, 2):
        with pytest.raises(Stopped):
            trained(tmp_path / str(epochs), tight, report=StopAfter(epochs))
        trained(tmp_path / str(epochs), None, resume=True)
        assert contents(tmp_path / str(epochs)) == contents(tmp_path / "whole")
    small = read_bundle(tmp_path / "whole").config
    assert small.training.epochs == 1 and small.model.propagation is False


def test_an_interruption_anywhere_leaves_nothing_or_what_can_be_gone_on_with(tmp_path, pays):
    listener = StopAtStage()
    trained(tmp_path / "whole", report=listener)
    wanted, begins = contents(tmp_path / "whole"), listener.stages.index("ranking by the rules alone") + 1
    assert "making a first model" in listener.stages
    for number in range(1, len(listener.stages) + 1):
        place = tmp_path / str(number)
        with pytest.raises(Stopped):
            trained(place, report=StopAtStage(number))
        folder = place.with_name(f"{number}.training")
        assert (
            has_checkpoint(folder) == folder.exists() == is_preliminary(place) == place.exists() == (number >= begins)
        )
        if number >= begins:
            trained(place, resume=True)
            assert contents(place) == wanted, listener.stages[number - 1]


def test_a_first_model_takes_the_place_of_no_finished_one(tmp_path, pays):
    looking, place = Looking(), tmp_path / "m"
    trained(place)
    before = contents(place)
    trained(place, report=looking, force=True)
    assert looking.found is None
    with pytest.raises(Stopped):
        trained(place, report=StopAfter(1), force=True)
    assert contents(place) == before and not is_preliminary(place)


def test_a_first_model_without_its_training_is_replaced_only_by_force(tmp_path, pays):
    with pytest.raises(Stopped):
        trained(tmp_path / "m", report=StopAtFirst())
    for path in (tmp_path / "m.training").iterdir():
        path.unlink()
    (tmp_path / "m.training").rmdir()
    problem = complaint(checkpoint_folder, tmp_path / "m", resume=False, force=False)
    assert str(problem).endswith("is not finished; pass --force to start anew")
    assert trained(tmp_path / "m", force=True) and not is_preliminary(tmp_path / "m")


def test_what_was_cut_short_stays_so(tmp_path, monkeypatch):
    monkeypatch.setattr("newcomer.training.schedule.OVERRUN", 0.0)
    monkeypatch.setattr("newcomer.training.schedule.GRACE", 0.0)
    monkeypatch.setattr("newcomer.training.propagation.PropagationTrainer.WARM_STEPS", 0.5)
    whole = trained(tmp_path / "whole", Limits(1e9))
    cut = {VECTORS: 1, f"{PROPAGATION}, search": 1, f"{PROPAGATION}, final": 1}
    assert whole.metrics[CUT_SHORT] == metrics_of(tmp_path / "whole")[CUT_SHORT] == cut
    assert [(one["phase"], one["epoch"]) for one in whole.history] == [("search", 1), ("final", 1)]
    assert whole.metrics["validation"]["epoch"] == 1
    listener = StopAtStage()
    trained(tmp_path / "again", Limits(1e9), report=listener)
    for stage in ("learning the weights of the ensemble", "calibrating probabilities", "final"):
        place = tmp_path / stage
        with pytest.raises(Stopped):
            trained(place, Limits(1e9), report=StopAtStage(listener.stages.index(stage) + 1))
        resumed = trained(place, None, resume=True)
        assert {VECTORS, f"{PROPAGATION}, search"} <= set(resumed.metrics[CUT_SHORT])
        assert resumed.metrics["validation"] == whole.metrics["validation"]


def test_nothing_is_cut_short_in_time(tmp_path):
    assert CUT_SHORT not in trained(tmp_path / "m").metrics


def train(folder: Path, *words: str) -> Done:
    return call("train", "town", *SET, "--out", "m", "--threads", "1", *words, cwd=folder)


@pytest.fixture
def town(tmp_path: Path) -> Path:
    write_dataset(DATASET, tmp_path / "town")
    return tmp_path


def test_too_little_time_and_memory_still_end_with_a_model_and_a_sentence(town):
    done = train(town, "--time", "0.001s", "--memory", "1M")
    assert done.returncode == 0, done.stderr
    assert "to fit: training.epochs = 1 instead of 4" in done.stderr
    assert "the smallest sizes take longer than that, too: the time limit will not be kept" in done.stderr
    assert "the smallest sizes need more memory than that, too" in done.stderr
    assert answers(town / "m") and read_bundle(town / "m").config.training.epochs == 1


def test_a_program_reads_json_alone(town):
    done = train(town, "--time", "0.001s", "--json")
    summary = json.loads(done.stdout)
    assert summary["epochs"] == 1 and "cut_short" in summary and "to fit: " in done.stderr


def test_what_ended_early_is_told(town, monkeypatch):
    monkeypatch.setattr("newcomer.training.schedule.OVERRUN", 0.0)
    monkeypatch.setattr("newcomer.training.schedule.GRACE", 0.0)
    assert "ended early, for lack of time: vectors, after 1 epochs" in train(town, "--time", "1h").stdout
    assert train(town, "--time", "none", "--force").stdout.count("ended early") == 0


def test_an_interrupted_command_says_where_the_first_model_is(town, pays, monkeypatch):
    class Ending(Listener):
        def epoch(self, *_: Any) -> None:
            raise SystemExit(130)

    monkeypatch.setattr("newcomer.cli.train.watching", lambda: nullcontext(Ending()))
    done = train(town)
    assert done.returncode == 130
    first, second = done.stderr.splitlines()
    assert first == "newcomer: a first model is in m"
    assert second.startswith("newcomer: the training is kept in m.training; go on with: newcomer train")


@pytest.mark.parametrize("facts", [1, 3])
def test_a_few_facts_are_trained_on_under_any_limit(tmp_path, facts):
    rows = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "d")][:facts]
    model = newcomer.train(make_dataset(train=rows), time_limit=1e-3, memory_limit=1, out=tmp_path / "m")
    assert model.tails("a", "r", k=1)


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_every_encoder_is_made_to_fit(encoder):
    config = settings(*choosing(encoder), "model.dim=16", "training.epochs=3")
    found = fit(DATASET, config, device="cpu", threads=1, limits=Limits(1e-3), first=lambda _: None)
    assert found.metrics["epochs"] == found.config.training.epochs == 1


@pytest.mark.parametrize("change", ["protocol=transductive", "protocol=refreshed", "training.final_fit=no", *NO_SEARCH])
def test_every_way_to_train_is_made_to_fit(tmp_path, pays, change):
    looking = Looking()
    found = train_into(
        tmp_path / "m", DATASET, with_overrides(CONFIG, [change]), threads=1, limits=Limits(1e-3), report=looking
    )
    assert found.config.training.epochs == 1
    assert len(newcomer.load(tmp_path / "m").tails("city0", "city_in", k=3)) == 3
    assert (looking.found is not None) == change.startswith("protocol")


def test_false_triples_and_given_rules_are_no_obstacle(tmp_path, pays):
    labelled, looking = with_labels(DATASET), Looking()
    rules = prepare(labelled, CONFIG, threads=1).rules
    train_into(tmp_path / "m", labelled, CONFIG, rules=rules, threads=1, limits=Limits(1e-3), report=looking)
    assert looking.found and not is_preliminary(tmp_path / "m")


@pytest.mark.parametrize("limits", [{"time_limit": 0}, {"time_limit": -1.0}, {"memory_limit": 0}, {"time_limit": "1m"}])
def test_limits_in_python_are_numbers_above_zero(tmp_path, limits):
    problem = str(complaint(newcomer.train, DATASET, out=tmp_path / "m", **limits))
    assert "but must be a number of" in problem and not list(tmp_path.iterdir())
