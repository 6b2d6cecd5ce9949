"""Several workers on one socket: each that dies is started anew, and signals reach all.

SIGTERM and SIGINT stop the workers, which finish what they do; SIGHUP lets them load the model anew.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from newcomer.errors import NewcomerError
from newcomer.service.logs import log
from newcomer.service.settings import Settings

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # as `newcomer.service.metrics` has it, which must not be loaded before it is set
TICK = 0.1  # seconds between looks at the workers
LONGEST = 30.0  # seconds before a worker that dies again and again is started anew
SPARE = 5.0  # seconds beyond the grace before a worker is killed


class WorkerError(NewcomerError):
    """A service whose workers cannot begin."""


class Worker:
    """A process that answers; ``ready`` is what it says when it listens."""

    def __init__(self, settings: Settings, listening: socket.socket, folder: Path) -> None:
        self.started, self.ready = time.monotonic(), ""
        self.is_behind = False  # has to be told to load the model anew, when it listens
        command = [sys.executable, "-m", "newcomer.service.worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[listening.fileno()],
            env={**os.environ, SHARED: str(folder)},
        )
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{listening.fileno()}\n{settings.to_json()}\n")
            self.process.stdin.flush()  # it stays open: its end tells the worker that we are gone
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().strip()

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)


class Supervisor:
    """Keeps so many workers at work as the settings ask for."""

    def __init__(self, settings: Settings, listening: socket.socket, ready: Callable[[str], None]) -> None:
        self._settings, self._listening, self._ready = settings, listening, ready
        self._stopping = self._told = False
        self._deaths = 0
        self._again = 0.0  # when workers may be started anew

    def run(self) -> None:
        """Until a signal says to stop."""
        with tempfile.TemporaryDirectory(prefix="newcomer-metrics-") as folder:
            handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._pass_on}
            before = {number: signal.getsignal(number) for number in handlers}
            self._folder = Path(folder)
            self._workers = [self._worker() for _ in range(self._settings.workers)]
            for number, handler in handlers.items():
                signal.signal(number, handler)
            try:
                while not self._stopping:
                    self._look()
                    time.sleep(TICK)
            finally:
                self._end()
                for number, old in before.items():
                    signal.signal(number, old)

    def _worker(self) -> Worker:
        return Worker(self._settings, self._listening, self._folder)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        for worker in self._workers:
            worker.is_behind = True

    def _look(self) -> None:
        """Start workers that have died anew, pass on what they are told, and say once that all listen."""
        if not self._told and all(worker.ready for worker in self._workers):
            self._told = True
            self._ready(self._workers[0].ready)
        for place, worker in enumerate(self._workers):
            if worker.ready and worker.is_behind:
                worker.is_behind = False
                worker.signal(signal.SIGHUP)
            code = worker.process.poll()
            if code is None:
                continue
            if not self._told and not worker.ready:
                raise WorkerError(f"a worker ended with code {code} before it listened; see what it says above")
            if time.monotonic() >= self._again:
                self._replace(place, worker, code)

    def _replace(self, place: int, worker: Worker, code: int) -> None:
        log("worker-died", worker=worker.process.pid, code=code)
        _forget(worker, self._folder)
        lasted = time.monotonic() - worker.started
        self._deaths = self._deaths + 1 if lasted < LONGEST else 0
        self._again = time.monotonic() + (min(2.0**self._deaths / 2, LONGEST) if self._deaths > 1 else 0.0)
        self._workers[place] = self._worker()

    def _end(self) -> None:
        """Let all workers finish, and kill those that do not."""
        self._listening.close()
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        until = time.monotonic() + self._settings.grace + SPARE
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def _forget(worker: Worker, folder: Path) -> None:
    """What a dead worker was doing is done with; its counts stay."""
    for path in folder.glob(f"gauge_live*_{worker.process.pid}.db"):
        path.unlink(missing_ok=True)
