"""What the description of a service allows, and what it does not, as schemathesis makes it up: no request is a fault.

Every reply has a status, a media type and a form that are described; what is not allowed is refused.
"""

import copy
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service_world import ZOE, Inside, inside

EXAMPLES = 6
NAMES = {"entity": ["zoe", "p03", "city1"], "relation": ["citizen_of", "knows"]}
WITHOUT = [positive_data_acceptance]  # names that are not there are refused


class Layered:
    """A service with the state by which schemathesis knows an application."""

    state = SimpleNamespace()

    def __init__(self, service: Inside) -> None:
        self._app = service.app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def service(people, tmp_path_factory):
    with inside(people, tmp_path_factory.mktemp("schema")) as made:
        made.post("/v1/newcomers", {"facts": ZOE})
        yield made


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_what_is_made_up_is_answered_as_described(service, mode):
    schema = schemathesis.openapi.from_dict(without_tokens(service.operations.openapi_schema))
    schema.app = Layered(service)
    answered: Counter[int] = Counter()
    for operation in (one.ok() for one in schema.get_all_operations()):
        if operation.path.startswith("/v1/stream") or (mode is GenerationMode.NEGATIVE and not takes(operation)):
            continue

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(generation_mode=mode), st.data())
        def ask(case, data):
            if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
                for field, names in NAMES.items():
                    if field in case.body:
                        case.body[field] = data.draw(st.sampled_from(names))
            case.headers = {**(case.headers or {}), "Host": "127.0.0.1"}
            response = case.call(base_url="http://127.0.0.1")
            answered[response.status_code] += 1
            case.validate_response(response, excluded_checks=WITHOUT)

        ask()
    assert sum(answered.values()) > 50 and answered[200 if mode is GenerationMode.POSITIVE else 422] > 20
    assert not answered[500]


def without_tokens(described: dict[str, Any]) -> dict[str, Any]:
    """A description of a service that asks for no tokens, as this one."""
    found = copy.deepcopy(described)
    for operations in found["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return found


def takes(operation: Any) -> bool:
    """Whether an operation takes anything that could be wrong."""
    return bool(operation.definition.raw.get("parameters") or operation.definition.raw.get("requestBody"))


TEXTS = st.text(max_size=20) | st.sampled_from(["zoe", "p03", "knows", "citizen_of", "tails", "\0", " "])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(["entity", "relation", "k", "facts", "triples", "questions", "types", "verdict", "record"])
PATHS = ["/v1/newcomers", "/v1/newcomers/retract", "/v1/tails", "/v1/suggest", "/v1/classify", "/v1/explain"]
PATHS += ["/v1/questions", "/v1/similar", "/v1/answers/1/decision"]


@settings(max_examples=150)
@given(st.sampled_from(PATHS), st.dictionaries(FIELDS, VALUES | st.lists(st.lists(TEXTS, min_size=3, max_size=3))))
def test_no_body_is_a_fault(service, path, content):
    assert service.post(path, content).status_code < 500


@settings(max_examples=100)
@given(st.sampled_from(PATHS), st.binary(max_size=100))
def test_no_bytes_are_a_fault(service, path, content):
    found = service.call("POST", path, content=content, headers={"Content-Type": "application/json"})
    assert 400 <= found.status_code < 500
