"""The generated pages of the reference: one page a command, and all settings with their presets.

``pages()`` maps paths below ``docs/`` to Markdown. `docs/hooks.py` hands them to mkdocs at build; nothing is committed.
``command_reference.py FOLDER`` writes them into a folder, to look at.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from newcomer.cli.app import app
from newcomer.config import Config, load_preset, preset_names, to_toml

COMMANDS = "reference/commands/index.md"
SETTINGS = "reference/settings.md"
MADE = "*Generated from the code.*"
SETTING = re.compile(r"^# (?P<about>.*) \((?P<allowed>[^()]*)\)\n(?P<name>\w+) = (?P<value>.*)$", re.MULTILINE)
SECTION = re.compile(r"^# (?P<about>.*)\n\[(?P<name>\w+)\]$", re.MULTILINE)


def pages() -> dict[str, str]:
    """All generated pages by their path below ``docs/``."""
    verbs = dict(commands())
    written = {page_of(name): command_page(name, verb) for name, verb in verbs.items()}
    return {COMMANDS: index_page(verbs), SETTINGS: settings_page(), **written}


def page_of(command: str) -> str:
    """The path of a command's page."""
    return f"reference/commands/{command.replace(' ', '-')}.md"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it, as ``rules top``, in the order of the help."""
    yield from _below("", typer.main.get_command(app))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    else:
        for name, one in inner.items():
            yield from _below(f"{words} {name}".strip(), one)


def index_page(verbs: dict[str, Any]) -> str:
    """The list of all commands."""
    rows = [f"| [`newcomer {name}`]({Path(page_of(name)).name}) | {cell(verb.help)} |" for name, verb in verbs.items()]
    return "\n".join(["# Commands", "", MADE, "", "| command | what it does |", "|---|---|", *rows, ""])


def command_page(name: str, command: Any) -> str:
    """One command: what it does, its arguments and its options."""
    context = command.context_class(command, info_name=f"newcomer {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [f"# newcomer {name}", "", MADE, "", command.help or "", "", f"```\n{usage}\n```", ""]
    for kind, title in (("argument", "Arguments"), ("option", "Options")):
        records = [
            one.get_help_record(context)
            for one in command.params
            if one.param_type_name == kind and not getattr(one, "hidden", False)
        ]
        if records:
            rows = [f"| `{left}` | {cell(right)} |" for left, right in filter(None, records)]
            lines += [f"## {title}", "", "| name | what it is |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def settings_page() -> str:
    """All settings with their defaults, and what each preset changes."""
    usual = settings_of(load_preset("default"))
    lines = ["# Settings and presets", "", MADE, "", INTRODUCTION, ""]
    for section, about in {"": "", **sections()}.items():
        lines += [f"## {section or 'The run'}", "", *([about, ""] if about else []), HEAD, RULE]
        for name, one in usual.items():
            if name.rpartition(".")[0] == section:
                cells = [f"`{name}`", f"`{one['value']}`", cell(one["about"]), cell(one["allowed"])]
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    lines += ["## Presets", "", "What each preset changes in `default`.", ""]
    for preset in preset_names():
        values = {name: one["value"] for name, one in settings_of(load_preset(preset)).items() if name != "preset"}
        changed = [f"{name} = {value}" for name, value in values.items() if value != usual[name]["value"]]
        lines += [f"### {preset}", "", "```toml", *(changed or ["# nothing"]), "```", ""]
    return "\n".join(lines)


INTRODUCTION = """\
A setting is named `section.field`. It comes from a preset (`--preset`) or a TOML file (`--config`), then
from `--decoder`, `--protocol` and `--seed`, then from `--set NAME=VALUE`; the last one counts. The `config.toml` of
every model states all settings with this documentation."""
HEAD = "| setting | preset `default` | what it does | may be |"
RULE = "|---|---|---|---|"


def settings_of(config: Config) -> dict[str, dict[str, str]]:
    """Each setting by its name with its documentation and its value, read from the TOML that a model is stored with."""
    found: dict[str, dict[str, str]] = {}
    text = to_toml(config)
    starts = [(0, "")] + [(one.start(), one["name"]) for one in SECTION.finditer(text)]
    for one in SETTING.finditer(text):
        section = [name for start, name in starts if start <= one.start()][-1]
        found[f"{section}.{one['name']}" if section else one["name"]] = one.groupdict()
    return found


def sections() -> dict[str, str]:
    """The sections of the settings with what each is about."""
    return {one["name"]: one["about"] for one in SECTION.finditer(to_toml(load_preset("default")))}


def cell(text: str | None) -> str:
    """A text as a cell of a table."""
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write the pages into the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: command_reference.py FOLDER")
    for name, text in pages().items():
        path = Path(sys.argv[1], name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
