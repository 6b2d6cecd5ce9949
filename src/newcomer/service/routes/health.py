"""Whether the service is alive and ready, and its figures."""

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from newcomer.errors import NewcomerError
from newcomer.service import replies
from newcomer.service.auth import Reader
from newcomer.service.metrics import MEDIA
from newcomer.service.problems import ServiceError, ok, stopping, told
from newcomer.service.routes.parameters import Here
from newcomer.service.shared import Shared, reply
from newcomer.store import Counts

router = APIRouter(tags=["health"])
FIGURES: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}, "description": "Figures."}, **told()}
WAIT = 5.0  # seconds for the store


@router.get("/healthz", responses=ok(replies.Alive))
async def alive() -> Response:
    """Whether the process answers at all."""
    return reply({"status": "alive"})


@router.get("/readyz", responses=ok(replies.Ready))
async def ready(shared: Here) -> Response:
    """Whether a model is loaded, the store can be reached, and the service is not about to stop."""
    if shared.stopping.is_set():
        raise stopping()
    position, _ = await _state(shared)
    return reply({"status": "ready", "position": position, "model": shared.live.current.version})


@router.get("/metrics", responses=FIGURES, response_class=Response)
async def figures(shared: Here, caller: Reader) -> Response:
    """The figures of all workers, as Prometheus reads them."""
    position, count = await _state(shared)
    now = {"store_position": position, "store_newcomers": count.newcomers, "store_facts": count.facts}
    return Response(shared.metrics.text(now), media_type=MEDIA)


async def _state(shared: Shared) -> tuple[int, Counts]:
    """The store's position and counts, in a thread of its own: a full queue is no sign of bad health."""

    def work() -> tuple[int, Counts]:
        with shared.live.store.reading() as state:
            return state.position, state.count

    try:
        return await asyncio.wait_for(asyncio.to_thread(work), WAIT)
    except (TimeoutError, NewcomerError):
        raise ServiceError(503, "store-fault", "the store cannot be used; try again later", retry=True) from None
