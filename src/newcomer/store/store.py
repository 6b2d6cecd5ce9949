"""A durable store of newcomers: what was stated, by whom and when, what models answered, and what people decided."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import URL, Engine

from newcomer.errors import check_name
from newcomer.store import schema, texts
from newcomer.store.places import engine_of, reads, shown_place, told, url_of, writes
from newcomer.store.reading import Reading
from newcomer.store.records import Change, GivenAnswer, Recorded, Verdict
from newcomer.store.writing import Request, Writing

Outcome = TypeVar("Outcome", Change, Recorded)


class Store:
    """An open store; threads may share it, and any number of processes may have one open each.

    Every change is one transaction: it is made as a whole or not at all, and is on the disk when the call returns.
    ``who`` names whoever asks for it. A request that may be sent twice has a ``key``, which belongs to ``who``: the
    second time it changes nothing and returns what it did the first time; another request with the same key is a
    `KeyReusedError`.
    """

    def __init__(self, url: URL, engine: Engine) -> None:
        self._url, self._engine = url, engine

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({shown_place(self._url)!r})"

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """One state, for as long as the block takes."""
        with told(self._url), reads(self._engine) as connection:
            yield Reading(connection)

    def position(self) -> int:
        """The position of the last change; of none, 0."""
        with self.reading() as state:
            return state.position

    def add(
        self,
        facts: Iterable[Sequence[str]],
        *,
        is_seen: Callable[[str], bool],
        who: str,
        source: str | None = None,
        key: str | None = None,
        asked: Iterable[Sequence[str]] | None = None,
    ) -> Change:
        """State facts of newcomers: of those entities that a model was not trained on.

        Facts that are stated already are counted; those that were retracted can be stated again. Where a model left
        some out, ``asked`` are the facts of the request: its ``key`` stands for these, whatever a later model leaves.
        """
        stated = texts.facts(facts)
        newcomers = {name for name in texts.ends(stated) if not is_seen(name)}
        request = _request("add", who, key, stated if asked is None else texts.facts(asked), source)
        return self._once(request, Change, lambda change: change.add(stated, newcomers))

    def retract(
        self, facts: Iterable[Sequence[str]], *, who: str, source: str | None = None, key: str | None = None
    ) -> Change:
        """Retract facts, all of which have to be there; newcomers that are left without any leave."""
        retracted = texts.facts(facts)
        request = _request("retract", who, key, retracted, source)
        return self._once(request, Change, lambda change: change.retract(retracted))

    def remove(
        self, newcomers: Iterable[str], *, who: str, source: str | None = None, key: str | None = None
    ) -> Change:
        """Retract all facts of newcomers; others that no other fact is about leave with them."""
        names = texts.names(newcomers)
        request = _request("remove", who, key, names, source)
        return self._once(request, Change, lambda change: change.remove(names))

    def record(
        self, answers: Iterable[GivenAnswer], *, model: str, made_from: int, who: str, key: str | None = None
    ) -> Recorded:
        """Write down what a model answered, from the facts that there were at the position ``made_from``."""
        given, model = texts.given(answers), texts.words("the model", model)
        made_from = texts.number("the position that answers were made from", made_from, 0)
        request = _request("record", who, key, [given, model, made_from])
        return self._once(request, Recorded, lambda change: change.record(given, model, made_from))

    def decide(self, answer: int, verdict: Verdict, *, who: str, note: str = "", key: str | None = None) -> Change:
        """Decide on an answer; the latest decision counts, and all are kept."""
        answer = texts.number("the id of an answer", answer, 1)
        check_name("decision", verdict, texts.VERDICTS)
        note = texts.text("the note", note, texts.NOTE_LENGTH)
        request = _request("decide", who, key, [answer, verdict, note])
        return self._once(request, Change, lambda change: change.decide(answer, verdict, note))

    def _once(self, request: Request, kind: type[Outcome], work: Callable[[Writing], Outcome]) -> Outcome:
        """Make a change, unless its key says that it was made before."""
        with told(self._url), writes(self._engine) as connection:
            writing = Writing(connection, request)
            first = writing.first_outcome()
            if first is not None:
                return kind._make(tuple(part) if isinstance(part, list) else part for part in first)
            outcome = work(writing)
            writing.close(outcome)
        return outcome


def open_place(place: str | Path, wait_seconds: float) -> Store:
    """Open the store in a place; an empty place becomes one."""
    url = url_of(place)
    engine = engine_of(url, wait_seconds)
    try:
        with told(url):
            schema.migrate(engine, shown_place(url))
    except BaseException:
        engine.dispose()
        raise
    return Store(url, engine)


def _request(kind: str, who: str, key: str | None, content: Sequence[Any], source: str | None = None) -> Request:
    source = texts.text("the source", source or "", texts.NAME_LENGTH)
    key = None if key is None else texts.words("the key", key)
    return Request(kind, texts.words("the name of who asks", who), key, content, source)
