"""An emulated machine: a process of qemu-user, driven through pipes."""

from __future__ import annotations

import select
import shutil
import struct
import weakref
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.errors import ToolError
from bitsynth.isa import architecture
from bitsynth.isa.architecture import Qemu
from bitsynth.processes.child import PIPE, Child
from bitsynth.run.emulated import Extent, Fault
from bitsynth.toolchain.library import RUNTIME, compile_for

if TYPE_CHECKING:
    from bitsynth.isa.load import Isa

_MAP, _UNMAP, _CALL = range(3)
_WORDS = 12
"""Arguments of a request."""
_PROT = {"r": 1, "w": 2, "x": 4}
_SIGNALS = {4: "illegal instruction", 5: "trap", 7: "bus error", 8: "arithmetic error", 11: "forbidden access"}
_DRIVER = Path(__file__).parent / "support" / "driver.c"
_SECONDS = 600
_MAX_WORDS = 1 << 16
"""Bytes, as many as a pipe holds."""


def find(qemu: Qemu) -> str | None:
    """Return the path of qemu's user-mode emulator, None if there is none."""
    return next((path for p in qemu.programs if (path := shutil.which(p))), None)


def start(isa: Isa, qemu: Qemu, flags: Sequence[str], options: Sequence[str] = ()) -> QemuMachine:
    """Return a fresh machine for code compiled with `flags`; ToolError says what to install if it cannot be had.

    `options` go to qemu.
    """
    path = find(qemu)
    if path is None:
        raise ToolError(f"{qemu.programs[0]} is not on PATH: install Debian's {qemu.package}")
    sources = {path.name: path.read_text(encoding="utf-8") for path in (_DRIVER, RUNTIME)}
    sources["system.h"] = "".join(f"#define {name} {value}\n" for name, value in qemu.macros.items())
    driver = compile_for(isa, sources, shared=False, flags=["-nostdlib"])
    return QemuMachine([path, "-cpu", architecture.emulated_cpu(qemu.cpu, flags), *options, str(driver)])


class QemuMachine:
    """A machine in a process of qemu-user: the other end of `run/support/driver.c`."""

    def __init__(self, command: Sequence[str]) -> None:
        self.instructions: int | None = None
        self.description = f"emulated by {Path(command[0]).name}"
        try:
            self._process = Child(command, stdin=PIPE)
        except OSError as error:
            raise ToolError(f"cannot start {command[0]}: {error.strerror or error}") from None
        self.close = weakref.finalize(self, self._process.close)
        self._answers = select.poll()  # Unlike select.select, it takes any number of open files.
        self._answers.register(self._process.stdout, select.POLLIN)
        self._asked: list[bytes | bytearray] = []
        self._receive(1)

    def map(self, address: int, data: bytes | bytearray, access: str) -> None:
        """Map memory at `address` that holds `data`; `access` is made of r, w and x."""
        self._ask(_MAP, address, len(data), sum(_PROT[c] for c in access), data=data)

    def unmap(self, address: int, size: int) -> None:
        """Unmap `size` bytes at `address`."""
        self._ask(_UNMAP, address, size)

    def call(self, function: int, words: Sequence[int], places: Sequence[Extent] = ()) -> tuple[int, list[bytes]]:
        """Call `function` with `words`; return its result register and the contents of `places`. Fault on a signal.

        All that was asked before goes with it: where many processes want a processor, each answer is waited for long.
        """
        arguments = *words, *[0] * (_WORDS - 2 - len(words)), len(places)
        self._ask(_CALL, function, *arguments, data=struct.pack(f"<{2 * len(places)}Q", *chain(*places)))
        self._send()
        signal, value = struct.unpack("<QQ", self._receive(16))
        if signal == 255:
            raise ToolError("did not start: qemu has no memory free where it is needed")
        if signal:
            raise Fault(f"did a{'n' if signal == 4 else ''} {_SIGNALS.get(signal, f'signal {signal}')}", value)
        return int(value), [self._receive(size) for _, size in places]

    def _ask(self, op: int, *args: int, data: bytes | bytearray = b"") -> None:
        self._asked += [struct.pack(f"<{1 + _WORDS}Q", op, *args, *[0] * (_WORDS - len(args))), data]

    def _send(self) -> None:
        message = memoryview(b"".join(self._asked))
        self._asked.clear()
        try:
            while message:
                message = message[self._process.stdin.write(message) or 0 :]
        except BrokenPipeError:
            return  # Why it ended comes as the next answer.

    def _receive(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            if not self._answers.poll(1000 * _SECONDS):
                raise ToolError(f"did not end within {_SECONDS} s under qemu")
            part = self._process.stdout.read(left)
            if not part:
                errors = self._process.stderr.read(_MAX_WORDS).decode(errors="replace").strip()
                raise ToolError(f"qemu ended with exit code {self._process.wait()}: {errors}")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
