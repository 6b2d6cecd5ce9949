"""Bytes in and out: compressed files by their content, folders and files that appear whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from newcomer.errors import InputError, OutputError, one_line, shown

# The file that tells a folder this program wrote: a data set, virtual neighbours, a trained model.
MARKERS = ("dataset.json", "enrichment.json", "manifest.json")
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
MAGIC_BYTES = max(map(len, _MAGIC))
_SUFFIXES = {".gz": "gzip", ".zst": "zstd"}


def plain_suffix(path: Path) -> str:
    """The ending that names the format, without that of the compression: ``a.tsv.gz`` gives ``.tsv``."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in _SUFFIXES else path.suffix.lower()


def as_text(name: str) -> str:
    """A file's name as a text that UTF-8 can hold: a file system takes other bytes, too, which are escaped."""
    return name.encode(errors="backslashreplace").decode()


def compression_in(start: bytes) -> str | None:
    """How what begins so is compressed: a wrong ending does not matter."""
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


@contextmanager
def looking_at(path: Path) -> Iterator[None]:
    """A path that may not be looked at (no permission, too long a name) is an `InputError`."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be read ({error.strerror or one_line(error)})"
        raise InputError(path, problem, hint="check the path and its permissions") from None


def is_folder(path: Path) -> bool:
    """Whether there is a folder; a path that may not be looked at is an `InputError`."""
    with looking_at(path):
        return path.is_dir()


def must_be_file(path: Path) -> None:
    """Say what a path is where it is no file: nothing, a folder, or neither (a pipe, a device)."""
    with looking_at(path):
        if path.is_dir():
            raise InputError(path, "is a folder where a file is expected", hint="name a file in it")
        if not path.exists():
            raise InputError(path, "does not exist", hint="check the path")
        if not path.is_file():
            hint = "write what it gives into a file first"
            raise InputError(path, "is neither a file nor a folder", hint=hint)


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """A readable binary stream over the decompressed content; broken compression is an `InputError`."""
    with looking_at(path), path.open("rb") as file:
        kind = compression_in(file.read(MAGIC_BYTES))
    try:
        with pa.OSFile(os.fsencode(path), "rb") as raw, pa.input_stream(raw, compression=kind) as stream:
            yield stream
    except OSError as error:
        what = f"is not a whole {kind} file" if kind else "cannot be read"
        hint = "it may have been cut off: copy or download it again" if kind else ""
        raise InputError(path, f"{what} ({one_line(error)})", hint=hint) from None


def read_text(path: Path) -> str:
    """The whole of a text file in UTF-8."""
    with open_bytes(path) as stream:
        content = bytes(stream.read())
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(path, "is not UTF-8", line, "save it as UTF-8") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a small text file in UTF-8, whatever ends them, with or without a byte order mark."""
    must_be_file(path)
    return read_text(path).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def read_ahead(blocks: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same blocks, the next one fetched (and decompressed) while the last is worked on."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


@contextmanager
def create_bytes(path: Path) -> Iterator[Any]:
    """A writable binary stream, compressed by the ending of ``path``; the file appears only when all is written."""
    kind = _SUFFIXES.get(path.suffix.lower())
    with (
        fresh_file(path) as partial,
        pa.OSFile(os.fsencode(partial), "wb") as raw,
        pa.output_stream(raw, compression=kind) as stream,
    ):
        yield stream


@contextmanager
def fresh_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that takes its place when the block ends well, and vanishes when not."""
    if not path.name:
        raise OutputError(f"{path}: is a folder; give the name of a file")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with parents_of(path):
        try:
            with writing(path):
                yield partial
                partial.replace(path)
        finally:
            with suppress(OSError):  # it may be gone, or never have been possible
                partial.unlink()


@contextmanager
def parents_of(path: Path) -> Iterator[None]:
    """The folders that ``path`` lies in, made where they are missing; those go again if the block fails."""
    try:
        missing = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise _unwritable(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # something else came into it
                folder.rmdir()
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A place that cannot be written is an `OutputError`."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from None


def must_be_writable(path: Path) -> None:
    """Refuse a file in a folder that takes no new ones: worth asking before other files are written."""
    if is_folder(path.parent):
        with writing(path), tempfile.TemporaryFile(dir=path.parent):
            pass


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written ({error.strerror or one_line(error)}); choose another place")


def exists_already(path: Path) -> OutputError:
    """The error for an output that is there and may not be replaced."""
    return OutputError(f"{path}: exists already; choose another place or pass --force to replace it")


@contextmanager
def fresh_folder(path: Path, force: bool = False, marker: str | None = None) -> Iterator[Path]:
    """A temporary folder that becomes ``path`` when the block ends well; an existing ``path`` needs ``force``.

    Even then only an empty folder is replaced, or one that holds the file ``marker`` (any of `MARKERS` where it is
    `None`): nobody else's files are deleted.
    """
    with parents_of(path):
        with writing(path):
            _refuse_existing(path, force, marker)
            staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            staging.chmod(0o755)
            yield staging
            _refuse_existing(path, force, marker)  # another writer may have come first
            replace_folder(staging, path)
        except OSError as error:
            came_between = not force and error.errno in (errno.ENOTEMPTY, errno.EEXIST)
            raise exists_already(path) if came_between else _unwritable(path, error) from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _refuse_existing(path: Path, force: bool, marker: str | None) -> None:
    if not path.exists():
        return
    if not force:
        raise exists_already(path)
    if not path.is_dir() or path.is_symlink():
        raise OutputError(f"{path}: is not a folder; choose another place")
    there = sorted(child.name for child in path.iterdir())
    own = MARKERS if marker is None else (marker,)
    if there and not set(own) & set(there):
        problem = f"holds {shown(there[0])} and no {' or '.join(own)}, so this program did not write it"
        raise OutputError(f"{path}: {problem}; choose another place")


def replace_folder(staging: Path, path: Path) -> None:
    """Swap a finished folder in; what stood there goes only after the new one is complete."""
    if not path.exists():
        staging.replace(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    try:
        path.replace(old / path.name)
        staging.replace(path)
    except BaseException:  # a signal, too, must not leave the place empty
        if not path.exists():
            (old / path.name).replace(path)
        raise
    finally:
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
