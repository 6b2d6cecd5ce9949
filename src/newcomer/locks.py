"""One process at a time in a folder, by a lock of the operating system: it ends with the process, however that ends.

POSIX systems lock the folder itself. Windows locks no folders: there it is an empty file beside it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _lock_file(folder: Path) -> Path:
        return folder.with_name(f".{folder.name}.lock")

    FLAGS = os.O_RDWR | os.O_CREAT
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lock_file(folder: Path) -> Path:
        return folder

    FLAGS = os.O_RDONLY


@contextmanager
def locked(folder: Path, busy: Exception | None = None) -> Iterator[None]:
    """Hold a folder that exists; ``busy`` where another process holds it, or has just moved or deleted it.

    Unless it is given, that is a `BlockingIOError`.
    """
    place = _lock_file(folder)
    handle = os.open(place, FLAGS)
    try:
        if not _lock_now(handle, place):
            raise busy or BlockingIOError(f"{place} is held by another process")
        yield
    finally:
        os.close(handle)
        if place != folder:
            with suppress(OSError):  # another process has it open by now
                place.unlink()


def _lock_now(handle: int, place: Path) -> bool:
    try:
        _lock(handle)
        return os.path.samestat(os.fstat(handle), place.stat())  # between opening and locking it may have gone
    except OSError:
        return False
