"""Asking a SPARQL endpoint: who asks, patience, and what its answers mean."""

import base64

import pytest

from conftest import complaint
from newcomer.errors import EndpointError, OptionError
from newcomer.exchange import sparql
from newcomer.exchange.sparql import PASSWORD, TOKEN, Endpoint, authorisation, query_url
from sparql_world import engine

INSERT = "INSERT DATA { <a:b> <a:c> <a:d> }"


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long one would have waited between tries."""
    seconds: list[float] = []
    monkeypatch.setattr(sparql.time, "sleep", seconds.append)
    return seconds


@pytest.fixture
def server():
    with engine() as running:
        yield running


def test_updates_are_done_and_queries_answered(server):
    endpoint = Endpoint(server.url)
    endpoint.update(INSERT)
    assert endpoint.select("SELECT ?o WHERE { ?s ?p ?o }") == [{"o": "a:d"}]
    (path, body, headers), (asked, _, others) = server.asked
    assert (path, body, asked) == ("/update", INSERT, "/query")
    assert headers["Content-Type"].startswith("application/sparql-update")
    assert others["Accept"] == "application/sparql-results+json" and "Authorization" not in headers


def test_who_asks_stands_in_each_request_and_in_no_message(server, waited):
    secret = authorisation("ann", {PASSWORD: "s3cret é"})
    assert secret == "Basic " + base64.b64encode("ann:s3cret é".encode()).decode()
    Endpoint(server.url, secret=secret).update(INSERT)
    token = authorisation(None, {TOKEN: "t0ken"})
    Endpoint(server.url, secret=token).update(INSERT)
    assert [headers["Authorization"] for _, _, headers in server.asked] == [secret, "Bearer t0ken"]
    server.faults[:] = [(401, False)]
    error = str(complaint(Endpoint(server.url, secret=token).update, INSERT))
    assert "answers 401 (busy with something else)" in error and PASSWORD in error and "t0ken" not in error
    assert authorisation(None, {}) is None and authorisation(None, {PASSWORD: "unused"}) is None and waited == []


def test_a_user_needs_a_password_that_a_header_can_hold():
    assert PASSWORD in str(complaint(authorisation, "ann", {}))
    error = str(complaint(Endpoint, "http://h/update", secret="Bearer a\r\nX: b"))
    assert "characters that no header holds" in error and "X: b" not in error


@pytest.mark.parametrize(
    ("update", "query"),
    [
        ("http://h:7878/update", "http://h:7878/query"),
        ("https://h/ds/update/", "https://h/ds/query"),
        ("http://h/repositories/r/statements", "http://h/repositories/r"),
        ("http://h/sparql?graph=x", "http://h/sparql?graph=x"),
    ],
)
def test_where_queries_are_answered(update, query):
    assert query_url(update) == query


@pytest.mark.parametrize(
    "url",
    ["", "h/update", "ftp://h/update", "http:///update", "http://h:0/", "http://h:x/", "http://h/ x", "http://é/"],
)
def test_what_is_no_url_of_an_endpoint(url):
    error = complaint(Endpoint, url)
    assert isinstance(error, OptionError) and "give one as http://localhost:7878/update" in str(error)


@pytest.mark.parametrize("url", ["http://ann:s3cret@h/update", "ftp://ann:s3cret@h/update"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url):
    assert "s3cret" not in str(complaint(Endpoint, url))


def test_one_that_is_busy_is_asked_again(server, waited):
    server.faults[:] = [(503, False), (429, False)]
    Endpoint(server.url).update(INSERT)
    assert waited == [1.0, 3.0] and len(server.asked) == 3
    server.faults[:] = [(503, False), (503, False)]
    server.extra["Retry-After"] = "7"
    Endpoint(server.url).update(INSERT)
    assert waited[2:] == [7.0, 7.0]
    server.faults[:] = [(503, False)]
    server.extra["Retry-After"] = "86400"
    Endpoint(server.url).update(INSERT)
    assert waited[4:] == [sparql.LONGEST_WAIT]


def test_one_that_stays_busy_is_given_up(server, waited):
    server.faults[:] = [(503, False)] * 9
    error = complaint(Endpoint(server.url + "?key=s3cret").update, INSERT)
    assert isinstance(error, EndpointError) and len(server.asked) == 4 and waited == [1.0, 3.0, 9.0]
    assert str(error).startswith(f"{server.url}: answers 503 (busy with something else), 4 times; try again later")


@pytest.mark.parametrize(
    ("status", "hint"), [(400, "that it takes"), (302, "the place that it leads to"), (404, "address")]
)
def test_a_refusal_is_told_at_once(server, waited, status, hint):
    server.faults[:] = [(status, False)]
    server.extra["Location"] = server.url
    error = str(complaint(Endpoint(server.url).update, INSERT))
    assert f"answers {status} (busy with something else)" in error and hint in error
    assert len(server.asked) == 1 and waited == []


def test_an_update_that_is_none_is_refused_by_the_engine(server, waited):
    assert "answers 400" in str(complaint(Endpoint(server.url).update, "DROP SILENT EVERYTHING"))


def test_nobody_there_and_nobody_answering(server, waited):
    gone = "http://127.0.0.1:1/update"
    error = complaint(Endpoint(gone).update, INSERT)
    assert isinstance(error, EndpointError) and str(error).startswith(f"{gone}: does not answer (") and len(waited) == 3
    server.faults[:] = [(0, False)] * 4
    assert "does not answer (" in str(complaint(Endpoint(server.url).update, INSERT))


def test_one_that_takes_too_long_is_given_up(waited):
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/update"
        assert "does not answer (timed out)" in str(complaint(Endpoint(url, timeout=0.1).update, INSERT))


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"results": 7}', b"\xff", b'{"results": {"bindings": [{"o": 1}]}}']
)
def test_what_are_no_results_is_told(server, waited, body, monkeypatch):
    monkeypatch.setattr(Endpoint, "_asked", lambda *_: body)
    assert "gave no results of a query in JSON" in str(complaint(Endpoint(server.url).select, "SELECT * WHERE { }"))
