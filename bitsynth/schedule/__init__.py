"""Choices that change speed and never results: cost models, tiles, passes."""
