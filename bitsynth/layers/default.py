"""The schedule a layer has without tuning: the fewest cycles by a model of what a call does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bitsynth import cache
from bitsynth.build import host
from bitsynth.build.runners import runs_natively
from bitsynth.cache import Entry
from bitsynth.choice import METHODS, Choice
from bitsynth.emit.packing import column_bytes, row_bytes
from bitsynth.errors import NoKernel
from bitsynth.isa.load import load, names
from bitsynth.layers.geometry import Geometry
from bitsynth.program import Table
from bitsynth.schedule.layer import LayerSchedule
from bitsynth.spec import MatmulSpec, Operand
from bitsynth.wellformed import forms_used

CHANNELS = (64, 128)
"""Tiles of layers that are shipped, by their most columns."""
CALL_CYCLES = 60
"""What a tile takes beside its sums; measured on Zen 5, as the other figures here."""
POINTER_CYCLES = 1.0
"""Of a row and segment."""
NEAR_BYTES = 40_000
"""What stays in the nearest cache from one tile to the next."""
FAR_BYTES_PER_CYCLE = 40
PACKED_AT_ONCE = 1 << 20
"""Bytes of packed rows beyond which bands are computed one by one, each of a quarter of it."""
COPIED_PER_CYCLE = 8
MASKING_CYCLES = 3.0
PLAIN_CODES_PER_CYCLE = 10
"""Codes that are packed as bits or bytes."""


def default_schedule(act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str) -> LayerSchedule:
    """The schedule of fewest estimated cycles; NoKernel where no kernel for layers is cached."""
    return plans(act, wgt, geometry, image, isa)[0].schedule


def plans(act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str) -> list[Plan]:
    """Every plan of every cached kernel, fewest estimated cycles first; NoKernel where there is none."""
    found = list(candidates(act, wgt, isa))
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


def candidates(act: Operand, wgt: Operand, isa: str) -> Iterator[Candidate]:
    """Every cached kernel for layers on `isa`, or ("auto") on whatever this processor runs."""
    for name in _sets() if isa == "auto" else [load(isa).name]:
        spec = MatmulSpec(name, act, wgt)
        for method in METHODS:
            for channels in CHANNELS:
                path = cache.find(spec, Choice(method, channels=channels).variant)
                if path is not None and runs(entry := cache.load_entry(path)):
                    yield Candidate(entry, method, channels)


def gathers(geometry: Geometry) -> tuple[str, ...]:
    """Where rows may come from: a window of one pixel is its own patch."""
    if geometry.kernel == (1, 1):
        return ("direct",) if geometry.stride == (1, 1) else ("im2col",)
    return "direct", "im2col"


def _sets() -> list[str]:
    return [n for n in names() if load(n).table.arch == host.arch() and runs_natively(load(n).table)]


def runs(entry: Entry) -> bool:
    """Whether this processor has what the kernel needs, or emulation runs it anyway."""
    isa = load(entry.kernel.isa)
    needs = isa.requirements(sorted(forms_used(isa, entry.kernel)))
    return not runs_natively(isa.table) or not host.lacking(needs.host)


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
        """Packing, then tiles: the slower of sums and what they read from afar."""
        kernel, cost = self.found.entry.kernel, self.found.entry.cost
        per_mac = next(iter(cost.cycles.values())) / 128
        sums = self.rows * kernel.columns * self._steps * kernel.k_step * per_mac
        read = self._steps * (self.rows * row_bytes(kernel) + kernel.columns * column_bytes(kernel))
        beside = CALL_CYCLES + POINTER_CYCLES * self.rows * self._segments + self.rows * kernel.columns / 16
        tile = max(sums, read / FAR_BYTES_PER_CYCLE if read > NEAR_BYTES else 0.0) + beside
        return self.geometry.groups * (self._tiles * tile + self._packing)

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
    def _steps(self) -> int:
        return self._pixel_steps * (1 if self.gather == "im2col" else self._taps)

    @property
    def _tiles(self) -> int:
        high, wide = self.geometry.output(self.height, self.width)
        channels = self.geometry.out_channels // self.geometry.groups
        return -(-high * wide // self.rows) * -(-channels // self.found.entry.kernel.columns)

    @property
    def _lines(self) -> tuple[int, int]:
        """Lines that are packed, and pixels of each."""
        if self.gather == "im2col":
            return self.geometry.output(self.height, self.width)
        top, left, bottom, right = self.geometry.padding
        return self.height + top + bottom, self.width + left + right

    @property
    def _band_rows(self) -> int:
        lines, pixels = self._lines
        line = pixels * self._pixel_steps * row_bytes(self.found.entry.kernel)
        return max(1, PACKED_AT_ONCE // 4 // line) if lines * line > PACKED_AT_ONCE else 0

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
