"""Facts and answers as quads: who stated them and when, and the names that come back out of them."""

import pyoxigraph
import pytest

from conftest import complaint
from newcomer.data.rdf import iri_of, name_of
from newcomer.exchange.provenance import BASE, OWN, PROV, Provenance, quads
from newcomer.store import open_store
from store_world import added, an_answer
from test_push import NASTY

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


@pytest.fixture
def town(tmp_path):
    with open_store(tmp_path / "town.db") as store:
        yield store


def asked(store, query, **options):
    """The solutions of a query to an export."""
    graph = pyoxigraph.Store()
    with store.reading() as state:
        graph.load(
            "".join(f"{quad} .\n" for quad in quads(state, **options)).encode(), format=pyoxigraph.RdfFormat.N_QUADS
        )
    prefixes = (
        f"PREFIX prov: <{PROV}> PREFIX own: <{OWN}> PREFIX s: <{BASE}> PREFIX rdfs: <{LABEL.removesuffix('label')}> "
    )
    found = graph.query(prefixes + query)
    return [tuple(one[name].value for name in found.variables) for one in found]


def test_who_stated_a_fact_when_and_from_where_can_be_asked(town):
    added(town, "zoe lives_in seen1", "zoe knows max", who="ann b", source="a letter")
    added(town, "max knows seen1", who="bob")
    with town.reading() as state:
        at = [one.at for one in state.log()]
    found = asked(
        town,
        "SELECT ?who ?at ?source WHERE { GRAPH ?g { <urn:newcomer:zoe> <urn:newcomer:knows> <urn:newcomer:max> } "
        "GRAPH s:provenance { ?g prov:wasAttributedTo/rdfs:label ?who ; prov:generatedAtTime ?at ; "
        "prov:hadPrimarySource/rdfs:label ?source } }",
    )
    ((who, moment, source),) = found
    assert (who, source) == ("ann b", "a letter") and moment.startswith(f"{at[0]:%Y-%m-%dT%H:%M:%S}")
    assert asked(town, "SELECT ?g WHERE { GRAPH ?g { ?s <urn:newcomer:knows> <urn:newcomer:seen1> } }") == [
        (f"{BASE}change/2",)
    ]


def test_which_model_answered_and_who_accepted_it_can_be_asked(town):
    town.record([an_answer("zoe", 0.9, if_any=0.95, rank=3), an_answer("max")], model="m1", made_from=0, who="job")
    town.decide(1, "accept", who="ann", note="asked her")
    town.decide(2, "reject", who="ann")
    found = asked(
        town,
        "SELECT ?model ?p ?any ?rank ?why ?from ?end ?who ?verdict ?note WHERE { GRAPH ?g { <urn:newcomer:zoe> ?r ?t } "
        "GRAPH s:provenance { ?g prov:wasAttributedTo/rdfs:label ?model ; own:probability ?p ; own:ifAny ?any ; "
        "own:rank ?rank ; own:reason ?why ; own:madeFrom ?from ; own:asked ?end . ?d prov:used ?g ; own:note ?note ; "
        "prov:wasAssociatedWith/rdfs:label ?who ; own:verdict ?verdict ; prov:endedAtTime ?at } }",
    )
    assert found == [("m1", "0.9", "0.95", "3", "as rule 7 infers", "0", "tail", "ann", "accept", "asked her")]
    assert asked(town, "SELECT ?g WHERE { GRAPH ?g { <urn:newcomer:max> ?r ?t } }") == []


def test_names_come_back_as_they_were(town):
    for name in (*NASTY, "https://example.org/zoe", "urn:newcomer:a%20b", "urn:newcomer-store:x"):
        assert name_of(iri_of(name)) == name
        town.add([(name, name, "seen1")], is_seen=lambda one: one == "seen1", who="ann")
    found = asked(town, f"SELECT ?s ?p ?o WHERE {{ GRAPH ?g {{ ?s ?p ?o }} FILTER(?g != <{BASE}provenance>) }}")
    with town.reading() as state:
        facts = {one.fact for one in state.facts_of([one.name for one in state.newcomers()])}
    assert {tuple(map(name_of, one)) for one in found} == facts and len(facts) == len(NASTY) + 3


def test_the_same_state_gives_the_same_quads_each_once(town):
    for who in ("ann", "bob", "ann"):
        added(town, f"zoe knows max{town.position()}", "zoe likes seen1", who=who, source="a letter")
    town.record([an_answer("zoe"), an_answer("max")], model="m1", made_from=0, who="ann")
    town.decide(1, "accept", who="ann")
    town.decide(2, "accept", who="ann")
    with town.reading() as state:
        first, second = list(quads(state)), list(quads(state))
        later = list(quads(state, since=2))
        assert len(list(quads(state, what="facts"))) + len(list(quads(state, what="answers"))) > len(first)
    assert first == second and len(set(first)) == len(first)
    assert set(later) < set(first) and not any("change/1" in str(quad) for quad in later)


def test_another_base_gives_other_graphs(town):
    added(town, "zoe knows seen1")
    with town.reading() as state:
        found = {quad.graph_name.value for quad in quads(state, base="https://example.org/town#")}
    assert found == {"https://example.org/town#change/1", "https://example.org/town#provenance"}


@pytest.mark.parametrize("base", ["", "no iri", "https://example.org/<", 'urn:a"b'])
def test_a_base_that_makes_no_iris_is_refused(base):
    assert "give an absolute IRI" in str(complaint(Provenance, base))
