"""``newcomer predict``, ``suggest``, ``explain``, ``embed``, ``similar``: as the Python calls say, or one sentence."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import call, sentence
from newcomer.bundle import write_bundle
from newcomer.predictor import load
from newcomer.training.fit import fit
from nn_oracle import one_thread
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FACTS = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03"), ("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and the facts of two newcomers."""
    folder = tmp_path_factory.mktemp("predict")
    dataset = world()
    write_bundle(folder / "model", fit(dataset, settings("model.evidence=yes"), threads=1).bundle(dataset))
    (folder / "new.tsv").write_text("".join("\t".join(fact) + "\n" for fact in FACTS))
    return folder


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_answers_are_those_of_the_python_call_with_their_reasons(made):
    done = call("predict", "model", "--facts", "new.tsv", "--relation", "citizen_of", "--top", "3", "--json", cwd=made)
    assert done.returncode == 0, done.stderr
    model = load(made / "model")
    model.add(FACTS)
    found = lines(done.stdout)
    assert {line["entity"] for line in found} == {"zoe", "yan"}
    for name in ("zoe", "yan"):
        own = [line for line in found if line["entity"] == name]
        expected = model.tails(name, "citizen_of", 3)
        assert [line["answer"] for line in own] == [answer.entity for answer in expected]
        assert [line["rank"] for line in own] == [1, 2, 3]
        assert [line["truth"] for line in own] == pytest.approx([answer.truth for answer in expected])
        assert [len(line["because"]) for line in own] == [len(answer.because) for answer in expected]
    best = next(line for line in found if line["entity"] == "zoe" and line["answer"] == "land1")
    assert ["zoe", "lives_in", "city1"] in [premise for reason in best["because"] for premise in reason["premises"]]


def test_heads_are_asked_for_along_the_relation(made):
    done = call(
        "predict",
        "model",
        "--facts",
        "new.tsv",
        "--entity",
        "zoe",
        "--relation",
        "knows",
        "--heads",
        "--json",
        cwd=made,
    )
    model = load(made / "model")
    model.add(FACTS)
    assert [line["answer"] for line in lines(done.stdout)] == [a.entity for a in model.heads("knows", "zoe")]
    assert {line["asked"] for line in lines(done.stdout)} == {"head"}


def test_tables_name_question_answer_and_reason(made):
    done = call("predict", "model", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", cwd=made)
    assert done.returncode == 0 and "citizen_of(zoe, ?)" in done.stdout and "because" in done.stdout


def test_seen_entities_can_be_asked_about_without_any_facts(made):
    done = call("predict", "model", "--entity", "p04", "--relation", "citizen_of", "--json", "--top", "1", cwd=made)
    assert len(lines(done.stdout)) == 1


def test_facts_come_from_a_pipe_as_well(made, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO((made / "new.tsv").read_bytes())))
    words = ("suggest", "model", "--entity", "zoe", "--top", "4", "--json")
    piped = call(*words, "--facts", "-", cwd=made)
    assert piped.returncode == 0 and piped.stdout == call(*words, "--facts", "new.tsv", cwd=made).stdout
    facts = [line["fact"] for line in lines(piped.stdout)]
    assert len(facts) == 4 and all("zoe" in (fact[0], fact[2]) for fact in facts)


def test_a_bad_line_from_a_pipe_is_named_as_such(made, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"zoe\tknows\n")))
    assert "standard input, line 1: 2 columns" in sentence(call("suggest", "model", "--facts", "-", cwd=made))


def test_reasons_are_told_in_words(made):
    done = call("explain", "model", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", cwd=made)
    assert done.returncode == 0
    assert "citizen_of(zoe, land1), truth" in done.stdout
    assert "because lives_in(zoe, city1) and city_in(city1, land1); rule " in done.stdout
    assert "the network looked most at " in done.stdout


@pytest.mark.parametrize("ending", ["parquet", "tsv", "npy"])
def test_vectors_are_written_as_the_python_call_gives_them(made, tmp_path, ending):
    out = tmp_path / f"vectors.{ending}"
    done = call("embed", made / "model", "--facts", made / "new.tsv", "--out", out)
    assert done.returncode == 0 and done.stdout == f"written 2 vectors of 8 numbers to {out}\n"
    model = load(made / "model")
    model.add(FACTS)
    if ending == "parquet":
        table = pq.read_table(out)
        names, vectors = table["entity"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)
    elif ending == "tsv":
        rows = [line.split("\t") for line in out.read_text().splitlines()]
        names, vectors = [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float32)
    else:
        names, vectors = (tmp_path / "vectors.names.txt").read_text().splitlines(), np.load(out)
    for name, vector in zip(names, vectors, strict=True):
        np.testing.assert_allclose(vector, model.embed(name), rtol=1e-6)
    assert sorted(names) == ["yan", "zoe"]
    before = out.read_bytes()
    again = call("embed", made / "model", "--facts", made / "new.tsv", "--out", out)
    assert "exists already" in sentence(again) and out.read_bytes() == before


def test_the_most_alike_are_those_of_the_python_call(made):
    done = call("similar", "model", "zoe", "--facts", "new.tsv", "--top", "2", cwd=made)
    model = load(made / "model")
    model.add(FACTS)
    assert all(name in done.stdout for name, _ in model.similar("zoe", 2))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("predict", "model", "--relation", "citizen_of"), "there is nobody to ask about"),
        (("predict", "model", "--entity", "nobody", "--relation", "citizen_of"), "nobody"),
        (("predict", "model", "--facts", "new.tsv", "--relation", "citizen_off"), "did you mean 'citizen_of'?"),
        (("predict", "nothing", "--entity", "zoe", "--relation", "knows"), "nothing: does not exist"),
        (("suggest", "model", "--facts", "missing.tsv"), "missing.tsv"),
        (("suggest", "model", "--facts", "new.tsv", "--top", "0"), "at least 1"),
        (("embed", "model", "--facts", "new.tsv", "--out", "v.csv"), "written as .parquet, .tsv or .npy"),
    ],
)
def test_a_mistake_is_one_sentence(made, words, complaint):
    assert complaint in sentence(call(*words, cwd=made))


def test_a_fact_with_an_unknown_relation_is_refused_or_skipped(made, tmp_path):
    odd = tmp_path / "odd.tsv"
    odd.write_text((made / "new.tsv").read_text() + "zoe\tlikes\tcity1\n")
    words = ("predict", made / "model", "--facts", odd, "--entity", "zoe", "--relation", "citizen_of", "--json")
    assert "likes" in sentence(call(*words))
    skipped = call(*words, "--on-unknown-relation", "skip")
    assert skipped.returncode == 0 and "skipped 1 fact" in skipped.stderr
