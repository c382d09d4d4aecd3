"""The schedule a layer has without tuning: the fewest cycles by a model of what a call does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.host import features
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import Isa, load, names, narrower
from bitsynth.isa.tables import CpuTable
from bitsynth.kernel.program import Table
from bitsynth.kernel.wellformed import needs
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.schedule.cost import cycles_per_128_mac, stall_per_128_mac
from bitsynth.spec.matmul import MatmulSpec, Operand
from bitsynth.spec.options import METHODS, KernelOptions
from bitsynth.store import kernels
from bitsynth.store.entry import Entry

Fits = Callable[[Entry], bool]
"""Whether a processor has what a kernel needs."""
CHANNELS = (64, 128)
"""Tiles of layers that are shipped, by their most columns."""
POINTER_CYCLES = 1.0
"""Of a row and segment; measured on Zen 5, as the other figures here.

A processor that starts fewer instructions takes as many times longer.
"""
MEASURED_WIDTH = 4.0
"""Vector instructions Zen 5 starts a cycle."""
COPIED_PER_CYCLE = 8
MASKING_CYCLES = 3.0
PLAIN_CODES_PER_CYCLE = 10
"""Codes that are packed as bits or bytes."""


def default_schedule(act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str) -> LayerSchedule:
    """The schedule of fewest estimated cycles; NoKernel where no kernel for layers is cached."""
    return plans(act, wgt, geometry, image, isa)[0].schedule


def plans(
    act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str, fits: Fits | None = None
) -> list[Plan]:
    """Every plan of every cached kernel that `fits`, fewest estimated cycles first; NoKernel where there is none."""
    found = list(candidates(act, wgt, isa, fits))
    if not found:
        where = isa if isa != "auto" else "any instruction set this processor runs"
        raise NoKernel(
            f"no kernel of {act} x {wgt} for layers on {where}; run `bitsynth synth --channels 64` for these widths"
        )
    made = [
        Plan(x, geometry, *image, gather, rows)
        for x in found
        for gather in gathers(geometry)
        for rows in _rows(x.entry.kernel.rows)
    ]
    return sorted(made, key=lambda p: p.cycles)


@dataclass(frozen=True)
class Candidate:
    """A cached kernel for layers."""

    entry: Entry
    method: str
    channels: int

    @property
    def isa(self) -> str:
        """Its instruction set: how wide the registers are that it works in."""
        return self.entry.kernel.isa


def candidates(act: Operand, wgt: Operand, isa: str, fits: Fits | None = None) -> Iterator[Candidate]:
    """Every cached kernel for layers on `isa`, or ("auto") on whatever this processor runs, that `fits`.

    By default those that run here.
    """
    for name in _sets() if isa == "auto" else sets_of(isa):
        spec = MatmulSpec(name, act, wgt)
        for method in METHODS:
            for channels in CHANNELS:
                path = kernels.find(spec, KernelOptions(method, channels=channels).variant)
                if path is not None and (fits or runs)(entry := kernels.load_entry(path).entry):
                    yield Candidate(entry, method, channels)


def gathers(geometry: Geometry) -> tuple[str, ...]:
    """Where rows may come from: a window of one pixel is its own patch."""
    if geometry.kernel == (1, 1):
        return ("direct",) if geometry.stride == (1, 1) else ("im2col",)
    return "direct", "im2col"


def sets_of(isa: str) -> list[str]:
    """The instruction sets whose kernels layers on `isa` may have: its own and narrower ones."""
    return [isa, *narrower(load(isa))]


def home_of(isa: str) -> str:
    """The widest instruction set this processor runs whose layers may have kernels of `isa`."""
    wider = [name for name in _sets() if isa in sets_of(name)]
    return max([isa, *wider], key=lambda name: load(name).table.vector_bits)


def _sets() -> list[str]:
    return [n for n in names() if load(n).table.arch == features.arch() and runs_natively(load(n).table)]


def runs(entry: Entry) -> bool:
    """Whether this processor has what the kernel needs, or emulation runs it anyway."""
    isa = load(entry.kernel.isa)
    return not runs_natively(isa.table) or not features.lacking(needs(isa, entry.kernel).host)


def _rows(most: int) -> range:
    """Fewer rows waste less of an image's last tile, but load weights more often."""
    return range(max(1, 3 * most // 4), most + 1)


@dataclass(frozen=True)
class Plan:
    """One way to run a layer on an image, and what it takes."""

    found: Candidate
    geometry: Geometry
    height: int
    width: int
    gather: str
    rows: int

    @property
    def schedule(self) -> LayerSchedule:
        kernel = self.found.entry.kernel
        rows = self.rows if self.rows < kernel.rows else 0
        return LayerSchedule(
            kernel.isa, self.found.method, self.found.channels, self.gather, rows, band_rows=self._band_rows
        )

    @property
    def cycles(self) -> float:
        """Packing, then tiles: their sums beside what they read from afar, or one after the other where loads block."""
        tiles = self._row_tiles * self.column_tiles
        far = (self._far_bytes + self._written_bytes) / self._cpu.far_bytes_per_cycle
        sums = tiles * self._sums
        reading = sums + far if self._cpu.loads_block else max(sums, far)
        return self.geometry.groups * (reading + tiles * self._beside + self._slower * self._packing)

    @property
    def _cpu(self) -> CpuTable:
        """The processor that the estimate is for: the first of the instruction set's that the kernel runs on."""
        return self._isa.table.cpu[self._cpu_name]

    @property
    def _cpu_name(self) -> str:
        return next(iter(self.found.entry.cost.cycles))

    @property
    def _isa(self) -> Isa:
        return load(self.found.entry.kernel.isa)

    @property
    def _slower(self) -> float:
        return MEASURED_WIDTH / self._cpu.vector_per_cycle

    @property
    def _sums(self) -> float:
        """Cycles of one tile's sums where its inputs are near: of so many rows, flushed over so many steps."""
        kernel, cpu = msgspec.structs.replace(self.found.entry.kernel, rows=self.rows), self._cpu_name
        depth = self.steps * kernel.k_step
        cycles = cycles_per_128_mac(self._isa, kernel, cpu, depth) + stall_per_128_mac(self._isa, kernel, cpu, depth)
        return self.rows * kernel.columns * depth * cycles / 128

    @property
    def _beside(self) -> float:
        """Cycles of one tile beside its sums."""
        columns = self.found.entry.kernel.columns
        spread = POINTER_CYCLES * self.rows * self._segments + self.rows * columns / 16
        return self._cpu.call_cycles + self._slower * spread

    @property
    def _far_bytes(self) -> float:
        """Bytes that tiles read and the nearest cache does not hold any more.

        Where loads do not block, sums hide what a tile that fits finds gone: measured on Zen 5.
        """
        kernel = self.found.entry.kernel
        row, column = self.steps * self.rows * kernel.row_bytes, self.steps * kernel.columns * kernel.column_bytes
        image, weights = float(self._packed_bytes), float(self.column_tiles * column)
        if row + column > self._cpu.near_bytes:
            return float(self._row_tiles * self.column_tiles * (row + column))
        if not self._cpu.loads_block:
            return 0.0
        if row + weights <= self._cpu.near_bytes:
            return image + weights
        return image + self._row_tiles * weights

    @property
    def _written_bytes(self) -> float:
        """Packed rows that leave the nearest cache before tiles read them; as with those, sums may hide it."""
        packed = self._packed_bytes
        return float(packed) if self._cpu.loads_block and packed > self._cpu.near_bytes else 0.0

    @property
    def _taps(self) -> int:
        return self.geometry.kernel[0] * self.geometry.kernel[1]

    @property
    def _segments(self) -> int:
        return 1 if self.gather == "im2col" else self.geometry.kernel[0]

    @property
    def _pixel_codes(self) -> int:
        channels = self.geometry.in_channels // self.geometry.groups
        return channels * self._taps if self.gather == "im2col" else channels

    @property
    def _pixel_steps(self) -> int:
        return -(-self._pixel_codes // self.found.entry.kernel.k_step)

    @property
    def steps(self) -> int:
        """Steps of K of a sum; of rows that are not copied each tap has steps of its own."""
        return self._pixel_steps * (1 if self.gather == "im2col" else self._taps)

    @property
    def _row_tiles(self) -> int:
        high, wide = self.geometry.output(self.height, self.width)
        return -(-high * wide // self.rows)

    @property
    def column_tiles(self) -> int:
        """Tiles of columns of a group."""
        channels = self.geometry.out_channels // self.geometry.groups
        return -(-channels // self.found.entry.kernel.columns)

    @property
    def _lines(self) -> tuple[int, int]:
        """Lines that are packed, and pixels of each."""
        if self.gather == "im2col":
            return self.geometry.output(self.height, self.width)
        top, left, bottom, right = self.geometry.padding
        return self.height + top + bottom, self.width + left + right

    @property
    def _line_bytes(self) -> int:
        return self._lines[1] * self._pixel_steps * self.found.entry.kernel.row_bytes

    @property
    def _packed_bytes(self) -> int:
        return self._lines[0] * self._line_bytes

    @property
    def _band_rows(self) -> int:
        """Rows of a band, a quarter of what stays in the second cache, where not all packed rows do."""
        outer = self._cpu.outer_bytes
        return max(1, outer // 4 // self._line_bytes) if self._packed_bytes > outer else 0

    @property
    def _packing(self) -> float:
        lines, pixels = self._lines
        codes = lines * pixels * self._pixel_codes
        copied = codes / COPIED_PER_CYCLE if self.gather == "im2col" and self._taps > 1 else 0.0
        return codes * self._cycles_per_code + copied

    @property
    def _cycles_per_code(self) -> float:
        """Half a cycle for an instruction of a table, one for its store, more where codes must be masked."""
        kernel = self.found.entry.kernel
        if kernel.build is None:
            return 1 / PLAIN_CODES_PER_CYCLE
        bits = next(x.bits for x in kernel.passes[0].rows if isinstance(x, Table))
        masking = MASKING_CYCLES if -1 in kernel.build.stage else 0.0
        return (len(kernel.build.program) / 2 + 1 + masking) / (bits * kernel.build.tables)
