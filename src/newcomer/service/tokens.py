"""Who may do what: tokens with a name and a role. A service keeps only their SHA-256.

A file of tokens has a line for each: its name, its role and the hexadecimal SHA-256, with spaces between them. Empty
lines and those that begin with ``#`` are left alone. Roles are *read* (ask), *write* (also change newcomers, record and
decide) and *operate* (also load the model anew).
"""

import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from newcomer.errors import InputError, OptionError, check_name, shown
from newcomer.files import read_text

ROLES = ("read", "write", "operate")
VARIABLE = "NEWCOMER_TOKENS"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
LONGEST = 1_000  # characters of a token that is looked at


@dataclass(frozen=True)
class Caller:
    """Who asks, and what it may do."""

    name: str
    role: str

    def may(self, role: str) -> bool:
        """Whether a role is one that it has."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Caller("local", "operate")  # anyone on this machine, where no tokens are asked for


class Tokens:
    """The callers by their tokens."""

    def __init__(self, callers: Iterable[tuple[bytes, Caller]]) -> None:
        self._callers = list(callers)

    def __len__(self) -> int:
        return len(self._callers)

    def caller(self, token: str) -> Caller | None:
        """Whose token it is; it takes as long whichever it is, and where it is no one's."""
        digest, found = _digest(token[:LONGEST]).encode(), None
        for known, caller in self._callers:
            if hmac.compare_digest(digest, known):
                found = caller
        return found


def fresh_token(name: str, role: str) -> tuple[str, str]:
    """A new token, and the line to keep of it."""
    if not NAME.fullmatch(name):
        hint = "give up to 64 letters, digits, '.', '_' and '-', of which the first is a letter or a digit"
        raise OptionError(f"{shown(name)} is no name of a token; {hint}")
    check_name("role", role, ROLES)
    token = f"nc_{secrets.token_urlsafe(32)}"
    return token, f"{name} {role} {_digest(token)}"


def read_tokens(path: str | None) -> Tokens | None:
    """The tokens of a file, else those of the variable NEWCOMER_TOKENS (lines, or parted by commas); None without."""
    if path is not None:
        return parsed(read_text(Path(path)).splitlines(), path)
    stated = os.environ.get(VARIABLE, "")
    return parsed(re.split("[\n,]", stated), VARIABLE) if stated.strip() else None


def parsed(lines: Iterable[str], place: str) -> Tokens:
    """The tokens that lines state."""
    callers: dict[str, tuple[bytes, Caller]] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        problem = _problem(words)
        if problem is None and words[0] in callers:
            problem = f"has the name {shown(words[0])} a second time"
        if problem is not None:
            raise InputError(place, problem, number, "write lines as `newcomer token NAME --role ROLE` prints them")
        callers[words[0]] = words[2].encode(), Caller(words[0], words[1])
    if not callers:
        raise InputError(place, "has no token", hint="make one with: newcomer token NAME --role ROLE")
    return Tokens(callers.values())


def _problem(words: list[str]) -> str | None:
    """What is wrong with a line; never with what may be a secret in it."""
    if len(words) != 3:
        return f"has {len(words)} words where a name, a role and a SHA-256 are expected"
    if not NAME.fullmatch(words[0]):
        return "has a name with other characters than letters, digits, '.', '_' and '-', or a longer one than 64"
    if words[1] not in ROLES:
        return f"has a role that is none of {', '.join(ROLES)}"
    return None if DIGEST.fullmatch(words[2]) else "has a third word that is no SHA-256 in lower case"


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
