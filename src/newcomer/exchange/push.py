"""A store pushed to a SPARQL endpoint: its log is followed from where the last push ended.

What was stated is inserted, what was retracted is deleted, and the fact of an answer is there as long as the latest
decision accepts it; with it what is said of where it comes from (`newcomer.exchange.provenance`). So the endpoint has
what an export of the same state has.

How far it has come, the endpoint knows itself: the mark is written in the same request as each batch. A push that was
stopped goes on from there, also from another machine, and an endpoint that was set back to an older state is brought
forward from that. A batch whose answer was lost is sent again and changes nothing: every quad has its own IRIs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from newcomer.errors import EndpointError
from newcomer.exchange.provenance import OWN, PROV, Provenance
from newcomer.exchange.selection import ANSWERS, BOTH, FACTS, entries
from newcomer.exchange.sparql import Endpoint

if TYPE_CHECKING:
    from newcomer.store import Entry, Fact, StoredAnswer
    from newcomer.store.store import Store

BATCH = 1_000  # items in one request
LONGEST = 1 << 20  # characters of one request, about
Progress = Callable[[int, int], None]


class Mark(NamedTuple):
    """How far a push has come: all up to a position, and so many items of the entry that follows it."""

    position: int
    items: int = 0


class Item(NamedTuple):
    """Something to do at the endpoint: quads to insert, or an update; ``mark`` is how far it leads."""

    quads: list[Any]
    update: str
    mark: Mark
    kind: str


@dataclass
class Pushed:
    """What a push did: facts inserted and deleted, decisions on answers, requests, and the position it came to."""

    facts: int = 0
    retracted: int = 0
    decisions: int = 0
    requests: int = 0
    began: int = 0
    position: int = 0


class Push:
    """One push of a store to an endpoint."""

    def __init__(self, store: "Store", endpoint: Endpoint, base: str, what: str = BOTH) -> None:
        self._store, self._endpoint, self._what = store, endpoint, what
        self._made = Provenance(base)
        self._pushed = self._made.own(f"pushed/{what}")

    def run(self, progress: Progress | None = None) -> Pushed:
        """Bring the endpoint to the state of the store."""
        last, mark = self._store.position(), self._mark()
        if mark.position > last:
            problem = (
                f"the endpoint has position {mark.position:,} of {self._made.base}, the store's last one is {last:,}"
            )
            raise EndpointError(f"{problem}; it was pushed from another store, so give this one a --base of its own")
        done = Pushed(began=mark.position, position=last)
        for batch in _batches(self._items(mark, last)):
            self._send(batch)
            done.requests += 1
            for item in batch:
                done.facts += item.kind == "add"
                done.retracted += item.kind == "retract"
                done.decisions += item.kind == "decide"
            if progress is not None:
                progress(batch[-1].mark.position, last)
        return done

    def _mark(self) -> Mark:
        """How far the endpoint has come."""
        graph, pushed = self._made.graph, self._pushed
        asked = f"SELECT ?position ?items WHERE {{ GRAPH {graph} {{ {pushed} <{OWN}position> ?position ; "
        found = self._endpoint.select(f"{asked}<{OWN}items> ?items }} }}")
        try:
            return max((Mark(int(one["position"]), int(one["items"])) for one in found), default=Mark(0))
        except (KeyError, ValueError):
            raise EndpointError(f"what the endpoint has as {pushed} is no mark of a push; remove it") from None

    def _items(self, mark: Mark, last: int) -> Iterator[Item]:
        """What is to be done after a mark, in the order of the log; each page of it is read on its own."""
        after = mark.position
        while after < last:
            with self._store.reading() as state:
                page = list(entries(state, after, min(after + BATCH, last)))
                decided = {one.decision.answer for one in page if one.decision is not None}
                answers = {one: state.answer(one) for one in decided}
            for entry in page:
                skipped = mark.items if entry.position == mark.position + 1 else 0
                for place, item in enumerate(self._of(entry, answers)):
                    if place >= skipped:
                        yield item._replace(mark=Mark(entry.position - 1, place + 1))
            after = page[-1].position
        if mark != Mark(last):  # the log may end with what is not pushed
            yield _item("")._replace(mark=Mark(last))

    def _of(self, entry: "Entry", answers: "dict[int, StoredAnswer]") -> Iterator[Item]:
        """What is to be done for an entry of the log."""
        if self._what in (FACTS, BOTH):
            for place, fact in enumerate(entry.stated):
                described = [] if place else self._made.change(entry)
                yield _item("add", [*described, self._made.fact(fact, entry.position)])
            for fact in entry.retracted:
                yield _item("retract", update=self._without(fact))
        if self._what in (ANSWERS, BOTH) and entry.decision is not None:
            answer = answers[entry.decision.answer]
            yield _item("", update=self._without_answer(answer))
            accepted = entry.decision.verdict == "accept"
            yield _item("decide", self._made.answer(answer, entry.decision) if accepted else [])

    def _without(self, fact: "Fact") -> str:
        """The update that deletes a fact, and what is said of a change that is left without any."""
        head, relation, tail = self._made.terms(fact)
        changes = f'FILTER(STRSTARTS(STR(?g), "{self._made.base}change/"))'
        where = f"GRAPH ?g {{ {head} {relation} {tail} }} {changes}"
        other = f"FILTER(?s != {head} || ?p != {relation} || ?o != {tail})"
        alone = f"FILTER NOT EXISTS {{ GRAPH ?g {{ ?s ?p ?o }} {other} }}"
        said = f"GRAPH {self._made.graph} {{ ?g ?q ?v }}"
        gone = f"DELETE {{ GRAPH ?g {{ {head} {relation} {tail} }} }} WHERE {{ {where} }}"
        return f"DELETE {{ {said} }} WHERE {{ {where} {alone} {said} }} ;\n{gone}"

    def _without_answer(self, answer: "StoredAnswer") -> str:
        """The update that deletes the fact of an answer, and what is said of it."""
        graph, own = self._made.graph, self._made.own(f"answer/{answer.id}")
        decisions = f"GRAPH {graph} {{ ?d <{PROV}used> {own} . ?d ?p ?o }}"
        return (
            f"DELETE {{ GRAPH {graph} {{ ?d ?p ?o }} }} WHERE {{ {decisions} }} ;\n"
            f"DELETE WHERE {{ GRAPH {graph} {{ {own} ?p ?o }} }} ;\n"
            f"DELETE WHERE {{ GRAPH {own} {{ ?s ?p ?o }} }}"
        )

    def _send(self, batch: list[Item]) -> None:
        """Do all of a batch, and write the mark that it leads to, in one request."""
        parts: list[str] = []
        quads: list[Any] = []
        for item in batch:
            quads += item.quads
            if item.update:
                parts += [*_inserted(quads), item.update]
                quads = []
        mark = batch[-1].mark
        described = f"<{OWN}position> {mark.position} ; <{OWN}items> {mark.items}"
        parts += [
            *_inserted(quads),
            f"DELETE WHERE {{ GRAPH {self._made.graph} {{ {self._pushed} ?p ?o }} }}",
            f"INSERT DATA {{ GRAPH {self._made.graph} {{ {self._pushed} {described} }} }}",
        ]
        self._endpoint.update(" ;\n".join(parts))


def _item(kind: str, quads: list[Any] | None = None, update: str = "") -> Item:
    return Item(quads or [], update, Mark(0), kind)


def _inserted(quads: list[Any]) -> list[str]:
    """The update that inserts quads, each once; none where there are none."""
    if not quads:
        return []
    by_graph: dict[Any, dict[str, None]] = {}
    for quad in quads:
        by_graph.setdefault(quad.graph_name, {})[str(quad.triple)] = None
    groups = (f"GRAPH {graph} {{ {' . '.join(triples)} }}" for graph, triples in by_graph.items())
    return [f"INSERT DATA {{ {' '.join(groups)} }}"]


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Items in their order, so many at a time as one request takes."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item.update) + sum(len(str(quad)) for quad in item.quads)
        if len(batch) >= BATCH or size >= LONGEST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
