"""Staircases: elementwise chains to the codes of a quantizer as thresholds, proved with the reference as the oracle."""

from bitsynth.network.stairs.chain import Chain, chain_from, chain_of, links_from
from bitsynth.network.stairs.oracle import Oracle
from bitsynth.network.stairs.staircase import Staircase, staircase
from bitsynth.network.stairs.thresholds import thresholds_of

__all__ = ["Chain", "Oracle", "Staircase", "chain_from", "chain_of", "links_from", "staircase", "thresholds_of"]
