"""A file that names entities, one a line."""

from pathlib import Path

from newcomer.errors import InputError, shown
from newcomer.files import read_lines
from newcomer.graph import UNKNOWN, Ids, Vocabulary


def read_names(path: Path, entities: Vocabulary) -> Ids:
    """The ids of the entities a file names; blank lines are passed over, an unknown name is an error."""
    lines = read_lines(path)
    # A name may begin or end with blanks; where none such is known, blanks around it do not count.
    named = [(n, line if line in entities else line.strip()) for n, line in enumerate(lines, start=1) if line.strip()]
    ids = entities.ids([name for _, name in named])
    for (number, name), identifier in zip(named, ids, strict=True):
        if identifier == UNKNOWN:
            raise InputError(path, f"{shown(name)} is no entity of the graph", number, "check its spelling")
    if not named:
        raise InputError(path, "names nobody", hint="give one name a line")
    return ids
