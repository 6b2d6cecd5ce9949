"""What several operations take: the desk, keys, pages and names."""

from typing import Annotated

from fastapi import Depends, Header, Query

from newcomer.service.desk import Desk, desk_of
from newcomer.service.forms import NAME_LENGTH

KEY_LENGTH = 200
PAGE, MOST = 100, 1_000
LARGEST = 2**63 - 1

Here = Annotated[Desk, Depends(desk_of)]
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
AfterName = Annotated[str, Query(max_length=NAME_LENGTH, description="The name after which the page begins.")]
AfterNumber = Annotated[int, Query(ge=0, le=LARGEST, description="The number after which the page begins.")]
Prefix = Annotated[str, Query(max_length=NAME_LENGTH, description="How names begin.")]
OneName = Annotated[
    str, Query(min_length=1, max_length=NAME_LENGTH, description="The name of a newcomer.", examples=["zoe"])
]
