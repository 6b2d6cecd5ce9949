"""Facts of newcomers from several files, facts that are known already, and what is said of those left out."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import call, sentence
from newcomer.models.bundle import write_bundle
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
FACTS = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03"), ("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]


def write(path: Path, facts: list[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and the facts of two newcomers in one file and in two."""
    folder = tmp_path_factory.mktemp("facts")
    dataset = world()
    write_bundle(folder / "model", fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    write(folder / "new.tsv", FACTS)
    write(folder / "first.tsv", FACTS[::2])
    write(folder / "second.tsv", FACTS[1::2])
    write(folder / "asked.tsv", [("zoe", "citizen_of", "land1"), ("yan", "knows", "zoe")])
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "model", "--relation", "citizen_of", "--relation", "knows", "--json"),
        ("suggest", "model", "--entity", "zoe", "--entity", "yan", "--json"),
        ("explain", "model", "--relation", "citizen_of", "--json"),
        ("classify", "model", "asked.tsv", "--json"),
        ("confidence", "model", "--json"),
        ("similar", "model", "--json"),
        ("embed", "model", "--out", "v.tsv", "--force"),
        ("draw", "model", "zoe", "--out", "v.png", "--force"),
    ],
    ids=lambda words: words[0],
)
def test_two_files_of_facts_count_as_one_that_holds_both(made, words):
    def answer(*files: str) -> tuple[str, list[bytes]]:
        done = call(*words, *(word for file in files for word in ("--facts", file)), cwd=made)
        assert done.returncode == 0, done.stderr
        written = [path.read_bytes() for path in sorted(made.glob("v.*"))]
        return done.stdout, written

    assert answer("first.tsv", "second.tsv") == answer("new.tsv")


KNOWN = [row for row in parts()["train"] if "p07" in row]  # all that the graph has of p07
VERBS = {
    "predict": ("--relation", "citizen_of", "--json", "--top", "1"),
    "suggest": ("--json", "--top", "1"),
    "explain": ("--relation", "citizen_of", "--json", "--top", "1"),
    "similar": ("--json", "--top", "1"),
    "confidence": ("--json",),
}
TOLD = "newcomer: arrivals.tsv: 4 facts are known already, from the graph that the model was trained on\n"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", ["file", "pipe", "together"])
def test_newcomers_that_were_trained_on_are_still_asked_about_by_their_facts(made, monkeypatch, verb, how):
    file = write(made / "arrivals.tsv", KNOWN)
    words = (verb, "model", *VERBS[verb])
    if how == "pipe":
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
    given = {"file": ["--facts", file.name], "pipe": ["--facts", "-"], "together": ["--facts", file.name, "--together"]}
    done = call(*words, *given[how], cwd=made)
    of = "standard input" if how == "pipe" else "arrivals.tsv"
    assert (done.returncode, done.stderr) == (0, TOLD.replace("arrivals.tsv", of))
    *answers, last = map(json.loads, done.stdout.splitlines())
    assert last == {"left_out": [{"of": of, "known_facts": 4}]}
    assert answers == [json.loads(line) for line in call(*words, "--entity", "p07", cwd=made).stdout.splitlines()]


@pytest.mark.parametrize("how", ["file", "pipe"])
def test_a_file_that_introduces_nobody_ends_well_with_nothing(made, monkeypatch, how):
    file = write(made / "arrivals.tsv", KNOWN[:1])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
    facts = "-" if how == "pipe" else file.name
    done = call("suggest", "model", "--facts", facts, "--out", "none.jsonl", "--force", cwd=made)
    assert (done.returncode, done.stdout) == (0, "written 0 answers to none.jsonl\n")
    assert "1 fact is known already" in done.stderr and (made / "none.jsonl").read_text() == ""
    for ending, holds in {"npy": np.load, "parquet": pq.read_table, "tsv": Path.read_text}.items():
        out = made / f"none.{ending}"
        assert call("embed", "model", "--facts", file.name, "--out", out, "--force", cwd=made).returncode == 0
        assert len(holds(out)) == 0


def test_facts_of_seen_entities_that_the_graph_lacks_are_an_error_or_skipped_and_counted(made):
    write(made / "late.tsv", [*FACTS, ("p01", "knows", "p02"), *KNOWN])
    words = ("suggest", "model", "--facts", "late.tsv", "--json", "--top", "1")
    said = sentence(call(*words, cwd=made))
    assert said.startswith("newcomer: late.tsv, line 5: the fact ('p01', 'knows', 'p02') is about two entities")
    assert said.endswith("leave such facts out with --on-seen-fact skip")
    done = call(*words, "--on-seen-fact", "skip", cwd=made)
    assert done.returncode == 0 and "skipped 1 fact between entities that the model was trained on" in done.stderr
    *answers, last = map(json.loads, done.stdout.splitlines())
    assert {line["entity"] for line in answers} == {"zoe", "yan", "p07"}
    assert last == {"left_out": [{"of": "late.tsv", "seen_facts": 1, "known_facts": 4}]}


@pytest.mark.parametrize("how", ["file", "pipe"])
@pytest.mark.parametrize(
    ("fact", "option"),
    [(("p01", "knows", "p02"), "--on-seen-fact"), (("zoe", "admires", "p02"), "--on-unknown-relation")],
)
def test_facts_that_are_all_left_out_as_asked_end_well_with_nothing(made, monkeypatch, fact, option, how):
    file = write(made / "useless.tsv", [fact])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
    words = ("--facts", "-" if how == "pipe" else file.name, option, "skip")
    for more in ((), ("--together",)):
        done = call("suggest", "model", *words, "--out", "none.tsv", "--force", *more, cwd=made)
        assert (done.returncode, done.stdout) == (0, "written 0 answers to none.tsv\n"), done.stderr
        assert "skipped 1 fact" in done.stderr
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))


def test_newcomers_are_asked_about_in_the_direction_that_makes_sense_for_them(made):
    write(made / "sides.tsv", [("zoe", "lives_in", "newtown"), ("newtown", "city_in", "land1")])
    write(made / "tail.tsv", [("zoe", "lives_in", "newtown")])

    def asked(*words: str) -> tuple[list[tuple[str, str, str]], int]:
        done = call("predict", "model", "--top", "1", "--json", *words, cwd=made)
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        unasked = [line["left_out"] for line in found if "left_out" in line]
        assert unasked in ([], [[{"of": words[1], "unasked": 1}]]) and bool(unasked) == ("not asked" in done.stderr)
        return [(line["entity"], line["relation"], line["asked"]) for line in found if "entity" in line], len(unasked)

    for file in ("sides.tsv", "tail.tsv"):
        facts = ("--facts", file)
        assert asked(*facts, "--relation", "citizen_of") == ([("zoe", "citizen_of", "tail")], 1)
        both = [("zoe", "lives_in", "tail"), ("newtown", "lives_in", "head")]
        assert asked(*facts, "--relation", "lives_in") == (both, 0)
        assert asked(*facts, "--relation", "lives_in", "--heads") == (both[1:], 1)
        named = asked(*facts, "--relation", "citizen_of", "--entity", "newtown")
        assert named == ([("newtown", "citizen_of", "tail")], 0)


@pytest.mark.parametrize(("ending", "piped"), [("nt", False), ("nt", True), ("ttl", False)])
def test_literals_among_facts_are_counted(made, monkeypatch, ending, piped):
    call("data", "convert", made / "new.tsv", made / "told.nt", "--force")
    text = (made / "told.nt").read_text() + '<urn:newcomer:zoe> <urn:newcomer:born> "1990" .\n'
    file = made / f"told.{ending}"
    file.write_text(text)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
    facts = ("-", "--format", ending) if piped else (file.name,)
    done = call("predict", "model", "--relation", "citizen_of", "--json", "--facts", *facts, cwd=made)
    of = "standard input" if piped else file.name
    assert (done.returncode, done.stderr) == (
        0,
        f"newcomer: {of}: left out 1 fact with an RDF literal; --literals keep takes it in\n",
    )
    *answers, last = map(json.loads, done.stdout.splitlines())
    assert answers and last == {"left_out": [{"of": of, "literals": 1}]}


@pytest.mark.parametrize("piped", [False, True])
def test_blank_nodes_that_are_taken_for_others_are_counted(made, monkeypatch, piped):
    write(made / "blank.tsv", [("_:anon1", "lives_in", "city1"), ("city1", "city_in", "land1")])
    model = call("train", "blank.tsv", "--out", "blank", "--set", "training.epochs=1", "--force", cwd=made)
    assert model.returncode == 0, model.stderr
    told = made / "blank.nt"
    told.write_text("_:anon1 <urn:newcomer:lives_in> <urn:newcomer:new> .\n_:b <urn:newcomer:lives_in> _:c .\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(told.read_bytes())))
    facts = ("-", "--format", "nt") if piped else ("blank.nt",)
    done = call("suggest", "blank", "--facts", *facts, "--json", "--top", "1", cwd=made)
    assert done.returncode == 0 and "1 blank node has the name of one that the model was trained on" in done.stderr
    of = "standard input" if piped else "blank.nt"
    assert json.loads(done.stdout.splitlines()[-1]) == {"left_out": [{"of": of, "blank_nodes": 1}]}


def test_a_file_of_literals_alone_says_that_they_were_left_out(made):
    (made / "only.nt").write_text('<urn:newcomer:zoe> <urn:newcomer:born> "1990" .\n')
    said = sentence(call("suggest", "model", "--facts", "only.nt", cwd=made))
    assert "only.nt: holds no triple (1 RDF literals were left out)" in said


def test_a_data_set_says_what_is_left_out_of_it(made):
    call("data", "convert", made / "new.tsv", made / "told.nt", "--force")
    with (made / "told.nt").open("a") as file:
        file.write('<urn:newcomer:zoe> <urn:newcomer:born> "1990" .\nnothing\n')
    done = call("describe", "told.nt", "--on-bad-line", "skip", "--json", cwd=made)
    assert json.loads(done.stdout)["left_out"] == [{"of": "train", "literals": 1, "bad_lines": 1}]
    assert "train: left out 1 fact with an RDF literal" in done.stderr and "train: skipped 1 line:\n  " in done.stderr
    assert "left_out" not in json.loads(call("describe", "new.tsv", "--json", cwd=made).stdout)
