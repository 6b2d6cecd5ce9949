"""``newcomer evaluate`` and ``newcomer compare``: tables and JSON, or one sentence."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import Done, call, run, sentence, with_defaults
from newcomer.data import load_dataset, write_dataset
from newcomer.data.cut import FactsCut
from newcomer.evaluation.classification import labelled
from newcomer.graph import InductiveDataset
from newcomer.models.bundle import read_bundle, write_bundle
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CORE = ["task", "dataset", "model", "protocol", "filter", "candidates", "seed", "metrics"]
MODELS: dict[str, tuple[str, list[str]]] = {
    "own": ("town", []),
    "mean": ("town", ["model.encoder=mean", "model.labels=none", "rules.kinds=", "seed=4"]),
    "everyone": ("town", ["protocol=transductive"]),
    "searched": ("town", ["training.final_fit=no"]),
    "judge": ("village", []),
    "blended": ("town", ["model.ensemble=yes", "model.constrained=no"]),
}


def with_labels(dataset: InductiveDataset) -> InductiveDataset:
    rng = np.random.default_rng(0)
    return replace(dataset, **{part: labelled(dataset, getattr(dataset, part), rng) for part in ("valid", "test")})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets and models of them, made once."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_dataset(world(), folder / "town")
    write_dataset(with_labels(world()), folder / "village")
    write_dataset(world(train=[*parts()["train"], ("q0", "citizen_of", "land2")]), folder / "all")
    for name, (data, changes) in MODELS.items():
        dataset = load_dataset(folder / data)
        fitted = fit(dataset, settings("training.epochs=1", *changes), device="cpu", threads=1)
        write_bundle(folder / name, fitted.bundle(dataset))
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "here"))


def evaluate(place: Path, *words: str | Path) -> Done:
    return call("evaluate", *with_defaults(*words, threads="1", device="cpu"), cwd=place)


def report_of(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_figures_on_the_screen_and_in_the_folder(place):
    done = evaluate(place, "own", "--rules-row", "--by", "facts", "--by", "evidence")
    assert done.returncode == 0 and done.stderr == ""
    for words in (
        "town: vn (vn, distmult), inductive protocol, seed 0",
        "model, known filter",
        "rules alone, known filter",
        "95 % interval",
        "4 queries; MRR and Hits in percent; candidates: all; ties at the mean rank",
        "By facts",
        "By evidence",
        "the report is in own/result.json",
    ):
        assert words in done.stdout, words
    assert "By relation" not in done.stdout and "ceiling" not in done.stdout and "full filter" not in done.stdout
    written = json.loads((place / "own" / "result.json").read_text())
    assert list(written)[: len(CORE)] == CORE
    expected = ["link-prediction", "town", "vn", "inductive", "known", "all", 0]
    assert [written[name] for name in CORE[:-1]] == expected
    assert f"{100 * written['metrics']['mrr']:.1f}" in done.stdout
    assert f"{100 * written['rules'][0]['metrics']['mrr']:.1f}" in done.stdout
    read_bundle(place / "own")
    assert evaluate(place, "own").returncode == 0  # the report is replaced, and does not stand in the way


def test_json_is_the_report(place):
    first, again = (report_of(evaluate(place, "own", "--json")) for _ in range(2))
    assert first | {"seconds": 0} == again | {"seconds": 0}
    assert json.loads((place / "own" / "result.json").read_text()) == again
    assert all(0 <= value <= 1 for name, value in again["metrics"].items() if name != "mr")
    other = report_of(evaluate(place, "own", "--json", "--seed", "8"))
    assert other["metrics"] == again["metrics"] and (other["seed"], other["evaluation_seed"]) == (0, 8)


def test_both_filters_and_the_ceiling_with_the_original_graph(place):
    full = report_of(evaluate(place, "own", "--filter", "full", "--full-graph", "all", "--json"))
    known = report_of(evaluate(place, "own", "--full-graph", "all", "--json"))
    assert (full["filter"], full["also"]["filter"]) == ("full", "known")
    assert (known["filter"], known["also"]["filter"]) == ("known", "full")
    assert full["also"]["metrics"] == known["metrics"] and known["also"]["metrics"] == full["metrics"]
    assert full["ceiling"] == known["ceiling"] and full["ceiling"]["metrics"]["hits@1"] == 0.875
    done = evaluate(place, "own", "--full-graph", "all")
    assert "model, full filter" in done.stdout and "By " not in done.stdout
    divided = evaluate(place, "own", "--full-graph", "all", "--by", "evidence").stdout
    assert re.search(r"By evidence, known filter +\n", divided) and re.search(r"By evidence, full filter +\n", divided)
    assert "ceiling of the known filter" in done.stdout and "87.5" in done.stdout


def test_candidates_and_ties(place):
    seen = report_of(evaluate(place, "own", "--candidates", "seen", "--ties", "pessimistic", "--json"))
    everyone = report_of(evaluate(place, "own", "--ties", "pessimistic", "--json"))
    assert (seen["candidates"], seen["ties"]) == ("seen", "pessimistic")
    assert seen["metrics"]["mr"] <= everyone["metrics"]["mr"]


def test_models_of_every_protocol_answer_the_same_questions(place):
    for name, protocol in (("everyone", "transductive"), ("searched", "inductive"), ("mean", "inductive")):
        report = report_of(evaluate(place, name, "--json"))
        assert (report["protocol"], report["queries"]) == (protocol, 4)
        assert report["unknown_relation_queries"] == 0
    assert report_of(evaluate(place, "searched", "--json"))["trained_on"] == "those who were not held out"


def test_a_model_without_rules_has_no_row_for_them(place):
    done = evaluate(place, "mean", "--rules-row")
    assert done.returncode == 0 and "rules alone" not in done.stdout
    assert done.stderr == "newcomer: the model has no rules that could be ranked by alone\n"


def test_labelled_data_are_classified(place):
    done = evaluate(place, "judge", "--by", "relation")
    assert done.returncode == 0, done.stderr
    for words in (
        "accuracy",
        "8 triples; figures in percent; true where the probability is at least a half",
        "By relation",
        "citizen_of",
    ):
        assert words in done.stdout, words
    by_scores = evaluate(place, "judge", "--thresholds", "newcomers", "--out", "newcomers.json")
    whom = "8 triples; figures in percent; thresholds from newcomers that were held out of the observed graph"
    assert whom in by_scores.stdout
    by_valid = evaluate(place, "judge", "--thresholds", "valid", "--out", "valid.json")
    assert "8 triples; figures in percent; thresholds from valid\n" in by_valid.stdout
    assert "made up" not in done.stdout
    report = json.loads((place / "judge" / "result.json").read_text())
    assert (report["task"], report["filter"], report["queries"]) == ("triple-classification", None, 8)
    ranked = report_of(evaluate(place, "judge", "--task", "link-prediction", "--json"))
    assert ranked["task"] == "link-prediction" and ranked["queries"] == 4
    assert (place / "judge" / "result-link-prediction.json").exists()
    assert json.loads((place / "judge" / "result.json").read_text())["task"] == "triple-classification"
    made_up = evaluate(place, "own", "--task", "triple-classification", "--thresholds", "valid")
    assert "valid and test without labels: as many false triples were made up, by seed 0" in made_up.stdout
    assert (place / "own" / "result-triple-classification.json").exists()
    read_bundle(place / "own")


def test_thresholds_of_another_name_or_task_are_refused(place):
    assert "unknown kind of thresholds 'newcomer'" in sentence(evaluate(place, "judge", "--thresholds", "newcomer"))
    assert "link prediction knows no --thresholds" in sentence(evaluate(place, "own", "--thresholds", "valid"))


def test_ranks_and_the_report_go_where_one_says(place):
    (place / "out").mkdir()
    words = ["--ranks", "out/ranks.parquet", "--out", "out/report.json"]
    done = evaluate(place, "own", *words)
    assert done.returncode == 0 and "the report is in out/report.json" in done.stdout
    ranks = pq.read_table(place / "out" / "ranks.parquet").column("rank").to_numpy()
    report = json.loads((place / "out" / "report.json").read_text())
    assert ranks.mean() == pytest.approx(report["metrics"]["mr"])
    assert not (place / "own" / "result.json").exists()
    assert "ranks.parquet: exists already" in sentence(evaluate(place, "own", *words))
    assert evaluate(place, "own", *words, "--force").returncode == 0


def test_pictures_are_drawn(place):
    pytest.importorskip("matplotlib")
    assert evaluate(place, "own", "--plot", "pictures", "--rules-row").returncode == 0
    assert sorted(path.name for path in (place / "pictures").iterdir()) == [
        "hits-by-facts.png",
        "ranks.png",
        "reliability.png",
    ]


def test_a_classification_has_a_reliability_diagram(place):
    pytest.importorskip("matplotlib")
    done = evaluate(place, "judge", "--plot", "judged")
    assert done.returncode == 0 and "Probabilities, before and after calibration" in done.stdout
    assert [path.name for path in (place / "judged").iterdir()] == ["reliability.png"]
    found = json.loads((place / "judge" / "result.json").read_text())["calibration"]
    error = found["triples"]["ece_after"]
    assert f" {100 * error:.1f}" in next(
        line for line in done.stdout.splitlines() if line.strip().startswith("triples")
    )


def test_without_matplotlib_nothing_is_done(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'newcomer[plots]'" in sentence(evaluate(place, "own", "--plot", "pictures"))
    assert not (place / "pictures").exists() and not (place / "own" / "result.json").exists()


def test_other_data_need_a_word(place):
    text = sentence(evaluate(place, "own", "--data", "village"))
    assert text.startswith("newcomer: village: is not the data set 'town' that own was trained on")
    allowed = evaluate(place, "own", "--data", "all", "--any-data")
    assert allowed.returncode == 0 and "this is not the data set that the model was trained on" in allowed.stdout
    (place / "town").rename(place / "moved")
    assert "no data set of that name is found here; name its place with --data" in sentence(evaluate(place, "own"))
    found = report_of(evaluate(place, "own", "--data", "moved", "--json"))
    assert found["dataset"] == "moved" and found["dataset_sha256"] == found["trained_on_sha256"]


def test_suggestions_are_measured_on_the_screen_and_in_the_folder(place):
    done = evaluate(place, "blended", "--task", "suggest", "--by", "facts", "--by", "relation")
    assert done.returncode == 0, done.stderr
    report = json.loads((place / "blended" / "result-suggest.json").read_text())
    for words in (
        "town: vn (vn, distmult), inductive protocol, seed 0",
        "rules alone",
        f"20 facts suggested about each of 4 newcomers, of whose facts {report['masked']} are masked",
        f"{report['missing']} facts are missing; right is what the data set states",
        "with the precision that the model has from 0.5 on, frequency alone would find",
        "Suggestions by probability",
        "Probabilities by command",
        "By band of probability: its mean, right (95 % interval), facts",
        "By facts: suggestions with a probability of a half at least",
        "By relation: suggestions with a probability of a half at",
        "the report is in blended/result-suggest.json",
    ):
        assert words in done.stdout, words
    assert "not calibrated" not in done.stdout and "Probabilities, before" not in done.stdout
    for name in ("recall@0.5", "right", "probability", "ece"):
        assert f" {100 * report['metrics'][name]:.1f} " in done.stdout
    for row in report["thresholds"]:
        assert re.search(rf"from {row['from']:g} +{row['suggestions']} ", done.stdout)
    percent = [f"{100 * report['verbs']['predict'][name]:.1f}" for name in ("right", "probability", "ece")]
    predicted = [f"{report['verbs']['predict']['answers']:,}", *percent]
    assert re.search(rf"predict: 10 best of each question +{' +'.join(predicted)} ", done.stdout)
    few = report["verbs"]["confidence"]["too_few"]
    assert re.search(rf"too few facts \({few['newcomers']} newcomers\) +{few['answers']} ", done.stdout)
    one = report["verbs"]["predict"]["bins"][0]
    ends = [f"{100 * one[name]:.0f}" for name in ("probability", "right", "right_low", "right_high")]
    assert f"{ends[0]}: {ends[1]} ({ends[2]} to {ends[3]}), {one['answers']:,}" in done.stdout
    assert all(len(line) <= 120 for line in table_of(done.stdout))
    read_bundle(place / "blended")
    assert evaluate(place, "blended", "--task", "suggest").returncode == 0  # the report is replaced


def table_of(text: str) -> list[str]:
    """The lines of the tables by command and by band."""
    lines = [line.rstrip() for line in text.splitlines()]
    return lines[lines.index("Probabilities by command") : lines.index("the report is in blended/result-suggest.json")]


def test_suggestions_as_json(place):
    words = ("blended", "--task", "suggest", "--by", "relation", "--json")
    first, again = (report_of(evaluate(place, *words)) for _ in range(2))
    assert first | {"seconds": 0} == again | {"seconds": 0}
    assert json.loads((place / "blended" / "result-suggest.json").read_text()) == again
    assert list(again)[: len(CORE)] == CORE
    expected = ["suggest", "town", "vn", "inductive", "known", "all", 0]
    assert [again[name] for name in CORE[:-1]] == expected
    figures = {"precision@0.5", "recall@0.5", "precision@0.9", "ece", "right", "probability", "second_values"}
    assert set(again["metrics"]) == figures and [one["name"] for one in again["others"]] == ["rules", "frequency"]
    for one in (again, *again["others"]):
        assert {"metrics", "thresholds", "by_k", "bins", "bins_first"} <= set(one) and set(one["metrics"]) == figures
        assert sum(row["answers"] for row in one["bins"]) <= again["newcomers"] * again["suggested"]
    assert all(0 <= one["recall_at_same_precision"] <= 1 for one in again["others"])
    assert set(again["verbs"]) == {"predict", "classify", "confidence"}
    assert again["by_k"][-1]["bins"] == again["bins_first"]
    assert again["calibrated"] and {row["by"] for row in again["breakdowns"]} <= {"relation"}
    assert (again["newcomers"], again["suggested"]) == (4, 20)
    few = report_of(evaluate(place, *words, "--newcomers", "2", "--seed", "5"))
    assert (few["newcomers"], few["seed"], few["evaluation_seed"]) == (2, 0, 5)


def test_suggestions_may_be_right_by_the_original_graph(place):
    words = ("blended", "--task", "suggest", "--full-graph", "all")
    full = report_of(evaluate(place, *words, "--filter", "full", "--json"))
    known = report_of(evaluate(place, *words[:3], "--json"))
    assert (full["filter"], known["filter"]) == ("full", "known")
    assert full["missing"] == known["missing"] + 1  # q0 is a citizen of a second land
    assert "right is what the full graph states" in evaluate(place, *words, "--filter", "full").stdout


def test_suggestions_have_a_picture(place):
    pytest.importorskip("matplotlib")
    assert evaluate(place, "blended", "--task", "suggest", "--plot", "pictures").returncode == 0
    assert sorted(path.name for path in (place / "pictures").iterdir()) == ["commands.png", "suggestions.png"]


def test_suggestions_of_a_model_without_validation_are_said_to_be_uncalibrated(place):
    shutil.rmtree(place / "own")
    changes = ["training.epochs=1", "training.validation_rate=0"]
    write_bundle(place / "own", fit(load_dataset(place / "town"), settings(*changes), threads=1).bundle(world()))
    done = evaluate(place, "own", "--task", "suggest", "--any-data", "--data", "town")
    assert done.returncode == 0 and "the model is not calibrated: it was trained without validation" in done.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--task", "suggest", "--candidates", "seen"], "suggest knows no --candidates; leave it out, or pass --task"),
        (["--task", "suggest", "--ties", "mean"], "suggest knows no --ties; leave it out, or pass --task link-pred"),
        (["--task", "suggest", "--rules-row"], "suggest knows no --rules-row"),
        (["--task", "suggest", "--ranks", "r.parquet"], "suggest knows no --ranks"),
        (
            ["--task", "suggest", "--thresholds", "valid"],
            "suggest knows no --thresholds; leave it out, or pass --task t",
        ),
        (["--task", "suggest", "--by", "class"], "suggest knows no --by class; leave it out, or pass --task link"),
        (["--task", "suggest", "--filter", "full"], "name it with --full-graph"),
        (["--task", "suggest", "--filter", "half"], "unknown filter 'half'"),
        (["--task", "suggest", "--newcomers", "0"], "--newcomers is 0, but must be an integer from 1"),
        (["--newcomers", "5"], "link prediction knows no --newcomers; leave it out, or pass --task suggest"),
        (["--task", "triple-classification", "--newcomers", "5"], "triple classification knows no --newcomers"),
        (["--task", "triple-classification", "--by", "facts"], "triple classification knows no --by facts"),
        (["--task", "suggests"], "unknown task 'suggests'; did you mean 'suggest'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_task_does_not_know_is_refused(made, words, problem):
    assert problem in sentence(evaluate(made, "own", *words))
    assert not (made / "own" / "result-suggest.json").exists() and not (made / "r.parquet").exists()


def test_where_nothing_of_newcomers_can_be_masked_that_is_said(place):
    bare = world(aux=[row for row in parts()["aux"] if row[1] == "lives_in"])
    write_dataset(bare, place / "bare")
    said = sentence(evaluate(place, "own", "--task", "suggest", "--data", "bare", "--any-data"))
    assert "bare has no newcomer with facts along two relations, of which one could be masked; cut a data set" in said
    assert not (place / "own" / "result-suggest.json").exists()


def cut_town(place: Path, most: int, seed: int) -> None:
    """The data set `town` again as `cut`, with an aux file that lacks what a cut withholds."""
    shutil.copytree(place / "town", place / "cut")
    kept = FactsCut(most, seed).of(load_dataset(place / "town")).auxiliary.named()
    (place / "cut" / "aux.tsv").write_text("".join("\t".join(triple) + "\n" for triple in kept))


def test_newcomers_cut_to_few_facts(place):
    words = ("--known-facts", "1", "--known-facts-seed", "2")
    found = report_of(evaluate(place, "own", *words, "--json", "--rules-row", "--by", "facts"))
    assert json.loads((place / "own" / "result.json").read_text()) == found
    assert found["known_facts"] == {"most": 1, "seed": 2, "kept": 4, "withheld": 4}
    cut_town(place, 1, 2)
    whole = ("--filter", "full", "--full-graph", "town", "--rules-row", "--by", "facts")
    by_hand = report_of(evaluate(place, "own", "--data", "cut", "--any-data", *whole, "--json"))
    assert by_hand["known_facts"] is None and by_hand["queries"] == found["queries"]
    assert by_hand["metrics"] == found["metrics"] and by_hand["calibration"] == found["calibration"]
    assert by_hand["rules"][0]["metrics"] == found["rules"][0]["metrics"]
    assert [row["group"] for row in found["breakdowns"]] == ["1"]
    done = evaluate(place, "own", *words)
    title = "town: vn (vn, distmult), inductive protocol, seed 0, newcomers cut to 1 known fact"
    assert title in " ".join(done.stdout.split())
    assert "4 of 8 auxiliary facts are known, drawn by seed 2" in done.stdout
    assert "not the data set" not in done.stdout
    judged = report_of(evaluate(place, "judge", *words, "--json"))
    assert judged["task"] == "triple-classification" and judged["known_facts"]["kept"] == 4
    assert report_of(evaluate(place, "own", "--json"))["known_facts"] is None


def test_the_draw_is_the_same_for_models_and_for_rules_alone(place):
    words = ("--known-facts", "1", "--known-facts-seed", "3", "--json")
    by_model = [report_of(evaluate(place, run_, *words))["known_facts"] for run_ in ("own", "mean")]
    done = call("rules", "evaluate", "town", "--threads", "1", *words, cwd=place)
    [by_rules] = json.loads(done.stdout)
    assert by_model[0] == by_model[1] == by_rules["known_facts"]


MISTAKES = [
    (["nowhere"], "nowhere: does not exist; give the folder of a trained model"),
    (["town"], "manifest.json: is missing; give the folder of a trained model"),
    (["own", "--task", "link-predction"], "did you mean 'link-prediction'?"),
    (["own", "--by", "fact"], "did you mean 'facts'?"),
    (["own", "--filter", "ful"], "did you mean 'full'?"),
    (["own", "--filter", "full"], "name it with --full-graph"),
    (["own", "--candidates", "unseen"], "did you mean 'seen'?"),
    (["own", "--ties", "median"], "unknown ties 'median'"),
    (["own", "--full-graph", "nowhere"], "'nowhere'"),
    (["own", "--data", "nowhere"], "'nowhere'"),
    (["own", "--device", "gpu"], "unknown device 'gpu'"),
    (["own", "--seed", "-1"], "--seed is -1, but must be an integer from 0"),
    (["own", "--known-facts", "0"], "--known-facts is 0, but must be an integer from 1"),
    (["own", "--known-facts", "2", "--known-facts-seed", "-1"], "--known-facts-seed is -1"),
    (["own", "--known-facts-seed", "1"], "say how many with --known-facts"),
    (["everyone", "--known-facts", "1"], "was trained on 4 of the 4 facts that the cut to 1 would withhold"),
    (["own", "--ranks", "ranks.csv"], "give a name that ends in .parquet"),
    (["own", "--ranks", "own/ranks.parquet"], "lies in the folder of the model"),
    (["own", "--plot", "own/pictures"], "lies in the folder of the model"),
    (["own", "--plot", "town/train.tsv"], "is not a folder"),
    (["own", "--plot", "r.json", "--out", "r.json"], "r.json: is where another output goes, too"),
    (["own", "--plot", "r.json/more", "--out", "r.json"], "r.json: is where another output goes, too"),
    (["own", "--ranks", "r.parquet", "--out", "./r.parquet"], "r.parquet: is where another output goes, too"),
    (["own", "--out", "town"], "is a folder; give the name of a file"),
    (["own", "--out", "town/train.tsv"], "exists already"),
    (["own", "--out", "own/mine.json"], "lies in the folder of the model"),
    (["judge", "--filter", "known"], "triple classification knows no --filter"),
    (["judge", "--rules-row"], "triple classification knows no --rules-row"),
    (["judge", "--by", "facts"], "triple classification knows no --by facts"),
    (["judge", "--ranks", "r.parquet"], "knows no --ranks; leave it out, or pass --task link-prediction"),
]


@pytest.mark.parametrize(("words", "problem"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_leaves_nothing(made, words, problem):
    assert problem in sentence(evaluate(made, *words))
    assert not [path for path in made.rglob("*") if path.name.startswith(("result", "ranks", "r.", "pictures"))]


def test_a_damaged_model_is_one_sentence(place):
    path = place / "own" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "weights.safetensors: has" in sentence(evaluate(place, "own"))


def compare(place: Path, *words: str | Path) -> Done:
    return call("compare", "--threads", "1", "--device", "cpu", *words, cwd=place)


def test_models_side_by_side(made):
    done = compare(made, "own", "mean", "own")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[:4] for row in rows if row and row[0] in ("own", "mean")] == [
        ["own", "vn", "inductive", "0"],
        ["mean", "mean", "inductive", "4"],
        ["own", "vn", "inductive", "0"],
    ]
    assert (
        "town, known filter, all candidates: MRR against own" in done.stdout and "protocols differ" not in done.stdout
    )
    assert not (made / "own" / "result.json").exists()


def test_comparisons_as_json(made, place):
    report = report_of(compare(made, "own", "mean", "own", "--metric", "hits@3", "--json"))
    one, two, three = report["runs"]
    assert (report["task"], report["metric"], report["filter"]) == ("link-prediction", "hits@3", "known")
    assert one["against_first"] is None and one["metrics"] == three["metrics"]
    assert (three["against_first"]["difference"], three["against_first"]["p_value"]) == (0, 1)
    assert two["against_first"]["difference"] == pytest.approx(two["value"] - one["value"])
    assert two["value"] == two["metrics"]["hits@3"]
    for run_ in report["runs"]:
        alone = report_of(evaluate(place, run_["run"], "--json"))
        assert alone["metrics"] == run_["metrics"]


def test_comparison_by_accuracy_and_across_protocols(made):
    report = report_of(compare(made, "own", "everyone", "--metric", "accuracy", "--json"))
    assert report["task"] == "triple-classification" and report["filter"] is None
    assert "accuracy" in report["runs"][0]["metrics"]
    done = compare(made, "own", "everyone", "--metric", "accuracy")
    assert "protocols differ (inductive, transductive)" in done.stdout and "town: accuracy against own" in done.stdout


def test_comparison_under_the_full_filter(made):
    report = report_of(compare(made, "own", "own", "--filter", "full", "--full-graph", "all", "--json"))
    assert report["filter"] == "full"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["own"], "a comparison needs two models"),
        (["own", "judge"], "judge: was trained on 'village', but own on 'town'"),
        (["own", "mean", "--metric", "hits@5"], "unknown metric 'hits@5'"),
        (["own", "nowhere"], "nowhere: does not exist"),
        (["own", "mean", "--filter", "full"], "name it with --full-graph"),
        (
            ["own", "mean", "--metric", "accuracy", "--candidates", "seen"],
            "triple classification knows no --candidates",
        ),
        (["own", "mean", "--data", "village"], "village: is not the data set"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_compared(made, words, problem):
    assert problem in sentence(compare(made, *words))


def test_in_a_process_of_its_own(place):
    done = run("evaluate", "own", "--json", "--threads", "1", cwd=place)
    assert report_of(done)["queries"] == 4
