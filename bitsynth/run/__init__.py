"""Functions of a compiled library are called: natively, or emulated where the host is another machine."""
