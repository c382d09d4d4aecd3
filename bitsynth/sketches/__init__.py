"""What programs may look like: bit counts, products in lanes, widening reductions, the paper's own."""
