"""`bitsynth verify` of machine code: a microkernel as a compiler built it, compared with its proved program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.cli import output
from bitsynth.cli.artifacts import load_named
from bitsynth.cli.artifacts.matmul import MatmulArtifact
from bitsynth.cli.report import ReportLine, print_lines
from bitsynth.errors import SpecError
from bitsynth.kernel.names import KernelName

if TYPE_CHECKING:
    from bitsynth.objects.prove import ObjectProof

_LISTED = 3
"""Instructions that were not run are listed up to this number; JSON has all."""


def verify_object(name: str, variant: str | None, path: Path | None, compiler: str | None, *, as_json: bool) -> None:
    """Compare the microkernel in an object, or in a library that `compiler` builds, with the proved program."""
    from bitsynth.matmul import MatmulKernel
    from bitsynth.objects.prove import prove_object

    artifact = load_named(name, variant)
    if not isinstance(artifact, MatmulArtifact):
        raise SpecError(f"{name}: objects of matmul kernels alone can be proved")
    kernel = MatmulKernel(artifact.proved, KernelName.parse(name).spec)
    with output.progress("verify") as say:
        if path is None:
            say(f"compiling with {compiler}")
            path = kernel.library(str(compiler))
        proof = prove_object(path, kernel, say=say)
    if as_json:
        output.write_json(_facts(proof))
        return
    print_lines(*_lines(proof))


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
        lines.append(
            ReportLine("loops", (output.count(len(proof.loops.heads), "loop"), paths, "all those of the program"))
        )
        verdict = "for every K, and for all numbers of segments and tiles"
        return [*lines, ReportLine("proved", (verdict, "wherever buffers, object and stack lie"), free=True)]
    lines.append(ReportLine("loops", (proof.not_all,), free=True))
    verdict = f"for these {len(proof.sizes)} sizes, up to {max(numbers):,} steps over K; other sizes are not proved"
    return [*lines, ReportLine("proved", (verdict,), free=True)]


def _facts(proof: ObjectProof) -> dict[str, object]:
    return {
        "name": proof.name,
        "object": str(proof.path),
        "sizes": [{"tiles": s.tiles, "segments": s.segments, "steps": s.steps} for s in proof.sizes],
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
