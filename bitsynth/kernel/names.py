"""The grammar of kernel names: bs_mm_a2u_w1b_s32_neon_4x8x64.

Operation, act and wgt operands with their encoding (u unsigned, s signed, b bipolar,
t ternary, n narrow), accumulator, instruction set, and MR x NR x K step; behind them _u4 if the loop is
unrolled 4 times, _outer if the bit axis is the outer one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec.structs import replace

from bitsynth.errors import SpecError
from bitsynth.kernel.program import ORDERS, Kernel
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec

_SIZE = r"([1-9]\d{0,5})"
_TILE = rf"{_SIZE}x{_SIZE}x{_SIZE}(?:_u{_SIZE})?(?:_(outer))?(?:_for_([a-z]\w{{0,15}}))?"
_PATTERN = re.compile(rf"bs_mm_a(\d)([usbtn])_w(\d)([usbtn])_s32_([a-z][a-z0-9_]*?)_{_TILE}", re.ASCII)
_LETTERS = {e.letter: e for e in Encoding}


@dataclass(frozen=True)
class KernelName:
    """The parts of a name; `str` spells it, `parse` reads it back."""

    spec: MatmulSpec
    rows: int
    columns: int
    k_step: int
    unroll: int = 0
    bit_axis: str = "inner"
    order: str = ""

    @classmethod
    def of(cls, kernel: Kernel, spec: MatmulSpec) -> KernelName:
        """Return the name of `kernel` used for `spec`."""
        order = "" if kernel.order in ORDERS else kernel.order
        return cls(spec, kernel.rows, kernel.columns, kernel.k_step, kernel.unroll, kernel.bit_axis, order)

    def form(self, kernel: Kernel) -> Kernel:
        """Return `kernel` with the rows, unrolling, bit axis and order that this name states."""
        order = self.order or kernel.order
        return replace(kernel, rows=self.rows, unroll=self.unroll, bit_axis=self.bit_axis, order=order)

    @classmethod
    def parse(cls, text: str) -> KernelName:
        """Return the parts of the name `text`; SpecError for anything that is not exactly one."""
        match = _PATTERN.fullmatch(text)
        if not match:
            raise SpecError(f"{text[:80]!r} is no kernel name; one looks like bs_mm_a2u_w1b_s32_neon_4x8x64")
        act_bits, act, w_bits, wgt, isa, rows, columns, k_step, unroll, axis, order = match.groups()
        spec = MatmulSpec(isa, MatmulOperand(int(act_bits), _LETTERS[act]), MatmulOperand(int(w_bits), _LETTERS[wgt]))
        return cls(spec, int(rows), int(columns), int(k_step), int(unroll or 0), axis or "inner", order or "")

    def __str__(self) -> str:
        act, wgt = self.spec.act, self.spec.wgt
        form = f"_u{self.unroll}" if self.unroll else ""
        form += f"_{self.bit_axis}" if self.bit_axis != "inner" else ""
        form += f"_for_{self.order}" if self.order else ""
        operands = f"a{act.bits}{act.encoding.letter}_w{wgt.bits}{wgt.encoding.letter}"
        return f"bs_mm_{operands}_s32_{self.spec.isa}_{self.rows}x{self.columns}x{self.k_step}{form}"

    def describe(self) -> str:
        """Return the name in words."""
        return (
            f"int32 product of {self.spec.act} activations and {self.spec.wgt} weights on {self.spec.isa}: "
            f"{self.rows} rows by {self.columns} columns, {self.k_step} positions of K a step"
        )
