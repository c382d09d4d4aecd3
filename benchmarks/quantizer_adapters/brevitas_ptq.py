"""Brevitas: its own PTQ flow of graphs, with equalization, GPTQ and bias correction, weights by channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import job
import torch

BATCH = 50
PERCENTILE = 99.999
"""Of activations, as in Brevitas's own flow."""
EQUALIZATIONS = 20


def quantize(path: Path, samples: Any, act_bits: int, w_bits: int) -> job.Predict:
    """Return the quantized network; its input has 8 bits, as with the other quantizers."""
    from brevitas.graph.quantize import preprocess_for_quantize
    from brevitas.nn import QuantIdentity
    from brevitas.quant import ShiftedUint8ActPerTensorFloat
    from brevitas_examples.imagenet_classification.ptq import ptq_common as flow
    from onnx2torch import convert

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = convert(str(path)).eval()
    batches = [(torch.tensor(samples[k : k + BATCH]), torch.zeros(1)) for k in range(0, len(samples), BATCH)]
    network = preprocess_for_quantize(network, equalize_iters=EQUALIZATIONS, merge_bn=False)
    quantized = flow.quantize_model(
        network,
        backend="fx",
        weight_bit_width=w_bits,
        act_bit_width=act_bits,
        bias_bit_width=None,
        weight_quant_granularity="per_channel",
        weight_param_method="mse",
        act_quant_percentile=PERCENTILE,
        act_quant_type="sym",
        act_param_method="stats",
        scale_factor_type="float_scale",
        quant_format="int",
        weight_narrow_range=True,
    )
    entry = next(node for node in quantized.graph.nodes if node.op == "call_module")
    setattr(quantized, str(entry.target), QuantIdentity(ShiftedUint8ActPerTensorFloat, return_quant_tensor=True))
    with torch.no_grad():
        quantized(batches[0][0])
    flow.calibrate(batches, quantized)
    flow.apply_gptq(batches, quantized, act_order=True, use_quant_activations=True)
    flow.apply_bias_correction(batches, quantized)

    def predict(x: Any) -> Any:
        with torch.no_grad():
            return _values(quantized(torch.tensor(x)))

    return predict


def _values(result: Any) -> Any:
    """Return the numbers of a result, which may be a tensor with its quantizer."""
    return (result.value if hasattr(result, "value") else result).numpy()


if __name__ == "__main__":
    job.run(
        ("brevitas", "torch"),
        "equalization, weights by channel with scales of least squared error, percentiles, GPTQ with quantized "
        "activations, bias correction, 8-bit input",
        quantize,
    )
