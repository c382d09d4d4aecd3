"""The forms programs may have: bit counts, products in lanes, widening reductions, the paper's own."""
