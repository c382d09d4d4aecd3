"""Compiles generated C to shared libraries: finds compilers, and caches their results."""

from bitsynth.toolchain.cache import cache_folder
from bitsynth.toolchain.cmake import build_library
from bitsynth.toolchain.compiler import Compiler, compilers, find_compiler
from bitsynth.toolchain.library import compile_for

__all__ = ["Compiler", "build_library", "cache_folder", "compile_for", "compilers", "find_compiler"]
