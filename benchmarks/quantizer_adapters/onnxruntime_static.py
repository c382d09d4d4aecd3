"""ONNX Runtime's `quantize_static`: QDQ, weights by channel, ranges of least and greatest numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import job
import onnx


def quantize(path: Path, samples: Any, act_bits: int, w_bits: int) -> job.Predict:
    """Return the quantized network."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    acts = {8: QuantType.QUInt8, 4: QuantType.QUInt4}
    weights = {8: QuantType.QInt8, 4: QuantType.QInt4}
    if act_bits not in acts or w_bits not in weights:
        raise job.NotOfferedError("activations and weights have 8 or 4 bits")
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantized = (str(Path(folder) / name) for name in ("prepared.onnx", "quantized.onnx"))
        quant_pre_process(str(path), prepared)
        model = onnx.load(prepared)
        name = model.graph.input[0].name
        given = job.reader(CalibrationDataReader, name, samples)
        options: dict[str, Any] = {"activation_type": acts[act_bits], "weight_type": weights[w_bits]}
        options |= {"per_channel": True, "extra_options": {"TensorQuantOverrides": {name: [{"quant_type": acts[8]}]}}}
        quantize_static(prepared, quantized, given, **options)
        return job.session(quantized)


if __name__ == "__main__":
    job.run(
        ("onnxruntime",), "quantize_static, QDQ, weights by channel, least and greatest numbers, 8-bit input", quantize
    )
