"""How settings are changed, written and read: on the command line, in TOML files, as presets."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import Field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

from newcomer.config.fields import AUTO, NOTHING, TYPES, Maybe, Settings, limits_in_words, plain_fields
from newcomer.config.settings import SECTIONS, Config, field_and_type, merged, nested_settings
from newcomer.errors import InputError, OptionError, check_name, shown


def with_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """The settings with changes such as ``training.lr=0.001``; of two changes to one setting the last counts."""
    return merged(config, nested_settings(dict(map(_override, overrides))))


def _override(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise OptionError(f"{shown(text)} is no change of a setting; write NAME=VALUE, such as training.lr=0.001")
    return name, _parsed(value, field_and_type(name)[1])


_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _parsed(text: str, kind: Any) -> Any:
    """A text as a field's type; a text that is none stays as it is, for `accepted` to complain about."""
    if kind in (bool, Maybe):
        return (_TRUTH | {AUTO: AUTO}).get(text.lower(), text)
    if kind == tuple[str, ...]:
        words = (word.strip().strip("'\"") for word in text.removeprefix("[").removesuffix("]").split(","))
        return tuple(word for word in words if word)
    if kind is str:
        return text
    if text.lower() == NOTHING:
        return NOTHING
    try:
        return float(text) if kind is float else int(text)
    except ValueError:
        return text


def config_hash(config: Config) -> str:
    """A SHA-256 that two runs share when all of their settings are the same."""
    text = json.dumps(config.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def to_toml(config: Config) -> str:
    """All settings with their documentation, as TOML."""
    parts = ["# Settings of newcomer.\n" + "\n".join(_documented(config))]
    for name in SECTIONS:
        section = getattr(config, name)
        parts.append(f"# {type(section).__doc__}\n[{name}]\n" + "\n".join(_documented(section)))
    return "\n\n".join(parts) + "\n"


def _documented(settings: Settings) -> list[str]:
    lines, types = [], get_type_hints(type(settings))
    for one in plain_fields(type(settings)):
        allowed, value = _allowed(one, types[one.name]), getattr(settings, one.name)
        # As JSON writes it: no setting holds a character that TOML's strings escape otherwise.
        written = json.dumps(NOTHING if value is None else value)
        lines += [f"# {one.metadata['about']} ({allowed})", f"{one.name} = {written}"]
    return lines


def _allowed(one: Field[Any], kind: Any) -> str:
    """What a field takes, in words."""
    if one.metadata["choices"] is not None:
        return ", ".join(one.metadata["choices"])
    limits = limits_in_words(one.metadata["limits"])
    words = TYPES[kind][0]
    return f"{words}, {limits}" if limits else words


def read_config(path: Path) -> Config:
    """The settings of a TOML file; what it does not state is as in the preset that it names, or as in ``default``."""
    with reading_toml(path):
        stated = tomllib.loads(path.read_bytes().decode("utf-8"))
        return merged(load_preset(stated.get("preset", "default")), stated)


@contextmanager
def reading_toml(path: Path) -> Iterator[None]:
    """A block that reads a TOML file: whatever is wrong with that is an error that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})", hint="check the path") from None
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not TOML ({' '.join(str(error).split())})", hint="mend the line") from None
    except OptionError as error:
        raise InputError(path, str(error)) from None


def shipped(folder: str) -> tuple[str, ...]:
    """The names of the TOML files in a folder of the package."""
    found = (file.name for file in files("newcomer").joinpath(folder).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def preset_names() -> tuple[str, ...]:
    """The presets that ship with the package."""
    return shipped("presets")


def load_preset(name: str) -> Config:
    """The settings of this name; a wrong name is answered with the nearest right one."""
    check_name("preset", str(name), preset_names())
    text = files("newcomer").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")
    return merged(Config(preset=name), tomllib.loads(text))


# The rows of the paper's ablation table: each adds one component to the one before.
ABLATION_ROWS: dict[str, dict[str, Any]] = {
    "structure": {"labels": "none", "paths": False, "query_aware": False},
    "hard": {"labels": "hard", "paths": False, "query_aware": False},
    "logic": {"labels": "soft", "paths": False, "query_aware": False},
    "logic-and-paths": {"labels": "soft", "paths": True, "query_aware": False},
    "full": {"labels": "soft", "paths": True, "query_aware": True},
}


def ablation(config: Config, row: str) -> Config:
    """The settings of one row of the paper's table "Effectiveness of Each Component", all else as in ``config``."""
    check_name("row of the ablation", row, ABLATION_ROWS)
    parts = ABLATION_ROWS[row]
    model = replace(config.model, encoder="vn", labels=parts["labels"], query_aware=parts["query_aware"])
    return replace(config, model=model, rules=replace(config.rules, paths=parts["paths"]))
