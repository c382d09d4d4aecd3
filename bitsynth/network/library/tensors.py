"""Inputs and outputs of a network as its C has them: parameters, types and shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bitsynth.network.program import Buffer, NetworkProgram

_SPELLED = {"float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t", "bool": "uint8_t"}


def c_type(dtype: str) -> str:
    """The C type that holds an element: integers of fewer bits lie a byte each, 16-bit floats as their bits."""
    if dtype in _SPELLED:
        return _SPELLED[dtype]
    kind, _, bits = dtype.rpartition("int")
    return f"{kind}int{max(8, int(bits))}_t"


@dataclass(frozen=True)
class CTensor:
    """An input or output: its parameter in C, and the buffer that the caller gives."""

    parameter: str
    buffer: Buffer

    @property
    def ctype(self) -> str:
        """The type of its elements."""
        return c_type(self.buffer.format.dtype)

    @property
    def elements(self) -> int:
        """Elements that it has."""
        return math.prod(self.buffer.edge.shape)

    @property
    def about(self) -> str:
        """What a reader of the header is told: the file's name of it, type and shape."""
        edge = self.buffer.edge
        return f"{_quoted(edge.name)}: {edge.dtype} [{', '.join(map(str, edge.shape))}]"


def inputs(program: NetworkProgram) -> list[CTensor]:
    """The inputs, in the file's order."""
    return _named(program, program.inputs, "input")


def outputs(program: NetworkProgram) -> list[CTensor]:
    """The outputs, likewise."""
    return _named(program, program.outputs, "output")


def _named(program: NetworkProgram, names: tuple[str, ...], word: str) -> list[CTensor]:
    made = [f"{word}_{k}" for k in range(len(names))] if len(names) > 1 else [word]
    return [CTensor(parameter, program.buffers[name]) for parameter, name in zip(made, names, strict=True)]


def _quoted(name: str) -> str:
    """A name of the file as it may stand in a comment or text of C."""
    kept = "".join(c if c.isascii() and c.isprintable() and c not in '\\"*/%?' else "_" for c in name)
    return f"'{kept}'"


def spoken(names: tuple[str, ...]) -> str:
    """Names of the file in a comment or text of C."""
    return ", ".join(_quoted(name)[1:-1] for name in names)
