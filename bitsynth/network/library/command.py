"""The command that compiles a network to the same library again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bitsynth.emit.command import command
from bitsynth.network.program import NetworkProgram

_SHELL_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")
"""Names that a shell takes as they are, and that end no comment of C."""


def _is_array(value: Any) -> bool:
    """Return whether the recorded value of a fixed input is more than a number."""
    return value is None or isinstance(value, list)


def _text_of_sizes(sizes: int | Sequence[int]) -> str:
    """Return sizes as the option --shape has them."""
    return str(sizes) if isinstance(sizes, int) else "x".join(map(str, sizes))


def compile_command(
    name: str,
    program: NetworkProgram,
    reading: Mapping[str, Any],
    *,
    cpus: Sequence[str] = (),
    has_weights_file: bool = False,
) -> str:
    """Return the command that writes the library `name` of a program, for its processor or for several `cpus`.

    `reading` says how the ONNX file was read, as the certificate has it. The command is empty if inputs were fixed to
    arrays, which only Python can do, or if a name would have to be quoted.
    """
    codes, fixed, shapes = reading.get("codes") or {}, reading.get("fixed") or {}, reading.get("shapes") or {}
    if any(not _SHELL_NAME.fullmatch(name) for name in (*fixed, *shapes)) or any(map(_is_array, fixed.values())):
        return ""
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
    inputs = [f" --shape {each}={_text_of_sizes(sizes)}" for each, sizes in shapes.items()]
    inputs += [f" --fix {each}={value}" for each, value in fixed.items()]
    return f"{command('compile', 'MODEL.onnx', options)}{''.join(inputs)} -o {name}"
