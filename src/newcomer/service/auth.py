"""Who asks: a bearer token, looked at before anything else of a request is; and the role that an operation needs."""

from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from newcomer.service.problems import ServiceError, problem_response
from newcomer.service.shared import Shared
from newcomer.service.tokens import Caller

OPEN = ("/healthz", "/readyz", "/docs")  # what anyone may see
CALLER = "newcomer.caller"
bearer = HTTPBearer(auto_error=False, description="A token that `newcomer token NAME --role ROLE` has made.")


class Authenticating:
    """Lets nobody in whom it does not know, but for what anyone may see."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app, self._shared = app, shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            caller = self._shared.caller(Headers(scope=scope).get("authorization"))
            if caller is None:
                sentence = "no token, or one that is not known; send the header Authorization: Bearer TOKEN"
                await problem_response(ServiceError(401, "no-token", sentence))(scope, receive, send)
                return
            scope[CALLER] = caller
        await self._app(scope, receive, send)


def caller_of(request: Request) -> Caller:
    """Who asks."""
    return cast(Caller, request.scope[CALLER])


class Needs:
    """What an operation asks of a caller: a role."""

    def __init__(self, role: str) -> None:
        self.role = role

    def __call__(self, request: Request, _: Annotated[object, Depends(bearer)]) -> Caller:
        """The caller, if it has the role."""
        caller = caller_of(request)
        must(caller, self.role)
        return caller


def must(caller: Caller, role: str) -> None:
    """An error where a caller has less than a role."""
    if not caller.may(role):
        sentence = f"the token {caller.name} has the role {caller.role}, but this needs {role}; use another token"
        raise ServiceError(403, "not-allowed", sentence)


Reader = Annotated[Caller, Depends(Needs("read"))]
Writer = Annotated[Caller, Depends(Needs("write"))]
Operator = Annotated[Caller, Depends(Needs("operate"))]
