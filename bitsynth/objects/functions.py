"""Compares functions of an object with their declared results, for every content of their buffers.

A declared call has numbers for sizes and distances, and the contents that the function must leave in its buffers, as
polynomials of the bits that it reads (`polynomials.py`). The code runs on unknown bytes, in two layouts of memory, as
microkernels do (`prove.py`). Two polynomials are equal if and only if the results are equal for all contents. Where
they differ, the bits of a monomial are contents for which the results differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import cast

from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa
from bitsynth.objects.declared import machine_table
from bitsynth.objects.elf import ObjectFile
from bitsynth.objects.memory import MemoryPlace, NotShown, OutOfPlace
from bitsynth.objects.placement import MemoryLayout, layouts_of, random_start, two_files
from bitsynth.objects.polynomials import BitPolynomial, constant, counterexample, sum_of, value
from bitsynth.objects.processor import CodeProcessor
from bitsynth.objects.tables import TableMemory
from bitsynth.objects.values import Content, Contents

_SHOWN = 6
"""The most bytes of an example that are shown."""


@dataclass(frozen=True)
class DeclaredNumber:
    """A number that a function leaves in memory: `size` bytes at `first` of a buffer."""

    buffer: str
    first: int
    size: int
    value: BitPolynomial


@dataclass(frozen=True)
class CallBuffer:
    """A buffer of a call: its bytes, the alignment that is promised, and whether it is written.

    A buffer that is read holds codes of `code_bits` bits, a byte each. A buffer that is written has no values before,
    unless it `is_read` too.
    """

    name: str
    size: int
    aligned: int = 1
    written: bool = False
    code_bits: int = 8
    is_read: bool = False


@dataclass(frozen=True)
class DeclaredCall:
    """A call of a function: arguments, which are numbers and names of buffers, and the contents that it must leave.

    Attributes:
        sizes: The sizes in words.
        result: The number that it returns, and its bytes; None if it returns none.
    """

    function: str
    sizes: str
    arguments: tuple[int | str, ...]
    buffers: tuple[CallBuffer, ...] = ()
    numbers: tuple[DeclaredNumber, ...] = ()
    result: tuple[int, int] | None = None


@dataclass
class FunctionVerdict:
    """The verdict on a function: the number of calls for which its results equal the declared ones.

    Attributes:
        functions: Name, address in the file and bytes of each function that was run.
        numbers: How many numbers were compared.
        why: Why it is not proved: the code that is not understood; "" if it is proved.
    """

    function: str
    calls: int = 0
    numbers: int = 0
    functions: list[tuple[str, int, int]] = field(default_factory=list)
    seconds: float = 0.0
    why: str = ""

    @property
    def is_proved(self) -> bool:
        """Whether its results equal the declared ones in each of the calls."""
        return not self.why


class _Different(NotShown):
    """A function computes something else."""


def prove_functions(
    path: Path,
    isa: Isa,
    calls: Iterable[DeclaredCall],
    features: Iterable[str],
    *,
    say: Callable[[str], object] = lambda text: None,
) -> list[FunctionVerdict]:
    """Return the verdict on each function of the object at `path`, in the order of first calls.

    Raises:
        Refuted: A function computes something else, or leaves its buffers. A function that is not understood is not
            refuted: its verdict says why.
        SpecError: The object is of another architecture.
    """
    loaded, values = random_start(), Contents()
    first = TableMemory(values)
    memories = (first, replace(first, arrays=[], written={}, stored_at={}))  # They share polynomials that are kept.
    files = two_files(path, machine_table(isa), loaded)
    processors = [CodeProcessor(f, isa, values, m, features) for f, m in zip(files, memories, strict=True)]
    verdicts = []
    for function, group in groupby(calls, key=lambda call: call.function):
        verdict, start = FunctionVerdict(function), time.process_time()
        for processor in processors:
            processor.decoded.clear()
        for call in group:
            say(f"{function} with {call.sizes}")
            aligned = {buffer.name: buffer.aligned for buffer in call.buffers}
            try:
                for processor, memory, layout in zip(processors, memories, layouts_of(loaded, aligned), strict=True):
                    verdict.numbers += _compare(processor, memory, call, layout)
            except (_Different, OutOfPlace) as why:
                raise Refuted(f"{path.name}, {function}: with {call.sizes}: {why}") from None
            except NotShown as why:
                verdict.why = f"with {call.sizes}: {why}"
                break
            verdict.calls += 1
        having = {x for x in map(files[0].function_at, processors[0].decoded) if x is not None}
        verdict.functions = sorted((name, files[0].in_file(at), size) for name, at, size in having)
        verdict.seconds = time.process_time() - start
        verdicts.append(verdict)
    return verdicts


def _compare(processor: CodeProcessor, memory: TableMemory, call: DeclaredCall, layout: MemoryLayout) -> int:
    """Run a call and compare the numbers that it leaves with the declared ones; return their count."""
    file, values = processor.file, processor.values
    starts = {x.name: layout.start(x.name) for x in call.buffers}
    memory.arrays = [
        *(MemoryPlace(x.name, starts[x.name], x.size, writable=x.written) for x in call.buffers if x.size),
        *file.constants,
    ]
    memory.of_object = [range(part.start, part.end) for part in file.parts]
    memory.code_bits |= {x.name: x.code_bits for x in call.buffers}
    memory.written.clear()
    memory.stored_at.clear()
    for x in call.buffers:
        if x.written and x.is_read:
            memory.written |= {starts[x.name] + k: (x.name, k) for k in range(x.size)}
    arguments = [starts[x] if isinstance(x, str) else x for x in call.arguments]
    stack, back = layout.start("stack"), layout.start("back")
    processor.call(_address(file, call.function), arguments, stack=stack, back=back)
    if call.result is not None:
        number, size = call.result
        have = processor.registers.lowest(processor.registers.general[processor.registers.table.result], size)
        _require_equal(memory, have, constant(number), "its result", call)
    for declared in call.numbers:
        at = starts[declared.buffer] + declared.first
        data = [memory.written.get(at + k) for k in range(declared.size)]
        where = f"{declared.buffer}, bytes {declared.first} to {declared.first + declared.size - 1}"
        if None in data:
            raise _Different(f"{where}: not written")
        have = values.content([x for x in data if x is not None])
        last = processor.text_at(memory.stored_at[at]) if at in memory.stored_at else "not written"
        _require_equal(memory, have, declared.value, f"{last}: {where}", call)
    return len(call.numbers)


def _address(file: ObjectFile, name: str) -> int:
    if name not in file.functions:
        raise NotShown("the object has no such function")
    return file.functions[name][0]


def _require_equal(memory: TableMemory, have: Content, want: BitPolynomial, where: str, call: DeclaredCall) -> None:
    """Raise _Different unless a content equals the declared number."""
    bits = 8 * len(have)
    stored = memory.polynomial_of(have)
    example = counterexample(sum_of([(stored, 1), (want, -1)], bits))
    if example is None:
        return
    bytes_of: dict[str, int] = {}
    for key, place in example:
        array, byte = cast("tuple[str, int]", key)
        name = f"{array} byte {byte}"
        bytes_of[name] = bytes_of.get(name, 0) | 1 << place
    shown = ", ".join(f"{name} = {x:#04x}" for name, x in sorted(bytes_of.items())[:_SHOWN]) or "all bytes 0"
    values = [value(x, example) % (1 << bits) for x in (stored, want)]
    raise _Different(f"{where}: with {shown}, other bytes 0: it is {values[0]}, want {values[1]}")
