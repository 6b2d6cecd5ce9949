"""What commands share that work on a store of newcomers: opening it, asking a model over it, recording answers."""

import getpass
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from newcomer.cli.answer_files import Found, Row, fact_of
from newcomer.errors import OptionError, StoreError, optional, shown
from newcomer.exchange.selection import stated_by

if TYPE_CHECKING:
    from newcomer.predictor import Answer, Predictor, Suggestion
    from newcomer.service.stored_predictor import Scope, StoredPredictor
    from newcomer.store import Fact, GivenAnswer
    from newcomer.store.reading import Reading
    from newcomer.store.store import Store

PAGE = 1_000  # newcomers, or answers, that are read at once
NOT_HERE = "check the name, or state facts of it with `newcomer add`"


class AskedAt(NamedTuple):
    """The model and the position of the log that answers come from."""

    model: str
    position: int


@contextmanager
def opened(place: str, fresh: bool = False) -> "Iterator[Store]":
    """The store in a place; only where it may be ``fresh`` an empty place becomes one."""
    optional("sqlalchemy", "a store of newcomers", "store")
    from newcomer.files import looking_at
    from newcomer.store import open_store
    from newcomer.store.places import url_of

    url = url_of(place)
    if not fresh and url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        with looking_at(path):
            if not path.exists():
                raise StoreError(f"{path}: does not exist; `newcomer add` makes a store with its first facts")
    with open_store(place) as store:
        yield store


def asker(who: str | None) -> str:
    """Who asks: the name given, or that of the login."""
    if who is not None:
        return who
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return "unnamed"


def counted(count: int, what: str) -> str:
    """So many of something, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def when(moment: datetime) -> str:
    """A moment as a table shows it."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


@contextmanager
def over(model: "Predictor", run: Path, place: str, fresh: bool = False) -> "Iterator[StoredPredictor]":
    """The model of a folder over a store."""
    from newcomer.service.stored_predictor import StoredPredictor, model_version

    with opened(place, fresh) as store:
        yield StoredPredictor(model, store, model_version(run))


@dataclass(frozen=True)
class Scopes:
    """A model over one state of a store: all that a command asks is answered from it, whatever others write."""

    live: "StoredPredictor"
    state: "Reading"

    @property
    def asked_at(self) -> AskedAt:
        """Where answers come from."""
        return AskedAt(self.live.version, self.state.position)

    def of(self, *entities: str) -> "Scope":
        """The model with the newcomers that a question about these entities is answered beside."""
        return self.live.scope_in(self.state, entities)

    def each(self, entities: Sequence[str] | None) -> "Iterator[tuple[Predictor, Sequence[str]]]":
        """Every entity to query, with its model; where none is named, all newcomers that the model does not know."""
        for name in self._newcomers() if entities is None else entities:
            yield self.of(name).model, (name,)

    def check(self, entities: Sequence[str]) -> None:
        """Refuse the first name that is in neither the model nor the store."""
        for name in entities:
            if not self.has(name):
                raise OptionError(f"the entity {shown(name)} is in neither the model nor the store; {NOT_HERE}")

    def has(self, entity: str) -> bool:
        """Whether an entity can be asked about."""
        return self.live.is_seen(entity) or entity in self.of(entity).model

    def _newcomers(self) -> Iterator[str]:
        after = ""
        while page := self.state.newcomers(after, PAGE):
            after = page[-1].name
            yield from (one.name for one in page if not self.live.is_seen(one.name))


@contextmanager
def scopes(model: "Predictor", run: Path, place: str) -> Iterator[Scopes]:
    """The model of a folder over the state that a store has now."""
    with over(model, run, place) as live, live.store.reading() as state:
        yield Scopes(live, state)


def given_answer(about: Row, answer: "Answer | Suggestion") -> "GivenAnswer":
    """An answer as a store takes it."""
    from newcomer.store import GivenAnswer

    fact, entity = fact_of(about, answer), about["entity"]
    heads = about["asked"] == "head" if "asked" in about else fact[0] != entity
    return GivenAnswer(
        entity,
        fact[1],
        "heads" if heads else "tails",
        fact[0 if heads else 2],
        about["rank"],
        answer.probability,
        answer.if_any,
        str(answer.because),
    )


def recorded(
    answers: Iterator[tuple[str, Found]], place: str, who: str | None, asked: Sequence[AskedAt]
) -> Iterator[tuple[str, Found]]:
    """Answers as they come; when all are given, those whose facts no recorded answer states are recorded.

    All at once: a command that was stopped has recorded nothing, and may be run again.
    """
    given: dict[Fact, GivenAnswer] = {}
    count = 0
    for query, found in answers:
        for about, answer in found:
            one = given_answer(about, answer)
            given.setdefault(stated_by(one), one)
            count += 1
        yield query, found
    with opened(place) as store:
        fresh = _unrecorded(store, given)
        model, position = asked[-1]
        done = store.record(fresh, model=model, made_from=position, who=asker(who))
    _tell_recorded(done.ids, count - len(done.ids))


def _tell_recorded(ids: Sequence[int], repeated: int) -> None:
    """Say what was recorded, on standard error: answers are on standard output."""
    known = f"; {repeated:,} {'was' if repeated == 1 else 'were'} there already" if repeated else ""
    named = f" (id {' to '.join(str(one) for one in dict.fromkeys((ids[0], ids[-1])))})" if ids else ""
    typer.echo(f"newcomer: recorded {counted(len(ids), 'answer')}{named}{known}", err=True)


def _unrecorded(store: "Store", given: "dict[Fact, GivenAnswer]") -> "list[GivenAnswer]":
    """Those of the answers that no recorded answer about their entities has stated."""
    with store.reading() as state:
        entities = dict.fromkeys(one.entity for one in given.values())
        known = {stated_by(one) for entity in entities for one in _recorded_of(state, entity)}
    return [one for fact, one in given.items() if fact not in known]


def _recorded_of(state: "Reading", entity: str) -> "Iterator[GivenAnswer]":
    """All answers that were recorded about an entity."""
    after = 0
    while page := state.answers(entity, after=after, limit=PAGE):
        after = page[-1].id
        yield from (one.given for one in page)
