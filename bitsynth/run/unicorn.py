"""An emulated machine of unicorn, inside this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.isa.architecture import Unicorn
from bitsynth.run.elf import Image
from bitsynth.run.emulated import Extent, Fault

_STACK, _RETURN = 2, 15
"""Regions; `Image.place` says where they are."""
_STACK_SIZE = 0x10_0000
_ALIGN = 16
_SECONDS = 600
_ACCESS = {19: "read", 20: "write", 21: "fetch", 22: "write", 23: "read", 24: "fetch"}


class UnicornMachine:
    """A machine of unicorn; it counts instructions if asked."""

    def __init__(self, image: Image, table: Unicorn, cpu: str, count: bool) -> None:
        try:
            unicorn: Any = importlib.import_module("unicorn")
            self._constants: Any = importlib.import_module(f"unicorn.{table.module}")
        except ImportError:
            raise ToolError("the unicorn emulator is not installed: pip install 'bitsynth[emulator]'") from None
        self._table, self._error = table, unicorn.UcError
        self._word, self._top, self._return = image.bits // 8, image.place(_STACK) + _STACK_SIZE, image.place(_RETURN)
        self._uc = unicorn.Uc(getattr(unicorn, table.arch), getattr(unicorn, table.mode))
        self._prot = {"r": unicorn.UC_PROT_READ, "w": unicorn.UC_PROT_WRITE, "x": unicorn.UC_PROT_EXEC}
        self._uc.ctl_set_cpu_model(self._constant(cpu))
        for register, value in table.registers.items():
            self._set(register, value)
        self._uc.mem_map(image.place(_STACK), _STACK_SIZE, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        self._uc.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_fault)
        self.description = f"emulated by unicorn {unicorn.__version__}"
        self.instructions: int | None = None
        self._count = count
        self._worker = ThreadPoolExecutor(1)
        self._executed = 0
        self._fault: Fault | None = None
        if count:
            self._uc.hook_add(unicorn.UC_HOOK_BLOCK if table.instruction_bytes else unicorn.UC_HOOK_CODE, self._on_code)

    def map(self, address: int, data: bytes | bytearray, access: str) -> None:
        """Map memory at `address` that holds `data`; `access` is made of r, w and x."""
        self._uc.mem_map(address, len(data), sum(self._prot[c] for c in access))
        self._uc.mem_write(address, bytes(data))

    def unmap(self, address: int, size: int) -> None:
        """Unmap `size` bytes at `address`."""
        self._uc.mem_unmap(address, size)

    def call(self, function: int, words: Sequence[int], places: Sequence[Extent] = ()) -> tuple[int, list[bytes]]:
        """Call `function` with `words`; return its result register and the contents of `places`. Fault if it fails."""
        self._pass(words)
        self._set(self._table.link, self._return)
        self._executed, self._fault = 0, None
        if sys.platform == "darwin":  # There, memory for code belongs to one thread.
            self._start(function)
        else:
            self._start_aside(function)
        if self._fault:
            raise self._fault
        self.instructions = self._executed if self._count else None
        return self._get(self._table.arguments[0]), [bytes(self._uc.mem_read(*place)) for place in places]

    def _pass(self, words: Sequence[int]) -> None:
        """Put words into the registers and the stack as arguments."""
        registers = self._table.arguments
        for register, word in zip(registers, words, strict=False):
            self._set(register, word)
        rest = b"".join(word.to_bytes(self._word, "little") for word in words[len(registers) :])
        stack = (self._top - len(rest)) & -_ALIGN
        self._uc.mem_write(stack, rest)
        self._set(self._table.stack, stack)

    def _constant(self, name: str) -> int:
        return int(getattr(self._constants, name))

    def _get(self, register: str) -> int:
        return int(self._uc.reg_read(self._constant(register)))

    def _set(self, register: str, value: int) -> None:
        self._uc.reg_write(self._constant(register), value)

    def _start_aside(self, function: int) -> None:
        """Start in a thread, because no signal interrupts unicorn itself."""
        running = self._worker.submit(self._start, function)
        try:
            running.result(_SECONDS)
        except TimeoutError:
            raise ToolError(f"did not end within {_SECONDS} s under unicorn") from None
        finally:
            while not running.done():
                self._uc.emu_stop()
                wait([running], 0.01)

    def _start(self, function: int) -> None:
        try:
            self._uc.emu_start(function, self._return)
        except self._error as error:
            self._fault = self._why(error)

    def _why(self, error: Exception) -> Fault:
        at = self._get(self._table.counter)
        return self._fault or Fault(f"did what unicorn calls {error}", at)

    def close(self) -> None:
        """End the thread that runs the machine."""
        self._worker.shutdown()

    def _on_code(self, _uc: Any, _address: int, size: int, _data: Any) -> None:
        """Count a block of instructions of the same size, or one instruction."""
        self._executed += size // (self._table.instruction_bytes or size)

    def _on_fault(self, _uc: Any, access: int, address: int, size: int, _value: int, _data: Any) -> bool:
        self._fault = Fault(f"did a forbidden {_ACCESS.get(access, 'access')} of {size} bytes", address)
        return False
