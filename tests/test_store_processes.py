"""A store that several processes write to at once, and one whose writers are killed."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conftest import complaint
from newcomer.store import StoreBusyError, open_store
from store_workers import facts_of
from store_world import added, is_seen

WORKERS = Path(__file__).parent / "store_workers.py"
KILLS = 40


def together(*commands: Sequence[str]) -> list[list[str]]:
    """What processes print that run at the same time."""
    running = [
        subprocess.Popen([sys.executable, WORKERS, *command], stdout=subprocess.PIPE, text=True) for command in commands
    ]
    printed = [process.communicate()[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return printed


def test_writers_at_the_same_time_lose_nothing(place):
    printed = together(*(("write", place, f"w{number}", "30") for number in range(4)))
    told = {int(line.split()[1]): line.split()[0] for lines in printed for line in lines}
    assert sorted(told) == list(range(1, 4 * 40 + 1))  # no position twice, none left out
    for lines in printed:
        positions = [int(line.split()[1]) for line in lines]
        assert positions == sorted(positions)
    with open_store(place) as store, store.reading() as state:
        log = state.log(limit=1_000)
        assert [entry.position for entry in log] == sorted(told)
        assert [(entry.arrived or entry.left)[0] for entry in log] == [told[entry.position] for entry in log]
        assert {entry.who for entry in log} == {"w0", "w1", "w2", "w3"}
        assert state.count == (4 * 20 * 2, 4 * 20 * 3, 0)
        names = {one.name for one in state.newcomers(limit=1_000)}
        assert names == {f"w{w}-{n}{end}" for w in range(4) for n in range(30) if n % 3 for end in ("", " too")}


def test_the_same_requests_from_several_processes_are_made_once(place):
    printed = together(*(("compete", place, "25") for _ in range(4)))
    assert all(lines == printed[0] for lines in printed)
    with open_store(place) as store, store.reading() as state:
        assert state.position == 25 and state.count == (50, 75, 0)


def test_an_empty_place_that_several_processes_open_becomes_one_store(fresh_place):
    for _ in range(3):
        place = fresh_place()
        printed = together(*(("open", place) for _ in range(4)))
        assert sorted(line for lines in printed for line in lines) == ["('zoe',)", "()", "()", "()"]


def test_killed_writers_leave_whole_changes_and_all_that_was_acknowledged(place, tmp_path):
    acknowledged = tmp_path / "acknowledged"
    together(("die", place, str(acknowledged), str(KILLS)))
    told = [line.split("|") for line in acknowledged.read_text(encoding="utf-8").splitlines()]
    assert {kind for kind, _, _ in told} == {"add", "remove"}
    with open_store(place) as store:
        added(store)  # waits for what a server still has to do for the last one
        with store.reading() as state:
            log = {entry.position: entry for entry in state.log(limit=1_000_000)}
            counted = state.count
        assert sorted(log) == list(range(1, len(log) + 1))
        for kind, name, position in told:
            assert log[int(position)].kind == kind and name in log[int(position)].arrived + log[int(position)].left
        assert len(told) <= len(log) <= len(told) + KILLS  # at most one change a kill was made and not acknowledged
        for entry in log.values():
            name = (entry.arrived or entry.left)[0]
            facts = entry.stated or entry.retracted
            assert entry.arrived + entry.left == (name, f"{name} too") and sorted(facts) == sorted(facts_of(name))
        here = {entry.arrived[0] for entry in log.values() if entry.arrived}
        here -= {entry.left[0] for entry in log.values() if entry.left}
        assert counted == (2 * len(here), 3 * len(here), 0)
        every_change_can_be_asked_for_again(store, log)


def every_change_can_be_asked_for_again(store, log):
    for position, entry in log.items():
        if entry.kind == "add":
            again = store.add(facts_of(entry.arrived[0]), is_seen=is_seen, who="w", key=entry.key)
            assert again == (position, entry.arrived, (), 3, 0)
    assert store.position() == len(log)


def test_who_waits_too_long_for_others_is_told(place):
    from newcomer.store.places import writes

    with open_store(place) as store, open_store(place, wait_seconds=0.1) as impatient:
        added(store, "a knows b")
        with writes(store._engine) as connection:
            connection.exec_driver_sql("UPDATE newcomer_store SET position = position")
            error = complaint(added, impatient, "b knows c")
            assert isinstance(error, StoreBusyError)
            assert str(error).endswith("another process holds it for too long; try again")
            assert impatient.position() == 1  # readers do not wait
        assert added(impatient, "b knows c").position == 2


def test_a_store_that_is_moved_forward_meanwhile_is_opened_again(place, monkeypatch):
    from newcomer.store import schema

    with open_store(place) as store:
        monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE more (id {integer})",)))
        with open_store(place) as newer:
            added(newer, "a knows b")
        monkeypatch.undo()
        problem = "the schema of the store is 2 and no longer 1, as when it was opened; open it again"
        assert str(complaint(added, store, "b knows c")) == str(complaint(store.position)) == problem
