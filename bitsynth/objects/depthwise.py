"""Compares a compiled depthwise kernel with its proved program, for every input of chosen sizes.

As with matmul kernels (`prove.py`), the function runs with numbers for sizes and pointers, and with unknown bytes in
its buffers: each tap of a step reads a buffer of its own. Each sum must be what the proved program computes of the same
bytes. Layers ask for the sizes with which they call it; a kernel by itself is proved for those about its loops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.depthwise import DepthwiseFlush, DepthwiseProgram
from bitsynth.objects.declared import machine_table
from bitsynth.objects.elf import ObjectFile
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.placement import MemoryLayout, layouts_of, random_start, two_files
from bitsynth.objects.processor import CodeProcessor
from bitsynth.objects.prove import ObjectProof, features_of_forms, note_coverage, require_result, without_collection
from bitsynth.objects.reference import constant_contents
from bitsynth.objects.values import Content, Contents
from bitsynth.store.depthwise import DEPTHWISE

_ALIGNED = {"a": 8, "w": 1, "start": 4, "c": 4, "rows": 1}
"""Alignments that the C interface promises of buffers; `rows` are the taps."""
_POINTER_BYTES, _SUM_BYTES = 8, 4
_GAP = 4
"""Sums of a pixel after the sums of its units, which are not written."""
_MAX_STEPS = 2048
"""The most steps of a call that is run for a kernel by itself."""


@dataclass(frozen=True)
class DepthwiseSizes:
    """The sizes of a call: `apart` bytes from a pixel's activations to the next ones, `ldc` sums to its next sums."""

    pixels: int
    units: int
    steps: int
    apart: int
    ldc: int

    @property
    def all_steps(self) -> int:
        """The steps of a sum."""
        return self.steps

    def __str__(self) -> str:
        where = f"{self.apart} bytes and {self.ldc} sums apart"
        return f"pixels {self.pixels}, units {self.units}, steps {self.steps}, {where}"


@dataclass(frozen=True)
class DepthwiseFunction:
    """The function of a stored depthwise kernel, whose sums have the channels of a unit in `order`."""

    name: str
    order: tuple[int, ...]

    @property
    def program(self) -> DepthwiseProgram:
        """The program, whose proof is checked as it is loaded."""
        proved = DEPTHWISE.load_named(self.name)
        assert proved is not None, "the name is a depthwise kernel's"
        return proved.artifact


def depthwise_sizes(program: DepthwiseProgram) -> Iterator[DepthwiseSizes]:
    """Yield sizes around the kernel's loops: blocks of pixels and parts of blocks, and steps between flushes."""
    unit, block, period = program.unit, program.pixels, program.flush_every
    steps = {n for n in (period - 1, period, period + 1, 2 * period + 1) if 1 <= n <= _MAX_STEPS}
    sizes = [(pixels, 1, 2) for pixels in range(2 * block + 2)]
    sizes += [(1, 1, n) for n in sorted(steps)] + [(block, 1, n) for n in sorted(steps) if n < 128]
    sizes += [(0, 2, 1), (1, 0, 1), (block + 1, 2, 3), (2, 3, 1), (3, 2, 5)]
    for k, (pixels, units, count) in enumerate(dict.fromkeys(sizes)):
        wide = max(1, units) * unit
        yield DepthwiseSizes(pixels, units, count, wide + (0, unit, 3)[k % 3], wide + _GAP * (k % 2))


@dataclass(frozen=True)
class DepthwiseRun:
    """A kernel's program on the values of a call's buffers: taps ("tap", t), weights "w" and numbers "start"."""

    program: DepthwiseProgram
    order: tuple[int, ...]
    values: Contents

    @property
    def isa(self) -> Isa:
        """The instruction set."""
        return load(self.program.isa)

    @property
    def flush(self) -> DepthwiseFlush:
        """The flush to the order of channels."""
        return self.program.flushes[self.program.orders.index(self.order)]

    def sums(self, sizes: DepthwiseSizes, pixel: int, unit: int) -> list[Content]:
        """Return the registers of sums of a pixel and a unit."""
        program, width = self.program, self.program.unit
        size = self.isa.tile.total_bits // 8
        first = unit * width * _SUM_BYTES
        out = [
            self._load(program.memory.load_tile, "start", first + r * size, size) for r in range(len(self.flush.tile))
        ]
        for done in range(0, sizes.steps, program.flush_every):
            accs = {acc.name: self.values.number(0, VecType.parse(acc.type).total_bits // 8) for acc in program.accs}
            for step in range(done, min(done + program.flush_every, sizes.steps)):
                accs = self.after_step(accs, self._inputs(sizes, pixel, unit, step))
            out = self.after_flush(accs, out)
        return out

    def _inputs(self, sizes: DepthwiseSizes, pixel: int, unit: int, step: int) -> dict[Value, Content]:
        program, width = self.program, self.program.unit
        taps = [(Value.of(Role.ROW, j), ("tap", step * program.taps + j)) for j in range(program.taps)]
        at, weights = pixel * sizes.apart + unit * width, (unit * sizes.steps + step) * program.step_bytes
        inputs = {value: self._load(program.memory.load, tap, at, width) for value, tap in taps}
        for j in range(len(program.weights)):
            inputs[Value.of(Role.COLUMN, j)] = self._load(program.memory.load, "w", weights + j * width, width)
        return inputs

    def after_step(self, accs: dict[Value, Content], inputs: dict[Value, Content]) -> dict[Value, Content]:
        """Return the accumulators after a step."""
        registers = {**accs, **inputs}
        self._steps(self.program.steps, registers)
        return {acc.name: registers[acc.next] for acc in self.program.accs}

    def after_flush(self, accs: dict[Value, Content], sums: Sequence[Content]) -> list[Content]:
        """Return the registers of sums after a flush."""
        tile = {Value.of(Role.TILE, r): x for r, x in enumerate(sums)}
        registers = {**constant_contents(self.values, self.flush.constants), **accs, **tile}
        self._steps(self.flush.steps, registers)
        return [registers[name] for name in self.flush.tile]

    def _steps(self, steps: Iterable[Step], registers: dict[Value, Content]) -> None:
        for step in steps:
            registers[step.dst] = self.values.apply(self.isa[step.op], [registers[x] for x in step.args], step.imm)

    def _load(self, op: str, array: Hashable, first: int, size: int) -> Content:
        return self.values.apply(self.isa[op], [self.values.memory(array, first, size)])


@without_collection()
def prove_depthwise(
    path: Path,
    kernel: DepthwiseFunction,
    *,
    name: str = "",
    sizes: Iterable[DepthwiseSizes] | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> ObjectProof:
    """Return the verdict on the kernel's function in the object at `path`; Refuted says where it differs from the
    kernel.

    The function is called `name`, by default as the kernel. `sizes` are by default those about the kernel's loops.
    SpecError if objects of its architecture cannot be proved, or if the object has no such function.
    """
    start, program, name = time.process_time(), kernel.program, name or kernel.name
    isa, values = load(program.isa), Contents()
    proof = ObjectProof(path, name, not_all="depthwise kernels are proved for listed sizes alone")
    run = DepthwiseRun(program, kernel.order, values)
    loaded = random_start()
    features = features_of_forms(isa, program.forms)
    files = two_files(path, machine_table(isa), loaded)
    processors = [CodeProcessor(file, isa, values, CallMemory(values), features) for file in files]
    for each in depthwise_sizes(program) if sizes is None else sizes:
        say(str(each))
        for processor, layout in zip(processors, layouts_of(loaded, _ALIGNED), strict=True):
            try:
                count = _compare(processor, run, processor.file.function(name), each, layout)
            except NotShown as why:
                raise Refuted(f"{path.name}, {name}: with {each}: {why}") from None
        proof.registers += count
        proof.sizes.append(each)
    note_coverage(proof, processors)
    proof.seconds = time.process_time() - start
    return proof


def _compare(
    processor: CodeProcessor, run: DepthwiseRun, address: int, sizes: DepthwiseSizes, layout: MemoryLayout
) -> int:
    """Run the function for one set of sizes and compare its sums; return how many registers these are."""
    width = run.program.unit
    processor.memory.begin_call(_arrays(processor.file, run.program, sizes, layout))
    places = {name: layout.start(name) for name in ("a", "w", "start", "c")}
    arguments = [sizes.pixels, sizes.units, sizes.steps, places["a"], sizes.apart, places["w"], places["start"]]
    arguments += [places["c"], sizes.ldc]
    processor.call(address, arguments, stack=layout.start("stack"), back=layout.start("back"))
    lanes, count = run.isa.tile.lanes, 0
    for pixel in range(sizes.pixels):
        for unit in range(sizes.units):
            for r, want in enumerate(run.sums(sizes, pixel, unit)):
                lane = unit * width + r * lanes
                where = f"pixel {pixel}, sums {lane} to {lane + lanes - 1}"
                require_result(processor, places["c"] + _SUM_BYTES * (pixel * sizes.ldc + lane), want, where)
                count += 1
    return count


def _arrays(
    file: ObjectFile, program: DepthwiseProgram, sizes: DepthwiseSizes, layout: MemoryLayout
) -> list[MemoryPlace]:
    """Return the buffers of a call, as long as the C interface says, and the object's constants."""
    wide, taps = sizes.units * program.unit, range(sizes.steps * program.taps)
    pointers = b"".join(layout.row(k).to_bytes(_POINTER_BYTES, "little") for k in taps)
    of_tap = max(0, sizes.pixels - 1) * sizes.apart + wide if sizes.pixels else 0
    arrays = [
        MemoryPlace("w", layout.start("w"), sizes.units * sizes.steps * program.step_bytes),
        MemoryPlace("start", layout.start("start"), _SUM_BYTES * wide),
        *(MemoryPlace(("tap", k), layout.row(k), of_tap) for k in taps),
        *file.constants,
        MemoryPlace("a", layout.start("a"), len(pointers), pointers),
    ]
    for pixel in range(sizes.pixels):
        start = layout.start("c") + _SUM_BYTES * pixel * sizes.ldc
        arrays.append(MemoryPlace(("c", pixel), start, _SUM_BYTES * wide, writable=True))
    return arrays
