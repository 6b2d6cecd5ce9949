"""The service as an application: its operations, and the layers that each request passes on its way to them."""

from typing import Any

from fastapi import Depends, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from newcomer import __version__
from newcomer.errors import NewcomerError
from newcomer.service.auth import Authenticating, Reader
from newcomer.service.docs_page import docs_page
from newcomer.service.guard import Bodies, Guarding
from newcomer.service.observing import REQUEST_ID, Observing
from newcomer.service.problems import SCHEMA, problem_response
from newcomer.service.routes import answers, health, model, newcomers, questions, stream
from newcomer.service.routes.parameters import only_known
from newcomer.service.shared import Shared, reply

ABOUT = "Add newcomers by their facts, and ask a trained model about them and about everyone else."
HEADERS = ["Authorization", "Content-Type", "Idempotency-Key", REQUEST_ID]


def operations(shared: Shared) -> FastAPI:
    """The operations, without the layers around them."""
    app = FastAPI(
        title="newcomer",
        version=__version__,
        description=ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(only_known)],
    )
    app.state.shared = shared
    for kind in (NewcomerError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, lambda _, error: problem_response(error))
    for topic in (newcomers, questions, stream, answers, model, health):
        app.include_router(topic.router)
    described = description(app)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(caller: Reader) -> Response:
        """What the service takes and answers."""
        return reply(described)

    if shared.settings.docs:

        @app.get("/docs", include_in_schema=False)
        async def docs() -> Response:
            """The same as a page."""
            return HTMLResponse(docs_page(described))

    return app


def description(app: FastAPI) -> dict[str, Any]:
    """The operations as OpenAPI 3.1 has them."""
    described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    described["components"]["schemas"]["Problem"] = SCHEMA
    app.openapi_schema = described
    return described


def layered(app: ASGIApp, shared: Shared) -> ASGIApp:
    """The operations behind the layers that each request passes."""
    app = Authenticating(Bodies(app, shared), shared)
    if shared.settings.cors:
        app = CORSMiddleware(
            app,
            allow_origins=shared.settings.cors,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=HEADERS,
            expose_headers=[REQUEST_ID, "Retry-After"],
        )
    return Observing(Guarding(app, shared), shared)


def service(shared: Shared) -> ASGIApp:
    """The whole service."""
    return layered(operations(shared), shared)
