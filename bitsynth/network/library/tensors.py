"""Inputs and outputs of a network in its C: parameters, types and shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.network.c_types import c_type
from bitsynth.network.program import Buffer, NetworkProgram
from bitsynth.printable import shown

_NOT_SPOKEN = frozenset('\\"*%?,(){}[]')


@dataclass(frozen=True)
class CTensor:
    """An input or output: its parameter in C, and the buffer that the caller gives."""

    parameter: str
    buffer: Buffer

    @property
    def ctype(self) -> str:
        """The C type of its elements."""
        return c_type(self.buffer.format.dtype)

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.buffer.edge.shape)

    @property
    def channels(self) -> int:
        """The channels of a picture that it may hold: 3 if an axis has that size, else 1."""
        shape = self.buffer.edge.shape
        return 3 if len(shape) > 2 and 3 in (shape[1], shape[-1]) and not self.elements % 3 else 1

    @property
    def channels_last(self) -> bool:
        """Whether a pixel's channels are contiguous."""
        shape = self.buffer.edge.shape
        return len(shape) < 3 or shape[1] != self.channels

    @property
    def is_real(self) -> bool:
        """Whether C can compare its elements as float or double."""
        return self.ctype in ("float", "double")

    @property
    def about(self) -> str:
        """The comment in the header: its name in the file, type and shape."""
        edge = self.buffer.edge
        return f"{_quoted(edge.name)}: {edge.dtype} [{', '.join(map(str, edge.shape))}]"


def literals(x: Tensor) -> list[str]:
    """Return elements as C literals; for 16-bit floats their bits."""
    kind, flat = c_type(x.dtype.name), np.ascontiguousarray(x).reshape(-1)
    if kind == "uint16_t" and x.dtype.name != "uint16":
        flat = flat.view(np.uint16)
    if kind in ("float", "double"):
        return [_real(float(v), "f" if kind == "float" else "") for v in flat]
    return [_integer(int(v)) for v in flat]


def _real(x: float, suffix: str) -> str:
    if not math.isfinite(x):
        return "NAN" if math.isnan(x) else "INFINITY" if x > 0 else "-INFINITY"
    return x.hex() + suffix


def _integer(x: int) -> str:
    if -(1 << 31) < x < 1 << 31:
        return str(x)
    return "INT64_MIN" if x == -(1 << 63) else f"UINT64_C({x})" if x >> 63 > 0 else f"INT64_C({x})"


def inputs(program: NetworkProgram) -> list[CTensor]:
    """Return the inputs, in the file's order."""
    return _named(program, program.inputs, "input")


def outputs(program: NetworkProgram) -> list[CTensor]:
    """Return the outputs, in the file's order."""
    return _named(program, program.outputs, "output")


def _named(program: NetworkProgram, names: tuple[str, ...], word: str) -> list[CTensor]:
    parameters = [f"{word}_{k}" for k in range(len(names))] if len(names) != 1 else [word]
    return [CTensor(parameter, program.buffers[name]) for parameter, name in zip(parameters, names, strict=True)]


def _quoted(name: str) -> str:
    return f"'{spoken(name)}'"


def spoken(name: str) -> str:
    """Return a name of the file that is safe in a C comment or string, on a line that may wrap; a long one is cut."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in _NOT_SPOKEN else "_" for c in name)
    return shown(plain)
