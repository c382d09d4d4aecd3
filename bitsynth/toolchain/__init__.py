"""Compiles generated C to shared libraries: finds compilers, and caches what they have compiled."""

from bitsynth.toolchain.cache import cache_folder
from bitsynth.toolchain.compiler import Compiler, compilers
from bitsynth.toolchain.library import compile_for

__all__ = ["Compiler", "cache_folder", "compile_for", "compilers"]
