"""The C runtime of layers: plain C11, the same text in every build and next to every emitted layer."""
