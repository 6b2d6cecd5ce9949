"""``newcomer predict``, ``suggest``, ``explain``, ``embed``, ``similar``: as the Python calls say, or one sentence."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from command_line import call, sentence
from newcomer.cli import answer_files
from newcomer.cli.predict import LISTED
from newcomer.errors import OptionError
from newcomer.models import device
from newcomer.models.bundle import write_bundle
from newcomer.models.propagation.scorer import PropagationScorer
from newcomer.predictor import Explanation, Grounding, NewcomerBatches, Predictor, load, predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import FOLDED, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FACTS = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03"), ("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and the facts of two newcomers."""
    folder = tmp_path_factory.mktemp("predict")
    dataset = world()
    write_bundle(folder / "model", fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
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
        assert [line["probability"] for line in own] == pytest.approx([answer.probability for answer in expected])
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
    model = load(made / "model")
    model.add(FACTS)
    best, told = model.tails("zoe", "citizen_of", k=1)[0], " ".join(done.stdout.split())
    assert done.returncode == 0 and told.startswith("citizen_of(zoe, ?) answer probability if any reason")
    assert f" {best.entity} {best.probability:.2f} {best.if_any:.2f} {best.because}" in told and "; rule " in str(
        best.because
    )


def test_answers_may_be_of_some_probability_a_class_or_a_relation_only(made):
    words = ("suggest", "model", "--facts", "new.tsv", "--entity", "zoe", "--top", "30")
    model = load(made / "model")
    model.add(FACTS)
    every = model.suggest("zoe", 30)
    least = every[2].probability
    found = lines(call(*words, "--min-probability", str(least), "--json", cwd=made).stdout)
    assert [line["fact"] for line in found] == [list(one.fact) for one in every if one.probability >= least]
    assert 3 <= len(found) < len(every) and all(line["probability"] >= least for line in found)
    knows = [line["fact"] for line in lines(call(*words, "--relations", "knows", "--json", cwd=made).stdout)]
    assert {fact[1] for fact in knows} == {"knows"} and {fact.index("zoe") for fact in knows} == {0, 2}
    asked = ("predict", "model", "--entity", "p04", "--relation", "knows", "--types", "city1")
    of_city = [line["answer"] for line in lines(call(*asked, "--json", cwd=made).stdout)]
    assert of_city == [one.entity for one in load(made / "model").tails("p04", "knows", types=["city1"])] != []


def test_where_no_answer_is_likely_enough_that_is_said(made):
    words = ("--facts", "new.tsv", "--entity", "zoe", "--min-probability", "1")
    assert call("suggest", "model", *words, cwd=made).stdout == "likely missing of zoe: none\n"
    for verb in ("predict", "explain"):
        assert call(verb, "model", *words, "--relation", "knows", cwd=made).stdout == "knows(zoe, ?): none\n"
    assert call("explain", "model", *words, "--json", cwd=made).stdout == ""
    for wrong in ("1.5", "-0.1"):
        told = sentence(call("suggest", "model", *words[:-1], wrong, cwd=made))
        assert told == f"newcomer: --min-probability is {wrong}, but must be a number from 0 to 1"


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


def test_reasons_are_given_in_words(made):
    done = call("explain", "model", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", cwd=made)
    assert done.returncode == 0
    assert "citizen_of(zoe, land1), probability" in done.stdout
    assert "  speaks for: lives_in(zoe, city1) and city_in(city1, land1); rule " in done.stdout
    assert "its vector fits that of zoe, which rests most on " in done.stdout and "  speaks against: " in done.stdout


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


def test_the_most_alike_of_many_are_lines_or_a_file(made, tmp_path):
    words = ("similar", "model", "--facts", "new.tsv", "--top", "2")
    found = lines(call(*words, "--json", cwd=made).stdout)
    model = load(made / "model")
    model.add(FACTS)
    expected = [
        {"entity": name, "rank": rank, "similar": other, "cosine": cosine}
        for name in ("zoe", "yan")
        for rank, (other, cosine) in enumerate(model.similar(name, 2), 1)
    ]
    assert found == expected
    named = lines(call(*words, "--json", "p04", "--entity", "zoe", cwd=made).stdout)
    assert named[:2] == expected[:2] and [line["entity"] for line in named] == ["zoe", "zoe", "p04", "p04"]
    for ending in ("parquet", "tsv", "jsonl"):
        done = call(*words, "--out", tmp_path / f"s.{ending}", cwd=made)
        assert done.stdout == f"written 4 answers to {tmp_path / f's.{ending}'}\n"
    assert pq.read_table(tmp_path / "s.parquet").to_pylist() == lines((tmp_path / "s.jsonl").read_text()) == expected
    assert (tmp_path / "s.tsv").read_text().splitlines()[0] == "entity\trank\tsimilar\tcosine"
    assert "there is no entity to query" in sentence(call("similar", "model", cwd=made))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("predict", "model", "--relation", "citizen_of"), "there is no entity to query"),
        (("predict", "model", "--entity", "nobody", "--relation", "citizen_of"), "nobody"),
        (("predict", "model", "--facts", "new.tsv", "--relation", "citizen_off"), "did you mean 'citizen_of'?"),
        (("predict", "nothing", "--entity", "zoe", "--relation", "knows"), "nothing: does not exist"),
        (("suggest", "model", "--facts", "missing.tsv"), "missing.tsv"),
        (("suggest", "model", "--facts", "new.tsv", "--top", "0"), "--top is 0, but must be an integer from 1"),
        (("similar", "model", "p01", "--top", "-1"), "--top is -1, but must be an integer from 1"),
        (("draw", "model", "p01", "--out", "a.png", "--top", "0"), "--top is 0, but must be an integer from 1"),
        (("embed", "model", "--facts", "new.tsv", "--out", "v.csv"), "written as .parquet, .tsv or .npy"),
        (("predict", "model", "--facts", "new.tsv", "--heads"), "name the relation with --relation"),
        (("suggest", "model", "--facts", "new.tsv", "--out", "a.xlsx"), "written as .parquet, .tsv or .jsonl"),
        (("suggest", "model", "--facts", "new.tsv", "--out", "a.tsv", "--json"), "choose one"),
        (("suggest", "model", "--facts", "new.tsv", "--format", "nt"), "the format of a file follows from its ending"),
        (("suggest", "model", "--facts", "-", "--format", "xml"), "unknown format 'xml'"),
        (("suggest", "model", "--facts", "new.tsv", "--relations", "know"), "did you mean 'knows'?"),
        (("suggest", "model", "--facts", "new.tsv", "--types", "city11"), "city11"),
        (("predict", "model", "--facts", "new.tsv", "--relation", "knows", "--types", "nowhere"), "nowhere"),
        (
            ("suggest", "model", "--facts", "new.tsv", "--min-probability", "1.5"),
            "--min-probability is 1.5, but must be",
        ),
        (("predict", "model", "--facts", "new.tsv", "--min-probability", "-0.1"), "a number from 0 to 1"),
        (("explain", "model", "--facts", "new.tsv", "--min-probability", "nan"), "a number from 0 to 1"),
        (("predict", "model", "--facts", "-", "--questions", "-"), "standard input (`-`) is named more than once"),
        (
            ("predict", "model", "--questions", "new.tsv"),
            "new.tsv, line 1: ('zoe', 'lives_in', 'city1') is no query",
        ),
        (("predict", "model", "--questions", "new.tsv", "--relation", "knows"), "leave out --relation"),
    ],
)
def test_a_mistake_is_one_sentence(made, words, complaint):
    assert complaint in sentence(call(*words, cwd=made))


def test_only_facts_that_are_wanted_are_suggested(made):
    words = ("suggest", "model", "--facts", "new.tsv", "--entity", "zoe", "--top", "999", "--json")
    everything = lines(call(*words, cwd=made).stdout)
    along = lines(call(*words, "--relations", "knows", "--relations", "citizen_of", cwd=made).stdout)
    assert {line["fact"][1] for line in everything} > {line["fact"][1] for line in along} == {"knows", "citizen_of"}
    facts = [line["fact"] for line in along]
    assert {fact[0] == "zoe" for fact in facts if fact[1] == "knows"} == {True, False}  # in both directions
    assert facts == [line["fact"] for line in everything if line["fact"][1] in ("knows", "citizen_of")]
    least = everything[5]["probability"]
    likely = lines(call(*words, "--min-probability", repr(least), cwd=made).stdout)
    assert likely == [line for line in everything if line["probability"] >= least]
    assert 6 <= len(likely) < len(everything)
    residents = {"q1", *(f"p{i:02}" for i in range(1, 24, 6))}
    of_city = lines(call(*words, "--types", "city1", "--relations", "knows", cwd=made).stdout)
    others = {end for line in of_city for end in line["fact"][::2] if end != "zoe"}
    assert others and others <= residents
    either = lines(call(*words, "--types", "city1", "--types", "land1", "--relations", "knows", cwd=made).stdout)
    assert len(either) > len(of_city)
    assert call(*words[:-1], "--min-probability", "1", cwd=made).returncode == 0


def test_only_answers_that_are_wanted_are_predicted(made):
    words = ("predict", "model", "--facts", "new.tsv", "--entity", "zoe", "--top", "99", "--json")
    asked = (*words, "--relation", "knows")
    everything = lines(call(*asked, cwd=made).stdout)
    least = everything[2]["probability"]
    likely = lines(call(*asked, "--min-probability", repr(least), cwd=made).stdout)
    kept = [line for line in everything if line["probability"] >= least]
    assert likely == [{**line, "rank": rank} for rank, line in enumerate(kept, 1)]
    assert 3 <= len(kept) < len(everything)
    of_city = lines(call(*asked, "--types", "city1", cwd=made).stdout)
    model = load(made / "model")
    model.add(FACTS)
    assert [line["answer"] for line in of_city] == [
        one.entity for one in model.tails("zoe", "knows", 99, types=["city1"])
    ]
    assert of_city and len(of_city) < len(everything)
    assert [line["rank"] for line in of_city] == list(range(1, len(of_city) + 1))
    explained = lines(call("explain", *asked[1:], "--types", "city1", cwd=made).stdout)
    assert [line["answer"] for line in explained] == [line["answer"] for line in of_city]
    anything = lines(call(*words, "--types", "city1", "--min-probability", "0.0001", cwd=made).stdout)
    assert anything and all(line["probability"] >= 0.0001 for line in anything)


def test_a_fact_with_an_unknown_relation_is_refused_or_skipped(made, tmp_path):
    odd = tmp_path / "odd.tsv"
    odd.write_text((made / "new.tsv").read_text() + "zoe\tlikes\tcity1\n")
    words = ("predict", made / "model", "--facts", odd, "--entity", "zoe", "--relation", "citizen_of", "--json")
    assert "likes" in sentence(call(*words))
    skipped = call(*words, "--on-unknown-relation", "skip")
    assert skipped.returncode == 0 and "skipped 1 fact" in skipped.stderr


@pytest.mark.parametrize(
    "verb", ["predict", "suggest", "explain", "confidence", "similar", "classify", "embed", "draw"]
)
def test_a_query_is_answered_on_the_device_that_is_named(made, tmp_path, monkeypatch, verb):
    (made / "triples.tsv").write_text("zoe\tknows\tp03\n")
    named = {"classify": ["triples.tsv"], "draw": ["zoe"]}.get(verb, [])
    out = {"embed": ["--out", tmp_path / "v.tsv"], "draw": ["--out", tmp_path / "d.png"]}.get(verb, [])
    words = (verb, "model", *named, "--facts", "new.tsv", *out)
    asked = list[str]()
    monkeypatch.setattr(device, "choose_device", lambda name: asked.append(name) or torch.device("cpu"))
    monkeypatch.setattr(predictor, "choose_device", device.choose_device)
    for chosen in ([], ["--device", "cuda"]):
        assert call(*words, *chosen, *(["--force"] if out else []), cwd=made).returncode == 0
    assert asked == ["cpu", "cuda"]


WRONG = {
    ("zoe", "livesin", "city1"): "the model knows no relation 'livesin'; did you mean 'lives_in'?; mend it, or leave",
    ("p01", "knows", "p02"): "('p01', 'knows', 'p02') is about two entities that the model was trained on, and not",
    ("  ", "knows", "p02"): "('  ', 'knows', 'p02') has the name '  '; give words that are not empty",
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("ending", ["tsv", "tsv.gz", "csv", "nt", "parquet"])
def test_a_wrong_fact_is_named_with_its_line(made, tmp_path, wrong, ending):
    plain, file = tmp_path / "plain.tsv", tmp_path / f"odd.{ending}"
    plain.write_text("".join("\t".join(fact) + "\n" for fact in [*FACTS, wrong, ("ann", "likes", "city2")]))
    assert call("data", "convert", plain, file).returncode == 0
    if ending == "csv":  # a header, and a name that goes on over two lines
        file.write_text('head,relation,tail\n"a\nb",knows,p03\n' + file.read_text())
    line = {"csv": "line 8", "parquet": "row 5"}.get(ending, "line 5")
    joint = ": " if ending == "parquet" else ", "
    done = call("predict", made / "model", "--facts", file, "--relation", "citizen_of", "--out", tmp_path / "a.tsv")
    assert sentence(done).startswith(f"newcomer: {file}{joint}{line}: ") and WRONG[wrong] in done.stderr
    assert not done.stdout and not list(tmp_path.glob("*a.tsv*"))


def test_lines_that_were_skipped_count_in_the_number_of_a_wrong_one(made, tmp_path):
    file = tmp_path / "odd.tsv"
    file.write_text("zoe\tknows\n\nzoe\tlives_in\tcity1\nzoe\tlikes\tcity1\n")
    done = call("suggest", made / "model", "--facts", file, "--on-bad-line", "skip")
    assert done.returncode == 2 and f"{file}, line 4: the model knows no relation 'likes'" in done.stderr


def test_a_question_along_an_unknown_relation_is_named_with_its_line(made, tmp_path):
    file = tmp_path / "asked.tsv"
    file.write_text("zoe\tknows\t?\nzoe\tcitizenof\t?\n")
    said = sentence(call("predict", made / "model", "--facts", made / "new.tsv", "--questions", file))
    assert said.endswith("asked.tsv, line 2: the model knows no relation 'citizenof'; did you mean 'citizen_of'?")


def test_a_false_fact_is_named_with_its_line(made, tmp_path):
    file = tmp_path / "false.tsv"
    file.write_text("zoe\tknows\tp03\t1\nzoe\tknows\tp04\t-1\n")
    said = sentence(call("suggest", made / "model", "--facts", file))
    assert said.endswith("false.tsv, line 2: ('zoe', 'knows', 'p04') is labelled false; give triples that are true")


def test_facts_of_several_files_are_all_used_and_an_error_names_its_file(made, tmp_path):
    words = [word for place in range(2) for word in ("--facts", tmp_path / f"{place}.tsv")]
    for place in range(2):
        (tmp_path / f"{place}.tsv").write_text("".join("\t".join(fact) + "\n" for fact in FACTS[2 * place :][:2]))
    together = call("suggest", "model", "--facts", "new.tsv", "--json", cwd=made).stdout
    assert together and call("suggest", "model", *words, "--json", cwd=made).stdout == together
    (tmp_path / "1.tsv").write_text("yan\tlives_in\tcity2\nyan\tlikes\tzoe\n")
    assert "1.tsv, line 2: the model knows no relation 'likes'" in sentence(call("suggest", "model", *words, cwd=made))
    done = call("suggest", "model", *words, "--facts", "-", "--facts", "-", cwd=made)
    assert "standard input (`-`) is named more than once" in sentence(done)


@pytest.mark.parametrize("heads", [False, True])
def test_without_a_relation_the_likeliest_facts_are_answers_to_their_own_questions(made, heads):
    words = ("model", "--facts", "new.tsv", "--entity", "p03" if heads else "zoe", "--top", "30", "--json")
    answered, suggested = (lines(call(verb, *words, cwd=made).stdout) for verb in ("predict", "suggest"))
    assert len(answered) == 30
    for answer, fact in zip(answered, suggested, strict=True):
        ends = [answer["entity"], answer["answer"]]
        head, tail = reversed(ends) if answer["asked"] == "head" else ends
        assert fact["fact"] == [head, answer["relation"], tail]
        same = ("entity", "rank", "score", "probability", "because")
        assert {name: answer[name] for name in same} == {name: fact[name] for name in same}
    assert {answer["asked"] for answer in answered} == ({"head", "tail"} if heads else {"tail"})
    assert list(answered[0]) == list(lines(call("predict", *words, "--relation", "knows", cwd=made).stdout)[0])


def test_without_a_relation_files_have_the_columns_of_answers_and_tables_show_facts(made, tmp_path):
    words = ("predict", made / "model", "--facts", made / "new.tsv", "--entity", "zoe", "--top", "3")
    assert call(*words, "--out", tmp_path / "a.parquet").returncode == 0
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    printed = lines(call(*words, "--json").stdout)
    assert [row["answer"] for row in rows] == [line["answer"] for line in printed] and list(rows[0]) == list(
        answer_files.ANSWERS
    )
    assert "citizen_of(zoe, land1)" in call(*words).stdout


def test_explained_without_a_relation_are_the_likeliest_facts(made):
    words = ("model", "--facts", "new.tsv", "--entity", "zoe", "--top", "2")
    told = call("explain", *words, cwd=made).stdout
    for line in lines(call("suggest", *words, "--json", cwd=made).stdout):
        head, relation, tail = line["fact"]
        assert f"{relation}({head}, {tail}), probability {line['probability']:.2f}" in told


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("tails", ("predict", "--relation", "citizen_of")),
        ("suggest", ("suggest",)),
        ("embed", ("embed", "--out", "v.npy")),
        ("confidence", ("confidence",)),
    ],
)
def test_a_command_works_on_one_thread_whatever_the_process_has(made, tmp_path, monkeypatch, method, words):
    plain, threads = getattr(Predictor, method), []

    def watched(self: Predictor, *arguments: object, **others: object) -> object:
        threads.append(torch.get_num_threads())
        return plain(self, *arguments, **others)

    monkeypatch.setattr(Predictor, method, watched)
    torch.set_num_threads(2)
    done = call(words[0], made / "model", "--facts", made / "new.tsv", *words[1:], cwd=tmp_path)
    assert done.returncode == 0 and set(threads) == {1} and torch.get_num_threads() == 2


class Drip:
    """A pipe that gives one line at a time; notes how many lines were printed before each."""

    def __init__(self, content: bytes) -> None:
        self.waiting, self.printed = content.splitlines(keepends=True), list[int]()

    def read1(self, size: int = -1) -> bytes:
        self.printed.append(sys.stdout.getvalue().count("\n"))
        return self.waiting.pop(0) if self.waiting else b""


@pytest.fixture
def sorted_facts(many, tmp_path) -> Path:
    """The facts of `many`, those of each party together."""
    facts = [fact for party in PARTIES for fact in facts_of(many) if {fact[0], fact[2]} & set(party)]
    facts.sort(key=lambda fact: next(i for i, party in enumerate(PARTIES) if fact[0] in party))
    file = tmp_path / "sorted.tsv"
    # A party is one from its first fact on: those tied over a third come with the fact that ties them first.
    file.write_text("".join("\t".join(fact) + "\n" for fact in sorted(dict.fromkeys(map(tuple, facts)), key=_tied)))
    return file


def _tied(fact: tuple[str, ...]) -> tuple[int, bool]:
    return next(i for i, party in enumerate(PARTIES) if fact[0] in party), fact[1] != "knows"


@pytest.mark.parametrize("file_format", ["tsv", "csv", "nt"])
def test_a_pipe_is_answered_as_soon_as_a_party_is_complete(made, sorted_facts, tmp_path, monkeypatch, file_format):
    file = tmp_path / f"piped.{file_format}"
    call("data", "convert", sorted_facts, file)
    drip = Drip(file.read_bytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=drip))
    words = ("predict", made / "model", "--relation", "citizen_of", "--json", "--top", "2", "--facts")
    piped = call(*words, "-", "--format", file_format)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == call(*words, sorted_facts).stdout
    facts, expected = facts_of(sorted_facts), [0]
    for before, after in pairwise([*facts, None]):
        complete = after is None or not any({before[0], after[0]} <= set(party) for party in PARTIES)
        size = next(len(party) for party in PARTIES if before[0] in party)
        expected.append(expected[-1] + (2 * size if complete else 0))
    # Whoever reads a line has answered about all parties before the one that the line before it belongs to.
    assert drip.printed[1 : len(facts) + 1] == expected[:-1]


def test_a_blank_line_ends_a_party_at_once(made, monkeypatch):
    drip = Drip(b"zoe\tlives_in\tcity1\n\n\nyan\tlives_in\tcity2\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=drip))
    done = call("suggest", made / "model", "--facts", "-", "--json", "--top", "3")
    assert [line["entity"] for line in lines(done.stdout)] == ["zoe"] * 3 + ["yan"] * 3
    assert drip.printed == [0, 0, 3, 3, 3]  # asked for a line, for the blank ones, for the next and for the end


@pytest.mark.parametrize(
    ("content", "complains"),
    [
        (
            b"zoe\tknows\tp03\n\nzoe\tknows\tp05\n",
            "line 3: the newcomer 'zoe' was answered about already",
        ),
        (
            b"zoe\tknows\tp03\nyan\tknows\tp04\nyan\tknows\tzoe\n",
            "line 3: the newcomer 'zoe' was answered about already",
        ),
        (b"zoe\tknows\tp03\nyan\tknows\tp04\nyan\tlikes\tp04\n", "line 3: the model knows no relation 'likes'"),
        (b"zoe\tknows\tp03\nyan\tknows\tp04\nyan\tknows\n", "line 3: 2 columns"),
        (
            b"zoe\tknows\tp03\t1\nyan\tknows\tp04\t1\nyan\tknows\tp05\t-1\n",
            "line 3: ('yan', 'knows', 'p05') is labelled false",
        ),
    ],
)
def test_what_is_wrong_in_a_pipe_ends_it_after_those_who_were_complete(made, tmp_path, monkeypatch, content, complains):
    pipe(monkeypatch, content)
    done = call("suggest", made / "model", "--facts", "-", "--json", "--top", "1")
    assert f"newcomer: standard input, {complains}" in sentence(done)
    assert [line["entity"] for line in lines(done.stdout)] == ["zoe"]
    pipe(monkeypatch, content)
    done = call("suggest", made / "model", "--facts", "-", "--out", tmp_path / "a.tsv")
    assert complains in sentence(done) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n"])
@pytest.mark.parametrize("file_format", ["tsv", "nt"])
def test_a_pipe_that_tells_nothing_is_an_error(made, monkeypatch, content, file_format):
    pipe(monkeypatch, content)
    assert "standard input" in sentence(call("suggest", made / "model", "--facts", "-", "--format", file_format))


def test_unknown_relations_and_bad_lines_of_a_pipe_are_skipped_and_counted(made, monkeypatch):
    pipe(monkeypatch, b"zoe\tlikes\tyan\nzoe\tknows\nzoe\tlives_in\tcity1\nyan\tlives_in\tcity2\n")
    words = ("suggest", made / "model", "--facts", "-", "--on-unknown-relation", "skip", "--on-bad-line", "skip")
    done = call(*words, "--json", "--top", "1")
    *answers, last = lines(done.stdout)
    assert done.returncode == 0 and [line["entity"] for line in answers] == ["zoe", "yan"]
    assert "skipped 1 fact with a relation unknown" in done.stderr and "skipped 1 line:" in done.stderr
    assert last == {"left_out": [{"of": "standard input", "bad_lines": 1, "unknown_relations": 1}]}


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


@pytest.mark.parametrize("file_format", ["tsv", "csv", "parquet", "nt", "ttl"])
def test_a_pipe_may_have_every_format_that_files_have(made, monkeypatch, tmp_path, file_format):
    words = ("predict", made / "model", "--relation", "citizen_of", "--json", "--facts")
    file = tmp_path / f"new.{file_format}"
    if file_format == "ttl":  # N-Triples are Turtle, too
        call("data", "convert", made / "new.tsv", tmp_path / "new.nt")
        (tmp_path / "new.nt").rename(file)
    else:
        call("data", "convert", made / "new.tsv", file)
    pipe(monkeypatch, file.read_bytes())
    piped = call(*words, "-", "--format", file_format)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == call(*words, made / "new.tsv").stdout == call(*words, file).stdout


def test_what_a_pipe_gives_may_be_compressed(made, monkeypatch):
    words = ("predict", made / "model", "--relation", "citizen_of", "--json", "--facts")
    pipe(monkeypatch, gzip.compress((made / "new.tsv").read_bytes()))
    assert call(*words, "-").stdout == call(*words, made / "new.tsv").stdout


@pytest.fixture(scope="module")
def many(made) -> Path:
    """The facts of twelve newcomers: two tied to each other, and two apart in the file that are tied over a third."""
    facts = [(f"new{i:02}", "lives_in", f"city{i % 6}") for i in range(12)]
    facts += [("new01", "knows", "new02"), ("new03", "knows", "new05"), ("new11", "knows", "new05")]
    file = made / "many.tsv"
    file.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return file


PARTIES = [["new00"], ["new01", "new02"], ["new03", "new05", "new11"], *([f"new{i:02}"] for i in (4, 6, 7, 8, 9, 10))]


def facts_of(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text().splitlines()]


def test_a_stream_is_answered_party_by_party(made, many):
    done = call("predict", made / "model", "--facts", many, "--relation", "citizen_of", "--json", "--top", "3")
    found = lines(done.stdout)
    assert [line["entity"] for line in found] == [name for party in PARTIES for name in party for _ in range(3)]
    model = load(made / "model")
    for party in PARTIES:
        alone = model.copy()
        alone.add([fact for fact in facts_of(many) if {fact[0], fact[2]} & set(party)])
        for name in party:
            expected = alone.tails(name, "citizen_of", 3)
            own = [line for line in found if line["entity"] == name]
            assert [line["answer"] for line in own] == [answer.entity for answer in expected]
            assert [line["probability"] for line in own] == [answer.probability for answer in expected]


def test_together_all_are_candidates_for_each_other(made, many):
    words = ("predict", made / "model", "--facts", many, "--relation", "knows", "--top", "100", "--json")
    everyone = lines(call(*words, "--together", "--entity", "new07").stdout)
    alone = lines(call(*words, "--entity", "new07").stdout)
    without_facts = {name for party in PARTIES for name in party} - {"new07"}
    assert without_facts <= {line["answer"] for line in everyone}
    assert not without_facts & {line["answer"] for line in alone}
    model = load(made / "model")
    model.add(facts_of(many))
    assert [line["answer"] for line in everyone] == [answer.entity for answer in model.tails("new07", "knows", 100)]


def test_one_in_the_model_is_asked_about_beside_all_newcomers(made, many):
    words = ("predict", made / "model", "--facts", many, "--relation", "knows", "--top", "100", "--json")
    found = {line["answer"] for line in lines(call(*words, "--entity", "p04", "--entity", "new07").stdout)}
    assert {f"new{i:02}" for i in range(12)} <= found


def test_lines_come_out_while_others_are_still_to_be_asked_about_and_nobody_stays(made, many, monkeypatch):
    printed: list[int] = []
    there: list[int] = []
    models: list[weakref.ref[Predictor]] = []
    plain = NewcomerBatches.batches

    def watched(self: NewcomerBatches, of: object = None) -> Iterator[object]:
        for batch in plain(self, of):
            printed.append(sys.stdout.getvalue().count("\n"))
            models.append(weakref.ref(batch.model))
            there.append(sum(model() is not None for model in models))
            yield batch
            del batch

    monkeypatch.setattr(NewcomerBatches, "batches", watched)
    done = call("suggest", made / "model", "--facts", many, "--json", "--top", "2")
    assert done.returncode == 0 and printed == [0, 2, 6, 12, 14, 16, 18, 20, 22]
    assert max(there) <= 2  # the party that is asked about, and the one that goes


@pytest.mark.parametrize("verb", ["predict", "suggest"])
def test_files_hold_what_is_printed_in_groups_of_rows(made, many, tmp_path, monkeypatch, verb):
    monkeypatch.setattr(answer_files, "ROWS", 5)
    words = (verb, made / "model", "--facts", many, *(("--relation", "citizen_of") if verb == "predict" else ()))
    printed = call(*words, "--top", "3", "--json").stdout
    for ending in ("parquet", "tsv", "jsonl"):
        done = call(*words, "--top", "3", "--out", tmp_path / f"a.{ending}")
        assert done.returncode == 0 and done.stdout == f"written 36 answers to {tmp_path / f'a.{ending}'}\n"
    assert (tmp_path / "a.jsonl").read_text() == printed
    table = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 8
    with (tmp_path / "a.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [{name: str(value) for name, value in row.items()} for row in table] == rows
    for row, line in zip(table, lines(printed), strict=True):
        what = row["answer"] if verb == "predict" else [row["head"], row["relation"], row["tail"]]
        assert what == line["answer" if verb == "predict" else "fact"]
        assert (row["entity"], row["rank"], row["probability"]) == (line["entity"], line["rank"], line["probability"])
        assert all(reason["rule"] in row["reason"] for reason in line["because"][:1])


@pytest.mark.parametrize("ending", ["parquet", "tsv", "npy"])
def test_many_vectors_are_written_in_groups(made, many, tmp_path, monkeypatch, ending):
    monkeypatch.setattr(answer_files, "ROWS", 5)
    assert call("embed", made / "model", "--facts", many, "--out", tmp_path / f"v.{ending}").returncode == 0
    if ending == "npy":
        vectors = np.load(tmp_path / "v.npy")
        names = (tmp_path / "v.names.txt").read_text().splitlines()
    elif ending == "parquet":
        table = pq.read_table(tmp_path / "v.parquet")
        names, vectors = table["entity"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)
    else:
        rows = [line.split("\t") for line in (tmp_path / "v.tsv").read_text().splitlines()]
        names, vectors = [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float32)
    assert names == [name for party in PARTIES for name in party]
    model = load(made / "model")
    model.add(facts_of(many))  # a vector rests on the party alone, whoever else is there
    np.testing.assert_allclose(vectors, np.stack([model.embed(name) for name in names]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("tails", ("predict", "--relation", "citizen_of", "--out", "a.parquet")),
        ("suggest", ("suggest", "--out", "a.tsv")),
        ("embed", ("embed", "--out", "a.npy")),
    ],
)
def test_a_file_appears_whole_or_not_at_all(made, many, tmp_path, monkeypatch, method, words):
    plain, asked = getattr(Predictor, method), [0]

    def fails(self: Predictor, *arguments: object, **others: object) -> object:
        asked[0] += 1
        if asked[0] > 3:
            raise OptionError("enough")
        return plain(self, *arguments, **others)

    monkeypatch.setattr(answer_files, "ROWS", 1)
    monkeypatch.setattr(Predictor, method, fails)
    done = call(words[0], made / "model", "--facts", many, *words[1:], cwd=tmp_path)
    assert "enough" in sentence(done) and list(tmp_path.iterdir()) == []


def test_questions_of_a_file_are_those_of_the_relations(made, many, tmp_path):
    listed = tmp_path / "asked.tsv"
    listed.write_text("new01\tcitizen_of\t?\n?\tknows\tnew07\nnew07\tcitizen_of\t?\np04\tcitizen_of\t?\n")
    words = ("predict", made / "model", "--facts", many, "--json", "--top", "2")
    found = lines(call(*words, "--questions", listed).stdout)
    one = (*words, "--relation", "citizen_of")
    tails = [line for name in ("new01", "new07", "p04") for line in lines(call(*one, "--entity", name).stdout)]
    heads = lines(call(*words, "--relation", "knows", "--heads", "--entity", "new07").stdout)
    assert [line for line in found if line["asked"] == "tail"] == tails
    assert [line for line in found if line["asked"] == "head"] == heads and len(heads) == 2


def test_explained_lines_have_all_that_the_words_have(made):
    words = ("explain", "model", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", "--top", "1")
    told, (line,) = call(*words, cwd=made).stdout, lines(call(*words, "--json", cwd=made).stdout)
    assert f"citizen_of(zoe, {line['answer']}), probability {line['probability']:.2f}" in told
    assert line["because"][0]["rule"] in told and f"({line['weighed'][0]['share']:.0%})" in told
    assert ("it would not be among the first 1" in told) == (line["without"] is not None)
    assert len(line["parts"]) == 7 and sum(line["parts"].values()) == pytest.approx(line["score"], abs=1e-5)
    assert f"  score {line['score']:.2f}, that of a typical candidate {line['typical']:.2f}; " in told
    adds = [reason["adds"] for reason in line["reasons"]]
    assert sum(adds) == pytest.approx(line["score"] - line["typical"], abs=0.02)
    assert adds == sorted(adds, reverse=True) and adds[0] > 0 > adds[-1]
    said = [
        f"  speaks {'for' if one['adds'] > 0 else 'against'}: {one['sentence']} ({one['adds']:+.2f})"
        for one in line["reasons"]
    ]
    assert [text for text in told.splitlines() if " speaks " in text] == said
    assert told.count("    also ") == min(len(line["because"]), 5) - 1


def test_groundings_that_are_not_listed_are_counted(made, monkeypatch):
    words = ("explain", "model", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", "--top", "1")
    one = Grounding("knows(x,y) => citizen_of(x,y)", 0.5, 3, (("zoe", "knows", "p03"),))
    for more, said in ((0, ""), (1, "  and 1 weaker grounding\n"), (2, "  and 2 weaker groundings\n")):
        monkeypatch.setattr(Explanation, "groundings", (one,) * (LISTED["rules"] + more))
        told = call(*words, cwd=made).stdout
        assert told.count("; rule ") == LISTED["rules"] and said in told and ("weaker" in told) == bool(more)


def test_where_nothing_speaks_for_an_answer_that_is_said(made, monkeypatch):
    monkeypatch.setattr(Explanation, "adds", {"embedding": -1.5, "rules": 0.0})
    words = ("explain", "model", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", "--top", "1")
    told = [line.strip() for line in call(*words, cwd=made).stdout.splitlines()]
    assert told[2] == "nothing speaks for it more than for a typical candidate"
    assert told[3].startswith("speaks against: its vector does not fit that of zoe")


def test_similar_answers_are_given_in_words_and_as_json(made):
    dataset = world()
    heard = fit(dataset, settings("model.ensemble=yes", "model.graph_statistics=yes"), threads=1).bundle(dataset)
    write_bundle(made / "hearing", heard)
    words = ("explain", "hearing", "--facts", "new.tsv", "--entity", "zoe", "--relation", "knows", "--top", "20")
    told, found = call(*words, cwd=made).stdout, lines(call(*words, "--json", cwd=made).stdout)
    for line in found:
        line["adds"] = {reason["feature"]: reason["adds"] for reason in line["reasons"]}
    alike = [one for line in found if line["adds"].get("similarity", 0) > 0 for one in line["similar"][:2]]
    assert alike
    for one in alike:
        facts = " and ".join(f"{relation}({head}, {tail})" for head, relation, tail in one["facts"][:2])
        share = f"({one['share']:.0%} of the similarity)"
        assert f"speaks for: similar to {one['answer']}, a known answer: {facts} {share} (+" in told


def test_chains_to_an_answer_are_given_in_words_and_as_json_where_reasons_are_asked_for(made, monkeypatch):
    dataset = world()
    changes = (*FOLDED, "model.ensemble=yes", "model.propagation=yes", "training.propagation_steps=6")
    write_bundle(made / "paths", fit(dataset, settings(*changes), threads=1).bundle(dataset))
    asked = ("paths", "--facts", "new.tsv", "--entity", "zoe", "--relation", "citizen_of", "--top", "10")
    told = call("explain", *asked, cwd=made).stdout
    connected = [
        line
        for line in lines(call("explain", *asked, "--json", cwd=made).stdout)
        if any(reason["feature"] == "propagation" and reason["adds"] > 0 for reason in line["reasons"])
    ]
    found = [one for line in connected for one in line["chains"] if one["loss"] >= 0.005]
    assert found and told.count("connected by ") == len(found) and "also connected by " in told
    for one in found:
        facts = " and ".join(f"{relation}({head}, {tail})" for head, relation, tail in one["facts"])
        lower = f"without this chain its log share by propagation would be {one['loss']:.2f} lower"
        assert f" connected by {facts}; {lower}" in told
    monkeypatch.setattr(PropagationScorer, "chains", None)  # it takes its time, so nobody else asks for it
    assert call("predict", *asked, "--json", cwd=made).returncode == 0
    assert call("suggest", *asked[:5], cwd=made).returncode == 0


def test_a_reader_that_goes_away_ends_it_quietly(made, many):
    command = f"{sys.executable} -m newcomer suggest model --facts many.tsv --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=made,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 141 and done.stderr == "" and len(lines(done.stdout)) == 1


def test_an_entity_is_drawn_once(made, tmp_path):
    words = ("draw", made / "model", "zoe", "--facts", made / "new.tsv", "--out", tmp_path / "zoe.png")
    done = call(*words)
    assert done.returncode == 0 and done.stdout == f"drawn in {tmp_path / 'zoe.png'}\n"
    picture = (tmp_path / "zoe.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and "exists already" in sentence(call(*words))
    assert call(*words, "--force").returncode == 0 and (tmp_path / "zoe.png").read_bytes() == picture
    assert "--top is 0, but must be an integer from 1" in sentence(call(*words, "--force", "--top", "0"))
