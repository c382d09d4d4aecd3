"""What changes speed and never results: cost models, tiles, passes."""
