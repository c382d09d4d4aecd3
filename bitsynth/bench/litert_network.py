"""LiteRT on a whole network, its inputs set once, so that a call is nothing but its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bitsynth.graph.read import tflite
from bitsynth.graph.types import Tensor

KERNELS = {"AUTO": "default kernels", "BUILTIN_WITHOUT_DEFAULT_DELEGATES": "without XNNPACK"}
"""What contenders are called, by the name of the resolver of their kernels."""


def bound(data: bytes, inputs: Mapping[str, Tensor], threads: int, kernels: str) -> Callable[[], object]:
    """Return a call that runs the file of these bytes on `inputs`."""
    from ai_edge_litert import interpreter as package

    running = package.Interpreter(
        model_content=data,
        num_threads=threads,
        experimental_op_resolver_type=getattr(package.OpResolverType, kernels),
    )
    names = tflite.tensor_names(data)
    for given in running.get_input_details():
        if tuple(given["shape"]) != (shape := inputs[names[given["index"]]].shape):
            running.resize_tensor_input(given["index"], shape)
    running.allocate_tensors()
    for given in running.get_input_details():
        running.set_tensor(given["index"], inputs[names[given["index"]]].astype(given["dtype"]))
    call: Callable[[], object] = running.invoke
    return call
