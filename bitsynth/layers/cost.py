"""The cost of a call of a layer, by a model: packing, tiles, and what is read from afar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.emit.packing import packing
from bitsynth.emit.tables import takes_tables
from bitsynth.emit.terms import has_row_terms, row_affines
from bitsynth.isa.load import Isa, load
from bitsynth.isa.tables import CpuTable
from bitsynth.kernel.in_order.loop_control import prefetch_distance
from bitsynth.kernel.in_order.pipelining import LONG_LOOP
from bitsynth.kernel.inputs import Table
from bitsynth.kernel.program import Kernel
from bitsynth.layers.candidates import Candidate
from bitsynth.layers.constants import has_joined_taps
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.widening import widened
from bitsynth.schedule.cost import sustained_per_128_mac
from bitsynth.spec.matmul import MatmulSpec

POINTER_CYCLES = 1.0
"""Of a row and segment; measured on Zen 5, as the other figures here.

A processor that starts fewer instructions takes as many times longer.
"""
MEASURED_WIDTH = 4.0
"""Vector instructions Zen 5 starts a cycle."""
COPIED_PER_CYCLE = 8
RUN_CYCLES = 12.0
"""Of a row of taps that is copied to a patch."""
MASKING_CYCLES = 3.0
GROUP_PIXEL_CYCLES = 40.0
"""Of a pixel of one of several groups: its channels are few, but packed and finished apart."""
PLAIN_CODES_PER_CYCLE = 10
"""Codes that are packed as bits or bytes."""
WORD_CODES_PER_CYCLE = 64
"""Codes of words whose bits are packed as they lie, or nearly; by what C3 of ResNet-18 runs on Arm."""
DIGIT_CYCLES = 6.0
"""Of a code that is packed in digits."""
TAKEN_CYCLES = 0.35
"""Of a code whose bits, from a word, say which table is taken: by what C2 of ResNet-18 runs, 0.25 on the Cortex-A76."""
PAIRED_CYCLES = 0.3
"""Of a code whose table gets that of the pixel computed beside it; by what C2 runs on the Cortex-A53."""
WIDER = 1.1
"""What a kernel of wider operands takes longer than estimated, beside one of the layer's own: a fifth at the most."""
SUMMED_PIXEL_CYCLES = 18.0
"""Of a pixel that is summed, on a line that is else copied whole."""
SUMMED_CODE_CYCLES = 0.25
"""Of a code that is summed as it is packed."""
CROSSED_CODE_CYCLES = 1.5 * SUMMED_CODE_CYCLES
"""Of a code that is multiplied with its neighbour too; the ratio as measured on Zen 4."""

COUNTED_SHARE = 0.4
"""Of what a tile takes beside its sums, what predictions lack: the runtime's part, and saved registers.

Tiles of the same rows are one call, and have it once. By the instructions that C3 and C5 of ResNet-18 run on the
Cortex-A53, A2W1 by popcount, with a tile a call: 61 and 57 of 150 cycles.
"""

SumsModel = Callable[[Isa, Kernel, str, int], float]
"""Cycles of a processor per 128 multiply-accumulates over so many positions of K, inputs near."""


@dataclass(frozen=True)
class Estimate:
    """One way to run a layer on its typical image, and its cost: `rows` of the candidate's tile are used.

    If `columns_first` is set all pixels are computed for one tile of columns before the next.

    The cost is in cycles of `cpu`, or if that is "" of the first processor of the set's that has what the kernel needs;
    that of sums by `sums_model`. What is beside them is as measured on Zen 5, or `counted` in instructions that layers
    run on Arm: pointers once for all tiles of columns unless these come first, and planes of words as they lie.
    """

    candidate: Candidate
    layer: LayerSpec
    conv_algorithm: str
    rows: int
    cpu: str = ""
    columns_first: bool = False
    sums_model: SumsModel = sustained_per_128_mac
    counted: bool = False

    @property
    def schedule(self) -> LayerSchedule:
        """The schedule that runs it so."""
        found, rows = self.candidate, self.rows if self.rows < self._kernel.rows else 0
        named = found.isa, found.method, found.channels, self.conv_algorithm, rows
        return LayerSchedule(
            *named,
            columns_first=self.columns_first,
            band_rows=self._band_rows,
            operands=found.operands,
            k_step=found.kernel_options.k_step,
            model=found.model,
        )

    @property
    def cycles(self) -> float:
        """Packing, then tiles: their sums beside what they read from afar, and what they wait for where loads block."""
        tiles = self._row_tiles * self.column_tiles
        rows, weights = self._far_bytes
        waited = self._waited(rows, weights) if self.loads_block else 0.0
        beside, apart = rows + weights - waited, waited + self._written_bytes
        sums = tiles * self._sums
        reading = max(sums, beside / self._cpu.far_bytes_per_cycle) + apart / self._cpu.far_bytes_per_cycle
        grouped = GROUP_PIXEL_CYCLES * self._output_pixels if self._geometry.groups > 1 else 0.0
        wider = WIDER if self.candidate.operands else 1.0
        every = reading + tiles * self._beside + self._slower * (self._packing + grouped)
        return self._geometry.groups * every * wider

    @property
    def _kernel(self) -> Kernel:
        return self.candidate.entry.kernel

    @property
    def _geometry(self) -> Geometry:
        return self.layer.geometry

    @property
    def _cpu(self) -> CpuTable:
        """The processor that the estimate is for."""
        return self._isa.table.cpu[self.cpu_name]

    @property
    def loads_block(self) -> bool:
        """Whether nothing else starts beside a load on that processor."""
        return self._cpu.loads_block

    @property
    def cpu_name(self) -> str:
        """The name of the processor that the estimate is for."""
        known = self.candidate.entry.cost.cycles
        return self.cpu if self.cpu in known else next(iter(known))

    @property
    def _isa(self) -> Isa:
        return load(self._kernel.isa)

    @property
    def _slower(self) -> float:
        return self._cpu.slower or MEASURED_WIDTH / self._cpu.vector_per_cycle

    @property
    def _sums(self) -> float:
        """Cycles of one tile's sums if its inputs are near: of so many rows, flushed over so many steps."""
        kernel, cpu = msgspec.structs.replace(self._kernel, rows=self.rows), self.cpu_name
        depth = self.steps * kernel.k_step
        return self.rows * kernel.columns * depth * self.sums_model(self._isa, kernel, cpu, depth) / 128

    @property
    def _beside(self) -> float:
        """Cycles of one tile beside its sums."""
        results = self.rows * self._kernel.columns / 16
        shared = self.column_tiles if self.counted and not self.columns_first else 1
        pointers = POINTER_CYCLES * self.rows * self._segments / shared
        share = COUNTED_SHARE / shared if self.counted else 1.0
        return share * self._cpu.call_cycles + self._slower * (pointers + results)

    @property
    def _far_bytes(self) -> tuple[float, float]:
        """Bytes of rows and of weights that tiles read and the nearest cache does not hold any more.

        If loads do not block, sums hide what a tile that fits finds gone: measured on Zen 5.
        """
        kernel = self._kernel
        row, column = self._tile_bytes, self.steps * kernel.columns * kernel.column_bytes
        weights, tiles = float(self.column_tiles * column), self._row_tiles * self.column_tiles
        if row + column > self._cpu.near_bytes:
            return float(tiles * row), float(tiles * column)
        if not self.loads_block:
            return 0.0, 0.0
        if self.columns_first:
            return self.column_tiles * self._image_bytes(column), weights
        if row + weights <= self._cpu.near_bytes:
            return self._image_bytes(weights), weights
        return self._image_bytes(weights), self._row_tiles * weights

    def _waited(self, rows: float, weights: float) -> float:
        """Of these bytes from afar, those that no step asked for ahead.

        First runs of loops that are apart ask for nothing, nor do last turns; and of rows nobody for the first lines
        of a segment.
        """
        kernel, size = self._kernel, self._kernel.row_bytes
        ahead, segment = prefetch_distance(self._cpu, kernel, size), self.steps // self._segments
        late_rows = 1 - self._asking * (1 - min(1.0, ahead / (segment * size))) if ahead else 1.0
        asks = prefetch_distance(self._cpu, kernel, kernel.columns * kernel.column_bytes) > 0
        return rows * late_rows + weights * (1 - self._asking * asks)

    @property
    def _asking(self) -> float:
        """The share of steps that ask for what later ones read, of the pass whose steps ask least.

        Loops end with each segment but those of long steps, which go on to the next.
        """
        kernel, shares = self._kernel, []
        for step in (loop.step for loop in kernel.passes):
            crosses = kernel.groups * len(step.program) >= LONG_LOOP
            run = min(step.trip_count, self.steps if crosses else self.steps // self._segments)
            shares.append(max(0, run - (bool(step.first) and kernel.nests) - 1) / run)
        return min(shares)

    def _image_bytes(self, beside: float) -> float:
        """Bytes of packed lines that come from afar while all pixels are computed: anew for every line of a window.

        Once, if as many stay in the nearest cache, `beside` other bytes.
        """
        lines, stride = self._geometry.kernel[0], self._geometry.stride[0]
        if self.conv_algorithm == "im2col" or lines * self._line_bytes + beside <= self._cpu.near_bytes:
            return float(self._packed_bytes)
        return self._packed_bytes * max(1, lines / stride)

    @property
    def _written_bytes(self) -> float:
        """Packed rows that leave the nearest cache before tiles read them; as with those, sums may hide it."""
        packed = self._packed_bytes
        return float(packed) if self.loads_block and packed > self._cpu.near_bytes else 0.0

    @property
    def _taps(self) -> int:
        return self._geometry.kernel[0] * self._geometry.kernel[1]

    @property
    def _segments(self) -> int:
        return 1 if self.conv_algorithm == "im2col" else self._geometry.kernel[0]

    @property
    def _joined(self) -> bool:
        return has_joined_taps(self._kernel, self._geometry, self.conv_algorithm)

    @property
    def _pixel_codes(self) -> int:
        channels = self._geometry.in_channels // self._geometry.groups
        return channels * self._taps if self.conv_algorithm == "im2col" else channels

    @property
    def _pixel_steps(self) -> int:
        return -(-self._pixel_codes // self._kernel.k_step)

    @property
    def steps(self) -> int:
        """Steps of K of a sum; of rows that are not copied each tap has steps of its own."""
        if self._joined:
            high, wide = self._geometry.kernel
            return high * -(-wide * self._pixel_codes // self._kernel.k_step)
        return self._pixel_steps * (1 if self.conv_algorithm == "im2col" else self._taps)

    @property
    def _output_pixels(self) -> int:
        high, wide = self._geometry.output(*self.layer.typical_image)
        return high * wide

    @property
    def _row_tiles(self) -> int:
        return -(-self._output_pixels // self.rows)

    @property
    def _tile_bytes(self) -> int:
        """Bytes of rows that a tile reads: of those that share them the first alone.

        Where loads block, windows of pixels beside each other have most of theirs in common.
        """
        rows = self.rows // self._kernel.together
        whole = self.steps * rows * self._kernel.row_bytes
        if self.conv_algorithm == "im2col" or not self.loads_block:
            return whole
        wide, right = self._geometry.kernel[1], self._geometry.stride[1] * self._kernel.together
        return whole * min(wide * rows, right * (rows - 1) + wide) // (wide * rows)

    @property
    def column_tiles(self) -> int:
        """Tiles of columns of a group."""
        channels = self._geometry.out_channels // self._geometry.groups
        return -(-channels // self._kernel.columns)

    @property
    def _lines(self) -> tuple[int, int]:
        """Lines that are packed, and pixels of each."""
        if self.conv_algorithm == "im2col":
            return self._geometry.output(*self.layer.typical_image)
        top, left, bottom, right = self._geometry.padding
        height, width = self.layer.typical_image
        return height + top + bottom, width + left + right

    @property
    def _line_bytes(self) -> int:
        kernel = self._kernel
        pixel = self._pixel_codes * kernel.code_bytes if self._joined else self._pixel_steps * kernel.row_bytes
        return self._lines[1] * pixel

    @property
    def _packed_bytes(self) -> int:
        return self._lines[0] * self._line_bytes

    @property
    def _band_rows(self) -> int:
        """Rows of a band, a quarter of what stays in the second cache, if not all packed rows do."""
        outer = self._cpu.outer_bytes
        return max(1, outer // 4 // self._line_bytes) if self._packed_bytes > outer else 0

    @property
    def _packing(self) -> float:
        lines, pixels = self._lines
        codes = lines * pixels * self._pixel_codes
        runs = lines * pixels * self._geometry.kernel[0] if self.conv_algorithm == "im2col" and self._taps > 1 else 0
        copied = runs * RUN_CYCLES + codes / COPIED_PER_CYCLE if runs else 0.0
        summing = lines * pixels * SUMMED_PIXEL_CYCLES if self._joined else codes * SUMMED_CODE_CYCLES
        crossing = codes * CROSSED_CODE_CYCLES if self._kernel.cross_terms else 0.0
        pairing = codes * PAIRED_CYCLES if self._kernel.together > 1 else 0.0
        return codes * self._cycles_per_code + copied + summing * self._sums_rows + crossing + pairing

    @property
    def _sums_rows(self) -> bool:
        """Whether codes packed as bytes, or wider, are summed then; what other rows cost has their sums in it."""
        computed = widened(self.layer, self.candidate.operands)
        return _sums_codes(self._kernel, computed.product(self._kernel.isa))

    @property
    def _cycles_per_code(self) -> float:
        """Of words as they lie, or that take tables; else half a cycle for a table's instruction, and its store."""
        kernel = self._kernel
        if self.layer.layout == "packed" and not self.candidate.operands:
            if takes_tables(kernel):
                return TAKEN_CYCLES
            if self.counted and packing(kernel).rows == "words":
                return 1 / WORD_CODES_PER_CYCLE
        if kernel.build is None:
            return DIGIT_CYCLES if kernel.has_digits else 1 / PLAIN_CODES_PER_CYCLE
        bits = next(x.bits for x in kernel.passes[0].rows if isinstance(x, Table))
        masking = MASKING_CYCLES if -1 in kernel.build.stage else 0.0
        return (len(kernel.build.program) / 2 + 1 + masking) / (bits * kernel.build.tables)


@lru_cache(maxsize=1 << 12)
def _sums_codes(kernel: Kernel, spec: MatmulSpec) -> bool:
    """Whether rows are codes that are summed as they are packed."""
    return packing(kernel).is_of_codes and (has_row_terms(kernel, spec) or row_affines(kernel, spec) != 0)
