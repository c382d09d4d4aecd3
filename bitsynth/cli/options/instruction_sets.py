"""Options that name instruction sets, their forms and their processors."""

from __future__ import annotations

from typing import Annotated

import typer

SetArgument = Annotated[str, typer.Argument(metavar="SET", help="An instruction set.", show_default=False)]
SetOrMnemonic = Annotated[
    str,
    typer.Argument(metavar="SET|MNEMONIC", help="An instruction set, or an assembler mnemonic.", show_default=False),
]
InstructionArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Only this instruction or form of the set.", show_default=False)
]
IsaOption = Annotated[
    str, typer.Option("--isa", metavar="SET", help="Instruction set; `bitsynth isa list` shows them.")
]
IsaOrAuto = Annotated[
    str, typer.Option("--isa", metavar="SET", help="Instruction set; auto is the best that this processor runs.")
]
Isas = Annotated[str, typer.Option("--isa", metavar="SETS", help="Only these instruction sets, such as avx2,neon.")]
Cpu = Annotated[
    str,
    typer.Option(
        "--cpu",
        metavar="NAME",
        help="Minimize cycles of this processor, with the instructions it has.",
        show_default=False,
    ),
]
ForCpus = Annotated[
    str,
    typer.Option(
        "--cpu",
        metavar="NAMES",
        help="The processor to optimize for, such as a72; or several: the first serves all other processors too.",
        show_default="this one, or the first of the set",
    ),
]
ForCpu = Annotated[
    str,
    typer.Option(
        "--cpu",
        metavar="NAME",
        help="The processor to optimize for, such as a72.",
        show_default="this one, or the first of the set",
    ),
]
Bless = Annotated[bool, typer.Option("--bless", help="Record that every form passed, so that synthesis may use them.")]
