"""AIMET for ONNX: cross-layer equalization, AdaRound, ranges by signal to noise (SQNR), weights by channel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import job
import onnx

ITERATIONS = int(os.environ.get("BITSYNTH_BENCH_ITERATIONS", "500"))
"""Of AdaRound for each layer at 8 bits, half as many more below; AIMET recommends 10,000."""
CONFIG = "default_config_per_channel.json"
INPUT_BITS = 8


def quantize(path: Path, samples: Any, act_bits: int, w_bits: int) -> job.Predict:
    """Return the quantized network; its input has 8 bits, as with the other quantizers."""
    from aimet_onnx import QuantizationSimModel, apply_adaround, qtype
    from aimet_onnx.common import quantsim_config
    from aimet_onnx.cross_layer_equalization import equalize_model

    model = onnx.load(path)
    name = model.graph.input[0].name
    equalize_model(model)
    config = Path(quantsim_config.__file__).parent / CONFIG
    sim = QuantizationSimModel(
        model,
        param_type=qtype.int(w_bits),
        activation_type=qtype.int(act_bits),
        quant_scheme="tf_enhanced",
        config_file=str(config),
    )
    sim.set_tensor_precision(name, qtype.int(INPUT_BITS))
    inputs = [{name: samples[k : k + 32]} for k in range(0, len(samples), 32)]
    iterations = ITERATIONS if w_bits == INPUT_BITS else ITERATIONS * 3 // 2
    apply_adaround(sim, inputs, num_iterations=iterations)
    sim.compute_encodings(inputs)
    return lambda x: sim.session.run(None, {name: x})[0]


if __name__ == "__main__":
    job.run(
        ("aimet-onnx", "torch"),
        f"equalization, AdaRound ({ITERATIONS:,} iterations a layer, half as many more below 8 bits), SQNR ranges, "
        "weights by channel, 8-bit input",
        quantize,
    )
