"""Measurements of what was proved: kernels beside hand-written loops, layers beside packages, timed or counted."""
