"""What can go wrong, as one tree.

    NewcomerError            everything below; the command line prints it as one sentence and exits with 2
    ├── InputError           a file that cannot be read as what it should be: file, line, value, next step
    ├── DatasetError         a data set that reads, but lacks something or contradicts itself
    ├── OptionError          a value or a name the caller gave that is not allowed
    ├── OutputError          a place that cannot be written
    ├── DownloadError        a published file that did not arrive whole
    ├── StoreError           a store of newcomers that cannot be opened, read or changed as asked
    ├── EndpointError        a SPARQL endpoint that does not answer, or not as asked
    └── MissingExtraError    an optional package that is needed and not installed

Every message names the value, the place and the next step.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


class NewcomerError(Exception):
    """Base of all errors a user can cause and mend."""

    exit_code = 2


class InputError(NewcomerError):
    """A file (and, where one is to blame, a line of it) that cannot be read."""

    def __init__(self, path: Path | str, problem: str, line: int | None = None, hint: str = "") -> None:
        self.path, self.line, self.problem, self.hint = str(path), line, problem, hint
        place = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {problem}" + (f"; {hint}" if hint else ""))


class DatasetError(NewcomerError):
    """A data set that was read, but cannot be used as asked."""


class OptionError(NewcomerError):
    """A value that an option or an argument does not take."""


class OutputError(NewcomerError):
    """A place that cannot be written."""


class DownloadError(NewcomerError):
    """A published file that could not be fetched whole."""


class StoreError(NewcomerError):
    """A store of newcomers that cannot be opened, or cannot do as asked."""


class EndpointError(NewcomerError):
    """A SPARQL endpoint that cannot be reached, or does not do as asked."""


class MissingExtraError(NewcomerError):
    """A feature whose optional package is not installed."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f"{feature} needs the package {package!r}; install it with: pip install 'newcomer[{extra}]'")


def optional(package: str, feature: str, extra: str) -> Any:
    """A package that only a feature needs, or the error that says which extra to install."""
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(feature, package, extra) from None


def shown(value: object, limit: int = 80) -> str:
    """A value as it stands in a message: quoted, on one line, never longer than a line."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 4] + "..." + text[-1]


def one_line(error: object) -> str:
    """What another library says of a problem, on one line of a bearable length."""
    return " ".join(str(error).split())[:160]


def on_one_line(text: str) -> str:
    """A text with its line ends and all else that does not print escaped, as `repr` has them.

    >>> on_one_line("a\\nb.tsv: does not exist")
    'a\\\\nb.tsv: does not exist'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> OptionError:
    """The error for a name that is not in a table, with the nearest one that is.

    >>> print(unknown_name("decoder", "dismult", ["distmult", "transe", "complex"]))
    unknown decoder 'dismult'; did you mean 'distmult'? known: complex, distmult, transe
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    guess = f"; did you mean {near[0]!r}?" if near else ";"
    return OptionError(f"unknown {kind} {shown(name)}{guess} known: {', '.join(names)}")


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not in a table."""
    if name not in known:
        raise unknown_name(kind, name, known)
