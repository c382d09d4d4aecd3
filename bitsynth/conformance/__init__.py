"""The comparison of instruction sets, as declared, with the machine itself."""
