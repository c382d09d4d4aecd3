"""ncnn: a network of one convolution, its input in the blocks of channels that its layers keep between them.

int8 has ncnn's form: signed codes on both sides, products requantized to codes. fp32 may be Winograd's, which rounds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ncnn
import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.baselines.convolution import ConvOperands, Prepared
from bitsynth.errors import ToolError

VARIANTS = {"fp32": "fp32", "int8": "int8"}
_REQUANTIZED = 102
"""int8 in and out."""
_INT8_TAG = 0x000D4B38
_FP32_ERROR = 0.01
_BLOCK = {"fp32": 16, "int8": 8}
"""The most channels in a block, by variant."""
_AS_THEY_ARE = 1


def start(threads: int) -> Mapping[str, str]:
    """Return facts about the package, by name."""
    return {"version": ncnn.__version__, "instructions": "it does not say"}


def prepare(variant: str, operands: ConvOperands, threads: int) -> Prepared:
    """Return one layer of one of VARIANTS, ready to be run."""
    net = _net(variant, operands, threads)
    x = _make_blocked(
        np.ascontiguousarray(operands.x[0].astype(np.float32 if variant == "fp32" else np.int8)), variant, net
    )

    def call() -> Any:
        extractor = net.create_extractor()
        extractor.input("x", x)
        return extractor.extract("y", _AS_THEY_ARE)[1]

    step = operands.step if variant == "int8" else 1.0
    error = step / 2 if variant == "int8" else _FP32_ERROR
    return Prepared(call, lambda: step * _plain(call(), net)[None].astype(np.float32), error)


def _net(variant: str, operands: ConvOperands, threads: int) -> Any:
    net = ncnn.Net()
    net.opt.num_threads = threads
    for name in ("use_bf16_storage", "use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
        setattr(net.opt, name, False)
    with TemporaryDirectory() as folder:
        graph, weights = Path(folder, "m.param"), Path(folder, "m.bin")
        graph.write_text(_graph(variant, operands), encoding="utf-8")
        weights.write_bytes(_weights(variant, operands))
        if net.load_param(str(graph)) or net.load_model(str(weights)):
            raise ToolError("it cannot load the model")
    return net


def _graph(variant: str, operands: ConvOperands) -> str:
    layer = operands.layer
    sizes = {0: layer.out_channels, 1: layer.kernel, 3: layer.stride, 4: layer.padding, 6: operands.w.size}
    sizes |= {8: _REQUANTIZED} if variant == "int8" else {}
    settings = " ".join(f"{key}={value}" for key, value in sizes.items())
    return f"7767517\n2 2\nInput x 0 1 x\nConvolution convolution 1 1 x y {settings}\n"


def _weights(variant: str, operands: ConvOperands) -> bytes:
    if variant == "fp32":
        return struct.pack("<I", 0) + operands.w.astype("<f4").tobytes()
    codes = operands.w.astype(np.int8).tobytes()
    scales = np.array([*np.ones(len(operands.w) + 1), 1 / operands.step], "<f4")
    return struct.pack("<I", _INT8_TAG) + codes + b"\0" * (-len(codes) % 4) + scales.tobytes()


def _make_blocked(x: NDArray[Any], variant: str, net: Any) -> Any:
    blocked = ncnn.Mat()
    ncnn.convert_packing(ncnn.Mat(x), blocked, _BLOCK[variant], net.opt)
    return blocked


def _plain(y: Any, net: Any) -> NDArray[Any]:
    plain = ncnn.Mat()
    ncnn.convert_packing(y, plain, 1, net.opt)
    return np.array(plain)
