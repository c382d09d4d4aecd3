"""Checks of a compiled network, edge by edge: its C against its reference, and the reference against other runtimes.

Given:   a compiled network, its graph, and inputs from a file or drawn at random (`data.py`)
Result:  for each edge, how many elements differ between the reference and the C, or between the reference and another
         runtime, see `peers.py` and `comparison.py`
"""

from bitsynth.network.check.comparison import EdgeCheck, NetworkCheck, check_network
from bitsynth.network.check.data import draw, on_ties, read_inputs
from bitsynth.network.check.peers import PEERS

__all__ = ["PEERS", "EdgeCheck", "NetworkCheck", "check_network", "draw", "on_ties", "read_inputs"]
