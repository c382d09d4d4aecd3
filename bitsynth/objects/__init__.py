"""Machine code of a kernel, compared with the kernel's proved program."""
