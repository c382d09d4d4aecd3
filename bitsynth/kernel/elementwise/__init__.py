"""Elementwise programs as values: the programs, their constants in memory, and an interpreter."""
