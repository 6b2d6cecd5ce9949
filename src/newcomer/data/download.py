"""Fetch a published data set: each file checked, interrupted transfers resumed, the folder there whole or not at all.

Files travel into a staging folder beside the destination, ``.NAME.part``, each as ``ROLE.txt.part`` until its Git blob
id, SHA-1 of ``blob <size>\\0<content>``, is the one the catalogue states. When all are there, the staging folder is
renamed to the destination in one step. A transfer that breaks leaves its part; the same command goes on from there.
"""

import hashlib
import http.client
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from newcomer.data.catalogue import Entry, SourceFile
from newcomer.errors import DownloadError, OptionError, OutputError, shown
from newcomer.files import parents_of, replace_folder
from newcomer.locks import locked

GITHUB = "https://raw.githubusercontent.com"
MIRROR_VARIABLE = "NEWCOMER_MIRROR"
TIMEOUT_S = 30.0
ATTEMPTS = 4
CHUNK = 1 << 16
PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
AGAIN = "run the same command again"

# Told after every chunk: the file, how many of its bytes are here, how many it has (None if the server does not say).
Progress = Callable[[SourceFile, int, int | None], None]


class _PassingError(Exception):
    """A failure that may be gone in a moment; its text is what went wrong and what to do if it is not."""


class _StalePartError(Exception):
    """The server cannot continue the part that lies here."""


def fetch_dataset(
    entry: Entry,
    destination: Path,
    base_url: str | None = None,
    progress: Progress | None = None,
    *,
    force: bool = False,
    attempts: int = ATTEMPTS,
    timeout: float = TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch every file of an entry from ``<base>/<repository>/<commit>/<path>`` into the folder ``destination``.

    ``base_url`` defaults to the environment variable NEWCOMER_MIRROR, then to GitHub. A destination that is already
    whole is checked and left alone; one that is not is an error, unless ``force`` replaces it.
    """
    if not entry.downloadable:
        raise DownloadError(f"data set {entry.name!r}: {entry.otherwise}")
    server = _Server(_base(base_url), attempts, timeout, sleep, progress)
    try:
        _fetch_whole(entry, destination.resolve(), server, force)
    except OSError as error:  # network failures have become DownloadErrors by now: this is the disk
        place, problem = error.filename or destination, error.strerror or error
        raise OutputError(f"cannot read or write {place}: {problem}; mend that or choose another place") from error
    return destination


def _fetch_whole(entry: Entry, destination: Path, server: "_Server", force: bool) -> None:
    if force:
        _refuse_foreign_files(entry, destination)
    elif _is_there(entry, destination):
        return
    with _staging_of(destination) as staging:
        for source in entry.files:
            server.fetch(source, staging)
        _put_in_place(entry, staging, destination)


@contextmanager
def _staging_of(destination: Path) -> Iterator[Path]:
    """The folder that files travel into, for one process at a time."""
    staging = destination.with_name(f".{destination.name}.part")
    busy = DownloadError(f"{destination}: another download of it is under way; wait until that has ended")
    with parents_of(destination):
        staging.mkdir(exist_ok=True)
        with locked(staging, busy):
            try:
                yield staging
            finally:
                with suppress(OSError):  # gone by now, or it holds parts to resume from; only an empty one is of no use
                    staging.rmdir()


def find_damage(entry: Entry, folder: Path) -> str | None:
    """The first published file that a folder lacks or has with other content, in words; ``None`` if all are right."""
    for source in entry.files:
        path = folder / source.file_name
        if not path.is_file():
            return f"{path} is missing"
        found = blob_id(path)
        if found != source.git_blob:
            return f"{path} is not the published file (its Git blob id is {found}, expected {source.git_blob})"
    return None


def blob_id(path: Path) -> str:
    """The id Git gives to a file's content."""
    with path.open("rb") as stream:
        header = b"blob %d\0" % os.fstat(stream.fileno()).st_size
        return hashlib.file_digest(stream, lambda: hashlib.sha1(header, usedforsecurity=False)).hexdigest()


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Bars on standard error, one a file, for as long as the context lasts; nothing where the output is no terminal."""
    if not sys.stderr.isatty():
        yield lambda source, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    tasks: dict[SourceFile, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def report(source: SourceFile, done: int, total: int | None) -> None:
            if source not in tasks:
                tasks[source] = bars.add_task(source.file_name, total=total)
            bars.update(tasks[source], completed=done, total=total)

        yield report


@dataclass(frozen=True)
class _Server:
    """Where files come from, and how patiently."""

    base: str
    attempts: int
    timeout: float
    sleep: Callable[[float], None]
    progress: Progress | None

    def url(self, source: SourceFile) -> str:
        return f"{self.base}/{quote(f'{source.repository}/{source.commit}/{source.path}')}"

    def fetch(self, source: SourceFile, staging: Path) -> None:
        """Bring one file into the staging folder, unless it is there already."""
        whole, part = staging / source.file_name, staging / f"{source.file_name}.part"
        if whole.is_file() and blob_id(whole) == source.git_blob:
            return
        if not (part.is_file() and blob_id(part) == source.git_blob):
            self._transfer_patiently(source, part)
            self._check(source, part)
        part.replace(whole)

    def _transfer_patiently(self, source: SourceFile, part: Path) -> None:
        for attempt in range(1, self.attempts + 1):
            try:
                with suppress(_StalePartError):
                    return self._transfer(source, part)
                part.unlink(missing_ok=True)
                return self._transfer(source, part)
            except _PassingError as failure:
                if attempt == self.attempts:
                    tries = f" ({attempt} tries)" if attempt > 1 else ""
                    raise DownloadError(f"{self.url(source)}: {failure}{tries}") from None
                self.sleep(2.0 ** (attempt - 1))
        return None

    def _transfer(self, source: SourceFile, part: Path) -> None:
        have = part.stat().st_size if part.is_file() else 0
        with self._open(self.url(source), have) as response:
            start = _start_of(response, have)
            length = response.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            done = start
            with part.open("ab" if start else "wb") as sink:
                for chunk in _chunks(response):
                    sink.write(chunk)
                    done += len(chunk)
                    if self.progress:
                        self.progress(source, done, total)
        if total is not None and done < total:
            raise _PassingError(f"the connection broke after {done:,} of {total:,} bytes; {AGAIN} to resume")

    def _open(self, url: str, have: int) -> Any:
        headers = {"User-Agent": "newcomer", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        try:
            return urlopen(Request(url, headers=headers), timeout=self.timeout)
        except HTTPError as error:
            with error:
                raise _of_status(url, error.code, error.reason) from None
        except URLError as error:
            raise _of_reason(url, error.reason) from None
        except http.client.InvalidURL as error:
            raise DownloadError(f"{shown(url)} is no address ({error}); mend {MIRROR_VARIABLE}") from None
        except (OSError, http.client.HTTPException) as error:
            raise _of_reason(url, error) from None

    def _check(self, source: SourceFile, part: Path) -> None:
        found = blob_id(part)
        if found == source.git_blob:
            return
        part.unlink()
        raise DownloadError(
            f"{self.url(source)} arrived with other content (Git blob id {found}, expected {source.git_blob}) and was "
            f"thrown away; {AGAIN}, and if it stays so, look for a proxy or a {MIRROR_VARIABLE} that changes files"
        )


def _start_of(response: Any, have: int) -> int:
    """Where the body begins: where the part ends, if the server continues it; else at 0."""
    if response.status != http.client.PARTIAL_CONTENT:
        return 0
    if not str(response.headers.get("Content-Range", "")).startswith(f"bytes {have}-"):
        raise _StalePartError
    return have


def _chunks(response: Any) -> Iterator[bytes]:
    while True:
        try:
            chunk: bytes = response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            text = "timed out" if isinstance(error, TimeoutError) else f"broke ({_text(error)})"
            raise _PassingError(f"the connection {text}; {AGAIN} to resume") from None
        if not chunk:
            return
        yield chunk


def _of_status(url: str, status: int, reason: str) -> Exception:
    if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
        return _StalePartError()
    if status in PASSING_STATUSES:
        return _PassingError(f"the server answers {status} ({reason}); {AGAIN} later")
    if status in (404, 410):
        hint = f"set {MIRROR_VARIABLE} to a server that has it" if url.startswith(GITHUB) else f"mend {MIRROR_VARIABLE}"
        return DownloadError(f"{url}: the server has no such file ({status}); {hint}")
    if status in (401, 403):
        return DownloadError(f"{url}: the server refuses it ({status} {reason}); wait, or set {MIRROR_VARIABLE}")
    return DownloadError(f"{url}: the server answers {status} ({reason}); {AGAIN} later, or set {MIRROR_VARIABLE}")


def _of_reason(url: str, reason: str | BaseException) -> Exception:
    host = urlsplit(url).netloc
    if isinstance(reason, ConnectionRefusedError):
        return DownloadError(f"{url}: {host} refuses the connection; check the network and {MIRROR_VARIABLE}")
    if isinstance(reason, socket.gaierror):
        return DownloadError(f"{url}: the host {host} is not found; check the network and {MIRROR_VARIABLE}")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DownloadError(f"{url}: the certificate of {host} is not trusted ({_text(reason)}); check the proxy")
    if isinstance(reason, TimeoutError):
        return _PassingError(f"{host} does not answer in time; {AGAIN} to resume")
    return _PassingError(f"the connection failed ({_text(reason)}); {AGAIN} to resume")


def _text(reason: object) -> str:
    text = (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
    return " ".join(text.split())


def _base(given: str | None) -> str:
    base = (given or os.environ.get(MIRROR_VARIABLE) or GITHUB).rstrip("/")
    try:
        parts = urlsplit(base)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
    except ValueError:
        right = False
    if not right:
        raise OptionError(f"the mirror {shown(base)} is no http or https address; mend or unset {MIRROR_VARIABLE}")
    return base


def _files_in(destination: Path) -> list[str]:
    """The names in a folder, none where there is none; what is no folder is an error."""
    if not destination.exists():
        return []
    if not destination.is_dir():
        raise OutputError(f"{destination} is not a folder; move it away or choose another place")
    return sorted(path.name for path in destination.iterdir())


def _is_there(entry: Entry, destination: Path) -> bool:
    """Whether the whole set is at the destination; anything else there but an empty folder is an error."""
    if not _files_in(destination):
        return False
    damage = find_damage(entry, destination)
    if damage:
        raise DownloadError(f"{damage}; move {destination} away, or replace it with --force")
    return True


def _refuse_foreign_files(entry: Entry, destination: Path) -> None:
    """Replacing a folder deletes what is in it, so it may hold nothing but what a download puts there."""
    own = {source.file_name for source in entry.files}
    foreign = next((name for name in _files_in(destination) if name not in own), None)
    if foreign is not None:
        problem = f"holds {shown(foreign)}, no part of {entry.name}; move it or choose another place"
        raise OutputError(f"{destination} {problem}")


def _put_in_place(entry: Entry, staging: Path, destination: Path) -> None:
    """Rename the staging folder to the destination; an old one goes when the new one stands."""
    for leftover in staging.glob("*.part"):
        leftover.unlink()
    _refuse_foreign_files(entry, destination)
    replace_folder(staging, destination)
