"""Orders instructions for in-order processors: software pipelining, list scheduling, split loads, folds."""
