"""The one door to Z3: `from bitsynth.solver.z3 import z3`.

Only search and proof import it; stored kernels and layers made of them do without Z3. If it cannot be
imported, importing this module raises ToolError.
"""

from bitsynth.errors import INSTALL_Z3, ToolError

try:
    import z3
except Exception as error:  # a package without its shared library raises an exception of its own
    raise ToolError(f"finding and proving kernels needs Z3, which cannot be imported ({error}): {INSTALL_Z3}") from None

__all__ = ["z3"]
