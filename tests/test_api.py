"""Training, evaluating and mining by one call each, and what the command line and these calls have in common."""

import json

import pytest

import newcomer
from command_line import call
from conftest import complaint
from newcomer.api import evaluate, mine_rules, train
from newcomer.data import write_dataset
from newcomer.data.cut import FactsCut
from newcomer.errors import DatasetError, OptionError, OutputError
from training_world import settings, world

QUICK = ["model.dim=8", "training.epochs=2", "training.batches=3"]


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    write_dataset(world(), folder / "town")
    train(folder / "town", settings(), out=folder / "model", device="cpu")
    return folder


def test_a_trained_model_is_kept_where_asked_and_its_checkpoints_go(town):
    assert (town / "model" / "manifest.json").is_file()
    assert not (town / "model.training").exists()
    assert str(newcomer.load(town / "model")).startswith("Predictor(33 seen entities, 4 newcomers")


def test_an_existing_model_is_replaced_only_when_asked(town):
    assert isinstance(complaint(train, town / "town", settings(), out=town / "model"), OutputError)
    assert isinstance(complaint(train, world(), settings(), out=town / "other", resume=True), OptionError)


def test_without_a_folder_the_model_is_in_memory_alone(town, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = train(town / "town", settings=QUICK)
    assert model.tails("q0", "citizen_of", k=1)
    assert list(tmp_path.iterdir()) == []


def test_the_command_reports_what_the_call_reports(town):
    report = evaluate(town / "model", town / "town", by=["relation"], parts=True, cut=FactsCut(1), device="cpu")
    words = ("--by", "relation", "--rules-row", "--known-facts", "1", "--device", "cpu", "--json")
    done = call("evaluate", "model", "--data", "town", *words, "--out", "report.json", cwd=town)
    printed = json.loads(done.stdout)
    for one in (report, printed):
        one.pop("seconds")
    assert printed == report


def test_another_data_set_than_the_one_trained_on_is_refused(town):
    other = world(test=[("q0", "citizen_of", "land1")])
    assert isinstance(complaint(evaluate, town / "model", other), DatasetError)
    assert evaluate(town / "model", other, any_data=True)["queries"] == 1


def test_rules_of_a_graph_a_data_set_and_a_folder_are_the_same(town):
    data = world()
    texts = [mine_rules(source).texts(data.relations, data.entities) for source in (data, data.observed, town / "town")]
    assert texts[0] and texts[0] == texts[1] == texts[2]
