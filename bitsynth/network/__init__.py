"""Networks as C libraries: a typed graph becomes fusion groups, groups become steps on buffers, steps a proved library.

Graph (`graph/`)
  --lower-->     groups, each the widest thing one step computes: a layer with its epilogue, glue, plain C
NetworkProgram          steps in order, and the buffers they read and write (`network/program.py`)
  --plan-->      where each buffer lies (`network/arena.py`)
  --emit-->      C that needs nothing else (`network/library/`)
"""
