"""Proved kernels as text: entries, what makes one accepted, and the files they are kept in."""
