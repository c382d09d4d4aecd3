"""A cost model for calls of a layer: packing, tiles, and memory traffic beyond the nearest cache.

A call costs, for each group: cycles to pack activations, cycles of all tiles (accumulators from kernel cycles, plus a
call for each tile), and bytes that the nearest cache does not hold, divided by the bandwidth behind it. Where loads do
not block, accumulation hides these bytes: the larger of both counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import msgspec

from bitsynth.emit.correction_terms import has_row_terms, row_affines
from bitsynth.emit.packing import packing, takes_tables
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
from bitsynth.layers.widening import widen_operands
from bitsynth.schedule.cost import estimate_sustained_per_128_mac
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulSpec

POINTER_CYCLES = 1.0
"""Cycles of a pointer of a row and segment; measured on Zen 5, as the other figures here.

A processor that issues fewer instructions a cycle takes proportionally longer.
"""
MEASURED_WIDTH = 4.0
"""Vector instructions that Zen 5 issues in a cycle."""
COPIED_CODES_PER_CYCLE = 8
"""Codes that are copied to patches in a cycle."""
COPIED_RUN_CYCLES = 12.0
"""Cycles of a row of taps that is copied to a patch."""
MASKING_CYCLES = 3.0
"""Cycles that masking adds to the program that makes tables of a row."""
GROUP_PIXEL_CYCLES = 40.0
"""Cycles of a pixel of one of several groups: each group's few channels are packed and finished by themselves."""
PLAIN_CODES_PER_CYCLE = 10
"""Codes that are packed as bits or bytes in a cycle."""
WORD_CODES_PER_CYCLE = 64
"""Codes in packed words that are copied in a cycle, as bits; from instruction counts of ResNet-18's C3 on Arm."""
DIGIT_CODE_CYCLES = 6.0
"""Cycles of a code that is packed in digits."""
TABLE_CODE_CYCLES = 0.35
"""Cycles of a code in a packed word that becomes tables; from instruction counts of ResNet-18's C2 on Arm.

The Cortex-A76 takes 0.25.
"""
PAIRED_CODE_CYCLES = 0.3
"""Cycles of a code whose table is paired with another pixel's; from instruction counts of C2 on the Cortex-A53.

On Zen 4 with AVX2, whose registers have 32 bytes, a code of C2 takes 0.29 cycles.
"""
WIDER_OPERANDS_PENALTY = 1.1
"""Penalty of a kernel of wider operands over its estimate; measured penalties are up to a fifth."""
SUMMED_PIXEL_CYCLES = 18.0
"""Cycles of a pixel whose codes are summed, where lines are otherwise copied as a whole."""
SUMMED_CODE_CYCLES = 0.25
"""Cycles of a code that is summed while it is packed."""
CROSSED_CODE_CYCLES = 1.5 * SUMMED_CODE_CYCLES
"""Cycles of a code that is multiplied by its neighbour too; the ratio is measured on Zen 4."""

COUNTED_CALL_SHARE = 0.4
"""Share of the cycles of a tile's call that predictions do not include: the runtime, and saved registers.

Tiles of the same rows are one call, and have that share once. Measured in instructions of C3 and C5 of ResNet-18 on the
Cortex-A53, A2W1 by popcount, with a tile a call: 61 and 57 of 150 cycles.
"""

AccumulationModel = Callable[[Isa, Kernel, str, int], float]
"""Maps (set, kernel, processor, depth K) to cycles per 128 multiply-accumulates, inputs in the nearest cache."""


@dataclass(frozen=True)
class Estimate:
    """One way to run a layer on its typical image, with `rows` rows of the candidate's tile, and its cost.

    With `columns_first`, all pixels are computed for one tile of columns before the next.

    The cost is in cycles of `cpu`, or if it is "" of the set's first processor that runs the kernel.
    `accumulation_model` gives the cycles of accumulation. Other cycles were measured on Zen 5. With `counted` they come
    from instruction counts on Arm: pointers are then set once for all column tiles (unless `columns_first`), and packed
    words are copied, not repacked.
    """

    candidate: Candidate
    layer: LayerSpec
    conv_algorithm: str
    rows: int
    cpu: str = ""
    columns_first: bool = False
    accumulation_model: AccumulationModel = estimate_sustained_per_128_mac
    counted: bool = False

    @property
    def schedule(self) -> LayerSchedule:
        """The schedule of this way."""
        candidate = self.candidate
        return LayerSchedule(
            candidate.isa,
            candidate.method,
            candidate.channels,
            self.conv_algorithm,
            self.rows if self.rows < self._kernel.rows else 0,
            columns_first=self.columns_first,
            band_rows=self._band_rows,
            operands=candidate.operands,
            k_step=candidate.kernel_options.k_step,
            model=candidate.model,
        )

    @property
    def cycles(self) -> float:
        """Cycles of a call: packing, tiles with memory traffic that accumulation hides, and traffic that stalls."""
        tiles = self._row_tiles * self.column_tiles
        rows, weights = self._far_bytes
        unfetched_bytes = self._stall_bytes(rows, weights) if self.loads_block else 0.0
        hidden_bytes, stalling_bytes = rows + weights - unfetched_bytes, unfetched_bytes + self._written_bytes
        bandwidth = self._cpu.far_bytes_per_cycle
        fetching = max(hidden_bytes / bandwidth, self._outer_cycles)
        accumulation = max(tiles * self._accumulation_cycles, fetching) + stalling_bytes / bandwidth
        grouping = GROUP_PIXEL_CYCLES * self._output_pixels if self._geometry.groups > 1 else 0.0
        packing_and_grouping = self._cycle_scale * (self._packing_cycles + grouping)
        penalty = WIDER_OPERANDS_PENALTY if self.candidate.operands else 1.0
        return self._geometry.groups * (accumulation + tiles * self._tile_overhead + packing_and_grouping) * penalty

    @property
    def _kernel(self) -> Kernel:
        return self.candidate.entry.kernel

    @property
    def _geometry(self) -> Geometry:
        return self.layer.geometry

    @cached_property
    def _cpu(self) -> CpuTable:
        """The processor that the estimate is for."""
        return self._isa.table.cpu[self.cpu_name]

    @property
    def loads_block(self) -> bool:
        """Whether the processor issues nothing with a load."""
        return self._cpu.loads_block

    @cached_property
    def cpu_name(self) -> str:
        """The name of the processor that the estimate is for."""
        cycles_by_cpu = self.candidate.entry.cost.cycles
        return self.cpu if self.cpu in cycles_by_cpu else next(iter(cycles_by_cpu))

    @cached_property
    def _isa(self) -> Isa:
        return load(self._kernel.isa)

    @property
    def _cycle_scale(self) -> float:
        """Cycles of the processor for each cycle of Zen 5 that was measured."""
        return self._cpu.slower or MEASURED_WIDTH / self._cpu.vector_per_cycle

    @property
    def _accumulation_cycles(self) -> float:
        """Cycles to accumulate one tile whose inputs are in the nearest cache, flushes included."""
        kernel, cpu = msgspec.structs.replace(self._kernel, rows=self.rows), self.cpu_name
        depth = self.steps * kernel.k_step
        return self.rows * kernel.columns * depth * self.accumulation_model(self._isa, kernel, cpu, depth) / 128

    @property
    def _tile_overhead(self) -> float:
        """Cycles of one tile without accumulation."""
        results = self.rows * self._kernel.columns / 16
        shared = self.column_tiles if self.counted and not self.columns_first else 1
        pointers = POINTER_CYCLES * self.rows * self._segments / shared
        share = COUNTED_CALL_SHARE / shared if self.counted else 1.0
        calls = share * self._cpu.call_cycles
        if self._kernel.in_matrices:  # Each call configures matrix registers.
            tiles_of_call = 1 if self.columns_first else self.column_tiles
            calls += self._isa.matrices.cycles[self.cpu_name].configure / tiles_of_call
        return calls + self._cycle_scale * (pointers + results)

    @property
    def _far_bytes(self) -> tuple[float, float]:
        """Bytes of rows and of weights that tiles read beyond the nearest cache.

        If loads do not block, accumulation hides the misses of a tile that fits: measured on Zen 5.
        """
        kernel = self._kernel
        row, column = self._tile_bytes, self.steps * kernel.columns * kernel.column_bytes
        weights, tiles = float(self._weight_bytes), self._row_tiles * self.column_tiles
        if row + column > self._cpu.near_bytes:
            return float(tiles * row), float(tiles * column)
        if not self.loads_block:
            return 0.0, 0.0
        if self.columns_first:
            return self.column_tiles * self._image_bytes(column), weights
        if row + weights <= self._cpu.near_bytes:
            return self._image_bytes(weights), weights
        return self._image_bytes(weights), self._row_tiles * weights

    @property
    def streams_weights(self) -> bool:
        """Whether pixels first would read all weights from behind the second cache for every tile of rows."""
        return self._cpu.outer_bytes_per_cycle > 0 and self._weight_bytes > self._cpu.outer_bytes

    @property
    def _outer_cycles(self) -> float:
        """Cycles in which weights and packed rows arrive from behind the second cache.

        Given 49 pixels of 512 channels, a 3 x 3 window, weights of 8 bits (2.4 MB), a second cache of 1.25 MB, and
        tiles of 5 rows. Result: pixels first reads the weights 10 times, columns first once.
        """
        if not self.streams_weights:
            return 0.0
        weights, rows = float(self._weight_bytes), float(self._packed_bytes)
        if not self.columns_first:
            weights *= self._row_tiles
        elif rows > self._cpu.outer_bytes:
            rows *= self.column_tiles
        return (weights + rows) / self._cpu.outer_bytes_per_cycle

    @property
    def _weight_bytes(self) -> int:
        """Bytes of all packed weights of a group."""
        return self.column_tiles * self.steps * self._kernel.columns * self._kernel.column_bytes

    def _stall_bytes(self, rows: float, weights: float) -> float:
        """Return the bytes beyond the nearest cache that no step prefetched.

        Prologues and last iterations prefetch nothing, and no step the first cache lines of a segment.
        """
        kernel, size = self._kernel, self._kernel.row_bytes
        ahead, segment = prefetch_distance(self._cpu, kernel, size), self.steps // self._segments
        late_rows = 1 - self._prefetching_share * (1 - min(1.0, ahead / (segment * size))) if ahead else 1.0
        prefetches_weights = prefetch_distance(self._cpu, kernel, kernel.columns * kernel.column_bytes) > 0
        return rows * late_rows + weights * (1 - self._prefetching_share * prefetches_weights)

    @property
    def _prefetching_share(self) -> float:
        """The share of steps that prefetch for later ones, in the pass with the smallest share.

        Loops end with each segment, except loops of long steps, which continue in the next.
        """
        kernel, shares = self._kernel, []
        for step in (loop.step for loop in kernel.passes):
            crosses = kernel.groups * len(step.steps) >= LONG_LOOP
            run = min(step.trip_count, self.steps if crosses else self.steps // self._segments)
            shares.append(max(0, run - (bool(step.first) and kernel.nests) - 1) / run)
        return min(shares)

    def _image_bytes(self, other_bytes: float) -> float:
        """Return the bytes of packed lines read beyond the nearest cache while all pixels are computed.

        Lines are read once if the lines of a window and `other_bytes` fit, else once for every line of a window.
        """
        lines, stride = self._geometry.kernel[0], self._geometry.stride[0]
        if self.conv_algorithm == "im2col" or lines * self._line_bytes + other_bytes <= self._cpu.near_bytes:
            return float(self._packed_bytes)
        return self._packed_bytes * max(1, lines / stride)

    @property
    def _written_bytes(self) -> float:
        """Bytes of packed rows that are evicted before tiles read them; accumulation may hide them too."""
        packed = self._packed_bytes
        return float(packed) if self.loads_block and packed > self._cpu.near_bytes else 0.0

    @property
    def _taps(self) -> int:
        return self._geometry.kernel[0] * self._geometry.kernel[1]

    @property
    def _segments(self) -> int:
        return 1 if self.conv_algorithm == "im2col" else self._geometry.kernel[0]

    @property
    def _has_joined_taps(self) -> bool:
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
        """Steps of K of an accumulator; unless rows are copied, each tap has steps of its own."""
        if self._has_joined_taps:
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
        """Bytes of rows that a tile reads; rows in a pair are read once.

        Where loads block, the overlap of neighbouring windows is counted once.
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
        pixel = self._pixel_codes * kernel.code_bytes if self._has_joined_taps else self._pixel_steps * kernel.row_bytes
        return self._lines[1] * pixel

    @property
    def _packed_bytes(self) -> int:
        return self._lines[0] * self._line_bytes

    @property
    def _band_rows(self) -> int:
        """Rows of a band, a quarter of the second cache; 0 if all packed rows fit in it."""
        outer = self._cpu.outer_bytes
        return max(1, outer // 4 // self._line_bytes) if self._packed_bytes > outer else 0

    @property
    def _packing_cycles(self) -> float:
        """Cycles to pack the activations of a group on Zen 5, copies to patches and sums of codes included."""
        lines, pixels = self._lines
        codes = lines * pixels * self._pixel_codes
        runs = lines * pixels * self._geometry.kernel[0] if self.conv_algorithm == "im2col" and self._taps > 1 else 0
        copied = runs * COPIED_RUN_CYCLES + codes / COPIED_CODES_PER_CYCLE if runs else 0.0
        summing = lines * pixels * SUMMED_PIXEL_CYCLES if self._has_joined_taps else codes * SUMMED_CODE_CYCLES
        crossing = codes * CROSSED_CODE_CYCLES if self._kernel.cross_terms else 0.0
        pairing = codes * PAIRED_CODE_CYCLES if self._kernel.together > 1 else 0.0
        return codes * self._cycles_per_code + copied + summing * self._sums_packed_codes + crossing + pairing

    @property
    def _sums_packed_codes(self) -> bool:
        """Whether codes packed as bytes or wider are summed too; for other rows the cycles per code include sums."""
        computed = widen_operands(self.layer, self.candidate.operands)
        return _needs_code_sums(self._kernel, computed.product(self._kernel.isa))

    @property
    def _cycles_per_code(self) -> float:
        """Cycles to pack a code; a table takes half a cycle for each instruction, and a store."""
        kernel = self._kernel
        if self.layer.layout == Layout.PACKED and not self.candidate.operands:
            if takes_tables(kernel):
                return TABLE_CODE_CYCLES
            if self.counted and packing(kernel).rows == "words":
                return 1 / WORD_CODES_PER_CYCLE
        if kernel.build is None:
            return DIGIT_CODE_CYCLES if kernel.has_digits else 1 / PLAIN_CODES_PER_CYCLE
        bits = next(x.bits for x in kernel.passes[0].rows if isinstance(x, Table))
        masking = MASKING_CYCLES if -1 in kernel.build.stage else 0.0
        return (len(kernel.build.steps) / 2 + 1 + masking) / (bits * kernel.build.tables)


@lru_cache(maxsize=1 << 12)
def _needs_code_sums(kernel: Kernel, spec: MatmulSpec) -> bool:
    """Return whether rows are codes whose sums the kernel's terms or affines need."""
    return packing(kernel).is_of_codes and (has_row_terms(kernel, spec) or row_affines(kernel, spec) != 0)
