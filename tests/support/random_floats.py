"""Layers of random networks in floats between quantizers: QONNX, QCDQ and QDQ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.onnx_files import QONNX
from support.random_drawing import CHANNELS, Drawing, Step, Value, Window
from support.random_moves import MOVES
from support.random_quantizers import quantize, weights

_SMOOTH = ("LeakyRelu", "HardSwish", "HardSigmoid", "Sigmoid", "Tanh")


def begin(d: Drawing) -> None:
    """One input or two, quantized or not."""
    shape = d.shape()
    for _ in range(1 + d.chance(4)):
        scale = float(d.one_of((1.0, 0.5, 0.25) if d.dyadic else (1.0, 0.5, 0.25, 0.1)))
        x = d.given(shape, scale=scale, spread=float(d.one_of((1.0, 4.0, 30.0))))
        d.values[-1] = replace(x, scale=0.0)
    d.values.append(quantize(d, d.values[-1]))


def step(d: Drawing) -> None:
    """Add a random layer that fits."""
    while not d.keep(d.rng.choice(np.array(_STEPS, object), p=_CHANCES)(d, d.pick())):
        pass


def end(d: Drawing) -> None:
    """The outputs: the last edge, more at times, at times quantized, a constant, or what ends networks."""
    last = d.values[-1]
    if d.chance(3):
        last = quantize(d, last)
    if d.chance(10):
        last = replace(last, name=d.node("Identity" if d.dyadic else d.one_of(("Softmax", "Identity")), last.name))
    d.outputs.append(last)
    d.outputs += [v for v in d.values if d.chance(8) and v != last and v not in d.inputs]
    if d.chance(15):
        d.outputs.append(weights(d, (2, 3))[0])
    if d.chance(8):
        d.outputs.append(chosen(d, last))


def chosen(d: Drawing, x: Value) -> Value:
    """Where the greatest or least of each row is, or what."""
    op, axis = d.one_of(("ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "ReduceSum")), len(x.shape) - 1
    if op[0] == "A":
        edge = d.node(op, x.name, axis=axis, keepdims=int(d.chance(2)), select_last_index=int(d.chance(2)))
        return Value(edge, (), dtype="int64")
    axes = [d.constant(np.array([axis]))] if d.dialect == "qdq" or op == "ReduceSum" else []
    how: dict[str, Any] = {} if axes else {"axes": [axis]}
    return Value(d.node(op, x.name, *axes, **how), ())


# Layers.


def conv(d: Drawing, x: Value) -> Value | None:
    """A convolution, of groups at times, with a bias, batch norm and activation at times, and a quantizer."""
    if len(x.shape) not in (3, 4):
        return None
    x = x if x.scale or (d.chance(6) and not d.dyadic) else quantize(d, x)
    channels, w = x.shape[1], Window.drawn(d, x.shape[2:])
    groups = int(d.one_of([1, 1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0)]))
    out = groups * int(d.one_of((1, 1, 2))) if groups > 1 else int(d.one_of(CHANNELS))
    wgt, scale = weights(d, (out, channels // groups, *w.kernel))
    given = [x.name, wgt.name, *_bias(d, x, scale, out)]
    edge = d.node("Conv", *given, kernel_shape=w.kernel, group=groups, **w.attributes)
    spread = x.spread * wgt.spread * np.sqrt(np.prod(wgt.shape[1:]))
    return finished(d, Value(edge, (x.shape[0], out, *w.out), float(spread)))


def dense(d: Drawing, x: Value) -> Value | None:
    """A matrix product, as Gemm or as MatMul of any number of axes."""
    x = x if x.scale or (d.chance(6) and not d.dyadic) else quantize(d, x)
    out = int(d.one_of(CHANNELS))
    if x.shape[-1] > 600:
        return None
    wgt, scale = weights(d, (out, x.shape[-1]))
    if len(x.shape) == 2 and d.chance(2):
        edge = d.node("Gemm", x.name, wgt.name, *_bias(d, x, scale, out), transB=1)
    else:
        edge = d.node("MatMul", x.name, d.node("Transpose", wgt.name, perm=[1, 0]))
        bias = _bias(d, x, scale, out)
        edge = d.node("Add", edge, *bias) if bias else edge
    spread = x.spread * wgt.spread * np.sqrt(x.shape[-1])
    return finished(d, Value(edge, (*x.shape[:-1], out), float(spread)))


def _bias(d: Drawing, x: Value, scale: NDArray[Any], out: int) -> list[str]:
    """A bias of floats, of codes on the scale of the sums, or none."""
    kind = int(d.rng.integers(0, 4))
    if kind == 0:
        return []
    codes = d.rng.integers(-200, 200, out)
    if (kind == 1 and not d.dyadic) or not x.scale:
        return [d.constant((codes * 0.013 * x.spread).astype(np.float32))]
    step = np.float32(x.scale) * scale
    if d.dialect == "qonnx" or kind == 2:
        return [d.constant((codes * step).astype(np.float32))]
    return [
        d.node(
            "DequantizeLinear",
            d.constant(codes.astype(np.int32)),
            d.constant(step.reshape(-1) if step.size > 1 else step.reshape(())),
            axis=0,
        )
    ]


def finished(d: Drawing, x: Value) -> Value:
    """Sums through batch norm and activation, each at times, into codes, mostly."""
    if d.chance(3) and not d.dyadic:
        x = batch_norm(d, x)
    if d.chance(2):
        x = activation(d, x)
    return x if d.chance(6) else quantize(d, x)


def batch_norm(d: Drawing, x: Value) -> Value:
    """Another gain and bias for each channel; gains below 0 and 0 among them."""
    channels = x.shape[1]
    gain = d.rng.uniform(0.3, 2, channels) * d.rng.choice([1, 1, 1, -1], channels)
    if d.chance(6):
        gain[0] = 0
    mean, bias = d.rng.normal(size=(2, channels)) * x.spread / 2
    variance = (x.spread * d.rng.uniform(0.5, 1.5, channels)) ** 2
    if d.chance(3):
        gain, bias, mean, variance = np.sign(gain), np.rint(bias / x.spread), mean * 0, variance * 0 + 1
    given = (d.constant(v.astype(np.float32)) for v in (gain, bias, mean, variance))
    edge = d.node("BatchNormalization", x.name, *given, epsilon=float(d.one_of((1e-5, 1e-3))))
    return Value(edge, x.shape, 2.0 if variance[0] != 1 else 2 * x.spread)


def activation(d: Drawing, x: Value) -> Value:
    """A function of each number."""
    kind = d.one_of(("Relu", "Relu", "Clip") if d.dyadic else ("Relu", "Relu", "Relu", "Clip", *_SMOOTH))
    if kind == "HardSwish" and d.dialect != "qdq":
        kind = "Relu"
    if kind == "Clip":
        ends = (d.constant(np.float32(v)) for v in (0, 6 if d.dyadic else d.one_of((6, x.spread))))
        return Value(d.node("Clip", x.name, *ends), x.shape, x.spread)
    alpha: dict[str, Any] = {"alpha": float(d.one_of((0.125, 0.1)))} if kind == "LeakyRelu" else {}
    grid = x if kind == "Relu" else Value("", ())
    value = Value(d.node(kind, x.name, **alpha), x.shape, x.spread, scale=grid.scale, zero=grid.zero)
    return replace(value, spread=1.0) if kind in ("HardSigmoid", "Sigmoid", "Tanh") else value


def activate(d: Drawing, x: Value) -> Value | None:
    """A function of codes, quantized again or not."""
    value = activation(d, x) if d.rng.integers(0, 3) else _unusual(d, x)
    return quantize(d, value) if d.rng.integers(0, 3) else value


def _unusual(d: Drawing, x: Value) -> Value:
    """A sign or a size, or of that the square, the root or e to the power of less than it."""
    size = Value(d.node("Abs" if d.chance(2) else "Neg", x.name), x.shape, x.spread)
    op = d.one_of(("", "Pow")) if d.dyadic else d.one_of(("", "Pow", "Sqrt", "Exp"))
    if op == "Pow":
        return Value(d.node("Pow", size.name, d.constant(np.float32(2))), x.shape, x.spread**2)
    if op:
        edge = d.node("Min", size.name, d.constant(np.float32(1))) if op == "Exp" else d.node("Abs", size.name)
        return Value(d.node(op, edge), x.shape, 1 + x.spread**0.5)
    return size


def residual(d: Drawing, x: Value) -> Value | None:
    """Two edges of one shape added, on one scale or two; an edge to itself at times."""
    other = d.like(x)
    if x.scale and d.chance(2):
        other = quantize(d, other, like=x)
    pair = [x, other] if d.chance(2) else [other, x]
    value = Value(
        d.node(d.one_of(("Add", "Add", "Add", "Sub", "Max", "Min")), *(v.name for v in pair)),
        x.shape,
        x.spread + other.spread,
    )
    return finished(d, value) if d.rng.integers(0, 4) else value


def tree(d: Drawing, x: Value) -> Value | None:
    """Sums of three edges or four, some pooled, added one by one or in pairs."""
    some = [v if d.chance(2) else quantize(d, v) for v in (x, *(d.like(x) for _ in range(int(d.rng.integers(2, 4)))))]
    if len(x.shape) == 4 and d.chance(2):
        how: dict[str, Any] = {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}
        some[0] = replace(some[0], name=d.node("MaxPool", some[0].name, **how))
    while len(some) > 1:
        a, b = some.pop(0), some.pop(0 if d.chance(2) else -1)
        some.append(Value(d.node("Add", a.name, b.name), x.shape, a.spread + b.spread))
    return finished(d, some[0]) if d.rng.integers(0, 4) else some[0]


def channels_last(d: Drawing, x: Value) -> Value | None:
    """Channels moved to the end, there a layer or a quantizer, and back again at times."""
    if len(x.shape) != 4:
        return None
    n, c, h, w = x.shape
    last = replace(x, name=d.node("Transpose", x.name, perm=[0, 2, 3, 1]), shape=(n, h, w, c))
    value = (dense(d, last) if d.chance(2) else None) or quantize(d, last)
    if d.chance(3):
        return value
    back = d.node("Transpose", value.name, perm=[0, 3, 1, 2])
    return replace(value, name=back, shape=(n, value.shape[3], h, w))


def scaled(d: Drawing, x: Value) -> Value | None:
    """Times, over, plus or minus a number, or one a channel."""
    shape = (1, x.shape[1], *[1] * (len(x.shape) - 2)) if d.chance(2) else ()
    op = d.one_of(("Mul", "Div", "Add", "Sub"))
    by = d.rng.uniform(0.5, 2, shape) if d.chance(2) and not d.dyadic else 2.0 ** d.rng.integers(-2, 3, shape)
    unit = 1 if op in ("Mul", "Div") else 2.0 ** np.rint(np.log2(x.spread)) if d.dyadic else x.spread
    edge = d.node(op, x.name, d.constant(np.asarray(by * unit, np.float32)))
    return Value(edge, x.shape, 1.5 * x.spread)


def average(d: Drawing, x: Value) -> Value | None:
    """Means of windows, of whole images or of an axis."""
    if len(x.shape) < 3 or d.dyadic:
        return None
    kind = int(d.rng.integers(0, 3))
    if kind == 0:
        value = Value(d.node("GlobalAveragePool", x.name), (*x.shape[:2], *[1] * (len(x.shape) - 2)), x.spread)
    elif kind == 1:
        how: dict[str, Any] = {"axes": [len(x.shape) - 1]} if d.dialect != "qdq" else {}
        axes = [] if how else [d.constant(np.array([len(x.shape) - 1]))]
        value = Value(d.node("ReduceMean", x.name, *axes, keepdims=0, **how), x.shape[:-1], x.spread)
    else:
        w = Window.drawn(d, x.shape[2:], most_pad=1)
        about: dict[str, Any] = {"strides": w.strides, "pads": w.pads, "count_include_pad": int(d.chance(2))}
        w = replace(w, dilations=(1,) * len(w.kernel))
        value = Value(d.node("AveragePool", x.name, kernel_shape=w.kernel, **about), (*x.shape[:2], *w.out), x.spread)
    return quantize(d, value) if d.rng.integers(0, 3) else value


def again(d: Drawing, x: Value) -> Value | None:
    """Codes of codes: on another grid, or with their low bits dropped."""
    if d.dialect == "qonnx" and x.scale and d.chance(2):
        out = int(d.rng.integers(1, 5))
        given = (d.constant(np.float32(v)) for v in (x.scale, 0, 8, out))
        how = d.one_of(("FLOOR", "ROUND", "CEIL"))
        return replace(x, name=d.node("Trunc", x.name, *given, domain=QONNX, rounding_mode=how), scale=0.0)
    return quantize(d, x)


def shifted(d: Drawing, x: Value) -> Value | None:
    """Whole numbers times, plus, over a power of two, cut off and within limits, as integerized networks do it."""
    if x.scale != 1 or x.zero:
        return None
    numbers = d.rng.integers(1, 200), d.rng.integers(-500, 500), 2 ** d.rng.integers(4, 9)
    edge = x.name
    for op, by in zip(("Mul", "Add", "Div"), numbers, strict=True):
        edge = d.node(op, edge, d.constant(np.float32(by)))
    bits = int(d.rng.integers(1, 9))
    ends = (d.constant(np.float32(v)) for v in (0, (1 << bits) - 1))
    edge = d.node("Clip", d.node("Floor", edge), *ends)
    return replace(x, name=edge, spread=2.0**bits / 3)


_STEPS: tuple[Step, ...] = (
    conv,
    dense,
    residual,
    tree,
    channels_last,
    scaled,
    average,
    activate,
    again,
    shifted,
    *MOVES,
)
_CHANCES = np.array([12, 5, 5, 1.5, 1, 1, 2, 2, 1, 1, *[0.8] * len(MOVES)])
_CHANCES /= _CHANCES.sum()
