"""One process of a service: it answers on a socket until it is told to stop, and loads the model anew when told so.

SIGTERM and SIGINT stop it: it takes no more connections, finishes what runs, and ends. SIGHUP loads the model anew.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import uvicorn

from newcomer.errors import NewcomerError, on_one_line
from newcomer.models.device import limited_threads
from newcomer.service.app import service
from newcomer.service.live import Live
from newcomer.service.logs import catch_libraries, log
from newcomer.service.settings import Settings
from newcomer.service.shared import Shared
from newcomer.store import open_store

HEADER_BYTES = 262_144  # names in addresses may be long
KEEP_ALIVE = 75  # seconds; longer than the proxies in front keep theirs


class Server(uvicorn.Server):
    """Uvicorn's server with our signals, which says when it listens."""

    def __init__(self, shared: Shared, ready: Callable[[Shared], None]) -> None:
        config = uvicorn.Config(
            service(shared),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=shared.settings.grace,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        super().__init__(config)
        self._shared, self._ready = shared, ready
        self._tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self._ready(self._shared)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Within the block signals stop the server or load the model anew; both end well."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._reload}
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handle in handlers.items():
            signal.signal(number, _in_loop(loop, handle))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self) -> None:
        self._shared.stopping.set()
        self.should_exit = True

    def _reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._load())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self) -> None:
        with suppress(NewcomerError):  # the log has it, and the old model answers
            await asyncio.to_thread(self._shared.reload)


def _in_loop(loop: asyncio.AbstractEventLoop, handle: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    def in_loop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(handle)

    return in_loop


def work(
    settings: Settings, listening: socket.socket, ready: Callable[[Shared], None], supervised: bool = False
) -> None:
    """Answer on a socket until a signal says to stop."""
    catch_libraries()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the newest model is being loaded
    with limited_threads(1), open_store(settings.store, wait_seconds=settings.timeout) as store:
        shared = Shared(settings, Live(Path(settings.run), store, settings.device))
        if supervised:
            shared.tell_others = lambda: os.kill(os.getppid(), signal.SIGHUP)
        asyncio.run(Server(shared, ready).serve([listening]))
        shared.gate.close()
    if shared.gate.working:  # questions that took longer than the grace: nobody waits for them
        log("unfinished", requests=shared.gate.working)
        sys.stdout.flush()
        os._exit(0)


def main() -> None:
    """A worker of a supervisor: settings and the socket's number come on standard input, which ends when that does."""
    number, settings = int(sys.stdin.readline()), Settings.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    try:
        work(settings, socket.socket(fileno=number), lambda shared: print(told(shared), flush=True), supervised=True)
    except NewcomerError as error:
        sys.stderr.write(f"newcomer: {on_one_line(str(error))}\n")
        sys.exit(error.exit_code)


def told(shared: Shared) -> str:
    """What a service answers with, in words."""
    settings, live = shared.settings, shared.live.current
    return f"model {live.version} of {settings.run}, newcomers in {live.store}"


def _end_with_supervisor() -> None:
    sys.stdin.read()
    log("supervisor-gone")
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
