"""Proves elementwise programs and plain C for every input: checked on samples, proved by Z3."""
