"""How much a service takes on: so many requests at once, so many that wait, and no longer than so many seconds."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from newcomer.service.problems import BusyError, TimedOutError

T = TypeVar("T")


class Deadline:
    """Until when a request may take; its work looks at it between questions."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return max(0.0, self._end - time.monotonic())

    def stop(self) -> None:
        """Let no more work begin."""
        self._end = 0.0

    def check(self) -> None:
        """An error when the time is over."""
        if self.left <= 0:
            raise TimedOutError(self.seconds)


class Gate:
    """Where requests wait for their turn: ``at_once`` are worked on in threads, ``queue`` wait, more are refused."""

    def __init__(self, at_once: int, queue: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._free = asyncio.Semaphore(at_once)
        self._queue, self._seconds = queue, seconds
        self.waiting, self.working = 0, 0

    def close(self) -> None:
        """Begin no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[Deadline], T], *, patient: bool = False, whole: bool = False) -> T:
        """Work in its turn. Who is ``patient`` waits for it however many there are, and its time begins with its turn.

        The time is over for whoever asks as soon as it is over; the thread goes on to the end of its question, and is
        free for others then. What has to be done as a ``whole``, as a change, is waited for once it began.
        """
        deadline = Deadline(self._seconds)
        if patient:
            await self._free.acquire()
            deadline = Deadline(self._seconds)
        else:
            await self._in_turn(deadline)
        return await self._worked(work, deadline, whole)

    async def _in_turn(self, deadline: Deadline) -> None:
        if self._free.locked() and self.waiting >= self._queue:
            raise BusyError(f"{self.waiting} requests wait already")
        self.waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), deadline.left)
        except TimeoutError:
            raise TimedOutError(deadline.seconds) from None
        finally:
            self.waiting -= 1

    async def _worked(self, work: Callable[[Deadline], T], deadline: Deadline, whole: bool) -> T:
        loop = asyncio.get_running_loop()
        self.working += 1
        future = self._pool.submit(work, deadline)
        future.add_done_callback(lambda done: _tell(loop, self._done, done))
        wrapped = asyncio.wrap_future(future)
        try:
            return await asyncio.wait_for(asyncio.shield(wrapped), None if whole else deadline.left)
        except TimeoutError:
            if wrapped.done():  # the work itself says that it took too long
                raise
            raise TimedOutError(deadline.seconds) from None
        finally:
            if not wrapped.done():
                deadline.stop()
                wrapped.add_done_callback(_looked_at)

    def _done(self, _: "Future[T]") -> None:
        self.working -= 1
        self._free.release()


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[["Future[T]"], None], done: "Future[T]") -> None:
    with suppress(RuntimeError):  # the loop has ended, and nobody waits
        loop.call_soon_threadsafe(what, done)


def _looked_at(done: "asyncio.Future[T]") -> None:
    """Nobody waits for this outcome any more: that it is an error is no news."""
    if not done.cancelled():
        done.exception()
