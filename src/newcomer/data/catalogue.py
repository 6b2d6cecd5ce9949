"""The data sets this package knows by name: what each holds, where it was published, where it lies on this machine.

``catalogue.toml`` beside this file holds the facts. Counts are *rows of the published files*, repeated rows included,
so that they can be checked against a file with nothing but a line counter. ``entities`` and ``relations`` count the
distinct names in all files of a set; a *newcomer* is an entity that auxiliary rows name and training rows do not.

A data set is a folder. ``find_folder`` looks for it in this order: the path as given, the name under each folder of the
environment variable NEWCOMER_DATA, the name in the user's cache, where ``newcomer data get`` puts what it fetches.
"""

import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from newcomer.errors import DatasetError, OptionError, shown, unknown_name

ROLES = ("train", "aux", "valid", "test")
DATA_VARIABLE = "NEWCOMER_DATA"
SAMPLE = "sample"


@dataclass(frozen=True)
class SourceFile:
    """One published file: a path in a public Git repository at a fixed commit, and the Git blob id of its content."""

    role: str
    repository: str
    commit: str
    path: str
    git_blob: str
    rows: int

    @property
    def file_name(self) -> str:
        """The name this file gets in a data folder."""
        return f"{self.role}.txt"

    def is_content(self, content: bytes) -> bool:
        """Whether this is what was published; a last newline that was added or lost on the way does not count."""
        body = content.removesuffix(b"\n")
        return self.git_blob in (_git_blob(content), _git_blob(body), _git_blob(content + b"\n"))


@dataclass(frozen=True)
class Entry:
    """A named data set. Counts that are not known are ``None``; ``files`` is empty where nothing can be downloaded."""

    name: str
    title: str
    licence: str
    task: str
    counts: Mapping[str, int] = field(hash=False)
    entities: int | None = None
    relations: int | None = None
    newcomers: Mapping[str, int] | None = field(default=None, hash=False)  # in aux, and those that test asks about
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()
    otherwise: str = ""  # how to have a set that cannot be downloaded

    @property
    def downloadable(self) -> bool:
        return bool(self.files)

    @property
    def next_step(self) -> str:
        """How a user gets this set: the command, or what to do where there is none."""
        return f"fetch it with: newcomer data get {self.name}" if self.downloadable else self.otherwise


def _git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def entries() -> tuple[Entry, ...]:
    """All entries, in the order of the catalogue."""
    return tuple(_catalogue().values())


def names() -> tuple[str, ...]:
    """The names of all entries, in the order of the catalogue."""
    return tuple(_catalogue())


def entry(name: str) -> Entry:
    """The entry of this name; a wrong name is answered with the nearest right one."""
    found = _catalogue().get(name)
    if found is None:
        raise unknown_name("data set", name, names())
    return found


def count_rows(folder: Path) -> dict[str, int]:
    """Rows of the plain ``ROLE.tsv`` files of a folder; a last row without a newline counts."""
    contents = {role: path.read_bytes() for role in ROLES if (path := folder / f"{role}.tsv").is_file()}
    return {role: text.count(b"\n") + (text[-1:] not in (b"", b"\n")) for role, text in contents.items()}


def sample_folder() -> Path:
    """The small graph that ships with the package."""
    return Path(__file__).parent / SAMPLE


def cache_folder() -> Path:
    """Where downloaded data sets live: ``newcomer/data`` under XDG_CACHE_HOME or ``~/.cache``."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG rules say that a relative path is to be ignored.
    return (given if given.is_absolute() else _home() / ".cache") / "newcomer" / "data"


def find_folder(name_or_path: str | Path) -> Path:
    """The folder of a data set given by path or by name.

    An existing folder wins; then the name under each folder of NEWCOMER_DATA, then the package's own sample, then the
    user's cache. Names need not be in the catalogue: a folder of one's own in NEWCOMER_DATA is found as well.
    """
    text = str(name_or_path)
    if not text or text.isspace():
        raise OptionError("the data set's name is empty; give a folder or a name that 'newcomer data list' shows")
    given = expanded(text)
    if _is_folder(given):
        return given
    if given.name != text or text == "..":
        raise DatasetError(_no_such_path(given))
    for folder in _places(text):
        if _is_folder(folder):
            return folder
    raise _not_found(text)


def expanded(name_or_path: str | Path) -> Path:
    """A path with ``~`` for a home folder written out."""
    text = str(name_or_path)
    try:
        return Path(text).expanduser() if text.startswith("~") else Path(text)
    except RuntimeError:  # nobody's home: then it is a name like any other
        return Path(text)


def _places(name: str) -> Iterator[Path]:
    for root in _data_roots():
        yield root / name
    if name == SAMPLE:
        yield sample_folder()
    yield cache_folder() / name


def _data_roots() -> list[Path]:
    listed = os.environ.get(DATA_VARIABLE, "").split(os.pathsep)
    return [Path(root).expanduser() for root in listed if root]


def _not_found(name: str) -> DatasetError:
    if _holds(Path(name).exists):
        return DatasetError(_no_such_path(Path(name)))
    roots = [*_data_roots(), cache_folder()]
    searched = f"{shown(name)} is no file or folder here, and no data set in {', '.join(map(str, roots))}"
    if not _data_roots():
        searched += f" ({DATA_VARIABLE} is not set)"
    if name in names():
        return DatasetError(f"{searched}; {entry(name).next_step}")
    near = get_close_matches(name, {*names(), *_own_names(roots)}, n=3, cutoff=0.6)
    guess = f"did you mean {' or '.join(map(repr, near))}? " if near else "check the path; "
    return DatasetError(f"{searched}; {guess}see the known names with: newcomer data list")


def _no_such_path(path: Path) -> str:
    wanted = "a file, a folder"
    if not _holds(path.exists):
        problem = "does not exist"
    elif path.is_file():
        wanted = "a folder"
        problem = "is a file, and a data set is a folder with train, aux, valid and test"
    else:
        problem = "is neither a file nor a folder"
    return f"{shown(str(path))} {problem}; give {wanted} or a name that 'newcomer data list' shows"


def _own_names(roots: list[Path]) -> Iterator[str]:
    for root in filter(_is_folder, roots):
        with suppress(PermissionError):
            yield from (child.name for child in root.iterdir() if _is_folder(child) and child.name[0] != ".")


def _is_folder(path: Path) -> bool:
    return _holds(path.is_dir)


def _holds(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except OSError:  # a name too long, a parent that may not be entered
        return False


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise OptionError("there is no home folder to keep data in; set XDG_CACHE_HOME to a folder") from None


@cache
def _catalogue() -> dict[str, Entry]:
    text = files("newcomer.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return {table["name"]: _entry_of(table) for table in tomllib.loads(text)["dataset"]}


def _entry_of(table: dict[str, Any]) -> Entry:
    # The sample's files lie beside this one, so they are counted, not described.
    counts = count_rows(sample_folder()) if table["name"] == SAMPLE else table["counts"]
    files, notes = tuple(SourceFile(**source) for source in table.pop("file", ())), tuple(table.get("notes", ()))
    made = {"counts": MappingProxyType(dict(counts)), "files": files, "notes": notes}
    return Entry(**{**table, **made})
