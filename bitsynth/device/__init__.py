"""Layers on a board or another host, over ssh: checked there, and timed."""

from bitsynth.device.device import Device
from bitsynth.device.facts import Facts
from bitsynth.device.measured import LayerTimes, Measured

__all__ = ["Device", "Facts", "LayerTimes", "Measured"]
