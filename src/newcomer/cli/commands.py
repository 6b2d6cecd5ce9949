"""Groups of commands, and what every command refuses before it begins."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from newcomer.errors import OptionError


class OnceCommand(TyperCommand):
    """A command that refuses an option given twice, where only the last of its values would count."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, checked."""
        given = Counter(self.make_parser(ctx).parse_args(args=list(args))[2])
        for option, times in given.items():
            if times > 1 and option.param_type_name == "option" and not _may_be_repeated(option):
                name = "/".join([*option.opts, *option.secondary_opts])
                raise OptionError(f"{name} is given {times} times, but takes one value; leave out all but one")
        return super().parse_args(ctx, args)


def _may_be_repeated(option: Any) -> bool:
    """Whether nothing gets lost: it takes several values, or can be only on."""
    return bool(option.multiple or (option.is_flag and not option.secondary_opts))


class CommandGroup(typer.Typer):
    """Commands under one name."""

    def __init__(self, about: str, name: str | None = None) -> None:
        super().__init__(
            name=name,
            help=about,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        """What makes a function a command of the group."""
        return super().command(name, cls=OnceCommand, **more)
