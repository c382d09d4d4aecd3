"""bitsynth: `quantize`, with one choice of bits; the network runs as QCDQ in float operators of ONNX Runtime."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import job

ISA, CPU = "neon", "a72"
"""What costs are for; with one choice of bits they change nothing."""
_ANY_CYCLES = 1e15
"""A bound that every network keeps, by which the loss is minimized."""


def quantize(path: Path, samples: Any, act_bits: int, w_bits: int) -> job.Predict:
    """Return the quantized network; its input, residuals and inputs of pools have 8 bits."""
    import bitsynth

    warnings.simplefilter("ignore")
    result = bitsynth.quantize(
        path,
        samples,
        cycles=_ANY_CYCLES,
        isa=ISA,
        cpu=CPU,
        act_bits=(act_bits,),
        w_bits=(w_bits,),
        batch=1,
        file_format="qcdq",
    )
    model = result.model
    for edge in (*model.graph.input, *model.graph.output):
        edge.type.tensor_type.shape.dim[0].dim_param = "samples"
    return job.session(model.SerializeToString())


if __name__ == "__main__":
    job.run(("bitsynth",), "quantize with one choice of bits, no labels", quantize)
