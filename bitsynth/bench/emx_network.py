"""The plain C that emx-onnx-cgen makes of a whole network, built as ours is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from emx_onnx_cgen.compiler import Compiler, CompilerOptions

from bitsynth import toolchain
from bitsynth.errors import ToolError
from bitsynth.graph.types import Tensor
from bitsynth.isa.load import load
from bitsynth.run.runner import Runner, runner_for

_NAME = "model"
_FLAGS = ("-O3", "-w", "-lm")
"""Its C has warnings that ours must not have."""


def bound(model: Any, isa: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Callable[[], object]:
    """Return a call that runs the model, which reads `inputs` and writes `outputs`, on one thread."""
    text, weights = Compiler(CompilerOptions(model_name=_NAME)).compile_with_weight_data(model)
    runner = runner_for(load(isa), toolchain.compile_for(load(isa), {"model.c": text}, flags=_FLAGS))
    if weights:
        _load(runner, weights)
    given = [np.ascontiguousarray(x) for x in (*inputs, *outputs)]
    return runner.bind(_NAME, *given)


def _load(runner: Runner, weights: bytes) -> None:
    """Have it read its larger weights, from a file; ToolError if it does not take them."""
    with NamedTemporaryFile(suffix=".bin") as file:
        file.write(weights)
        file.flush()
        if not runner.call(f"{_NAME}_load", np.frombuffer(os.fsencode(file.name) + b"\0", np.uint8), bits=32) & 1:
            raise ToolError("the C of emx-onnx-cgen does not load its weights")
