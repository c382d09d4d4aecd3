"""Elementwise programs as values: what they are, what memory they read, what they do to numbers."""
