"""Products in lanes: table lookups, byte multiplies, dot products, and the unpacking of codes."""
