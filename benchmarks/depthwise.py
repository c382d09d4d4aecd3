"""Depthwise 3 x 3 convolutions beside ONNX Runtime's int8 of the same, channels last, uint8 in and out there.

    python benchmarks/depthwise.py [--isa avx2] [--bits 4,4] [--rounds 11]

Times are one thread's CPU time, microseconds; both take turns, round by round, and a ratio above 1 says how many times
faster bitsynth is. Each layer of ours is checked first. Needs `pip install 'bitsynth[bench]'`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bitsynth import Conv2d, Requantize, Thresholds
from bitsynth.errors import Refuted

LAYERS = ((128, 28, 1), (32, 112, 1), (512, 14, 1), (64, 112, 2), (960, 7, 1))
"""Channels, height and width, stride: of MobileNets and the like."""
MACS = 2e7
"""Multiply-accumulates of a timed call, so that the clock's part is small."""
SHIFT = 8


def main() -> int:
    """Print a line a layer and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--bits", default="4,4", help="of activations and weights")
    parser.add_argument("--rounds", type=int, default=11)
    asked = parser.parse_args()
    act_bits, w_bits = map(int, asked.bits.split(","))
    for channels, size, stride in LAYERS:
        rng = np.random.default_rng(0)
        x = rng.integers(0, 1 << act_bits, (1, size, size, channels)).astype(np.uint8)
        w = rng.integers(-(1 << w_bits - 1) + 1, 1 << w_bits - 1, (channels, 1, 3, 3))
        times = max(1, round(MACS * stride**2 / (9 * channels * size**2)))
        peer = peer_call(x, w, stride, times)
        for form, layer in ours(w, act_bits, w_bits, stride, asked.isa, size).items():
            check(layer, x, w, stride, form)
            call, _ = layer.bound(x, times=times)
            mine, theirs, ratio = turns(call, peer, times, asked.rounds)
            said = f"{channels} x {size} x {size}, stride {stride}, A{act_bits}W{w_bits} {form}, {layer.schedule.isa}"
            print(f"{said}: {mine:.1f} us, onnxruntime {theirs:.1f} us, {ratio:.2f} times as fast", flush=True)
    return 0


def ours(w: NDArray[Any], act_bits: int, w_bits: int, stride: int, isa: str, size: int) -> dict[str, Conv2d]:
    """The layer by its results: int32 sums, codes by thresholds, 8-bit codes."""
    levels = np.linspace(-99, 99, 3).astype(np.int64) * np.ones((len(w), 1), np.int64)
    forms = {"int32": None, "2-bit thresholds": Thresholds(levels), "8-bit codes": Requantize(64, SHIFT, 8)}
    how: dict[str, Any] = {"weight_encoding": "signed", "stride": stride, "padding": 1, "groups": len(w)}
    return {
        form: Conv2d(w, act_bits, w_bits, **how, isa=isa, image=(size, size), epilogue=epilogue)
        for form, epilogue in forms.items()
    }


def check(layer: Conv2d, x: NDArray[np.uint8], w: NDArray[Any], stride: int, form: str) -> None:
    """Refuted unless the first pixels are those of integers in numpy."""
    if form != "int32":
        return
    padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    got = layer.run(x)
    rows, columns = got.shape[1:3]
    want = sum(
        padded[:, ky : ky + rows * stride : stride, kx : kx + columns * stride : stride][:, :rows, :columns]
        * w[:, 0, ky, kx]
        for ky in range(3)
        for kx in range(3)
    )
    if not (got == want).all():
        raise Refuted(f"{layer!r} is wrong")


def peer_call(x: NDArray[np.uint8], w: NDArray[Any], stride: int, times: int) -> Callable[[], Any]:
    """ONNX Runtime's QLinearConv with channels last, as it turns networks into, `times` times."""
    one, zero = np.float32(1), np.uint8(0)
    named = {"xs": one, "xz": zero, "w": w.astype(np.int8), "ws": one, "wz": np.int8(0)}
    named |= {"ys": np.float32(4), "yz": np.uint8(128)}
    window: dict[str, Any] = {
        "kernel_shape": [3, 3],
        "strides": [stride] * 2,
        "pads": [1] * 4,
        "group": len(w),
        "channels_last": 1,
    }
    node = helper.make_node("QLinearConv", ["x", *named], ["y"], domain="com.microsoft", **window)
    ends = [helper.make_tensor_value_info(n, 2, shape) for n, shape in (("x", x.shape), ("y", None))]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in named.items()]
    graph = helper.make_graph([node], "depthwise", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    return lambda: [session.run_with_iobinding(binding) for _ in range(times)]


def turns(mine: Callable[[], Any], theirs: Callable[[], Any], times: int, rounds: int) -> tuple[float, float, float]:
    """Medians of microseconds a run of both, and of their ratio, taking turns."""
    pairs = [(spent(mine) / times, spent(theirs) / times) for _ in range(rounds + 1)][1:]
    a, b = (median(pair[k] for pair in pairs) * 1e6 for k in range(2))
    return a, b, median(y / x for x, y in pairs)


def spent(call: Callable[[], Any]) -> float:
    """Seconds of this thread's CPU time."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    raise SystemExit(main())
