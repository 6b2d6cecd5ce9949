"""A service under load on FB15K Subject-10: clients that ask and add over HTTP, by the clock.

Needs NEWCOMER_DATA and the extra ``serve``. Each of the clients keeps one connection and sends ``--rate`` requests a
second, or as many as are answered: seven of ten are questions about newcomers that were added, three add a newcomer
with the facts of one that test asks about, under a new name. The model is that of ``--model``, else one of the default
preset that is trained for one epoch. What is measured: errors, latencies, and how the memory of the workers grows.
"""

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench_predictor import DATA, Fact, child, visits
from harness import Bar, data_folder, finish

MEDIAN_MS, HIGH_MS, GROWTH = 30.0, 150.0, 1.1
WRITES, WARM = 0.3, 0.1  # shares: of requests, and of the time before memory is first looked at
FEWEST = 3  # facts of a newcomer
STARTED = re.compile(r"http://[^\s/]+:(\d+)")


@dataclass
class Load:
    """What is sent, and what came of it."""

    known: list[list[Fact]]  # the facts of newcomers, of which each is the head or the tail "?"
    relations: list[str]  # that each is asked about
    added: list[tuple[str, str]] = field(default_factory=list)  # names, and what is asked of them
    asked: list[float] = field(default_factory=list)  # seconds of questions
    written: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def newcomers() -> Load:
    """Newcomers by facts with entities that were trained on alone, as most arrive."""
    facts, asked = visits()
    load = Load([], [])
    for name, relation in dict(asked).items():
        mine = [fact for fact in facts[name] if sum(end.startswith("new ") for end in (fact[0], fact[2])) == 1]
        if len(mine) >= FEWEST:
            load.known.append([tuple("?" if word == name else word for word in fact) for fact in mine])  # type: ignore[misc]
            load.relations.append(relation)
    return load


def client(number: int, port: int, load: Load, until: float, rate: float) -> None:
    """One client: sends, waits for the answer, and waits until the next request is due."""
    random, connection = np.random.default_rng(number), http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    due, count = time.monotonic() + random.random() / rate, 0
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + 1 / rate, time.monotonic())
        count += 1
        if not load.added or random.random() < WRITES:
            place, name = int(random.integers(len(load.known))), f"client {number} newcomer {count}"
            rows = [[name if word == "?" else word for word in fact] for fact in load.known[place]]
            seconds = sent(connection, "/v1/newcomers", {"facts": rows}, load)
            load.written.append(seconds)
            load.added.append((name, load.relations[place]))
        else:
            name, relation = load.added[int(random.integers(len(load.added)))]
            load.asked.append(sent(connection, "/v1/tails", {"entity": name, "relation": relation}, load))


def sent(connection: http.client.HTTPConnection, path: str, body: object, load: Load) -> float:
    """Send a request: the seconds until its answer was there."""
    started = time.perf_counter()
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.status >= 300:
            load.errors.append(f"{response.status} {content[:200]!r}")
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        load.errors.append(repr(error))
    return time.perf_counter() - started


def memory_of(process: int) -> int:
    """Resident bytes of a process and all below it."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    own = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024
    below = " ".join(one.read_text() for one in Path(f"/proc/{process}/task").glob("*/children")).split()
    return own + sum(memory_of(int(one)) for one in below)


def under_load(model: Path, options: argparse.Namespace) -> list[Bar]:
    load = newcomers()
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "newcomer", "serve", str(model), "--port", "0"]
        command += ["--workers", str(options.workers), "--store", options.store or f"{place}/store.db"]
        log = Path(place) / "log"
        with log.open("w") as stream:
            server = subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            port = listening(log, server)
            begun = time.monotonic()
            arguments = port, load, begun + options.seconds, options.rate
            clients = [threading.Thread(target=client, args=(number, *arguments)) for number in range(options.clients)]
            for one in clients:
                one.start()
            time.sleep(WARM * options.seconds)
            before = memory_of(server.pid)
            for one in clients:
                one.join()
            growth = memory_of(server.pid) / before
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    return bars_of(load, growth, before, options)


def listening(log: Path, server: subprocess.Popen[bytes]) -> int:
    """The port of a service, once it is ready."""
    for _ in range(600):
        found = STARTED.search(log.read_text(encoding="utf-8"))
        if found and ready(int(found[1])):
            return int(found[1])
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"the service did not start: {log.read_text(encoding='utf-8')}")


def ready(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False


def bars_of(load: Load, growth: float, before: int, options: argparse.Namespace) -> list[Bar]:
    everything = 1_000 * np.array(load.asked + load.written)
    median, high = np.percentile(everything, [50, 99])
    questions, writes = (f"{np.percentile(1_000 * np.array(one), 50):.0f}" for one in (load.asked, load.written))
    detail = (
        f"{len(everything):,} requests in {options.seconds:g} s; median of questions {questions}, of writes {writes}"
    )
    first = f"; the first: {load.errors[0]}" if load.errors else ""
    return [
        Bar("errors under load", len(load.errors), 0, detail=detail + first),
        Bar("milliseconds a request, median", median, MEDIAN_MS),
        Bar("milliseconds a request, 99th percentile", high, HIGH_MS),
        Bar("memory in the end / after warming up", growth, GROWTH, detail=f"{before / 1e9:.2f} GB before"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a trained Subject-10 model, instead of training one")
    parser.add_argument("--store", default="", help="a PostgreSQL URL, instead of a SQLite file")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3.0, help="requests a second that each client sends at most")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if data_folder(DATA) is None:
        return
    with tempfile.TemporaryDirectory() as place:
        model = options.model or Path(place) / "model"
        if options.model is None:
            child("train", model)
        finish(under_load(model, options))


if __name__ == "__main__":
    main()
