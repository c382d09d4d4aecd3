"""Measurements of what was proved: kernels beside hand-written baselines, on this processor or by count."""
