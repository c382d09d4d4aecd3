"""Times ONNX Runtime on a board that has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.device.measured import parse
from bitsynth.device.ssh import MAX_BYTES, Session
from bitsynth.emit.runtime_abi import shape_of
from bitsynth.errors import ToolError
from bitsynth.layers import Conv2d

NAME = "onnxruntime"
_SCRIPT = Path(__file__).parent / "board" / "time_onnx.py"
_SAMPLE_BYTES = 32
_OPSET, _IR = 13, 8
"""Old ones, which every version on boards reads."""


def measure(
    session: Session, models: Mapping[str, bytes], threads: int, repeats: int, seconds: float
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return nanoseconds of single calls of ONNX files by name, and why others have none, by name or for all."""
    host = session.ssh.host
    if session.run("python3 -c 'import onnxruntime'", seconds).code:
        return {}, {NAME: f"{host} has no python3 with onnxruntime"}
    session.put(_SCRIPT.name, _SCRIPT.read_bytes(), seconds)
    files = {f"{i}.onnx": data for i, data in enumerate(models.values())}
    for file, data in files.items():
        session.put(file, data, seconds)
    done = session.run(
        f"python3 {_SCRIPT.name} {threads} {repeats} {' '.join(files)}",
        seconds,
        MAX_BYTES + _SAMPLE_BYTES * repeats * len(models),
    )
    if done.code:
        raise ToolError(f"{host}: onnxruntime failed with exit code {done.code}: {done.errors}")
    answers = dict(zip(models, parse(done.output, host)[1:], strict=True))
    times = {name: tuple(line["ns"]) for name, line in answers.items() if "ns" in line}
    return times, {name: line["failed"] for name, line in answers.items() if "failed" in line}


def float_model(layer: Conv2d, codes: NDArray[Any]) -> bytes:
    """Return a float convolution of the layer's sizes, channels first."""
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ToolError("the package onnx is not installed: pip install 'bitsynth[bench]'") from None
    g, (batch, height, width) = layer.geometry, shape_of(layer.describe(codes)[0])
    weight = np.ones((g.out_channels, g.in_channels // g.groups, *g.kernel), np.float32)
    window: dict[str, Any] = {"strides": g.stride, "pads": g.padding, "dilations": g.dilation, "group": g.groups}
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=g.kernel, **window)],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, g.in_channels, height, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return bytes(model.SerializeToString())
