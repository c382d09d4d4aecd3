"""Sketches of elementwise programs: alternatives of roles, each filled by a form that behaves as the role says."""
