"""Checks of a compiled network, edge by edge: its C against its reference, and the reference against other runtimes.

Inputs    of a file, or drawn (`data.py`)
  --compared->  counts of what differs (`comparison.py`), of the C and of each peer (`peers.py`)
"""

from bitsynth.network.check.comparison import EdgeCheck, NetworkCheck, checked
from bitsynth.network.check.data import drawn, given, on_ties
from bitsynth.network.check.peers import PEERS

__all__ = ["PEERS", "EdgeCheck", "NetworkCheck", "checked", "drawn", "given", "on_ties"]
