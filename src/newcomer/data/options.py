"""How a caller wants files to be read, and what columns may be called."""

from collections.abc import Sequence
from dataclasses import dataclass

from newcomer.errors import OptionError, check_name, shown

HEAD_NAMES = frozenset({"head", "subject", "source", "from", "src", "h", "s", "subj", "head_entity"})
RELATION_NAMES = frozenset({"relation", "predicate", "property", "rel", "pred", "edge", "r", "p", "relation_type"})
TAIL_NAMES = frozenset({"tail", "object", "target", "to", "dst", "t", "o", "obj", "tail_entity"})
LABEL_NAMES = frozenset({"label", "truth", "y"})
# How a file may say that a triple is true or false, in lower case.
LABEL_VALUES = {"1": 1, "+1": 1, "1.0": 1, "true": 1, "-1": 0, "0": 0, "-1.0": 0, "0.0": 0, "false": 0}
COLUMN_ROLES = {"head": HEAD_NAMES, "relation": RELATION_NAMES, "tail": TAIL_NAMES, "label": LABEL_NAMES}

IGNORED = "_"
DEFAULT_COLUMNS = ("head", "relation", "tail")
LABELLED_COLUMNS = (*DEFAULT_COLUMNS, "label")
BAD_LINE_CHOICES = ("error", "skip")
LITERAL_CHOICES = ("skip", "keep")
_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclass(frozen=True)
class ReadOptions:
    """What is known of a file beforehand; `None` means: find out.

    ``columns`` names the columns by position (``head``, ``relation``, ``tail``, ``label``, ``_`` for one to ignore);
    ``quote`` is the character that encloses names, or `None` where quotes are plain characters.
    """

    delimiter: str | None = None
    header: bool | None = None
    quote: str | None = '"'
    columns: tuple[str, ...] | None = None
    on_bad_line: str = "error"
    literals: str = "skip"

    def __post_init__(self) -> None:
        check_name("way to treat a bad line", self.on_bad_line, BAD_LINE_CHOICES)
        check_name("way to treat literals", self.literals, LITERAL_CHOICES)
        if self.delimiter is not None and (not _one_character(self.delimiter) or self.delimiter == '"'):
            raise OptionError(f"delimiter {shown(self.delimiter)} is not one plain character, such as a tab or a comma")
        if self.quote is not None and (not _one_character(self.quote) or self.quote in ("\t", " ", self.delimiter)):
            raise OptionError(f"quote {shown(self.quote)} is not one character of its own; use '\"' or none")
        if self.columns is not None:
            _check_columns(self.columns)

    @property
    def skips(self) -> bool:
        return self.on_bad_line == "skip"


def _one_character(text: str) -> bool:
    """Whether a file in UTF-8 can hold this character inside a line."""
    return len(text) == 1 and text not in "\r\n\0" and not "\ud800" <= text <= "\udfff"


def _check_columns(columns: Sequence[str]) -> None:
    for name in columns:
        check_name("column", name, [*COLUMN_ROLES, IGNORED])
    for role in DEFAULT_COLUMNS:
        if columns.count(role) != 1:
            raise OptionError(f"--columns {','.join(columns)} must name {role!r} once, as in head,relation,tail")
    if columns.count("label") > 1:
        raise OptionError(f"--columns {','.join(columns)} names 'label' more than once")


def parse_delimiter(text: str) -> str:
    """A delimiter as a person types it: a character, or tab, comma, semicolon, pipe, space."""
    return _DELIMITER_WORDS.get(text.lower(), text)


def label_of(text: str) -> int | None:
    """1 (true) or 0 (false), or `None` where the text says neither."""
    return LABEL_VALUES.get(text.strip().lower())


def columns_from_header(names: Sequence[str]) -> tuple[str, ...] | None:
    """The role of each column by its title, or `None` where the titles do not name head, relation and tail."""
    roles = [next((r for r, known in COLUMN_ROLES.items() if n.strip().lower() in known), IGNORED) for n in names]
    once = all(roles.count(role) == 1 for role in DEFAULT_COLUMNS) and roles.count("label") <= 1
    return tuple(roles) if once else None
