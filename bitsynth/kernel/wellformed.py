"""The conditions under which a kernel's programs have a meaning: sizes, names, types.

C is written from kernels that passed these checks, so they also keep foreign text out of
it: every name follows one pattern, is defined once, and clashes with nothing the templates
declare; every instruction works on registers; every constant fits the array it is kept in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import STAGE_BYTES, Build, Input, Planes, Table
from bitsynth.kernel.matrices import check_matrices
from bitsynth.kernel.program import ORDERS, Acc, Kernel, Loop, Pass
from bitsynth.kernel.straight_line import check_constants, check_names, check_program, find_unused, register_type

MAX_TRIP_COUNT = 1 << 24
MAX_ROWS = 24
MAX_MATRIX_ROWS = 32
"""The most rows of a kernel: of any other kernel, and of a kernel whose steps run on matrix registers."""
MAX_COLUMNS = 256
MAX_STEP = 1 << 12
MAX_LOOPS = 3
MAX_UNROLL = 16
_INT32 = range(-(1 << 31), 1 << 31)


def check_shape(isa: Isa, kernel: Kernel) -> None:
    """Raise SpecError that names the conditions that fail; run no program."""
    _require(_sizes(isa, kernel))
    _require(_tables(isa, kernel))
    check_constants(isa, kernel.constants)
    if kernel.build:
        _check_build(isa, kernel, kernel.build)
    for number, loop in enumerate(kernel.passes):
        try:
            _check_pass(isa, kernel, loop, general=loop == kernel.scalar_pass and kernel.rows == 1)
        except SpecError as why:
            raise SpecError(f"malformed kernel: pass {number}: {why}") from None
    _require(_chains(kernel))
    if kernel.in_matrices:
        check_matrices(isa, kernel)
    if kernel.scalar_pass:
        _require(_scalar_pass_rules(kernel, kernel.scalar_pass))
        try:
            _check_pass(isa, kernel, kernel.scalar_pass, general=True)
        except SpecError as why:
            raise SpecError(f"malformed kernel: last row: {why}") from None


def check_used(isa: Isa, kernel: Kernel) -> None:
    """Raise SpecError if a value is never used: C compilers warn of it, and no kernel needs it."""
    # Constants, and the program that makes tables.
    read = {a for p in kernel.every_pass for program in p.programs for s in program for a in s.args}
    unused: list[str] = [c.name for c in kernel.constants if c.name not in read]
    if kernel.build:
        given = [Value.of(Role.STAGED, 0), *(c.name for c in kernel.build.constants)]
        unused += [f"{name} of the table" for name in find_unused(given, kernel.build.steps, [kernel.build.table])]
    # Each loop of each pass, and its flush.
    for number, loop in enumerate(kernel.every_pass):
        inputs = _inputs(isa, kernel, loop)
        for level, nested in enumerate(loop.loops):
            left = find_unused(inputs, nested.steps, (acc.next for acc in nested.accs))
            unused += [f"{name} of loop {level} of pass {number}" for name in left]
            if nested.first:
                left = find_unused(inputs, nested.first, (acc.start for acc in nested.accs))
                unused += [f"{name} of the first run of pass {number}" for name in left]
            inputs = [acc.name for acc in nested.accs]
        unused += [f"{name} of flush {number}" for name in find_unused(inputs, loop.flush, loop.tile)]
    if unused:
        raise SpecError(f"malformed kernel: never used: {', '.join(unused[:8])}")


Conditions = dict[str, bool]


def _require(facts: Iterator[Conditions]) -> None:
    """Raise SpecError for the first fact that does not hold.

    A later group is looked at only if the earlier ones hold.
    """
    for group in facts:
        if wrong := [fact for fact, holds in group.items() if not holds]:
            raise SpecError(f"malformed kernel: it lacks {', '.join(wrong)}")


def _sizes(isa: Isa, kernel: Kernel) -> Iterator[Conditions]:
    slots, most_rows = len(kernel.slots), MAX_MATRIX_ROWS if kernel.in_matrices else MAX_ROWS
    yield {
        "1 to 8 bits on both sides": 1 <= kernel.act_bits <= 8 and 1 <= kernel.w_bits <= 8,
        f"1 to {most_rows} rows": 1 <= kernel.rows <= most_rows,
        "whole groups of 1 or 2 rows": kernel.together in (1, 2) and kernel.rows % kernel.together == 0,
        f"1 to {MAX_COLUMNS} columns": 1 <= kernel.columns <= MAX_COLUMNS,
        f"1 to {MAX_STEP} positions of K a step": 1 <= kernel.k_step <= MAX_STEP,
        "1, 2, 4, 8 or 16 bytes a column": kernel.slot_bytes in (1, 2, 4, 8, 16),
        "codes of 1 byte, or of 2 if a column has at least 2": kernel.code_bytes in (1, min(2, kernel.slot_bytes)),
        f"an innermost loop unrolled at most {MAX_UNROLL} times": 0 <= kernel.unroll <= MAX_UNROLL,
        "at least one pass": bool(kernel.passes),
        f"1 to {MAX_LOOPS} loops a pass": all(1 <= len(p.loops) <= MAX_LOOPS for p in kernel.passes),
        "1 to 64 inputs a side": all(1 <= len(side) <= 64 for p in kernel.passes for side in (p.rows, p.columns)),
    }
    loops = [loop for p in kernel.passes for loop in p.loops]
    yield {
        "accumulators": all(loop.accs for loop in loops),
        "a bound on every loop": all(1 <= loop.trip_count <= MAX_TRIP_COUNT for loop in loops),
        "a bound on steps between flushes": all(p.flush_every <= MAX_TRIP_COUNT for p in kernel.passes),
        "whole tile registers": kernel.columns * 32 % isa.table.vector_bits == 0,
        "whole column registers": slots > 0 and slots * kernel.slot_bytes * 8 % isa.table.vector_bits == 0,
        "one slot a column": sorted(kernel.slots) == list(range(kernel.columns)),
        "cross terms of whole pairs of positions, of single rows": not kernel.cross_terms
        or (kernel.k_step % 2 == 0 and kernel.together == 1),
        "cross terms of 32 bits": kernel.cross_terms in _INT32,
        "a bit axis that has its place": kernel.bit_axis in kernel.bit_axes,
        "an order of its steps": kernel.order in (*ORDERS, *isa.table.in_order),
    }


def _tables(isa: Isa, kernel: Kernel) -> Iterator[Conditions]:
    sides = [(kernel.row_bits, p.rows) for p in kernel.passes], [(kernel.column_bits, p.columns) for p in kernel.passes]
    inputs = [(bits, x) for side in sides for bits, given in side for x in given]
    planes = [(1 << bits, x) for bits, x in inputs if isinstance(x, Planes)]
    tables = [(1 << bits, x) for bits, x in inputs if isinstance(x, Table)]
    k_max, bits = kernel.core.k_max, 8 * kernel.code_bytes
    of_rows, of_columns = ([x for _, given in side for x in given if isinstance(x, Planes)] for side in sides)
    yield {
        "one term a code": (len(kernel.row_terms), len(kernel.column_terms))
        == (1 << kernel.row_bits, 1 << kernel.column_bits),
        "terms of 32 bits": all(x in _INT32 for x in (*kernel.row_terms, *kernel.column_terms)),
        "row terms whose sums fit 32 bits at any K": all(k_max * x in _INT32 for x in kernel.row_terms),
        "planes that are 0 on the code that pads": all(
            0 < t < 1 << n and x.zero < (n if x.signed else 1) for n, x in planes for t in x.tables
        ),
        "1 to 64 planes a side": all(1 <= planes_of(side) <= 64 for p in kernel.passes for side in (p.rows, p.columns)),
        "values that are 0 for code 0": all(len(x.values) == n and x.values[0] == 0 for n, x in tables),
        "values of a byte": all(0 <= v < 256 for _, x in tables for v in x.values),
        "tables for all rows or for none": len(tables) in (0, sum(len(p.rows) for p in kernel.passes)),
        "a way to build its tables": (kernel.build is not None) == bool(tables),
        "rows' inputs of one size": len({x.slots for x in of_rows}) <= 1,
        "columns' inputs of one slot": all(x.slots == 1 for x in of_columns),
        "rows' inputs that fill no more than a register": all(
            x.slots >= 1 and kernel.input_bytes(x) <= isa.word.lanes for x in of_rows
        ),
        "tables of one size": len({x.bits for _, x in tables}) <= 1,
    }
    yield {
        "bytes that hold their bits": all(x.per_byte >= 1 and x.per_byte * len(x.tables) <= bits for _, x in planes),
        "signed bytes that are whole": all(not x.signed or (x.per_byte, len(x.tables)) == (1, bits) for _, x in planes),
        "bytes of their own for entries of tables": not tables or kernel.code_bytes == 1,
        "positions inside the step": all(_inside(kernel, x) for _, x in inputs),
        "a value in every table": all(any(x.values) for _, x in tables),
        "tables that fill no more than a register": all(x.entries <= isa.word.lanes for _, x in tables),
        "tables, if rows share a program": kernel.together == 1 or bool(tables),
        "sums that fit a row's share of an entry": kernel.together == 1
        or all(x.bits * max(x.values) < 1 << isa.word.bits // kernel.together for _, x in tables),
    }


def _chains(kernel: Kernel) -> Iterator[Conditions]:
    """Yield the conditions of chains: passes that hand their accumulators to the next pass."""
    yield {"a last pass that flushes to the tile": not kernel.passes[-1].carries}
    chains = [chain for chain in kernel.chains if len(chain) > 1]
    outermost = [[[(acc.name, acc.type) for acc in p.loops[-1].accs] for p in chain] for chain in chains]
    yield {
        "loops inside those whose sums are carried": all(len(p.loops) > 1 for chain in chains for p in chain),
        "the same accumulators in passes that carry": all(x == accs[0] for accs in outermost for x in accs),
    }


def _scalar_pass_rules(kernel: Kernel, own: Pass) -> Iterator[Conditions]:
    """Yield the conditions of a scalar pass: it has the inputs and the trip counts of the other rows' pass."""
    others = kernel.passes[0]
    yield {
        "one pass of one loop, if the last row has a scalar pass": len(kernel.passes) == 1
        and len(others.loops) == len(own.loops) == 1,
    }
    trip_counts = [(p.step.trip_count, bool(p.step.first)) for p in (others, own)]
    yield {
        "rows computed one by one, if the last row has a scalar pass": kernel.together == 1,
        "a scalar pass with the inputs of the other rows": (own.rows, own.columns) == (others.rows, others.columns),
        "a scalar pass with the trip counts of the other rows": trip_counts[0] == trip_counts[1] and not own.carries,
    }


def planes_of(inputs: Iterable[Input]) -> int:
    """Return the number of truth tables of a side, of equal inputs once; a table of values counts as one."""
    inputs = list(inputs)
    planes = dict.fromkeys(x.tables for x in inputs if isinstance(x, Planes))
    return sum(map(len, planes)) + sum(isinstance(x, Table) for x in inputs)


def _inside(kernel: Kernel, x: Input) -> bool:
    if isinstance(x, Table):
        return x.first >= 0 and 1 <= x.bits <= STAGE_BYTES - 1 and x.first + x.bits <= kernel.k_step
    last = x.first + (kernel.input_bytes(x) // kernel.code_bytes - 1) * x.stride + (x.per_byte - 1) * x.apart + 1
    return x.first >= 0 and 0 <= x.stride <= kernel.k_step and 1 <= x.apart <= kernel.k_step and last <= kernel.k_step


def _inputs(isa: Isa, kernel: Kernel, loop: Pass) -> list[Value]:
    """Return the names of a step's inputs: a0, a1 .. of rows, w{register}_{input} of columns."""
    registers = kernel.column_registers(isa.table.vector_bits)
    rows = [Value.of(Role.ROW, i) for i in range(len(loop.rows))]
    return rows + [Value.of(Role.COLUMN, i, register=g) for i in range(len(loop.columns)) for g in range(registers)]


def _check_build(isa: Isa, kernel: Kernel, build: Build) -> None:
    bits = min(x.bits for p in kernel.passes for x in p.rows if isinstance(x, Table))
    if not 1 <= build.tables <= min(STAGE_BYTES // bits, isa.word.lanes >> bits):
        raise SpecError(f"malformed kernel: {build.tables} tables of {bits} codes do not fit a stage and a register")
    if len(build.stage) != STAGE_BYTES or not all(-1 <= n < STAGE_BYTES for n in build.stage):
        raise SpecError(f"malformed kernel: the stage of a table must name {STAGE_BYTES} codes below {STAGE_BYTES}")
    check_constants(isa, build.constants)
    check_program(isa, build.steps, {Value.of(Role.STAGED, 0), *(c.name for c in build.constants)})
    if build.table not in {s.dst for s in build.steps}:
        raise SpecError(f"malformed kernel: the table is {build.table[:40]!r}, which no step defines")


def _check_pass(isa: Isa, kernel: Kernel, loop: Pass, *, general: bool = False) -> None:
    """Raise SpecError for a malformed pass, such as one with scalar instructions that is not `general`."""
    forms = [isa[s.op] for program in loop.programs for s in program]
    of_words = [i.name for i in forms if any(t.in_general for t in (i.out, *(o.type for o in i.operands)))]
    if of_words and not general:
        raise SpecError(f"{of_words[0]} is on general-purpose registers, which are for a last row's own program")
    check_names("accumulator", "acc", (acc.name for nested in loop.loops for acc in nested.accs))
    constants = [c.name for c in kernel.constants]
    inputs = _inputs(isa, kernel, loop)
    for level, nested in enumerate(loop.loops):
        _check_loop(isa, nested, level, {*constants, *inputs}, _words(loop.loops[level - 1].accs) if level else ())
        inputs = [acc.name for acc in nested.accs]
    tile = [Value.of(Role.TILE, r) for r in range(kernel.tile_registers(isa.table.vector_bits) * kernel.together)]
    flush, tile_before = loop.flush, [] if loop.carries else tile
    words = check_program(isa, flush, {*constants, *inputs, *tile_before}, _words(loop.loops[-1].accs))
    count, what = (len(inputs), "accumulators") if loop.carries else (len(tile), "tile registers")
    if len(loop.tile) != count:
        raise SpecError(f"a flush must give {count} {what}, not {len(loop.tile)}")
    if unknown := set(loop.tile) - {s.dst for s in flush} - set(tile_before):
        raise SpecError(f"a flush gives {min(unknown)[:40]!r}, which no step of it defines")
    if in_words := sorted(words.intersection(loop.tile)):
        raise SpecError(f"a flush gives {in_words[0]}, which is in a general-purpose register")


def _words(accs: Iterable[Acc]) -> list[str]:
    """Return the accumulators that are in general-purpose registers."""
    return [acc.name for acc in accs if VecType.parse(acc.type).in_general]


def _check_loop(isa: Isa, loop: Loop, level: int, outer: set[str], given: Iterable[str]) -> None:
    for acc in loop.accs:
        register_type(isa, acc.type, general=level == 0)
    own = _words(loop.accs)
    words = check_program(isa, loop.steps, outer | {acc.name for acc in loop.accs}, [*given, *own])
    for acc in loop.accs:
        if (acc.next in words) != (acc.name in own):
            raise SpecError(f"accumulator {acc.name} becomes {acc.next[:40]!r}, which is in a register of another kind")
        if acc.next not in {s.dst for s in loop.steps}:
            raise SpecError(f"accumulator {acc.name} becomes {acc.next[:40]!r}, which no step of loop {level} defines")
    _check_first(isa, loop, level, outer)


def _check_first(isa: Isa, loop: Loop, level: int, outer: set[str]) -> None:
    if loop.first and level:
        raise SpecError("only the innermost loop may have a first run of its own")
    words = check_program(isa, loop.first, outer)
    if loop.first and any((acc.start in words) != (acc.name in _words([acc])) for acc in loop.accs):
        raise SpecError("an accumulator starts as what is in a register of another kind")
    for acc in loop.accs:
        if bool(acc.start) != bool(loop.first) or (acc.start and acc.start not in {s.dst for s in loop.first}):
            raise SpecError(
                f"accumulator {acc.name} starts as {acc.start[:40]!r}, which no step of the first run defines"
            )
