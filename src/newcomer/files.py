"""Bytes in and out: compressed files by their content, folders and files that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from newcomer.errors import InputError, OutputError

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SUFFIXES = {".gz": "gzip", ".zst": "zstd"}


def plain_suffix(path: Path) -> str:
    """The ending that names the format, without that of the compression: ``a.tsv.gz`` gives ``.tsv``."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in _SUFFIXES else path.suffix.lower()


def compression_of(path: Path) -> str | None:
    """How a file is compressed, by its first bytes: a wrong ending does not matter."""
    with looking_at(path), path.open("rb") as file:
        start = file.read(4)
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


@contextmanager
def looking_at(path: Path) -> Iterator[None]:
    """A path that may not be looked at (no permission, too long a name) is an `InputError`."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be read ({error.strerror or _one_line(error)})"
        raise InputError(path, problem, hint="check the path and its permissions") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """A readable binary stream over the decompressed content; broken compression is an `InputError`."""
    kind = compression_of(path)
    try:
        with pa.OSFile(os.fsencode(path), "rb") as raw:
            if kind is None:
                yield raw
            else:
                with pa.CompressedInputStream(raw, kind) as stream:
                    yield stream
    except OSError as error:
        what = f"is not a whole {kind} file" if kind else "cannot be read"
        hint = "it may have been cut off: copy or download it again" if kind else ""
        raise InputError(path, f"{what} ({_one_line(error)})", hint=hint) from None


def read_ahead(blocks: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same blocks, the next one fetched (and decompressed) while the last is worked on."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


@contextmanager
def create_bytes(path: Path) -> Iterator[Any]:
    """A writable binary stream, compressed by the ending of ``path``; the file appears only when all is written."""
    with fresh_file(path) as partial:
        kind = _SUFFIXES.get(path.suffix.lower())
        with pa.OSFile(os.fsencode(partial), "wb") as raw:
            if kind is None:
                yield raw
            else:
                with pa.CompressedOutputStream(raw, kind) as stream:
                    yield stream


@contextmanager
def fresh_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that takes its place when the block ends well, and vanishes when not."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        with suppress(OSError):  # it may be gone, or never have been possible
            partial.unlink()


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written ({error.strerror or _one_line(error)}); choose another place")


@contextmanager
def fresh_folder(path: Path, force: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``path`` when the block ends well; an existing ``path`` needs ``force``."""
    try:
        if path.exists() and not force:
            raise OutputError(f"{path}: exists already; choose another place or pass --force to replace it")
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        staging.chmod(0o755)
        yield staging
        _replace_folder(staging, path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace_folder(staging: Path, path: Path) -> None:
    """Swap a finished folder in; what stood there goes only after the new one is complete."""
    if path.is_dir() and not path.is_symlink():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
        try:
            path.replace(old / path.name)
            staging.replace(path)
        except OSError:
            if not path.exists():
                (old / path.name).replace(path)
            raise
        finally:
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
    elif path.exists():
        raise OutputError(f"{path}: is not a folder; choose another place")
    else:
        staging.replace(path)
