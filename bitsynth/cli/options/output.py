"""Options for output: JSON, files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON, on stdout.")]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write every figure to FILE; - prints JSON, and only JSON, on stdout.",
        show_default=False,
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write one line for each figure to FILE.", show_default=False),
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page to FILE.", show_default=False)
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="PREFIX", help="Write PREFIX.png and PREFIX.svg.", show_default=False)
]
CSourceOption = Annotated[bool, typer.Option("--c", help="Print the C source instead.")]


def output_path(text: str) -> Path:
    """Return a path to write to; a usage error if it is empty, which would be this folder."""
    if not text:
        raise typer.BadParameter("it is empty: want a path, such as . for this folder")
    return Path(text)


Folder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", parser=output_path, help="The folder to write to.")
]
OptionalFolder = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="DIR",
        parser=output_path,
        help="The folder to write to.",
        show_default="the user's cache",
    ),
]
Version = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]
