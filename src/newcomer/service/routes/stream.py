"""A stream of questions: a line of JSON for each, and a line for its answer, or for what is wrong with it.

The next question is read when the answer to the last one is on its way: whoever does not read its answers is not read.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from newcomer.service import forms, problems
from newcomer.service.answering import answer_one
from newcomer.service.auth import Reader, must
from newcomer.service.guard import STREAMED
from newcomer.service.problems import BusyError, ServiceError, problem, service_error, told
from newcomer.service.routes.parameters import Here
from newcomer.service.routes.questions import check_size
from newcomer.service.shared import Shared, as_json
from newcomer.service.tokens import Caller

router = APIRouter(tags=["questions"])
NDJSON = "application/x-ndjson"
LINE = 1_048_576  # bytes of a question
IDLE = 300  # seconds without a question after which a stream ends
QUESTION: TypeAdapter[forms.Question] = TypeAdapter(forms.AnyQuestion)

REQUEST = {"required": True, "content": {NDJSON: {"schema": {"type": "string", "description": "A question a line."}}}}
LINES = {"description": "A line for each question.", "content": {NDJSON: {"schema": {"type": "string"}}}}
ANSWERED: dict[int | str, dict[str, Any]] = {200: LINES, **told()}


@router.post(STREAMED, openapi_extra={"requestBody": REQUEST}, responses=ANSWERED, response_class=Response)
async def stream(request: Request, shared: Here, caller: Reader) -> Response:
    """Questions as lines of JSON, as those of /v1/questions; the answers follow line by line, each at its position."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != NDJSON:
        raise ServiceError(415, "wrong-media-type", f"the body is not said to be lines of JSON; send {NDJSON}")
    if shared.streams >= shared.settings.streams:
        raise BusyError(f"{shared.streams} streams are open already")
    return Stream(shared, caller)


class Stream(Response):
    """The answers, while the questions arrive."""

    media_type = NDJSON

    def __init__(self, shared: Shared, caller: Caller) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._shared, self._caller = shared, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._shared.streams += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for line in self._answers(receive):
                await send({"type": "http.response.body", "body": as_json(line) + b"\n", "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._shared.streams -= 1

    async def _answers(self, receive: Receive) -> AsyncIterator[dict[str, Any]]:
        number = 0
        try:
            async for text in lines(receive, self._shared.stopping):
                number += 1
                if text.strip():
                    yield {"line": number} | await self._answer(text)
        except ServiceError as error:  # after which there is no next line
            yield {"line": number + 1, "problem": problem(error)}

    async def _answer(self, text: bytes) -> dict[str, Any]:
        try:
            question = read_question(text)
            check_size(self._shared, question)
            records = getattr(question, "record", False)
            if records:
                must(self._caller, "write")
            live, metrics, who = self._shared.live.current, self._shared.metrics, self._caller.name
            return await self._shared.gate.run(
                lambda left: answer_one(live, question, left, metrics, who, None), patient=True, whole=records
            )
        except Exception as error:
            return {"problem": problem(service_error(error))}


def read_question(text: bytes) -> forms.Question:
    """The question of a line."""
    try:
        return QUESTION.validate_python(json.loads(text))
    except ValidationError as error:
        raise service_error(error) from None
    except (ValueError, RecursionError):
        raise ServiceError(400, "unreadable-body", "the line is no JSON; send a question as one line of it") from None


async def lines(receive: Receive, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """The lines of a body as they arrive, until it ends or the service stops."""
    rest, more = b"", True
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while more:
            taken = asyncio.ensure_future(receive())
            await asyncio.wait({taken, stop}, timeout=IDLE, return_when=asyncio.FIRST_COMPLETED)
            if not taken.done():
                taken.cancel()
                raise _ended(stopping)
            message = taken.result()
            if message["type"] == "http.disconnect":
                return
            *whole, rest = (rest + message.get("body", b"")).split(b"\n")
            for line in whole:
                yield line
                if stopping.is_set():
                    raise _ended(stopping)
            if len(rest) > LINE:
                raise ServiceError(413, "too-large", f"a line has more than {LINE:,} bytes; ask less at once")
            more = message.get("more_body", False)
        if rest:
            yield rest
    finally:
        stop.cancel()


def _ended(stopping: asyncio.Event) -> ServiceError:
    if stopping.is_set():
        return problems.stopping()
    return ServiceError(408, "slow-body", f"no question came for {IDLE} seconds; open another stream")
