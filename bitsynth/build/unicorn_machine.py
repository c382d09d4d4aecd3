"""An AArch64 machine inside this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from bitsynth.build.emulated import Fault
from bitsynth.errors import ToolError

_RETURN = 0xF0_0000_0000
_STACK, _STACK_SIZE = 0x30_0000_0000, 0x10_0000
_FP_ON = 3 << 20
_SECONDS = 600
_ACCESS = {19: "read", 20: "write", 21: "fetch", 22: "write", 23: "read", 24: "fetch"}


class UnicornMachine:
    """Unicorn; counts instructions if asked."""

    def __init__(self, base_only: bool, count: bool) -> None:
        try:
            unicorn: Any = importlib.import_module("unicorn")
            regs: Any = importlib.import_module("unicorn.arm64_const")
        except ImportError:
            raise ToolError("the unicorn emulator is not installed: pip install 'bitsynth[emulator]'") from None
        self._uc, self._error = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM), unicorn.UcError
        self._regs = regs
        self._prot = {"r": unicorn.UC_PROT_READ, "w": unicorn.UC_PROT_WRITE, "x": unicorn.UC_PROT_EXEC}
        self._uc.ctl_set_cpu_model(regs.UC_CPU_ARM64_A72 if base_only else regs.UC_CPU_ARM64_MAX)
        self._uc.reg_write(regs.UC_ARM64_REG_CPACR_EL1, _FP_ON)
        self._uc.mem_map(_STACK, _STACK_SIZE, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        self._uc.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_fault)
        self.description = f"emulated by unicorn {unicorn.__version__}"
        self.instructions: int | None = None
        self._count = count
        self._worker = ThreadPoolExecutor(1)
        self._executed = 0
        self._fault: Fault | None = None
        if count:
            self._uc.hook_add(unicorn.UC_HOOK_BLOCK, self._on_block)

    def map(self, address: int, data: bytes | bytearray, access: str) -> None:
        self._uc.mem_map(address, len(data), sum(self._prot[c] for c in access))
        self._uc.mem_write(address, bytes(data))

    def unmap(self, address: int, size: int) -> None:
        self._uc.mem_unmap(address, size)

    def read(self, address: int, size: int) -> bytes:
        return bytes(self._uc.mem_read(address, size))

    def call(self, function: int, words: Sequence[int]) -> int:
        regs = self._regs
        for i, word in enumerate(words):
            self._uc.reg_write(regs.UC_ARM64_REG_X0 + i, word)
        self._uc.reg_write(regs.UC_ARM64_REG_SP, _STACK + _STACK_SIZE)
        self._uc.reg_write(regs.UC_ARM64_REG_LR, _RETURN)
        self._executed, self._fault = 0, None
        if sys.platform == "darwin":  # There, memory for code belongs to one thread.
            self._start(function)
        else:
            self._start_aside(function)
        if self._fault:
            raise self._fault
        self.instructions = self._executed if self._count else None
        return int(self._uc.reg_read(regs.UC_ARM64_REG_X0))

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
            self._uc.emu_start(function, _RETURN)
        except self._error as error:
            self._fault = self._why(error)

    def _why(self, error: Exception) -> Fault:
        at = self._uc.reg_read(self._regs.UC_ARM64_REG_PC)
        return self._fault or Fault(f"did what unicorn calls {error}", at)

    def close(self) -> None:
        self._worker.shutdown()

    def _on_block(self, _uc: Any, _address: int, size: int, _data: Any) -> None:
        self._executed += size // 4

    def _on_fault(self, _uc: Any, access: int, address: int, size: int, _value: int, _data: Any) -> bool:
        self._fault = Fault(f"did a forbidden {_ACCESS.get(access, 'access')} of {size} bytes", address)
        return False
