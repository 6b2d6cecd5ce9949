"""What a setting is: a field with its documentation and what it may be, checked as soon as a value is given."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, ClassVar, Literal, get_type_hints

from newcomer.errors import OptionError, shown, unknown_name

INT_MAX = 2**63 - 1  # what TOML promises to hold
NOTHING = "none"
AUTO = "auto"
LIMITS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
Maybe = bool | Literal["auto"]  # yes, no, or as the machine allows


def setting(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
) -> Any:
    """A field with its documentation and what it may be: one of ``choices``, or a number within the limits."""
    stated = {words: limit for words, limit in zip(LIMITS, (low, above, high, below), strict=True) if limit is not None}
    return field(default=default, metadata={"about": about, "choices": choices, "limits": stated})


class Settings:
    """What the four dataclasses share: every field is converted and checked when one is made."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for one in plain_fields(type(self)):
            name = f"{self.section}.{one.name}" if self.section else one.name
            value = converted(name, getattr(self, one.name), types[one.name])
            check(name, value, one)
            object.__setattr__(self, one.name, value)


def plain_fields(kind: type) -> tuple[Field[Any], ...]:
    """The fields that hold a value, not a section."""
    return tuple(one for one in fields(kind) if one.default_factory is MISSING)


def plain_values(settings: Settings) -> dict[str, Any]:
    """The fields' values, as JSON can hold them."""
    values = {one.name: getattr(settings, one.name) for one in plain_fields(type(settings))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int)


# Of each type of field: what a value must be in words, and whether a value is that.
TYPES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    Maybe: (f"true, false or {AUTO}", lambda value: isinstance(value, bool) or value == AUTO),
    int: ("a whole number", _is_whole),
    float: ("a number", _is_number),
    str: ("a word", lambda value: isinstance(value, str)),
    int | None: ("a whole number or none", lambda value: value is None or value == NOTHING or _is_whole(value)),
    tuple[str, ...]: (
        "a list of words",
        lambda value: isinstance(value, list | tuple) and all(isinstance(word, str) for word in value),
    ),
}


def converted(name: str, value: Any, kind: Any) -> Any:
    """The value as its field's type: a list as a tuple, a whole number as a number; all else must fit as it is."""
    words, fits = TYPES[kind]
    if not fits(value):
        raise OptionError(f"{name} is {shown(value)}, but must be {words}")
    if kind is float:
        return _finite(name, value)
    if kind == int | None and value == NOTHING:
        return None
    return tuple(value) if isinstance(value, list) else value


def _finite(name: str, value: float) -> float:
    try:
        number = float(value) + 0.0  # the sum makes -0.0 the same setting as 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"{name} is {shown(value)}, but must be a finite number")
    return number


def check(name: str, value: Any, one: Field[Any]) -> None:
    """Whether the value is among its choices and within its limits."""
    choices = one.metadata["choices"]
    if choices is not None:
        words = value if isinstance(value, tuple) else (value,)
        for word in words:
            if word not in choices:
                raise unknown_name(name, word, choices)
        if len(set(words)) < len(words):
            raise OptionError(f"{name} is {shown(list(words))}, but must name each once")
    elif _is_number(value):
        limits = one.metadata["limits"]
        if not all(LIMITS[words](value, limit) for words, limit in limits.items()):
            raise OptionError(f"{name} is {shown(value)}, but must be {limits_in_words(limits)}")
        if isinstance(value, int) and value > INT_MAX:
            raise OptionError(f"{name} is {shown(value)}, but must be at most {INT_MAX}")


def limits_in_words(limits: Mapping[str, float]) -> str:
    """The limits of a number, as a sentence goes on with them."""
    return " and ".join(f"{words} {limit:g}" for words, limit in limits.items())
