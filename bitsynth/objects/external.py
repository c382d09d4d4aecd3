"""Functions of the C library that compiled code may call, as stubs (`CodeProcessor.stubs`): their effect on memory.

They are not read; that the library's functions do what the C standard says is trusted. Bytes that have no value are
copied too, as the C standard allows; code that uses their values is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitsynth.objects.memory import OutOfPlace

if TYPE_CHECKING:
    from bitsynth.objects.processor import CodeProcessor


def call_external(name: str, processor: CodeProcessor) -> int:
    """Do what `memcpy`, `memmove` or `memset` does with the arguments of a call; return what it returns."""
    registers, memory = processor.registers, processor.memory
    target, second, size = (processor.argument(k) for k in range(3))
    to, count = registers.require_known(target), registers.require_known(size)
    memory.require_within(count)
    if name == "memset":
        memory.set_bytes(to, registers.lowest(second, 1).data * count)
        return to
    start = registers.require_known(second)
    if name == "memcpy" and abs(to - start) < count:
        raise OutOfPlace(f"memcpy copies {count} bytes that overlap")
    memory.set_bytes(to, memory.bytes_at(start, count))
    return to
