"""Quantizers for float networks: calibration, rounding of weights, and a search for the cheapest widths.

Data go one way: `float_model` (where quantizers go), `calibration` (what inputs say), `grids` (scales and rounding),
`search` (widths), `quantized_model` (the file), `entry` (all of it, and the report).
"""

from bitsynth.quantization.entry import LayerChoice, QuantizationReport, Quantized, quantize

__all__ = ["LayerChoice", "QuantizationReport", "Quantized", "quantize"]
