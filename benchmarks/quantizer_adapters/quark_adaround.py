"""AMD Quark for ONNX: A8W8 with cross-layer equalization and fast fine-tuning by AdaRound."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import job
import onnx

ITERATIONS = 500
"""Of AdaRound for each layer; Quark's own A8W8_ADAROUND has 1,000."""


def quantize(path: Path, samples: Any, act_bits: int, w_bits: int) -> job.Predict:
    """Return the quantized network; NotOfferedError for other bits than 8."""
    from onnxruntime.quantization import CalibrationDataReader
    from quark.onnx import (
        AdaRoundConfig,
        CalibMethod,
        CLEConfig,
        Int8Spec,
        ModelQuantizer,
        QConfig,
        QLayerConfig,
        QuantGranularity,
    )

    if (act_bits, w_bits) != (8, 8):
        raise job.NotOfferedError("integers of ONNX networks have 8 bits or more")
    model = onnx.load(path)
    given = job.reader(CalibrationDataReader, model.graph.input[0].name, samples)
    layer = QLayerConfig(
        activation=Int8Spec(symmetric=False, calibration_method=CalibMethod.Percentile),
        weight=Int8Spec(symmetric=True, quant_granularity=QuantGranularity.Channel),
    )
    algorithms = [CLEConfig(), AdaRoundConfig(learning_rate=0.1, num_iterations=ITERATIONS, data_size=len(samples))]
    config = QConfig(global_config=layer, algo_config=algorithms)
    with tempfile.TemporaryDirectory() as folder:
        quantized = str(Path(folder) / "quantized.onnx")
        ModelQuantizer(config).quantize_model(str(path), quantized, given)
        return job.session(quantized)


if __name__ == "__main__":
    job.run(
        ("amd-quark", "torch"), f"equalization, AdaRound ({ITERATIONS:,} iterations a layer), percentiles", quantize
    )
