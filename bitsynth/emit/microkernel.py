"""C of the microkernel: loop nests over K around the statements of its programs.

Steps of K lie in segments, each with pointers to its rows. `block` steps are accumulated between two flushes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitsynth.emit.in_order import OrderedSteps
from bitsynth.emit.kernel_inputs import SideText
from bitsynth.emit.matrix_steps import MatrixSteps
from bitsynth.emit.programs import Programs
from bitsynth.emit.render import block, declare
from bitsynth.emit.statements import Scope
from bitsynth.kernel.describe import flush_title, loop_title, step_title
from bitsynth.kernel.inputs import Input
from bitsynth.kernel.program import Kernel, Pass, period

Sides = Mapping[Sequence[Input], SideText]


def microkernel(programs: Programs, rows: Sides, columns: Sides, scope: Scope) -> list[str]:
    """Return the statements that compute a tile; constants are in `scope`."""
    kernel = programs.kernel
    lines = ["/* What a flush adds sums to: the start, then the tile. */", "const int32_t *start = g;"]
    lines += _stride(kernel, "size_t start_ld = 0;")
    if programs.flushes.row_terms:
        lines += ["const int32_t *row_start = h;", *_stride(kernel, "size_t row_start_ld = 1;")]
    lines += programs.memory()
    chains = [_Chain(programs, chain, rows, columns, scope).lines() for chain in kernel.chains]
    return lines + (chains[0] if len(chains) == 1 else [line for chain in chains for line in block("", chain)])


@dataclass(frozen=True)
class _Chain:
    """Passes over the same blocks of steps; accumulators live from the first pass to the last."""

    programs: Programs
    passes: Sequence[Pass]
    rows: Sides
    columns: Sides
    outside: Scope

    @property
    def kernel(self) -> Kernel:
        return self.programs.kernel

    @property
    def matrices(self) -> MatrixSteps | None:
        """The statements of steps on matrix registers; None if steps are on others."""
        return self.programs.matrices

    @property
    def outer(self) -> bool:
        """Whether a row has all steps of one bit plane before the next plane."""
        return self.kernel.bit_axis == "outer"

    @property
    def several(self) -> bool:
        return len(self.passes) > 1

    def lines(self) -> list[str]:
        """Return pointers to the first step, then the loop over blocks."""
        every, scope = period(self.passes), self.outside.inner()
        body = [f"const size_t block = steps_left < {every} ? steps_left : {every};"]
        if self.several:
            body.append("const uint8_t *const *const block_segment = segment;")
            body.append("const size_t block_here = steps_here, block_offset = offset;")
        if self.matrices:
            body += self.matrices.start()
        else:
            body += self.programs.start(self.passes[0].loops[-1], scope, begun=self._steps(self.passes[0]).begins)
        for number, loop in enumerate(self.passes):
            body += self._pass(number, loop, scope)
        body += ["steps_left -= block;", "start = c;", *_stride(self.kernel, "start_ld = ldc;")]
        if self.programs.flushes.row_terms:
            body += ["row_start = zero;", *_stride(self.kernel, "row_start_ld = 0;")]
        return [*self._pointers(), *block("for (size_t steps_left = all_steps; steps_left > 0;)", body)]

    def _pointers(self) -> list[str]:
        out = ["/* Rows of the next segment; then of this one, how many steps are left and where they are. */"]
        out.append("const uint8_t *const *segment = a + ROWS;")
        row_start = self._row_start(self.passes[0])
        firsts = enumerate(self._first_rows())
        out += declare("const uint8_t", [f"*row{group} = a[{row}]{row_start}" for group, row in firsts])
        for number, loop in enumerate(self.passes):
            start = self.columns[loop.columns].start
            behind = f" + all_steps * (COLUMNS * {start})" if start else ""
            out.append(f"const uint8_t *column{number if self.several else ''} = w{behind};")
        return [*out, "size_t steps_here = steps, offset = 0;"]

    def _pass(self, number: int, loop: Pass, outside: Scope) -> list[str]:
        """Return one pass over a block, from the start of the block."""
        scope = outside.inner()
        body = self._nest(loop, len(loop.loops) - 1, scope)
        body += self.matrices.end() if self.matrices else []
        ends = self.programs.widen(loop.carried, scope) if loop.carries else self.programs.flushes.flush(loop, scope)
        body += [_comment(flush_title(loop)), *ends]
        if not self.several:
            return body
        back = [*self._back(loop), f"const uint8_t *column = column{number};"]
        return [f"/* Pass {number}. */", *block("", [*back, *body, f"column{number} = column;"])]

    def _back(self, loop: Pass) -> list[str]:
        """Return statements that go back to the start of the block."""
        start, rows = self._row_start(loop), self.kernel.rows
        pointers = [f"row{group} = segment[{row - rows}]{start};" for group, row in enumerate(self._first_rows())]
        back = ["segment = block_segment;", "steps_here = block_here;", "offset = block_offset;"]
        return [*back, *block("if (steps_here > 0)", pointers)]

    def _nest(self, loop: Pass, level: int, scope: Scope) -> list[str]:
        """Return loop `level` of the nest with the loops in it; their accumulators are in `scope` afterwards."""
        outermost = level == len(loop.loops) - 1
        left = ["size_t left = block;"] if outermost and level else []
        here = loop.loops[level]
        if level == 0:
            return self._innermost(loop, scope, whole=outermost)
        inside = [*self.programs.start(loop.loops[level - 1], scope), *self._nest(loop, level - 1, scope)]
        inside += [_comment(f"widening, {loop_title(loop, level)}"), *self.programs.widen(here, scope)]
        runs = f"runs{level}"
        head = f"for (size_t {runs} = {here.trip_count}; {runs} > 0 && left > 0; --{runs})"
        return [*left, *block(head, inside)]

    def _innermost(self, loop: Pass, scope: Scope, *, whole: bool) -> list[str]:
        """Return the loop over steps, segment by segment; over the `whole` block if it is the only loop."""
        times = loop.step.trip_count
        count = ["size_t count = block;"]
        if not whole:
            count = [f"size_t count = left < {times} ? left : {times};", "left -= count;"]
        first = self.programs.first(loop, scope)
        if first:
            title = "/* First run of the step: it sets the accumulators. */"
            count += [title, *self._next_segment(loop), *block("", [*first, *self._advance(loop)])]
            count += ["--steps_here;", "--count;"]
        if self._steps(loop).crosses:
            following = self._next_segment(loop, "__builtin_expect(steps_here == 0, 0)")
            across = self._steps(loop).across(scope.inner(), following)
            title = _comment(step_title(self.kernel))
            return [*count, *block("if (count > 0)", [*self._next_segment(loop), title, *across])]
        body = [
            *self._next_segment(loop),
            "size_t run = count < steps_here ? count : steps_here;",
            "count -= run;",
            "steps_here -= run;",
        ]
        return [*count, *block("while (count > 0)", [*body, *self._runs(loop, scope)])]

    def _runs(self, loop: Pass, scope: Scope) -> list[str]:
        """Return steps of one segment, `unroll` at a time."""
        if self.programs.in_order:
            return [_comment(step_title(self.kernel)), *self._steps(loop).runs(scope.inner(), self._advance(loop))]
        step = self.matrices.step(scope.inner()) if self.matrices else self.programs.step(loop, loop.step, scope)
        step += self._advance(loop)
        unroll, title = self.kernel.unroll, _comment(step_title(self.kernel))
        lines = [title]
        if unroll > 1:
            iterations = [f"#pragma GCC unroll {unroll}", *block(f"for (int turn = 0; turn < {unroll}; ++turn)", step)]
            lines += block(f"for (; run >= {unroll}; run -= {unroll})", iterations)
        if unroll:
            lines.append("#pragma GCC unroll 1")
        return [*lines, *block("for (; run > 0; --run)", step)]

    def _steps(self, loop: Pass) -> OrderedSteps:
        return OrderedSteps(self.programs.isa, self.kernel, loop)

    def _next_segment(self, loop: Pass, where: str = "steps_here == 0") -> list[str]:
        start = self._row_start(loop)
        if self.kernel.together > 1:
            pointers = [f"row{group} = segment[{row}]{start};" for group, row in enumerate(self._first_rows())]
            pointers.append("segment += ROWS;")
        else:
            pointers = [f"row{row} = *segment++{start};" for row in self._first_rows()]
        return block(f"if ({where})", [*pointers, "steps_here = steps;", "offset = 0;"])

    def _first_rows(self) -> range:
        """Return the first row of every group; its pointer serves all rows of the group."""
        return range(0, self.kernel.rows, self.kernel.together)

    def _row_start(self, loop: Pass) -> str:
        """Return the offset of the pass's inputs in a row, whose steps lie together or plane by plane."""
        start = self.rows[loop.rows].start
        return f" + {'steps * ' if self.outer else ''}{start}" if start else ""

    def _advance(self, loop: Pass) -> list[str]:
        size = self.columns[loop.columns].bytes
        columns = "COLUMNS * SLOT_BYTES" if self.outer else f"COLUMNS * {size}" if size > 1 else "COLUMNS"
        return [f"offset += {'SLOT_BYTES' if self.outer else 'ROW_BYTES'};", f"column += {columns};"]


def _stride(kernel: Kernel, statement: str) -> list[str]:
    """Return the `statement` on the distance of rows, if the tile has several."""
    return [statement] if kernel.rows > 1 else []


def _comment(title: str) -> str:
    return f"/* {title[0].upper()}{title[1:]}. */"
