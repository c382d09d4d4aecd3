"""Prints the reference page of the command line: every command with its arguments and options, as typer writes them.

It is a program of its own, as the environment of the process says how rich writes text.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.cli import get_docs_for_click
from typer.core import MARKUP_MODE_KEY

from bitsynth.cli.app import app, group


def load(command: Any) -> Any:
    """Return a command with its options; in a group load the commands, too."""
    loaded = getattr(command, "loaded", command)
    for name, member in getattr(loaded, "commands", {}).items():
        loaded.commands[name] = load(member)
    return loaded


root = load(group())
context = typer.Context(root, info_name="bitsynth", obj={MARKUP_MODE_KEY: app.rich_markup_mode})
print(get_docs_for_click(obj=root, ctx=context, name="bitsynth", title="Command line").strip())
