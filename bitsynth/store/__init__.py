"""Proved kernels as text: entries, their acceptance, and the files they are kept in."""
