"""What all benchmarks share: repeated timing, peak memory of a child process, bars as ratios, a table at the end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# ru_maxrss would count what the parent held when it forked; the kernel's own high-water mark starts afresh.
PEAK_BYTES = """
def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
"""
PRINT_PEAK = PEAK_BYTES + "print(peak_bytes())"


@dataclass(frozen=True)
class Bar:
    """A measured ratio and the bound it has to keep."""

    name: str
    ratio: float
    bound: float
    at_least: bool = False
    detail: str = ""

    @property
    def kept(self) -> bool:
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "ok  " if self.kept else "MISS"
        return f"{verdict}  {self.name}: {self.ratio:.2f} (bar {sign} {self.bound:g})  {self.detail}"


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The shortest of several runs in seconds: the least disturbed one."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class Child:
    """What a child process used: seconds, peak resident bytes, and what it printed as JSON."""

    seconds: float
    peak_bytes: int
    said: dict[str, float]


def in_child(code: str, *arguments: str) -> Child:
    """Run Python code in a process of its own and measure it."""
    start = time.perf_counter()
    command = [sys.executable, "-c", code + PRINT_PEAK, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *said, peak = done.stdout.splitlines()
    return Child(time.perf_counter() - start, int(peak), json.loads("".join(said) or "{}"))


def finish(bars: list[Bar]) -> None:
    """Print the bars; exit code 1 where one is missed."""
    for bar in bars:
        print(bar)
    if not all(bar.kept for bar in bars):
        sys.exit(1)


def data_folder(name: str) -> Path | None:
    """A published data set in NEWCOMER_DATA, or None with a sentence."""
    root = os.environ.get("NEWCOMER_DATA")
    folder = Path(root) / name if root else None
    if folder is None or not folder.is_dir():
        print(f"skipped: {name} is not in NEWCOMER_DATA")
        return None
    return folder
