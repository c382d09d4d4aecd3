"""Sketches of reductions: from narrow accumulators to the int32 tile, by moves, widening paths and a write-back."""
