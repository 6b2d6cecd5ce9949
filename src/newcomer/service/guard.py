"""What every request passes: names and origins that may ask, headers that tell browsers to be careful, bounded bodies.

A service on a loopback address is called by the names of this machine alone: a page of the web whose name leads here
(DNS rebinding) gets no answer, nor does one of another origin that sends a change.
"""

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from newcomer.errors import shown
from newcomer.service.problems import ServiceError, problem_response
from newcomer.service.shared import Shared

SAFE = ("GET", "HEAD", "OPTIONS")
STREAMED = "/v1/stream/questions"  # read line by line
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guarding:
    """Refuses wrong names and origins, and adds headers to all responses."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app, self._names, self._cors = app, shared.settings.names, shared.settings.cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    if not (name.startswith("Cross-Origin") and self._cors):
                        headers.setdefault(name, value)
            await send(message)

        error = self._refused(Headers(scope=scope), scope["method"])
        app = self._app if error is None else problem_response(error)
        await app(scope, receive, with_headers)

    def _refused(self, headers: Headers, method: str) -> ServiceError | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._names is not None and _name_of(host) not in self._names:
            sentence = (
                f"this service is not called {shown(host)}; call it by its address, or start it with --allow-host"
            )
            return ServiceError(421, "wrong-host", sentence)
        if origin is not None and method not in SAFE and origin not in self._cors and _host_of(origin) != host:
            sentence = f"a page of {shown(origin)} may not send this; start the service with --cors to allow it"
            return ServiceError(403, "wrong-origin", sentence)
        return None


def _name_of(host: str) -> str:
    """A host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


class Bodies:
    """Takes whole bodies up to a size, within the time that a request may take; streams are read as they come."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app, self._most, self._seconds = app, shared.settings.max_body, shared.settings.timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == STREAMED:
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._body(Headers(scope=scope), receive)
        except ServiceError as error:
            await problem_response(error)(scope, receive, send)
            return
        except TimeoutError:
            sentence = f"the body did not arrive within {self._seconds} seconds; send it faster, or less"
            await problem_response(ServiceError(408, "slow-body", sentence))(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _once(body, receive), send)

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """The body; None where the client has gone."""
        stated = headers.get("content-length", "0")
        if stated.isdigit() and int(stated) > self._most:
            raise self._too_large()
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                raise self._too_large()
            if not message.get("more_body", False):
                break
        body = b"".join(parts)
        if body and not _is_json(headers.get("content-type", "")):
            raise ServiceError(415, "wrong-media-type", "the body is not said to be JSON; send application/json")
        return body

    def _too_large(self) -> ServiceError:
        return ServiceError(413, "too-large", f"the body has more than {self._most:,} bytes; send it in parts")


def _is_json(media: str) -> bool:
    return media.partition(";")[0].strip().lower() == "application/json"


def _once(body: bytes, receive: Receive) -> Receive:
    """A body that was read, as an application receives it; then what comes after it."""
    left = [body]

    async def again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return again
