"""Synthesizes kernels: takes a spec through sketches, solver, schedule and proof to a stored kernel."""
