"""The plain C that emx-onnx-cgen makes of a whole network, built as ours is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from emx_onnx_cgen.compiler import Compiler, CompilerOptions

from bitsynth import toolchain
from bitsynth.graph.types import Tensor
from bitsynth.isa.load import load
from bitsynth.run.runner import runner_for

_NAME = "model"
_FLAGS = ("-O3", "-w", "-lm")
"""Its C has warnings that ours must not have."""


def bound(model: Any, isa: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Callable[[], object]:
    """A call that runs the model, which reads `inputs` and writes `outputs`, on one thread."""
    text = Compiler(CompilerOptions(model_name=_NAME, large_weight_threshold=0)).compile(model)
    library = toolchain.compile_for(load(isa), {"model.c": text}, flags=_FLAGS)
    given = [np.ascontiguousarray(x) for x in (*inputs, *outputs)]
    return runner_for(load(isa), library).bind(_NAME, *given)
