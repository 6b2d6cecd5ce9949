"""A service for tests: in this process, behind all its layers, and as a process of its own that listens on a port."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi.routing import APIRoute

from command_line import environment
from newcomer.service.app import layered, operations
from newcomer.service.live import Live
from newcomer.service.routes import answers, health, model, newcomers, questions, stream
from newcomer.service.settings import Settings
from newcomer.service.shared import Shared
from newcomer.store import open_store

ZOE = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03")]
YAN = [("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]
TOPICS = (answers, health, model, newcomers, questions, stream)
REPLIES = {
    (method, route.path): route.responses[200].get("model")
    for topic in TOPICS
    for route in topic.router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
}
PROBLEM = "application/problem+json"
NDJSON = {"Content-Type": "application/x-ndjson"}
LISTENING = re.compile(r"listening on (http://\S+) with model (\w+) ")


class Inside:
    """A service in this process; each call passes all layers, and what comes back is held against its form."""

    def __init__(self, settings: Settings) -> None:
        self._store = open_store(settings.store, wait_seconds=settings.timeout)
        self.shared = Shared(settings, Live(Path(settings.run), self._store))
        self.operations = operations(self.shared)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.app = layered(self.operations, self.shared)
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 1))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765", timeout=120)

    def close(self) -> None:
        self.shared.gate.close()
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._store.close()

    @contextmanager
    def busy(self, requests: int = 1) -> Iterator[None]:
        """So many requests are worked on within the block."""
        begun, done = threading.Semaphore(0), threading.Event()

        def work(_: object) -> None:
            begun.release()
            done.wait()

        at_work = [asyncio.run_coroutine_threadsafe(self.shared.gate.run(work), self._loop) for _ in range(requests)]
        for _ in at_work:
            begun.acquire()
        try:
            yield
        finally:
            done.set()

    def begin(self, method: str, path: str, **options: Any) -> "Future[httpx.Response]":
        """A request that is not waited for."""
        return asyncio.run_coroutine_threadsafe(self._client.request(method, path, **options), self._loop)

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """What comes back of a request."""
        return self.together([(method, path, options)])[0]

    def together(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """What comes back of requests that are sent at once."""

        async def all_of_them() -> list[httpx.Response]:
            return await asyncio.gather(*(self._client.request(verb, path, **how) for verb, path, how in requests))

        found = asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()
        for response in found:
            must_be_described(response)
        return found

    def post(self, path: str, content: Any, **options: Any) -> httpx.Response:
        """What comes back of JSON."""
        return self.call("POST", path, json=content, **options)

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self.call("GET", path, params=parameters)


def must_be_described(response: httpx.Response) -> None:
    """A response is of a form that is described, and of a media type."""
    kind, path = response.headers.get("content-type", ""), response.request.url.path
    if response.status_code >= 400:
        assert kind == PROBLEM, response.text
        found = response.json()
        assert found["status"] == response.status_code and found["type"].startswith("urn:newcomer:problem:")
        assert found["detail"] and "\n" not in found["detail"] and "Traceback" not in response.text
        return
    template = re.sub(r"/answers/\d+", "/answers/{identifier}", path)
    form = REPLIES.get((response.request.method, template))
    if form is not None:
        form.model_validate_json(response.content)


@contextmanager
def inside(run: Path, folder: Path, **settings: Any) -> Iterator[Inside]:
    """A service over a new store in a folder."""
    place = settings.pop("store", str(folder / "store.db"))
    made = Inside(Settings(run=str(run), store=place, **settings))
    try:
        yield made
    finally:
        made.close()


class Outside:
    """A service as a process of its own."""

    def __init__(self, run: Path, *words: str, cwd: Path, **variables: str) -> None:
        self._log = cwd / "errors.log"
        self._errors = self._log.open("a")
        command = [sys.executable, "-m", "newcomer", "serve", str(run), "--port", "0", *words]
        threads = {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment(**threads, **variables),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = LISTENING.match(self.said)
        assert found, f"{self.said}{self.errors()}"
        self.url, self.model = found.groups()

    def errors(self) -> str:
        """The whole lines of the log; opened anew, since whoever writes it moves the place in an open file."""
        return "".join(line for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n"))

    def entries(self, event: str) -> list[dict[str, Any]]:
        """The entries of the log about an event."""
        found = [json.loads(line) for line in self.errors().splitlines()]
        return [one for one in found if one["event"] == event]

    def workers(self) -> list[int]:
        """The processes that it has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(one) for one in children.read_text().split()]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Ask it to stop, and give the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def outside(run: Path, cwd: Path, *words: str, **variables: str) -> Iterator[Outside]:
    """A service on a free port; it is gone in the end."""
    made = Outside(run, *words, cwd=cwd, **variables)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end()
        made.process.stdout.close()
        made._errors.close()


def kill(number: int) -> None:
    """End a process at once."""
    os.kill(number, signal.SIGKILL)
