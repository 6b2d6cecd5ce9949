"""What several operations take: the shared, keys, pages and names."""

from typing import Annotated

from fastapi import Depends, Header, Query, Request

from newcomer.errors import on_one_line, shown
from newcomer.service.forms import NAME_LENGTH
from newcomer.service.problems import ServiceError
from newcomer.service.shared import Shared, shared_by

KEY_LENGTH = 200
PAGE, MOST = 100, 1_000
LARGEST = 2**63 - 1

Here = Annotated[Shared, Depends(shared_by)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=KEY_LENGTH,
        description="A request that is sent a second time with its key changes nothing, and gets the same reply.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many a page has at the most.")]
FewLimit = Annotated[int, Query(ge=1, le=PAGE, description="How many a page has at the most.")]
AfterName = Annotated[str, Query(max_length=NAME_LENGTH, description="The name after which the page begins.")]
AfterNumber = Annotated[int, Query(ge=0, le=LARGEST, description="The number after which the page begins.")]
Prefix = Annotated[str, Query(max_length=NAME_LENGTH, description="How names begin.")]
OneName = Annotated[
    str, Query(min_length=1, max_length=NAME_LENGTH, description="The name of a newcomer.", examples=["zoe"])
]


def only_known(request: Request) -> None:
    """Refuse a parameter of the address that nothing would be done with: one that is not known, or stands twice."""
    known = [one.alias for one in request.scope["route"].dependant.query_params]
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            raise ServiceError(422, "wrong-value", f"{shown(name)} is not known here; leave it out", on_one_line(name))
        if given.count(name) > 1:
            raise ServiceError(422, "wrong-value", f"{name} is given {given.count(name)} times; give it once", name)
