"""Recorded answers, and what people decide on them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from newcomer.service import forms, replies
from newcomer.service.auth import Reader, Writer
from newcomer.service.forms import NAME_LENGTH
from newcomer.service.problems import ok
from newcomer.service.routes.parameters import LARGEST, PAGE, AfterNumber, Here, Key, Limit
from newcomer.service.shared import reply
from newcomer.store import Decision, StoredAnswer

router = APIRouter(prefix="/v1", tags=["answers"])
Identifier = Annotated[int, Path(ge=1, le=LARGEST, description="The id of an answer.", examples=[1])]
About = Annotated[str | None, Query(min_length=1, max_length=NAME_LENGTH, description="The entity asked about.")]
Least = Annotated[float, Query(ge=0, le=1, allow_inf_nan=False, description="Leave out less probable answers.")]
Decided = Annotated[
    Literal["accept", "reject", "unsure", "open"] | None,
    Query(description="The latest decision; `open` are those that nobody has decided on."),
]


@router.get("/answers", responses=ok(replies.GivenAnswers))
async def page(
    shared: Here,
    caller: Reader,
    entity: About = None,
    min_probability: Least = 0.0,
    decision: Decided = None,
    after: AfterNumber = 0,
    limit: Limit = PAGE,
) -> Response:
    """A page of recorded answers, by id."""
    live = shared.live.current

    def work(_: object) -> dict[str, Any]:
        with live.store.reading() as state:
            found = state.answers(entity, min_probability, decision, after, limit)
            following = found[-1].id if len(found) == limit else None
            listed = [_given(one) for one in found]
            return {"position": state.position, "model": live.version, "answers": listed, "after": following}

    return reply(await shared.gate.run(work))


@router.get("/answers/{identifier}", responses=ok(replies.OneGiven, 404))
async def one(identifier: Identifier, shared: Here, caller: Reader) -> Response:
    """A recorded answer with all decisions on it."""
    live = shared.live.current

    def work(_: object) -> dict[str, Any]:
        with live.store.reading() as state:
            answer, decisions = state.answer(identifier), state.decisions(identifier)
            head = {"position": state.position, "model": live.version}
        return head | {"answer": _given(answer), "decisions": [_decision(one) for one in decisions]}

    return reply(await shared.gate.run(work))


@router.post("/answers/{identifier}/decision", responses=ok(replies.Changed, 404))
async def decide(
    identifier: Identifier, given: forms.Decide, shared: Here, caller: Writer, key: Key = None
) -> Response:
    """Decide on an answer; the latest decision counts, and all are kept."""
    live = shared.live.current
    change = await shared.gate.run(
        lambda _: live.store.decide(identifier, given.verdict, who=caller.name, note=given.note, key=key), whole=True
    )
    shared.metrics.changes.labels("decide").inc()
    return reply({"position": change.position, "model": live.version})


def _given(one: StoredAnswer) -> dict[str, Any]:
    whole = one._asdict() | {"at": one.at.isoformat(), "decision": one.decision and _decision(one.decision)}
    return one.given._asdict() | {name: value for name, value in whole.items() if name != "given"}


def _decision(one: Decision) -> dict[str, Any]:
    return one._asdict() | {"at": one.at.isoformat()}
