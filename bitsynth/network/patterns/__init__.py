"""Networks as pre-quantized ONNX files of standard operators alone (Hanebutte et al.)."""

from bitsynth.network.patterns.export import export_integers

__all__ = ["export_integers"]
