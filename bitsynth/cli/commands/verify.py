"""`bitsynth verify`: check the certificate of a network or of a kernel again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from bitsynth.cli import output
from bitsynth.cli.artifacts import load_named
from bitsynth.cli.artifacts.artifact import NamedArtifact
from bitsynth.cli.commands.verify_network import is_network, verify_network
from bitsynth.cli.commands.verify_object import verify_object
from bitsynth.cli.commands.verify_objects import verify_objects
from bitsynth.cli.options.kernels import NoMinimality, NoZ3, Rlimit, Variant, Verified
from bitsynth.cli.options.networks import OfModel, Strict
from bitsynth.cli.options.output import Json
from bitsynth.cli.report import ReportLine, print_lines, verdict_facts
from bitsynth.errors import SpecError
from bitsynth.progress import Progress

OfObject = Annotated[
    Path | None,
    typer.Option(
        "--object",
        metavar="FILE",
        help="Prove the kernel's function in this object, or a network's kernels in this library.",
        show_default=False,
    ),
]
OfObjects = Annotated[
    bool,
    typer.Option("--objects", help="Prove the machine code of a network's kernels and layers; compiles the library."),
]
OfCompiler = Annotated[
    str | None,
    typer.Option("--compiler", metavar="NAME", help="Prove what gcc, clang or zig makes of the C.", show_default=False),
]
_ON_RECORD = "on record, not solved again"


def verify(
    name: Verified,
    no_z3: NoZ3 = False,
    no_minimality: NoMinimality = False,
    rlimit: Rlimit = None,
    variant: Variant = None,
    model: OfModel = None,
    strict: Strict = False,
    of_object: OfObject = None,
    compiler: OfCompiler = None,
    of_objects: OfObjects = False,
    as_json: Json = False,
) -> None:
    """Check the certificate of a network or of a kernel again.

    A network is a folder that `bitsynth compile` wrote, or the path of a certificate in it. Checked are the claims on
    every step for the whole range of its accumulators, the plan of memory, every file, and the certificates of its
    kernels. Steps without a claim are named; with --strict the first of them is an error. With --model the ONNX file is
    compiled again and must give the same certificate, so that nothing is left out.

    For a kernel its composition, the instruction lemmas and the claims of minimality are checked.

    With --object or --compiler the machine code of the microkernel is compared with the proved program, for every input
    of the sizes in a list, often of all sizes. The machine code of its packers is compared with the layout of its
    operands, for a list of sizes. With --objects this is done for each kernel of a network, in its library as cmake
    builds it or in the library of --object; for each layer on x86-64 it is also proved that each activation meets its
    weight. The verdicts are written next to the certificate. With --strict it is an error if a packer, or a kernel or
    layer of a network, is not proved, or if a single kernel is not proved for every K.
    """
    if of_object or compiler or of_objects:
        if of_object and compiler:
            raise SpecError("--object is a file that was compiled, --compiler compiles one: give one of them")
        of_network = is_network(name)
        if of_objects and not of_network:
            raise SpecError(f"--objects is for compiled networks; {name} is a kernel: want --object or --compiler")
        others = {
            "--model": model,
            "--no-z3": no_z3,
            "--no-minimality": no_minimality,
            "--rlimit": rlimit,
        }
        if unused := [option for option, given in others.items() if given]:
            raise SpecError(f"{unused[0]} is not for machine code: no solver is asked, and no network is compiled")
        if of_network:
            verify_objects(name, of_object, compiler, strict=strict, as_json=as_json)
        else:
            verify_object(name, variant, of_object, compiler, strict=strict, as_json=as_json)
        return
    if is_network(name):
        verify_network(name, model, strict=strict, z3=not no_z3, rlimit=rlimit, as_json=as_json)
        return
    if model or strict:
        raise SpecError(
            f"--{'model' if model else 'strict'} is for compiled networks and for machine code; {name} is a kernel"
        )
    z3, solve = not no_z3, not (no_z3 or no_minimality)
    with output.progress("verify") as say:
        say("composition")
        start = time.perf_counter()
        artifact = load_named(name, variant)
        checked = artifact.check()
        spent = time.perf_counter() - start
        lines = [ReportLine(label, tuple(cells), None if n else spent) for n, (label, *cells) in enumerate(checked)]
        on_record = ReportLine("machine", (artifact.statement_count, artifact.undischarged))
        lines.append(_discharge(artifact, rlimit, say) if z3 else on_record)
        lines.append(_solve(artifact, rlimit, say) if solve else ReportLine("claims", (artifact.claims, _ON_RECORD)))
    if as_json:
        output.write_json(
            {**verdict_facts(artifact.name, lines, discharged=z3, solved_again=solve), **artifact.statements()}
        )
        return
    verdict = f"for every input{artifact.scope}" + ("" if z3 else f"; {artifact.left_out}")
    print_lines(*lines, ReportLine("proved" if z3 else "checked", (verdict,), free=True))


def _discharge(artifact: NamedArtifact[Any, Any], rlimit: int | None, say: Progress) -> ReportLine:
    """Have Z3 prove the statements that the certificate rests on."""
    say("starting the solver")
    start = time.perf_counter()
    from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget

    say(f"proving {artifact.statement_count}")
    queries = artifact.proof.discharge(Budget(rlimit or DEFAULT_RLIMIT))
    verdict = f"{artifact.discharged} by Z3, {output.count(queries, 'query')}"
    return ReportLine("machine", (artifact.statement_count, verdict), time.perf_counter() - start)


def _solve(artifact: NamedArtifact[Any, Any], rlimit: int | None, say: Progress) -> ReportLine:
    """Solve the claims of cost again."""
    start = time.perf_counter()
    cells = artifact.solve(rlimit, say)
    return ReportLine("claims", cells, time.perf_counter() - start)
