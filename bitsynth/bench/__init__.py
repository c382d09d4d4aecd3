"""Measurements: kernels against hand-written loops, layers and networks against packages, timed or counted."""
