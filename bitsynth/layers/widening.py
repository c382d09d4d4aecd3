"""Layers on kernels of wider operands: where products of bytes cost no more than products of fewer bits.

Activations keep their codes, and weights their values. A code that stands for another value than itself moves the value
that stands for 0 instead: the products are of the same numbers. QNN (section 4) legalizes types for a target so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from bitsynth.errors import SpecError
from bitsynth.layers.constants import pad_code_of
from bitsynth.layers.schedule import OPERANDS
from bitsynth.layers.spec import MAX_ZERO_POINT, LayerSpec
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec

OF_BYTES = ("multiply", "dot", "matrix")
"""The methods that multiply bytes, whatever they hold."""


def list_widenings(spec: LayerSpec) -> Iterator[tuple[str, LayerSpec]]:
    """Yield the wider operands that hold the layer's, each with the same layer of them."""
    for operands in OPERANDS:
        if find_problem(spec, operands) is None:
            yield operands, widen_operands(spec, operands)


def widen_operands(spec: LayerSpec, operands: str) -> LayerSpec:
    """Return the layer as a kernel of `operands`, such as 8x8, computes it; itself if there are none.

    SpecError if it cannot.
    """
    if not operands:
        return spec
    if why := find_problem(spec, operands):
        raise SpecError(f"a kernel of {operands} bits computes no layer of {spec.act} x {spec.wgt}: {why}")
    act, wgt, _ = _parse_operands(operands, spec.act.scale)
    return replace(spec, act=act, wgt=wgt, zero_point=_zero_point(spec, act))


def find_problem(spec: LayerSpec, operands: str) -> str | None:
    """Return why a kernel of `operands` cannot compute the layer; None if it can."""
    act, wgt, k_max = _parse_operands(operands, spec.act.scale)
    if spec.act.bits > act.bits or (spec.act.bits, spec.wgt.bits) == (act.bits, wgt.bits):
        return "these are not wider"
    zero_point = _zero_point(spec, act)
    if abs(zero_point) > MAX_ZERO_POINT or pad_code_of(spec.act, spec.zero_point) != pad_code_of(act, zero_point):
        return "its activations have no code of the zero point"
    if spec.wgt.value(0) < wgt.value(0) or spec.wgt.value(spec.wgt.codes[-1]) > wgt.value(wgt.codes[-1]):
        return "they do not hold its weights"
    if spec.geometry.depth > k_max:
        return "its sums may leave int32"
    return None


def _zero_point(spec: LayerSpec, act: MatmulOperand) -> int:
    """Return the value that stands for 0 if codes have the values of `act`, which lie as far apart."""
    return spec.zero_point - spec.act.offset + act.offset


@cache
def _parse_operands(operands: str, scale: int) -> tuple[MatmulOperand, MatmulOperand, int]:
    """Return activations with values `scale` apart, weights, and the longest sum of products within int32."""
    act_bits, w_bits = map(int, operands.split("x"))
    act = MatmulOperand(act_bits, Encoding.BIPOLAR if scale == 2 else Encoding.UNSIGNED)
    wgt = MatmulOperand(w_bits, Encoding.SIGNED)
    return act, wgt, MatmulSpec("", act, wgt).k_max
