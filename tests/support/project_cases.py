"""Operators that are not of standard ONNX, each with inputs at which readings of its definition differ.

Inputs lie on ties of the rounding, below 0, beyond both ends of the results, and differ by channel. What the projects
that define the operators give for them is in `tests/golden/operators`, a file a project, which
`tests/project_goldens.py` writes. Float32 holds all that is computed of these numbers, so that the order of operations
does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper

from support.onnx_files import QONNX, model, node

CHANNELS_LAST = "qonnx.custom_op.channels_last"
OPENVINO = "org.openvinotoolkit"
VITIS, QUARK = "com.vai.quantize", "com.amd.quark"
PACT = "PACTOps"


@dataclass(frozen=True)
class Case:
    """A model of one operator, the values of its inputs, and the projects whose code has run it."""

    model: Any
    feed: Mapping[str, Any]
    projects: tuple[str, ...]

    @property
    def operator(self) -> tuple[str, str]:
        """The domain and the name of the operator, which is that of the first node."""
        first = self.model.graph.node[0]
        return first.domain, first.op_type


CASES: dict[str, Case] = {}


def case(name: str, nodes: Any, x: Any, given: Mapping[str, Any], *projects: str, version: int = 1) -> None:
    """Add a case of one input x; `version` is that of the operators' domain."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    file = model(nodes, {"x": x.shape}, given, domains={n.domain: version for n in nodes})
    CASES[name] = Case(file, {"x": x}, projects)


def _floats(values: Any) -> Any:
    """An array of float32."""
    return np.asarray(values, np.float32)


def _steps(count: int, by: float = 0.25) -> Any:
    """Numbers around 0, as many below as above, `by` from one to the next: (1, 4, count / 4)."""
    return (np.arange(count, dtype=np.float32).reshape(1, 4, -1) - count // 2) * np.float32(by)


def _image(seed: int, *shape: int, low: int = -8, high: int = 8) -> Any:
    """Whole numbers of an image."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float32)


# QONNX, with the operators that FINN makes of it.

_name: str
_more: Any
_ends: Any
_given: dict[str, Any]
_window: dict[str, Any]
_CHANNEL_SCALES = _floats([0.5, 1, 2, 0.25]).reshape(1, 4, 1)
_MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")


def _quant(name: str, bits: float, scale: Any = 0.5, zero: Any = 0.0, *, op: str = "Quant", **attributes: Any) -> None:
    given = {"s": _floats(scale), "z": _floats(zero), "b": _floats(bits)}
    every: dict[str, Any] = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"} | attributes
    case(f"{op}: {name}", node(op, "x s z b", domain=QONNX, **every), _steps(160), given, "qonnx")


for _mode in _MODES:
    _quant(f"{_mode}, signed, 4 bits", 4, rounding_mode=_mode)
    _quant(f"{_mode}, unsigned, a zero point", 5, zero=7, signed=0, rounding_mode=_mode)
_quant("a zero point between two integers", 4, zero=0.5)
_quant("a scale a channel", 3, _CHANNEL_SCALES)
_quant("narrow", 3, narrow=1)
_quant("narrow and unsigned", 3, signed=0, narrow=1)
_quant("1 bit", 1)
_quant("1 bit, a zero point", 1, zero=2)
_quant("1 bit, unsigned", 1, signed=0)
_quant("2 bits, narrow: ternary", 2, narrow=1)
_quant("lower case", 4, rounding_mode="half_up")
_quant("signed", 4, op="IntQuant")
_quant("unsigned, a zero point", 4, zero=3, signed=0, op="IntQuant")

case("BipolarQuant: one scale", node("BipolarQuant", "x s", domain=QONNX), _steps(16), {"s": _floats(0.5)}, "qonnx")
case("BipolarQuant: a channel", node("BipolarQuant", "x s", domain=QONNX), _steps(16), {"s": _CHANNEL_SCALES}, "qonnx")

for _mode in _MODES:
    _given = {"s": _floats(0.5), "z": _floats(0), "i": _floats(8), "o": _floats(5), "t": _floats(4)}
    _x = _steps(160, 0.5)
    _node = node("Trunc", "x s z i o", domain=QONNX, rounding_mode=_mode)
    case(f"Trunc: version 1, {_mode}", _node, _x, _given, "qonnx")
    for _signed in (0, 1):
        _node = node("Trunc", "x s z i t o", domain=QONNX, rounding_mode=_mode, signed=_signed, narrow=1)
        _name = f"Trunc: version 2, {_mode}, {'signed' if _signed else 'unsigned'}"
        case(_name, _node, _x, _given | {"o": _floats(3)}, "qonnx", version=2)
_given |= {"z": _floats(8)}
_node = node("Trunc", "x s z i o", domain=QONNX, rounding_mode="FLOOR")
case("Trunc: version 1, a zero point", _node, _x, _given, "qonnx")

_THRESHOLDS = _floats([[-3, -1, 0.5, 2], [0, 0, 1, 1], [-4, 2, 3, 4], [-1, 0, 1, 2]])


def _thresholds(name: str, x: Any, thresholds: Any = _THRESHOLDS, **attributes: Any) -> None:
    one = node("MultiThreshold", "x t", domain=QONNX, out_dtype="INT8", **attributes)
    case(f"MultiThreshold: {name}", one, x, {"t": thresholds}, "qonnx")


_SMALL = _steps(64, 0.5)
_thresholds("NCHW", _SMALL.reshape(1, 4, 4, 4), data_layout="NCHW")
_thresholds("NHWC", _SMALL.reshape(1, 4, 4, 4), data_layout="NHWC")
_thresholds("no layout, an image", _SMALL.reshape(1, 4, 4, 4))
_thresholds("no layout, rows", _SMALL.reshape(16, 4))
_thresholds("no layout, a sequence", _SMALL.reshape(1, 16, 4))
_thresholds("NWC", _SMALL.reshape(1, 16, 4), data_layout="NWC")
_thresholds("NCW", _SMALL.reshape(1, 4, 16), data_layout="NCW")
_thresholds("NC", _SMALL.reshape(16, 4), data_layout="NC")
_thresholds("bipolar", _SMALL.reshape(16, 4), _THRESHOLDS[:1, :1], out_scale=2.0, out_bias=-1.0)
_thresholds("a scale and an offset", _SMALL.reshape(16, 4), out_scale=0.5, out_bias=-1.0)
_thresholds("an offset between two steps", _SMALL.reshape(16, 4), out_scale=0.5, out_bias=0.125)
_thresholds("one row", _SMALL.reshape(16, 4), _THRESHOLDS[:1])

_PATCHES: dict[str, Any] = {"input_shape": "(1, 6, 5, 3)", "kernel_size": [3, 2]}
for _name, _more in {
    "strides": {"stride": [2, 1]},
    "pads": {"stride": [1, 1], "pad_amount": [1, 0, 2, 1]},
    "dilations": {"stride": [1, 1], "dilations": [2, 3]},
    "depthwise": {"stride": [1, 1], "depthwise": 1},
}.items():
    _node = node("Im2Col", "x", domain=QONNX, **_PATCHES, **_more)
    case(f"Im2Col: {_name}", _node, _image(1, 1, 6, 5, 3), {}, "qonnx")
_POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
for _name, _more in {
    "plain": {"pads": [0] * 4},
    "pads": {"pads": [1] * 4},
    "ceil": {"pads": [0] * 4, "ceil_mode": 1},
}.items():
    _node = node("MaxPoolNHWC", "x", domain=QONNX, **_POOL, **_more)
    case(f"MaxPoolNHWC: {_name}", _node, _image(2, 1, 7, 5, 3), {}, "qonnx")
for _name, _more in {
    "unsigned": {"ibits": 4, "obits": 4, "signed": 0},
    "to fewer bits": {"ibits": 4, "obits": 2, "signed": 0},
    "signed": {"ibits": 4, "obits": 4, "signed": 1},
    "channels last": {"ibits": 4, "obits": 4, "signed": 1, "data_layout": "NHWC"},
}.items():
    _given = {"s": _floats(1), "z": _floats(0), "b": _floats(4)}
    _codes = node("Quant", "x s z b", "q", domain=QONNX, signed=_more["signed"], narrow=0)
    _node = node("QuantAvgPool2d", "q", domain=QONNX, kernel=3, stride=2, **_more)
    _low, _high = (-8, 8) if _more["signed"] else (0, 16)
    case(f"QuantAvgPool2d: {_name}", [_codes, _node], _image(3, 1, 7, 7, 7, low=_low, high=_high), _given, "qonnx")
_bits = {"w": _image(5, 9, 4, low=0, high=2)}
_node = node("XnorPopcountMatMul", "x w", domain=QONNX)
case("XnorPopcountMatMul: bits", _node, _image(4, 6, 9, low=0, high=2), _bits, "qonnx")

_given = {"w": _image(6, 4, 3, 2, 3), "b": _image(7, 4)}
_window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 1], "group": 1}
_node = node("Conv", "x w b", domain=CHANNELS_LAST, **_window)
case("channels last Conv", _node, _image(8, 1, 7, 5, 3), _given, "qonnx", version=14)
_window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0], "dilations": [1, 1]}
_node = node("MaxPool", "x", domain=CHANNELS_LAST, **_window)
case("channels last MaxPool", _node, _image(9, 1, 6, 4, 3), {}, "qonnx", version=14)
_given = {k: _floats(v) for k, v in {"g": [1, 2, -1], "b": [0.5, 0, 3], "m": [1, -2, 0], "v": [1, 4, 0.25]}.items()}
_node = node("BatchNormalization", "x g b m v", domain=CHANNELS_LAST, epsilon=0.0)
case("channels last BatchNormalization", _node, _image(10, 1, 6, 4, 3), _given, "qonnx", version=14)

# Quark, which also answers to Vitis AI's domain.

for _domain, _prefix in ((QUARK, "Extended"), (VITIS, "Vitis")):
    for _type, _zero in ((np.int8, -3), (np.uint8, 5), (np.int16, 100), (np.uint16, 7)):
        _given = {"s": _floats(0.5), "z": _type(_zero)}
        _nodes = [
            node(f"{_prefix}QuantizeLinear", "x s z", "q", domain=_domain),
            node(f"{_prefix}DequantizeLinear", "q s z", domain=_domain),
        ]
        case(f"{_prefix}QuantizeLinear: {_type.__name__}", _nodes, _steps(1200), _given, "quark")
    _given = {"s": _CHANNEL_SCALES.reshape(4), "z": np.array([0, 1, -2, 3], np.int8)}
    _nodes = [
        node(f"{_prefix}QuantizeLinear", "x s z", "q", domain=_domain, axis=1),
        node(f"{_prefix}DequantizeLinear", "q s z", domain=_domain, axis=1),
    ]
    case(f"{_prefix}QuantizeLinear: a scale a channel", _nodes, _steps(1200), _given, "quark")

# OpenVINO.

for _name, _ends, _levels in (
    ("around 0", (-2, 1.75, -2, 1.75), 16),
    ("weights", (-1.75, 1.75, -1.75, 1.75), 15),
    ("from 0", (0, 3.75, 0, 3.75), 16),
    ("another scale", (0, 3.75, -4, 11), 16),
    ("a zero point", (-0.5, 3.25, -0.5, 3.25), 16),
    ("two levels", (-3, 2, -1, 1), 2),
):
    _given = dict(zip("abcd", _floats(_ends), strict=True))
    _node = node("FakeQuantize", "x a b c d", domain=OPENVINO, levels=_levels)
    case(f"FakeQuantize: {_name}", _node, _steps(160, 0.0625), _given, "openvino")
_ends = _floats([0.5, 1, 2, 4]).reshape(1, 4, 1)
_given = {"a": -_ends, "b": _ends * 0.75, "c": -_ends, "d": _ends * 0.75}
_node = node("FakeQuantize", "x a b c d", domain=OPENVINO, levels=8)
case("FakeQuantize: a channel", _node, _steps(160, 0.0625), _given, "openvino")

# Quantlab and Deeploy.


def _requant(name: str, mul: Any, add: Any, *projects: str, div: int = 256, levels: int = 256, signed: int = 1) -> None:
    attributes = {"div": div, "n_levels_out": levels, "signed": signed}
    given = {"m": _floats(mul), "a": _floats(add)}
    one = node("RequantShift", "x m a", domain=PACT, **{k: _tensor_of(v) for k, v in attributes.items()})
    case(f"RequantShift: {name}", one, np.arange(-800, 800, dtype=np.float32).reshape(1, 4, 400), given, *projects)


def _tensor_of(value: int) -> Any:
    """A number as Quantlab writes it: an attribute that is a tensor of one float."""
    return numpy_helper.from_array(_floats([value]))


_BOTH = "deeploy", "quantlab"
_requant("signed", 96, 0, *_BOTH)
_requant("unsigned", 96, 0, *_BOTH, signed=0)
_requant("an offset", 37, -1201, *_BOTH)
_requant("less than 0 as a factor", -64, 33, *_BOTH)
_requant("a channel", np.array([[1], [64], [-300], [128]]), np.array([[128], [-128], [7], [0]]), *_BOTH)
_requant("div of 1", 1, 3, *_BOTH, div=1)
_requant("div of 2", 1, 0, *_BOTH, div=2)
_requant("16 levels", 9, 5, *_BOTH, levels=16)
_requant("100 levels", 40, 5, *_BOTH, levels=100)
_requant("200 levels, unsigned", 80, 128, *_BOTH, levels=200, signed=0)
_requant("15 levels, unsigned", 9, 5, "quantlab", levels=15, signed=0)


# DORY, whose networks Quantlab writes.


def _sum(name: str, signed: tuple[int, int], **attributes: int) -> None:
    """A sum of codes of 8 bits, one of which counts up while the other counts down three times as fast."""
    count = np.arange(256, dtype=np.float32).reshape(1, 4, 64)
    every: dict[str, Any] = {
        f"{part}_{key}": value
        for part in ("in1", "in2", "out")
        for key, value in (("mul", 1), ("add", 0), ("shift", 0), ("n_levels", 256), ("rq", 0))
    }
    given = {"s": _floats(1), "z": _floats(0), "b": _floats(8), "w": _floats((-3 * count) % 256 - 128 * signed[1])}
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=signed[0], narrow=0),
        node("Add", "q w", **every | attributes),
    ]
    case(f"Add: {name}", nodes, count - 128 * signed[0], given, "dory")


_IN1: dict[str, int] = {"in1_mul": 300, "in1_add": 512, "in1_shift": 10, "in1_rq": 1}
_IN2: dict[str, int] = {"in2_mul": -90, "in2_add": 100, "in2_shift": 6, "in2_rq": 1}
_OUT: dict[str, int] = {"out_mul": 77, "out_add": -1000, "out_shift": 7, "out_rq": 1}
for _signs in ((0, 0), (1, 0), (1, 1)):
    _name = " and ".join(("codes without a sign", "codes with one")[sign] for sign in _signs)
    _sum(f"{_name}, as they are", _signs)
    _sum(f"{_name}, both rescaled", _signs, **_IN1, **_IN2)
    _sum(f"{_name}, all rescaled", _signs, **_IN1, **_IN2, **_OUT)
    _sum(f"{_name}, the result without a sign", _signs, **_IN1, **_OUT, out_signed=0)
    _sum(f"{_name}, the result with a sign", _signs, **_IN2, out_signed=1)


def of_project(name: str) -> Iterator[tuple[str, Case]]:
    """The cases that a project's code has run, with their names."""
    return ((key, case) for key, case in CASES.items() if name in case.projects)
