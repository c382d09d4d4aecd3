"""ONNX Runtime on a whole network, inputs and outputs bound, so that nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bitsynth.bench.baselines.onnxruntime_baseline import session, start
from bitsynth.bench.twins import drop_constant_inputs


def fixed(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """The model with these shapes of inputs, and constants that are no inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    drop_constant_inputs(made)
    for x in made.graph.input:
        for axis, size in zip(x.type.tensor_type.shape.dim, shapes.get(x.name, ()), strict=False):
            axis.dim_value = size
    return made


def bound(model: Any, inputs: Mapping[str, NDArray[Any]], threads: int) -> Callable[[], object]:
    """A call that runs the model on `inputs`."""
    start(threads)
    running = session(model, threads)
    binding = running.io_binding()
    for name, x in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(x))
    for output in running.get_outputs():
        binding.bind_output(output.name)
    return lambda: running.run_with_iobinding(binding)
