"""Elementwise programs and plain C as right for every input: checked, and proved by Z3."""
