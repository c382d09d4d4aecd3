"""Single mutations of a kernel, each with a label, in an order that depends on nothing but the kernel."""

import random
from collections.abc import Iterator
from functools import cache

import msgspec

from bitsynth.isa import load
from bitsynth.program import Kernel, Pass, Step

PASS_PROGRAMS = ("step", "flush")


def mutants(kernel: Kernel) -> list[tuple[str, Kernel]]:
    """Every mutation of every kind, without the kernel itself and without repeats."""
    found = {}
    for label, mutant in [*_of_tables(kernel), *_of_layout(kernel), *_of_passes(kernel)]:
        if mutant != kernel:
            found.setdefault(msgspec.json.encode(mutant), (label, mutant))
    return list(found.values())


def sample(kernel: Kernel, per_kind: int, seed: int) -> list[tuple[str, Kernel]]:
    """At most `per_kind` mutants of each kind, chosen by `seed`."""
    kinds = {}
    for label, mutant in mutants(kernel):
        kinds.setdefault(label.split(":")[0], []).append((label, mutant))
    rng = random.Random(seed)
    return [m for kind in sorted(kinds) for m in rng.sample(kinds[kind], min(per_kind, len(kinds[kind])))]


def replaced(kernel: Kernel, index: int, **fields: object) -> Kernel:
    """The kernel with fields of one pass changed."""
    passes = list(kernel.passes)
    passes[index] = msgspec.structs.replace(passes[index], **fields)
    return msgspec.structs.replace(kernel, passes=tuple(passes))


def _set(items: tuple, at: int, value: object) -> tuple:
    return (*items[:at], value, *items[at + 1 :])


def _of_tables(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    change = msgspec.structs.replace
    for name in ("g_table", "h_table"):
        table = getattr(kernel, name)
        for code, value in enumerate(table):
            for by in (1, -1):
                yield f"{name}: code {code} by {by}", change(kernel, **{name: _set(table, code, value + by)})
    for i, c in enumerate(kernel.constants):
        for lane, value in enumerate(c.lanes):
            for by in (1, -1):
                lanes = _set(c.lanes, lane, value + by)
                constants = _set(kernel.constants, i, change(c, lanes=lanes))
                yield f"constant: {c.name}[{lane}] by {by}", change(kernel, constants=constants)


def _of_layout(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    change = msgspec.structs.replace
    for i in range(len(kernel.slots)):
        for j in range(i):
            slots = list(kernel.slots)
            slots[i], slots[j] = slots[j], slots[i]
            yield f"slots: {j} and {i}", change(kernel, slots=tuple(slots))
    yield "bits_per_byte: other", change(kernel, bits_per_byte=12 - kernel.bits_per_byte)
    names = msgspec.structs.asdict(kernel.memory)
    for field, op in names.items():
        if field in ("add_tile", "broadcast_tile") and not kernel.has_row_terms:
            continue  # The kernel's C contains neither.
        for other in sorted({*names.values()} - {op}):
            memory = change(kernel.memory, **{field: other})
            yield f"memory: {field} = {other}", change(kernel, memory=memory)


def _of_passes(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    for index, loop in enumerate(kernel.passes):
        for period in (loop.flush_every + 1, 2 * loop.flush_every):
            yield f"flush: every {period} in pass {index}", replaced(kernel, index, flush_every=period)
        yield from _of_planes(kernel, index, loop)
        yield from _of_accumulators(kernel, index, loop)
        for field in PASS_PROGRAMS:
            for at in range(len(getattr(loop, field))):
                yield from _of_step(kernel, index, field, at)
    if len(kernel.passes) > 1:
        for index in range(len(kernel.passes)):
            rest = kernel.passes[:index] + kernel.passes[index + 1 :]
            yield f"pass: without {index}", msgspec.structs.replace(kernel, passes=rest)


def _of_planes(kernel: Kernel, index: int, loop: Pass) -> Iterator[tuple[str, Kernel]]:
    for field, bits in (("act_planes", kernel.act_bits), ("wgt_planes", kernel.w_bits)):
        planes = getattr(loop, field)
        for p, table in enumerate(planes):
            for code in range(1 << bits):
                changed = _set(planes, p, table ^ 1 << code)
                yield f"plane: {field}[{p}] code {code}", replaced(kernel, index, **{field: changed})


def _of_accumulators(kernel: Kernel, index: int, loop: Pass) -> Iterator[tuple[str, Kernel]]:
    others = [s.dst for s in loop.step_program]
    for i, acc in enumerate(loop.accs):
        for name in others:
            accs = _set(loop.accs, i, msgspec.structs.replace(acc, next=name))
            yield f"next: {acc.name} = {name}", replaced(kernel, index, accs=accs)
    if len(loop.accs) > 1:
        yield "accs: reversed", replaced(kernel, index, accs=loop.accs[::-1])
        yield "accs: without the last", replaced(kernel, index, accs=loop.accs[:-1])
    if len(loop.tile) > 1:
        yield "tile: reversed", replaced(kernel, index, tile=loop.tile[::-1])
        yield "tile: first twice", replaced(kernel, index, tile=(loop.tile[0],) * len(loop.tile))


def _of_step(kernel: Kernel, index: int, field: str, at: int) -> Iterator[tuple[str, Kernel]]:
    loop = kernel.passes[index]
    program = getattr(loop, field)
    step = Step.parse(program[at])

    def with_step(changed: Step) -> Kernel:
        return replaced(kernel, index, **{field: _set(program, at, str(changed))})

    for kind, changed in _changed_steps(kernel, loop, field, at, step):
        yield f"{kind}: {changed} for {step}", with_step(changed)
    yield f"drop: {step}", replaced(kernel, index, **{field: program[:at] + program[at + 1 :]})
    through = _bypassed(loop, field, at, step)
    if through is not None:
        yield f"bypass: {step}", msgspec.structs.replace(kernel, passes=_set(kernel.passes, index, through))


def _changed_steps(kernel: Kernel, loop: Pass, field: str, at: int, step: Step) -> Iterator[tuple[str, Step]]:
    change = msgspec.structs.replace
    for op in _alike(kernel.isa, step.op):
        yield "form", change(step, op=op)
    for i in range(len(step.args)):
        for j in range(i):
            yield "swap", change(step, args=_set(_set(step.args, i, step.args[j]), j, step.args[i]))
        for name in _live(kernel, loop, field, at):
            yield "operand", change(step, args=_set(step.args, i, name))
    if load.load(kernel.isa)[step.op].imm:
        for imm in load.load(kernel.isa)[step.op].imms:
            yield "immediate", change(step, imm=imm)


@cache
def _alike(isa_name: str, op: str) -> tuple[str, ...]:
    """Other forms on registers with as many operands, of the same sizes."""
    isa = load.load(isa_name)
    mine = isa[op]

    def sizes(instr):
        return [o.type.total_bits for o in instr.operands], instr.out.total_bits, bool(instr.imm)

    plain = [i for i in isa.instrs.values() if not i.store and not i.reads_memory]
    return tuple(sorted(i.name for i in plain if i.name != op and sizes(i) == sizes(mine)))


def _live(kernel: Kernel, loop: Pass, field: str, at: int) -> list[str]:
    """What a step may read: constants, accumulators, planes or the tile, earlier values."""
    vector = load.load(kernel.isa).table.vector_bits
    names = [c.name for c in kernel.constants] + [acc.name for acc in loop.accs]
    if field == "step":
        names += [f"a{i}" for i in range(len(loop.act_planes))]
        names += [f"w{g}_{i}" for i in range(len(loop.wgt_planes)) for g in range(kernel.columns * 64 // vector)]
    else:
        names += [f"c{r}" for r in range(len(loop.tile))]
    return names + [Step.parse(line).dst for line in getattr(loop, field)[:at]]


def _bypassed(loop: Pass, field: str, at: int, step: Step) -> Pass | None:
    """The step left out, and its first operand used in its place."""
    program = getattr(loop, field)
    first = step.args[0]
    rest = [Step.parse(line) for k, line in enumerate(program) if k != at]
    lines = tuple(
        str(msgspec.structs.replace(s, args=tuple(first if a == step.dst else a for a in s.args))) for s in rest
    )
    fields = {field: lines}
    if field == "step":
        if any(acc.next == step.dst for acc in loop.accs):
            return None
    else:
        fields["tile"] = tuple(first if name == step.dst else name for name in loop.tile)
    return msgspec.structs.replace(loop, **fields)
