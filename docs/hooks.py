"""What mkdocs is told at build: the generated pages of the reference, and the pages that lie beside the README."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import command_reference  # noqa: E402

BESIDE_THE_README = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in ``docs/``, and name the commands in the navigation."""
    generated = command_reference.pages()
    beside = {page: site_links((ROOT / source).read_text("utf-8")) for page, source in BESIDE_THE_README.items()}
    for path, text in (generated | beside).items():
        files.append(File.generated(config, path, content=text))
    commands = [path for path in generated if path.startswith("reference/commands/")]
    config.nav = with_commands(config.nav, commands)
    return files


def site_links(text: str) -> str:
    """A page of the repository as a page of the site: links into ``docs/`` and to its neighbours."""
    for page, source in BESIDE_THE_README.items():
        text = text.replace(f"]({source})", f"]({page})")
    return re.sub(r"\]\(docs/", "](", text)


def with_commands(nav: Any, commands: list[str]) -> Any:
    """The navigation with a page a command where it names the list of commands."""
    if isinstance(nav, list):
        return [with_commands(one, commands) for one in nav]
    if isinstance(nav, dict):
        return {title: with_commands(one, commands) for title, one in nav.items()}
    return commands if nav == command_reference.COMMANDS else nav
