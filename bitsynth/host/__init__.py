"""The machine this is: what its processor has, and where code for an instruction set runs."""
