"""This machine: its processor's features, and where code for an instruction set runs."""
