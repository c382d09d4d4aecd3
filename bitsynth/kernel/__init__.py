"""The kernel as a value: its programs, their rules, an interpreter, and its name."""
