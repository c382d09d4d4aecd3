"""Orders of instructions for in-order processors: lines apart from what they wait for, across rows and runs."""
