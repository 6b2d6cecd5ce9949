"""What all operations of a service share: its settings, the model, the gate and the figures."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from newcomer.errors import NewcomerError, on_one_line
from newcomer.service.limits import Gate
from newcomer.service.live import Live
from newcomer.service.logs import log
from newcomer.service.metrics import Metrics
from newcomer.service.settings import Settings
from newcomer.service.tokens import LOCAL, Caller, Tokens, read_tokens


class Shared:
    """A service as its operations see it."""

    def __init__(self, settings: Settings, live: Live) -> None:
        self.settings, self.live = settings, live
        self.metrics = Metrics()
        self.gate = Gate(settings.at_once, settings.queue, settings.timeout)
        self.tokens: Tokens | None = read_tokens(settings.tokens)
        self.streams = 0  # that are open
        self.stopping = asyncio.Event()
        self.tell_others: Callable[[], None] | None = None  # that they load the model anew, too

    def reload(self) -> bool:
        """Read the tokens and the model anew; where either cannot be read that is the error, and all stays as it is.

        Whether there was another model.
        """
        try:
            tokens = read_tokens(self.settings.tokens)
            loaded = self.live.reload()
        except NewcomerError as error:
            log("reload", outcome="failed", problem=on_one_line(str(error)), model=self.live.current.version)
            self.metrics.reloads.labels("failed").inc()
            raise
        if self.tokens is not None and tokens is not None:  # a service that asks for tokens goes on doing so
            self.tokens = tokens
        outcome = "loaded" if loaded else "the same"
        log("reload", outcome=outcome, model=self.live.current.version)
        self.metrics.reloads.labels(outcome).inc()
        return loaded

    def caller(self, authorization: str | None) -> Caller | None:
        """Who asks, by the header of that name; None where that is no one known."""
        if self.tokens is None:
            return LOCAL
        scheme, _, token = (authorization or "").partition(" ")
        return self.tokens.caller(token.strip()) if scheme.lower() == "bearer" else None


def shared_by(request: Request) -> Shared:
    """The shared that a request has come to."""
    shared: Shared = request.app.state.shared
    return shared


def reply(content: dict[str, Any], status: int = 200) -> Response:
    """A response of plain values; a figure that JSON does not have is null."""
    return Response(as_json(content), status, media_type="application/json")


def as_json(content: Any) -> bytes:
    """Plain values as JSON, every number as Python has it."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value
