"""Calls a library in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import _cffi_backend

from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.run import arguments

_WORD = sys.maxsize.bit_length() + 1
_FFI = _cffi_backend.FFI()
"""The FFI of cffi's own C, as its compiled modules have it: `cffi.FFI` imports a parser of C, which takes 50 ms."""
_PROCESS = _cffi_backend.load_library(None, _FFI.RTLD_NOW)


def _loader(result: str, name: str, parameters: str) -> Any:
    """Return a function of the system's loader."""
    return _PROCESS.load_function(_FFI.typeof(f"{result} (*)({parameters})"), name)


# Symbols are looked up by dlsym: a cffi declaration takes longer, the more functions a library has.
_DLOPEN = _loader("void *", "dlopen", "const char *, int")
_DLSYM = _loader("void *", "dlsym", "void *, const char *")
_DLCLOSE = _loader("int", "dlclose", "void *")
# Looked up in advance: a later dlsym would clear the error that dlerror reports.
_DLERROR = _loader("char *", "dlerror", "void")


class NativeRunner:
    """A runner of a library this processor runs. Nothing guards its memory."""

    def __init__(self, library: Path) -> None:
        self.description = f"natively on {features.arch()}"
        self.instructions: int | None = None
        self.in_process = True
        self._path = library
        opened = _DLOPEN(bytes(library), _FFI.RTLD_NOW)
        if not opened:
            raise ToolError(f"cannot load {library}: {os.fsdecode(_FFI.string(_DLERROR()))}")
        self._library = _FFI.gc(opened, _DLCLOSE)
        self._address, self._function = cache(self._find), cache(self._cast)

    def call(self, symbol: str, *args: object, bits: int | None = None) -> int:
        """Call `symbol` in this process, as `Runner.call` says."""
        function, words = self._bind(symbol, args, "uintptr_t")
        return arguments.to_signed(int(function(*words)), bits or _WORD)

    def bind(self, symbol: str, *args: object) -> Callable[[], int]:
        """Return the call of `symbol` with these arguments, as `Runner.bind` says."""
        function, words = self._bind(symbol, args, "int32_t")

        def call(_open: object = self._library) -> int:
            """Call the function; the default argument keeps the library open as long as this call exists."""
            status: int = function(*words)
            return status

        return call

    def close(self) -> None:
        """Do nothing: an open library stays usable, and Python frees it."""

    def _bind(self, symbol: str, args: tuple[object, ...], result: str) -> tuple[Any, list[Any]]:
        """Return the function, with a result of that C type, and its arguments, which keep arrays alive."""
        buffer, words = _FFI.from_buffer, arguments.check(symbol, args, _WORD)
        integers = tuple([type(value) is int for value in words])
        return self._function(symbol, integers, result), [x if type(x) is int else buffer(x) for x in words]

    def _cast(self, symbol: str, integers: tuple[bool, ...], result: str) -> Any:
        parameters = ", ".join("uintptr_t" if integer else "const void *" for integer in integers) or "void"
        return _FFI.cast(f"{result} (*)({parameters})", self._address(symbol))

    def _find(self, symbol: str) -> Any:
        if not (address := _DLSYM(self._library, symbol.encode())):
            raise ToolError(f"{self._path} has no function {symbol!r}")
        return address
