"""Products in lanes: table lookups, byte multiplies, dot products, and how packed codes are unpacked."""
