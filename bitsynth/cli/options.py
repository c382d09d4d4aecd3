"""Arguments and options several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitsynth.errors import SpecError
from bitsynth.kernel.names import KernelName
from bitsynth.store import kernels

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON, on stdout.")]
Name = Annotated[str, typer.Argument(help="A kernel's name, as `bitsynth list` prints it.", show_default=False)]
IsaName = Annotated[str, typer.Argument(help="An instruction set.", show_default=False)]
Rlimit = Annotated[
    int | None, typer.Option("--rlimit", min=1, help="Budget of the solver, in its own units.", show_default=False)
]
Variant = Annotated[
    str | None,
    typer.Option("--variant", help="Of kernels with that name the one `list` says this of, such as paper-length."),
]


def locate(name: str, variant: str | None) -> Path:
    """The cached file of the kernel called `name`; SpecError where there is none."""
    path = kernels.named(name)
    if variant is None:
        return path
    isa = KernelName.parse(name).spec.isa
    found = (p for p in kernels.every() if p.name == path.name and p.parts[-3:-1] == (isa, variant))
    if (chosen := next(found, None)) is None:
        raise SpecError(f"no kernel {name} of variant {variant!r} in the cache; `bitsynth list` shows what there is")
    return chosen
