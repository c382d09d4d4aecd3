"""Writes an ONNX file node by node, and keeps the form of each edge in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Names, Node
from bitsynth.graph.types import Edge, Integers, Tensor
from bitsynth.network.fusion.codes import operand_of
from bitsynth.spec.matmul import MatmulOperand

_OPSET, _IR = 13, 8
_MANTISSA = 24
_TYPES = {
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
}


class PatternWriter:
    """The nodes and constants of a file; edges keep their names.

    Args:
        names: The source of names of edges and constants that the network does not have.
        shifts: Whether a factor of sums is written as two: an integer, then a power of two.

    Attributes:
        held: How each edge that was written lies in the file: codes of an operand, or None for integers of int32 and
            for floats.
    """

    def __init__(self, names: Names, *, shifts: bool = False) -> None:
        self._names, self._shifts = names, shifts
        self.held: dict[str, MatmulOperand | None] = {}
        self._nodes: list[Any] = []
        self.constants: dict[str, Tensor] = {}
        self._count = 0

    def node(self, op: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Write a node and return the name of its output, which is a new one if none is given."""
        self._count += 1
        name = output or self._names.make(f"{op}_{self._count}")
        self._nodes.append(helper.make_node(op, inputs, [name], name=f"{name}_{op}_{self._count}", **attributes))
        return name

    def constant(self, value: Any, dtype: str) -> str:
        """Add a constant and return its name."""
        self._count += 1
        name = self._names.make(f"constant_{self._count}")
        self.constants[name] = np.asarray(value, dtype)
        return name

    def cast(self, name: str, dtype: str, output: str = "") -> str:
        """Add a cast of a tensor and return its name."""
        return self.node("Cast", [name], output, to=_TYPES[dtype])

    def scale(self, value: str, factor: Tensor) -> str:
        """Add integers times a float32 factor: one product or two give the same number unless it is subnormal."""
        factors = _integer_and_shift(factor) if self._shifts else (factor,)
        for part in factors:
            value = self.node("Mul", [value, self.constant(part, "float32")])
        return value

    def quantize(self, value: str, scale: float, zero: int, limits: tuple[int, int], output: str = "") -> str:
        """Add the quantization of floats to codes between two limits."""
        whole = limits == (0, 255)
        given = [value, self.constant(scale, "float32"), self.constant(zero, "uint8")]
        codes = self.node("QuantizeLinear", given, output if whole else "")
        return (
            codes if whole else self.node("Clip", [codes, *(self.constant(code, "uint8") for code in limits)], output)
        )

    def codes(self, edge: Edge) -> MatmulOperand | None:
        """Record that an edge has been written as codes, and return the operand whose codes they are."""
        self.held[edge.name] = operand_of(edge)
        return self.held[edge.name]

    def integers(self, edge: Edge) -> str:
        """Return the name of an edge's integers as int32."""
        operand = self.held[edge.name]
        if operand is None:
            return edge.name
        integers = self.cast(edge.name, "int32")
        if operand.scale != 1:
            integers = self.node("Mul", [integers, self.constant(operand.scale, "int32")])
        return self.node("Add", [integers, self.constant(operand.offset, "int32")]) if operand.offset else integers

    def floats(self, edge: Edge) -> str:
        """Return the name of an edge's numbers as float32."""
        kind = edge.type
        if not isinstance(kind, Integers):
            return edge.name
        floats = self.cast(self.integers(edge), "float32")
        if kind.zero.any():
            floats = self.node("Sub", [floats, self.constant(kind.zero, "float32")])
        return floats if (kind.scale == 1).all() else self.node("Mul", [floats, self.constant(kind.scale, "float32")])

    def model(self, name: str, inputs: list[Edge], outputs: list[Edge]) -> ModelProto:
        """Return the checked file; SpecError for an output that no node computes."""
        for edge in outputs:
            if edge.name not in self.held or edge in inputs:
                raise SpecError(f"output {edge.name} is made of no codes, so it has no pre-quantized pattern")
            if edge.is_float and isinstance(edge.type, Integers):
                self._give_numbers(edge)
        given = [helper.make_tensor_value_info(e.name, TensorProto.UINT8, e.shape) for e in inputs]
        results = [helper.make_tensor_value_info(e.name, self._type(e), e.shape) for e in outputs]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self._nodes, name or "network", given, results, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
        checker.check_model(model, full_check=True)
        return model

    def _give_numbers(self, edge: Edge) -> None:
        """Let an output that carries integers give the numbers they stand for."""
        inner = replace(edge, name=self._names.make(f"{edge.name}_integers"))
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [inner.name if name == edge.name else name for name in names]
        self.held[inner.name] = self.held[edge.name]
        self.node("Identity", [self.floats(inner)], edge.name)

    def _type(self, edge: Edge) -> int:
        if edge.is_float:
            return int(TensorProto.FLOAT)
        return int(_TYPES["uint8" if self.held[edge.name] else "int32"])


def _integer_and_shift(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Return a float32 as an integer of at most 24 bits and a power of two whose product with an integer is normal."""
    mantissa, exponent = np.frexp(np.float32(factor))
    if exponent.min() - _MANTISSA < np.finfo(np.float32).minexp:
        raise SpecError(f"the factor {factor.min()} of a pattern is too small for an integer and a shift of float32")
    return mantissa * np.float32(1 << _MANTISSA), np.ldexp(np.float32(1), exponent - _MANTISSA)


def refusal(node: Node, why: str) -> SpecError:
    """Return the error that a node has no pattern."""
    return SpecError(f"{node}: {why}, so it has no pre-quantized pattern")
