"""C of floats as codes, by the levels that they reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.step_functions import StepFunction, float_of
from bitsynth.network.fusion.rounding import RoundedLevels

_MAX_COUNTED, _MAX_COUNTED_ALONE = 3, 16
"""Levels that are counted at once: always, and where no formula is known."""
_BLOCK_BYTES = 2048
"""Bytes of planes that are interleaved at a time."""


@dataclass(frozen=True, eq=False)
class LevelCodes:
    """Codes by levels: how C finds them, and the thresholds it reads.

    Args:
        first: The code of level 0.
        last: The code of the greatest.
        thresholds: float32, ascending (channels, levels).
        formulas: One for each channel, or none.
    """

    first: int
    last: int
    thresholds: Tensor
    formulas: tuple[RoundedLevels, ...] = ()

    @classmethod
    def of(cls, step_function: StepFunction, first: int, formulas: tuple[RoundedLevels, ...] = ()) -> LevelCodes:
        """Those of a step function whose channels all rise or all fall, from the code of its least integer."""
        rising, numbers = bool(step_function.rising[0]), float_of(step_function.thresholds)
        reached = np.where(step_function.thresholds == step_function.low[:, None], -np.inf, numbers).astype(np.float32)
        ends = (first, first + step_function.levels)
        return cls(*(ends if rising else ends[::-1]), np.sort(reached, axis=1), formulas)

    @property
    def levels(self) -> int:
        """How many there are above the least."""
        return int(self.thresholds.shape[1])

    @property
    def counts(self) -> bool:
        """Whether thresholds are all compared."""
        return self.levels <= (_MAX_COUNTED if self.formulas else _MAX_COUNTED_ALONE)

    @property
    def table(self) -> Tensor:
        """The thresholds as C reads them: one less than a power of two if they are searched."""
        room = (1 << self.levels.bit_length()) - 1
        short = 0 if self.counts else room - self.levels
        return np.ascontiguousarray(np.pad(self.thresholds, ((0, 0), (0, short)), mode="edge"))

    def text(self, x: str, to: str, table: str, channel: int) -> str:
        """Statements that set `to` to the code of the float `x` of a channel with a `table`."""
        sign = "+" if self.last >= self.first else "-"
        return f"{self._level(x, table, channel)}\n{to} = (uint8_t)({self.first} {sign} level);"

    def _level(self, x: str, table: str, channel: int) -> str:
        """Statements that declare the level."""
        if self.counts:
            count = " + ".join(f"({x} >= {table}[{k}])" for k in range(self.levels))
            return f"const int32_t level = {count};"
        if self.formulas:
            return self.formulas[channel].text(x, "level")
        lines, most = ["int32_t level = 0;"], self.levels
        for half in (1 << bit for bit in reversed(range(most.bit_length()))):
            lines.append(f"level += ({x} >= {table}[level + {half - 1}]) * {half};")
        return "\n".join((*lines, f"level = level < {most} ? level : {most};"))


def input_body(codes: LevelCodes, shape: tuple[int, int, int], *, planes: bool) -> str:
    """The body that makes codes of (batch, pixels, channels) of floats in this order, or in planes of channels."""
    batch, pixels, channels = shape
    apart = len(codes.thresholds) > 1
    if planes and channels > 1 and pixels > 1:
        return _planes_body(codes, batch, pixels, channels)
    if not apart:
        return _loop("i", math.prod(shape), codes.text("in0[i]", "out0[i]", "k0", 0))
    inner = codes.text("in0[at]", "out0[at]", f"(k0 + c * {codes.table.shape[1]})", 0)
    row = f"const size_t at = row * {channels} + c;\n{inner}"
    return _loop("row", batch * pixels, _loop("c", channels, row))


def _planes_body(codes: LevelCodes, batch: int, pixels: int, channels: int) -> str:
    """Blocks of all planes, then their pixels."""
    block = min(pixels, max(16, _BLOCK_BYTES // channels // 16 * 16))
    apart = codes.table.shape[1] if len(codes.thresholds) > 1 else 0
    several = bool(codes.formulas) and apart > 0 and not codes.counts
    planes = [
        _loop("i", "count", codes.text("x[i]", f"made[{c}][i]", "t", k)).join(
            (f"{{\n    const float *x = from + {c} * (size_t){pixels}, *t = k0 + {c} * {apart};\n    (void)t;\n", "\n}")
        )
        for k, c in (enumerate(map(str, range(channels))) if several else [(0, "c")])
    ]
    made = "\n".join(planes) if several else _loop("c", channels, planes[0])
    return f"""uint8_t made[{channels}][{block}];
for (size_t n = 0; n < {batch}; ++n)
    for (size_t start = 0; start < {pixels}; start += {block}) {{
        const size_t count = {pixels} - start < {block} ? {pixels} - start : {block};
        const float *from = in0 + n * {channels * pixels} + start;
        uint8_t *to = out0 + (n * {pixels} + start) * {channels};
{_indent(made, 2)}
{_indent(_loop("i", "count", _loop("c", channels, f"to[i * {channels} + c] = made[c][i];")), 2)}
    }}"""


def _loop(name: str, count: int | str, body: str) -> str:
    return f"for (size_t {name} = 0; {name} < {count}; ++{name}) {{\n{_indent(body)}\n}}"


def _indent(text: str, deep: int = 1) -> str:
    return "\n".join("    " * deep + line for line in text.split("\n"))
