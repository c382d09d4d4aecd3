"""Networks as pre-quantized ONNX files of standard operators alone (Hanebutte et al.)."""

from bitsynth.network.patterns.export import exported

__all__ = ["exported"]
