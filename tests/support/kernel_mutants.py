"""Single mutations of a kernel, each with a label, in an order that depends on nothing but the kernel.

Every field of a kernel, of its passes, inputs, loops and of its table program is changed in
some way. A label is `kind: what`; a kind of a program's step names the program it is in.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from bitsynth.isa import load
from bitsynth.isa.instr import Instr
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.inputs import Build, Planes, Table
from bitsynth.kernel.program import BIT_AXES, Kernel, Pass
from bitsynth.schedule.flush import with_trip_count
from support.programs import change

Mutants = Iterator[tuple[str, Kernel]]


def mutants(kernel: Kernel) -> list[tuple[str, Kernel]]:
    """Every mutation of every kind, without the kernel itself and without repeats."""
    by_kernel: dict[Kernel, tuple[str, Kernel]] = {}
    for label, mutant in [
        *_of_sizes(kernel),
        *_of_layout(kernel),
        *_of_terms(kernel),
        *_of_constants(kernel),
        *_of_build(kernel),
        *_of_passes(kernel),
        *_of_programs(kernel),
        *of_last_row(kernel),
    ]:
        if mutant != kernel:
            by_kernel.setdefault(mutant, (label, mutant))
    return list(by_kernel.values())


def of_last_row(kernel: Kernel) -> Mutants:
    """Mutants of a last row's own program."""
    if kernel.scalar_pass:
        alone = kernel.alone[-1]
        for label, mutant in (*_of_passes(alone), *_of_programs(alone)):
            if len(mutant.passes) == 1:
                yield label, change(kernel, scalar_pass=mutant.passes[0])


def sample(kernel: Kernel, per_kind: int, seed: int) -> list[tuple[str, Kernel]]:
    """At most `per_kind` mutants of each kind, chosen by `seed`."""
    kinds: dict[str, list[tuple[str, Kernel]]] = {}
    for label, mutant in mutants(kernel):
        kinds.setdefault(label.split(":")[0], []).append((label, mutant))
    rng = random.Random(seed)
    return [m for kind in sorted(kinds) for m in rng.sample(kinds[kind], min(per_kind, len(kinds[kind])))]


def with_pass(kernel: Kernel, index: int, changed: Pass) -> Kernel:
    """The kernel with another pass in the place of one."""
    return change(kernel, passes=_set(kernel.passes, index, changed))


def replaced(kernel: Kernel, index: int, **fields: object) -> Kernel:
    """The kernel with fields of one pass changed."""
    return with_pass(kernel, index, change(kernel.passes[index], **fields))


def _set(items: tuple[Any, ...], at: int, value: object) -> tuple[Any, ...]:
    return (*items[:at], value, *items[at + 1 :])


def _of_sizes(kernel: Kernel) -> Mutants:
    yield "swapped: other", change(kernel, swapped=not kernel.swapped)
    for field in ("act_bits", "w_bits", "rows", "columns", "k_step"):
        value = getattr(kernel, field)
        for other in (value - 1, value + 1, 2 * value, value // 2):
            yield f"{field}: {other}", change(kernel, **{field: other})
    for other in (1, 16, 17):
        yield f"unroll: {other}", change(kernel, unroll=other)
    for other in BIT_AXES:
        yield f"bit_axis: {other}", change(kernel, bit_axis=other)
    for other in (1, 2, 4, 8):
        yield f"slot_bytes: {other}", change(kernel, slot_bytes=other)


def _of_layout(kernel: Kernel) -> Mutants:
    last = len(kernel.slots) - 1
    for i, j in [*((k, k + 1) for k in range(last)), (0, last)]:
        slots = list(kernel.slots)
        slots[i], slots[j] = slots[j], slots[i]
        yield f"slots: {i} and {j}", change(kernel, slots=tuple(slots))
    yield "slots: turned", change(kernel, slots=(*kernel.slots[1:], kernel.slots[0]))
    for field, op in msgspec.structs.asdict(kernel.memory).items():
        if field in ("add_tile", "broadcast_tile") and not kernel.has_row_terms:
            continue  # The kernel's C contains neither.
        for other in _moving(kernel.isa):
            if other != op:
                yield f"memory: {field} = {other}", change(kernel, memory=change(kernel.memory, **{field: other}))


@cache
def _moving(isa_name: str) -> tuple[str, ...]:
    return tuple(i.name for i in load.load(isa_name).instrs.values() if i.reads_memory or i.store)


def _of_terms(kernel: Kernel) -> Mutants:
    for name in ("row_terms", "column_terms"):
        table = getattr(kernel, name)
        for code, value in enumerate(table):
            for by in (1, -1):
                yield f"{name}: code {code} by {by}", change(kernel, **{name: _set(table, code, value + by)})
    for factor in (kernel.cross_terms - 1, kernel.cross_terms + 1, -kernel.cross_terms, 0):
        yield f"cross_terms: {factor}", change(kernel, cross_terms=factor)
    yield "terms: exchanged", change(kernel, row_terms=kernel.column_terms, column_terms=kernel.row_terms)


def _of_constants(kernel: Kernel) -> Mutants:
    for label, constants in _changed_constants(kernel.constants):
        yield f"constant: {label}", change(kernel, constants=constants)


def _changed_constants(constants: tuple[Constant, ...]) -> Iterator[tuple[str, tuple[Constant, ...]]]:
    for i, c in enumerate(constants):
        for lane, value in enumerate(c.lanes):
            for by in (1, -1):
                changed = change(c, lanes=_set(c.lanes, lane, value + by))
                yield f"{c.name}[{lane}] by {by}", _set(constants, i, changed)


def _of_build(kernel: Kernel) -> Mutants:
    build = kernel.build
    if build is None:
        return
    yield "build: none", change(kernel, build=None)
    for label, constants in _changed_constants(build.constants):
        yield f"build constant: {label}", change(kernel, build=change(build, constants=constants))
    codes = max(build.stage)
    for p, code in enumerate(build.stage):
        for other in range(-1, codes + 2):
            if other != code:
                stage = _set(build.stage, p, other)
                yield f"stage: byte {p} = {other}", change(kernel, build=change(build, stage=stage))
    for field in ("load", "store"):
        for op in _moving(kernel.isa):
            yield f"build {field}: {op}", change(kernel, build=change(build, **{field: op}))
    for step in build.steps:
        yield f"build table: {step.dst}", change(kernel, build=change(build, table=step.dst))


def _of_passes(kernel: Kernel) -> Mutants:
    for index, loop in enumerate(kernel.passes):
        yield from _of_inputs(kernel, index)
        yield from _of_loops(kernel, index)
        if len(loop.tile) > 1:
            yield "tile: reversed", replaced(kernel, index, tile=loop.tile[::-1])
            yield "tile: first twice", replaced(kernel, index, tile=(loop.tile[0],) * len(loop.tile))
        yield f"carries: pass {index}", replaced(kernel, index, carries=not loop.carries)
    passes = kernel.passes
    yield "pass: twice", change(kernel, passes=(*passes, passes[-1]))
    if len(passes) > 1:
        yield "pass: reversed", change(kernel, passes=passes[::-1])
        for index in range(len(passes)):
            yield f"pass: without {index}", change(kernel, passes=passes[:index] + passes[index + 1 :])
            rows = replaced(kernel, index, rows=passes[index - 1].rows)
            yield f"pass: rows of another in {index}", rows
            columns = replaced(kernel, index, columns=passes[index - 1].columns)
            yield f"pass: columns of another in {index}", columns


def _of_inputs(kernel: Kernel, index: int) -> Mutants:
    for side, bits in (("rows", kernel.row_bits), ("columns", kernel.column_bits)):
        given = getattr(kernel.passes[index], side)
        for i, x in enumerate(given):
            for what, other in _changed_input(x, bits):
                kind, _, where = what.partition(" ")
                label = f"{side} {kind}: {i} of pass {index} {where}"
                yield label, replaced(kernel, index, **{side: _set(given, i, other)})
        if len(given) > 1:
            yield f"{side} order: pass {index}", replaced(kernel, index, **{side: given[::-1]})
            for i in range(len(given)):
                yield f"{side} alike: {i}", replaced(kernel, index, **{side: _set(given, i, given[i - 1])})
            yield f"{side} fewer: pass {index}", replaced(kernel, index, **{side: given[:-1]})


def _changed_input(x: Planes | Table, bits: int) -> Iterator[tuple[str, Planes | Table]]:
    if isinstance(x, Table):
        for code, value in enumerate(x.values):
            for by in (1, -1):
                yield f"values code {code} by {by}", change(x, values=_set(x.values, code, value + by))
        yield "values reversed", change(x, values=(0, *x.values[:0:-1]))
        numbers: tuple[str, ...] = ("first", "bits")
    else:
        for p, table in enumerate(x.tables):
            for code in range(1 << bits):
                changed = _set(x.tables, p, table ^ 1 << code)
                yield f"tables {p} code {code}", change(x, tables=changed)
        yield "tables reversed", change(x, tables=x.tables[::-1])
        yield "tables fewer", change(x, tables=x.tables[:-1])
        yield "tables twice", change(x, tables=(*x.tables, x.tables[-1]))
        numbers = ("first", "stride", "per_byte")
    for field in numbers:
        value = getattr(x, field)
        for other in {value - 1, value + 1, 2 * value}:
            yield f"{field} = {other}", change(x, **{field: other})


def _of_loops(kernel: Kernel, index: int) -> Mutants:
    loop = kernel.passes[index]
    for level, nested in enumerate(loop.loops):
        for times in (nested.trip_count + 1, 2 * nested.trip_count, max(1, nested.trip_count // 2)):
            yield (
                f"times: {times} of loop {level} in pass {index}",
                with_pass(kernel, index, with_trip_count(loop, level, times)),
            )
        for i, acc in enumerate(nested.accs):
            for name in [acc.name, *(s.dst for s in nested.steps)]:
                accs = _set(nested.accs, i, change(acc, next=name))
                yield f"next: {acc.name} = {name}", _with_loop(kernel, index, level, accs=accs)
            for name in [Value(""), acc.name, *(s.dst for s in nested.first)]:
                accs = _set(nested.accs, i, change(acc, start=name))
                yield f"start: {acc.name} = {name}", _with_loop(kernel, index, level, accs=accs)
            for kind in _kinds(kernel.isa, acc.type):
                accs = _set(nested.accs, i, change(acc, type=kind))
                yield f"type: {acc.name} is {kind}", _with_loop(kernel, index, level, accs=accs)
        if len(nested.accs) > 1:
            yield "accs: reversed", _with_loop(kernel, index, level, accs=nested.accs[::-1])
            yield "accs: without the last", _with_loop(kernel, index, level, accs=nested.accs[:-1])
        if nested.first:
            accs = tuple(change(acc, start="") for acc in nested.accs)
            yield "first: none", _with_loop(kernel, index, level, first=(), accs=accs)
            yield "first: the steady program", _with_loop(kernel, index, level, first=nested.steps)
    if len(loop.loops) > 1:
        for level in range(len(loop.loops)):
            fewer = loop.loops[:level] + loop.loops[level + 1 :]
            yield f"loops: without {level}", replaced(kernel, index, loops=fewer)
    yield "loops: the last twice", replaced(kernel, index, loops=(*loop.loops, loop.loops[-1]))


@cache
def _kinds(isa_name: str, text: str) -> tuple[str, ...]:
    """Other types of a full register."""
    isa = load.load(isa_name)
    bits = isa.table.vector_bits
    return tuple(k for k in isa.table.ctype if k != text and VecType.parse(k).total_bits == bits)


def _with_loop(kernel: Kernel, index: int, level: int, **fields: object) -> Kernel:
    loop = kernel.passes[index]
    return replaced(kernel, index, loops=_set(loop.loops, level, change(loop.loops[level], **fields)))


@dataclass(frozen=True)
class Place:
    """A program of the kernel: the build's, a loop's, a first run's or a flush's."""

    name: str
    index: int = 0
    level: int = 0

    @staticmethod
    def build(kernel: Kernel) -> Build:
        assert kernel.build
        return kernel.build

    def steps(self, kernel: Kernel) -> tuple[Step, ...]:
        if self.name == "build":
            return self.build(kernel).steps
        loop = kernel.passes[self.index]
        if self.name == "flush":
            return loop.flush
        return loop.loops[self.level].first if self.name == "first" else loop.loops[self.level].steps

    def inputs(self, kernel: Kernel) -> list[Value]:
        """What its steps may read but their own values."""
        if self.name == "build":
            return [Value("x0"), *(c.name for c in self.build(kernel).constants)]
        loop, constants = kernel.passes[self.index], [c.name for c in kernel.constants]
        inside = loop.loops[self.level - 1] if self.name != "flush" else loop.loops[-1]
        accs = [acc.name for acc in inside.accs]
        if self.name == "flush":
            return [*constants, *accs, *(Value(f"c{r}") for r in range(len(loop.tile)))]
        own = [] if self.name == "first" else [acc.name for acc in loop.loops[self.level].accs]
        if self.level:
            return [*constants, *accs, *own]
        registers = kernel.columns * kernel.slot_bytes * 8 // load.load(kernel.isa).table.vector_bits
        columns = [Value(f"w{g}_{i}") for i in range(len(loop.columns)) for g in range(registers)]
        return [*constants, *own, *(Value(f"a{i}") for i in range(len(loop.rows))), *columns]

    def replaced(self, kernel: Kernel, steps: tuple[Step, ...], renamed: dict[Value, Value]) -> Kernel:
        """The kernel with other steps there, and what it gives under other names."""

        def name(old: Value) -> Value:
            return renamed.get(old, old)

        if self.name == "build":
            build = self.build(kernel)
            build = change(build, steps=steps, table=name(build.table))
            return change(kernel, build=build)
        loop = kernel.passes[self.index]
        if self.name == "flush":
            return replaced(kernel, self.index, flush=steps, tile=tuple(map(name, loop.tile)) if renamed else loop.tile)
        nested = loop.loops[self.level]
        if self.name == "first":
            accs = tuple(change(acc, start=name(acc.start)) for acc in nested.accs) if renamed else nested.accs
            return _with_loop(kernel, self.index, self.level, first=steps, accs=accs)
        accs = tuple(change(acc, next=name(acc.next)) for acc in nested.accs) if renamed else nested.accs
        return _with_loop(kernel, self.index, self.level, steps=steps, accs=accs)


def places(kernel: Kernel) -> list[Place]:
    """Every program of the kernel."""
    out = [Place("build")] if kernel.build else []
    for index, loop in enumerate(kernel.passes):
        out += [Place("first", index)] if loop.step.first else []
        out += [Place("step" if level == 0 else "widening", index, level) for level in range(len(loop.loops))]
        out.append(Place("flush", index))
    return out


def _of_programs(kernel: Kernel) -> Mutants:
    for place in places(kernel):
        steps = place.steps(kernel)
        for at, step in enumerate(steps):
            for kind, changed in _changed_steps(kernel, place, at, step):
                mutant = place.replaced(kernel, _set(steps, at, changed), {})
                yield f"{kind} in {place.name}: {changed} for {step}", mutant
            rest = steps[:at] + steps[at + 1 :]
            yield f"drop in {place.name}: {step}", place.replaced(kernel, rest, {})
            yield f"bypass in {place.name}: {step}", _bypassed(kernel, place, at, step)


def _changed_steps(kernel: Kernel, place: Place, at: int, step: Step) -> Iterator[tuple[str, Step]]:
    for op in _alike(kernel.isa, step.op):
        yield "form", change(step, op=op)
    live = place.inputs(kernel) + [earlier.dst for earlier in place.steps(kernel)[:at]]
    for i in range(len(step.args)):
        for j in range(i):
            yield "swap", change(step, args=_set(_set(step.args, i, step.args[j]), j, step.args[i]))
        for name in live:
            yield "operand", change(step, args=_set(step.args, i, name))
    if load.load(kernel.isa)[step.op].imm:
        for imm in load.load(kernel.isa)[step.op].imms:
            yield "immediate", change(step, imm=imm)


@cache
def _alike(isa_name: str, op: str) -> tuple[str, ...]:
    """Other forms on registers with as many operands, of the same sizes."""
    isa = load.load(isa_name)
    mine = isa[op]

    def sizes(instr: Instr) -> tuple[list[int], int, bool]:
        return [o.type.total_bits for o in instr.operands], instr.out.total_bits, bool(instr.imm)

    plain = [i for i in isa.instrs.values() if not i.store and not i.reads_memory]
    return tuple(sorted(i.name for i in plain if i.name != op and sizes(i) == sizes(mine)))


def _bypassed(kernel: Kernel, place: Place, at: int, step: Step) -> Kernel:
    """The step left out, and its first operand used in its place."""
    renamed = {step.dst: step.args[0]}
    rest = (s for k, s in enumerate(place.steps(kernel)) if k != at)
    steps = tuple(change(s, args=tuple(renamed.get(a, a) for a in s.args)) for s in rest)
    return place.replaced(kernel, steps, renamed)
