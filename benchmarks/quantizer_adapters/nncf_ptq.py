"""NNCF: `nncf.quantize` with its bias correction, mixed preset: activations not symmetric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import job
import onnx


def quantize(path: Path, samples: Any, act_bits: int, w_bits: int) -> job.Predict:
    """Return the quantized network; NotOfferedError for other bits than 8."""
    import nncf

    if (act_bits, w_bits) != (8, 8):
        raise job.NotOfferedError("ONNX networks are quantized to 8 bits alone")
    model = onnx.load(path)
    name = model.graph.input[0].name
    data = nncf.Dataset(list(samples), lambda x: {name: x[None]})
    quantized = nncf.quantize(
        model, data, preset=nncf.QuantizationPreset.MIXED, subset_size=len(samples), fast_bias_correction=True
    )
    return job.session(quantized.SerializeToString())


if __name__ == "__main__":
    job.run(("nncf", "onnxruntime"), "quantize, mixed preset, fast bias correction", quantize)
