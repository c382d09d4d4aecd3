"""Plain C (fallback code) of every operator, for nodes that no layer or glue computes, and for changes of format."""

from bitsynth.network.plain.convert import make_conversion, make_filling
from bitsynth.network.plain.fusion import plain_groups

__all__ = ["make_conversion", "make_filling", "plain_groups"]
