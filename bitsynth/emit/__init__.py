"""C from verified kernels: the only place that writes C."""
