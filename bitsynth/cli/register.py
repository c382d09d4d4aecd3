"""Registration of functions as commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

import typer

_Command = TypeVar("_Command", bound=Callable[..., None])


def command(app: typer.Typer, name: str) -> Callable[[_Command], _Command]:
    """A decorator: the function is the command `name` of `app`, its docstring the help text, wrapped anew.

    Typer keeps the line ends of every paragraph but the first.
    """

    def register(function: _Command) -> _Command:
        paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        app.command(name, help="\n\n".join(" ".join(p.split()) for p in paragraphs))(function)
        return function

    return register
