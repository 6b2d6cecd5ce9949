"""Times and sizes as people type them: ``90s``, ``10m``, ``1.5h``; ``500M``, ``4G``."""

import math
import re

from newcomer.errors import OptionError, shown

NONE = "none"
AUTO = "auto"
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def seconds_of(text: str, option: str) -> float | None:
    """Seconds; None for ``none``."""
    return _amount(text, SECONDS, "(?:(?<=m)in)?", option, "90s, 10m, 2h or none")


def bytes_of(text: str, option: str) -> float | None:
    """Bytes; None for ``none``."""
    return _amount(text, BYTES, "(?:(?<=[kmgt])i?b)?", option, "500M, 4G or none")


def _amount(text: str, units: dict[str, float], rest: str, option: str, examples: str) -> float | None:
    if text.strip().lower() == NONE:
        return None
    found = re.fullmatch(rf"\s*([0-9]{{1,15}}(?:\.[0-9]{{1,15}})?)\s*([a-z]?){rest}\s*", text.lower())
    if found is not None and found[2] in units:
        amount = float(found[1]) * units[found[2]]
        if amount > 0 and math.isfinite(amount):
            return amount
    raise OptionError(f"{option} is {shown(text)}, but must be like {examples}")
