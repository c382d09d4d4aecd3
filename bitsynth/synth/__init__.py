"""The conductor: sketches, solver, schedule and proof, from a spec to a stored kernel."""
