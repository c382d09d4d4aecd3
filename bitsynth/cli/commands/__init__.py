"""The commands, a file each; what they say of other kinds of kernels stands beside them."""
