"""`bitsynth verify` of machine code: a microkernel as a compiler built it, compared with its proved program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.cli import output
from bitsynth.cli.artifacts import load_named
from bitsynth.cli.artifacts.depthwise import DepthwiseArtifact
from bitsynth.cli.artifacts.matmul import MatmulArtifact
from bitsynth.cli.report import ReportLine, print_lines
from bitsynth.errors import Refuted, SpecError
from bitsynth.kernel.names import KernelName
from bitsynth.progress import Progress

if TYPE_CHECKING:
    from bitsynth.objects.functions import FunctionVerdict
    from bitsynth.objects.prove import ObjectProof

_LISTED = 3
"""Instructions that were not run are listed up to this number; JSON has all."""


def verify_object(
    name: str, variant: str | None, path: Path | None, compiler: str | None, *, strict: bool, as_json: bool
) -> None:
    """Compare the microkernel in an object, or in a library that `compiler` builds, with the proved program.

    Its packers, which a depthwise kernel does not have, are compared with the layout of its operands. If `strict`,
    Refuted too if a matmul kernel is not proved for every K, or a packer not for the listed sizes.
    """
    artifact = load_named(name, variant)
    with output.progress("verify") as say:
        if isinstance(artifact, MatmulArtifact):
            proof, packers = _prove_matmul(artifact, name, path, str(compiler), say)
        elif isinstance(artifact, DepthwiseArtifact):
            proof, packers = _prove_depthwise(artifact, path, str(compiler), say), []
        else:
            raise SpecError(f"{name}: objects of kernels alone can be proved")
    if as_json:
        output.write_json({**_facts(proof), "packers": [_packer_facts(each) for each in packers]})
    else:
        *lines, verdict = _lines(proof)
        print_lines(*lines, *(_packer_lines(packers) if packers else ()), verdict)
    if strict and proof.loops is None and isinstance(artifact, MatmulArtifact):
        raise Refuted(f"{name} is proved for listed sizes alone: {proof.not_all}")
    if strict and (lacking := [each for each in packers if each.why]):
        raise Refuted(f"{lacking[0].function} is not proved: {lacking[0].why}")


def _prove_matmul(
    artifact: MatmulArtifact, name: str, path: Path | None, compiler: str, say: Progress
) -> tuple[ObjectProof, list[FunctionVerdict]]:
    """Return what is shown of a matmul kernel and of its packers in an object, or in one that is compiled."""
    from bitsynth.matmul import MatmulKernel
    from bitsynth.objects.packers import prove_packers
    from bitsynth.objects.prove import prove_object

    kernel = MatmulKernel(artifact.proved, KernelName.parse(name).spec)
    if path is None:
        say(f"compiling with {compiler}")
        path = kernel.library(compiler)
    return prove_object(path, kernel, say=say), prove_packers(path, kernel, say=say)


def _prove_depthwise(artifact: DepthwiseArtifact, path: Path | None, compiler: str, say: Progress) -> ObjectProof:
    """Return what is shown of a depthwise kernel in an object, or in one that is compiled."""
    from bitsynth import toolchain
    from bitsynth.emit.depthwise import DepthwiseSource
    from bitsynth.isa.load import load
    from bitsynth.objects.depthwise import DepthwiseFunction, prove_depthwise
    from bitsynth.objects.prove import require_provable

    program = artifact.proved.artifact
    require_provable(program.isa)
    if path is None:
        say(f"compiling with {compiler}")
        source, isa = DepthwiseSource(artifact.proved), load(program.isa)
        files = {f"{source.name}.c": source.source, f"{source.name}.h": source.header}
        chosen = toolchain.find_compiler(isa, compiler)
        path = toolchain.compile_for(isa, files, needs=source.needs, compiler=chosen)
    return prove_depthwise(path, DepthwiseFunction(program.name, program.orders[0]), say=say)


def _packer_lines(packers: list[FunctionVerdict]) -> list[ReportLine]:
    """Return lines on packers: how many are proved, and why others are not."""
    proved = [each for each in packers if each.is_proved]
    size = sum({(name, at): size for each in proved for name, at, size in each.functions}.values())
    counts = f"{len(proved)} of {output.count(len(packers), 'function')} in {sum(x.calls for x in proved)} calls"
    equal = f"{sum(x.numbers for x in proved):,} numbers equal to the layout for every code, {size:,} bytes of code"
    lines = [ReportLine("packers", (counts, equal), sum(each.seconds for each in packers))]
    return lines + [ReportLine("packer", (f"{x.function}: {x.why}",), free=True) for x in packers if x.why]


def _packer_facts(verdict: FunctionVerdict) -> dict[str, object]:
    return {
        "function": verdict.function,
        "proved": verdict.is_proved,
        "calls": verdict.calls,
        "numbers": verdict.numbers,
        "functions": [list(each) for each in verdict.functions],
        "why": verdict.why or None,
        "seconds": round(verdict.seconds, 2),
    }


def _lines(proof: ObjectProof) -> list[ReportLine]:
    numbers = [size.all_steps for size in proof.sizes]
    lines = [
        ReportLine("object", (str(proof.path),), free=True),
        ReportLine(
            "tiles",
            (
                f"{proof.registers:,} registers in {output.count(len(proof.sizes), 'call')}",
                "equal to the proved program for every input",
            ),
            proof.seconds,
        ),
        ReportLine("code", (output.count(proof.instructions, "instruction"), f"{len(proof.not_run)} others not run")),
    ]
    lines += [ReportLine("not run", (text,), free=True) for text in proof.not_run[:_LISTED]]
    lines += [ReportLine("one way", (text,), free=True) for text in proof.one_sided[:_LISTED]]
    if proof.loops is not None:
        paths = f"{output.count(proof.loops.paths, 'path')} between them"
        lines.append(ReportLine("loops", (output.count(len(proof.loops.heads), "loop"), paths, "all of the program's")))
        verdict = "for every K, and for all numbers of segments and tiles"
        return [*lines, ReportLine("proved", (verdict, "wherever buffers, object and stack lie"), free=True)]
    lines.append(ReportLine("loops", (proof.not_all,), free=True))
    verdict = f"for these {len(proof.sizes)} sizes, up to {max(numbers):,} steps; other sizes are not proved"
    return [*lines, ReportLine("proved", (verdict,), free=True)]


def _facts(proof: ObjectProof) -> dict[str, object]:
    return {
        "name": proof.name,
        "object": str(proof.path),
        "sizes": [asdict(size) for size in proof.sizes],
        "registers": proof.registers,
        "instructions": proof.instructions,
        "not_run": proof.not_run,
        "one_way": proof.one_sided,
        "all_sizes": proof.loops is not None,
        "not_all_sizes": None if proof.loops else proof.not_all,
        "loops": len(proof.loops.heads) if proof.loops else None,
        "paths": proof.loops.paths if proof.loops else None,
        "seconds": round(proof.seconds, 2),
    }
