"""``newcomer classify`` and ``newcomer confidence``: as the Python calls say, or one sentence."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from command_line import call, sentence
from newcomer.models.bundle import write_bundle
from newcomer.predictor import load
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FACTS = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03"), ("yan", "lives_in", "city2"), ("xi", "knows", "zoe")]
TRIPLES = [
    ("yan", "citizen_of", "land2"),
    ("p01", "lives_in", "city1"),
    ("zoe", "citizen_of", "land1"),
    ("zoe", "knows", "xi"),
    ("yan", "citizen_of", "land2"),
]


def written(path: Path, rows: list[tuple[str, str, str]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, one of them not calibrated, the facts of newcomers, and triples to judge."""
    folder, dataset = tmp_path_factory.mktemp("classify"), world()
    for name, change in (("model", "training.epochs=2"), ("plain", "training.validation_rate=0")):
        write_bundle(folder / name, fit(dataset, settings("model.ensemble=yes", change), threads=1).bundle(dataset))
    written(folder / "new.tsv", FACTS)
    written(folder / "asked.tsv", TRIPLES)
    return folder


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_verdicts_are_those_of_the_python_call_in_the_order_of_the_triples(made):
    done = call("classify", "model", "asked.tsv", "--facts", "new.tsv", "--json", cwd=made)
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    assert [(one["head"], one["relation"], one["tail"]) for one in found] == TRIPLES
    for facts, places in ((FACTS[2:3], [0, 4]), ([], [1]), ([*FACTS[:2], FACTS[3]], [2, 3])):
        model = load(made / "model")
        model.add(facts)
        for place, wanted in zip(places, model.classify([TRIPLES[place] for place in places]), strict=True):
            one = found[place]
            assert one["verdict"] == ("true" if wanted.is_true else "false") and one["calibrated"]
            assert (one["probability"], one["score"]) == pytest.approx((wanted.probability, wanted.score))


def test_together_every_newcomer_is_there_for_all(made):
    done = call("classify", "model", "asked.tsv", "--facts", "new.tsv", "--json", "--together", cwd=made)
    model = load(made / "model")
    model.add(FACTS)
    assert [one["probability"] for one in lines(done.stdout)] == pytest.approx(
        [v.probability for v in model.classify(TRIPLES)]
    )


def test_a_table_and_a_pipe(made, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"p01\tlives_in\tcity1\n")))
    done = call("classify", "model", "-", cwd=made)
    assert done.returncode == 0, done.stderr
    assert "lives_in(p01, city1)" in done.stdout and "not calibrated" not in done.stdout
    plain = call("classify", "plain", "asked.tsv", "--facts", "new.tsv", cwd=made)
    assert "the probabilities are not calibrated: the model was trained without validation" in plain.stdout


@pytest.mark.parametrize("ending", [".parquet", ".tsv", ".jsonl"])
def test_verdicts_go_to_a_file(made, ending, tmp_path):
    out = tmp_path / f"verdicts{ending}"
    words = ("classify", "model", "asked.tsv", "--facts", "new.tsv", "--out", str(out))
    assert "written 5 verdicts" in call(*words, cwd=made).stdout
    if ending == ".parquet":
        assert pq.read_table(out).column("head").to_pylist() == [row[0] for row in TRIPLES]
    elif ending == ".tsv":
        first, *rest = out.read_text().splitlines()
        assert first.split("\t") == ["head", "relation", "tail", "verdict", "probability", "score"] and len(rest) == 5
    else:
        assert {one["verdict"] for one in lines(out.read_text())} <= {"true", "false"}
    assert "exists already" in sentence(call(*words, cwd=made))
    assert call(*words, "--force", cwd=made).returncode == 0


@pytest.mark.parametrize(
    ("triple", "problem"),
    [
        (("zoe", "knows", "nobody"), "is about 'nobody', which is in neither the model nor the facts"),
        (("zoe", "know", "p03"), "'know'"),
        (("zoe", "knows", "yan"), "is about two newcomers that no fact connects; pass --together"),
    ],
)
def test_a_triple_that_cannot_be_judged_is_named_with_its_file(made, tmp_path, triple, problem):
    written(tmp_path / "bad.tsv", [*TRIPLES, triple])
    out = tmp_path / "out.jsonl"
    done = call("classify", "model", str(tmp_path / "bad.tsv"), "--facts", "new.tsv", "--out", str(out), cwd=made)
    assert "bad.tsv" in sentence(done) and problem in sentence(done)
    assert not out.exists()


def test_options_that_contradict_each_other(made):
    twice = call("classify", "model", "-", "--facts", "-", cwd=made)
    assert "standard input (`-`) is named more than once" in sentence(twice)
    both = call("classify", "model", "asked.tsv", "--json", "--out", "v.tsv", cwd=made)
    assert "choose one" in sentence(both)
    assert ".parquet" in sentence(call("classify", "model", "asked.tsv", "--out", "v.npy", cwd=made))


def test_confidence_in_words_and_as_json(made):
    done = call("confidence", "model", "--facts", "new.tsv", "--json", cwd=made)
    assert done.returncode == 0, done.stderr
    found = {one["entity"]: one for one in lines(done.stdout)}
    assert {name: one["facts"] for name, one in found.items()} == {"zoe": 3, "xi": 1, "yan": 1}
    model = load(made / "model")
    model.add(FACTS[2:3])
    wanted = model.confidence("yan")
    assert found["yan"]["enough"] == wanted.enough and found["yan"]["best"]["fact"] == list(wanted.best.fact)
    assert found["yan"]["best"]["probability"] == pytest.approx(wanted.best.probability)
    assert [one["question"] for one in found["yan"]["learn"]] == [lesson.question for lesson in wanted.learn]
    assert found["yan"]["learn"] and found["yan"]["learn"][0]["gain"] > 0
    told = call("confidence", "model", "--facts", "new.tsv", "--entity", "yan", cwd=made).stdout
    assert told.startswith("yan has 1 known fact, ") and "what would help most is" in told
    assert found["yan"]["expected"][0].keys() == {"question", "relation", "asked", "known", "applies", "missing"}
    assert [one["question"] for one in found["yan"]["expected"]] == [one.question for one in wanted.expected]
    table = told[told.index("expected of yan") :].splitlines()
    rows = [f"{one.question} {one.known} {one.applies:.2f} {one.missing:.2f}" for one in wanted.expected[:10]]
    assert [" ".join(line.split()) for line in table[4:] if line.strip()] == rows
