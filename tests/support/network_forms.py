"""Operators around quantizers in the forms in which exporters write them, a small network each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from support.onnx_files import QONNX, model, node

IMAGE = (1, 4, 6, 6)
FORMS: dict[str, Callable[[], Any]] = {}
_RNG = np.random.default_rng(15)
_W = _RNG.integers(-3, 4, (6, 4, 3, 3)).astype(np.float32)
_V = _RNG.integers(-3, 4, (8, 5)).astype(np.float32)
_GIVEN = {
    "one": np.float32(1),
    "half": np.float32(0.5),
    "fine": np.float32(2.0**-4),
    "finer": np.float32(2.0**-10),
    "zero": np.float32(0),
    "four": np.float32(4),
    "w": _W,
    "v": _V,
}


def quant(given: str, result: str, scale: str = "half", **how: Any) -> Any:
    """Codes of 4 bits."""
    about: dict[str, Any] = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"} | how
    return node("Quant", f"{given} {scale} zero four", result, domain=QONNX, **about)


def form(
    name: str, *nodes: Any, shape: tuple[int, ...] = IMAGE, opset: int = 13, to: str = "half", **constants: Any
) -> None:
    """Between two quantizers, from `q` to `r`."""
    every = [quant("x", "q"), *nodes, quant("r", "y", to)]
    FORMS[name] = lambda: model(every, {"x": shape}, _GIVEN | constants, opset=opset)


def ints(*values: int) -> Any:
    """Integers of an initializer."""
    return np.array(values, np.int64)


# Pools and means.
for _count in (0, 1):
    form(
        f"average pool, pads counted {_count}",
        node("AveragePool", "q", "r", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=_count),
    )
form("average pool, ceil", node("AveragePool", "q", "r", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1), opset=19)
form("average pool, SAME_UPPER", node("AveragePool", "q", "r", kernel_shape=[2, 3], auto_pad="SAME_UPPER"))
form("average pool of lines", node("AveragePool", "q", "r", kernel_shape=[3], pads=[1, 0]), shape=(1, 4, 9))
form("max pool, ceil", node("MaxPool", "q", "r", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
form("global pool of lines", node("GlobalAveragePool", "q", "r"), shape=(2, 4, 9))
for _axes in ([2, 3], [-1], [1], [1, 2, 3]):
    for _keep in (0, 1):
        form(f"mean {_axes} {_keep}", node("ReduceMean", "q", "r", axes=_axes, keepdims=_keep), to="fine")
form("mean by an input", node("ReduceMean", "q axes", "r", keepdims=0), opset=18, axes=ints(-2, -1))
form("mean of all", node("ReduceMean", "q", "r"), to="fine")
# Functions.
form("hard swish", node("HardSwish", "q", "r"), opset=14)
form("hard sigmoid", node("HardSigmoid", "q", "r", alpha=0.25))
form("leaky relu", node("LeakyRelu", "q", "r"))
_how: Any
form("mish", node("Mish", "q", "r"), opset=18)
form("elu", node("Elu", "q", "r"))
form("swish", node("Swish", "q", "r"), opset=24)
for _how in ({"approximate": "none"}, {"approximate": "tanh"}):
    form(f"gelu {_how}", node("Gelu", "q", "r", **_how), opset=20)
form("softmax, its logarithm", node("LogSoftmax", "q", "r"))
form("layer norm", node("LayerNormalization", "q g", "r"), opset=17, g=np.linspace(-1, 1, 6, dtype=np.float32))
form("clip by attributes", node("Clip", "q", "r", min=-1.0, max=2.5), opset=6)
form("clip above alone", node("Clip", "q - half", "r"))
form("softmax of the rest", node("Softmax", "q", "r", axis=1), opset=11, to="finer")
form("softmax of the last axis", node("Softmax", "q", "r"))
for _how in ({"axis": 1}, {"axis": -1, "keepdims": 0}):
    form(f"argmax {_how}", node("ArgMax", "q", "k", **_how), node("Cast", "k", "r", to=TensorProto.FLOAT))
# Moves.
form("split by an attribute", node("Split", "q", "a r", axis=1, split=[1, 3]), opset=11)
form("split by an input", node("Split", "q sizes", "r b", axis=-1), sizes=ints(2, 4))
form("split in so many", node("Split", "q", "a r b", axis=2, num_outputs=3), opset=18)
form("slice by attributes", node("Slice", "q", "r", starts=[1, -4], ends=[99, -1], axes=[1, 3]), opset=9)
form("slice backwards", node("Slice", "q a b c d", "r"), a=ints(-1), b=ints(-99), c=ints(2), d=ints(-2))
for _mode in ("half_pixel", "align_corners", "asymmetric"):
    form(
        f"resize on lines, {_mode}",
        node("Resize", "q - s", "r", mode="linear", coordinate_transformation_mode=_mode),
        s=np.array([1, 1, 2, 1.5], np.float32),
    )
form("upsample on lines", node("Upsample", "q s", "r", mode="linear"), s=np.array([1, 1, 2, 2], np.float32), opset=9)
form("resize by scales", node("Resize", "q - s", "r", mode="nearest"), s=np.array([1, 1, 2, 3], np.float32))
form(
    "resize by sizes",
    node("Resize", "q - - s", "r", mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric"),
    s=ints(1, 4, 9, 4),
)
form("resize of before", node("Resize", "q s", "r", mode="nearest"), opset=10, s=np.array([1, 1, 2, 2], np.float32))
form("upsample", node("Upsample", "q s", "r", mode="nearest"), opset=9, s=np.array([1, 1, 2, 2], np.float32))
for _mode in ("DCR", "CRD"):
    form(f"depth to space {_mode}", node("DepthToSpace", "q", "r", blocksize=2, mode=_mode))
form("pad by an attribute", node("Pad", "q", "r", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=1.0), opset=2)
form("pad some axes", node("Pad", "q p - a", "r"), opset=18, p=ints(1, 2, 0, 1), a=ints(2, 3))
form("squeeze by an attribute", node("Squeeze", "q", "r", axes=[0]), opset=11)
form("unsqueeze by an input", node("Unsqueeze", "q a", "r"), a=ints(-1), shape=(2, 8))
form("transpose all", node("Transpose", "q", "r"), shape=(2, 3, 4))
form("flatten before the batch", node("Flatten", "q", "r", axis=0))
form("concat at the end", node("Concat", "q q", "r", axis=-1))
form(
    "dynamic flatten",
    node("Shape", "q", "s"),
    node("Gather", "s first", "n", axis=0),
    node("Unsqueeze", "n a", "m"),
    node("Concat", "m rest", "to", axis=0),
    node("Reshape", "q to", "r"),
    first=np.int64(0),
    a=ints(0),
    rest=ints(-1),
)
form(
    "dynamic flatten by a slice",
    node("Shape", "q", "s"),
    node("Slice", "s a b", "n"),
    node("Concat", "n rest", "to", axis=0),
    node("Reshape", "q to", "r"),
    a=ints(0),
    b=ints(1),
    rest=ints(-1),
)
# Products.
form("convolution, SAME_LOWER", node("Conv", "q w", "r", auto_pad="SAME_LOWER", strides=[2, 2]))
for _name, _step in {"coarse": "half", "fine": "finer"}.items():
    form(
        f"convolution, hard swish, {_name}",
        node("Conv", "q w", "c", pads=[1, 1, 1, 1]),
        node("Mul", "c many", "m"),
        node("HardSwish", "m", "r"),
        opset=14,
        to=_step,
        many=np.linspace(-0.2, 0.3, 6, dtype=np.float32).reshape(6, 1, 1),
    )
form("convolution of lines", node("Conv", "q u", "r", dilations=[2], pads=[1, 1]), shape=(1, 4, 9), u=_W[:, :, 0])
form("depthwise", node("Conv", "q u", "r", group=4, pads=[1, 1, 1, 1]), u=_W.reshape(-1, 1, 3, 3)[:8])
form(
    "gemm, all of it",
    node("Gemm", "q v c", "r", alpha=0.5, beta=2.0),
    shape=(3, 8),
    c=np.array([1, 2, 3, 4, 5], np.float32),
)
form("gemm of a transposed", node("Gemm", "q v", "r", transA=1), shape=(8, 3))
for _name, _shape in {"one": (), "a row": (1,), "rows": (6, 1, 1, 1)}.items():
    form(
        f"scales of weights: {_name}",
        node("Quant", "w ws zero four", "u", domain=QONNX, signed=1, narrow=1),
        node("Conv", "q u", "r"),
        ws=np.full(_shape, 0.375, np.float32),
    )
form(
    "scales of weights: (OC, 1)",
    node("Quant", "t ws zero four", "u", domain=QONNX, signed=1, narrow=1),
    node("Gemm", "q u", "r", transB=1),
    shape=(3, 8),
    t=np.ascontiguousarray(_V.T),
    ws=np.linspace(0.25, 1.5, 5, dtype=np.float32).reshape(5, 1),
)
for _bits in (4, 6, 23):
    form(
        f"a bias of {_bits} bits",
        node("Quant", "c tiny zero bits", "d", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND"),
        node("Conv", "q w d", "r"),
        c=np.linspace(-1, 1, 6, dtype=np.float32),
        bits=np.float32(_bits),
        tiny=np.float32(2.0**-9),
    )
for _n in (-2.0, -1.0, -0.5):
    form(f"power {_n}", node("Abs", "q", "a"), node("Add", "a one", "b"), node("Pow", "b n", "r"), n=np.float32(_n))
# Batch norm.
_PER: dict[str, Any] = {
    n: _RNG.uniform(0.5, 2, (1, 4, 1, 1)).astype(np.float32) for n in ("mean", "variance", "gain", "bias")
}
form(
    "batch norm written out",
    node("Sub", "q mean", "a"),
    node("Pow", "variance root", "b"),
    node("Div", "a b", "c"),
    node("Mul", "c gain", "d"),
    node("Add", "d bias", "r"),
    root=np.float32(0.5),
    **_PER,
)
form(
    "gains of 1e-41",
    node("BatchNormalization", "q g h m s", "r"),
    h=np.array([-1, 0, 1, 2], np.float32),
    m=_PER["mean"].reshape(-1),
    s=_PER["variance"].reshape(-1),
    g=np.full(4, 1e-41, np.float32),
)
# Quantizers.
form(
    "bits computed",
    node("Ceil", "almost", "n"),
    node("Quant", "q half zero n", "r", domain=QONNX, signed=0, narrow=0, rounding_mode="FLOOR"),
    almost=np.float32(2.4),
)
form("no rounding mode", node("Quant", "q half zero four", "r", domain=QONNX, signed=1, narrow=1))
form(
    "scale of 1e-13",
    node("Mul", "q small", "a"),
    node("Quant", "a small zero four", "b", domain=QONNX, signed=1, narrow=0),
    node("Div", "b small", "r"),
    small=np.float32(1e-13),
)
form("constants as nodes", node("Constant", "", "k", value_float=0.75), node("Mul", "q k", "r"))
for _type in ("int2", "uint2", "int4", "uint4"):
    form(
        f"QDQ of {_type}",
        node("QuantizeLinear", "q half o", "c"),
        node("DequantizeLinear", "c half o", "d"),
        node("DequantizeLinear", "u us", "e", axis=1),
        node("Gemm", "d e", "r"),
        shape=(3, 8),
        opset=25,
        o=np.asarray(1, getattr(ml_dtypes, _type)),
        u=np.clip(_V, -2 if _type[0] == "i" else 0, 1).astype(getattr(ml_dtypes, _type)),
        us=np.linspace(0.5, 1, 5, dtype=np.float32),
    )
form(
    "RequantShift",
    node("RequantShift", "x m a", "r", domain="far", div=64, n_levels=16, signed=1),
    m=np.array([30, 50, 70, 90], np.float32),
    a=np.array([8, 0, 4, 3], np.float32),
)
form(
    "RequantShift of sums of integers by numbers of two types",
    node("Cast", "q", "i", to=TensorProto.INT32),
    node("RequantShift", "i m a", "t", domain="far", div=64, n_levels=16, signed=1),
    node("Cast", "t", "r", to=TensorProto.FLOAT),
    m=np.array([30, 50, 70, 90], np.float32),
    a=np.array([8, 0, 4, 3], np.int64),
)
form(
    "FakeQuantize from an odd level",
    node("FakeQuantize", "q low high low high", "r", domain="org.openvinotoolkit", levels=7),
    low=np.float32(-3),
    high=np.float32(3),
)
form(
    "multiply, add, divide, floor, clip",
    node("Conv", "q w", "a"),
    node("Mul", "a m", "b"),
    node("Add", "b c", "d"),
    node("Div", "d by", "e"),
    node("Floor", "e", "f"),
    node("Clip", "f zero most", "r"),
    m=np.float32(37),
    c=np.arange(6, dtype=np.float32).reshape(1, 6, 1, 1) * 100,
    by=np.float32(512),
    most=np.float32(15),
)
