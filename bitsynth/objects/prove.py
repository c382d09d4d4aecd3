"""Compares a compiled microkernel with the kernel's proved program, for every input of chosen sizes.

The function runs with numbers for sizes and pointers, and with unknown bytes in its buffers. Its tile must be what the
proved program computes of the same bytes: then the certificate of the kernel says what it is. Sizes are chosen about
the periods of all loops (`sizes_of`). Each runs twice, with the object, the buffers and the stack at random addresses,
and at their complements: code that depends on a bit of an address is right in at most one of the two. Then the loop
rule (`loops.py`) shows it for all sizes; where it does not apply, the object is proved for the sizes that ran.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.errors import Refuted, ToolError
from bitsynth.isa.domains.forms import Inexact
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.program import Kernel
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.declared import machine_table
from bitsynth.objects.elf import ObjectFile, read_object
from bitsynth.objects.examples import different
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.placement import MemoryLayout, layouts_of, random_start, two_files
from bitsynth.objects.processor import CodeProcessor, Disassembler
from bitsynth.objects.reference import ProgramRun, Sizes, TileContents
from bitsynth.objects.values import Content, Contents

if TYPE_CHECKING:
    from bitsynth.objects.depthwise import DepthwiseSizes
    from bitsynth.objects.loops import LoopProof

MAX_STEPS = 1 << 13
"""The most steps of a call that is run."""
_ALIGNED = {"a": 8, "w": 8, "g": 4, "h": 4, "c": 4, "rows": 8}
"""Alignments that the C interface promises of buffers and of each row, in bytes."""
_SHORT = 64
"""For periods below this, sizes are a step less, the period, a step more, and twice the period."""
_NO_PERIOD = 8
"""Steps about which sizes are chosen if no period is short enough to be reached."""
_GAP = 4
"""Columns of the result after the tiles, which are not written. So rows have the alignment of the first."""


@dataclass
class ObjectProof:
    """The verdict on an object, for the sizes in `sizes`, and with `loops` for all.

    Attributes:
        loops: The result of the loop rule; None if it does not apply.
        not_all: Why it does not apply.
        functions: Name, address in the file and bytes of each function that was run: the kernel's, and functions it
            calls.
        instructions: How many of the functions' instructions were run.
        not_run: Addresses of instructions of the microkernel that no size reached.
        one_sided: Addresses of branches that always went one way.
    """

    path: Path
    name: str
    sizes: list[Sizes | DepthwiseSizes] = field(default_factory=list)
    registers: int = 0
    functions: list[tuple[str, int, int]] = field(default_factory=list)
    instructions: int = 0
    not_run: list[str] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    seconds: float = 0.0
    loops: LoopProof | None = None
    not_all: str = "the loop rule was not tried"


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
    seen |= {(1, 3 * period + 1) for period in periods if 3 * period < MAX_STEPS}
    near = min(short, 96)
    seen |= {(2, 1), (3, 1), (2, near), (2, near + 1), (3, max(1, near - 1)), (near + 2, 1), (5, 3)}
    yield from (Sizes(1, *rest) for rest in sorted(seen))
    yield from (Sizes(2, *rest) for rest in ((1, near + 1), (2, max(1, near - 1)), (3, 2)))


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep Python from looking for objects to free that refer to each other.

    A proof makes many values that stay until it ends: looking through them would take a quarter of its time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@without_collection()
def prove_object(
    path: Path,
    kernel: MatmulKernel,
    *,
    name: str = "",
    all_sizes: bool = True,
    say: Callable[[str], object] = lambda text: None,
) -> ObjectProof:
    """Return the verdict on the kernel's function in the object at `path`; Refuted says where it differs from the
    kernel.

    The function is called `name`, by default as the kernel. Without `all_sizes` the loop rule is not tried. SpecError
    if objects of the kernel cannot be proved, or if the object has no such function.
    """
    start, program, name = time.process_time(), kernel.entry.kernel, name or kernel.name
    require_provable(program.isa)
    isa, values, proof = load(program.isa), Contents(), ObjectProof(path, name)
    reference = ProgramRun.of(kernel, values)
    loaded = random_start()
    files = two_files(path, machine_table(isa), loaded)
    features = features_of(program)
    processors = [CodeProcessor(file, isa, values, CallMemory(values), features) for file in files]
    addresses = [file.function(name) for file in files]
    for sizes in sizes_of(program):
        say(str(sizes))
        tiles = [reference.tile(sizes, tile) for tile in range(sizes.tiles)]
        for processor, address, layout in zip(processors, addresses, layouts_of(loaded, _ALIGNED), strict=True):
            try:
                count = _compare(processor, reference, tiles, address, sizes, layout)
            except NotShown as why:
                raise Refuted(f"{path.name}, {name}: with {sizes}: {why}") from None
        proof.registers += count
        proof.sizes.append(sizes)
    if all_sizes:
        say("all sizes")
        try:
            proof.loops = prove_all_sizes(path, kernel, processors, name=name)
        except (NotShown, Inexact, ToolError) as why:
            proof.not_all = str(why)
    note_coverage(proof, processors)
    proof.seconds = time.process_time() - start
    return proof


def features_of(program: Kernel) -> set[str]:
    """Return the features that a kernel asks the processor for."""
    return features_of_forms(load(program.isa), program.forms)


def features_of_forms(isa: Isa, forms: Collection[str]) -> set[str]:
    """Return the features that instruction forms need."""
    return {isa[op].feature for op in forms}


def require_provable(isa: str) -> None:
    """Raise SpecError if objects of an instruction set's architecture cannot be proved, ToolError without capstone."""
    Disassembler(machine_table(load(isa)))


@without_collection()
def prove_all_sizes(
    path: Path, kernel: MatmulKernel, processors: list[CodeProcessor] | None = None, *, name: str = ""
) -> LoopProof:
    """Return the result of the loop rule for the kernel's function; NotShown or Inexact if it does not apply.

    The function is called `name`, by default as the kernel. Its processor is added to `processors`.
    """
    try:
        proof, processor = _apply_rule(path, kernel, name, outer_first=True)
    except NotShown:
        proof, processor = _apply_rule(path, kernel, name, outer_first=False)
    if processors is not None:
        processors.append(processor)
    return proof


def _apply_rule(path: Path, kernel: MatmulKernel, name: str, *, outer_first: bool) -> tuple[LoopProof, CodeProcessor]:
    """Return the result of the loop rule with one order of visits, and the processor that it ran."""
    from bitsynth.objects.affine_memory import AffineMemory
    from bitsynth.objects.loops import LoopRule

    program, values = kernel.entry.kernel, Contents()
    isa = load(program.isa)
    file = read_object(path, machine_table(isa))
    reference = ProgramRun.of(kernel, values)
    memory = AffineMemory(values, file=file, kernel=program, row_terms=reference.row_terms)
    reference = replace(reference, part=memory.part)
    processor = CodeProcessor(file, isa, values, memory, features_of(program), any_place=True)
    rule = LoopRule(processor, memory, reference, file.function(name or kernel.name), outer_first)
    return rule.prove(), processor


def _compare(
    processor: CodeProcessor,
    reference: ProgramRun,
    tiles: list[TileContents],
    address: int,
    sizes: Sizes,
    layout: MemoryLayout,
) -> int:
    """Run the function for one set of sizes and compare its tiles with `tiles`; return how many registers these are."""
    kernel = reference.kernel
    width = kernel.columns * sizes.tiles + _GAP
    processor.memory.begin_call(_arrays(processor.file, reference, sizes, width, layout))
    arguments = [sizes.tiles, sizes.segments, sizes.steps, *(layout.start(x) for x in "awghc"), width]
    processor.call(address, arguments, stack=layout.start("stack"), back=layout.start("back"))
    lanes, count = reference.isa.tile.lanes, 0
    for tile, program_tile in enumerate(tiles):
        for (row, column), want in program_tile.items():
            place = layout.start("c") + 4 * (row * width + tile * kernel.columns + column)
            where = f"row {row}, columns {column} to {column + lanes - 1} of tile {tile}"
            require_result(processor, place, want, where)
            count += 1
    return count


def require_result(processor: CodeProcessor, place: int, want: Content, where: str) -> None:
    """Raise NotShown unless memory at `place` holds the content `want`; `where` names the place in messages."""
    values = processor.values
    data = [processor.memory.written.get(place + k) for k in range(len(want))]
    if None in data:
        raise NotShown(f"{where} is not written")
    have = values.content([x for x in data if x is not None])
    if not values.same(have, want):
        why = different(values, have, want) or _unlike(values, have, want)
        last = processor.text_at(processor.memory.stored_at[place])
        raise NotShown(f"{last}: {where} is not what the proved program computes: {why}")


def _unlike(values: Contents, have: Content, want: Content) -> str:
    """Return which arrays one of the results depends on and the other does not, in words."""
    left, right = values.unknowns(have), values.unknowns(want)
    more, less = sorted(map(str, left - right)), sorted(map(str, right - left))
    reads = [f"it reads {array}" for array in more[:1]] + [f"it does not read {array}" for array in less[:1]]
    return "; ".join([*reads, "no bytes were found on which they differ"])


def _arrays(
    file: ObjectFile, reference: ProgramRun, sizes: Sizes, width: int, layout: MemoryLayout
) -> list[MemoryPlace]:
    """Return the buffers of a call, as long as the C interface says, and the object's constants."""
    kernel = reference.kernel
    rows, steps = range(kernel.rows * sizes.segments), sizes.all_steps
    pointers = b"".join(layout.row(k).to_bytes(8, "little") for k in rows)
    arrays = [
        MemoryPlace("w", layout.start("w"), sizes.tiles * steps * kernel.columns * kernel.column_bytes),
        MemoryPlace("g", layout.start("g"), 4 * sizes.tiles * kernel.columns),
        MemoryPlace("h", layout.start("h"), 4 * kernel.rows * reference.row_terms),
        *(MemoryPlace(("row", k), layout.row(k), sizes.steps * kernel.row_bytes) for k in rows),
        *file.constants,
        MemoryPlace("a", layout.start("a"), len(pointers), pointers),
    ]
    for row in range(kernel.rows):
        start = layout.start("c") + 4 * row * width
        arrays.append(MemoryPlace(("c", row), start, 4 * kernel.columns * sizes.tiles, writable=True))
    return arrays


def note_coverage(proof: ObjectProof, processors: list[CodeProcessor]) -> None:
    """Note which instructions of the functions that ran were not reached, and which branches went one way.

    Refuted if code that ran is in no function.
    """
    first = processors[0]
    decoded: dict[int, int] = {}
    taken: dict[int, set[bool]] = {}
    for processor in processors:
        file = processor.file
        decoded |= {file.in_file(at): following - at for at, (_, following) in processor.decoded.items()}
        for at, ways in processor.taken.items():
            taken.setdefault(file.in_file(at), set()).update(ways)
    reached = {at: first.file.in_memory(at) for at in decoded}
    functions = {at: first.file.function_at(place) for at, place in reached.items()}
    if outside := [at for at, function in functions.items() if function is None]:
        raise Refuted(f"{proof.path.name}: the code at {outside[0]:#x} ran and is in no function that has a size")
    for function, start, size in sorted({x for x in functions.values() if x}):
        proof.functions.append((function, first.file.in_file(start), size))
        place, end = start, start + size
        while place < end:
            if (at := first.file.in_file(place)) in decoded:
                proof.instructions += 1
                place += decoded[at]
                continue
            is_code, following = first.find_padding(place)
            if is_code:
                proof.not_run.append(first.text_at(place))
            place = following
    proof.one_sided += [first.text_at(reached[at]) for at, ways in taken.items() if len(ways) == 1]
