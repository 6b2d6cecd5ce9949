"""A service as processes: it listens, stops in order, takes another model without a break, and outlives its workers.

Covers newcomer.service.worker, newcomer.service.supervisor, newcomer.service.live and newcomer.service.server.
"""

import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import newcomer
from command_line import run, sentence
from newcomer.store import open_store
from postgres import schemas
from service_world import ZOE, Outside, kill, outside

QUESTION = {"entity": "zoe", "relation": "citizen_of", "k": 3}
EVERYTHING = {"ask": "heads", "entity": "city1", "relation": "lives_in", "k": 100, "known": True}


@pytest.fixture
def folder(people, tmp_path) -> Path:
    """A place of work with a model."""
    shutil.copytree(people, tmp_path / "model")
    return tmp_path


def post(url: str, content: Any, **options: Any) -> httpx.Response:
    """A request on a connection of its own."""
    return httpx.post(url, json=content, timeout=60, trust_env=False, **options)


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, timeout=60, trust_env=False, **options)


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; for a minute."""
    for _ in range(1_200):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to be so")


@contextmanager
def under_load(ask: Callable[[int], None], threads: int = 3) -> Iterator[list[BaseException]]:
    """Within the block something is asked for again and again, each time with its number; what failed is listed."""
    stop, failed = threading.Event(), list[BaseException]()

    def repeat(first: int) -> None:
        number = first
        while not stop.is_set():
            try:
                ask(number)
            except BaseException as error:
                failed.append(error)
            number += threads

    at_work = [threading.Thread(target=repeat, args=(first,)) for first in range(threads)]
    for one in at_work:
        one.start()
    try:
        yield failed
    finally:
        stop.set()
        for one in at_work:
            one.join()


def replace(folder: Path, model: Path) -> None:
    """Put another model into the place of one."""
    shutil.copytree(model, folder / "next")
    (folder / "model").rename(folder / "before")
    (folder / "next").rename(folder / "model")


def answers_of(model: Path) -> list[dict[str, Any]]:
    """What a plain model answers."""
    plain = newcomer.load(model)
    plain.add(ZOE)
    return json.loads(json.dumps([one.to_dict() for one in plain.tails("zoe", "citizen_of", k=3)]))


def without_reason(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "reason"} for one in found]


def test_it_listens_answers_and_stops(folder, people):
    with outside(Path("model"), folder) as service:
        assert post(f"{service.url}/v1/newcomers", {"facts": ZOE}).json()["newcomers"] == ["zoe"]
        found = post(f"{service.url}/v1/tails", QUESTION).json()
        assert without_reason(found["answers"]) == answers_of(people) and found["model"] == service.model
        assert service.end() == 0
    assert (folder / "model.newcomers.db").is_file()
    with outside(Path("model"), folder) as service:
        assert get(f"{service.url}/readyz").json()["position"] == 1
        assert post(f"{service.url}/v1/tails", QUESTION).json() == found
        assert {one["event"] for one in map(json.loads, service.errors().splitlines())} == {"request"}


@pytest.mark.parametrize("grace", ["60", "0"])
def test_what_runs_is_finished_before_it_stops_if_there_is_time(folder, grace):
    with outside(Path("model"), folder, "--grace", grace) as service:
        post(f"{service.url}/v1/newcomers", {"facts": ZOE})
        questions = [{"ask": "suggest", "entity": "zoe", "k": 100}] * 100
        found: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: found.append(post(f"{service.url}/v1/questions", {"questions": questions}))
        )
        asking.start()
        until(lambda: "newcomer_requests_in_flight 2.0" in get(f"{service.url}/metrics").text)
        assert service.end() == 0
        asking.join()
    if grace == "0":
        assert (found[0].status_code, found[0].json()["type"]) == (503, "urn:newcomer:problem:stopping")
    else:
        assert [len(one["suggestions"]) > 0 for one in found[0].json()["results"]] == [True] * 100


def test_a_stream_is_told_that_the_service_stops(folder):
    with outside(Path("model"), folder) as service, stream_to(service.url) as (sends, lines):
        sends(json.dumps(EVERYTHING).encode() + b"\n")
        assert len(json.loads(next(lines))["answers"]) > 3
        service.signal(signal.SIGTERM)
        last = json.loads(next(lines))
        assert (last["line"], last["problem"]["type"]) == (2, "urn:newcomer:problem:stopping")
        assert service.process.wait(60) == 0


@contextmanager
def stream_to(url: str) -> Iterator[tuple[Callable[[bytes], None], Iterator[bytes]]]:
    """A stream of questions whose answers can be read while others are sent."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST /v1/stream/questions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())

        def sends(content: bytes) -> None:
            connection.sendall(b"%x\r\n%s\r\n" % (len(content), content))

        with connection.makefile("rb") as answer:
            yield sends, chunks(answer)


def chunks(answer: Any) -> Iterator[bytes]:
    """The chunks of a response, each a line."""
    assert b" 200 " in answer.readline()
    while answer.readline().strip():
        pass
    while size := int(answer.readline(), 16):
        yield answer.read(size)
        answer.readline()


def test_who_does_not_read_answers_is_not_read(folder):
    question = b'{"ask": "similar", "entity": "city1", "k": 100}'.ljust(2_000) + b"\n"
    with outside(Path("model"), folder) as service, stream_to(service.url) as (sends, lines):
        sent, is_over, number = [0], threading.Event(), 7_000

        def send_all() -> None:
            for _ in range(number):
                sends(question)
                sent[0] += 1
            sends(b"")  # the last chunk
            is_over.set()

        sending = threading.Thread(target=send_all)
        sending.start()
        before = -1
        while sent[0] != before:
            before = sent[0]
            time.sleep(2)
        assert sent[0] < number and not is_over.is_set()
        numbers = [json.loads(line)["line"] for line in lines]
        sending.join()
        assert numbers == list(range(1, number + 1))


def test_a_body_that_does_not_come_and_a_port_that_is_taken_are_told(folder):
    with outside(Path("model"), folder, "--timeout", "1") as service:
        host, port = service.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            head = f"POST /v1/tails HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert b" 408 " in connection.makefile("rb").readline()
        assert get(f"{service.url}/healthz").status_code == 200
        assert f"cannot listen on 127.0.0.1:{port}" in sentence(run("serve", "model", "--port", port, cwd=folder))


def test_another_model_takes_over_under_load(folder, people, other_people):
    right = {}
    for model in (people, other_people):
        right[json.loads((model / "manifest.json").read_text())["checksum"][:12]] = answers_of(model)
    with outside(Path("model"), folder) as service:
        post(f"{service.url}/v1/newcomers", {"facts": ZOE})
        seen: list[str] = []

        def ask(_: int) -> None:
            found = post(f"{service.url}/v1/tails", QUESTION)
            assert found.status_code == 200, found.text
            assert without_reason(found.json()["answers"]) == right[found.json()["model"]]
            seen.append(found.json()["model"])

        with under_load(ask) as failed:
            until(lambda: len(seen) > 10)
            replace(folder, other_people)
            service.signal(signal.SIGHUP)
            until(lambda: seen[-1] != service.model)
            (folder / "model" / "manifest.json").write_text("{}")
            service.signal(signal.SIGHUP)
            until(lambda: len(service.entries("reload")) == 2)
            refused = post(f"{service.url}/v1/model/reload", None)
            asked = len(seen)
            until(lambda: len(seen) > asked + 10)
        assert not failed
        assert list(right) == list(dict.fromkeys(seen))
        assert [one["outcome"] for one in service.entries("reload")] == ["loaded", "failed", "failed"]
        assert refused.status_code == 409 and "manifest.json" in refused.json()["detail"]
        assert service.process.poll() is None


@pytest.fixture
def two(folder) -> Iterator[Outside]:
    """A service of two workers that knows zoe."""
    with outside(Path("model"), folder, "--workers", "2") as service:
        post(f"{service.url}/v1/newcomers", {"facts": ZOE})
        yield service


def by_worker(service: Outside, replies: dict[str, httpx.Response]) -> dict[int, list[httpx.Response]]:
    """Replies by the process that gave them, as the log tells it."""
    found: dict[int, list[httpx.Response]] = {}
    for entry in service.entries("request"):
        if entry["id"] in replies:
            found.setdefault(entry["pid"], []).append(replies[entry["id"]])
    return found


def ask_both(service: Outside, path: str = "/v1/tails", content: Any = QUESTION) -> dict[int, list[httpx.Response]]:
    """The same request, many times at once, until both workers have answered."""
    replies: dict[str, httpx.Response] = {}

    def ask(number: int) -> None:
        name = f"r{len(replies)}-{number}"
        replies[name] = post(f"{service.url}{path}", content, headers={"X-Request-Id": name})

    with under_load(ask, threads=6) as failed:
        until(lambda: len(by_worker(service, dict(replies))) == 2)
    assert not failed
    return by_worker(service, replies)


def test_two_workers_agree_at_the_same_position_and_count_together(two, people):
    replies = [one for many in ask_both(two).values() for one in many]
    assert len({one.content for one in replies}) == 1
    assert without_reason(replies[0].json()["answers"]) == answers_of(people)
    asked = len([one for one in two.entries("request") if one["route"] == "/v1/tails"])
    text = get(f"{two.url}/metrics").text
    assert f'newcomer_questions_total{{ask="tails"}} {float(asked)}' in text.splitlines()
    assert "newcomer_requests_in_flight 1.0" in text.splitlines()


def test_a_model_is_loaded_anew_by_all_workers(two, folder, other_people):
    replace(folder, other_people)
    found = post(f"{two.url}/v1/model/reload", None)
    assert found.json()["loaded"] and found.json()["model"] != two.model
    until(lambda: len({one["pid"] for one in two.entries("reload")}) == 2)
    models = {one.json()["model"] for many in ask_both(two).values() for one in many}
    assert models == {found.json()["model"]}


def test_a_worker_that_begins_is_told_of_another_model_when_it_listens(two, folder, other_people):
    old, kept = two.workers()
    kill(old)
    until(lambda: len(two.workers()) == 2 and old not in two.workers())
    (fresh,) = set(two.workers()) - {kept}
    replace(folder, other_people)
    two.signal(signal.SIGHUP)
    until(lambda: {one["pid"] for one in two.entries("reload")} == {fresh, kept})
    models = {one.json()["model"] for many in ask_both(two).values() for one in many}
    assert len(models) == 1 and two.model not in models


def test_no_fact_is_lost_when_workers_are_killed(two, folder):
    acknowledged: dict[int, int] = {}

    def add(number: int) -> None:
        facts, headers = [(f"n{number}", "knows", "p03")], {"Idempotency-Key": f"k{number}"}
        for _ in range(1_000):
            try:
                found = post(f"{two.url}/v1/newcomers", {"facts": facts}, headers=headers)
                assert found.status_code == 200 and found.json()["newcomers"] == [f"n{number}"], found.text
                acknowledged[number] = found.json()["position"]
                return
            except httpx.TransportError:
                continue
        raise AssertionError("nobody answers")

    with under_load(add) as failed:
        for _ in range(4):
            before = two.workers()
            told = len(acknowledged)
            until(lambda told=told: len(acknowledged) > told + 5)
            kill(before[0])
            until(lambda before=before: len(two.workers()) == 2 and before[0] not in two.workers())
    assert not failed and len(two.entries("worker-died")) == 4
    with open_store(folder / "model.newcomers.db") as store, store.reading() as state:
        kept = {one.name: one.position for one in state.newcomers(limit=1_000_000, prefix="n")}
    assert kept == {f"n{number}": position for number, position in acknowledged.items()}
    assert two.end() == 0


def test_workers_end_with_their_supervisor(two):
    workers = two.workers()
    two.process.kill()
    two.process.wait()
    until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers))


def test_workers_that_cannot_begin_end_the_service(folder):
    (folder / "model" / "manifest.json").write_text("{}")
    done = run("serve", "model", "--workers", "2", "--port", "0", cwd=folder)
    assert done.returncode == 2 and "before it listened" in done.stderr and "Traceback" not in done.stderr
    assert "is no trained model" in done.stderr or "manifest.json" in done.stderr


def test_newcomers_are_kept_in_postgresql(folder, people, postgres):
    with schemas(postgres) as make:
        place = make()
        with outside(Path("model"), folder, "--store", place, "--workers", "2") as service:
            assert post(f"{service.url}/v1/newcomers", {"facts": ZOE}).json()["position"] == 1
            replies = [one for many in ask_both(service).values() for one in many]
            assert len({one.content for one in replies}) == 1
            assert without_reason(replies[0].json()["answers"]) == answers_of(people)
            recorded = post(f"{service.url}/v1/tails", QUESTION | {"record": True}).json()["recorded"]
            assert recorded == [1, 2, 3][: len(recorded)] and recorded
            assert place.partition("?")[2] not in service.said
