"""Meanings of the primitives: concrete (numpy), symbolic (Z3), linear (proofs), reads (dependencies)."""
