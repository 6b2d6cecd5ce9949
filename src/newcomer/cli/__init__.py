"""The command line: one function a verb. Everything heavy is imported inside the verbs, so that help is instant."""

from newcomer.cli.app import main

__all__ = ["main"]
