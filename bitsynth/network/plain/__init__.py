"""Plain C of every operator: what computes a node that no layer or glue takes, and brings an edge into a format."""

from bitsynth.network.plain.convert import conversion, filled
from bitsynth.network.plain.fusion import plain_groups

__all__ = ["conversion", "filled", "plain_groups"]
