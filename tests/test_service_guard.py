"""The layers around a service: who may ask and how, how much is taken on, and what is seen of each request.

Covers newcomer.service.auth, newcomer.service.guard, newcomer.service.limits, newcomer.service.observing,
newcomer.service.logs, newcomer.service.metrics, newcomer.service.docs_page, newcomer.service.problems and
newcomer.service.routes.stream.
"""

import json
import threading
import time

import pytest

from newcomer.errors import InputError, NewcomerError, OptionError, StoreError
from newcomer.service.auth import OPEN
from newcomer.service.limits import Deadline
from newcomer.service.problems import TimedOutError, problem, service_error
from newcomer.service.tokens import fresh_token
from newcomer.store import KeyReusedError, NotThereError, StoreBusyError
from service_world import NDJSON, ZOE, Inside, inside

QUESTION = {"entity": "p03", "relation": "citizen_of"}
ROLE_OF = {"/v1/newcomers": "write", "/v1/newcomers/retract": "write", "/v1/newcomer": "write"}
ROLE_OF |= {"/v1/answers/{identifier}/decision": "write", "/v1/model/reload": "operate"}
TOKENS = {role: fresh_token(f"a-{role}", role) for role in ("read", "write", "operate")}


def kind_of(found) -> str:
    return found.json()["type"].rpartition(":")[2]


@pytest.fixture(scope="module")
def guarded(people, tmp_path_factory):
    """A service that asks for tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text("\n".join(line for _, line in TOKENS.values()))
    with inside(people, folder, tokens=str(folder / "tokens")) as made:
        yield made


@pytest.fixture
def service(people, tmp_path):
    with inside(people, tmp_path, at_once=1, queue=1, timeout=30, max_body=2_000, streams=1) as made:
        yield made


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[role][0]}"}


def operations(service: Inside):
    described = service.get("/openapi.json") if service.shared.tokens is None else None
    if described is None:
        described = service.call("GET", "/openapi.json", headers=bearer("read"))
    return [(verb.upper(), path) for path, verbs in described.json()["paths"].items() for verb in verbs]


def test_nothing_but_health_is_told_without_a_token(guarded):
    tried = 0
    for method, path in [*operations(guarded), ("GET", "/openapi.json"), ("GET", "/nowhere"), ("POST", "/v1/tails/")]:
        for headers in ({}, {"Authorization": "Bearer nc_wrong"}, {"Authorization": f"Basic {TOKENS['read'][0]}"}):
            found = guarded.call(method, path.replace("{identifier}", "1"), headers=headers)
            if path in OPEN:
                assert found.status_code == 200
            else:
                assert (found.status_code, kind_of(found)) == (401, "no-token"), path
                assert found.headers["www-authenticate"] == "Bearer"
                tried += 1
    assert tried > 60


@pytest.mark.parametrize("role", TOKENS)
def test_a_role_may_do_what_it_is_for(guarded, role):
    rank = list(TOKENS).index(role)
    for method, path in operations(guarded):
        needed = ROLE_OF.get(path, "read") if method != "GET" else "read"
        more = {"content": b"{}"} if method == "POST" else {}
        headers = bearer(role) | {"Content-Type": "application/json"}
        found = guarded.call(method, path.replace("{identifier}", "9"), headers=headers, **more)
        assert (found.status_code == 403) == (list(TOKENS).index(needed) > rank), (method, path)


def test_answers_are_kept_only_for_those_who_may_write(guarded):
    asked = QUESTION | {"record": True}
    for path, content in (("/v1/tails", asked), ("/v1/questions", {"questions": [asked | {"ask": "tails"}]})):
        found = guarded.post(path, content, headers=bearer("read"))
        assert (found.status_code, kind_of(found)) == (403, "not-allowed")
        assert guarded.post(path, content, headers=bearer("write")).status_code == 200
    line = json.dumps(asked | {"ask": "tails"}).encode()
    found = guarded.call("POST", "/v1/stream/questions", content=line, headers=NDJSON | bearer("read"))
    assert json.loads(found.text)["problem"]["status"] == 403


def test_the_store_names_the_token_that_stated_a_fact(guarded):
    guarded.post("/v1/newcomers", {"facts": ZOE}, headers=bearer("write"))
    found = guarded.call("GET", "/v1/newcomer", params={"name": "zoe"}, headers=bearer("read")).json()
    assert {fact["who"] for fact in found["facts"]} == {"a-write"}


def test_a_token_is_taken_back_when_all_is_loaded_anew(people, tmp_path):
    path = tmp_path / "tokens"
    path.write_text("\n".join(line for _, line in TOKENS.values()))
    with inside(people, tmp_path, tokens=str(path)) as service:
        path.write_text(TOKENS["operate"][1])
        assert service.call("GET", "/v1/position", headers=bearer("read")).status_code == 200
        assert service.call("POST", "/v1/model/reload", headers=bearer("operate")).status_code == 200
        assert service.call("GET", "/v1/position", headers=bearer("read")).status_code == 401
        path.write_text("nobody")
        assert service.call("POST", "/v1/model/reload", headers=bearer("operate")).status_code == 409
        assert service.call("GET", "/v1/position", headers=bearer("operate")).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8765", "LOCALHOST:1", "[::1]:80", "box"])
def test_it_is_called_by_names_of_this_machine(people, tmp_path, host):
    with inside(people, tmp_path, hosts=("box",)) as service:
        assert service.call("GET", "/v1/position", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost.:80", "", "[::1", "x:y"])
def test_it_is_called_by_no_other_name(service, host):
    for path in ("/v1/position", "/healthz", "/nowhere"):
        found = service.call("GET", path, headers={"Host": host})
        assert (found.status_code, kind_of(found)) == (421, "wrong-host")


def test_pages_of_other_origins_may_not_ask(people, tmp_path):
    other = {"Origin": "https://example.org"}
    with inside(people, tmp_path) as service:
        found = service.post("/v1/newcomers", {"facts": ZOE}, headers=other)
        assert (found.status_code, kind_of(found)) == (403, "wrong-origin")
        assert service.call("POST", "/v1/model/reload", headers=other).status_code == 403
        assert service.post("/v1/tails", QUESTION, headers={"Origin": "http://127.0.0.1:8765"}).status_code == 200
        found = service.call("GET", "/v1/position", headers=other)
        assert "access-control-allow-origin" not in found.headers
        assert found.headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_of_an_origin_that_is_named_may_ask(people, tmp_path):
    allowed, other = {"Origin": "https://example.org"}, {"Origin": "https://example.com"}
    with inside(people, tmp_path, cors=("https://example.org",)) as service:
        found = service.post("/v1/tails", QUESTION, headers=allowed)
        assert found.status_code == 200 and found.headers["access-control-allow-origin"] == "https://example.org"
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "Authorization"}
        assert service.call("OPTIONS", "/v1/tails", headers=allowed | asks).status_code == 200
        assert service.post("/v1/tails", QUESTION, headers=other).status_code == 403
        assert "access-control-allow-origin" not in service.call("GET", "/v1/position", headers=other).headers


def test_browsers_are_told_to_be_careful(service):
    for path in ("/healthz", "/v1/position", "/nowhere"):
        headers = service.call("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"
        assert "server" not in headers


def test_a_body_is_bounded(service):
    content = json.dumps({"facts": [["x" * 2_000, "knows", "p03"]]}).encode()
    headers = {"Content-Type": "application/json"}
    found = service.call("POST", "/v1/newcomers", content=content, headers=headers)
    assert (found.status_code, kind_of(found)) == (413, "too-large")
    found = service.call("POST", "/v1/newcomers", content=content, headers=headers | {"Content-Length": "9" * 30})
    assert found.status_code == 413


def test_what_is_too_much_at_once_is_refused_and_may_be_sent_again(service):
    with service.busy():
        waits = service.begin("GET", "/v1/position")
        while service.shared.gate.waiting == 0:
            time.sleep(0.01)
        found = service.call("GET", "/v1/position")
        assert (found.status_code, kind_of(found), found.headers["retry-after"]) == (429, "too-busy", "1")
        assert service.call("GET", "/healthz").status_code == 200
        assert service.call("GET", "/readyz").status_code == 200
    assert waits.result().status_code == 200
    assert service.call("GET", "/v1/position").status_code == 200
    assert 'newcomer_requests_rejected_total{kind="too-busy"} 1.0' in service.get("/metrics").text


def test_who_waits_for_too_long_is_told(people, tmp_path):
    with inside(people, tmp_path, at_once=1, timeout=1) as service:
        with service.busy():
            found = service.call("GET", "/v1/position")
            assert (found.status_code, kind_of(found)) == (503, "timed-out")
        assert service.call("GET", "/v1/position").status_code == 200


def test_work_stops_between_questions(people, tmp_path):
    with inside(people, tmp_path, at_once=1, timeout=1) as service:
        begun, go_on, asked = threading.Event(), threading.Event(), []
        live = service.shared.live.current
        tails = live.model.tails

        def slow(*words, **options):
            asked.append(words)
            begun.set()
            go_on.wait(30)
            return tails(*words, **options)

        live.model.tails = slow
        questions = [QUESTION | {"ask": "tails"}] * 3
        found = service.post("/v1/questions", {"questions": questions})
        assert begun.is_set() and (found.status_code, kind_of(found)) == (503, "timed-out")
        assert service.shared.gate.working == 1  # the question itself goes on
        go_on.set()
        assert service.call("GET", "/v1/position").status_code == 200  # in its turn, when the thread is free
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("call", "path", "content"),
    [
        ("add", "/v1/newcomers", {"facts": ZOE}),
        ("record", "/v1/tails", {"entity": "p03", "relation": "knows", "record": True}),
    ],
)
def test_a_change_that_began_is_waited_for(people, tmp_path, call, path, content):
    with inside(people, tmp_path, timeout=1) as service:
        store, begun, go_on = service.shared.live.store, threading.Event(), threading.Event()
        change = getattr(store, call)

        def slow(*words, **options):
            begun.set()
            go_on.wait(30)
            return change(*words, **options)

        setattr(store, call, slow)
        waits = service.begin("POST", path, json=content)
        assert begun.wait(30)
        time.sleep(1.2)
        assert not waits.done()
        go_on.set()
        assert waits.result().status_code == 200 and service.get("/v1/position").json()["position"] == 1


def test_streams_are_bounded_and_wait_for_their_turn(service):
    with service.busy():
        line = json.dumps(QUESTION | {"ask": "tails"}).encode()
        open_one = service.begin("POST", "/v1/stream/questions", content=line, headers=NDJSON)
        while service.shared.streams == 0:
            time.sleep(0.01)
        found = service.call("POST", "/v1/stream/questions", content=line, headers=NDJSON)
        assert (found.status_code, kind_of(found)) == (429, "too-busy")
    assert json.loads(open_one.result().text)["answers"]


def test_a_deadline_passes():
    deadline = Deadline(60)
    deadline.check()
    assert 0 < deadline.left <= 60
    deadline.stop()
    with pytest.raises(TimedOutError):
        deadline.check()


def test_a_fault_tells_nothing_of_itself(service, capsys):
    service.shared.live.current.model.tails = lambda *words, **options: 1 / 0
    found = service.post("/v1/tails", QUESTION)
    assert (found.status_code, kind_of(found)) == (500, "fault") and "division" not in found.text
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [one["fault"] for one in lines if one["event"] == "fault"] == ["ZeroDivisionError"]
    assert [one["status"] for one in lines if one["event"] == "request"] == [500]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (OptionError("k is 0"), 422, "wrong-value"),
        (NotThereError("gone"), 404, "not-there"),
        (KeyReusedError("used"), 422, "key-reused"),
        (StoreBusyError("/srv/town.db: busy"), 503, "store-busy"),
        (StoreError("/srv/town.db: broken"), 503, "store-fault"),
        (InputError("/srv/model", "is gone"), 409, "unreadable"),
        (NewcomerError("a\nb"), 422, "wrong-value"),
        (RuntimeError("secret"), 500, "fault"),
    ],
)
def test_an_error_has_a_status_and_a_kind(error, status, kind, capsys):
    found = problem(service_error(error))
    assert (found["status"], found["type"]) == (status, f"urn:newcomer:problem:{kind}")
    assert "town.db" not in found["detail"] and "secret" not in found["detail"] and "\n" not in found["detail"]


def test_the_log_has_no_names_unless_that_is_asked_for(people, tmp_path, capsys):
    for with_names in (False, True):
        folder = tmp_path / str(with_names)
        folder.mkdir()
        with inside(people, folder, log_facts=with_names) as service:
            service.post("/v1/newcomers", {"facts": ZOE}, headers={"X-Request-Id": "abc-1"})
            service.post("/v1/tails", {"entity": "zoe\n{", "relation": "lives_in"}, headers={"X-Request-Id": "a b"})
            service.get("/v1/newcomer", name="zoe")
        text = capsys.readouterr().err
        assert ("zoe" in text) == with_names
        lines = [json.loads(line) for line in text.splitlines()]
        assert [(one["route"], one["status"], one["who"]) for one in lines] == [
            ("/v1/newcomers", 200, "local"),
            ("/v1/tails", 404, "local"),
            ("/v1/newcomer", 200, "local"),
        ]
        assert lines[0]["id"] == "abc-1" and len(lines[1]["id"]) == 32 and lines[0]["ms"] > 0


def test_a_request_has_a_name_that_both_sides_know(service):
    assert service.call("GET", "/healthz", headers={"X-Request-Id": "abc"}).headers["x-request-id"] == "abc"
    names = {service.call("GET", "/healthz", headers={"X-Request-Id": "x" * 65}).headers["x-request-id"] for _ in "ab"}
    assert len(names) == 2 and all(len(name) == 32 for name in names)


def test_figures_are_counted(service):
    service.post("/v1/newcomers", {"facts": ZOE})
    best = service.post("/v1/tails", {"entity": "zoe", "relation": "citizen_of"}).json()["answers"][0]
    service.post("/v1/questions", {"questions": [{"ask": "embed", "entity": "zoe"}] * 2})
    service.call("BREW", "/v1/tails")
    text = service.get("/metrics").text
    for line in (
        'newcomer_questions_total{ask="tails"} 1.0',
        'newcomer_questions_total{ask="embed"} 2.0',
        'newcomer_changes_total{kind="add"} 1.0',
        'newcomer_request_seconds_count{method="POST",route="/v1/tails",status="200"} 1.0',
        "newcomer_store_position 1.0",
        "newcomer_store_newcomers 1.0",
        "newcomer_store_facts 2.0",
        'newcomer_first_answer_probability_count{ask="tails"} 1.0',
        "newcomer_requests_in_flight 1.0",
    ):
        assert line in text.splitlines()
    for bound in (0.1, 0.5, 1.0):
        count = float(best["probability"] <= bound)
        assert f'newcomer_first_answer_probability_bucket{{ask="tails",le="{bound}"}} {count}' in text.splitlines()
    assert "BREW" not in text and "zoe" not in text


def test_the_operations_are_shown_only_where_that_is_asked_for(people, tmp_path):
    with inside(people, tmp_path, docs=True) as service:
        page = service.get("/docs").text
        for _, path in operations(service):
            assert path in page
        assert "<script" not in page and "http://" not in page and "https://" not in page
    with inside(people, tmp_path) as service:
        assert service.get("/docs").status_code == 404
