"""Facts and accepted answers as quads, with where they come from in PROV-O (extra ``rdf``).

The facts of a change of the store are a graph of their own, and so is the fact that an accepted answer states. What is
said of these graphs, who stated them and when, or which model answered, how sure it was and who accepted it, is in one
more graph. Everything has an IRI that follows from the log, and nothing is a blank node: the same state gives the same
quads, and writing them twice adds nothing.

    BASE change/5       the facts of the change 5 of the log
    BASE answer/17      the fact that the answer 17 states
    BASE decision/21    the decision at position 21, as an activity
    BASE agent/NAME, source/NAME, model/VERSION
    BASE provenance     the graph in which all of this is described
"""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from newcomer.data.rdf import iri_of
from newcomer.errors import OptionError, optional, shown
from newcomer.exchange.selection import ANSWERS, BOTH, FACTS, accepted_answers, current_facts, stated_by

if TYPE_CHECKING:
    from newcomer.store import Decision, Entry, Fact, StoredAnswer
    from newcomer.store.reading import Reading

BASE = "urn:newcomer-store:"
PROV = "http://www.w3.org/ns/prov#"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
XSD = "http://www.w3.org/2001/XMLSchema#"
OWN = "urn:newcomer-vocabulary:"
Term = Any  # of pyoxigraph, which has no types
Quad = Any


class Provenance:
    """Makes quads of what is in a store; ``base`` is what the IRIs of its graphs begin with."""

    def __init__(self, base: str = BASE) -> None:
        self._library = optional("pyoxigraph", "writing RDF", "rdf")
        self.base = base
        try:
            self.graph = self.own("provenance")
        except ValueError:
            hint = f"give an absolute IRI, as {BASE} or https://example.org/newcomers/"
            raise OptionError(f"graphs cannot have names that begin with {shown(base)}; {hint}") from None

    def node(self, iri: str) -> Term:
        """An IRI as a term."""
        return self._library.NamedNode(iri)

    def own(self, path: str) -> Term:
        """Something below the base."""
        return self.node(f"{self.base}{path}")

    def text(self, value: str) -> Term:
        """A text as a term."""
        return self._library.Literal(value)

    def terms(self, fact: "Fact") -> tuple[Term, Term, Term]:
        """A fact as subject, predicate and object."""
        head, relation, tail = (self.node(iri_of(name)) for name in fact)
        return head, relation, tail

    def fact(self, fact: "Fact", position: int) -> Quad:
        """A fact of newcomers in the graph of the change that it was stated with."""
        return self._library.Quad(*self.terms(fact), self.own(f"change/{position}"))

    def change(self, change: "Entry") -> list[Quad]:
        """Who stated the facts of a change, when, and from where."""
        graph = self.own(f"change/{change.position}")
        said = [
            self._said(graph, TYPE, self.node(f"{PROV}Entity")),
            self._said(graph, f"{PROV}generatedAtTime", self._moment(change.at)),
            *self._agent(graph, f"{PROV}wasAttributedTo", change.who),
        ]
        if change.source:
            source = self.own(f"source/{quote(change.source, safe='')}")
            said.append(self._said(graph, f"{PROV}hadPrimarySource", source))
            said.append(self._said(source, LABEL, self.text(change.source)))
        return said

    def answer(self, one: "StoredAnswer", decision: "Decision") -> list[Quad]:
        """The fact that an answer states, with the model that gave it and the decision on it."""
        graph, given = self.own(f"answer/{one.id}"), one.given
        model = self.own(f"model/{quote(one.model, safe='')}")
        return [
            self._library.Quad(*self.terms(stated_by(given)), graph),
            self._said(graph, TYPE, self.node(f"{PROV}Entity")),
            self._said(graph, f"{PROV}generatedAtTime", self._moment(one.at)),
            self._said(graph, f"{PROV}wasAttributedTo", model),
            self._said(model, TYPE, self.node(f"{PROV}SoftwareAgent")),
            self._said(model, LABEL, self.text(one.model)),
            *self._agent(graph, f"{OWN}recordedBy", one.who),
            self._said(graph, f"{OWN}madeFrom", self._number(one.made_from)),
            self._said(graph, f"{OWN}asked", self.text("head" if given.direction == "heads" else "tail")),
            self._said(graph, f"{OWN}rank", self._number(given.rank)),
            self._said(graph, f"{OWN}probability", self._share(given.probability)),
            self._said(graph, f"{OWN}ifAny", self._share(given.if_any)),
            self._said(graph, f"{OWN}reason", self.text(given.reason)),
            *self._decision(graph, decision),
        ]

    def _decision(self, graph: Term, decision: "Decision") -> list[Quad]:
        activity = self.own(f"decision/{decision.position}")
        return [
            self._said(activity, TYPE, self.node(f"{PROV}Activity")),
            self._said(activity, f"{PROV}used", graph),
            self._said(activity, f"{PROV}endedAtTime", self._moment(decision.at)),
            *self._agent(activity, f"{PROV}wasAssociatedWith", decision.who),
            self._said(activity, f"{OWN}verdict", self.text(decision.verdict)),
            self._said(activity, f"{OWN}note", self.text(decision.note)),
        ]

    def _agent(self, about: Term, how: str, who: str) -> list[Quad]:
        """Someone who has to do with something."""
        agent = self.own(f"agent/{quote(who, safe='')}")
        return [
            self._said(about, how, agent),
            self._said(agent, TYPE, self.node(f"{PROV}Agent")),
            self._said(agent, LABEL, self.text(who)),
        ]

    def _said(self, subject: Term, predicate: str, value: Term) -> Quad:
        return self._library.Quad(subject, self.node(predicate), value, self.graph)

    def _typed(self, value: str, kind: str) -> Term:
        return self._library.Literal(value, datatype=self.node(f"{XSD}{kind}"))

    def _moment(self, at: datetime) -> Term:
        return self._typed(f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "dateTime")

    def _number(self, value: int) -> Term:
        return self._typed(str(value), "integer")

    def _share(self, value: float) -> Term:
        return self._typed(repr(value), "double")


def quads(state: "Reading", base: str = BASE, what: str = BOTH, since: int = 0) -> Iterator[Quad]:
    """The current facts and the accepted answers of a state, each quad once; those after a position, where it is given.

    Facts of the same change are together, and what is said of the change comes before them.
    """
    made, described = Provenance(base), set[Quad]()

    def once(found: list[Quad]) -> Iterator[Quad]:
        for quad in found:
            shared = quad.graph_name == made.graph and not _is_of_one(quad, made)
            if not shared or quad not in described:
                yield quad
            if shared:
                described.add(quad)

    if what in (FACTS, BOTH):
        for stated in current_facts(state, since):
            yield from once(made.change(stated.change))
            yield from (made.fact(fact, stated.change.position) for fact in stated.facts)
    if what in (ANSWERS, BOTH):
        for one in accepted_answers(state, since):
            if one.decision is not None:
                yield from once(made.answer(one, one.decision))


def _is_of_one(quad: Quad, made: Provenance) -> bool:
    """Whether a quad describes one change, answer or decision, and so can come only once."""
    subject = quad.subject.value.removeprefix(made.base)
    return bool(subject.startswith(("change/", "answer/", "decision/")))
