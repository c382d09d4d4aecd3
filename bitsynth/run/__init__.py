"""Calls functions of a compiled library: natively, or emulated if the host is another machine."""
