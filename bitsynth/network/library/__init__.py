"""The C library of a network: header, steps, constants, kernels and runtime, each once."""

from bitsynth.network.library.text import STATUSES, NetworkText

__all__ = ["STATUSES", "NetworkText"]
