"""A file that names entities, one a line."""

from pathlib import Path

from newcomer.errors import InputError, shown
from newcomer.files import looking_at, open_bytes
from newcomer.graph import UNKNOWN, Ids, Vocabulary


def read_names(path: Path, entities: Vocabulary) -> Ids:
    """The ids of the entities a file names; blank lines are passed over, an unknown name is an error."""
    with looking_at(path):
        if not path.is_file():
            raise InputError(path, "is not a file", hint="give a file with one name a line")
    with open_bytes(path) as stream:
        lines = _lines(_decoded(path, bytes(stream.read())))
    # A name may begin or end with blanks; where none such is known, blanks around it do not count.
    named = [(n, line if line in entities else line.strip()) for n, line in enumerate(lines, start=1) if line.strip()]
    ids = entities.ids([name for _, name in named])
    for (number, name), identifier in zip(named, ids, strict=True):
        if identifier == UNKNOWN:
            raise InputError(path, f"{shown(name)} is no entity of the graph", number, "check its spelling")
    if not named:
        raise InputError(path, "names nobody", hint="give one name a line")
    return ids


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(path, "is not UTF-8", content[: error.start].count(b"\n") + 1, "save it as UTF-8") from None
