"""Arguments and options several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON, on stdout.")]
Name = Annotated[str, typer.Argument(help="A kernel's name, as `bitsynth list` prints it.", show_default=False)]
IsaName = Annotated[str, typer.Argument(help="An instruction set.", show_default=False)]
