"""``newcomer grow``: the same as the Python calls, in tables and JSON, or one sentence."""

import json
from pathlib import Path

import pytest

import newcomer
from command_line import call, sentence
from newcomer.models.bundle import write_bundle
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and a store of newcomers with recorded answers."""
    folder, dataset = tmp_path_factory.mktemp("grow"), world()
    write_bundle(folder / "model", fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    (folder / "new.tsv").write_text("zoe\tlives_in\tcity1\nzoe\tknows\tp03\n")
    assert call("add", "model", "--facts", "new.tsv", "--store", "town.db", cwd=folder).returncode == 0
    asked = ("--store", "town.db", "--relation", "citizen_of", "--top", "2", "--record")
    assert call("predict", "model", *asked, cwd=folder).returncode == 0
    assert call("answers", "--store", "town.db", "--accept", "1", cwd=folder).returncode == 0
    return folder


def test_the_next_model_and_what_it_changes_are_told(folder):
    done = call("grow", "model", "--store", "town.db", "--out", "next", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert told.startswith("training on made+store@3 ")
    assert "new 2 facts, 1 newcomer, 0 relations; position 3 of the store observed" in told
    assert "the model is in next" in told and "2 answers asked again" in told
    assert "0 more are known by now, 0 cannot be asked any more" in told
    assert newcomer.load(folder / "next").names.seen("zoe") >= 0
    assert "next: exists already" in sentence(call("grow", "model", "--store", "town.db", "--out", "next", cwd=folder))


def test_json_has_the_figures_of_python(folder):
    done = call("grow", "model", "--store", "town.db", "--out", "other", "--accepted", "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert found["dataset"] == "made+store@3" and found["model"] == "other"
    assert found["grown"] == {"position": 3, "facts": 2, "accepted": 1, "entities": 1, "relations": 0}
    assert found["again"] == newcomer.ask_again(folder / "model", folder / "other", folder / "town.db")
    assert (found["again"]["asked"], found["again"]["known"]) == (1, 1)
    silent = call(
        "grow", "model", "--store", "town.db", "--out", "other", "--force", "--again", "0", "--json", cwd=folder
    )
    assert json.loads(silent.stdout)["again"] is None


def test_what_cannot_grow_is_told(folder):
    assert "typo.db: does not exist" in sentence(call("grow", "model", "--store", "typo.db", "--out", "x", cwd=folder))
    assert not (folder / "typo.db").exists()
    inside = call("grow", "model", "--store", "town.db", "--out", "model", "--force", cwd=folder)
    assert "is or holds what is read" in sentence(inside)
