"""Quantizers of activations and weights of random networks, as QONNX, QCDQ and QDQ write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from support.onnx_files import QONNX
from support.random_drawing import Drawing, Value

_ROUNDINGS = ("ROUND", "ROUND", "ROUND", "ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")
_WIDTHS = (1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8)


def quantize(d: Drawing, x: Value, *, like: Value | None = None) -> Value:
    """Numbers as codes of 1 to 8 bits, seldom 16, on a scale that fits them or another edge's.

    The scale is one number, seldom another for each place of an axis.
    """
    bits, signed = int(d.one_of(_WIDTHS[: 8 if d.dyadic else None])), bool(d.rng.integers(0, 2))
    scale = like.scale if like and like.scale else d.scale(x.spread, bits)
    zero = 0 if d.chance(2) or bits == 1 else int(d.rng.integers(-(1 << (bits - 1)) if signed else 0, 1 << (bits - 1)))
    write = {"qonnx": _as_qonnx, "qcdq": _as_qcdq, "qdq": _as_qdq}[d.dialect]
    return replace(x, name=write(d, x, bits, signed, scale, zero), spread=scale * 2.0**bits / 3, scale=scale, zero=zero)


def _as_qonnx(d: Drawing, x: Value, bits: int, signed: bool, scale: float, zero: int) -> str:
    if bits == 1 and signed and d.chance(2):
        return d.node("BipolarQuant", x.name, d.constant(np.float32(scale)), domain=QONNX)
    if d.chance(8) and len(x.shape) > 1:
        return _by_thresholds(d, x, bits, scale)
    given = [d.constant(np.float32(v)) for v in (_per_channel(d, x, scale), zero, bits)]
    how = {"signed": int(signed), "narrow": int(bits > 1 and d.chance(4)), "rounding_mode": d.one_of(_ROUNDINGS)}
    return d.node("Quant", x.name, *given, domain=QONNX, **how)


def _by_thresholds(d: Drawing, x: Value, bits: int, scale: float) -> str:
    layout, axis = ("NHWC", -1) if len(x.shape) == 4 and d.chance(3) else ("NCHW", 1)
    rows, count = int(d.one_of((1, x.shape[axis]))), (1 << min(bits, 4)) - 1
    thresholds = d.rng.integers(-2 * count, 2 * count, (rows, count)) * scale
    if d.chance(2):
        thresholds = d.rng.normal(size=(rows, count)) * x.spread
    about = d.one_of(({}, {"out_scale": 2.0, "out_bias": -1.0}, {"out_scale": scale}, {"out_bias": float(-count)}))
    t = d.constant(np.sort(thresholds, 1).astype(np.float32))
    return d.node("MultiThreshold", x.name, t, domain=QONNX, data_layout=layout, **about)


def _per_channel(d: Drawing, x: Value, scale: float) -> NDArray[Any]:
    """The scale, seldom another for each channel or place of another axis."""
    if len(x.shape) < 2 or not d.chance(12):
        return np.asarray(scale)
    axis = int(d.one_of((1, 1, *range(1, len(x.shape)))))
    by = 2.0 ** d.rng.integers(-1, 2, x.shape[axis])
    return (scale * by).reshape([-1 if k == axis else 1 for k in range(len(x.shape))])


def _as_qcdq(d: Drawing, x: Value, bits: int, signed: bool, scale: float, zero: int) -> str:
    dtype = "int8" if signed else "uint8"
    grid = d.constant(np.float32(scale)), d.constant(np.asarray(zero, dtype))
    edge = d.node("QuantizeLinear", x.name, *grid)
    if bits < 8 or d.chance(4):
        low, high = limits(bits, signed)
        ends = low + (signed and d.chance(2) and bits > 1), high
        edge = d.node("Clip", edge, *(d.constant(np.asarray(v, dtype)) for v in ends))
    return d.node("DequantizeLinear", edge, *grid)


def _as_qdq(d: Drawing, x: Value, bits: int, signed: bool, scale: float, zero: int) -> str:
    dtype = carrier(d, bits, signed)
    low, high = _ends(dtype)
    scales = np.asarray(_per_channel(d, x, scale), np.float32)
    axis = int(np.argmax(scales.shape)) if scales.ndim else 1
    zeros = np.full(scales.size if scales.ndim else (), min(max(zero, low), high)).astype(numpy_type(dtype))
    grid = d.constant(scales.reshape(zeros.shape)), d.constant(zeros)
    return d.node("DequantizeLinear", d.node("QuantizeLinear", x.name, *grid, axis=axis), *grid, axis=axis)


def limits(bits: int, signed: bool) -> tuple[int, int]:
    """The ends of codes."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def carrier(d: Drawing, bits: int, signed: bool) -> str:
    """The type of standard ONNX that has so many bits or more; seldom 16."""
    width = 16 if d.chance(25) and not d.dyadic else next(n for n in (2, 4, 8) if n >= bits)
    return f"{'' if signed else 'u'}int{width}"


def _ends(dtype: str) -> tuple[int, int]:
    return limits(int(dtype.partition("int")[2]), not dtype.startswith("u"))


def numpy_type(name: str) -> Any:
    """The type, of ml_dtypes if numpy has none."""
    return np.dtype(getattr(ml_dtypes, name) if name[-2:] in ("t2", "t4") else name)


# Weights.


def weights(d: Drawing, shape: tuple[int, ...]) -> tuple[Value, NDArray[Any]]:
    """Weights of 1 to 8 bits, and the scales of their rows, one or a row each; at times those of another layer."""
    if shape not in d.weights or not d.chance(4):
        d.weights[shape] = _new_weights(d, shape)
    return d.weights[shape]  # type: ignore[no-any-return]


def _new_weights(d: Drawing, shape: tuple[int, ...]) -> tuple[Value, NDArray[Any]]:
    bits = int(d.one_of(_WIDTHS))
    signed = d.dialect == "qcdq" or not d.chance(4)
    scale = np.asarray([d.scale(1.0, bits) for _ in range(shape[0] if d.chance(2) else 1)], np.float32)
    low, high = limits(bits, signed)
    codes = d.codes(shape, low, high)
    spread = float(scale.max()) * max(np.abs(codes).mean(), 0.5)
    zero = 0 if signed or d.chance(2) else int(d.rng.integers(low, high + 1))
    write = _weights_as_qonnx if d.dialect == "qonnx" else _weights_as_qdq
    return Value(write(d, codes, bits, signed, scale, zero), shape, spread), scale


def _weights_as_qonnx(d: Drawing, codes: NDArray[Any], bits: int, signed: bool, scale: NDArray[Any], zero: int) -> str:
    """Floats that are near codes, or on ties between them, and the quantizer that rounds them."""
    rows = scale.reshape(-1, *[1] * (codes.ndim - 1)) if scale.size > 1 else scale.reshape(())
    off = d.rng.choice([0.5, -0.5], codes.shape) if d.chance(5) else d.rng.uniform(-0.4, 0.4, codes.shape)
    raw = ((codes - zero + off) * rows).astype(np.float32)
    if bits == 1 and signed and d.chance(2):
        return d.node("BipolarQuant", d.constant(raw), d.constant(rows.astype(np.float32)), domain=QONNX)
    given = [d.constant(v) for v in (raw, rows, np.float32(zero), np.float32(bits))]
    return d.node("Quant", *given, domain=QONNX, signed=int(signed), narrow=int(bits > 1 and d.chance(2)))


def _weights_as_qdq(d: Drawing, codes: NDArray[Any], bits: int, signed: bool, scale: NDArray[Any], zero: int) -> str:
    dtype = f"{'' if signed else 'u'}int8" if d.dialect == "qcdq" else carrier(d, bits, signed)
    edge = d.constant(codes.astype(numpy_type(dtype)))
    if d.dialect == "qcdq" and bits < 8 and d.chance(2):
        edge = d.node("Clip", edge, *(d.constant(np.asarray(v, dtype)) for v in limits(bits, signed)))
    zeros = np.full(scale.shape, zero).astype(numpy_type(dtype))
    grid = (scale, zeros) if scale.size > 1 else (scale.reshape(()), zeros.reshape(()))
    return d.node("DequantizeLinear", edge, *map(d.constant, grid), axis=0)
