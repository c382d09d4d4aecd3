"""Functions of the C library that compiled code may call, as stubs (`CodeProcessor.stubs`): what they do to memory.

They are not read; that the library's functions do what the C standard says is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitsynth.objects.memory import NotShown

if TYPE_CHECKING:
    from bitsynth.objects.processor import CodeProcessor


def call_external(name: str, processor: CodeProcessor) -> int:
    """Do what `memcpy`, `memmove` or `memset` does with the arguments of a call; return what it returns."""
    registers, memory = processor.registers, processor.memory
    target, second, size = (processor.argument(k) for k in range(3))
    to, count = registers.known(target), registers.known(size)
    if count and name == "memset":
        memory.store(to, registers.values.content(registers.lowest(second, 1).data * count))
    elif count:
        start = registers.known(second)
        if name == "memcpy" and abs(to - start) < count:
            raise NotShown("memcpy moves bytes between places that overlap")
        memory.store(to, memory.load(start, count))
    return to
