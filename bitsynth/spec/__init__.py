"""The kernel that is wanted: widths, encodings, method, sketch and cost model."""
