"""`bitsynth show`: show a kernel's program instruction by instruction."""

from __future__ import annotations

import sys

from bitsynth.cli import output
from bitsynth.cli.artifacts import load_named
from bitsynth.cli.options.kernels import KernelArgument, Variant
from bitsynth.cli.options.output import CSourceOption, Json


def show(name: KernelArgument, c: CSourceOption = False, variant: Variant = None, as_json: Json = False) -> None:
    """Show a cached kernel: its program and cost, or its C.

    The page has the kernel's inputs, its programs with the meaning of each instruction, its cost and its claims.
    """
    artifact = load_named(name, variant)
    if c and as_json:
        output.write_json({"name": name, "source": artifact.source})
    elif c:
        sys.stdout.write(artifact.source)
    elif as_json:
        output.write_json(artifact.facts())
    else:
        output.write(*artifact.page())
