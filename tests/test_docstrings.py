"""The examples in docstrings run, and those of the public calls are there."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import newcomer
from newcomer.data import write_dataset
from newcomer.models.bundle import write_bundle
from newcomer.predictor import Predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
SOURCE = Path(newcomer.__file__).parent
MODULES = [
    ".".join(("newcomer", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small data set and a model of it, called as in the examples."""
    folder, dataset = tmp_path_factory.mktemp("examples"), world()
    write_dataset(dataset, folder / "town")
    write_bundle(folder / "people", fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    return folder


def examples(module: str) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder().find(importlib.import_module(module)) if found.examples]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module, people, monkeypatch):
    monkeypatch.chdir(people)
    model = newcomer.load("people")
    model.add([("zoe", "lives_in", "city1"), ("zoe", "knows", "p03")])
    found = examples(module)
    assert found
    for example in found:
        example.globs.update(newcomer=newcomer, model=model.copy())  # each begins with zoe alone
        said: list[str] = []
        assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize(
    "call", [name for name, value in inspect.getmembers(Predictor, inspect.isfunction) if not name.startswith("_")]
)
def test_every_call_of_a_predictor_has_an_example(call):
    assert ">>> " in (inspect.getdoc(getattr(Predictor, call)) or "")


@pytest.mark.parametrize("name", [name for name in newcomer.__all__ if inspect.isfunction(getattr(newcomer, name))])
def test_every_function_of_the_package_has_an_example(name):
    assert ">>> " in (inspect.getdoc(getattr(newcomer, name)) or "")
