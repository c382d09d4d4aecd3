"""What is wanted: widths, encodings, and the method, sketch and cost model of a kernel."""
