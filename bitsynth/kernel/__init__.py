"""The kernel as a value: its program, the rules it keeps, what it means on numbers, its name."""
