"""The way from generated C to a shared library: the compilers there are, and a cache of what they made."""

from bitsynth.toolchain.cache import cache_folder
from bitsynth.toolchain.compiler import Compiler, compilers
from bitsynth.toolchain.library import compile_for

__all__ = ["Compiler", "cache_folder", "compile_for", "compilers"]
