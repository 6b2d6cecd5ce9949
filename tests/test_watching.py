"""What a training prints while it runs: the schedule, stages, how far they are, and the first model."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from newcomer.cli import watching
from newcomer.cli.watching import Pulse, in_time, print_schedule
from newcomer.config import load_preset
from newcomer.training.checkpoint import RunState
from newcomer.training.pipeline import Limits
from newcomer.training.schedule import Schedule, Stage


class Clock:
    """The time, as a test sets it."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(watching, "time", made)
    return made


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines since the last look; all on standard error."""
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_stage_is_told_at_once_and_again_only_when_nothing_was_said_for_a_while(clock, capsys):
    pulse = Pulse(10.0)
    pulse.beat()
    clock.now += 100
    pulse.beat()
    assert said(capsys) == []  # nothing goes on yet
    pulse.stage("mining")
    clock.now += 9
    pulse.beat()
    assert said(capsys) == ["mining"]
    clock.now += 1
    pulse.beat()
    pulse.beat()
    assert said(capsys) == ["mining: 10 s"]
    pulse.say("something else")
    clock.now += 9
    pulse.beat()
    assert said(capsys) == ["something else"]


def test_how_far_it_is_and_how_long_the_rest_takes(clock, capsys):
    pulse = Pulse(0.0)
    pulse.stage("asking")
    clock.now += 20
    for done, total in ((5, 20), (20, 20), (0, 0)):
        pulse.step(done, total)
        pulse.beat()
    assert said(capsys) == ["asking", "asking: 5 of 20 after 20 s, about 60 s left", "asking: 20 s", "asking: 20 s"]


def test_what_begins_anew_within_a_stage_is_estimated_by_itself(clock, capsys):
    pulse = Pulse(0.0)
    pulse.stage("asking")
    clock.now += 100
    pulse.step(20, 20)
    pulse.step(0, 8)
    clock.now += 10
    pulse.step(2, 8)
    pulse.beat()
    assert said(capsys)[-1] == "asking: 2 of 8 after 2 min, about 30 s left"


def test_a_new_stage_begins_with_nothing_done(clock, capsys):
    pulse = Pulse(0.0)
    pulse.stage("first")
    pulse.step(3, 4)
    pulse.stage("second")
    clock.now += 3
    pulse.beat()
    assert said(capsys)[-1] == "second: 3 s"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVERY", 0.0)
    monkeypatch.setattr(watching, "LOOK", 0.001)


def lines_until(capsys: pytest.CaptureFixture[str], wanted: str) -> Iterator[str]:
    while True:
        found = said(capsys)
        yield from found
        if wanted in found:
            return
        time.sleep(0.001)


def test_a_silent_stage_is_told_of_again_and_again_until_the_end(hurried, capsys):
    before = threading.active_count()
    with watching._lines() as listener:
        listener.stage("something long")
        assert set(lines_until(capsys, "something long: 0 s")) == {"something long", "something long: 0 s"}
        assert threading.active_count() == before + 1
    said(capsys)
    assert threading.active_count() == before


def test_the_watch_ends_with_what_it_watches(hurried):
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), watching._lines():
        raise KeyboardInterrupt
    assert threading.active_count() == before


def test_a_watch_that_nobody_reads_ends_in_silence(hurried, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        looked.set()
        raise BrokenPipeError

    looked, raised = threading.Event(), list[object]()
    monkeypatch.setattr(threading, "excepthook", raised.append)
    with watching._lines() as listener:
        listener.stage("something")
        monkeypatch.setattr(watching.typer, "echo", broken)
        assert looked.wait(60)
    assert raised == []


def test_lines_of_epochs_are_those_with_figures_every_tenth_and_the_last(capsys):
    with watching._lines() as listener:
        for epoch in range(1, 14):
            record = {"phase": "final", "epoch": epoch, "loss": 0.5} | ({"mrr": 0.25} if epoch == 3 else {})
            listener.epoch(record, RunState(phase="final"), 13)
    assert said(capsys) == [
        "final, epoch 3 of 13: loss 0.5000, validation MRR 25.0",
        "final, epoch 10 of 13: loss 0.5000",
        "final, epoch 13 of 13: loss 0.5000",
    ]


def test_a_first_model_is_told_of_with_its_place(capsys):
    with watching._lines() as listener:
        listener.first(Path("runs/town"))
    (line,) = said(capsys)
    assert line.startswith("a first model is in runs/town: ") and line.endswith("replaced when the rest is done")


STAGES = (Stage("mining rules", 2.0), Stage("vectors", 118.0), Stage("probabilities", 7200.0))


def printed(
    capsys: pytest.CaptureFixture[str], limits: Limits, smaller: dict[str, tuple[object, object]], mined: bool = False
) -> list[str]:
    print_schedule(Schedule(load_preset("default"), STAGES, 1.26e9, limits, smaller), mined)
    return said(capsys)


def test_a_schedule_is_each_stage_with_its_time_and_what_was_made_smaller(capsys):
    smaller = {"training.validation_queries": (2000, 400), "model.propagation": (True, False)}
    assert printed(capsys, Limits(36_000, 4e9), smaller) == [
        "this machine takes about",
        "      2 s  mining rules",
        "    2 min  vectors",
        "    2.0 h  probabilities",
        "    2.0 h  in all (time limit 10.0 h); 1.3 GB of memory (limit 4.0 GB)",
        "  to fit: training.validation_queries = 400 instead of 2,000",
        "  to fit: model.propagation = false instead of true (usually worth 1 point of MRR, in sparse graphs 5 to 8)",
    ]
    assert printed(capsys, Limits(), {})[-1] == ("    2.0 h  in all (no time limit); 1.3 GB of memory (no limit)")


def test_once_rules_are_there_only_the_rest_is_told(capsys):
    assert printed(capsys, Limits(36_000), {"model.dim": (200, 16)}, mined=True) == [
        "the rest takes about 2.0 h",
        "  to fit: model.dim = 16 instead of 200 (usually worth less than half a point of MRR)",
    ]


def test_limits_that_cannot_be_kept_are_told(capsys):
    for mined in (False, True):
        time_line, memory_line = printed(capsys, Limits(60, 1e9), {}, mined)[-2:]
        assert time_line.strip() == "the smallest sizes take longer than that, too: the time limit will not be kept"
        assert memory_line.strip() == "the smallest sizes need more memory than that, too"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (99.4, "99 s"), (99.6, "2 min"), (5969, "99 min"), (5970, "1.7 h"), (86400, "24.0 h")],
)
def test_times_as_people_say_them(seconds, words):
    assert in_time(seconds) == words
