"""Compile generated C and run it: natively, or emulated where the host is another machine.

`compile_for` gives a shared library, `runner` something that calls its functions.
"""

from bitsynth.build.compilers import Compiler, compilers
from bitsynth.build.library import cache_folder, compile_for
from bitsynth.build.runners import Runner, runner

__all__ = ["Compiler", "Runner", "cache_folder", "compile_for", "compilers", "runner"]
