"""``newcomer add``, ``remove``, ``list``, ``answers`` and questions with ``--store``: as Python, or one sentence."""

import getpass
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import newcomer
from command_line import Done, call, sentence
from newcomer.models.bundle import write_bundle
from newcomer.predictor import load
from newcomer.service.stored_predictor import model_version
from newcomer.store import open_store
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from store_world import an_answer
from training_world import settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ZOE = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03")]
YAN = [("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]
BOB = [("bob", "lives_in", "city3")]
FACTS = [*ZOE, *YAN, *BOB]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, dataset = tmp_path_factory.mktemp("store") / "model", world()
    write_bundle(folder, fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with facts of newcomers, in which commands run."""
    write(tmp_path / "new.tsv", FACTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ann")
    return tmp_path


def write(path: Path, facts: list[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))


def lines(done: Done) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def words(done: Done) -> str:
    """What was printed, without the widths of tables."""
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_what_is_added_is_listed_with_who_and_when(run, here, place):
    done = call("add", run, "--facts", "new.tsv", "--store", place, "--source", "a letter")
    assert words(done) == "added 5 facts, 3 newcomers; position 1"
    again = call("add", run, "--facts", "new.tsv", "--store", place, "--who", "bob", "--json")
    assert json.loads(again.stdout) == {"position": 1, "newcomers": [], "facts": 0, "repeated": 5, "skipped": 0}
    found = lines(call("list", "--store", place, "--json"))
    assert [one["newcomer"] for one in found] == ["bob", "yan", "zoe"]
    assert [one["newcomer"] for one in lines(call("list", "--store", place, "--after", "bob", "--json"))] == [
        "yan",
        "zoe",
    ]
    assert words(call("list", "--store", place, "--prefix", "z")).startswith(
        "3 newcomers, 5 facts, at position 1 newcomer came (UTC) position"
    )
    assert words(call("list", "--store", place, "--limit", "1")).endswith("there are more: --after bob")
    facts = lines(call("list", "--store", place, "--facts", "yan", "--facts", "p00", "--json"))
    assert [(one["head"], one["relation"], one["tail"]) for one in facts] == YAN
    assert all((one["entity"], one["who"], one["source"]) == ("yan", "ann", "a letter") for one in facts)
    assert words(call("list", "--store", place, "--facts", "p00")) == "facts of p00: none"


def test_facts_come_from_a_pipe_in_any_format(run, here, place, monkeypatch):
    piped = SimpleNamespace(buffer=io.BytesIO(b"zoe,lives_in,city1\nzoe,knows,p03\n"))
    monkeypatch.setattr(sys, "stdin", piped)
    assert "added 2 facts, 1 newcomer;" in words(call("add", run, "--facts", "-", "--format", "csv", "--store", place))
    (here / "more.nt").write_text("<urn:newcomer:bob> <urn:newcomer:lives_in> <urn:newcomer:city3> .\n")
    assert "added 1 fact, 1 newcomer;" in words(call("add", run, "--facts", "more.nt", "--store", place))


def test_a_wrong_fact_is_named_with_its_line_and_nothing_is_added(run, here, place):
    write(here / "wrong.tsv", [*ZOE, ("zoe", "likes", "p03"), ("p01", "knows", "p02"), ("p00", "lives_in", "city0")])
    asked = ("add", run, "--facts", "wrong.tsv", "--store", place)
    told = sentence(call(*asked))
    assert "wrong.tsv, line 3: the model knows no relation 'likes'" in told and "--on-unknown-relation skip" in told
    assert "wrong.tsv, line 4" in sentence(call(*asked, "--on-unknown-relation", "skip"))
    with open_store(place) as store:
        assert store.position() == 0
    done = call(*asked, "--on-unknown-relation", "skip", "--on-seen-fact", "skip", "--json")
    assert json.loads(done.stdout) == {
        **{"position": 1, "newcomers": ["zoe"], "facts": 2, "repeated": 1, "skipped": 2},
        "left_out": [{"of": "wrong.tsv", "unknown_relations": 1, "seen_facts": 1, "known_facts": 1}],
    }


def test_a_request_with_a_key_may_be_sent_twice(run, here, place):
    asked = ("add", run, "--facts", "new.tsv", "--store", place, "--key", "day 1", "--json")
    first = call(*asked)
    words(call("remove", run, "zoe", "--store", place, "--key", "day 2"))
    assert call(*asked).stdout == first.stdout
    write(here / "other.tsv", BOB)
    assert "stands for another request" in sentence(
        call("add", run, "--facts", "other.tsv", "--store", place, "--key", "day 1")
    )


def test_newcomers_are_removed_and_facts_retracted(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    write(here / "gone.tsv", BOB)
    assert words(call("remove", run, "--facts", "gone.tsv", "--store", place)) == (
        "retracted 1 fact; gone: bob; position 2"
    )
    assert "is not in the store" in sentence(call("remove", run, "--facts", "gone.tsv", "--store", place))
    assert "'p01' was trained on" in sentence(call("remove", run, "zoe", "p01", "--store", place))
    done = call("remove", run, "zoe", "yan", "--store", place, "--json", "--who", "eve")
    assert json.loads(done.stdout) == {"position": 3, "newcomers": ["yan", "zoe"], "facts": 4}
    told = lines(call("list", "--store", place, "--facts", "bob", "--history", "--json"))
    assert [(one["stated"], one["who"], one["position"]) for one in told] == [(True, "ann", 1), (False, "ann", 2)]
    assert lines(call("list", "--store", place, "--json")) == []


@pytest.mark.parametrize("words_", [[], ["zoe", "--facts", "new.tsv"]])
def test_what_to_remove_is_named_once(run, here, place, words_):
    assert "name either newcomers" in sentence(call("remove", run, *words_, "--store", place))


def test_answers_over_a_store_are_those_of_python(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    with newcomer.open(run, place) as live:
        for name in ("bob", "yan", "zoe"):
            expected = [one.to_dict() for one in live.suggest(name, k=3)]
            found = lines(call("suggest", run, "--store", place, "--entity", name, "--top", "3", "--json"))
            assert [{key: one[key] for key in expected[0]} for one in found] == json.loads(json.dumps(expected))
        asked = lines(call("predict", run, "--store", place, "--relation", "citizen_of", "--top", "1", "--json"))
        assert [(one["entity"], one["answer"], one["probability"]) for one in asked] == [
            (name, best.entity, best.probability)
            for name in ("bob", "yan", "zoe")
            for best in live.tails(name, "citizen_of", k=1)
        ]
        words(call("embed", run, "--store", place, "--out", "vectors.parquet"))
        vectors = pq.read_table("vectors.parquet").to_pydict()
        assert vectors["entity"] == ["bob", "yan", "zoe"]
        for name, vector in zip(*vectors.values(), strict=True):
            assert np.array_equal(np.array(vector, dtype=np.float32), live.embed(name))
        told = lines(call("confidence", run, "--store", place, "--entity", "zoe", "--json"))
        assert told == [json.loads(json.dumps(live.confidence("zoe").to_dict()))]
        near = lines(call("similar", run, "zoe", "--store", place, "--top", "2", "--json"))
        assert [(one["similar"], one["cosine"]) for one in near] == live.similar("zoe", k=2)
        write(here / "asked.tsv", [("zoe", "citizen_of", "land1"), ("p01", "knows", "bob"), ("p00", "knows", "p05")])
        verdicts = lines(call("classify", run, "asked.tsv", "--store", place, "--json"))
        expected = live.classify([("zoe", "citizen_of", "land1"), ("p01", "knows", "bob"), ("p00", "knows", "p05")])
        assert [one["probability"] for one in verdicts] == [one.probability for one in expected]
        assert "citizen_of(zoe, " in call("explain", run, "--store", place, "--entity", "zoe").stdout


def test_queries_of_a_file_are_asked_over_a_store(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    write(here / "queries.tsv", [("zoe", "citizen_of", "?"), ("?", "knows", "zoe"), ("p01", "knows", "?")])
    found = lines(call("predict", run, "--store", place, "--questions", "queries.tsv", "--top", "1", "--json"))
    assert [(one["entity"], one["asked"]) for one in found] == [("zoe", "tail"), ("zoe", "head"), ("p01", "tail")]


def test_answers_are_recorded_once(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    asked = ("predict", run, "--store", place, "--relation", "citizen_of", "--record")
    done = call(*asked, "--top", "1", "--out", "answers.tsv")
    assert done.stderr == "newcomer: recorded 3 answers (id 1 to 3)\n"
    assert done.stdout == "written 3 answers to answers.tsv\n"
    more = call(*asked, "--entity", "zoe", "--top", "2", "--who", "eve")
    assert more.stderr == "newcomer: recorded 1 answer (id 4); 1 was there already\n"
    suggested = call("suggest", run, "--store", place, "--entity", "zoe", "--top", "1", "--record", "--json")
    assert suggested.stderr == "newcomer: recorded 0 answers; 1 was there already\n"
    found = lines(call("answers", "--store", place, "--json"))
    best = load(run)
    best.add([*ZOE, *YAN])
    first, second = best.tails("zoe", "citizen_of", k=2)
    assert [(one["id"], one["entity"], one["who"], one["decision"]) for one in found] == [
        *((1, "bob", "ann", None), (2, "yan", "ann", None), (3, "zoe", "ann", None), (4, "zoe", "eve", None))
    ]
    of_zoe = {key: found[2][key] for key in ("relation", "asked", "answer", "rank", "probability", "if_any", "reason")}
    assert list(of_zoe.values()) == [
        *("citizen_of", "tail", first.entity, 1, first.probability, first.if_any, str(first.because))
    ]
    assert (found[3]["answer"], found[3]["rank"]) == (second.entity, 2)
    assert {one["model"] for one in found} == {model_version(run)}
    assert [one["made_from"] for one in found] == [1, 1, 1, 2]  # the first answers are in the log, too


def test_a_fact_is_recorded_from_the_end_that_it_was_asked_from(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    heads = ("--relation", "knows", "--heads", "--entity", "zoe", "--top", "1")
    answer = lines(call("predict", run, "--store", place, *heads, "--record", "--json"))[0]["answer"]
    assert answer != "yan"  # known
    (found,) = lines(call("answers", "--store", place, "--json"))
    assert (found["entity"], found["relation"], found["asked"], found["answer"]) == ("zoe", "knows", "head", answer)
    assert f"knows({answer}, zoe)" in words(call("answers", "--store", place))
    any_relation = call("predict", run, "--store", place, "--entity", "yan", "--top", "9", "--json", "--record")
    with open_store(place) as store, store.reading() as state:
        given = [one.given for one in state.answers()][1:]
    expected = [(one["relation"], one["asked"] + "s", one["answer"]) for one in lines(any_relation)]
    assert [(one.relation, one.direction, one.answer) for one in given] == expected
    assert {one.direction for one in given} == {"heads", "tails"}


def test_decisions_on_answers(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    words(call("predict", run, "--store", place, "--relation", "citizen_of", "--top", "1", "--record"))
    done = call("answers", "--store", place, "--accept", "1", "--reject", "3", "--note", "asked her", "--who", "eve")
    assert "accept (eve): asked her" in words(done) and "2 of 3 answers recorded" in words(done)
    (open_one,) = lines(call("answers", "--store", place, "--decision", "open", "--json"))
    assert open_one["id"] == 2
    call("answers", "--store", place, "--unsure", "3")
    decided = {one["id"]: one["decision"] for one in lines(call("answers", "--store", place, "--json"))}
    assert (decided[1]["verdict"], decided[1]["note"], decided[1]["who"]) == ("accept", "asked her", "eve")
    assert (decided[3]["verdict"], decided[3]["note"], decided[3]["who"], decided[2]) == ("unsure", "", "ann", None)
    assert [one["id"] for one in lines(call("answers", "--store", place, "--entity", "zoe", "--json"))] == [3]
    assert [
        one["id"] for one in lines(call("answers", "--store", place, "--after", "1", "--limit", "1", "--json"))
    ] == [2]
    assert "there are more: --after 1" in words(call("answers", "--store", place, "--limit", "1"))
    least = sorted(one["probability"] for one in lines(call("answers", "--store", place, "--json")))[1]
    assert len(lines(call("answers", "--store", place, "--min-probability", str(least), "--json"))) == 2


def test_a_decision_on_an_answer_that_is_not_there_decides_nothing(run, here, place):
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    words(call("predict", run, "--store", place, "--relation", "citizen_of", "--top", "1", "--record"))
    assert "the store has no answer 9" in sentence(call("answers", "--store", place, "--accept", "1", "--reject", "9"))
    assert [one["decision"] for one in lines(call("answers", "--store", place, "--json"))] == [None] * 3


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("answers", "--accept", "1", "--reject", "1"), "decided on twice"),
        (("answers", "--accept", "1", "--accept", "1"), "decided on twice"),
        (("answers", "--accept", "1", "--entity", "zoe"), "leave out what filters"),
        (("answers", "--note", "why"), "--note and --who go with a decision"),
        (("answers", "--decision", "maybe"), "unknown decision 'maybe'"),
        (("answers", "--limit", "0"), "--limit is 0"),
        (("list", "--history"), "--history is that of an entity"),
        (("list", "--facts", "zoe", "--prefix", "z"), "leave out --prefix and --after"),
    ],
)
def test_options_that_contradict_each_other(here, asked, told):
    with open_store("town.db"):
        pass
    assert told in sentence(call(*asked, "--store", "town.db"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--store", "town.db", "--facts", "new.tsv"), "--facts and --store are two places"),
        (("--store", "town.db", "--together"), "--together is for the newcomers of --facts"),
        (("--record", "--entity", "p01"), "--record writes answers to a store"),
        (("--store", "town.db", "--who", "ann"), "--who says who asks for answers to be recorded"),
        (("--store", "typo.db"), "typo.db: does not exist; `newcomer add` makes a store"),
        (("--store", "town.db", "--entity", "nobody"), "'nobody' is in neither the model nor the store"),
        (("--store", "mysql://town"), "a store cannot lie in 'mysql'"),
        (("--store", "x" * 300), "File name too long"),
    ],
)
def test_questions_that_cannot_be_asked_over_a_store(run, here, more, told):
    with open_store("town.db"):
        pass
    assert told in sentence(call("suggest", run, *more))
    assert not Path("typo.db").exists()


def test_facts_have_to_be_named(run, here):
    assert "name a file with --facts" in sentence(call("add", run, "--store", "town.db"))
    assert not Path("town.db").exists()


def test_a_store_without_newcomers_is_answered_with_nothing(run, here):
    with open_store("town.db"):
        pass
    assert lines(call("suggest", run, "--store", "town.db", "--json")) == []
    assert "--store" in sentence(call("suggest", run))


def test_triples_about_whom_nobody_knows_are_refused(run, here):
    write(here / "asked.tsv", [("p01", "knows", "p02"), ("nobody", "knows", "p01")])
    words(call("add", run, "--facts", "new.tsv", "--store", "town.db"))
    assert "asked.tsv, line 2" in sentence(call("classify", run, "asked.tsv", "--store", "town.db"))


def test_commands_that_ask_no_model_load_none(here):
    with open_store("town.db") as store:
        store.record([an_answer()], model="m", made_from=0, who="job")
    words = ("list", "--store", "town.db"), ("answers", "--store", "town.db", "--accept", "1")
    export = ("export", "--store", "town.db", "--out", "town.nq")
    for command in (*words, export):
        code = f"import sys; from newcomer.cli import main; sys.argv = {['newcomer', *command]}; main()"
        code += "\nassert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_login_without_a_name_is_unnamed(run, here, place, monkeypatch):
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    words(call("add", run, "--facts", "new.tsv", "--store", place))
    assert {one["who"] for one in lines(call("list", "--store", place, "--facts", "zoe", "--json"))} == {"unnamed"}
