"""Newcomers: their facts are stated and retracted, and listed with who said so and when."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from newcomer.errors import shown
from newcomer.predictor.fact_store import Skipping
from newcomer.service import forms, replies
from newcomer.service.auth import Reader, Writer
from newcomer.service.problems import ServiceError, ok
from newcomer.service.routes.parameters import PAGE, AfterName, Here, Key, Limit, OneName, Prefix
from newcomer.service.shared import Shared, reply
from newcomer.store import Change, NotThereError, Statement

router = APIRouter(prefix="/v1", tags=["newcomers"])
History = Annotated[bool, Query(description="All that was ever stated and retracted about it.")]


def _check_number(shared: Shared, facts: list[list[str]]) -> None:
    most = shared.settings.max_facts
    if len(facts) > most:
        sentence = f"{len(facts):,} facts are more than the {most:,} that are taken at once"
        raise ServiceError(413, "too-many", f"{sentence}; send them in parts", "facts")


@router.post("/newcomers", responses=ok(replies.Added))
async def add(given: forms.NewFacts, shared: Here, caller: Writer, key: Key = None) -> Response:
    """State facts of newcomers, of one or of many: all of them or, where one is wrong, none."""
    _check_number(shared, given.facts)
    live, skipping = shared.live.current, Skipping(given.on_unknown_relation, given.on_seen_fact)

    def work(_: object) -> dict[str, Any]:
        done = live.arrived(given.facts, skipping, who=caller.name, source=given.source, key=key)
        return {"position": done.change.position, "model": live.version} | done.added.to_dict()

    found = await shared.gate.run(work, whole=True)
    shared.metrics.changes.labels("add").inc()
    return reply(found)


@router.post("/newcomers/retract", responses=ok(replies.Removed, 404))
async def retract(given: forms.OldFacts, shared: Here, caller: Writer, key: Key = None) -> Response:
    """Retract facts; newcomers that are left without any leave."""
    _check_number(shared, given.facts)
    live = shared.live.current
    change = await shared.gate.run(
        lambda _: live.retract(given.facts, who=caller.name, source=given.source, key=key), whole=True
    )
    return _removed(shared, change, live.version, "retract")


@router.delete("/newcomer", responses=ok(replies.Removed, 404))
async def remove(name: OneName, shared: Here, caller: Writer, key: Key = None) -> Response:
    """Retract all facts of a newcomer; others that no other fact is about leave with it."""
    live = shared.live.current
    change = await shared.gate.run(lambda _: live.remove(name, who=caller.name, key=key), whole=True)
    return _removed(shared, change, live.version, "remove")


def _removed(shared: Shared, change: Change, version: str, kind: str) -> Response:
    shared.metrics.changes.labels(kind).inc()
    found = {"position": change.position, "model": version, "left": list(change.left), "facts": change.facts}
    return reply(found)


@router.get("/newcomers", responses=ok(replies.Newcomers))
async def page(
    shared: Here, caller: Reader, after: AfterName = "", limit: Limit = PAGE, prefix: Prefix = ""
) -> Response:
    """A page of newcomers, by name."""
    live = shared.live.current

    def work(_: object) -> dict[str, Any]:
        with live.store.reading() as state:
            found = state.newcomers(after, limit, prefix)
            listed = [one._asdict() | {"at": one.at.isoformat()} for one in found]
            following = found[-1].name if len(found) == limit else None
            return {"position": state.position, "model": live.version, "newcomers": listed, "after": following}

    return reply(await shared.gate.run(work))


@router.get("/newcomer", responses=ok(replies.Newcomer, 404))
async def one(name: OneName, shared: Here, caller: Reader, history: History = False) -> Response:
    """A newcomer with its facts: who stated each, when and from where."""
    live = shared.live.current

    def work(_: object) -> dict[str, Any]:
        with live.store.reading() as state:
            found = [] if live.is_seen(name) else state.history(name) if history else state.facts_of([name])
            position = state.position
        if not found:
            raise NotThereError(f"the newcomer {shown(name)} is not in the store; check the name")
        facts = [_stated(fact) for fact in found]
        return {"position": position, "model": live.version, "name": name, "facts": facts}

    return reply(await shared.gate.run(work))


def _stated(one: Statement) -> dict[str, Any]:
    return one._asdict() | {"fact": list(one.fact), "at": one.at.isoformat()}
