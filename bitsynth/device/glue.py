"""Builds the self-test of a glue layer for a board, as one program."""

from __future__ import annotations

from pathlib import Path

from bitsynth import toolchain
from bitsynth.device.program import Target
from bitsynth.emit.render import render
from bitsynth.isa.load import load
from bitsynth.layers.glue import Glue
from bitsynth.layers.glue.programs import requirements

_NAME = "glue"
_FLAGS = ("-O3", "-static", "-pthread", "-DBITSYNTH_NO_MAIN")


def glue_target(layer: Glue) -> Target:
    """Return the target that the program of a layer is compiled for."""
    return Target(layer.isa, requirements(layer.isa))


def glue_program(layer: Glue) -> Path:
    """Return the program of a layer, compiled here."""
    files = {name: c for name, c in layer.files(_NAME).items() if name.endswith((".c", ".h"))}
    files["bs_board.c"] = render("board_glue.c.j2", {"name": _NAME})
    needs = glue_target(layer).needs
    return toolchain.compile_for(load(layer.isa), files, needs=needs, flags=_FLAGS, shared=False, cached=files)
