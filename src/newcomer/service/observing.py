"""What is seen of each request: a line in the log, figures, and a name by which both sides can find it."""

import asyncio
import re
import time
import uuid
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from newcomer.service.auth import CALLER
from newcomer.service.logs import log
from newcomer.service.problems import problem_response, stopping
from newcomer.service.shared import Shared

REQUEST_ID = "X-Request-Id"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
QUIET = ("/healthz", "/readyz", "/metrics")  # asked for every few seconds: in the log only where something is wrong
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS")
BODY = 10_000  # bytes that are logged where that is asked for
REFUSED = {
    401: "no-token",
    403: "not-allowed",
    413: "too-large",
    421: "wrong-host",
    429: "too-busy",
    503: "unavailable",
}


class Observing:
    """The outermost layer: whatever goes wrong inside it becomes a response."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app, self._shared = app, shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = _Request(scope, self._shared.settings.log_facts)
        metrics = self._shared.metrics
        metrics.in_flight.inc()
        try:
            await self._app(scope, request.receiving(receive), request.sending(send))
        except asyncio.CancelledError:  # the service ends, and its grace is over
            if not request.status:
                await problem_response(stopping())(scope, receive, request.sending(send))
        except Exception as error:
            if not request.status:
                await problem_response(error)(scope, receive, request.sending(send))
            elif not request.is_whole:  # else the error is what was answered, and logged
                log("broken-off", id=request.id, fault=error)
                raise
        finally:
            metrics.in_flight.dec()
            seconds = time.perf_counter() - request.started
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.seconds.labels(request.route, method, str(request.status)).observe(seconds)
            if request.status in REFUSED:
                metrics.rejected.labels(REFUSED[request.status]).inc()
            if scope["path"] not in QUIET or request.status >= 400:
                request.log(seconds)


class _Request:
    """One request as it is answered."""

    def __init__(self, scope: Scope, with_facts: bool) -> None:
        self._scope, self._with_facts = scope, with_facts
        given = Headers(scope=scope).get(REQUEST_ID, "")
        self.id = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        self.started, self.status, self.is_whole = time.perf_counter(), 0, False
        self._body = b""

    @property
    def route(self) -> str:
        """The address without what stands for a name in it."""
        return getattr(self._scope.get("route"), "path", "other")

    def sending(self, send: Send) -> Send:
        """Sends with the request's id, and sees the status."""

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = self.id
            await send(message)
            self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        return seen

    def receiving(self, receive: Receive) -> Receive:
        """Receives, and keeps the beginning of the body where it is to be logged."""
        if not self._with_facts:
            return receive

        async def seen() -> Message:
            message = await receive()
            self._body = (self._body + message.get("body", b""))[:BODY]
            return message

        return seen

    def log(self, seconds: float) -> None:
        """Write it down; a status of 0 is that of a client who went before the answer."""
        caller = self._scope.get(CALLER)
        about: dict[str, Any] = {"id": self.id, "method": self._scope["method"][:20], "route": self.route}
        about |= {
            "status": self.status,
            "ms": round(1_000 * seconds, 1),
            "who": None if caller is None else caller.name,
        }
        if self._with_facts:
            query = self._scope["query_string"][:BODY].decode("latin-1")
            about |= {"query": query, "body": self._body.decode("utf-8", "backslashreplace")}
        log("request", **about)
