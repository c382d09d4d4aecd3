"""Checks and times layers on a board or another host, over ssh."""

from bitsynth.device.device import Device
from bitsynth.device.measured import LayerTimes, Measured
from bitsynth.host.facts import Facts

__all__ = ["Device", "Facts", "LayerTimes", "Measured"]
