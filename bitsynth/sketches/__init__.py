"""What programs may look like: gates on one bit position, blocks of planes, reductions."""
