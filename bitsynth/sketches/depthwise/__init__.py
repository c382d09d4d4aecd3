"""What programs of depthwise kernels may look like: products of channels in lanes, and sums to int32 in order."""
