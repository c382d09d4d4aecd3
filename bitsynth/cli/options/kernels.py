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
    typer.Option("--variant", metavar="NAME", help="The variant, as `bitsynth list` shows it, such as paper-length."),
]
Variants = Annotated[
    str,
    typer.Option("--variant", metavar="NAME", help="Only this variant, such as a53, lookup-c64 or paper-length."),
]
All = Annotated[bool, typer.Option("--all", help="List every kernel, on a terminal too.")]
ActBits = Annotated[int, typer.Option("--act-bits", metavar="N", help="Bits of an activation, 1 to 8.")]
WBits = Annotated[int, typer.Option("--w-bits", metavar="N", help="Bits of a weight, 1 to 8.")]
ManyActBits = Annotated[
    str, typer.Option("--act-bits", metavar="BITS", help="Bits of activations, such as 1-4 or 1,2.")
]
ManyWBits = Annotated[str, typer.Option("--w-bits", metavar="BITS", help="Bits of weights, such as 1-4 or 1,2.")]
ActEncoding = Annotated[
    Encoding, typer.Option("--act-encoding", metavar="ENCODING", help=f"Encoding of activations: {ENCODINGS}.")
]
WeightEncoding = Annotated[
    Encoding, typer.Option("--weight-encoding", metavar="ENCODING", help=f"Encoding of weights: {ENCODINGS}.")
]
ManyWeightEncodings = Annotated[
    str,
    typer.Option("--weight-encoding", metavar="ENCODINGS", help="Encodings of weights, such as bipolar,signed."),
]
Method = Annotated[
    str | None, typer.Option("--method", metavar="METHOD", help=f"Only this method: {', '.join(METHODS)}.")
]
Sketch = Annotated[
    str, typer.Option("--sketch", metavar="SKETCH", help=f"The space of programs to search: {' or '.join(SKETCHES)}.")
]
CostModel = Annotated[
    str, typer.Option("--cost", metavar="MODEL", help="Cost to minimize: ops or length.", show_default="ops")
]
Channels = Annotated[
    int,
    typer.Option(
        "--channels",
        metavar="N",
        min=0,
        help="Output channels of the layers that the kernel is for.",
        show_default=False,
    ),
]
KStep = Annotated[
    int,
    typer.Option(
        "--k-step",
        metavar="N",
        min=0,
        help="Positions of K in a step of a popcount kernel, such as 128 for 128 input channels.",
        show_default=False,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Search again, even if the kernel is cached.")]
Solve = Annotated[bool, typer.Option("--solve", help="Find, prove and cache a kernel if none is cached.")]
Rlimit = Annotated[
    int | None,
    typer.Option("--rlimit", metavar="N", min=1, help="Budget of the solver, in its own units.", show_default=False),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", min=1, help="Processes that plan at the same time.", show_default="one a core"),
]
Check = Annotated[bool, typer.Option("--check", help="Check every certificate again, not only its digest.")]
NoZ3 = Annotated[
    bool, typer.Option("--no-z3", help="Do not run the solver; take its part from the stored certificate.")
]
NoMinimality = Annotated[bool, typer.Option("--no-minimality", help="Do not solve the claims of minimality again.")]
