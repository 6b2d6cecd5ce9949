"""What goes wrong, as ``application/problem+json`` (RFC 9457): a type, a status and the sentence of the error.

The same errors that Python raises and the command line prints. What is wrong inside the service, such as a store that
cannot be reached, is told in general words; the log has the rest.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from newcomer.errors import InputError, NewcomerError, on_one_line, shown
from newcomer.predictor import FactError, UnknownEntityError
from newcomer.service.logs import log
from newcomer.store import KeyReusedError, NotThereError, StoreBusyError, StoreError

TYPE = "urn:newcomer:problem:"
MEDIA = "application/problem+json"
SOON = "1"  # seconds after which a request that was refused may be sent again
FIELD_LENGTH = 200


class ServiceError(NewcomerError):
    """A request that the service does not answer; ``kind`` tells why, for programs."""

    def __init__(self, status: int, kind: str, sentence: str, field: str = "", retry: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.kind, self.field, self.retry = status, kind, field, retry


class TimedOutError(ServiceError):
    """A request that took too long."""

    def __init__(self, seconds: float) -> None:
        sentence = f"the request took longer than {seconds:g} seconds; ask less at once, or send it again later"
        super().__init__(503, "timed-out", sentence, retry=True)


class BusyError(ServiceError):
    """A request that comes when there is more to do than the service takes on."""

    def __init__(self, what: str) -> None:
        super().__init__(429, "too-busy", f"{what}; send the request again in a second", retry=True)


def stopping() -> ServiceError:
    """What is told when the service ends."""
    return ServiceError(503, "stopping", "the service stops; send the request again, to another one", retry=True)


def service_error(error: Exception, field: str = "") -> ServiceError:
    """Any error as one of the service; ``field`` is what is to blame, where that is known."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, RequestValidationError | ValidationError):
        return _of_validation(error.errors())
    if isinstance(error, NewcomerError):
        return _of_newcomer(error, field)
    log("fault", fault=error)
    return ServiceError(500, "fault", "the service has a fault that its log tells of; try again, or report it")


def _of_newcomer(error: NewcomerError, field: str) -> ServiceError:
    sentence = on_one_line(str(error))
    if isinstance(error, UnknownEntityError):
        return ServiceError(404, "unknown-entity", sentence, field)
    if isinstance(error, NotThereError):
        return ServiceError(404, "not-there", sentence)
    if isinstance(error, KeyReusedError):
        return ServiceError(422, "key-reused", sentence, "Idempotency-Key")
    if isinstance(error, StoreError):
        log("store", problem=sentence)
        if isinstance(error, StoreBusyError):
            return ServiceError(503, "store-busy", "others write to the store for too long; try again", retry=True)
        return ServiceError(503, "store-fault", "the store cannot be used; try again later", retry=True)
    if isinstance(error, InputError):
        return ServiceError(409, "unreadable", sentence)
    if isinstance(error, FactError):
        field = f"facts.{error.place}"
    return ServiceError(422, "wrong-value", sentence, field)


def _of_http(error: HTTPException) -> ServiceError:
    sentences = {
        400: ("unreadable-body", "the body cannot be read; send JSON in UTF-8"),
        404: ("no-such-place", "there is nothing at this address; /openapi.json lists what there is"),
        405: ("wrong-method", "this address does not take this method; /openapi.json lists those that it takes"),
    }
    phrase = HTTPStatus(error.status_code).phrase.lower()
    kind, sentence = sentences.get(error.status_code, (phrase.replace(" ", "-"), phrase))
    return ServiceError(error.status_code, kind, sentence)


def _of_validation(errors: Sequence[Any]) -> ServiceError:
    """The first thing that is wrong with a body or with parameters."""
    first: Mapping[str, Any] = errors[0]
    if first["type"] == "json_invalid":
        place, why = first["loc"][-1], first.get("ctx", {}).get("error", "")
        return ServiceError(400, "unreadable-body", f"the body is no JSON ({why} at character {place}); send JSON")
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = on_one_line(".".join(where))[:FIELD_LENGTH]
    said = on_one_line(str(first["msg"])).removeprefix("Input ").rstrip(".")
    if first["type"] == "missing":
        return ServiceError(422, "wrong-value", f"{field or 'the body'} is missing; send it", field)
    if first["type"] == "extra_forbidden":
        return ServiceError(422, "wrong-value", f"{field} is not known here; leave it out", field)
    value = shown(first.get("input"))
    return ServiceError(422, "wrong-value", f"{field or 'the body'} is {value}, but {said}", field)


def problem(error: ServiceError) -> dict[str, Any]:
    """An error as a client gets it."""
    titled = HTTPStatus(error.status).phrase
    found = {"type": TYPE + error.kind, "title": titled, "status": error.status, "detail": str(error)}
    return found | ({"field": error.field} if error.field else {})


def problem_response(error: Exception) -> Response:
    """The same as a response."""
    found = service_error(error)
    headers = {"Retry-After": SOON} if found.retry else {}
    if found.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    allowed = (getattr(error, "headers", None) or {}) if isinstance(error, HTTPException) else {}
    # ASCII, since a name that is refused may hold what UTF-8 does not have.
    return Response(json.dumps(problem(found)), found.status, {**allowed, **headers}, MEDIA)


SCHEMA = {
    "title": "Problem",
    "description": "What went wrong, as RFC 9457 has it.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "description": "The kind of problem: the same word means the same."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence: what is wrong, and what to do."},
        "field": {"type": "string", "description": "What is to blame, as `facts.3`."},
    },
    "required": ["type", "title", "status", "detail"],
    "example": {
        "type": f"{TYPE}unknown-entity",
        "title": "Not Found",
        "status": 404,
        "detail": "the entity 'zoe' is not known; add facts of it first",
    },
}
ABOUT = {
    400: "The body cannot be read, or a header is wrong.",
    401: "No token, or one that is not known.",
    403: "The token's role does not allow it, or a page of another origin asks.",
    404: "Something that was named is not there.",
    405: "The address does not take this method.",
    408: "The body did not arrive in time.",
    409: "The model's folder cannot be read; the model is as it was.",
    413: "More than is taken at once.",
    415: "The body is of another media type.",
    421: "The service is not called by this name.",
    422: "A value is wrong, or the idempotency key stands for another request.",
    429: "More is asked for than the service takes on at once.",
    500: "A fault of the service.",
    503: "The request took too long, or the store cannot be used at the moment.",
}
ALWAYS = (400, 401, 403, 405, 408, 413, 415, 421, 422, 429, 500, 503)


def told(*more: int) -> dict[int | str, dict[str, Any]]:
    """What an operation may answer that is no success, as OpenAPI has it."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": ABOUT[status], "content": {MEDIA: schema}} for status in sorted({*ALWAYS, *more})}


def ok(reply: type[BaseModel], *more: int) -> dict[int | str, dict[str, Any]]:
    """The same, with what a success is."""
    return {200: {"model": reply}, **told(*more)}
