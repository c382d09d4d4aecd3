"""The steps of a network as C: constants of layers and glue, functions of plain C, and their calls.

Inputs and outputs of the network are parameters, with types and shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bitsynth.emit import glue_abi, runtime_abi
from bitsynth.graph.types import Tensor
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.arena import ArenaPlan
from bitsynth.network.library.parts import Parts
from bitsynth.network.library.weights import Weights
from bitsynth.network.program import (
    Buffer,
    GlueStep,
    LayerStep,
    Matrices,
    NetworkProgram,
    NetworkStep,
    PlainStep,
    alias_root,
    c_type,
)
from bitsynth.printable import show

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
        return f"{_quote(edge.name)}: {edge.dtype} [{', '.join(map(str, edge.shape))}]"


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
    return _name_tensors(program, program.inputs, "input")


def outputs(program: NetworkProgram) -> list[CTensor]:
    """Return the outputs, in the file's order."""
    return _name_tensors(program, program.outputs, "output")


def _name_tensors(program: NetworkProgram, names: tuple[str, ...], word: str) -> list[CTensor]:
    parameters = [f"{word}_{k}" for k in range(len(names))] if len(names) != 1 else [word]
    return [CTensor(parameter, program.buffers[name]) for parameter, name in zip(parameters, names, strict=True)]


def _quote(name: str) -> str:
    return f"'{escape_name(name)}'"


def escape_name(name: str) -> str:
    """Return a name of the file that is safe in a C comment or string, on a line that may wrap; a long one is cut."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in _NOT_SPOKEN else "_" for c in name)
    return show(plain)


Fields = list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class CStep:
    """A step as the template takes it.

    Args:
        number: Its place.
        kind: layer, matrices, glue or plain.
        about: The last node it computes.
        fields: Fields of `struct bs_layer` or `struct bs_glue` and their initializers.
        image: Batch, height and width.
        matrices: Fields of `struct bs_matrices` and their initializers, for a layer whose weights are an edge.
        inputs: C expressions of pointers to its inputs: for a layer the input and the residual, NULL if none.
        columns: A C expression of the pointer to weights that are an edge.
        outputs: C expressions of pointers to its results: of a layer the output and the sum.
        parameters: Of plain C, the parameters of its function.
        arguments: Of plain C, what they get.
        unused: Of plain C, the parameters that its body does not name.
        body: Of plain C, the body.
    """

    number: int
    kind: str
    about: str
    fields: Fields = field(default_factory=list)
    matrices: Fields = field(default_factory=list)
    image: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    columns: str = ""
    outputs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    body: str = ""


@dataclass(eq=False)
class StepWriter:
    """Writes the C of a program's steps, and collects their constants in `weights`."""

    name: str
    program: NetworkProgram
    plan: ArenaPlan
    parts: Parts
    weights: Weights = field(default_factory=Weights)

    def steps(self) -> list[CStep]:
        """Return all steps, in order."""
        steps = []
        for number, step in enumerate(self.program.steps):
            steps.append(self._step(number, step))
            self.weights.end_step()
        return steps

    def _step(self, number: int, step: NetworkStep) -> CStep:
        about = self._about(step)
        if isinstance(step, LayerStep):
            return self._layer(number, about, step)
        if isinstance(step, GlueStep):
            given = tuple(self.pointer(n) for n in step.inputs)
            fields = self._glue_fields(step.glue.constants)
            outputs = (self.pointer(step.outputs[0]),)
            return CStep(number, "glue", about, fields, image=step.image, inputs=given, outputs=outputs)
        return self._plain(number, about, step)

    def _about(self, step: NetworkStep) -> str:
        """Return the last node of a step and the number before it; for a conversion the edge."""
        if not step.nodes:
            return f"conversion of {escape_name(self.program.buffers[step.outputs[0]].edge.name)}"
        before = len(step.nodes) - 1
        return escape_name(step.nodes[-1]) + (f" and {before} before" if before else "")

    def _layer(self, number: int, about: str, step: LayerStep) -> CStep:
        kernel, programs = self.parts.layer_names(step.layer)
        numbers, arrays = runtime_abi.with_defaults(step.layer.constants.numbers), step.layer.constants.arrays
        fields = [
            (step.layer.plan.kernel.field, f"&{kernel}_layer_kernel"),
            *((f, f"&{program}") for f, program in programs.items()),
        ]
        fields += [(f, runtime_abi.c_value(f, value)) for f, value in numbers.items()]
        fields += self._arrays(runtime_abi.ARRAYS, arrays)
        given, results = (tuple(self.pointer(n) for n in names) for names in (step.inputs, step.outputs))
        if step.matrices is None:
            return CStep(number, "layer", about, fields, image=step.image, inputs=_two(given), outputs=_two(results))
        first, columns, *others = given
        return CStep(
            number,
            "matrices",
            about,
            fields,
            matrices=[("layer", f"&layer_{number}"), *self._matrices(step.layer, step.matrices, kernel)],
            image=step.image,
            inputs=_two((first, *others)),
            columns=columns,
            outputs=_two(results),
        )

    def _matrices(self, layer: PackedLayer, matrices: Matrices, kernel: str) -> Fields:
        """Return the fields of `struct bs_matrices` after the layer."""
        packing = layer.column_packing
        assert packing is not None
        fields: Fields = [("count", str(matrices.count))]
        starts = [self._constant(array) for array in matrices.all_starts()]
        sides = zip(("rows", "columns"), (matrices.rows, matrices.columns), starts, strict=False)
        fields += [(name, f"{{{start}, {steps[-2]}, {steps[-1]}}}") for name, steps, start in sides]
        if matrices.results:
            fields += [("result_starts", starts[2]), ("result_apart", str(matrices.results[-1]))]
        fields.append(("pack_columns", f"{kernel}_pack_columns"))
        fields += [(name, str(value)) for name, value in packing.numbers.items() if value]
        return fields + [(name, self._constant(array)) for name, array in packing.arrays.items()]

    def _glue_fields(self, constants: glue_abi.GlueConstants) -> Fields:
        numbers = zip((name for name, _ in glue_abi.NUMBERS), constants.sizes(), strict=True)
        fields = [(name, glue_abi.c_value(name, value)) for name, value in numbers if value]
        return [*fields, *self._arrays(glue_abi.ARRAYS, constants.arrays)]

    def _arrays(self, kinds: tuple[tuple[str, str], ...], arrays: Mapping[str, Any]) -> Fields:
        return [(name, self._constant(arrays[name])) for name, _ in kinds if name in arrays]

    def _constant(self, array: Any) -> str:
        return f"(const void *)({self.name}_weights + {self.weights.place(array)})"

    def _plain(self, number: int, about: str, step: PlainStep) -> CStep:
        named: list[tuple[str, str, str]] = []
        for k, name in enumerate(step.inputs):
            named.append((f"const {self._ctype(name)} *restrict", f"in{k}", self.pointer(name)))
        for k, name in enumerate(step.outputs):
            named.append((f"{self._ctype(name)} *restrict", f"out{k}", self.pointer(name)))
        for k, array in enumerate(step.constants):
            ctype = c_type(str(array.dtype))
            named.append((f"const {ctype} *restrict", f"k{k}", self._constant(array)))
        named.append(("void *restrict", "scratch", "c->scratch"))
        mentioned = set(re.findall(r"\w+", step.body))
        return CStep(
            number,
            "plain",
            about,
            parameters=tuple(f"{kind} {name}" for kind, name, _ in named),
            arguments=tuple(value for _, _, value in named),
            unused=tuple(name for _, name, _ in named if name not in mentioned),
            body=step.body.strip("\n"),
        )

    def _ctype(self, name: str) -> str:
        return c_type(self.program.buffers[name].format.dtype)

    def pointer(self, name: str) -> str:
        """Return the C expression of a pointer to a buffer's memory."""
        root = alias_root(self.program.buffers, name)
        if root in self.plan.offsets:
            return f"(void *)(c->arena + {self.plan.offsets[root]})"
        return f"c->{self._of_caller[root]}"

    @cached_property
    def _of_caller(self) -> dict[str, str]:
        """The parameter of each buffer that the caller gives, by the buffer's name."""
        return {t.buffer.name: t.parameter for t in (*inputs(self.program), *outputs(self.program))}


def _two(pointers: tuple[str, ...]) -> tuple[str, ...]:
    return (*pointers, "NULL")[:2]
