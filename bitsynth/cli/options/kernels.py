"""Options that say which kernel, of what widths, and how it is solved and proved."""

from __future__ import annotations

from typing import Annotated

import typer

from bitsynth.spec.matmul import Encoding
from bitsynth.spec.options import METHODS, SKETCHES

ENCODINGS = ", ".join(e.value for e in Encoding)
"""The names of encodings, as help lists them."""

KernelArgument = Annotated[
    str, typer.Argument(help="A kernel's name, as `bitsynth list` prints it.", show_default=False)
]
Verified = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FOLDER",
        help="A kernel's name, as `bitsynth list` prints it, or a folder of a compiled network.",
        show_default=False,
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(
        "--variant", metavar="NAME", help="Of kernels with that name the one `list` says this of, such as paper-length."
    ),
]
Variants = Annotated[
    str,
    typer.Option("--variant", metavar="NAME", help="Of this variant, such as a53, lookup-c64 or paper-length."),
]
All = Annotated[bool, typer.Option("--all", help="Every kernel, a line each, on a terminal too.")]
ActBits = Annotated[int, typer.Option("--act-bits", metavar="N", help="Bits of an activation, 1 to 8.")]
WBits = Annotated[int, typer.Option("--w-bits", metavar="N", help="Bits of a weight, 1 to 8.")]
ManyActBits = Annotated[
    str, typer.Option("--act-bits", metavar="BITS", help="Bits of activations, such as 1-4 or 1,2.")
]
ManyWBits = Annotated[str, typer.Option("--w-bits", metavar="BITS", help="Bits of weights, such as 1-4 or 1,2.")]
ActEncoding = Annotated[
    Encoding, typer.Option("--act-encoding", metavar="ENCODING", help=f"What activation codes stand for: {ENCODINGS}.")
]
WeightEncoding = Annotated[
    Encoding, typer.Option("--weight-encoding", metavar="ENCODING", help=f"What weight codes stand for: {ENCODINGS}.")
]
ManyWeightEncodings = Annotated[
    str,
    typer.Option("--weight-encoding", metavar="ENCODINGS", help="What weights stand for, such as bipolar,signed."),
]
Method = Annotated[str | None, typer.Option("--method", metavar="METHOD", help=f"Only by one of {', '.join(METHODS)}.")]
Sketch = Annotated[
    str, typer.Option("--sketch", metavar="SKETCH", help=f"What programs may look like: {' or '.join(SKETCHES)}.")
]
CostModel = Annotated[
    str, typer.Option("--cost", metavar="MODEL", help="What to minimize: ops or length.", show_default="ops")
]
Channels = Annotated[
    int,
    typer.Option(
        "--channels",
        metavar="N",
        min=0,
        help="For layers of so many output channels: activations in rows.",
        show_default=False,
    ),
]
KStep = Annotated[
    int,
    typer.Option(
        "--k-step",
        metavar="N",
        min=0,
        help="Of popcount kernels: so many positions of K a step, such as 128 for as many input channels.",
        show_default=False,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Solve anew, even if the kernel is cached.")]
Solve = Annotated[bool, typer.Option("--solve", help="Find, prove and cache a kernel if none is cached.")]
Rlimit = Annotated[
    int | None,
    typer.Option("--rlimit", metavar="N", min=1, help="Budget of the solver, in its own units.", show_default=False),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes to plan in.", show_default="one a core")
]
Check = Annotated[bool, typer.Option("--check", help="Check every certificate again, not the digest alone.")]
NoZ3 = Annotated[bool, typer.Option("--no-z3", help="Leave what takes the solver to the stored certificate.")]
NoMinimality = Annotated[bool, typer.Option("--no-minimality", help="Do not solve the sketch again.")]
