"""Compile generated C and run it: natively, or emulated where the host is another machine.

`compile_for` gives a shared library, `runner` something that calls its functions.
"""

from bitsynth.build.folder import cache_folder
from bitsynth.build.library import compile_for
from bitsynth.build.runners import Runner, runner
from bitsynth.build.toolchain import Compiler, compilers

__all__ = ["Compiler", "Runner", "cache_folder", "compile_for", "compilers", "runner"]
