"""The model and the log: what answers, from which position, and how another model takes over."""

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from newcomer import __version__
from newcomer.service import replies
from newcomer.service.auth import Operator, Reader
from newcomer.service.problems import ok
from newcomer.service.routes.parameters import PAGE, AfterNumber, FewLimit, Here
from newcomer.service.shared import reply
from newcomer.service.stored_predictor import StoredPredictor
from newcomer.store import Entry

router = APIRouter(prefix="/v1", tags=["model"])
LONG = ("history",)  # what a card leaves out of the metrics: the figures of every epoch


@router.get("/model", responses=ok(replies.Card))
async def card(shared: Here, caller: Reader) -> Response:
    """The model: what it was trained on and how, and what was measured of it."""
    live = shared.live.current
    return reply(await shared.gate.run(lambda _: _card(live)))


def _card(live: StoredPredictor) -> dict[str, Any]:
    model, bundle = live.model, live.model.bundle
    with live.store.reading() as state:
        position, count = state.position, state.count
    counts = {
        "entities": model.names.num_seen,
        "newcomers": len(model.newcomers),
        "relations": len(model.relations),
        "facts": len(bundle.observed.triples),
    }
    return {
        "position": position,
        "model": live.version,
        "newcomer": __version__,
        "dataset": {"name": bundle.dataset_name, "sha256": bundle.dataset_hash},
        "counts": counts,
        "calibrated": model.calibration is not None,
        "settings": bundle.config.to_dict(),
        "metrics": {name: value for name, value in bundle.metrics.items() if name not in LONG},
        "store": count._asdict(),
    }


@router.get("/relations", responses=ok(replies.Relations))
async def relations(shared: Here, caller: Reader) -> Response:
    """The relations that the model knows."""
    live = shared.live.current

    def work(_: object) -> dict[str, Any]:
        return {"position": live.store.position(), "model": live.version, "relations": list(live.model.relations)}

    return reply(await shared.gate.run(work))


@router.post("/model/reload", responses=ok(replies.Reloaded, 409))
async def reload(shared: Here, caller: Operator) -> Response:
    """Load the model's folder and the tokens anew; questions are answered meanwhile. Where it cannot, all stays."""

    def work() -> dict[str, Any]:
        loaded = shared.reload()
        live = shared.live.current
        return {"position": live.store.position(), "model": live.version, "loaded": loaded}

    found = await asyncio.to_thread(work)  # beside the questions, which go on
    if shared.tell_others is not None:
        shared.tell_others()
    return reply(found)


@router.get("/position", responses=ok(replies.Position))
async def position(shared: Here, caller: Reader) -> Response:
    """The position of the store's last change."""
    live = shared.live.current
    found = await shared.gate.run(lambda _: live.store.position())
    return reply({"position": found, "model": live.version})


@router.get("/log", responses=ok(replies.Log))
async def entries(shared: Here, caller: Reader, after: AfterNumber = 0, limit: FewLimit = PAGE) -> Response:
    """A page of the log: each change with its facts, in the order of positions; for whoever follows the store."""
    live = shared.live.current

    def work(_: object) -> dict[str, Any]:
        with live.store.reading() as state:
            found = state.log(after, limit)
            following = found[-1].position if len(found) == limit else None
            listed = [_entry(one) for one in found]
            return {"position": state.position, "model": live.version, "entries": listed, "after": following}

    return reply(await shared.gate.run(work))


def _entry(one: Entry) -> dict[str, Any]:
    decided = None if one.decision is None else one.decision._asdict() | {"at": one.decision.at.isoformat()}
    whole = one._asdict() | {"at": one.at.isoformat(), "decision": decided}
    return {name: value for name, value in whole.items() if name != "key"}  # a key is its owner's
