"""ONNX Runtime on a whole network, inputs and outputs bound, so that nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.baselines.onnxruntime_baseline import session, start


def bound(model: Any, inputs: Mapping[str, NDArray[Any]], threads: int) -> Callable[[], object]:
    """Return a call that runs the model on `inputs`."""
    start(threads)
    running = session(model, threads)
    binding = running.io_binding()
    for name, x in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(x))
    for output in running.get_outputs():
        binding.bind_output(output.name)
    return lambda: running.run_with_iobinding(binding)
