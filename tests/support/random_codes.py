"""Layers of random networks on codes: QLinear operators, and integer operators with floats between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from support.onnx_files import MICROSOFT
from support.random_drawing import CHANNELS, Drawing, Step, Value, Window
from support.random_moves import MOVES

_INT32 = (1 << 31) - 1


def begin(d: Drawing) -> None:
    """Codes, or numbers that become codes."""
    dtype, shape = str(d.one_of(("uint8", "int8"))), d.shape()
    scale = d.scale(4.0, 8)
    if d.chance(3):
        x = d.given(shape, spread=4.0, scale=scale)
        zero = _zero(d, dtype)
        edge = d.node("QuantizeLinear", x.name, *_grid(d, scale, zero, dtype))
        d.values[-1] = replace(x, name=edge, dtype=dtype, zero=zero)
        return
    for _ in range(1 + d.chance(4)):
        d.given(shape, spread=4.0, dtype=dtype, scale=scale, zero=_zero(d, dtype))


def step(d: Drawing) -> None:
    """Add a random layer that fits."""
    steps = _STEPS[d.dialect]
    chances = np.array([6.0] * (len(steps) - len(MOVES)) + [0.8] * len(MOVES))
    while not d.keep(d.rng.choice(np.array(steps, object), p=chances / chances.sum())(d, d.pick())):
        pass


def end(d: Drawing) -> None:
    """The outputs: the last codes or their numbers, more edges at times."""
    last = d.values[-1]
    if d.chance(2):
        last = replace(
            last,
            name=d.node("DequantizeLinear", last.name, *_grid(d, last.scale, last.zero, last.dtype)),
            dtype="float32",
        )
    d.outputs.append(last)
    d.outputs += [v for v in d.values if d.chance(8) and v.name != last.name and v not in d.inputs]


def _zero(d: Drawing, dtype: str) -> int:
    info = np.iinfo(dtype)
    return int(d.one_of((0, 0, 128 if dtype == "uint8" else 0, info.min, info.max, d.rng.integers(info.min, info.max))))


def _grid(d: Drawing, scale: Any, zero: int, dtype: str) -> tuple[str, str]:
    return d.constant(np.float32(scale)), d.constant(np.asarray(zero, dtype))


def _codes_of(x: Value, edge: str, shape: tuple[int, ...], scale: float, zero: int) -> Value:
    return Value(edge, shape, scale * 80, x.dtype, scale, zero)


# Products.


def _weights(
    d: Drawing, x: Value, shape: tuple[int, ...], axis: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Weights of 2 to 8 bits, their scales, one or one along an axis, and their zero point."""
    dtype = "uint8" if x.dtype == "uint8" and d.chance(3) else "int8"
    bits = int(d.one_of((2, 4, 8, 8)))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype == "int8" else (0, (1 << bits) - 1)
    codes = d.codes(shape, low, high).astype(dtype)
    scale = np.array([d.scale(1.0, bits) for _ in range(shape[axis] if d.chance(2) else 1)], np.float32)
    zero = np.asarray(0 if dtype == "int8" and d.chance(2) else d.rng.integers(low, high + 1), dtype)
    return codes, scale if scale.size > 1 else scale.reshape(()), np.full(scale.shape if scale.size > 1 else (), zero)


def _bias(d: Drawing, x: Value, codes: NDArray[Any], zero: NDArray[Any], axis: int) -> NDArray[np.int32]:
    """A bias, at times one with which the greatest sum is the greatest int32."""
    info, axes = np.iinfo(x.dtype), tuple(k for k in range(codes.ndim) if k != axis)
    centred = codes.astype(np.int64) - np.asarray(zero).reshape(-1)[0]
    ends = [centred * (end - x.zero) for end in (info.min, info.max)]
    least, most = (f([0 * ends[0], *ends]).sum(axes) for f in (np.minimum.reduce, np.maximum.reduce))
    kind, spread = int(d.rng.integers(0, 6)), np.maximum(most - least, 8) // 8
    bias = [_INT32 - most, -_INT32 - 1 - least][kind] if kind < 2 else d.rng.integers(-spread, spread)
    return np.asarray(bias, np.int32)


def _window(d: Drawing, x: Value) -> tuple[Window, int, int] | None:
    """A window, the groups and the channels that come out."""
    if len(x.shape) not in (3, 4):
        return None
    channels = x.shape[1]
    groups = int(d.one_of([1, 1, 1, channels, *(g for g in (2, 3) if channels % g == 0)]))
    return (
        Window.drawn(d, x.shape[2:]),
        groups,
        groups * int(d.one_of((1, 1, 2))) if groups > 1 else int(d.one_of(CHANNELS)),
    )


def _spread(x: Value, codes: NDArray[Any], scale: NDArray[Any], terms: int) -> float:
    return float(x.scale * 60 * np.abs(codes.astype(float)).mean() * scale.max() * np.sqrt(terms) + 1e-9)


def qlinear_conv(d: Drawing, x: Value) -> Value | None:
    """QLinearConv."""
    window = _window(d, x)
    if window is None:
        return None
    w, groups, out = window
    codes, scale, zero = _weights(d, x, (out, x.shape[1] // groups, *w.kernel), 0)
    to = d.scale(_spread(x, codes, scale, codes[0].size), 8), _zero(d, x.dtype)
    bias = [d.constant(_bias(d, x, codes, zero, 0))] if d.rng.integers(0, 3) else []
    given = (
        x.name,
        *_grid(d, x.scale, x.zero, x.dtype),
        *map(d.constant, (codes, scale, zero)),
        *_grid(d, *to, x.dtype),
        *bias,
    )
    edge = d.node("QLinearConv", *given, kernel_shape=w.kernel, group=groups, **w.attributes)
    return _codes_of(x, edge, (x.shape[0], out, *w.out), *to)


def qlinear_matmul(d: Drawing, x: Value) -> Value | None:
    """QLinearMatMul."""
    out, terms = int(d.one_of(CHANNELS)), x.shape[-1]
    if terms > 600:
        return None
    codes, scale, zero = _weights(d, x, (terms, out), 1)
    to = d.scale(_spread(x, codes, scale, terms), 8), _zero(d, x.dtype)
    given = (
        x.name,
        *_grid(d, x.scale, x.zero, x.dtype),
        *map(d.constant, (codes, scale, zero)),
        *_grid(d, *to, x.dtype),
    )
    return _codes_of(x, d.node("QLinearMatMul", *given), (*x.shape[:-1], out), *to)


def qgemm(d: Drawing, x: Value) -> Value | None:
    """QGemm, of weights as they are or transposed."""
    if len(x.shape) != 2 or x.shape[1] > 600:
        return None
    out, turned = int(d.one_of(CHANNELS)), bool(d.rng.integers(0, 2))
    codes, scale, zero = _weights(d, x, (out, x.shape[1]) if turned else (x.shape[1], out), 1 - turned)
    to = d.scale(_spread(x, codes, scale, x.shape[1]), 8), _zero(d, x.dtype)
    bias = d.constant(_bias(d, x, codes, zero, 1 - turned)) if d.rng.integers(0, 3) else ""
    given = (
        x.name,
        *_grid(d, x.scale, x.zero, x.dtype),
        *map(d.constant, (codes, scale, zero)),
        bias,
        *_grid(d, *to, x.dtype),
    )
    edge = d.node("QGemm", *given, domain=MICROSOFT, transB=int(turned))
    return _codes_of(x, edge, (x.shape[0], out), *to)


def product_of_integers(d: Drawing, x: Value) -> Value | None:
    """ConvInteger or MatMulInteger, a bias, a number times or two, an activation, and codes again."""
    window = _window(d, x)
    if window is None:
        out = int(d.one_of(CHANNELS))
        codes, _, zero = _weights(d, x, (x.shape[-1], out), 1)
        shape, axis, name, how = (*x.shape[:-1], out), 1, "MatMulInteger", {}
    else:
        w, groups, out = window
        codes, _, zero = _weights(d, x, (out, x.shape[1] // groups, *w.kernel), 0)
        shape, axis, name = (x.shape[0], out, *w.out), 0, "ConvInteger"
        how = {"kernel_shape": w.kernel, "group": groups, **w.attributes}
    zero = np.asarray(zero).reshape(-1)[0]
    edge = d.node(name, x.name, *map(d.constant, (codes, np.asarray(x.zero, x.dtype), zero)), **how)
    if d.rng.integers(0, 3):
        bias = _bias(d, x, codes, zero, axis)
        edge = d.node("Add", edge, d.constant(bias if axis else bias.reshape(1, -1, *[1] * (len(shape) - 2))))
    edge = d.node("Cast", edge, to=TensorProto.FLOAT)
    spread = _spread(replace(x, scale=1.0), codes, np.ones(()), codes.size // out)
    return replace(_multiplied(d, edge, spread, x.dtype), shape=shape)


def _multiplied(d: Drawing, edge: str, spread: float, dtype: str) -> Value:
    """Sums as codes: by one Mul or two, a Relu or a Tanh at times."""
    by = 1 / d.scale(spread, 8)
    shift = int(d.rng.integers(8, 24))
    steps = (np.rint(by * 2.0**shift), 2.0**-shift) if d.chance(2) and by * 2.0**shift < 2**24 else (by,)
    for factor in steps:
        edge = d.node("Mul", edge, d.constant(np.float32(factor)))
    if d.chance(3):
        edge = d.node("Relu", edge)
    zero, scale = _zero(d, dtype), 1.0
    if d.chance(6):
        edge = d.node(d.one_of(("Tanh", "Sigmoid")), d.node("Mul", edge, d.constant(np.float32(1 / 32))))
        scale = float(d.one_of((1 / 128, 0.01)))
    return Value(d.node("QuantizeLinear", edge, *_grid(d, scale, zero, dtype)), (), 80 * scale, dtype, scale, zero)


# Glue.


def qlinear_add(d: Drawing, x: Value) -> Value | None:
    """Codes of two grids, or of one edge, added on a third."""
    other = d.like(x)
    to = d.scale((x.scale + other.scale) * 100, 8), _zero(d, x.dtype)
    grids = [name for v in (x, other) for name in (v.name, *_grid(d, v.scale, v.zero, v.dtype))]
    return _codes_of(x, d.node("QLinearAdd", *grids, *_grid(d, *to, x.dtype), domain=MICROSOFT), x.shape, *to)


def qlinear_concat(d: Drawing, x: Value) -> Value | None:
    """Codes of other grids along the channels."""
    fits = [v for v in d.values if (v.shape[:1], v.shape[2:], v.dtype) == (x.shape[:1], x.shape[2:], x.dtype)]
    some = [x, *(d.one_of(fits) for _ in range(int(d.rng.integers(0, 3))))]
    to = (x.scale, x.zero) if d.chance(2) else (d.scale(x.scale * 100, 8), _zero(d, x.dtype))
    grids = [name for v in some for name in (v.name, *_grid(d, v.scale, v.zero, v.dtype))]
    channels = sum(v.shape[1] for v in some)
    if channels > 2 * CHANNELS[-1]:
        return None
    edge = d.node("QLinearConcat", *_grid(d, *to, x.dtype), *grids, domain=MICROSOFT, axis=1)
    return _codes_of(x, edge, (x.shape[0], channels, *x.shape[2:]), *to)


def qlinear_mean(d: Drawing, x: Value) -> Value | None:
    """The mean of an image."""
    if len(x.shape) != 4:
        return None
    to = d.scale(x.scale * 60, 8), _zero(d, x.dtype)
    grids = (*_grid(d, x.scale, x.zero, x.dtype), *_grid(d, *to, x.dtype))
    edge = d.node("QLinearGlobalAveragePool", x.name, *grids, domain=MICROSOFT, channels_last=0)
    return _codes_of(x, edge, (*x.shape[:2], 1, 1), *to)


def qlinear_function(d: Drawing, x: Value) -> Value | None:
    """A function of codes."""
    op = d.one_of(("QLinearSigmoid", "QLinearLeakyRelu"))
    to = d.scale(1.0 if op == "QLinearSigmoid" else x.scale * 100, 8), _zero(d, x.dtype)
    how: dict[str, Any] = {"alpha": float(d.one_of((0.125, 0.1)))} if op == "QLinearLeakyRelu" else {}
    edge = d.node(op, x.name, *_grid(d, x.scale, x.zero, x.dtype), *_grid(d, *to, x.dtype), domain=MICROSOFT, **how)
    return _codes_of(x, edge, x.shape, *to)


def requantized(d: Drawing, x: Value) -> Value | None:
    """Codes on another grid, through floats."""
    to = d.scale(x.scale * 100, 8), _zero(d, x.dtype)
    edge = d.node("DequantizeLinear", x.name, *_grid(d, x.scale, x.zero, x.dtype))
    edge = d.node("Relu", edge) if d.chance(2) else edge
    return _codes_of(x, d.node("QuantizeLinear", edge, *_grid(d, *to, x.dtype)), x.shape, *to)


_STEPS: dict[str, tuple[Step, ...]] = {
    "qlinear": (
        qlinear_conv,
        qlinear_conv,
        qlinear_matmul,
        qgemm,
        qlinear_add,
        qlinear_concat,
        qlinear_mean,
        qlinear_function,
        requantized,
        *MOVES,
    ),
    "integer": (product_of_integers, requantized, *MOVES),
}
