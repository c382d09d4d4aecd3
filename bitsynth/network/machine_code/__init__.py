"""Machine code of the layers of a network: which activation meets which weight."""
