"""SPARQL endpoints for tests: Oxigraph's server, and a small one around its engine that can be told to fail."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pyoxigraph
import pytest

from newcomer.exchange.provenance import BASE

DROPPED = 0  # a fault: the connection is closed without an answer
SHARED = ("agent/", "source/", "model/")  # what describes several things, and stays when one of them goes


@dataclass
class Endpoint:
    """Where to push to, and what is there; of the small server also what was asked, and the faults to come.

    A fault is (status, whether the update is made before it): a status of 0 closes the connection. None is no fault.
    """

    url: str
    quads: Callable[[], set[str]]
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)  # path, body, headers
    faults: list[tuple[int, bool] | None] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)  # headers of faults
    before: Callable[[int], None] = lambda _: None  # called before each update is answered, with how many there were

    @property
    def updates(self) -> list[str]:
        return [body for path, body, _ in self.asked if path == "/update"]


def facts_and_origins(quads: set[str], base: str = BASE) -> set[str]:
    """Quads less the marks of pushes, and less what describes agents, sources and models."""
    return {quad for quad in quads if not quad.startswith(tuple(f"<{base}{one}" for one in ("pushed/", *SHARED)))}


@contextlib.contextmanager
def engine() -> Iterator[Endpoint]:
    """A server in this process."""
    store, lock = pyoxigraph.Store(), threading.Lock()

    def quads() -> set[str]:
        with lock:
            return {str(quad) for quad in store}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            told.asked.append((self.path, body, dict(self.headers)))
            fault = told.faults.pop(0) if told.faults else None
            if fault is None or fault[1]:
                status, content = self._done(body)
            if self.path == "/update":
                told.before(len(told.updates))
            if fault is not None:
                status, content = fault[0], b"busy with\nsomething else"
            if status == DROPPED:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in (told.extra if fault is not None else {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _done(self, body: str) -> tuple[int, bytes]:
            with lock:
                try:
                    if self.path == "/update":
                        store.update(body)
                        return 204, b""
                    if self.path == "/query":
                        return 200, store.query(body).serialize(format=pyoxigraph.QueryResultsFormat.JSON)
                except SyntaxError as error:
                    return 400, str(error).encode()
            return 404, b"nothing is here"

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Endpoint(f"http://127.0.0.1:{server.server_port}/update", quads)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def oxigraph() -> Iterator[Endpoint]:
    """Oxigraph's own server, in a process."""
    program = shutil.which("oxigraph", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("no Oxigraph server: pip install oxigraph")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    with subprocess.Popen([program, "serve", "--bind", place], stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), urlopen(f"http://{place}/", timeout=5):
                    break
                time.sleep(0.05)

            def quads() -> set[str]:
                with urlopen(f"http://{place}/store?format=nq", timeout=60) as dumped:
                    parsed = pyoxigraph.parse(dumped.read(), format=pyoxigraph.RdfFormat.N_QUADS)
                    return {str(quad) for quad in parsed}

            yield Endpoint(f"http://{place}/update", quads)
        finally:
            process.kill()
