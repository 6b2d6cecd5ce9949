"""The space of a search: which settings it tries, and which values.

    [model.dim]                  a setting, by its name
    choices = [64, 100, 200]     one of these

    [training.lr]
    low = 0.001                  or a number between these, both included;
    high = 0.1                   `step = 0.01` tries only every so many,
    log = true                   `log = true` as many below 0.01 as above

Files of this form are in ``newcomer/spaces``. A space is checked whole before anything is tried.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

from newcomer.config import SECTIONS, Config, check_setting, setting_names
from newcomer.config.reading import reading_toml, shipped
from newcomer.config.settings import merged, nested_settings
from newcomer.errors import OptionError, shown, unknown_name

PARTS = ("choices", "low", "high", "step", "log")
# Trials with other values of these would be validated on other queries, or would not be comparable.
FIXED = (
    "preset",
    "protocol",
    "seed",
    "training.validation_rate",
    "training.validation_unseen",
    "training.validation_queries",
    "training.final_fit",
)
WHOLE = (int, int | None)


@dataclass(frozen=True)
class Dimension:
    """A setting and its values: choices, or a range of whole or of any numbers."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    whole: bool = False

    def suggest(self, trial: Any) -> Any:
        """The value that a trial of Optuna takes."""
        if self.choices:
            word = trial.suggest_categorical(self.name, [_as_word(value) for value in self.choices])
            return next(value for value in self.choices if _as_word(value) == word)
        if self.whole:
            return trial.suggest_int(self.name, self.low, self.high, step=self.step or 1, log=self.log)
        number = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        return number if self.step is None else _plain(number)

    def size(self) -> int | None:
        """How many values there are; `None` where there are infinitely many."""
        if self.choices:
            return len(self.choices)
        step = self._grid_step()
        return None if step is None else _steps(self.low, self.high, step) + 1

    def values(self) -> list[Any]:
        """All values, as Optuna names them, of a dimension that has a size."""
        if self.choices:
            return [_as_word(value) for value in self.choices]
        step = self._grid_step() or 0
        numbers = (self.low + place * step for place in range(self.size() or 0))
        return list(numbers) if self.whole else [_plain(number) for number in numbers]

    def _grid_step(self) -> float | None:
        return self.step or (1 if self.whole and not self.log else None)


@dataclass(frozen=True)
class Space:
    """What may be tried, in the order of its file."""

    name: str
    dimensions: tuple[Dimension, ...]
    stated: Mapping[str, Mapping[str, Any]] = field(compare=False)  # as the file has it, by name of setting

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.dimensions)

    def grid_size(self) -> int | None:
        """How many settings there are; `None` where there are infinitely many."""
        sizes = [one.size() for one in self.dimensions]
        return None if None in sizes else math.prod(size or 0 for size in sizes)

    def grid(self) -> Iterator[dict[str, Any]]:
        """All of them, of a space that has a size."""
        for values in product(*(one.values() for one in self.dimensions)):
            yield dict(zip(self.names, values, strict=True))

    def suggest(self, trial: Any) -> dict[str, Any]:
        """The settings that a trial of Optuna takes."""
        return {one.name: one.suggest(trial) for one in self.dimensions}


def _as_word(value: Any) -> Any:
    """A value that Optuna's storage takes: a list becomes a word."""
    return ",".join(value) or "none" if isinstance(value, list) else value


def _plain(number: float) -> float:
    """The number that was meant: 0.15 for 0.1 + 0.05, which is 0.15000000000000002."""
    return float(f"{number:.12g}")


def _steps(low: float, high: float, step: float) -> int:
    return round((high - low) / step)


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The settings of ``config`` but for these, by name."""
    return merged(config, nested_settings(settings))


def space_names() -> tuple[str, ...]:
    """The spaces that ship with the package."""
    return shipped("spaces")


def load_space(name: str) -> Space:
    """A space by name, or by the path of its TOML file."""
    path, is_shipped = Path(name), name in space_names()
    if not is_shipped and path.suffix != ".toml" and path.name == name:
        raise OptionError(f"{unknown_name('space', name, space_names())}, or a file that ends in .toml")
    path = Path(f"{name}.toml") if is_shipped else path
    with reading_toml(path):
        source = files("newcomer").joinpath("spaces", path.name) if is_shipped else path
        return space_of(path.stem, tomllib.loads(source.read_bytes().decode("utf-8")))


def space_of(name: str, stated: Mapping[str, Any]) -> Space:
    """A space out of what a file states; every name and every value is one that the settings take."""
    entries: dict[str, Any] = {}
    for first, inside in stated.items():
        if first in SECTIONS and isinstance(inside, Mapping):
            entries |= {f"{first}.{bare}": entry for bare, entry in inside.items()}
        else:
            entries[first] = inside
    if not entries:
        raise OptionError("names no setting to search; write for example [model.dim] and below it choices = [100, 200]")
    return Space(name, tuple(_dimension(setting, entry) for setting, entry in entries.items()), entries)


def _dimension(name: str, entry: Any) -> Dimension:
    if name not in setting_names():
        Config.from_dict(nested_settings({name: entry}))  # names the nearest setting
    if name in FIXED:
        raise OptionError(f"{name} cannot be searched: trials would no longer be comparable; leave it out")
    if not isinstance(entry, Mapping):
        raise OptionError(f"{name} is {shown(entry)}, but must be a table with choices, or with low and high")
    for part in entry:
        if part not in PARTS:
            raise unknown_name(f"part of {name}", part, PARTS)
    if "choices" in entry:
        return _choices(name, entry)
    if "low" not in entry or "high" not in entry:
        raise OptionError(f"{name} has {shown(sorted(entry))}, but must have choices, or low and high")
    return _range(name, entry)


def _choices(name: str, entry: Mapping[str, Any]) -> Dimension:
    choices = entry["choices"]
    if len(entry) > 1:
        raise OptionError(
            f"{name} has choices and {shown(sorted({*entry} - {'choices'}))}; leave out the one or the other"
        )
    if not isinstance(choices, list) or not choices:
        raise OptionError(f"{name}.choices is {shown(choices)}, but must be a list with at least one value")
    for value in choices:
        check_setting(name, value)
    words = [_as_word(value) for value in choices]
    if len(set(words)) < len(words):
        raise OptionError(f"{name}.choices is {shown(choices)}, but must name each value once")
    return Dimension(name, tuple(choices))


def _range(name: str, entry: Mapping[str, Any]) -> Dimension:
    section, _, bare = name.rpartition(".")
    kind = get_type_hints(SECTIONS.get(section, Config))[bare]
    if kind is not float and kind not in WHOLE:
        raise OptionError(f"{name} is no number, so low and high do not fit; write choices = [...]")
    low, high, step, log = entry["low"], entry["high"], entry.get("step"), entry.get("log", False)
    for part in ("low", "high"):
        check_setting(name, entry[part])
        _check_number(f"{name}.{part}", entry[part], whole=kind in WHOLE)
    if low >= high:
        raise OptionError(f"{name}.low is {low}, but must be below {name}.high ({high})")
    if not isinstance(log, bool):
        raise OptionError(f"{name}.log is {shown(log)}, but must be true or false")
    if log and low <= 0:
        raise OptionError(f"{name}.low is {low}, but must be above 0 where log is true")
    if step is not None:
        _check_step(name, entry, whole=kind in WHOLE)
    return Dimension(name, (), low, high, step, log, kind in WHOLE)


def _check_step(name: str, entry: Mapping[str, Any], whole: bool) -> None:
    low, high, step = entry["low"], entry["high"], entry["step"]
    _check_number(f"{name}.step", step, whole)
    if entry.get("log"):
        raise OptionError(f"{name} has step and log; leave out the one or the other")
    if step <= 0 or not math.isclose(low + _steps(low, high, step) * step, high, rel_tol=1e-9):
        raise OptionError(f"{name}.step is {step}, but must lead from {low} to {high} in whole steps")


def _check_number(what: str, value: Any, whole: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise OptionError(f"{what} is {shown(value)}, but must be a {'whole ' if whole else ''}number")
    if not math.isfinite(value):
        raise OptionError(f"{what} is {value}, but must be finite")
