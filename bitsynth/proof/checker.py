"""The independent checker: shows that a microkernel computes the product, for every input.

It runs the kernel's programs in the linear domain and composes them end to end. Each part gives a lemma, which rests on
earlier lemmas:

    memory     loads, broadcasts and stores put bytes where the layout says
    matrices   (matrix) an instruction on matrices does for each row what the step's program does
    table      (lookup) every entry of a table is the sum that its index selects
    pass n     a step adds a sum of bits to each lane; each loop around it, and the flush, lose nothing
    bit        in every column and position, that sum plus the terms is act * weight, on all rows of the truth table
    padding    bytes of 0 on both sides add 0
    loop       so by induction over the steps the tile is the product
    encoding   and the corrections for other encodings are exact

The checker imports neither the synthesizer nor Z3. It takes on trust only proof obligations, one for each use of an
instruction, which `discharge.py` settles with Z3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.forms import (
    Inexact,
    LinearForm,
    Payload,
    add_forms,
    as_form,
    is_crossed,
    is_plane,
    total,
    variable,
)
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.sums import rows_of
from bitsynth.isa.load import Isa, load
from bitsynth.isa.tested import require_tested
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import HALVES, Role, Value
from bitsynth.kernel.in_order.halves import HalfLoads, half_loads
from bitsynth.kernel.inputs import STAGE_BYTES, Build, Planes, Table
from bitsynth.kernel.matrices import inputs_of_matrix
from bitsynth.kernel.payloads import cross_terms
from bitsynth.kernel.program import Kernel, Pass
from bitsynth.kernel.wellformed import check_shape, check_used
from bitsynth.proof.accumulation import (
    LaneForms,
    LoopSummary,
    PassSummary,
    TraceFactory,
    any_value,
    compose,
    pass_summary,
    separate_rows,
    step_summary,
)
from bitsynth.proof.encodings import encoding_lemma

_MAX_BYTE = 255


@dataclass(frozen=True)
class Checked:
    """The lemmas that were shown, in order; each rests on earlier ones.

    `passes` are the summaries of passes, for each program of rows (`Kernel.alone`).
    """

    lemmas: tuple[str, ...]
    passes: tuple[tuple[PassSummary, ...], ...]


def check(kernel: Kernel, new_trace: TraceFactory = Trace) -> Checked:
    """Return the lemmas that make up the kernel's correctness; Refuted if it is wrong, SpecError if it is malformed.

    A scalar pass is checked as a kernel of its own.
    """
    check_shape(load(kernel.isa), kernel)
    shown, passes = zip(*(_lemmas(each, new_trace) for each in kernel.alone), strict=True)
    lemmas, *of_scalar_pass = shown
    lemmas += [f"last row: {lemma}" for each in of_scalar_pass for lemma in each if lemma not in lemmas]
    check_used(load(kernel.isa), kernel)
    return Checked(tuple(lemmas), passes)


def _lemmas(kernel: Kernel, new_trace: TraceFactory) -> tuple[list[str], tuple[PassSummary, ...]]:
    """Return the lemmas of a kernel all of whose rows have the same program, and the summaries of its passes."""
    isa = load(kernel.isa)
    require_tested(isa[op] for op in kernel.forms)
    lemmas = [_check_memory(isa, kernel, new_trace)]
    if kernel.in_matrices:
        lemmas.append(_matrix_lemma(isa))
    if kernel.build:
        lemmas.append(_check_build(isa, kernel, kernel.build, new_trace))
    tile: list[LinearForm] = [LinearForm(0, {}, 0, 0)] * (kernel.columns * kernel.together)
    increments: list[LaneForms] = []
    summaries: list[PassSummary] = []
    carried: LoopSummary | None = None
    for index, loop in enumerate(kernel.passes):
        where = f"pass {index}"
        added = step_summary(isa, kernel, loop, new_trace)
        lemmas += _step_lemmas(where, kernel, loop, added)
        sums, shares = separate_rows(kernel, added, index)
        increments.append(shares)
        summary = pass_summary(isa, kernel, loop, sums, carried, new_trace)
        summaries.append(summary)
        lemmas += [_loop_lemma(where, loop, level, summary.held[level]) for level in range(1, len(loop.loops))]
        lemmas.append(_end_lemma(where, loop))
        carried = summary.carried
        if carried is None:
            tile = [add_forms(have, compose(form, increments)) for have, form in zip(tile, summary.taken, strict=True)]
    lemmas += _check_product(kernel, tile)
    lemmas.append(encoding_lemma(kernel.act_bits, kernel.w_bits))
    return lemmas, tuple(summaries)


def _matrix_lemma(isa: Isa) -> str:
    """Return the lemma on steps on matrix registers, which `check_shape` has shown (`check_matrices`)."""
    count = inputs_of_matrix(isa)
    return (
        f"matrices: a product of matrices repeats, for each row, the {count} instructions of a step on an accumulator"
    )


def _check_memory(isa: Isa, kernel: Kernel, new_trace: TraceFactory) -> str:
    """Show that data-moving instructions put bytes, inputs of rows and int32 lanes where the layout says."""
    tile = isa.tile
    m = kernel.memory
    moves = _Moves(isa, new_trace)
    row_bytes = kernel.input_bytes(kernel.passes[0].rows[0])
    moves.check_load(m.load, isa.word, list(range(isa.word.lanes)))
    moves.check_load(m.broadcast, isa.word, [k % row_bytes for k in range(isa.word.lanes)])
    moves.check_load(m.load_tile, tile, list(range(tile.lanes)))
    moves.check_load(m.broadcast_tile, tile, [0] * tile.lanes)
    moves.check_store(m.store_tile, tile)
    for halves in filter(None, (half_loads(isa, cpu) for cpu in isa.table.in_order)):
        moves.check_halves(halves)
    x, y = (Register(tile, tuple(any_value((side, k), tile) for k in range(tile.lanes))) for side in "xy")
    added = [add_forms(a, b) for a, b in zip(x.lanes, y.lanes, strict=True)]
    if isa[m.add_tile].store or moves.result(m.add_tile, tile, x, y) != added:
        raise Refuted(f"{m.add_tile} does not add int32 lanes")
    return "memory: inputs and tiles are moved lane by lane; the tile starts at its row's term plus its column's"


@dataclass(frozen=True)
class _Moves:
    """Runs single instructions, each in a trace of its own, so that it becomes an obligation too."""

    isa: Isa
    new_trace: TraceFactory

    def result(self, op: str, kind: VecType, *args: Register) -> list[Payload] | None:
        """Return the lanes of the result of `op` on `args`, viewed as `kind`; None if it does not take these."""
        if self.isa[op].imm:
            return None
        trace = self.new_trace(self.isa, LinearDomain(1))
        names = [trace.bind(Value(f"x{k}"), x) for k, x in enumerate(args)]
        try:
            result = trace.registers[trace.apply(op, names, dst=Value("y"))]
            return list(result.view_as(trace.domain, kind).lanes)
        except (Inexact, SpecError):
            return None

    def check_load(self, op: str, kind: VecType, source: list[int]) -> None:
        """Raise Refuted unless `op` loads the lanes that the layout has, and lane k of the result is lane source[k]."""
        cells = max(source) + 1
        memory = Register(VecType(kind.sign, kind.bits, cells), tuple(any_value(k, kind) for k in range(cells)))
        if not self.isa[op].is_load:
            raise Refuted(f"{op} is not a plain load")
        if self.result(op, kind, memory) != [memory.lanes[k] for k in source]:
            raise Refuted(f"{op} does not load lanes {source[:8]}...")

    def check_halves(self, halves: HalfLoads) -> None:
        """Raise Refuted unless a half is loaded as it lies in memory, and a low and a high half are joined in order."""
        word = self.isa.word
        half = VecType(word.sign, word.bits, word.lanes // 2)
        self.check_load(halves.load, half, list(range(half.lanes)))
        low, high = (tuple(any_value((part, k), half) for k in range(half.lanes)) for part in HALVES)
        general = VecType("x", half.bits, half.lanes)
        if self.result(halves.join, word, Register(half, low), Register(general, high)) != [*low, *high]:
            raise Refuted(f"{halves.join} does not join the halves of a register in order")

    def check_store(self, op: str, kind: VecType) -> None:
        """Raise Refuted unless `op` stores the lanes of its operand in order."""
        x = Register(kind, tuple(any_value(("x", k), kind) for k in range(kind.lanes)))
        if not self.isa[op].store or self.result(op, kind, x) != list(x.lanes):
            raise Refuted(f"{op} does not store {kind} lanes in order")


def _check_build(isa: Isa, kernel: Kernel, build: Build, new_trace: TraceFactory) -> str:
    """Show that the table program makes each entry of each table the sum that its index selects."""
    bits, most = _table_shape(kernel)
    moves = _Moves(isa, new_trace)
    moves.check_load(build.load, isa.word, [k % STAGE_BYTES for k in range(isa.word.lanes)])
    moves.check_store(build.store, isa.word)
    trace = new_trace(isa, LinearDomain(1))
    trace.bind_constants(build.constants)
    codes = [variable(("code", n), 0, most) for n in range(max(STAGE_BYTES, bits * build.tables))]
    stage: list[Payload] = [codes[n] if n >= 0 else 0 for n in build.stage]
    trace.bind(
        Value.of(Role.STAGED, 0), Register(isa.word, tuple(stage[b % STAGE_BYTES] for b in range(isa.word.lanes)))
    )
    try:
        for step in build.steps:
            trace.run(step)
        table = trace.registers[build.table].view_as(trace.domain, isa.word).lanes
        for b in range(build.tables << bits):
            number, e = b >> bits, b % (1 << bits)
            have, want = as_form(table[b]), total(codes[number * bits + n] for n in range(bits) if e >> n & 1)
            if (have.const, have.atoms) != (0, want.atoms):
                raise Inexact(f"entry {e} of table {number} is another sum")
    except Inexact as why:
        raise Refuted(f"the table cannot be shown exact: {why}") from None
    if most * bits > _MAX_BYTE:
        raise Refuted(f"sums of {bits} values up to {most} do not fit the bytes of a table")
    return f"table: each of {1 << bits} entries is the sum of the values, up to {most}, that its number selects"


def _table_shape(kernel: Kernel) -> tuple[int, int]:
    """Return the bits of an index and the greatest value, which are the same for all tables."""
    tables = [x for p in kernel.passes for x in p.rows if isinstance(x, Table)]
    return tables[0].bits, max(max(t.values) for t in tables)


def _check_product(kernel: Kernel, tile: list[LinearForm]) -> list[str]:
    """Show that each column's sum is the product at each position of K, by truth table."""
    everywhere = (1 << kernel.k_step) - 1
    rows = 1 << kernel.code_bits
    shown: set[tuple[int, frozenset[tuple[int, int]]]] = set()
    # Each column: an atom adds its coefficients to the rows of its truth table.
    for n, column_sum in enumerate(tile):
        member, column = divmod(n, kernel.columns)
        form = add_forms(column_sum, cross_terms(kernel, column)) if kernel.cross_terms else column_sum
        if form.const:
            raise Refuted(f"column {column} is off by {form.const} every step")
        tables: dict[int, int] = {}
        for key, by in form.atoms.items():
            if is_crossed(key):
                raise Refuted(f"column {column}: bits of different positions of K are multiplied")
            if not is_plane(key):
                raise Refuted(f"column {column} takes in a number that is no product of codes")
            table, where = key
            if where not in (None, column):
                raise Refuted(f"column {column} takes in column {where}")
            if any(mask != everywhere for mask in by.values()):
                raise Refuted(f"column {column} does not count every position of K alike")
            tables[table] = tables.get(table, 0) + sum(by)
        if (claim := (member, frozenset(tables.items()))) not in shown:
            _check_rows(kernel, column, member, tables)
            shown.add(claim)
    return [
        f"bit: act * {kernel.core.wgt.encoding}(wgt) == row term + column term + sum on all {rows} rows, "
        "in every column and position",
        _check_padding(kernel),
        "loop: by induction the tile is its terms plus the sums of all steps, whatever the number of steps",
    ]


def _check_padding(kernel: Kernel) -> str:
    """Show that bytes of 0 on both sides add nothing: terms do not, and by the bit lemma no code times act 0 does."""
    pads: dict[bool, int] = {}
    for of_row, terms in ((True, kernel.row_terms), (False, kernel.column_terms)):
        inputs = [x for p in kernel.passes for x in (p.rows if of_row else p.columns)]
        codes = {x.zero if isinstance(x, Planes) else 0 for x in inputs}
        of_act = of_row != kernel.swapped
        pads[of_act] = codes.pop()
        if codes or ((of_act or kernel.cross_terms) and pads[of_act]):
            raise Refuted("zero padding would count: bytes of 0 are not one code, or not activation 0")
        if terms[0] or terms[pads[of_act]]:
            raise Refuted(f"zero padding would count: the corrections of code {pads[of_act]} are not 0")
    return f"padding: code 0 times code {pads[False]} adds 0" if pads[False] else "padding: code 0 on both sides adds 0"


def _check_rows(kernel: Kernel, column: int, member: int, tables: Mapping[int, int]) -> None:
    """Raise Refuted unless the sum of truth tables, each times its count, plus the terms is the product on every row.

    The product is of the column's code and the code of row `member` of a group.
    """
    rows = np.arange(1 << kernel.code_bits)
    of_row = rows >> kernel.first_bit(True, member) & ((1 << kernel.row_bits) - 1)
    of_column = rows >> kernel.first_bit(False) & ((1 << kernel.column_bits) - 1)
    act, wgt = (of_column, of_row) if kernel.swapped else (of_row, of_column)
    have = np.array(kernel.row_terms, np.int64)[of_row] + np.array(kernel.column_terms, np.int64)[of_column]
    have = have + rows_of(tables.items(), len(rows))
    want = act * (kernel.core.wgt.scale * wgt + kernel.core.wgt.offset)
    if (wrong := np.flatnonzero(have != want)).size:
        k = wrong[0]
        which = f"row {member}, " if kernel.together > 1 else ""
        raise Refuted(
            f"{which}column {column}: act code {act[k]} times wgt code {wgt[k]} gives {have[k]}, want {want[k]}"
        )


def _step_lemmas(where: str, kernel: Kernel, loop: Pass, increments: LaneForms) -> list[str]:
    most = max(form.hi for form in increments.values())
    least = min(form.lo for form in increments.values())
    return [
        f"{where}: a step adds to each of {len(increments)} accumulator lanes a sum of bits in [{least}, {most}]",
        f"{where}: {kernel.k_step} positions of K a step, {len(loop.step.steps)} instructions, no lane overflows",
    ]


def _loop_lemma(where: str, loop: Pass, level: int, held: LoopSummary) -> str:
    inner, nested, lanes = loop.loops[level - 1], loop.loops[level], held.lanes.values()
    bits = min(VecType.parse(acc.type).bits for acc in nested.accs)
    wrap = sum(form.hi - form.lo >> bits > 0 for form in lanes)
    rest = f"{wrap} of which hold sums modulo 2**{bits}" if wrap else "none overflows"
    return f"{where}: loop {level} adds {inner.trip_count} runs of the loop inside to {len(lanes)} lanes, {rest}"


def _end_lemma(where: str, loop: Pass) -> str:
    if loop.carries:
        return f"{where}: every {loop.flush_every} steps the next pass starts from its sums, over the same steps"
    return f"{where}: a flush every {loop.flush_every} steps moves every lane to its column, none overflows"
