"""Sketches: the spaces of programs that are searched, by method: bit counts, products in lanes, reductions, others."""
