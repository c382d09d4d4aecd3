"""Sketches of elementwise programs: alternatives built of roles, which instruction forms fill by what they do."""
