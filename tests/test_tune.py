"""Searching settings: spaces that are data, trials that follow from the seed, a study that survives being killed."""

import math
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint
from newcomer.config import Config, load_preset, read_config, with_overrides
from newcomer.errors import InputError, MissingExtraError, OptionError, OutputError
from newcomer.training import tune as tuning
from newcomer.training.checkpoint import Figures, RunState
from newcomer.training.holdout import HoldOut
from newcomer.training.pipeline import fit
from newcomer.training.search_space import FIXED, Space, load_space, space_names, space_of, with_settings
from newcomer.training.tune import BEST, GRID, STUDY, TPE, TRIALS, Budget, Search, Trial, Watcher, remove_search, tune
from nn_oracle import one_thread
from training_world import Stopped, citizen, lives, settings, world

pytest.importorskip("optuna")
on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
SMALL = settings("training.epochs=2", "training.validate_every=1", "rules.walks=5")
WIDE = space_of(
    "made", {"model": {"dim": {"choices": [4, 8]}}, "training": {"lr": {"low": 0.001, "high": 0.1, "log": True}}}
)
GRID_OF_FOUR = space_of(
    "four", {"model": {"dim": {"low": 4, "high": 8, "step": 4}, "dropout": {"choices": [0.0, 0.2]}}}
)
Outcome = tuple[str, float | None, int, dict[str, Any]]


def search(
    folder: Path, trials: int = 4, space: Space = WIDE, config: Config = SMALL, never_pruned: int = 5, **options: Any
) -> Search:
    return tune(DATASET, config, space, folder, budget=Budget(trials, never_pruned=never_pruned), **options)


def outcomes(found: Search) -> list[Outcome]:
    """What must not depend on when and how often a search was stopped."""
    return [(one.state, one.mrr, one.epochs, dict(one.settings)) for one in found.trials if one.state != "interrupted"]


def rows(folder: Path) -> list[dict[str, str]]:
    names, *lines = (line.split("\t") for line in (folder / TRIALS).read_text().splitlines())
    return [dict(zip(names, line, strict=True)) for line in lines]


class StopIn(Watcher):
    """Ends everything in the first epoch of this trial."""

    def __init__(self, place: int) -> None:
        self.place, self.now = place, 0

    def begins(self, place: int, goal: int, settings: Any) -> None:
        self.now = place

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        if self.now == self.place:
            raise Stopped


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Search]:
    folder = tmp_path_factory.mktemp("whole") / "search"
    return folder, search(folder)


def test_every_trial_is_a_search_phase_that_mines_for_itself(whole):
    _, found = whole
    assert found.method == TPE and found.counted == 4 and found.states["complete"] == 4
    for one in found.trials:
        config = with_settings(SMALL, {**one.settings, "training.final_fit": False})
        assert fit(DATASET, config).metrics["validation"]["model"]["mrr"] == one.mrr
    assert len({one.settings["training.lr"] for one in found.trials}) == 4


@pytest.mark.parametrize("protocol", ["refreshed", "transductive"])
def test_rules_mined_once_are_those_of_each_trial_under_every_protocol(tmp_path, protocol):
    config = with_overrides(SMALL, [f"protocol={protocol}"])
    (one,) = search(tmp_path / "s", 1, config=config).trials
    alone = fit(DATASET, with_settings(config, {**one.settings, "training.final_fit": False}))
    assert one.mrr == alone.metrics["validation"]["model"]["mrr"] and len(alone.model.rules)


def test_rules_are_mined_once_unless_trials_differ_in_them(tmp_path, monkeypatch):
    mined, plain = [], tuning.mined_rules
    monkeypatch.setattr(tuning, "mined_rules", lambda *given: mined.append(1) or plain(*given))
    search(tmp_path / "a", 2)
    assert len(mined) == 1
    search(tmp_path / "e", 2, space_of("ensemble", {"model": {"ensemble": {"choices": [True, False]}}}))
    search(tmp_path / "l", 2, space_of("labels", {"model": {"labels": {"choices": ["none", "soft"]}}}))
    assert len(mined) == 1
    space = space_of("kinds", {"rules": {"kinds": {"choices": [[], ["one"], ["one", "two"]]}}})
    found = search(tmp_path / "b", 3, space)
    assert len(mined) == 1 and found.method == GRID
    assert sorted(one.settings["rules.kinds"] for one in found.trials) == [[], ["one"], ["one", "two"]]
    assert {row["rules.kinds"] for row in rows(tmp_path / "b")} == {"", "one", "one,two"}
    assert found.config_of(found.trials[0]).rules.kinds == tuple(found.trials[0].settings["rules.kinds"])


def test_the_same_seed_tries_the_same_and_another_does_not(whole, tmp_path):
    _, found = whole
    assert outcomes(search(tmp_path / "again")) == outcomes(found)
    other = search(tmp_path / "other", config=replace(SMALL, seed=1))
    assert [one.settings for one in other.trials] != [one.settings for one in found.trials]


def test_neither_test_nor_the_newcomers_facts_are_looked_at(whole, tmp_path):
    aux = [lives("q0", 5), ("q0", "knows", "p07"), lives("q1", 2)]
    other = world(aux=aux, test=[citizen("q0", 2), citizen("q1", 0)])
    found = tune(other, SMALL, WIDE, tmp_path / "s", budget=Budget(4))
    assert outcomes(found) == outcomes(whole[1])


def test_the_files_say_what_was_found(whole):
    folder, found = whole
    assert sorted(path.name for path in folder.iterdir()) == [BEST, STUDY, TRIALS]
    best = max(found.trials, key=lambda one: one.mrr or 0)
    assert found.ranked[0] == best and len(found.ranked) == 4
    assert read_config(folder / BEST) == found.config_of(best)
    assert read_config(folder / BEST).training.final_fit and found.config_of(best).preset == "default"
    assert "of 4 trials (4 complete) in " in (folder / BEST).read_text().splitlines()[0]
    table = rows(folder)
    assert [row["number"] for row in table] == ["0", "1", "2", "3"]
    assert list(table[0]) == ["number", "state", "mrr", "epochs", "seconds", "model.dim", "training.lr"]
    for row, one in zip(table, found.trials, strict=True):
        assert (row["state"], row["epochs"]) == ("complete", "2")
        assert float(row["mrr"]) == pytest.approx(one.mrr, abs=1e-6)
        assert float(row["training.lr"]) == one.settings["training.lr"]


def test_final_fit_stays_as_it_was(tmp_path):
    search(tmp_path / "s", 1, config=with_overrides(SMALL, ["training.final_fit=false"]))
    assert not read_config(tmp_path / "s" / BEST).training.final_fit


@pytest.mark.parametrize("space", [WIDE, GRID_OF_FOUR], ids=lambda space: space.name)
def test_interrupted_and_resumed_it_tries_the_same(tmp_path, space):
    whole = search(tmp_path / "whole", space=space)
    for place in (2, 2, 4):
        resume = (tmp_path / "cut").exists()
        with pytest.raises(Stopped):
            search(tmp_path / "cut", space=space, resume=resume, report=StopIn(place))
        assert len([row for row in rows(tmp_path / "cut") if row["state"] == "complete"]) == place - 1
    cut = search(tmp_path / "cut", space=space, resume=True)
    assert outcomes(cut) == outcomes(whole)
    assert cut.states == {"complete": 4, "pruned": 0, "failed": 0, "repeated": 0, "interrupted": 3}
    assert read_config(tmp_path / "cut" / BEST) == read_config(tmp_path / "whole" / BEST)


def test_a_finished_search_takes_more_trials(whole, tmp_path):
    first = search(tmp_path / "s", 2)
    assert search(tmp_path / "s", 2, resume=True).trials == first.trials
    assert search(tmp_path / "s", 1, resume=True).trials == first.trials
    (tmp_path / "s" / BEST).unlink()  # as a kill between two files leaves it
    assert outcomes(search(tmp_path / "s", 4, resume=True)) == outcomes(whole[1])
    assert (tmp_path / "s" / BEST).exists()


def test_a_grid_that_fits_is_tried_whole_and_no_more(tmp_path):
    found = search(tmp_path / "s", 50, GRID_OF_FOUR)
    assert found.method == GRID and found.counted == 4
    tried = {(one.settings["model.dim"], one.settings["model.dropout"]) for one in found.trials}
    assert tried == {(4, 0.0), (4, 0.2), (8, 0.0), (8, 0.2)}


def test_settings_that_are_drawn_again_are_not_trained_again(tmp_path):
    space = space_of("three", {"model": {"dim": {"choices": [4, 6, 8]}}})
    assert search(tmp_path / "s", 1, space).method == TPE  # the grid does not fit
    found = search(tmp_path / "s", 8, space, resume=True)
    assert found.method == TPE and found.counted == 8
    trained = [one for one in found.trials if one.state == "complete"]
    again = [one for one in found.trials if one.state == "repeated"]
    assert len(trained) <= 3 and len(trained) + len(again) == 8
    figures = {one.settings["model.dim"]: one.mrr for one in trained}
    assert all(one.mrr == figures[one.settings["model.dim"]] and one.epochs == 0 for one in again)
    assert found.ranked == sorted(trained, key=lambda one: -(one.mrr or 0))


class Rigged(Watcher):
    """Lets every model of a trial be as good as told, at all of its validations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *figures: float) -> None:
        self.figures, self.now = figures, 0.0
        monkeypatch.setattr(HoldOut, "ranking_metrics", lambda *_: {"mrr": self.now, "mr": 1.0})

    def begins(self, place: int, goal: int, settings: Any) -> None:
        self.now = self.figures[place - 1]


def test_a_trial_below_the_median_is_given_up_and_nothing_stays_behind(tmp_path, monkeypatch):
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), torch.get_rng_state()
    report = Rigged(monkeypatch, 0.5, 0.4, 0.7, 0.55)
    found = search(tmp_path / "s", 4, never_pruned=1, report=report)
    assert [(one.state, one.mrr, one.epochs) for one in found.trials] == [
        ("complete", 0.5, 2),
        ("pruned", 0.4, 1),
        ("complete", 0.7, 2),
        ("pruned", 0.55, 1),
    ]
    assert found.ranked[0].number == 2 and found.states["pruned"] == 2
    assert rows(tmp_path / "s")[1]["state"] == "pruned" and rows(tmp_path / "s")[1]["mrr"] == "0.400000"
    assert before[:2] == (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())
    assert torch.equal(before[2], torch.get_rng_state())


def test_no_trial_is_given_up_in_its_first_quarter(tmp_path, monkeypatch):
    config = with_overrides(SMALL, ["training.epochs=8", "training.patience=99"])
    found = search(tmp_path / "s", 2, config=config, never_pruned=1, report=Rigged(monkeypatch, 0.5, 0.1))
    assert [(one.state, one.epochs) for one in found.trials] == [("complete", 8), ("pruned", 2)]


def test_the_first_trials_are_never_given_up(tmp_path, monkeypatch):
    figures = (0.9, 0.8, 0.7, 0.6, 0.5)
    found = search(tmp_path / "s", 5, never_pruned=4, report=Rigged(monkeypatch, *figures))
    assert [one.state for one in found.trials] == ["complete"] * 4 + ["pruned"]


def test_a_signal_waits_for_the_end_of_work_on_the_study():
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with tuning._signals_deferred():
            signal.raise_signal(signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
        with pytest.raises(KeyError), tuning._signals_deferred():
            signal.raise_signal(signal.SIGTERM)
            raise KeyError
        assert came == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)
    with ThreadPoolExecutor(1) as pool:  # where handlers cannot be set
        assert pool.submit(lambda: tuning._signals_deferred().__enter__()).result() is None


def test_settings_that_do_not_work_are_a_failed_trial(tmp_path):
    space = space_of("odd", {"model": {"dim": {"choices": [3, 4]}}})
    found = search(tmp_path / "s", 2, space, with_overrides(SMALL, ["model.decoder=complex"]))
    assert found.states["failed"] == 1 and found.states["complete"] == 1 and found.counted == 2
    failed = next(one for one in found.trials if one.state == "failed")
    assert failed.problem == "model.dim is 3, but must be even for the decoder complex"
    assert failed.mrr is None and found.ranked[0].settings == {"model.dim": 4}
    diverging = space_of("lr", {"training": {"lr": {"choices": [1e30]}}})
    lost = search(tmp_path / "t", 2, diverging, with_overrides(SMALL, ["model.decoder=transe"]))
    assert [one.state for one in lost.trials] == ["failed"] and "lower training.lr" in lost.trials[0].problem
    assert not lost.ranked and not (tmp_path / "t" / BEST).exists()


def test_no_trial_begins_after_the_time_limit(tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    found = tune(DATASET, SMALL, WIDE, tmp_path / "s", budget=Budget(9, seconds=4.5))
    assert found.counted == 2  # looked at 1 (and 2, 3 in the trial), 4 (5, 6), 7


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config": with_overrides(SMALL, ["model.layers=2"])}, "was started with model.layers = 1, not 2"),
        ({"config": replace(SMALL, preset="mean")}, "was started with preset = default, not mean"),
        ({"config": replace(SMALL, seed=3)}, "was started with seed = 0, not 3"),
        ({"space": GRID_OF_FOUR}, 'was started with a space where model.dim is {"choices": [4, 8]}, not {"low": 4, '),
        ({"dataset": world(valid=[citizen("p00", 0), citizen("p04", 4)])}, "was started with data of the SHA-256"),
        ({"dataset": replace(DATASET, name="other")}, "was started with the data set made, not other"),
    ],
    ids=["setting", "preset", "seed", "space", "data", "name"],
)
def test_another_search_is_not_continued(whole, changes, problem):
    folder, _ = whole
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    wanted: dict[str, Any] = {"dataset": DATASET, "config": SMALL, "space": WIDE, **changes}
    error = complaint(tune, **wanted, folder=folder, resume=True)
    assert isinstance(error, InputError) and problem in str(error) and "or start anew with --force" in str(error)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_another_version_is_not_continued(whole, monkeypatch):
    monkeypatch.setattr(tuning, "__version__", "99.0")
    assert "was started with newcomer 0." in str(complaint(search, whole[0], resume=True))


def test_places(whole, tmp_path):
    folder, _ = whole
    assert "pass --resume to go on with it, or --force to start anew" in str(complaint(search, folder))
    assert "there is no search to resume" in str(complaint(search, tmp_path / "none", resume=True))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "one.tex").write_text("years of work")
    for force in (False, True):
        error = complaint(search, tmp_path / "thesis", force=force)
        assert isinstance(error, OutputError) and "'one.tex', which no search wrote" in str(error)
    assert (tmp_path / "thesis" / "one.tex").exists()
    assert "is not a folder" in str(complaint(search, tmp_path / "thesis" / "one.tex"))
    remove_search(tmp_path / "none")


def test_force_starts_anew_but_not_over_a_mistake(tmp_path):
    search(tmp_path / "s", 1)
    before = (tmp_path / "s" / STUDY).read_bytes()
    complaint(search, tmp_path / "s", force=True, device="gpu")
    assert (tmp_path / "s" / STUDY).read_bytes() == before
    (tmp_path / "s" / f".{BEST}.123.partial").write_text("cut off")
    assert search(tmp_path / "s", 1, GRID_OF_FOUR, force=True).space == GRID_OF_FOUR
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [BEST, STUDY, TRIALS]


def test_a_study_that_is_none_is_one_sentence(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / STUDY).write_bytes(b"no database at all" * 100)
    error = complaint(search, tmp_path / "s", resume=True)
    assert isinstance(error, InputError) and "cannot be worked with (file is not a database)" in str(error)


def test_a_path_with_odd_characters(tmp_path):
    folder = tmp_path / "50% {of} it? #1"
    assert search(folder, 1).counted == 1 and (folder / STUDY).exists()
    assert search(folder, 2, resume=True).counted == 2


def test_before_anything_runs(tmp_path, monkeypatch):
    def refused(**options: Any) -> str:
        text = str(complaint(search, tmp_path / "s", **options))
        assert list(tmp_path.iterdir()) == []
        return text

    assert "a search needs newcomers" in refused(config=with_overrides(SMALL, ["training.validation_rate=0"]))
    tiny = world(train=[("a", "r", "b")], valid=[], aux=[("q", "r", "a")], test=[("q", "r", "b")])
    assert "no newcomers to validate on" in str(complaint(tune, tiny, SMALL, WIDE, tmp_path / "s"))
    assert "unknown device 'gpu'" in refused(device="gpu")
    assert "must be at least 1" in str(complaint(Budget, 0))
    for seconds in (0.0, -1.0, math.nan):
        assert "must be above 0" in str(complaint(Budget, 1, seconds))
    monkeypatch.setitem(sys.modules, "optuna", None)
    error = complaint(search, tmp_path / "s")
    assert isinstance(error, MissingExtraError) and "pip install 'newcomer[tune]'" in str(error)


def test_how_much_was_searched_in_words():
    trials = (Trial(0, "complete", 0.5, 2, 1.4), Trial(1, "interrupted", None, 0, 0.0), Trial(2, "pruned", 0.1, 1, 0.4))
    found = Search("town", WIDE, SMALL, TPE, trials)
    expected = "2 trials (1 complete, 1 pruned, 1 interrupted) in 2 s; space made, tpe, seed 0"
    assert found.in_words() == expected


def test_the_spaces_that_ship():
    assert space_names() == ("paper", "wide")
    paper, wide = load_space("paper"), load_space("wide")
    assert paper.grid_size() == 150 == len(list(paper.grid())) and wide.grid_size() is None
    assert {point["model.dim"] for point in paper.grid()} == {100, 150, 200, 250, 300}
    assert {*paper.names, "model.layers", "model.decoder", "training.newcomer_share"} < {*wide.names}
    for point in paper.grid():
        with_settings(load_preset("paper-fb15k"), point)


def test_a_space_of_ones_own(put):
    path = put("mine.toml", 'model.dim = { low = 2, high = 8, step = 2 }\ntraining.fanout.choices = ["none", 4]\n')
    space = load_space(str(path))
    assert space.name == "mine" and space.names == ("model.dim", "training.fanout") and space.grid_size() == 8
    assert with_settings(SMALL, {"training.fanout": "none"}).training.fanout is None
    assert space_of("again", {"model": {"dim": space.stated["model.dim"]}}).dimensions == space.dimensions[:1]


BAD_SPACES = [
    ("model.dimm.choices = [1]", "unknown setting 'model.dimm'; did you mean 'model.dim'?"),
    ("lr.choices = [1]", "unknown setting 'lr'; did you mean 'training.lr'?"),
    ("[modle.dim]\nchoices = [1]", "did you mean 'model'?"),
    ("training.learning_rate.choices = [1]", "did you mean 'training.lr'?"),
    ("", "names no setting to search"),
    ("[model]", "names no setting to search"),
    ("model = 3", "model is 3"),
    ("model.dim = 3", "model.dim is 3, but must be a table with choices, or with low and high"),
    ("model.dim.choices = []", "must be a list with at least one value"),
    ("model.dim.choices = 100", "must be a list with at least one value"),
    ("model.dim.choices = [100, 100]", "must name each value once"),
    ("model.dim.choices = [100, 'many']", "model.dim is 'many', but must be a whole number"),
    ("model.dim.choices = [0]", "model.dim is 0, but must be at least 1"),
    ("model.decoder.choices = ['distmult', 'dismult']", "did you mean 'distmult'?"),
    ("model.dim = { choices = [1], low = 1 }", "has choices and ['low']; leave out the one or the other"),
    ("model.dim = { chioces = [1] }", "unknown part of model.dim 'chioces'; did you mean 'choices'?"),
    ("model.dim = { low = 1 }", "model.dim has ['low'], but must have choices, or low and high"),
    ("model.dim = { low = 8, high = 4 }", "model.dim.low is 8, but must be below model.dim.high (4)"),
    ("model.dim = { low = 0, high = 4 }", "model.dim is 0, but must be at least 1"),
    ("model.dim = { low = 1.5, high = 4 }", "model.dim is 1.5, but must be a whole number"),
    ("model.dim = { low = 1, high = 4, step = 0.5 }", "model.dim.step is 0.5, but must be a whole number"),
    ("model.dim = { low = 1, high = 4, step = 2 }", "must lead from 1 to 4 in whole steps"),
    ("model.dim = { low = 1, high = 4, step = 0 }", "must lead from 1 to 4 in whole steps"),
    ("model.dropout = { low = 0.1, high = 0.4, step = 0.25 }", "must lead from 0.1 to 0.4 in whole steps"),
    ("model.dim = { low = 1, high = 4, step = 1, log = true }", "has step and log; leave out the one or the other"),
    ("training.l2 = { low = 0, high = 1, log = true }", "training.l2.low is 0, but must be above 0 where log is true"),
    ("training.l2 = { low = 1, high = 2, log = 1 }", "training.l2.log is 1, but must be true or false"),
    ("training.l2 = { low = 1, high = inf }", "must be a finite number"),
    ("training.l2 = { low = 1, high = 2, step = inf }", "must be finite"),
    ("training.fanout = { low = 'none', high = 2 }", "training.fanout.low is 'none', but must be a whole number"),
    ("model.decoder = { low = 1, high = 2 }", "is no number, so low and high do not fit; write choices = [...]"),
    ("model.residual = { low = 0, high = 1 }", "is no number, so low and high do not fit; write choices = [...]"),
    ("model.dim", "is not TOML"),
    *((f"{name}.choices = [1, 2]", f"{name} cannot be searched") for name in FIXED),
]


@pytest.mark.parametrize(("text", "problem"), BAD_SPACES, ids=[text[:40] for text, _ in BAD_SPACES])
def test_a_bad_space_is_one_sentence_that_names_the_file(put, text, problem):
    path = put("space.toml", text)
    error = complaint(load_space, str(path))
    assert isinstance(error, InputError) and problem in str(error)


def test_a_space_that_is_not_there(tmp_path):
    error = complaint(load_space, "papr")
    assert isinstance(error, OptionError)
    assert "unknown space 'papr'; did you mean 'paper'? known: paper, wide, or a file that ends in .toml" in str(error)
    assert "nowhere.toml: cannot be read" in str(complaint(load_space, "nowhere.toml"))
    assert "cannot be read" in str(complaint(load_space, str(tmp_path)))
    (tmp_path / "latin.toml").write_bytes(b"# \xe4")
    assert "is not TOML" in str(complaint(load_space, str(tmp_path / "latin.toml")))


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 9), st.sampled_from([0.05, 0.1, 0.15]), st.integers(1, 5))
def test_a_grid_has_every_value_once_and_ends_where_it_says(low, step, steps, width, widths):
    stated = {
        "model": {
            "dim": {"low": low, "high": low + step * steps, "step": step},
            "dropout": {"low": 0.0, "high": round(width * widths, 2), "step": width},
        }
    }
    space = space_of("made", stated)
    points = list(space.grid())
    assert space.grid_size() == len(points) == len({tuple(one.items()) for one in points}) == (steps + 1) * (widths + 1)
    assert {one["model.dim"] for one in points} == set(range(low, low + step * steps + 1, step))
    assert {one["model.dropout"] for one in points} == {round(width * place, 2) for place in range(widths + 1)}
    assert space.stated == {f"model.{name}": entry for name, entry in stated["model"].items()}


def test_a_wide_range_is_counted_without_being_listed():
    space = space_of("huge", {"training": {"batches": {"low": 1, "high": 10**15}}})
    assert space.grid_size() == 10**15
    assert space_of("log", {"training": {"batches": {"low": 1, "high": 9, "log": True}}}).grid_size() is None
