"""What a setting is: a field with its documentation and what it may be, checked as soon as a value is given."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, ClassVar, Literal, get_type_hints

from newcomer.errors import OptionError, check_name, shown

INT_MAX = 2**63 - 1  # what TOML promises to hold
NOTHING = "none"
AUTO = "auto"
LIMITS = {  # of numbers: how a setting states them, how a sentence does, and what they ask for
    "low": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}
Maybe = bool | Literal["auto"]  # yes, no, or as the machine allows


def setting(default: Any, about: str, *, choices: tuple[str, ...] | None = None, **limits: float) -> Any:
    """A field with its documentation and what it may be: one of ``choices``, or a number within its `LIMITS`."""
    return field(default=default, metadata={"about": about, "choices": choices, "limits": limits})


class Settings:
    """What the four dataclasses share: every field is converted and checked when one is made."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for one in plain_fields(type(self)):
            name = f"{self.section}.{one.name}" if self.section else one.name
            object.__setattr__(self, one.name, accepted(name, getattr(self, one.name), one, types[one.name]))


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


def _finite(name: str, value: float) -> float:
    try:
        number = float(value) + 0.0  # the sum makes -0.0 the same setting as 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"{name} is {shown(value)}, but must be a finite number")
    return number


def accepted(name: str, value: Any, one: Field[Any], kind: Any) -> Any:
    """The value as its field's type, if it is among its choices and within its limits.

    A list becomes a tuple, and a whole number a number; all else must fit as it is.
    """
    words, fits = TYPES[kind]
    if not fits(value):
        raise OptionError(f"{name} is {shown(value)}, but must be {words}")
    if kind is float:
        value = _finite(name, value)
    elif kind == int | None and value == NOTHING:
        value = None
    elif isinstance(value, list):
        value = tuple(value)
    choices, limits = one.metadata["choices"], one.metadata["limits"]
    if choices is not None:
        chosen = value if isinstance(value, tuple) else (value,)
        for word in chosen:
            check_name(name, word, choices)
        if len(set(chosen)) < len(chosen):
            raise OptionError(f"{name} is {shown(list(chosen))}, but must name each once")
    elif _is_number(value):
        if not all(LIMITS[side][1](value, limit) for side, limit in limits.items()):
            raise OptionError(f"{name} is {shown(value)}, but must be {limits_in_words(limits)}")
        if isinstance(value, int) and value > INT_MAX:
            raise OptionError(f"{name} is {shown(value)}, but must be at most {INT_MAX}")
    return value


def limits_in_words(limits: Mapping[str, float]) -> str:
    """The limits of a number, as a sentence goes on with them."""
    return " and ".join(f"{LIMITS[side][0]} {limit:g}" for side, limit in limits.items())
