"""The kernel as a value: its program, the rules it keeps, its meaning on numbers, its name."""
