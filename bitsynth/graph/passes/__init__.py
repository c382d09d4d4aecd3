"""Passes: each makes a graph of a graph and means the same; one concern a file."""
