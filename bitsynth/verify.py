"""The independent checker: does a microkernel compute the product, for every input?

It runs the kernel's programs in the linear domain and composes them end to end: planes,
gates, counts, the loop over K with its flush period, the int32 tile. It imports neither
the synthesizer nor Z3; what it takes on trust is one lemma for each instruction use it
lists, which `prove` discharges with Z3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.check import require_tested
from bitsynth.isa.domains.forms import Field, Form, Inexact, Payload, add_forms, as_form, tightened, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa, load
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.program import WORD_BYTES, Acc, Kernel, Pass
from bitsynth.wellformed import MAX_FLUSH, check_shape, check_used, constant_load

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
    tile: list[Form] = [Form(0, {}, 0, 0)] * kernel.columns
    for index, loop in enumerate(kernel.passes):
        where = f"pass {index}"
        grown = step_growth(isa, kernel, loop, new_trace)
        lemmas += _step_lemmas(where, kernel, loop, grown)
        taken = flush_effect(isa, kernel, loop, grown, new_trace)
        lemmas.append(f"{where}: a flush every {loop.flush_every} steps moves every lane to its column, none overflows")
        tile = [add_forms(have, _compose(form, grown)) for have, form in zip(tile, taken, strict=True)]
    lemmas += _check_product(kernel, tile)
    check_used(isa, kernel)
    return Checked(tuple(lemmas))


def forms_used(isa: Isa, kernel: Kernel) -> set[str]:
    """Every instruction form the kernel's C text will contain."""
    memory = kernel.memory
    moving = {memory.load, memory.broadcast, memory.load_tile, memory.store_tile}
    row_terms = {memory.add_tile, memory.broadcast_tile} if kernel.has_row_terms else set()
    programs = {s.op for p in kernel.passes for s in (*p.step_program, *p.flush_program)}
    constants = {constant_load(isa, VecType.parse(c.type)).name for c in kernel.constants}
    return moving | row_terms | programs | constants


def _check_memory(isa: Isa, kernel: Kernel) -> str:
    """The data-moving instructions put bytes, words and int32 lanes where the layout says."""
    tile = isa.tile
    m = kernel.memory
    _check_load(isa[m.load], isa.word, list(range(isa.word.lanes)))
    _check_load(isa[m.broadcast], isa.word, [k % WORD_BYTES for k in range(isa.word.lanes)])
    _check_load(isa[m.load_tile], tile, list(range(tile.lanes)))
    _check_load(isa[m.broadcast_tile], tile, [0] * tile.lanes)
    x = [variable(("x", k), 0, 0) for k in range(tile.lanes)]
    y = [variable(("y", k), 0, 0) for k in range(tile.lanes)]
    if not isa[m.store_tile].store or _moved(isa[m.store_tile], tile, [x]) != x:
        raise Refuted(f"{m.store_tile} does not store int32 lanes in order")
    add = isa[m.add_tile]
    if add.store or _moved(add, tile, [x, y]) != [add_forms(a, b) for a, b in zip(x, y, strict=True)]:
        raise Refuted(f"{m.add_tile} does not add int32 lanes")
    return "memory: planes, words and tiles are moved lane by lane; the tile starts at g[n] + h[m]"


def _check_load(instr: Instr, kind: VecType, source: list[int]) -> None:
    """It reads as many lanes as the layout has there, and puts them where `source` says."""
    memory = [variable(k, 0, (1 << kind.bits) - 1) for k in range(max(source) + 1)]
    if not instr.reads_memory or instr.store or _moved(instr, kind, [memory]) != [memory[k] for k in source]:
        raise Refuted(f"{instr.name} does not load lanes {source[:8]}...")


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


def expand_act(kernel: Kernel, table: int) -> int:
    """A function of the act code as a table over rows act + (wgt << act_bits)."""
    width = 1 << kernel.act_bits
    return sum(table << (w * width) for w in range(1 << kernel.w_bits))


def expand_wgt(kernel: Kernel, table: int) -> int:
    """A function of the wgt code as a table over rows act + (wgt << act_bits)."""
    width = 1 << kernel.act_bits
    return sum(((1 << width) - 1) << (w * width) for w in range(1 << kernel.w_bits) if table >> w & 1)


def _bind_inputs(trace: Trace, kernel: Kernel, loop: Pass) -> None:
    """Constants and planes: byte b of a register is `bits_per_byte` positions of one column."""
    word, bits = trace.isa.word, kernel.bits_per_byte
    mask = (1 << bits) - 1
    trace.bind_constants(kernel.constants)
    for i, table in enumerate(loop.act_planes):
        tt = expand_act(kernel, table)
        lanes = [Field(tt, None, b % WORD_BYTES * bits, mask) for b in range(word.lanes)]
        trace.bind(f"a{i}", Register(word, tuple(lanes)))
    slots_each = word.lanes // WORD_BYTES
    for i, table in enumerate(loop.wgt_planes):
        tt = expand_wgt(kernel, table)
        for g in range(len(kernel.slots) // slots_each):
            columns = kernel.slots[g * slots_each : (g + 1) * slots_each]
            lanes = [Field(tt, columns[b // WORD_BYTES], b % WORD_BYTES * bits, mask) for b in range(word.lanes)]
            trace.bind(f"w{g}_{i}", Register(word, tuple(lanes)))


Growth = Mapping[Hashable, Form]


def anything(key: Hashable, kind: VecType) -> Form:
    """A lane of which nothing is known: any value of its width."""
    return variable(key, 0, (1 << kind.bits) - 1)


def step_growth(isa: Isa, kernel: Kernel, loop: Pass, new_trace: TraceFactory = Trace) -> dict[Hashable, Form]:
    """What one step adds to each accumulator lane, keyed ("acc", name, lane)."""
    trace = new_trace(isa, LinearDomain(1 << (kernel.act_bits + kernel.w_bits)))
    _bind_inputs(trace, kernel, loop)
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = tuple(anything(("acc", acc.name, i), kind) for i in range(kind.lanes))
        trace.bind(acc.name, Register(kind, lanes))
    try:
        for step in loop.step_program:
            trace.run(step)
        return {
            key: form
            for acc in loop.accs
            for key, form in _growth_of(trace, acc, 1 << (kernel.act_bits + kernel.w_bits))
        }
    except Inexact as why:
        raise Refuted(f"the step cannot be shown exact: {why}") from None


def _growth_of(trace: Trace, acc: Acc, rows: int) -> list[tuple[Hashable, Form]]:
    kind = VecType.parse(acc.type)
    if acc.next not in trace.registers:
        raise SpecError(f"accumulator {acc.name} becomes {acc.next}, which has no value")
    register = trace.registers[acc.next].viewed_as(trace.domain, kind)
    out: list[tuple[Hashable, Form]] = []
    for i, x in enumerate(register.lanes):
        key = ("acc", acc.name, i)
        rest = dict(as_form(x).atoms)
        if rest.pop(key, None) != {1: 1} or any(isinstance(k, tuple) and k[0] == "acc" for k in rest):
            raise Inexact(f"{acc.name} lane {i} is not itself plus what the step adds")
        form = as_form(x)
        grown = Form(form.const, rest, form.lo, form.hi - anything(key, kind).hi)
        out.append((key, tightened(grown, rows) if grown.lo < 0 else grown))
    return out


def flush_effect(isa: Isa, kernel: Kernel, loop: Pass, grown: Growth, new_trace: TraceFactory = Trace) -> list[Form]:
    """What a flush adds to each column of the tile, over accumulator lanes filled for a whole period."""
    trace = new_trace(isa, LinearDomain(1))
    trace.bind_constants(kernel.constants)
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = tuple(_filled(key, grown[key], loop.flush_every) for key in _keys(acc, kind))
        trace.bind(acc.name, Register(kind, lanes))
    tile = isa.tile
    count = kernel.columns // tile.lanes
    for r in range(count):
        trace.bind(f"c{r}", Register(tile, tuple(anything(("c", r, i), tile) for i in range(tile.lanes))))
    if len(loop.tile) != count:
        raise SpecError(f"a flush must give {count} tile registers, not {len(loop.tile)}")
    try:
        for step in loop.flush_program:
            trace.run(step)
        return [x for r, name in enumerate(loop.tile) for x in _tile_lanes(trace, name, r, tile)]
    except Inexact as why:
        raise Refuted(f"the flush cannot be shown exact after {loop.flush_every} steps: {why}") from None


def _keys(acc: Acc, kind: VecType) -> list[Hashable]:
    return [("acc", acc.name, i) for i in range(kind.lanes)]


def _filled(key: Hashable, form: Form, period: int) -> Form:
    return variable(key, min(0, form.lo * period), max(0, form.hi * period))


def _tile_lanes(trace: Trace, name: str, r: int, kind: VecType) -> list[Form]:
    if name not in trace.registers:
        raise SpecError(f"the tile becomes {name}, which has no value")
    out = []
    for i, x in enumerate(trace.registers[name].viewed_as(trace.domain, kind).lanes):
        rest = dict(as_form(x).atoms)
        if rest.pop(("c", r, i), None) != {1: 1} or any(isinstance(k, tuple) and k[0] == "c" for k in rest):
            raise Inexact(f"tile lane {r * kind.lanes + i} is not itself plus sums")
        if (extra := as_form(x).const) != 0:
            raise Inexact(f"tile lane {r * kind.lanes + i} gets {extra} a flush, however many steps it ends")
        out.append(Form(0, rest, 0, 0))
    return out


def _compose(taken: Form, grown: Growth) -> Form:
    """The flush's effect with each accumulator lane replaced by what a step adds to it."""
    total = Form(0, {}, 0, 0)
    for key, by in taken.atoms.items():
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
            table, where = cast("tuple[int, int | None]", key)
            if where not in (None, column):
                raise Refuted(f"column {column} takes in column {where}")
            if list(by.values()) != [everywhere]:
                raise Refuted(f"column {column} does not count every position of K alike")
            for row in _set_bits(table):
                value[row] += next(iter(by))
        _check_rows(kernel, column, value)
    if kernel.g_table[0] or kernel.h_table[0]:
        raise Refuted("zero padding would count: the corrections of code 0 are not 0")
    return [
        f"bit: act * bipolar(wgt) == g(wgt) + h(act) - counts on all {rows} rows, in every column and position",
        "padding: code 0 on both sides adds 0",
        "loop: by induction the tile is g[n] + h[m] minus the counts of all steps, whatever the number of steps",
    ]


def _set_bits(table: int) -> list[int]:
    return [k for k, bit in enumerate(reversed(f"{table:b}")) if bit == "1"]


def _check_rows(kernel: Kernel, column: int, value: list[int]) -> None:
    for row, got in enumerate(value):
        act, wgt = row & ((1 << kernel.act_bits) - 1), row >> kernel.act_bits
        want = act * (2 * wgt - (1 << kernel.w_bits) + 1)
        have = got + kernel.g_table[wgt] + kernel.h_table[act]
        if have != want:
            raise Refuted(f"column {column}: act code {act} times wgt code {wgt} gives {have}, want {want}")


def _step_lemmas(where: str, kernel: Kernel, loop: Pass, grown: Growth) -> list[str]:
    most = max(form.hi for form in grown.values())
    least = min(form.lo for form in grown.values())
    return [
        f"{where}: a step adds to each of {len(grown)} accumulator lanes a sum of bits in [{least}, {most}]",
        f"{where}: {kernel.k_step} positions of K a step, {len(loop.step)} instructions, no lane overflows",
    ]


def longest_period(isa: Isa, kernel: Kernel, loop: Pass) -> int:
    """The longest flush period the proof allows, by bisection."""
    grown = step_growth(isa, kernel, loop)

    def holds(period: int) -> bool:
        try:
            flush_effect(isa, kernel, msgspec.structs.replace(loop, flush_every=period), grown)
        except Refuted:
            return False
        return True

    low, high = 1, MAX_FLUSH + 1
    if not holds(low):
        raise Refuted("a flush after every single step already overflows")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
