"""Compiles generated C to shared libraries: finds compilers, and caches what they have compiled."""

from bitsynth.toolchain.cache import cache_folder
from bitsynth.toolchain.cmake import build_library
from bitsynth.toolchain.compiler import Compiler, called, compilers
from bitsynth.toolchain.library import compile_for

__all__ = ["Compiler", "build_library", "cache_folder", "called", "compile_for", "compilers"]
