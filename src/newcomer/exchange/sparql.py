"""A SPARQL 1.1 endpoint over HTTP: updates and queries, with time-outs, and patience where it is busy.

What an endpoint does not answer, or answers with a fault of its own, is sent again a few times; so only what may be
done twice is to be sent. Redirects are not followed: a password is for the server that was named. No message holds it.
"""

import json
import time
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from newcomer.errors import EndpointError, OptionError, one_line, shown

WAITS = (1.0, 3.0, 9.0)  # seconds before each further try
LONGEST_WAIT = 60.0  # seconds, where the endpoint says how long
MOST_BYTES = 1 << 20  # of an answer
BUSY = (408, 425, 429, 500, 502, 503, 504)
UPDATE, QUERY = "application/sparql-update", "application/sparql-query"
RESULTS = "application/sparql-results+json"
PASSWORD, TOKEN = "NEWCOMER_SPARQL_PASSWORD", "NEWCOMER_SPARQL_TOKEN"


class Reply(NamedTuple):
    """What an endpoint said; ``wait`` is how long it asks for patience."""

    status: int
    body: bytes
    wait: float | None


def authorisation(user: str | None, variables: Mapping[str, str]) -> str | None:
    """The header that says who asks: a user with the password of the environment, or its token; None without either."""
    if user is None:
        token = variables.get(TOKEN)
        return f"Bearer {token}" if token else None
    if PASSWORD not in variables:
        raise OptionError(f"--user {shown(user)} needs a password; set it as {PASSWORD} in the environment")
    return "Basic " + b64encode(f"{user}:{variables[PASSWORD]}".encode()).decode("ascii")


def query_url(update: str) -> str:
    """Where an endpoint answers queries, by the usual names: `/query` beside `/update`, else the same place."""
    parts = urlsplit(update)
    path = parts.path.rstrip("/")
    if path.endswith("/statements"):  # RDF4J, GraphDB
        return parts._replace(path=path.removesuffix("/statements")).geturl()
    return parts._replace(path=path.removesuffix("/update") + "/query" * path.endswith("/update")).geturl()


class Endpoint:
    """A place to send updates to, and one for queries; ``secret`` is the header of who asks."""

    def __init__(self, update: str, query: str | None = None, secret: str | None = None, timeout: float = 60.0) -> None:
        self._update, self._query = _checked(update), _checked(query or query_url(update))
        self._secret, self._timeout = secret, timeout
        if secret is not None and not (secret.isascii() and secret.isprintable()):
            raise OptionError("a password or token of the environment has characters that no header holds; mend it")

    def update(self, text: str) -> None:
        """Do an update; it may be done twice."""
        self._asked(self._update, text, UPDATE)

    def select(self, text: str) -> list[dict[str, str]]:
        """The solutions of a query, each as the values of its variables."""
        body = self._asked(self._query, text, QUERY)
        try:
            found = json.loads(body)["results"]["bindings"]
            return [{name: str(bound["value"]) for name, bound in one.items()} for one in found]
        except (ValueError, KeyError, TypeError, AttributeError):
            hint = "name where it answers queries with --query"
            raise EndpointError(f"{_place(self._query)}: gave no results of a query in JSON; {hint}") from None

    def _asked(self, url: SplitResult, text: str, kind: str) -> bytes:
        """What the endpoint gives, after so many tries as it takes."""
        for wait in (*WAITS, None):
            try:
                reply = self._reply(url, text, kind)
            except (OSError, HTTPException) as error:
                problem, asked_for = f"does not answer ({one_line(error) or type(error).__name__})", None
            else:
                if 200 <= reply.status < 300:
                    return reply.body
                problem, asked_for = f"answers {reply.status}{_said(reply.body)}", reply.wait
                if reply.status not in BUSY:
                    raise EndpointError(f"{_place(url)}: {problem}; {_hint(reply.status)}")
            if wait is None:
                break
            time.sleep(wait if asked_for is None else asked_for)
        raise EndpointError(f"{_place(url)}: {problem}, {len(WAITS) + 1} times; try again later: what is done stays")

    def _reply(self, url: SplitResult, text: str, kind: str) -> Reply:
        """One request."""
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Accept": RESULTS if kind == QUERY else "*/*"}
        if self._secret is not None:
            headers["Authorization"] = self._secret
        opener = HTTPSConnection if url.scheme == "https" else HTTPConnection
        connection = opener(str(url.hostname), url.port, timeout=self._timeout)
        try:
            connection.request("POST", url._replace(scheme="", netloc="").geturl() or "/", text.encode(), headers)
            response = connection.getresponse()
            return Reply(response.status, response.read(MOST_BYTES), _wait(response))
        finally:
            connection.close()


def _checked(url: str) -> SplitResult:
    """The parts of a URL that can be asked."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        start = shown(url.rpartition("@")[2])  # what stands before may be a password
        raise OptionError(f"{start} is no URL of an endpoint; give one as http://localhost:7878/update")
    if "@" in parts.netloc:
        hint = f"give --user, and the password as {PASSWORD} in the environment"
        raise OptionError(f"the URL of {parts.hostname} names a user; {hint}")
    return parts._replace(fragment="")


def _place(url: SplitResult) -> str:
    """A URL as it stands in messages: what follows a `?` may be a secret."""
    return url._replace(query="").geturl()


def _said(body: bytes) -> str:
    said = one_line(body.decode("utf-8", errors="replace"))
    return f" ({said})" if said.isprintable() and said else ""


def _hint(status: int) -> str:
    if status in (401, 403):
        return f"name a user with --user and the password as {PASSWORD}, or a token as {TOKEN}, in the environment"
    if 300 <= status < 400:
        return "name the place that it leads to"
    return "check the address, and that it takes SPARQL updates"


def _wait(response: HTTPResponse) -> float | None:
    """How many seconds the endpoint wants to be left alone."""
    value: Any = response.headers.get("Retry-After", "")
    return min(float(value), LONGEST_WAIT) if value.isdecimal() else None
