"""The independent checker: does a microkernel compute the product, for every input?

It runs the kernel's programs in the linear domain and composes them end to end: planes,
tables, gates, counts, the nest of loops over K with its bounds, the int32 tile. It imports neither
the synthesizer nor Z3; what it takes on trust is one lemma for each instruction use it
lists, which `prove` discharges with Z3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.check import require_tested
from bitsynth.isa.domains.forms import (
    Form,
    Inexact,
    Payload,
    add_forms,
    as_form,
    is_plane,
    tightened,
    total,
    variable,
)
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa, load
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.layout import bind_inputs
from bitsynth.program import STAGE_BYTES, Acc, Build, Kernel, Loop, Pass, Table
from bitsynth.wellformed import check_shape, check_used, constant_load

BYTE_MAX = 255
TraceFactory = Callable[[Isa, LinearDomain], Trace]


@dataclass(frozen=True)
class Checked:
    """What was shown: the lemmas in order, each resting on those before it."""

    lemmas: tuple[str, ...]


def check(kernel: Kernel, new_trace: TraceFactory = Trace) -> Checked:
    """The lemmas that compose into the kernel's correctness; Refuted or SpecError otherwise."""
    isa = load(kernel.isa)
    check_shape(isa, kernel)
    require_tested(isa[op] for op in sorted(forms_used(isa, kernel)))
    lemmas = [_check_memory(isa, kernel)]
    if kernel.build:
        lemmas.append(_check_build(isa, kernel, kernel.build, new_trace))
    tile: list[Form] = [Form(0, {}, 0, 0)] * kernel.columns
    for index, loop in enumerate(kernel.passes):
        where = f"pass {index}"
        grown = step_growth(isa, kernel, loop, new_trace)
        lemmas += _step_lemmas(where, kernel, loop, grown)
        for level in range(1, len(loop.loops)):
            grown = fold_growth(isa, kernel, loop, level, grown, new_trace)
            lemmas.append(_fold_lemma(where, loop, level))
        taken = flush_effect(isa, kernel, loop, grown, new_trace)
        lemmas.append(f"{where}: a flush every {loop.flush_every} steps moves every lane to its column, none overflows")
        tile = [add_forms(have, _compose(form, grown)) for have, form in zip(tile, taken, strict=True)]
    lemmas += _check_product(kernel, tile)
    check_used(isa, kernel)
    return Checked(tuple(lemmas))


def forms_used(isa: Isa, kernel: Kernel) -> set[str]:
    """Every instruction form the kernel's C text will contain."""
    memory, build = kernel.memory, kernel.build
    moving = {memory.load, memory.broadcast, memory.load_tile, memory.store_tile}
    row_terms = {memory.add_tile, memory.broadcast_tile} if kernel.has_row_terms else set()
    programs = {s.op for p in kernel.passes for program in p.programs for s in program}
    building = {build.load, build.store, *(s.op for s in build.steps)} if build else set()
    constants = (*kernel.constants, *(build.constants if build else ()))
    loads = {constant_load(isa, VecType.parse(c.type)).name for c in constants}
    return moving | row_terms | programs | building | loads


def _check_memory(isa: Isa, kernel: Kernel) -> str:
    """The data-moving instructions put bytes, rows' inputs and int32 lanes where the layout says."""
    tile = isa.tile
    m = kernel.memory
    row_bytes = kernel.input_bytes(kernel.passes[0].rows[0])
    _check_load(isa[m.load], isa.word, list(range(isa.word.lanes)))
    _check_load(isa[m.broadcast], isa.word, [k % row_bytes for k in range(isa.word.lanes)])
    _check_load(isa[m.load_tile], tile, list(range(tile.lanes)))
    _check_load(isa[m.broadcast_tile], tile, [0] * tile.lanes)
    _check_store(isa[m.store_tile], tile)
    x, y = ([anything((side, k), tile) for k in range(tile.lanes)] for side in "xy")
    add = isa[m.add_tile]
    if add.store or _moved(add, tile, [x, y]) != [add_forms(a, b) for a, b in zip(x, y, strict=True)]:
        raise Refuted(f"{m.add_tile} does not add int32 lanes")
    return "memory: inputs and tiles are moved lane by lane; the tile starts at its row's term plus its column's"


def _check_load(instr: Instr, kind: VecType, source: list[int]) -> None:
    """It reads as many bytes as the layout has there, and puts them where `source` says."""
    cells = max(source) + 1
    memory = Register(VecType(kind.sign, kind.bits, cells), tuple(anything(k, kind) for k in range(cells)))
    want = [memory.lanes[k] for k in source]
    if not instr.is_load:
        raise Refuted(f"{instr.name} is no plain load")
    try:
        domain = LinearDomain(1)
        given = memory.viewed_as(domain, instr.operands[0].type).lanes
        got = Register(instr.out, tuple(instr(domain, [given]))).viewed_as(domain, kind).lanes
    except (Inexact, SpecError):
        got = ()
    if list(got) != want:
        raise Refuted(f"{instr.name} does not load lanes {source[:8]}...")


def _check_store(instr: Instr, kind: VecType) -> None:
    x = [anything(("x", k), kind) for k in range(kind.lanes)]
    if not instr.store or _moved(instr, kind, [x]) != x:
        raise Refuted(f"{instr.name} does not store {kind} lanes in order")


def _moved(instr: Instr, kind: VecType, args: list[list[Form]]) -> list[Payload] | None:
    """What it makes of `args`; None where it wants others, or gives another type than `kind`."""
    fits = [len(a) for a in args] == [o.type.lanes for o in instr.operands]
    same = all(t.bits == kind.bits for t in (instr.out, *(o.type for o in instr.operands)))
    if not fits or not same or instr.imm or instr.out.lanes != kind.lanes:
        return None
    try:
        return instr(LinearDomain(1), args)
    except Inexact:
        return None


def _check_build(isa: Isa, kernel: Kernel, build: Build, new_trace: TraceFactory) -> str:
    """The table program gives every entry the sum its number selects."""
    bits, most = _table_shape(kernel)
    _check_load(isa[build.load], isa.word, [k % STAGE_BYTES for k in range(isa.word.lanes)])
    _check_store(isa[build.store], isa.word)
    trace = new_trace(isa, LinearDomain(1))
    trace.bind_constants(build.constants)
    codes = [variable(("code", n), 0, most) for n in range(bits)]
    stage: list[Payload] = [codes[n] if n >= 0 else 0 for n in build.stage]
    trace.bind("x0", Register(isa.word, tuple(stage[b % STAGE_BYTES] for b in range(isa.word.lanes))))
    try:
        for step in build.steps:
            trace.run(step)
        table = trace.registers[build.table].viewed_as(trace.domain, isa.word).lanes
        for e in range(1 << bits):
            have, want = as_form(table[e]), total(codes[n] for n in range(bits) if e >> n & 1)
            if (have.const, have.atoms) != (0, want.atoms):
                raise Inexact(f"entry {e} is another sum")
    except Inexact as why:
        raise Refuted(f"the table cannot be shown exact: {why}") from None
    if most * bits > BYTE_MAX:
        raise Refuted(f"sums of {bits} values up to {most} do not fit the bytes of a table")
    return f"table: each of {1 << bits} entries is the sum of the values, up to {most}, that its number selects"


def _table_shape(kernel: Kernel) -> tuple[int, int]:
    """Bits of an index and the greatest value, the same of every table."""
    tables = [x for p in kernel.passes for x in p.rows if isinstance(x, Table)]
    return tables[0].bits, max(max(t.values) for t in tables)


Growth = Mapping[Hashable, Form]


def anything(key: Hashable, kind: VecType) -> Form:
    """A lane of which nothing is known: any value of its width."""
    return variable(key, 0, (1 << kind.bits) - 1)


def step_growth(isa: Isa, kernel: Kernel, loop: Pass, new_trace: TraceFactory = Trace) -> dict[Hashable, Form]:
    """What one step adds to each accumulator lane of the innermost loop, keyed ("acc", name, lane)."""
    rows = 1 << (kernel.act_bits + kernel.w_bits)
    domain = LinearDomain(rows)
    trace = new_trace(isa, domain)
    bind_inputs(trace, kernel, loop)
    try:
        grown = _grown(trace, loop.step, rows)
        if loop.step.first:
            first = new_trace(isa, domain)
            bind_inputs(first, kernel, loop)
            _check_first(first, loop.step, grown)
    except Inexact as why:
        raise Refuted(f"the step cannot be shown exact: {why}") from None
    return grown


def _check_first(trace: Trace, loop: Loop, grown: Growth) -> None:
    """The first run leaves in the accumulators what a run adds to them."""
    for step in loop.first_steps:
        trace.run(step)
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = trace.registers[acc.start].viewed_as(trace.domain, kind).lanes
        for key, x in zip(_keys(acc, kind), lanes, strict=True):
            if ((form := as_form(x)).const, form.atoms) != (grown[key].const, grown[key].atoms):
                raise Inexact(f"the first run leaves in {acc.name} another sum than a run adds")


def fold_growth(
    isa: Isa, kernel: Kernel, loop: Pass, level: int, inner: Growth, new_trace: TraceFactory = Trace
) -> dict[Hashable, Form]:
    """What one step adds to each lane of loop `level`, through the accumulators of the loop inside it.

    Ranges are those of a whole run of the loop inside.
    """
    trace = new_trace(isa, LinearDomain(1))
    trace.bind_constants(kernel.constants)
    _bind_filled(trace, loop.loops[level - 1], inner)
    try:
        taken = _grown(trace, loop.loops[level], 1, inner)
    except Inexact as why:
        raise Refuted(f"loop {level} cannot be shown exact: {why}") from None
    out = {}
    for key, form in taken.items():
        if form.const:
            raise Refuted(f"loop {level}: a lane gets {form.const} a run, however many steps it ends")
        whole = _compose(form, inner)
        out[key] = Form(whole.const, whole.atoms, form.lo, form.hi)
    return out


def _grown(trace: Trace, loop: Loop, rows: int, inner: Container[Hashable] = ()) -> dict[Hashable, Form]:
    """What one run of the loop's program adds to each lane of its accumulators: planes, or lanes of the loop inside."""
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = tuple(anything(key, kind) for key in _keys(acc, kind))
        trace.bind(acc.name, Register(kind, lanes))
    for step in loop.steps:
        trace.run(step)
    return {key: form for acc in loop.accs for key, form in _growth_of(trace, acc, inner, rows)}


def _growth_of(trace: Trace, acc: Acc, inner: Container[Hashable], rows: int) -> list[tuple[Hashable, Form]]:
    kind = VecType.parse(acc.type)
    if acc.next not in trace.registers:
        raise SpecError(f"accumulator {acc.name} becomes {acc.next}, which has no value")
    register = trace.registers[acc.next].viewed_as(trace.domain, kind)
    out: list[tuple[Hashable, Form]] = []
    for i, (key, x) in enumerate(zip(_keys(acc, kind), register.lanes, strict=True)):
        form = as_form(x)
        rest = dict(form.atoms)
        if rest.pop(key, None) != {1: 1} or not all(is_plane(k) or k in inner for k in rest):
            raise Inexact(f"{acc.name} lane {i} is not itself plus what the step adds")
        grown = Form(form.const, rest, form.lo, form.hi - anything(key, kind).hi)
        out.append((key, tightened(grown, rows) if grown.lo < 0 else grown))
    return out


def flush_effect(isa: Isa, kernel: Kernel, loop: Pass, grown: Growth, new_trace: TraceFactory = Trace) -> list[Form]:
    """What a flush adds to each column of the tile, over accumulator lanes filled as far as they may be."""
    trace = new_trace(isa, LinearDomain(1))
    trace.bind_constants(kernel.constants)
    _bind_filled(trace, loop.loops[-1], grown)
    tile = isa.tile
    count = kernel.tile_registers(isa.table.vector_bits)
    for r in range(count):
        trace.bind(f"c{r}", Register(tile, tuple(anything(("c", r, i), tile) for i in range(tile.lanes))))
    if len(loop.tile) != count:
        raise SpecError(f"a flush must give {count} tile registers, not {len(loop.tile)}")
    try:
        for step in loop.flush_steps:
            trace.run(step)
        return [x for r, name in enumerate(loop.tile) for x in _tile_lanes(trace, name, r, tile, grown)]
    except Inexact as why:
        raise Refuted(f"the flush cannot be shown exact after {loop.flush_every} steps: {why}") from None


def _bind_filled(trace: Trace, loop: Loop, grown: Growth) -> None:
    """The loop's accumulators after any number of runs it may have."""
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = tuple(_filled(key, grown[key], loop.times) for key in _keys(acc, kind))
        trace.bind(acc.name, Register(kind, lanes))


def _keys(acc: Acc, kind: VecType) -> list[Hashable]:
    return [("acc", acc.name, i) for i in range(kind.lanes)]


def _filled(key: Hashable, form: Form, period: int) -> Form:
    return variable(key, min(0, form.lo * period), max(0, form.hi * period))


def _tile_lanes(trace: Trace, name: str, r: int, kind: VecType, grown: Growth) -> list[Form]:
    if name not in trace.registers:
        raise SpecError(f"the tile becomes {name}, which has no value")
    out = []
    for i, x in enumerate(trace.registers[name].viewed_as(trace.domain, kind).lanes):
        rest = dict(as_form(x).atoms)
        if rest.pop(("c", r, i), None) != {1: 1} or not rest.keys() <= grown.keys():
            raise Inexact(f"tile lane {r * kind.lanes + i} is not itself plus sums")
        if (extra := as_form(x).const) != 0:
            raise Inexact(f"tile lane {r * kind.lanes + i} gets {extra} a flush, however many steps it ends")
        out.append(Form(0, rest, 0, 0))
    return out


def _compose(taken: Form, grown: Growth) -> Form:
    """What is taken, with each accumulator lane replaced by what a step adds to it."""
    total = Form(0, {}, 0, 0)
    for key, by in taken.atoms.items():
        if key not in grown:
            raise Refuted("sums are taken from something else than accumulators")
        for coef in by:
            total = add_forms(total, grown[key].scaled(coef))
    return total


def _check_product(kernel: Kernel, tile: list[Form]) -> list[str]:
    """Each column's sum is the product at each position of K, by truth table: the bit lemma."""
    everywhere = (1 << kernel.k_step) - 1
    rows = 1 << (kernel.act_bits + kernel.w_bits)
    for column, form in enumerate(tile):
        if form.const:
            raise Refuted(f"column {column} is off by {form.const} every step")
        value = [0] * rows
        for key, by in form.atoms.items():
            if not is_plane(key):
                raise Refuted(f"column {column} takes in what is no product of codes")
            table, where = key
            if where not in (None, column):
                raise Refuted(f"column {column} takes in column {where}")
            if any(mask != everywhere for mask in by.values()):
                raise Refuted(f"column {column} does not count every position of K alike")
            for row in _set_bits(table):
                value[row] += sum(by)
        _check_rows(kernel, column, value)
    if kernel.row_terms[0] or kernel.column_terms[0]:
        raise Refuted("zero padding would count: the corrections of code 0 are not 0")
    return [
        f"bit: act * bipolar(wgt) == row term + column term + sum on all {rows} rows, in every column and position",
        "padding: code 0 on both sides adds 0",
        "loop: by induction the tile is its terms plus the sums of all steps, whatever the number of steps",
    ]


@lru_cache(maxsize=1024)
def _set_bits(table: int) -> list[int]:
    return [k for k, bit in enumerate(reversed(f"{table:b}")) if bit == "1"]


def _check_rows(kernel: Kernel, column: int, value: list[int]) -> None:
    for row, got in enumerate(value):
        act, wgt = row & ((1 << kernel.act_bits) - 1), row >> kernel.act_bits
        want = act * (2 * wgt - (1 << kernel.w_bits) + 1)
        of_row, of_column = (wgt, act) if kernel.swapped else (act, wgt)
        have = got + kernel.row_terms[of_row] + kernel.column_terms[of_column]
        if have != want:
            raise Refuted(f"column {column}: act code {act} times wgt code {wgt} gives {have}, want {want}")


def _step_lemmas(where: str, kernel: Kernel, loop: Pass, grown: Growth) -> list[str]:
    most = max(form.hi for form in grown.values())
    least = min(form.lo for form in grown.values())
    return [
        f"{where}: a step adds to each of {len(grown)} accumulator lanes a sum of bits in [{least}, {most}]",
        f"{where}: {kernel.k_step} positions of K a step, {len(loop.step.program)} instructions, no lane overflows",
    ]


def _fold_lemma(where: str, loop: Pass, level: int) -> str:
    inner = loop.loops[level - 1]
    lanes = sum(VecType.parse(acc.type).lanes for acc in loop.loops[level].accs)
    return f"{where}: loop {level} adds {inner.times} runs of the loop inside to {lanes} lanes, none overflows"
