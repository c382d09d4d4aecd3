"""Quantizers for float networks: calibration, rounding of weights, and a search for the cheapest widths.

Data go one way: `float_model` (where quantizers go), `equalization` (of channels), `calibration` (ranges and statistics
of the inputs given), `grids` (scales), `rounding` (of weights), `reconstruction` (weights and biases fitted to
quantized inputs), `quantized_model` (the file), `partial_runs` (runs that start in the middle), `search` (widths and
encodings that meet a `goal`, by an `integer_program`, with costs of `layer_costs`; `search_state` keeps what was
measured), `finetuning` (by gradients in PyTorch, whose operators `torch_network` has), `error_bound` (the greatest
error of an output), `report`; `entry` calls them all.
"""

from bitsynth.quantization.entry import FrontModel, Quantized, quantize
from bitsynth.quantization.finetuning import FineTuning
from bitsynth.quantization.report import FineTuningReport, LayerChoice, OutputError, QuantizationReport, TrialPoint

__all__ = [
    "FineTuning",
    "FineTuningReport",
    "FrontModel",
    "LayerChoice",
    "OutputError",
    "QuantizationReport",
    "Quantized",
    "TrialPoint",
    "quantize",
]
