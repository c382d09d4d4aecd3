"""The C runtime of layers: plain C11, the same text in every build and beside every emitted layer."""
