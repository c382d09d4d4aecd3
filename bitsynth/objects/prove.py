"""Compares a compiled microkernel with the kernel's proved program, for every input of chosen sizes.

The function runs with numbers for sizes and pointers, and with unknown bytes in its buffers. Its tile must be what the
proved program computes of the same bytes: then the certificate of the kernel says what it is. Sizes are chosen about
the periods of all loops (`sizes_of`); what is shown is shown for these sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.kernel.program import Kernel
from bitsynth.objects.declared import machine_table
from bitsynth.objects.elf import END, ObjectFile, read_object
from bitsynth.objects.examples import different
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.processor import CodeProcessor
from bitsynth.objects.reference import ProgramRun, Sizes
from bitsynth.objects.values import Content, Contents

MAX_STEPS = 1 << 13
"""The most steps of a call that is run."""
_PLACES = {"a": END + 8, "w": 2 * END + 8, "g": 3 * END + 4, "h": 4 * END + 4, "c": 5 * END + 4}
"""Addresses of buffers, aligned to 8 bytes and, those of numbers, to 4: as the C interface says, and no more."""
_ROWS, _ROW_APART = 16 * END + 8, (1 << 24) + 8
_SHORT = 64
"""Periods below this are tried with a step less, with all of it, and twice."""
_NO_PERIOD = 8
"""Steps about which sizes are chosen if no period is short enough to be reached."""
_GAP = 5
"""Columns of the result beyond those of the tiles, which are not written."""


@dataclass
class ObjectProof:
    """What was shown of an object, for the sizes in `sizes`.

    Attributes:
        instructions: How many instructions of the object were run, of those that its functions have.
        not_run: Addresses of instructions of the microkernel that no size reached.
        one_sided: Addresses of branches that always went one way.
    """

    path: Path
    name: str
    sizes: list[Sizes] = field(default_factory=list)
    registers: int = 0
    instructions: int = 0
    not_run: list[str] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    seconds: float = 0.0


def sizes_of(kernel: Kernel) -> Iterator[Sizes]:
    """Yield sizes about the periods of the kernel's loops: no step, one, a loop's last and the one behind it.

    Segments end inside of a period, at its end, and in every step; there are none, one, two and three tiles.
    """
    periods = {1}
    for loop in kernel.passes:
        runs = 1
        for nested in loop.loops:
            runs *= nested.trip_count
            periods.add(runs)
    periods = {p for p in periods if p <= MAX_STEPS}
    short = min((p for p in periods if p > 1), default=_NO_PERIOD)
    for tiles in range(4):
        yield from (Sizes(tiles, *rest) for rest in ((0, 0), (0, 3), (2, 0), (1, 1)))
    seen: set[tuple[int, int]] = set()
    for period in sorted(periods):
        about = (period - 1, period, period + 1, 2 * period, 2 * period + 1) if period < _SHORT else (period + 1,)
        seen |= {(1, max(1, steps)) for steps in about}
    if max(periods) > short:
        seen |= {(1, n * short + k) for n in (2, 3) for k in (0, 1)}
    near = min(short, 96)
    seen |= {(2, 1), (3, 1), (2, near), (2, near + 1), (3, max(1, near - 1)), (near + 2, 1), (5, 3)}
    yield from (Sizes(1, *rest) for rest in sorted(seen))
    yield from (Sizes(2, *rest) for rest in ((1, near + 1), (2, max(1, near - 1)), (3, 2)))


def prove_object(
    path: Path, name: str, kernel: Kernel, *, row_terms: bool, say: Callable[[str], object] = lambda text: None
) -> ObjectProof:
    """Return what is shown of function `name` of the object at `path`; Refuted says where it is not the kernel."""
    start = time.process_time()
    isa = load(kernel.isa)
    file, proof = read_object(path, machine_table(isa)), ObjectProof(path, name)
    address = file.function(name)
    values = Contents()
    reference = ProgramRun(kernel, values, row_terms)
    processor = CodeProcessor(file, isa, values, CallMemory(values))
    for sizes in sizes_of(kernel):
        say(str(sizes))
        try:
            proof.registers += _compare(processor, reference, address, sizes)
        except NotShown as why:
            raise Refuted(f"{path.name}, {name}: with {sizes}: {why}") from None
        proof.sizes.append(sizes)
    _cover(proof, processor, file)
    proof.seconds = time.process_time() - start
    return proof


def _compare(processor: CodeProcessor, reference: ProgramRun, address: int, sizes: Sizes) -> int:
    """Run the function for one set of sizes and compare its tiles; return how many registers were compared."""
    kernel, isa = reference.kernel, reference.isa
    width = kernel.columns * sizes.tiles + _GAP
    processor.memory.arrays = _arrays(processor.file, kernel, sizes, width)
    processor.memory.written.clear()
    processor.memory.stored_at.clear()
    arguments = [
        sizes.tiles, sizes.segments, sizes.steps, *(_PLACES[x] for x in "awghc"), width,
    ]  # fmt: skip
    processor.call(address, arguments)
    lanes, count = isa.tile.lanes, 0
    for tile in range(sizes.tiles):
        for (row, column), want in reference.tile(sizes, tile).items():
            place = _PLACES["c"] + 4 * (row * width + tile * kernel.columns + column)
            data = [processor.memory.written.get(place + k) for k in range(4 * lanes)]
            where = f"row {row}, columns {column} to {column + lanes - 1} of tile {tile}"
            if None in data:
                raise NotShown(f"{where} is not written")
            have = processor.values.content([x for x in data if x is not None])
            if not processor.values.same(have, want):
                why = different(processor.values, have, want) or _unlike(processor.values, have, want)
                last = processor.text_at(processor.memory.stored_at[place])
                raise NotShown(f"{last}: {where} is not what the proved program computes: {why}")
            count += 1
    return count


def _unlike(values: Contents, have: Content, want: Content) -> str:
    """Return which arrays one of the results depends on and the other does not, in words."""
    left, right = values.unknowns(have), values.unknowns(want)
    more, less = sorted(map(str, left - right)), sorted(map(str, right - left))
    reads = [f"it reads {array}" for array in more[:1]] + [f"it does not read {array}" for array in less[:1]]
    return "; ".join([*reads, "no bytes were found on which they differ"])


def _arrays(file: ObjectFile, kernel: Kernel, sizes: Sizes, width: int) -> list[MemoryPlace]:
    """Return the buffers of a call, as long as the C interface says, and the object's constants."""
    rows, steps = kernel.rows * sizes.segments, sizes.all_steps
    arrays = [
        MemoryPlace("w", _PLACES["w"], sizes.tiles * steps * kernel.columns * kernel.column_bytes),
        MemoryPlace("g", _PLACES["g"], 4 * sizes.tiles * kernel.columns),
        MemoryPlace("h", _PLACES["h"], 4 * kernel.rows),
        *(MemoryPlace(("row", k), _ROWS + k * _ROW_APART, sizes.steps * kernel.row_bytes) for k in range(rows)),
        *file.constants,
    ]
    pointers = b"".join((_ROWS + k * _ROW_APART).to_bytes(8, "little") for k in range(rows))
    arrays.append(MemoryPlace("a", _PLACES["a"], len(pointers), pointers))
    for row in range(kernel.rows):
        start = _PLACES["c"] + 4 * row * width
        arrays.append(MemoryPlace(("c", row), start, 4 * kernel.columns * sizes.tiles, writable=True))
    return arrays


def _cover(proof: ObjectProof, processor: CodeProcessor, file: ObjectFile) -> None:
    """Note which instructions of the functions that ran were not reached, and which branches went one way."""
    names = {file.name_of(address) for address in processor.decoded}
    for name in sorted(names):
        at, size = file.functions[name]
        end = at + size
        while at < end:
            entry = processor.decoded.get(at)
            if entry is not None:
                proof.instructions += 1
                at = entry[1]
                continue
            text, following = processor.skipped(at)
            if text is not None:
                proof.not_run.append(f"{name} at {at:#x}: {text}")
            at = following
    for address, ways in processor.taken.items():
        if len(ways) == 1:
            proof.one_sided.append(f"{address:#x}: {processor.text[address]}")
