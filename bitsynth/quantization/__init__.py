"""Quantizers for float networks: calibration, rounding of weights, and a search for the cheapest widths.

Data go one way: `float_model` (where quantizers go), `calibration` (what inputs say), `grids` (scales), `rounding` (of
weights), `search` (widths that meet a `goal`, by an `integer_program`; `search_state` keeps what was measured),
`quantized_model` (the file), `error_bound` (what its error is at most), `report`, `entry` (all of it).
"""

from bitsynth.quantization.entry import FrontModel, Quantized, quantize
from bitsynth.quantization.report import LayerChoice, OutputError, QuantizationReport, TrialPoint

__all__ = ["FrontModel", "LayerChoice", "OutputError", "QuantizationReport", "Quantized", "TrialPoint", "quantize"]
