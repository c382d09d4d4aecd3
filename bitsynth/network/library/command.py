"""The command that compiles a network to the same library again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitsynth.emit.command import command
from bitsynth.network.program import NetworkProgram


def compile_command(
    name: str,
    program: NetworkProgram,
    reading: Mapping[str, Any],
    *,
    cpus: Sequence[str] = (),
    has_weights_file: bool = False,
) -> str:
    """Return the command that writes the library `name` of a program, for its processor or for several `cpus`.

    `reading` says how the ONNX file was read, as the certificate has it. The command is empty if inputs were fixed,
    which only Python can do.
    """
    if reading.get("fixed"):
        return ""
    codes = reading.get("codes") or {}
    options = {
        "isa": program.isa,
        "cpu": cpus or program.cpu,
        "threads": program.threads if program.threads > 1 else None,
        "batch": reading.get("batch"),
        "reference": program.graph.reference,
        "input-bits": codes.get("bits"),
        "input-scale": codes.get("scale") if codes.get("scale") != 1 else None,
        "input-encoding": codes.get("encoding"),
        "weights-file": has_weights_file,
        "name": name,
    }
    return f"{command('compile', 'MODEL.onnx', options)} -o {name}"
