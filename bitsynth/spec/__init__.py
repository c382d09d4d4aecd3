"""What is wanted of a kernel: widths, encodings, method, sketch and cost model."""
