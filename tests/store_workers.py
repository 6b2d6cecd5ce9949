"""Processes that write to a store, each started as `python store_workers.py WHAT PLACE ...`; they are killed, too."""

import os
import random
import signal
import sys
import time
from pathlib import Path

from newcomer.errors import NewcomerError
from newcomer.store import open_store
from store_world import is_seen


def facts_of(name: str) -> list[tuple[str, str, str]]:
    """Three facts, of a newcomer and of a second one that is known by it alone."""
    return [(name, "knows", f"{name} too"), (name, "knows", "seen1"), (f"{name} too", "likes", name)]


def write(place: str, worker: str, number: str) -> None:
    """Add so many newcomers, and remove every third one."""
    with open_store(place) as store:
        for count in range(int(number)):
            name = f"{worker}-{count}"
            position = store.add(facts_of(name), is_seen=is_seen, who=worker).position
            print(name, position)
            if count % 3 == 0:
                print(name, store.remove([name], who=worker).position)


def compete(place: str, number: str) -> None:
    """Send the same requests as others do."""
    with open_store(place) as store:
        for count in range(int(number)):
            print(*store.add(facts_of(f"n{count}"), is_seen=is_seen, who="all", key=f"k{count}"), sep="|")


def open_it(place: str) -> None:
    """Open a store at the same moment as others."""
    with open_store(place) as store:
        print(store.add([("zoe", "knows", "seen1")], is_seen=is_seen, who="ann").arrived)


def die(place: str, acknowledged: str, kills: str) -> None:
    """Start writers, one after the other, and kill each at a random moment: most as they write, some sooner."""
    open_store(place).close()  # with all that is imported on the way
    told, chance = Path(acknowledged), random.Random(0)
    told.touch()
    for run in range(int(kills)):
        seen, child = lines(told), os.fork()
        if child == 0:
            write_on(place, acknowledged, run)
        wanted = chance.randrange(10) if run % 4 else 0
        while lines(told) < seen + wanted:
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                sys.exit("a writer ended before it was killed")
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def lines(path: Path) -> int:
    """How many lines a file has by now."""
    return path.read_bytes().count(b"\n")


def write_on(place: str, acknowledged: str, run: int) -> None:
    """Add and remove newcomers for ever; each change that was acknowledged is written down at once."""
    told = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        store, count = open_store(place), 0
        while True:
            name, count = f"r{run}-{count}", count + 1
            change = store.add(facts_of(name), is_seen=is_seen, who="w", key=name)
            os.write(told, f"add|{name}|{change.position}\n".encode())
            if count % 4 == 0:
                change = store.remove([name], who="w", key=f"not {name}")
                os.write(told, f"remove|{name}|{change.position}\n".encode())
    except NewcomerError as error:
        os.write(told, f"error|{error}|0\n".encode())
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    {"write": write, "compete": compete, "open": open_it, "die": die}[sys.argv[1]](*sys.argv[2:])
