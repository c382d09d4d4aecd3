"""C of proved kernels and of layers: the only place that writes it."""
