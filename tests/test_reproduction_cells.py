"""Cells on tiny data: run once, skipped, done anew, gone on with, copied; and what their files say."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import newcomer.reproduction.cells as module
from conftest import complaint, evaluate
from newcomer.config import config_hash
from newcomer.data import load_dataset, write_dataset
from newcomer.data.describe import neighbours_per_predicted_fact
from newcomer.graph import Overlay
from newcomer.models.bundle import dataset_hash
from newcomer.reproduction.cells import commit, core_of, rules_report, statistics_report
from newcomer.reproduction.page import page_of
from newcomer.reproduction.sources import Sources, stated_about
from newcomer.reproduction.stored import changed_settings, read_result, read_results, write_result
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.training.checkpoint import CHECKPOINT, claimed
from nn_oracle import one_thread
from reproduction_world import make_data, runner, small_cells
from training_world import StopAfter, Stopped, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CORE = ["task", "dataset", "model", "protocol", "filter", "candidates", "seed", "metrics"]
VN = "fb15k-subject-10-vn-inductive-0"
TIMES = ("seconds", "epoch_seconds", "resumed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def without_times(report: dict) -> dict:
    kept = {name: value for name, value in report.items() if name not in TIMES}
    if "training" in kept:
        kept["training"] = {name: value for name, value in kept["training"].items() if name not in TIMES}
    return kept


def test_a_trained_cell_says_what_it_is_and_how_it_came_about(made, results):
    (cell,) = small_cells("link-prediction", VN)
    runs = runner(results, made)
    assert runs.status(cell).state == "open"
    report = runs.run(cell)
    assert read_result(results, cell) == report
    expected = ["link-prediction", "fb15k-subject-10", "vn", "inductive", "known", "all", 0]
    assert [report[name] for name in CORE[:-1]] == expected
    assert report["also"]["filter"] == "full" and report["ceiling"]["filter"] == "known"
    assert set(report["intervals"]) == set(report["metrics"]) == {"mr", "mrr", "hits@1", "hits@3", "hits@10"}
    assert report["queries"] == 4 and set(report["also"]) == {"filter", "metrics", "intervals", "unlinked"}
    assert report["settings"]["preset"] == "paper-fb15k" and "model.dim=8" in report["overrides"]
    assert report["config_sha256"] == config_hash(cell.config) and report["settings"] == cell.config.to_dict()
    assert report["dataset_sha256"] == dataset_hash(load_dataset(made / "fb15k-subject-10"))
    assert report["training"]["epochs"] == 1 and report["training"]["validation"]["model"]["mrr"] > 0
    assert report["training"]["resumed"] is False and "history" not in report["training"]
    assert (report["table"], report["label"]) == ("link-prediction", "vn")
    assert report["device"] == "cpu" and report["dataset_origin"] == "files"
    assert not (results / ".work" / cell.name).exists()
    assert (results / ".work" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("label", "changed"),
    [("default", "it was run with other settings (training.propagation_steps)"), ("default-cpu", "")],
)
def test_how_long_paths_would_have_been_learned_matters_only_where_they_were(label, changed):
    (cell,) = small_cells("link-prediction", f"fb15k-subject-10-{label}-inductive-0")
    stored = json.loads(json.dumps({"settings": cell.settings, "config_sha256": "0" * 64}))
    assert changed_settings(stored, cell) == ""
    stored["settings"]["training"]["propagation_steps"] += 1
    assert changed_settings(stored, cell) == changed


@pytest.mark.parametrize(
    ("now", "changed"), [(15_000, ""), (9_000, "it was run with other settings (training.softmax_negatives)")]
)
def test_more_softmax_negatives_than_entities_are_all(now, changed):
    (cell,) = small_cells(
        "link-prediction", "fb15k-subject-10-default-inductive-0", changes=(f"training.softmax_negatives={now}",)
    )
    stored = json.loads(json.dumps({"settings": cell.settings, "config_sha256": "0" * 64}))
    for then in (50_000, None):
        stored["settings"]["training"]["softmax_negatives"] = then
        assert changed_settings(stored, cell) == changed


def test_a_finished_cell_is_done_until_settings_or_data_change(made, results, tmp_path):
    (cell,) = small_cells("link-prediction", "fb15k-object-10-mean-inductive-0")
    runner(results, made).run(cell)
    assert runner(results, made).status(cell).state == "done"
    (other,) = small_cells("link-prediction", "fb15k-object-10-mean-inductive-0", changes=("training.lr=0.5",))
    found = runner(results, made).status(other)
    assert found.state == "changed" and found.why == "it was run with other settings (training.lr)"
    data = Path(shutil.copytree(made, tmp_path / "data"))
    shutil.rmtree(data / "fb15k-object-10")
    assert runner(results, data).status(cell).state == "done"  # what cannot be compared is believed
    missing = runner(results, data).status(other)
    assert missing.state == "absent" and "newcomer data get fb15k-object-10" in missing.why
    write_dataset(world(test=[("q1", "citizen_of", "land1")]), data / "fb15k-object-10")
    found = runner(results, data).status(cell)
    assert found.state == "changed" and "other data" in found.why
    again = runner(results, data).run(cell)
    assert again["queries"] == 1 and runner(results, data).status(cell).state == "done"


def test_a_killed_training_goes_on_and_ends_the_same(made, results, tmp_path):
    (cell,) = small_cells("link-prediction", VN, changes=("training.epochs=3",))
    whole = runner(tmp_path / "whole", made).run(cell)
    with pytest.raises(Stopped):
        runner(results, made, StopAfter(2)).run(cell)
    folder = results / ".work" / cell.name / "training"
    assert (folder / CHECKPOINT).exists() and not read_results(results)
    messages: list[str] = []
    assert runner(results, made).status(cell).state == "open"
    report = runner(results, made, messages=messages).run(cell)
    assert messages == ["going on with the training that was begun"]
    assert report["training"]["resumed"] is True
    assert without_times(report) == without_times(whole)


def test_a_training_of_other_settings_is_not_gone_on_with(made, results):
    (cell,) = small_cells("link-prediction", VN, changes=("training.epochs=3",))
    with pytest.raises(Stopped):
        runner(results, made, StopAfter(2)).run(cell)
    (other,) = small_cells("link-prediction", VN, changes=("training.lr=0.5",))
    messages: list[str] = []
    report = runner(results, made, messages=messages).run(other)
    assert len(messages) == 1 and "starts anew" in messages[0] and "training." in messages[0]
    assert report["training"]["resumed"] is False and report["settings"]["training"]["lr"] == 0.5


def test_a_model_that_was_not_measured_is_not_trained_again(made, results, monkeypatch):
    (cell,) = small_cells("link-prediction", VN)
    with monkeypatch.context() as patch:
        patch.setattr(module, "rank_test", _stopped)
        with pytest.raises(Stopped):
            runner(results, made).run(cell)
    monkeypatch.setattr(module, "fit", _stopped)
    assert runner(results, made).run(cell)["metrics"]["mrr"] > 0
    (other,) = small_cells("link-prediction", VN, changes=("model.dim=4",))
    with pytest.raises(Stopped):
        runner(results, made).run(other)


def _stopped(*arguments, **options):
    raise Stopped


def test_a_cell_that_another_process_works_on_is_left_alone(made, results):
    (cell,) = small_cells("link-prediction", VN)
    with claimed(results / ".work" / cell.name / "training"):
        assert runner(results, made).status(cell).state == "busy"
    assert runner(results, made).status(cell).state == "open"


def test_the_same_cell_of_another_table_is_taken_over(made, results, monkeypatch):
    (cell,) = small_cells("link-prediction", VN)
    runs = runner(results, made)
    first = runs.run(cell)
    (twin,) = small_cells("ablation", "vn-full")
    (other,) = small_cells("ablation", "vn-hard")
    monkeypatch.setattr(module, "fit", _stopped)
    report = runs.run(twin)
    assert report["same_as"] == cell.name and report["metrics"] == first["metrics"]
    assert (report["table"], report["label"]) == ("ablation", "vn-full")
    assert runs.status(twin).state == "done"
    with pytest.raises(Stopped):
        runs.run(other)


def test_classification_goes_by_probabilities_and_says_how_far_probabilities_can_be_believed(made, results):
    (cell,) = small_cells("classification", "wn11-subject-1000-vn-inductive")
    report = runner(results, made).run(cell)
    assert report["task"] == "triple-classification" and report["filter"] is None
    assert 0 <= report["metrics"]["accuracy"] <= 1 and "accuracy" in report["intervals"]
    assert report["made_up_negatives"] == [] and report["queries"] == 8
    assert report["thresholds"] == "probabilities" and set(report["calibration"]["triples"]) == {
        "ece_before",
        "ece_after",
    }


def test_the_default_model_is_measured_in_parts(made, results):
    (cell,) = small_cells("link-prediction", "fb15k-subject-10-default-inductive-0")
    report = runner(results, made).run(cell)
    assert report["model"] == report["settings"]["preset"] == "default"
    assert [figures["filter"] for figures in report["embedding"]] == ["known", "full"]
    assert [figures["filter"] for figures in report["rules"]] == ["known", "full"]


def test_suggestions_are_measured_by_command_and_shown_on_the_page(made, results):
    (cell,) = small_cells("suggestions", "fb15k-subject-10-default-cpu-inductive-0")
    report = runner(results, made).run(cell)
    assert (report["task"], report["filter"]) == ("suggest", "full") and report == read_result(results, cell)
    assert set(report["verbs"]) == {"predict", "classify", "confidence"} and len(report["by_k"]) == 3
    assert {"answers", "right", "right_low", "right_high"} <= set(report["verbs"]["predict"]["bins"][0])
    page = page_of([report], "results")
    assert "By command (default-cpu, inductive, seed 0):" in page and "| predict: 10 best of each question |" in page


def test_without_the_original_graph_there_is_one_filter(made, tmp_path, results):
    shutil.copytree(made / "fb15k-subject-10", tmp_path / "data" / "fb15k-subject-10")
    (cell,) = small_cells("link-prediction", "subject-10-rules-inductive")
    report = runner(results, tmp_path / "data").run(cell)
    assert "also" not in report and report["ceiling"] is None
    both = runner(tmp_path / "more", made).run(cell)
    assert both["metrics"] == report["metrics"] and both["also"]["filter"] == "full"


def test_rules_alone_rank_as_the_ranker_does(made, results):
    (cell,) = small_cells("link-prediction", "fb15k-subject-10-rules-inductive")
    dataset = load_dataset(made / "fb15k-subject-10")
    rules = mine_rules(dataset.observed, MiningPlan(min_head_coverage=0.0, min_confidence=0.01)).rules
    expected = evaluate(dataset, RuleScorer(RuleRanker.of(rules), Overlay.of_dataset(dataset)))
    report = rules_report(cell, dataset, None, 1)
    assert report["rule_count"] == len(rules) > 0
    assert report["metrics"]["mrr"] == pytest.approx(expected.metrics()["mrr"])
    known, unknown = core_of(cell), ("filter", "candidates", "metrics")
    assert all(report[name] == value for name, value in known.items() if name not in unknown)
    (refreshed,) = small_cells("link-prediction", "fb15k-subject-10-rules-refreshed", protocol="refreshed")
    # The newcomers' facts are mined too: no rule has fewer facts behind it, and some have more.
    assert rules_report(refreshed, dataset, None, 1)["rule_count"] >= report["rule_count"]
    assert runner(results, made).run(cell)["settings"]["mining"]["kinds"] == ["one", "two", "both"]


def test_statistics_count_rows_and_neighbours(made):
    (cell,) = small_cells("statistics", "fb15k-subject-10-rules")
    source = Sources(made).get("fb15k-subject-10")
    report = statistics_report(cell, source, 1)
    dataset = source.dataset
    assert [report["counts"][name] for name in ("train", "aux", "valid", "test", "newcomers")] == [72, 8, 6, 4, 4]
    assert report["metrics"] == {} and list(report)[: len(CORE)] == CORE
    ratios = report["neighbours"]
    assert ratios["before"] == neighbours_per_predicted_fact(dataset, dataset.auxiliary.degrees) == 2
    # lives_in and city_in give each newcomer its country.
    assert ratios["after"] >= ratios["by_logic_rules"] == 3
    whole = Sources(made).get("fb15k")
    assert statistics_report(cell, whole, 1)["neighbours"] is None


def test_sets_that_are_not_published_are_cut(made, tmp_path):
    sources = Sources(made)
    source = sources.get("fb15k-subject-15")
    assert source.origin == "cut from fb15k (subject, 15 %, seed 0)"
    assert source.dataset.name == "fb15k-subject-15" and len(source.dataset.test_newcomers)
    assert sources.digest("fb15k-subject-15") == Sources(made).digest("fb15k-subject-15")
    assert sources.full_graph("fb15k-subject-15") is not None
    given = Path(shutil.copytree(made, tmp_path / "data"))
    write_dataset(replace(world(), name="own"), given / "fb15k-subject-15")
    assert Sources(given).get("fb15k-subject-15").origin == "files"
    (given / "fb15k-subject-15" / "train.tsv").write_text("a\tb\n")
    complaint(Sources(given).get, "fb15k-subject-15")  # a broken one is not replaced in silence
    assert stated_about("fb15k-object-5")["original"] == "fb15k" and stated_about("wn11-both-1000") == {}
    assert "stand-in" in stated_about("yago37-partial-subject-10")["note"] and "note" not in stated_about(
        "fb15k-subject-10"
    )


def test_sources_without_a_root_look_where_names_are_looked_for(made, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEWCOMER_DATA", str(made))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Sources().get("fb15k-object-10").dataset.name == "fb15k-object-10"
    assert "newcomer data get wn11-both-1000" in str(complaint(Sources().get, "wn11-both-1000"))
    text = str(complaint(Sources(made).get, "yago37-subject-10"))
    assert "yago37: is not there" in text


def test_files_that_are_no_results_are_refused(results):
    results.mkdir()
    path = results / "ablation.json"
    path.write_text("{")
    assert "is no file of results" in str(complaint(read_results, results))
    path.write_text(json.dumps([{"table": "decoders", "cell": "decoders-y"}]))
    assert "of this name" in str(complaint(read_results, results))
    row = {"table": "ablation", "cell": "ablation-y"}
    for changed in ({"intervals": {"mrr": [0.1, 0.2, 0.1]}}, {"also": {"intervals": {"mrr": 0.1}}}, {"intervals": 3}):
        path.write_text(json.dumps([row | changed]))
        text = str(complaint(read_results, results))
        assert "in ablation-y is" in text and "must have two ends" in text


def test_results_of_a_table_share_a_file_with_a_row_a_cell(results):
    first, second = ({"table": "ablation", "cell": f"ablation-{name}", "seed": 0} for name in "ab")
    for one in (second, first, {**second, "seed": 1}, {"table": "decoders", "cell": "decoders-c"}):
        write_result(one, results)
    assert sorted(path.name for path in results.iterdir()) == ["ablation.json", "decoders.json"]
    assert len((results / "ablation.json").read_text().splitlines()) == 4
    assert read_results(results)[:2] == [first, {**second, "seed": 1}]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert "choose another --results" in str(complaint(write_result, {"table": "ablation"}, tmp_path / "file" / "in"))


def test_the_commit_is_that_of_the_program(monkeypatch, tmp_path):
    monkeypatch.setenv("NEWCOMER_COMMIT", "f" * 40)  # a copy, whose checkout may be another
    assert commit() == {"id": "f" * 40, "changed": None}
    monkeypatch.delenv("NEWCOMER_COMMIT")
    found = commit()
    assert found is None or (len(found["id"]) == 40 and isinstance(found["changed"], bool))
    monkeypatch.setattr(module.newcomer, "__file__", str(tmp_path / "newcomer" / "__init__.py"))
    assert commit() is None


def test_seeds_differ(made, results):
    first, second = (runner(results, made).run(cell) for cell in small_cells("ablation", "vn-structure", seeds=2))
    assert (first["seed"], second["seed"]) == (0, 1)
    assert not np.isclose(
        first["training"]["validation"]["model"]["mrr"], second["training"]["validation"]["model"]["mrr"]
    )
