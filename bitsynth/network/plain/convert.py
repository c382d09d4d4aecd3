"""Conversions: an edge from one format to another, and the caller's numbers to integers and back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation
from bitsynth.graph.types import Edge, Integers, Reals, limits
from bitsynth.network.plain.body import NodeBody
from bitsynth.network.plain.maths import InC
from bitsynth.network.plain.memory import BufferAccess
from bitsynth.network.plain.terms import LoopTerm
from bitsynth.network.plain.writer import REAL, WHOLE, Writer
from bitsynth.network.program import Buffer, Format, PlainStep
from bitsynth.spec.layout import Layout

_HEADERS = ("bs_layer.h", "bs_real.h")


def make_conversion(graph: Graph, source: Buffer, to: Buffer) -> PlainStep:
    """Return the step that fills `to` from `source`, two buffers of one edge.

    Buffers of role "input" and "output" have numbers in the file's type, as `Evaluation.floats` gives them; all others
    have what the edge carries.
    """
    body = NodeBody(graph, (Node("", "", (), (source.edge.name,)),), {})
    given, result = BufferAccess.of("in0", source), BufferAccess.of("out0", to)
    if source.format == to.format and not _is_number(source) and not _is_number(to):
        body.do(f"memcpy(out0, in0, {to.bytes});")
    else:
        given = _unpack(body, given)
        target = _to_pack(body, result)
        _convert(body, given, target, source.role == "input", to.role == "output")
        _pack(body, target, result)
    text = "\n".join(body.lines)
    return PlainStep((), (source.name,), (to.name,), text, tuple(body.constants.arrays), body.scratch_bytes, _HEADERS)


def make_filling(graph: Graph, to: Buffer) -> PlainStep:
    """Return the step that fills `to` with the numbers of a constant that the caller gets."""
    floats = Evaluation(graph, graph.constants).floats(to.edge.name)
    if floats.dtype.name in ("int2", "int4"):
        floats = floats.astype(np.int8)
    stored = np.ascontiguousarray(floats).reshape(-1).view(np.uint8)
    return PlainStep((), (), (to.name,), f"memcpy(out0, k0, {to.bytes});", (stored,), 0, _HEADERS)


def _is_number(buffer: Buffer) -> bool:
    """Return whether a buffer has the caller's numbers for an edge that carries integers."""
    return buffer.role != "arena" and isinstance(buffer.edge.type, Integers)


def _convert(body: NodeBody, given: BufferAccess, result: BufferAccess, is_input: bool, is_output: bool) -> None:
    writer = body.writer(result.edge.shape, result.steps(result.edge.shape), paired=True)
    is_whole = isinstance(given.edge.type, Integers)
    asks = is_whole and is_input and not _holds_no_other(given.edge)
    if asks:
        body.do("int off = 0;")
    term = _integers(writer, given) if asks else given.load(writer)
    if is_whole and is_output:
        term = _numbers(body, writer, term, result)
    result.store(writer, term)
    body.close(writer)
    if asks:
        body.do("if (off)\nreturn BS_CODES;")


def _holds_no_other(edge: Edge) -> bool:
    """Return whether every number of an input's type stands for one of its integers."""
    kind = edge.integers
    return not edge.is_float and (kind.least, kind.most) == limits(edge.dtype) and kind.step == 1


def _integers(writer: Writer, memory: BufferAccess) -> LoopTerm:
    """Return the integers that the caller's numbers stand for; the loop sets `off` where there is none."""
    kind, plain = memory.edge.integers, Writer(writer.loops, exact=False)
    number: Any = replace(memory, edge=replace(memory.edge, type=Reals())).load(plain)
    tests = []
    if memory.edge.is_float:
        value = plain.cast(number, REAL)
        number = kind.nearest(value)
        tests.append(kind.stands_for(number, value, memory.edge.dtype))
    tests += [number >= kind.low, number <= kind.high]
    whole: Any = plain.cast(np.minimum(np.maximum(number, kind.low), kind.high), WHOLE)
    if kind.step > 1:
        tests.append((whole - kind.low) % kind.step == 0)
    writer.loops.do(f"off |= !({' & '.join(t.code for t in tests)});")
    integers: LoopTerm = replace(whole, writer=writer)
    return integers


def _numbers(body: NodeBody, writer: Writer, whole: LoopTerm, memory: BufferAccess) -> LoopTerm:
    """Return the numbers that integers stand for, as the caller gets them."""
    edge, kind = memory.edge, memory.edge.integers
    if not edge.is_float:
        return whole - kind.zero.astype(np.int64) if kind.zero.any() else whole
    number: LoopTerm = InC(writer, body.graph.reference).number(whole, edge)
    if number.rest:
        middle = writer.loops.value("double", f"bs_middle({number.code}, {number.rest})")
        return LoopTerm(writer, number.dtype, middle)
    return number


def _bytes(memory: BufferAccess, name: str) -> BufferAccess:
    """Return the access to codes of packed words as a byte each."""
    assert memory.format.operand is not None
    return BufferAccess(name, memory.edge, Format("uint8", memory.format.operand, Layout.NHWC))


def _unpack(body: NodeBody, memory: BufferAccess) -> BufferAccess:
    """Return codes as bytes; packed words are unpacked first."""
    if memory.format.layout != Layout.PACKED:
        return memory
    unpacked = _bytes(memory, body.array("uint8", math.prod(memory.edge.shape)).name)
    bits, channels, words, pixels = _packing(memory)
    body.do(
        f"for (size_t i = 0; i < {pixels}; ++i)\n"
        f"bs_unpack_codes({bits}, {channels}, {memory.name} + i * {words}, {unpacked.name} + i * {channels});"
    )
    return unpacked


def _to_pack(body: NodeBody, memory: BufferAccess) -> BufferAccess:
    if memory.format.layout != Layout.PACKED:
        return memory
    return _bytes(memory, body.array("uint8", math.prod(memory.edge.shape)).name)


def _pack(body: NodeBody, codes: BufferAccess, memory: BufferAccess) -> None:
    """Pack codes into words, if the buffer's format has them."""
    if codes is not memory:
        bits, channels, words, pixels = _packing(memory)
        body.do(
            f"for (size_t i = 0; i < {pixels}; ++i)\n"
            f"bs_pack_codes({bits}, {channels}, {codes.name} + i * {channels}, {memory.name} + i * {words});"
        )


def _packing(memory: BufferAccess) -> tuple[int, int, int, int]:
    """Return the bits of a code, the channels and words of a pixel, and the number of pixels."""
    assert memory.format.operand is not None
    lies = memory.format.elements(memory.edge.shape)
    return memory.format.operand.bits, memory.edge.shape[1], lies[-1], math.prod(lies[:-1])
