"""Instruction sets as declared, compared with the machine itself."""
