"""Small TensorFlow Lite networks of one operator each, for tests: a file and its inputs, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from support.tflite_files import Op, Tensor, build, constant

Case = tuple[bytes, dict[str, Any]]
"""The bytes of a file, and arrays by the name of an input."""
IMAGE = (1, 6, 5, 8)
EVERY_CODE = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
_STRIDES = {"StrideW": 2, "StrideH": 2}
_POOL = {"FilterWidth": 3, "FilterHeight": 3, **_STRIDES}


class Draw:
    """Scales, zero points and codes of one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.grids = {k: self._grid() for k in ("x", "z", "y")}
        self.codes = self.rng.integers(-128, 128, IMAGE).astype(np.int8)
        self.floats = (self.rng.standard_normal(IMAGE) * 3).astype(np.float32)

    def _grid(self) -> dict[str, Any]:
        return {"scale": [np.float32(self.rng.uniform(0.005, 0.1))], "zero": [int(self.rng.integers(-20, 20))]}

    def tensor(self, name: str, shape: Sequence[int], grid: str = "") -> Tensor:
        """Return a tensor of codes, on its own grid or another tensor's."""
        return Tensor(name, shape, **self.grids[grid or name])

    def weights(self, shape: Sequence[int], axis: int, count: int, *, dtype: str = "int8") -> Tensor:
        """Return weights with a scale for each channel, or one for all."""
        most = 127 if dtype == "int8" else 7
        value = self.rng.integers(-most, most + 1, shape)
        scale = self.rng.uniform(0.002, 0.02, count).astype(np.float32) * (127 / most)
        return constant("w", value, dtype, scale=scale, zero=[0] * count, axis=axis)

    def bias(self, weights: Tensor, count: int) -> Tensor:
        """Return a bias on the scale of sums."""
        scale = np.asarray(weights.scale, np.float32) * self.grids["x"]["scale"][0]
        return constant("b", self.rng.integers(-500, 500, count), scale=scale, zero=[0] * len(scale))


def _one(draw: Draw, op: str, shape: Sequence[int], options: Mapping[str, Any] | None = None, **more: Any) -> Case:
    """Return the case of an operator of one input of codes, whose result has a shape."""
    same, constants = more.pop("same", True), more.pop("constants", ())
    x = more.pop("x", draw.codes)
    tensors = [draw.tensor("x", x.shape), *constants, draw.tensor("y", shape, "x" if same else "")]
    ops = [Op(op, ["x", *(c.name for c in constants)], ["y"], options or {})]
    return build(tensors, ops, ["x"], ["y"]), {"x": x}


def _of_every_code(op: str, **options: Any) -> Callable[[Draw], Case]:
    return lambda draw: _one(draw, op, EVERY_CODE.shape, options, same=False, x=EVERY_CODE)


def _on_fixed_grid(op: str, scale: float, zero: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        tensors = [draw.tensor("x", EVERY_CODE.shape), Tensor("y", EVERY_CODE.shape, scale=[scale], zero=[zero])]
        return build(tensors, [Op(op, ["x"], ["y"], {"Beta": 1.0} if op == "SOFTMAX" else {})], ["x"], ["y"]), {
            "x": EVERY_CODE
        }

    return case


def _softmax(draw: Draw) -> Case:
    x = draw.rng.integers(-128, 128, (40, 10)).astype(np.int8)
    tensors = [draw.tensor("x", x.shape), Tensor("y", x.shape, scale=[1 / 256], zero=[-128])]
    return build(tensors, [Op("SOFTMAX", ["x"], ["y"], {"Beta": 1.0})], ["x"], ["y"]), {"x": x}


def _binary(op: str, other: Sequence[int] = IMAGE, **options: Any) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        z = draw.rng.integers(-128, 128, other).astype(np.int8)
        tensors = [draw.tensor("x", IMAGE), draw.tensor("z", other), draw.tensor("y", IMAGE)]
        return build(tensors, [Op(op, ["x", "z"], ["y"], options)], ["x", "z"], ["y"]), {"x": draw.codes, "z": z}

    return case


def _convolution(op: str, *, per_channel: bool = True, dtype: str = "int8", padding: int = 0) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        depthwise = op == "DEPTHWISE_CONV_2D"
        channels = 8 if depthwise else 12
        shape, axis = ((1, 3, 3, 8), 3) if depthwise else ((12, 3, 3, 8), 0)
        w = draw.weights(shape, axis, channels if per_channel else 1, dtype=dtype)
        options = {"Padding": padding, **_STRIDES, "DilationWFactor": 1, "DilationHFactor": 1}
        options |= {"DepthMultiplier": 1} if depthwise else {}
        size = (1, 2, 2, channels) if padding else (1, 3, 3, channels)
        tensors = [draw.tensor("x", IMAGE), w, draw.bias(w, channels), draw.tensor("y", size)]
        return build(tensors, [Op(op, ["x", "w", "b"], ["y"], options)], ["x"], ["y"]), {"x": draw.codes}

    return case


def _wide(op: str, shape: Sequence[int], axis: int, size: Sequence[int], **options: Any) -> Callable[[Draw], Case]:
    """Return the case of a convolution to 16 channels: dilated, of several groups, or with a factor above 1."""

    def case(draw: Draw) -> Case:
        w = draw.weights(shape, axis, 16)
        y = Tensor("y", size, scale=[0.02], zero=[3])
        given = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1, **options}
        op_ = Op(op, ["x", "w", "b"], ["y"], given)
        return build([draw.tensor("x", IMAGE), w, draw.bias(w, 16), y], [op_], ["x"], ["y"]), {"x": draw.codes}

    return case


def _dense(*, per_channel: bool = False, activation: int = 0) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        x = draw.rng.integers(-128, 128, (7, 16)).astype(np.int8)
        w = draw.weights((9, 16), 0, 9 if per_channel else 1)
        tensors = [draw.tensor("x", x.shape), w, draw.bias(w, 9), draw.tensor("y", (7, 9))]
        op = Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], {"FusedActivationFunction": activation})
        return build(tensors, [op], ["x"], ["y"]), {"x": x}

    return case


def _transposed(draw: Draw) -> Case:
    w = draw.weights((4, 3, 3, 8), 0, 4)
    tensors = [constant("o", [1, 12, 10, 4]), w, draw.tensor("x", IMAGE), draw.bias(w, 4)]
    tensors.append(draw.tensor("y", (1, 12, 10, 4)))
    return build(
        tensors, [Op("TRANSPOSE_CONV", ["o", "w", "x", "b"], ["y"], {"Padding": 0, **_STRIDES})], ["x"], ["y"]
    ), {"x": draw.codes}


def _prelu(draw: Draw) -> Case:
    slopes = constant("a", draw.rng.integers(-128, 128, (1, 1, 8)), "int8", scale=[0.01], zero=[3])
    return _one(draw, "PRELU", IMAGE, same=False, constants=(slopes,))


def _resized(op: str, *, align: bool, half: bool) -> Callable[[Draw], Case]:
    options = {"AlignCorners": align, "HalfPixelCenters": half}
    return lambda draw: _one(draw, op, (1, 11, 7, 8), options, constants=(constant("s", [11, 7]),))


def _quantize(draw: Draw) -> Case:
    ties = (np.arange(48) - 24 + np.float32(0.5)) * np.float32(draw.grids["y"]["scale"][0])
    x = draw.floats.copy()
    x.reshape(-1)[:48] = ties
    return build(
        [Tensor("x", IMAGE, "float32"), draw.tensor("y", IMAGE)], [Op("QUANTIZE", ["x"], ["y"])], ["x"], ["y"]
    ), {"x": x}


def _dequantize(draw: Draw) -> Case:
    tensors = [draw.tensor("x", IMAGE), Tensor("y", IMAGE, "float32")]
    return build(tensors, [Op("DEQUANTIZE", ["x"], ["y"])], ["x"], ["y"]), {"x": draw.codes}


def _joined(draw: Draw) -> Case:
    z = draw.codes[:, ::-1].copy()
    tensors = [draw.tensor("x", IMAGE), draw.tensor("z", IMAGE, "x"), draw.tensor("y", (1, 6, 5, 16), "x")]
    return build(tensors, [Op("CONCATENATION", ["x", "z"], ["y"], {"Axis": 3})], ["x", "z"], ["y"]), {
        "x": draw.codes,
        "z": z,
    }


def _packed(draw: Draw) -> Case:
    x, z = draw.codes.reshape(2, -1)[:, :6].reshape(2, 1, 6)
    tensors = [draw.tensor("x", (1, 6)), draw.tensor("z", (1, 6), "x"), draw.tensor("y", (1, 2, 6), "x")]
    op = Op("PACK", ["x", "z"], ["y"], {"Axis": 1, "ValuesCount": 2})
    return build(tensors, [op], ["x", "z"], ["y"]), {"x": x, "z": z}


def _split(draw: Draw) -> Case:
    tensors = [constant("a", 3), draw.tensor("x", IMAGE), draw.tensor("y", (1, 6, 5, 4), "x")]
    tensors.append(draw.tensor("z", (1, 6, 5, 4), "x"))
    return build(tensors, [Op("SPLIT", ["a", "x"], ["y", "z"], {"NumSplits": 2})], ["x"], ["y", "z"]), {"x": draw.codes}


def _sliced(draw: Draw) -> Case:
    limits = constant("b", [0, 1, 0, 0]), constant("e", [0, 5, -1, 8]), constant("s", [1, 2, 1, 3])
    options = {"BeginMask": 1, "EndMask": 8, "ShrinkAxisMask": 1}
    return _one(draw, "STRIDED_SLICE", (2, 4, 3), options, constants=limits)


def _pooled(op: str, activation: int = 0) -> Callable[[Draw], Case]:
    return lambda draw: _one(draw, op, (1, 3, 3, 8), {"Padding": 0, **_POOL, "FusedActivationFunction": activation})


def _mean(draw: Draw) -> Case:
    return _one(draw, "MEAN", (1, 8), {"KeepDims": False}, same=False, constants=(constant("a", [1, 2]),))


def _moved(op: str, shape: Sequence[int], given: Any, **options: Any) -> Callable[[Draw], Case]:
    return lambda draw: _one(draw, op, shape, options, constants=(constant("p", given),))


def _float_convolution(draw: Draw) -> Case:
    w = constant("w", draw.rng.standard_normal((12, 3, 3, 8)), "float32")
    b = constant("b", draw.rng.standard_normal(12), "float32")
    tensors = [Tensor("x", IMAGE, "float32"), w, b, Tensor("y", (1, 6, 5, 12), "float32")]
    options = {"Padding": 0, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": 3}
    return build(tensors, [Op("CONV_2D", ["x", "w", "b"], ["y"], options)], ["x"], ["y"]), {"x": draw.floats}


def _float(op: str, shape: Sequence[int] = IMAGE, **options: Any) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        tensors = [Tensor("x", IMAGE, "float32"), Tensor("y", shape, "float32")]
        return build(tensors, [Op(op, ["x"], ["y"], options)], ["x"], ["y"]), {"x": draw.floats}

    return case


def _float_pair(op: str) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        z = draw.floats[:, ::-1].copy()
        tensors = [Tensor(name, IMAGE, "float32") for name in "xzy"]
        return build(tensors, [Op(op, ["x", "z"], ["y"])], ["x", "z"], ["y"]), {"x": draw.floats, "z": z}

    return case


def _cast(draw: Draw) -> Case:
    tensors = [Tensor("x", IMAGE, "float32"), Tensor("y", IMAGE, "int32")]
    return build(tensors, [Op("CAST", ["x"], ["y"])], ["x"], ["y"]), {"x": draw.floats}


def _split_by_sizes(draw: Draw) -> Case:
    tensors = [draw.tensor("x", IMAGE), constant("s", [2, -1]), constant("a", 1)]
    tensors += [draw.tensor(name, (1, n, 5, 8), "x") for name, n in (("y", 2), ("z", 4))]
    op = Op("SPLIT_V", ["x", "s", "a"], ["y", "z"], {"NumSplits": 2})
    return build(tensors, [op], ["x"], ["y", "z"]), {"x": draw.codes}


def _unpacked(draw: Draw) -> Case:
    x = draw.codes[:, :2]
    tensors = [draw.tensor("x", x.shape), *(draw.tensor(name, (1, 5, 8), "x") for name in "yz")]
    op = Op("UNPACK", ["x"], ["y", "z"], {"Axis": 1, "Num": 2})
    return build(tensors, [op], ["x"], ["y", "z"]), {"x": x}


def _float_padded(draw: Draw) -> Case:
    constants = [constant("p", [[0, 0], [1, 2], [0, 1], [0, 0]]), constant("v", [1.5], "float32")]
    tensors = [Tensor("x", IMAGE, "float32"), *constants, Tensor("y", (1, 9, 6, 8), "float32")]
    return build(tensors, [Op("PADV2", ["x", "p", "v"], ["y"])], ["x"], ["y"]), {"x": draw.floats}


CASES: dict[str, Callable[[Draw], Case]] = {
    "add": _binary("ADD"),
    "add of a channel": _binary("ADD", (1, 1, 1, 8), FusedActivationFunction=1),
    "average pool": _pooled("AVERAGE_POOL_2D"),
    "convolution": _convolution("CONV_2D"),
    "convolution of one scale": _convolution("CONV_2D", per_channel=False, padding=1),
    "convolution of 4 bits": _convolution("CONV_2D", dtype="int4"),
    "convolution of groups": _wide("CONV_2D", (16, 3, 3, 4), 0, (1, 6, 5, 16)),
    "convolution of pixels": _wide("CONV_2D", (16, 1, 1, 8), 0, (1, 6, 5, 16)),
    "cast": _cast,
    "concatenation": _joined,
    "dense": _dense(),
    "dense by channel": _dense(per_channel=True, activation=1),
    "depthwise": _convolution("DEPTHWISE_CONV_2D"),
    "depthwise, dilated": _wide(
        "DEPTHWISE_CONV_2D",
        (1, 2, 3, 16),
        3,
        (1, 6, 5, 16),
        DepthMultiplier=2,
        DilationWFactor=2,
        DilationHFactor=2,
    ),
    "dequantize": _dequantize,
    "expand dims": _moved("EXPAND_DIMS", (1, 6, 1, 5, 8), 2),
    "float abs": _float("ABS"),
    "float add": _float_pair("ADD"),
    "float div": _float_pair("DIV"),
    "float exp": _float("EXP"),
    "float maximum": _float_pair("MAXIMUM"),
    "float minimum": _float_pair("MINIMUM"),
    "float neg": _float("NEG"),
    "float padv2": _float_padded,
    "float average pool": _float("AVERAGE_POOL_2D", (1, 3, 3, 8), Padding=0, **_POOL),
    "float convolution": _float_convolution,
    "float hard swish": _float("HARD_SWISH"),
    "float leaky relu": _float("LEAKY_RELU", Alpha=0.2),
    "float logistic": _float("LOGISTIC"),
    "float softmax": _float("SOFTMAX", Beta=1.0),
    "float tanh": _float("TANH"),
    "gather": _moved("GATHER", (1, 3, 5, 8), [3, 0, 1], Axis=1),
    "hard swish": _of_every_code("HARD_SWISH"),
    "leaky relu": _of_every_code("LEAKY_RELU", Alpha=0.17),
    "logistic": _on_fixed_grid("LOGISTIC", 1 / 256, -128),
    "max pool": _pooled("MAX_POOL_2D", 1),
    "mean": _mean,
    "mul": _binary("MUL"),
    "pack": _packed,
    "pad": _moved("PAD", (1, 9, 6, 8), [[0, 0], [1, 2], [0, 1], [0, 0]]),
    "prelu": _prelu,
    "quantize": _quantize,
    "relu": _of_every_code("RELU"),
    "relu n1 to 1": _of_every_code("RELU_N1_TO_1"),
    "reshape": _moved("RESHAPE", (6, 40), [6, -1], NewShape=[6, -1]),
    "slice": lambda draw: _one(
        draw, "SLICE", (1, 4, 5, 3), constants=(constant("b", [0, 1, 0, 2]), constant("n", [1, 4, -1, 3]))
    ),
    "split by sizes": _split_by_sizes,
    "squeeze": lambda draw: _one(draw, "SQUEEZE", (6, 5, 8), {"SqueezeDims": [0]}),
    "unpack": _unpacked,
    "relu6": _of_every_code("RELU6"),
    "requantize": _of_every_code("QUANTIZE"),
    "resize bilinear": _resized("RESIZE_BILINEAR", align=False, half=True),
    "resize bilinear, aligned": _resized("RESIZE_BILINEAR", align=True, half=False),
    "resize nearest": _resized("RESIZE_NEAREST_NEIGHBOR", align=False, half=False),
    "softmax": _softmax,
    "softmax of all codes": _on_fixed_grid("SOFTMAX", 1 / 256, -128),
    "split": _split,
    "strided slice": _sliced,
    "sub": _binary("SUB"),
    "tanh": _on_fixed_grid("TANH", 1 / 128, 0),
    "transpose": _moved("TRANSPOSE", (1, 5, 6, 8), [0, 2, 1, 3]),
    "transposed convolution": _transposed,
}
"""By name: of drawn numbers the case."""


def case(name: str, seed: int) -> Case:
    """Return the case of a name, drawn from a seed."""
    return CASES[name](Draw(seed))
