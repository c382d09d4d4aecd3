"""Microkernels and baselines as loops: compiled, with one tile of operands that stays in L1.

Packing is done before; a call multiplies one tile over K = 576, or over as much of it as
leaves the operands in `L1_SHARE` of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth import toolchain
from bitsynth.errors import Refuted, ToolError
from bitsynth.isa.baseline_loops import BaselineLoop
from bitsynth.isa.load import Isa
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.run.arguments import make_aligned
from bitsynth.run.runner import Runner, runner_for
from bitsynth.schedule.cost import AMORTISED_K
from bitsynth.spec.matmul import MatmulOperand

L1_SHARE = 5 / 6
"""The share of the L1 data cache that operands may take; the tile and the stack have the rest."""
_COMMON_L1 = 32 * 1024
_CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")
CLOCK_CYCLES = 32
_CLOCK = Path(__file__).parent / "clock.c"
_TILE = "bs_tile"
_KERNEL = "size_t steps, const uint8_t *a, const uint8_t *w, const int32_t *g, const int32_t *h, int32_t *c, size_t ldc"
_BASELINE = {
    "fp32": "size_t steps, const float *a, const float *w, float *c",
    "int8": "size_t steps, const uint8_t *a, const int8_t *w, int32_t *c",
}
_OPERANDS: dict[str, tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]] = {
    "fp32": (np.dtype(np.float32), np.dtype(np.float32), np.dtype(np.float32)),
    "int8": (np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int32)),
}


@dataclass(frozen=True, eq=False)
class TimedLoop:
    """A compiled function and its arguments: `macs` multiply-accumulates a call, `k` deep."""

    name: str
    symbol: str
    arguments: tuple[int | NDArray[Any], ...]
    k: int
    macs: int
    operand_bytes: int
    runner: Runner

    def repeat(self, calls: int) -> None:
        """Call the function `calls` times, from a loop in C."""
        self.runner.call("bs_repeat", calls, *self.arguments)

    def instructions(self) -> int:
        """Return instructions that one call executes, if an emulator counts them; ToolError elsewhere."""
        self.runner.call(self.symbol, *self.arguments)
        if self.runner.instructions is None:
            raise ToolError(f"instructions cannot be counted {self.runner.description}; unset BITSYNTH_RUNNER")
        return self.runner.instructions


def kernel_loop(kernel: MatmulKernel, *, count: bool = False) -> TimedLoop:
    """Return the microkernel of `kernel` on a tile of random codes."""
    tile = KernelName.parse(kernel.name)
    m, n = (tile.columns, tile.rows) if kernel.entry.kernel.swapped else (tile.rows, tile.columns)
    runner = kernel.compile({**_repeat(_TILE, _KERNEL, "bs_tile.h"), **_one_tile(kernel.name)}, count=count)

    def sizes(steps: int) -> tuple[int, int]:
        k = steps * tile.k_step
        return (
            runner.call(f"{kernel.name}_act_bytes", m, k),
            runner.call(f"{kernel.name}_wgt_bytes", k, n),
        )

    steps = _fit_steps(-(-AMORTISED_K // tile.k_step), lambda count: sum(sizes(count)))
    k, (act_bytes, wgt_bytes) = steps * tile.k_step, sizes(steps)
    act, wgt = make_aligned(act_bytes, np.uint8), make_aligned(wgt_bytes, np.uint8)
    runner.call(f"{kernel.name}_pack_act", m, k, _codes(kernel.spec.act, (m, k)), act)
    runner.call(f"{kernel.name}_pack_wgt", k, n, _codes(kernel.spec.wgt, (k, n)), wgt)
    starts = make_aligned(tile.columns, np.int32), make_aligned(tile.rows, np.int32)
    sums = make_aligned(tile.rows * tile.columns, np.int32)
    macs = tile.rows * tile.columns * k
    operands = (wgt, act) if kernel.entry.kernel.swapped else (act, wgt)
    arguments = (steps, *operands, *starts, sums, tile.columns)
    return TimedLoop(kernel.name, _TILE, arguments, k, macs, act_bytes + wgt_bytes, runner)


def _one_tile(name: str) -> dict[str, str]:
    """Return C that runs the microkernel on rows that lie one behind the other."""
    header = f'#include "{name}.h"\n\nvoid {_TILE}({_KERNEL});\n'
    body = f"""#include "{_TILE}.h"

void {_TILE}({_KERNEL})
{{
    const uint8_t *rows[{name}_rows];
    for (size_t row = 0; row < {name}_rows; ++row)
        rows[row] = a + row * steps * {name}_row_bytes;
    {name}(1, 1, steps, rows, w, g, h, c, ldc);
}}
"""
    return {f"{_TILE}.h": header, f"{_TILE}.c": body}


def baseline_loop(baseline: BaselineLoop, *, count: bool = False) -> TimedLoop:
    """Return a baseline on a tile of random numbers; Refuted if its product is wrong."""
    table, symbol = baseline.table, baseline.table.function
    sources = {**baseline.files, **_repeat(symbol, _BASELINE[symbol], "baseline.h")}
    library = toolchain.compile_for(baseline.isa, sources, flags=baseline.macros)
    runner = runner_for(baseline.isa, library, count=count)
    act, wgt, out = _OPERANDS[symbol]
    step_bytes = table.k_step * (table.rows * act.itemsize + table.columns * wgt.itemsize)
    steps = _fit_steps(AMORTISED_K // table.k_step, lambda n: n * step_bytes)
    a = _random(0, 64, (steps, table.rows, table.k_step), act)
    w = _random(-64, 64, (steps, table.columns, table.k_step), wgt)
    c = make_aligned(table.rows * table.columns, out)
    loop = TimedLoop(
        baseline.name,
        symbol,
        (steps, a, w, c),
        steps * table.k_step,
        table.rows * table.columns * steps * table.k_step,
        steps * step_bytes,
        runner,
    )
    runner.call(symbol, *loop.arguments)
    if not np.array_equal(c.reshape(table.rows, table.columns), np.einsum("srk,sck->rc", a, w, dtype=out)):
        raise Refuted(f"{baseline.isa.name}: the baseline {baseline.name} multiplies wrong")
    return loop


def clock_loop(isa: Isa) -> Callable[[int], int]:
    """Return a function of n that takes n * `CLOCK_CYCLES` core cycles."""
    runner = runner_for(isa, toolchain.compile_for(isa, {"bs_clock.c": _CLOCK.read_text(encoding="utf-8")}))
    return lambda n: runner.call("bs_clock", n, 1)


def _fit_steps(steps: int, size: Callable[[int], int]) -> int:
    """Return `steps`, or as many of them as L1 holds if `size` of them is more; at least 1."""
    return max(1, min(steps, int(steps * L1_SHARE * l1_bytes()) // size(steps)))


@lru_cache
def l1_bytes() -> int:
    """Return the size of this processor's L1 data cache in bytes, 32 KiB if the system does not say."""
    try:
        return int(_CACHE_SIZE.read_text().removesuffix("K\n")) * 1024
    except (OSError, ValueError):
        return _COMMON_L1


def _codes(operand: MatmulOperand, shape: tuple[int, int]) -> NDArray[np.uint8]:
    return np.random.default_rng(0).choice(np.array(operand.codes, np.uint8), shape)


def _random(low: int, high: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    out = make_aligned(math.prod(shape), dtype).reshape(shape)
    out[...] = np.random.default_rng(0).integers(low, high, shape)
    return out


def _repeat(symbol: str, parameters: str, header: str) -> dict[str, str]:
    """Return C that calls `symbol` a given number of times."""
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
    signature = f"void bs_repeat(size_t calls, {parameters})"
    body = f"for (; calls > 0; --calls)\n        {symbol}({names});"
    return {"bs_repeat.c": f'#include "{header}"\n\n{signature};\n{signature}\n{{\n    {body}\n}}\n'}
