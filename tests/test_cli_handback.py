"""``newcomer export`` and ``push``: files and endpoints have what the store has, or one sentence says why not."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyoxigraph
import pytest

from command_line import call, run, sentence
from conftest import rows
from newcomer.data.triples import read_triples
from newcomer.exchange.provenance import BASE, quads
from newcomer.exchange.sparql import PASSWORD
from newcomer.store import open_store
from sparql_world import engine, facts_and_origins
from store_world import added, an_answer

FACTS = [("zoe", "lives_in", "seen1"), ("zoe\ttab", "said", 'so "it"\nis'), ("zoe", "lives_in", "seen2")]


@pytest.fixture
def town(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with facts, of which one is retracted, and an accepted answer."""
    monkeypatch.chdir(tmp_path)
    with open_store(place) as store:
        store.add(FACTS[:2], is_seen=lambda name: name.startswith("seen"), who="ann", source="a letter")
        added(store, "max knows zoe")
        store.retract([("max", "knows", "zoe")], who="ann")
        store.record([an_answer("zoe", answer="seen2"), an_answer("zoe", 0.1)], model="m1", made_from=3, who="job")
        store.decide(1, "accept", who="bob", note="asked her")
    return place


def test_quads_are_those_of_the_store_and_the_same_each_time(town):
    done = call("export", "--store", town, "--out", "town.nq")
    first = Path("town.nq").read_bytes()
    count = len(first.splitlines())
    assert done.stdout == f"written {count} quads to town.nq; position 5\n"
    with open_store(town) as store, store.reading() as state:
        expected = [str(quad) for quad in quads(state)]
    assert [str(one) for one in pyoxigraph.parse(first, format=pyoxigraph.RdfFormat.N_QUADS)] == expected
    assert call("export", "--store", town, "--out", "town.nq", "--force").returncode == 0
    assert Path("town.nq").read_bytes() == first
    assert "exists already" in sentence(call("export", "--store", town, "--out", "town.nq"))
    done = call("export", "--store", town, "--out", "new.nq", "--since", "5", "--json")
    assert json.loads(done.stdout) == {"out": "new.nq", "quads": 0, "position": 5}
    call("export", "--store", town, "--out", "other.nq", "--what", "answers", "--base", "https://example.org/")
    assert b"<https://example.org/answer/1>" in Path("other.nq").read_bytes()
    assert b"change" not in Path("other.nq").read_bytes()


@pytest.mark.parametrize("ending", ["tsv", "parquet"])
def test_tables_can_be_read_as_facts_again(town, ending):
    done = call("export", "--store", town, "--out", f"town.{ending}")
    assert done.stdout == f"written 3 rows to town.{ending}; position 5\n"
    assert rows(read_triples(Path(f"town.{ending}"))) == FACTS
    call("export", "--store", town, "--out", f"facts.{ending}", "--what", "facts")
    assert rows(read_triples(Path(f"facts.{ending}"))) == FACTS[:2]


def test_a_table_says_where_each_fact_is_from(town):
    call("export", "--store", town, "--out", "town.parquet")
    call("export", "--store", town, "--out", "town.jsonl")
    found = pq.read_table("town.parquet").to_pylist()
    assert found == [json.loads(line) for line in Path("town.jsonl").read_text().splitlines()]
    assert [(one["kind"], one["who"], one["origin"]) for one in found] == [
        *(("stated", "ann", "a letter"), ("stated", "ann", "a letter"), ("accepted", "bob", None))
    ]
    assert [found[2][name] for name in ("answer", "model", "probability", "note")] == [1, "m1", 0.5, "asked her"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--out", "town.ttl"), "facts and answers are written as .nq, .tsv, .parquet or .jsonl"),
        (("--out", "town.nq", "--what", "all"), "unknown part 'all'"),
        (("--out", "town.tsv", "--base", "urn:x:"), "leave it out, or let --out town.tsv end in .nq"),
        (("--out", "town.nq", "--base", "no iri"), "give an absolute IRI"),
        (("--out", "missing/town.nq"), "there is no folder missing"),
        (("--out", "town.nq", "--since", "-1"), "--since is -1"),
    ],
)
def test_exports_that_cannot_be(town, words, told):
    assert told in sentence(call("export", "--store", town, *words))
    assert not list(Path().glob("town.[nt]*"))


def test_a_store_is_pushed_once(town):
    with engine() as server:
        done = call("push", "--store", town, "--to", server.url)
        assert done.stdout == ("pushed 3 facts, 1 retraction and 1 decision; from position 0 to 5, in 1 request\n"), (
            done.stderr
        )
        again = call("push", "--store", town, "--to", server.url, "--json")
        assert json.loads(again.stdout) == {
            **{"facts": 0, "retracted": 0, "decisions": 0, "requests": 0, "began": 5, "position": 5}
        }
        call("export", "--store", town, "--out", "town.nq")
        loaded = pyoxigraph.Store()
        loaded.bulk_load(path="town.nq")
        assert facts_and_origins(server.quads()) == facts_and_origins({str(quad) for quad in loaded})
        query = server.url.replace("update", "query")
        other = call(
            "push", "--store", town, "--to", server.url, "--query", query, "--base", "urn:other:", "--what", "facts"
        )
        assert "pushed 3 facts, 1 retraction and 0 decisions;" in other.stdout


@pytest.mark.parametrize("moment", range(3))
def test_a_push_that_is_killed_goes_on_where_it_was(tmp_path, moment):
    with open_store(tmp_path / "town.db") as store:
        for change in range(5):
            added(store, *(f"n{change}.{i} knows n{change}.{i + 1}" for i in range(500)))
            store.retract([(f"n{change}.7", "knows", f"n{change}.8")], who="ann")
    words = [sys.executable, "-m", "newcomer", "push", "--store", str(tmp_path / "town.db"), "--to"]
    with engine() as server:
        whole = 3  # requests of a thousand each
        with subprocess.Popen([*words, server.url]) as process:
            server.before = lambda count: process.kill() if count == moment + 1 else None  # it is done, and never told
        assert process.returncode == -signal.SIGKILL and len(server.updates) == moment + 1
        server.before = lambda _: None
        done = call("push", "--store", tmp_path / "town.db", "--to", server.url)
        assert done.returncode == 0 and len(server.updates) == whole
        with open_store(tmp_path / "town.db") as store, store.reading() as state:
            expected = {str(quad) for quad in quads(state) if quad.graph_name.value.startswith(f"{BASE}change/")}
        found = {quad for quad in server.quads() if quad.rpartition(" ")[2].startswith(f"<{BASE}change/")}
        assert found == expected and len(found) == 2495


def test_a_password_comes_from_the_environment_and_is_in_no_message(town):
    with engine() as server:
        asked = ("push", "--store", town, "--to", server.url, "--user", "ann")
        assert PASSWORD in sentence(call(*asked))
        server.faults[:] = [None, (401, False)]
        done = run(*asked, **{PASSWORD: "s3cret"})
        assert "answers 401" in sentence(done) and "s3cret" not in done.stdout + done.stderr
        assert all(headers["Authorization"].startswith("Basic ") for _, _, headers in server.asked)


def test_pushes_that_cannot_be(town):
    assert "is no URL of an endpoint" in sentence(call("push", "--store", town, "--to", "localhost:7878"))
    assert "--timeout is 0" in sentence(call("push", "--store", town, "--to", "http://h/update", "--timeout", "0"))
    assert "does not exist" in sentence(call("push", "--store", "typo.db", "--to", "http://h/update"))
