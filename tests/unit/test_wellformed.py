"""Attacks on the checker: programs that are not what they seem never reach a C compiler.

C is written from cache files that passed `verify.check`, so each of these must be refused
with a message, not with a traceback and not by the compiler.
"""

import json
import re

import msgspec
import numpy as np
import pytest
from support.case_selection import quick
from support.programs import acc, change, constant, lines
from support.solved_kernels import kernel

from bitsynth.errors import BitsynthError, Refuted, SpecError
from bitsynth.isa import load
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.step import Step, from_builtins, to_builtins, to_json
from bitsynth.isa.types import VecType
from bitsynth.kernel import interpreter
from bitsynth.kernel.inputs import Table
from bitsynth.kernel.program import Acc, Kernel
from bitsynth.kernel.straight_line import constant_load
from bitsynth.proof import checker, matmul, obligations


def steady(found):
    """The kernel without first runs, so that one program of a step is all there is of it."""
    passes = []
    for loop in found.passes:
        accs = tuple(change(acc, start="") for acc in loop.step.accs)
        passes.append(change(loop, loops=(change(loop.step, first=(), accs=accs), *loop.loops[1:])))
    return change(found, passes=tuple(passes))


AVX2 = steady(kernel("avx2", "popcount", 2, 2))
LOOKUP = kernel("avx2", "lookup", 2, 2)
ONE = AVX2.passes[0]
LOOP_FIELDS = {"program", "accs", "trip_count", "first"}


def with_pass(kernel=AVX2, level=0, **fields):
    """Other fields of the first pass, or of its loop `level`."""
    loop = kernel.passes[0]
    of_loop = {k: v for k, v in fields.items() if k in LOOP_FIELDS}
    loops = list(loop.loops)
    loops[level] = change(loops[level], **of_loop)
    rest = {k: v for k, v in fields.items() if k not in LOOP_FIELDS}
    return change(kernel, passes=(change(loop, **{"loops": tuple(loops), **rest}), *kernel.passes[1:]))


def with_constant(**fields):
    return change(AVX2, constants=(change(AVX2.constants[0], **fields), *AVX2.constants[1:]))


def with_line(field, at, line, kernel=AVX2):
    """Another line of the first pass's step ("program") or flush."""
    program = list(kernel.passes[0].step.steps if field == "program" else kernel.passes[0].flush)
    program[at] = Step.parse(line)
    return with_pass(kernel, **{field: tuple(program)})


def refused_as_text(line):
    """It is no step of a program, and a file that has it is no kernel."""
    with pytest.raises(SpecError, match="bad program line"):
        Step.parse(line)
    facts = json.loads(to_json(AVX2))
    facts["passes"][0]["flush"][0] = line
    with pytest.raises(msgspec.ValidationError, match="bad program line"):
        from_builtins(facts, Kernel)


def with_build(**fields):
    return change(LOOKUP, build=change(LOOKUP.build, **fields))


def refused(kernel, message, error=SpecError):
    """By the checker, with or without a record of obligations, and by the interpreter where it is malformed."""
    with pytest.raises(error, match=message):
        checker.check(kernel)
    with pytest.raises(error, match=message):
        matmul.examine(kernel)
    if error is SpecError:
        with pytest.raises(SpecError):
            interpreter.product(kernel, *two_codes())


def two_codes():
    return np.ones((1, 9), np.uint8), np.ones((9, 1), np.uint8)


FIRST = lines(ONE.step.steps)[0].partition(" = ")[2]
HOSTILE = ["t0;system(0)", "t0, y", "int", "a", "acc0_0", "t0\n", "T0", "t", "t-1", "t٣", "", "t1234567"]


@pytest.mark.parametrize("name", HOSTILE)
def test_values_have_plain_names(name):
    line = f"{name} = {FIRST}"
    if re.fullmatch(r"\w+", name, re.ASCII):
        refused(with_line("program", 0, line), "no name of a value")
    else:
        refused_as_text(line)


@pytest.mark.parametrize("name", [*HOSTILE, "k0};int x[]={0", "zero", "k"])
def test_constants_have_plain_names(name):
    refused(with_constant(name=name), "no name of a constant")


@pytest.mark.parametrize("name", [*HOSTILE, "acc", "steps", "accx"])
def test_accumulators_have_plain_names(name):
    refused(with_pass(accs=(change(ONE.step.accs[0], name=name), *ONE.step.accs[1:])), "no name of an? accumulator")


@pytest.mark.parametrize("name", ["a0", "w0_0", "acc0", "acc1", "k0", "c0", "steps", "count", "zero"])
def test_inputs_are_not_written(name):
    """A step that wrote acc0 would only write a copy of it in C, and the sum would be lost."""
    refused(with_line("program", 0, f"{name} = {FIRST}"), "no name of a value")
    refused(with_line("flush", 0, f"{name} = {lines(ONE.flush)[0].partition(' = ')[2]}"), "no name of a value")


def test_a_value_is_defined_once():
    refused(with_pass(program=(ONE.step.steps[0], *ONE.step.steps)), "value t0 is defined twice")


def test_a_value_is_defined_before_it_is_read():
    refused(with_pass(program=(*ONE.step.steps[1:], ONE.step.steps[0])), "has no value yet")
    refused(with_line("program", 0, "t0 = xor.u8x32 a0 t0"), "t0 has no value yet")


@pytest.mark.parametrize("name", ["a9", "w9_0", "w0_9", "c0", "acc9", "k9", "t99", "g", "steps"])
def test_only_inputs_of_a_step_are_read(name):
    refused(with_line("program", 0, f"t0 = xor.u8x32 a0 {name}"), f"{name} has no value yet")


@pytest.mark.parametrize("name", ["a0", "w0_0", "c9"])
def test_a_flush_reads_no_planes(name):
    refused(with_line("flush", 0, f"t0 = sad_epu8.u8x32 {name} k0"), f"{name} has no value yet")


def test_names_are_not_shared():
    refused(change(AVX2, constants=(AVX2.constants[0], *AVX2.constants)), "constant k0 is defined twice")
    refused(with_pass(accs=(ONE.step.accs[0], *ONE.step.accs)), "accumulator acc0 is defined twice")


@pytest.mark.parametrize(
    "line",
    [
        "t0 = load.u8x32 w0_0",
        "t0 = store.u8x32 w0_0",
        "t0 = broadcast64.u8x32 w0_0",
        "t0 = load.u8x32 k0",
    ],
)
def test_steps_do_not_touch_memory(line):
    refused(with_line("program", 0, line), "moves data from or to memory")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("t0 = xor.u8x32 a0", "takes 2 operands"),
        ("t0 = xor.u8x32", "takes 2 operands"),
        ("t0 = xor.u8x32 a0 a0 a0", "takes 2 operands"),
        ("t0 = xor.u8x32 a0 w0_0 #1", "immediate 1 is outside 0..0"),
        ("t0 = sll.u16x16 a0 #16", "immediate 16 is outside 0..15"),
        ("t0 = nonsense.u8x32 a0", "no instruction 'nonsense.u8x32'"),
        ("t0 = xor.u8x32 a0 w0_0 #" + "9" * 5000, "bad program line"),
        ("t0 = xor.u8x32 a0  w0_0", "bad program line"),
        ("t0 = xor.u8x32 a0 w0_0 ", "bad program line"),
        ("t0 = xor.u8x32 a0 w0_0\n", "bad program line"),
        ("t0 = xor.u8x32 a0 w0_0 #-1", "bad program line"),
        ("t0 = _mm256_xor_si256(a0, a0); //", "bad program line"),
        ("", "bad program line"),
    ],
)
def test_lines_are_instructions(line, message):
    if message == "bad program line":
        refused_as_text(line)
    else:
        refused(with_line("program", 0, line), message)


@pytest.mark.parametrize(
    "fields",
    [
        {"lanes": (0,) * 31},
        {"lanes": (0,) * 33},
        {"lanes": ()},
        {"lanes": (256,) + (0,) * 31},
        {"lanes": (-1,) + (0,) * 31},
        {"lanes": (1 << 80,) + (0,) * 31},
        {"type": "s8x32", "lanes": (128,) + (0,) * 31},
        {"type": "u32x8", "lanes": (1 << 32,) + (0,) * 7},
    ],
)
def test_constants_fill_their_arrays(fields):
    refused(with_constant(**fields), r"constant k0 must hold \d+ numbers")


@pytest.mark.parametrize("kind", ["u8x16", "u8x64", "u64x1", "s64x4", "u128x2", "float", "u8x32; int y", "u8x٣"])
def test_constants_have_types_of_registers(kind):
    refused(with_constant(type=kind), "no type of a full register|bad vector type|must hold|no instruction that loads")


@pytest.mark.parametrize("kind", ["u8x16", "u64x1", "u32x99", "u8x32*", ""])
def test_accumulators_fill_registers(kind):
    refused(
        with_pass(accs=(change(ONE.step.accs[0], type=kind), *ONE.step.accs[1:])),
        "no type of a full register|bad vector",
    )


@pytest.mark.parametrize("name", ["acc0", "a0", "k0", "c0", "t999", "t1; x", ""])
def test_accumulators_become_values(name):
    refused(
        with_pass(accs=(change(ONE.step.accs[0], next=name), *ONE.step.accs[1:])), "which no step of loop 0 defines"
    )


@pytest.mark.parametrize("tile", [(), ("t0", "t0"), ("acc0",), ("k0",), ("c1",), ("t999",), ("c0; x",)])
def test_the_tile_becomes_values(tile):
    refused(with_pass(tile=tile), "tile registers, not|which no step of it defines")


def test_steps_between_flushes_fit_a_number_of_c():
    loops = tuple(change(x, trip_count=1 << 20) for x in LOOKUP.passes[0].loops)
    refused(
        change(LOOKUP, passes=(change(LOOKUP.passes[0], loops=loops), *LOOKUP.passes[1:])),
        "it lacks a bound on steps between flushes",
    )


def test_passes_that_carry():
    """What one leaves in the accumulators the next finds there, over the same steps."""
    high, low = LOOKUP.passes
    assert high.carries

    def without_the_last(tile):
        return change(LOOKUP, passes=(change(high, tile=tile), low))

    refused(change(LOOKUP, passes=(low, high)), "it lacks a last pass that flushes to the tile")
    refused(change(LOOKUP, passes=(high, change(low, carries=True))), "c0 has no value yet")
    refused(without_the_last(high.tile[:-1]), "a flush must give 4 accumulators, not 3")
    refused(without_the_last((*high.tile[:-1], "c0")), "a flush gives 'c0', which no step of it defines")
    refused(without_the_last((*high.tile[:-1], "k0")), "a flush gives 'k0', which no step of it defines")
    refused(without_the_last((*high.tile[:-1], "acc2")), "a flush gives 'acc2', which no step of it defines")
    wide = low.loops[1]
    renamed = change(wide, accs=(wide.accs[1], wide.accs[0], *wide.accs[2:]))
    refused(
        change(LOOKUP, passes=(high, change(low, loops=(low.step, renamed)))),
        "it lacks the same accumulators in passes that carry",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"act_bits": 0},
        {"act_bits": -1},
        {"act_bits": 10**12},
        {"w_bits": 9},
        {"rows": 0},
        {"rows": 10**9},
        {"columns": 0},
        {"columns": -8},
        {"columns": 10**15},
        {"columns": 7},
        {"slot_bytes": 0},
        {"slot_bytes": 3},
        {"slot_bytes": 16},
        {"k_step": 0},
        {"k_step": 10**9},
        {"k_step": 31},
        {"unroll": -1},
        {"unroll": 17},
        {"slots": ()},
        {"slots": (0,) * 8},
        {"slots": tuple(range(1, 9))},
        {"slots": tuple(range(16))},
        {"passes": ()},
        {"column_terms": (0, 3, 6)},
        {"column_terms": (0, 3, 6, 9, 12)},
        {"row_terms": ()},
        {"row_terms": (0, 0, 0, 1 << 31)},
        {"column_terms": (0, 3, 6, -(10**30))},
        {"act_bits": 3},
        {"w_bits": 1},
        {"build": LOOKUP.build},
    ],
    ids=str,
)
def test_sizes(fields):
    refused(change(AVX2, **fields), "malformed kernel: it lacks")


def planes(**fields):
    return change(ONE.rows[0], **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"trip_count": 0},
        {"trip_count": -1},
        {"trip_count": 10**30},
        {"loops": ()},
        {"loops": ONE.loops * 4},
        {"rows": ()},
        {"columns": ()},
        {"columns": ONE.columns * 33},
        {"rows": (planes(tables=(7,)),)},
        {"rows": (planes(tables=(0,)),)},
        {"rows": (planes(tables=(16,)),)},
        {"rows": (planes(tables=(-2,)),)},
        {"rows": (planes(tables=()),)},
        {"rows": (planes(tables=(2,) * 65),)},
        {"rows": (planes(tables=(2, 4, 8)),)},
        {"rows": (planes(first=-1),)},
        {"rows": (planes(first=1),)},
        {"rows": (planes(first=10**30),)},
        {"rows": (planes(stride=-1),)},
        {"rows": (planes(stride=33),)},
        {"rows": (planes(stride=10**30),)},
        {"rows": (planes(per_byte=0),)},
        {"rows": (planes(per_byte=-1),)},
        {"rows": (planes(per_byte=9),)},
        {"rows": (*ONE.rows, Table((0, 1, 2, 3), 0, 4))},
        {"rows": (Table((0, 1, 2, 3), 0, 4),)},
        {"accs": ()},
    ],
    ids=str,
)
def test_pass_sizes(fields):
    refused(with_pass(**fields), "malformed kernel: it lacks")


def table(**fields):
    return change(LOOKUP.passes[0].rows[0], **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"values": ()},
        {"values": (0, 1, 2)},
        {"values": (0, 1, 2, 3, 4)},
        {"values": (1, 1, 2, 3)},
        {"values": (0, 0, 0, 0)},
        {"values": (0, 1, 2, 256)},
        {"values": (0, 1, 2, -1)},
        {"first": -1},
        {"first": 1},
        {"first": 10**30},
        {"bits": 0},
        {"bits": -1},
        {"bits": 5},
        {"bits": 10**30},
    ],
    ids=str,
)
def test_table_sizes(fields):
    refused(with_pass(LOOKUP, rows=(table(**fields),)), "malformed kernel")


def test_a_table_fills_no_more_than_a_register():
    """64 entries are more than there are bytes to store them from."""
    passes = tuple(
        change(
            p, rows=tuple(change(x, bits=6) for x in p.rows), columns=tuple(change(x, per_byte=6) for x in p.columns)
        )
        for p in LOOKUP.passes
    )
    memory = change(LOOKUP.memory, broadcast=LOOKUP.memory.load)
    refused(change(LOOKUP, k_step=6, passes=passes, memory=memory), "tables that fill no more than a register")


def test_only_rows_are_tables():
    columns = to_builtins(with_pass(LOOKUP, columns=(table(),)))
    with pytest.raises(msgspec.ValidationError):
        from_builtins(columns, Kernel)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stage": ()}, "the stage of a table must name"),
        ({"stage": (0,) * 7}, "the stage of a table must name"),
        ({"stage": (0,) * 9}, "the stage of a table must name"),
        ({"stage": (8,) * 8}, "the stage of a table must name"),
        ({"tables": 0}, "0 tables of 4 codes do not fit a stage and a register"),
        ({"tables": 3}, "3 tables of 4 codes do not fit a stage and a register"),
        ({"stage": (-2,) * 8}, "the stage of a table must name"),
        ({"table": "t99"}, "no step defines"),
        ({"table": "x0"}, "no step defines"),
        ({"table": "t0; x"}, "no step defines"),
        ({"program": ()}, "no step defines"),
        ({"program": ("x0 = add.u8x32 x0 x0",)}, "no name of a value"),
        ({"program": ("t0 = add.u8x32 x0 x1",)}, "x1 has no value yet"),
        ({"program": ("t0 = add.u8x32 x0 acc0",)}, "acc0 has no value yet"),
        ({"program": ("t0 = load.u8x32 x0",)}, "moves data from or to memory"),
        ({"load": "nothing"}, "no instruction 'nothing'"),
        ({"store": "nothing"}, "no instruction 'nothing'"),
        ({"constants": (*LOOKUP.build.constants, LOOKUP.build.constants[0])}, "constant k0 is defined twice"),
    ],
    ids=str,
)
def test_the_program_of_a_table(fields, message):
    with pytest.raises(SpecError, match=message):
        checker.check(with_build(**fields))


def test_values_of_a_table_are_used():
    refused_late(with_build(program=(*LOOKUP.build.steps, "t90 = add.u8x32 x0 x0")), "never used: t90 of the table")
    more = constant("k90", "u8x32", (0,) * 32)
    refused_late(with_build(constants=(*LOOKUP.build.constants, more)), "never used: k90 of the table")


def test_first_runs():
    """Of the innermost loop alone, without its accumulators, and of every accumulator or none."""
    loop = LOOKUP.passes[0]
    program, accs = loop.step.first, loop.step.accs
    assert program
    outer = change(loop.loops[1], first=loop.loops[1].steps)
    refused(with_pass(LOOKUP, loops=(loop.step, outer)), "only the innermost loop may have a first run")
    refused(with_pass(LOOKUP, first=loop.step.steps), "acc0 has no value yet")
    none = tuple(change(acc, start="") for acc in accs)
    refused(with_pass(LOOKUP, accs=(none[0], *accs[1:])), "starts as '', which no step of the first run defines")
    refused(with_pass(LOOKUP, accs=none), "starts as '', which no step of the first run defines")
    refused(with_pass(LOOKUP, first=()), "starts as 't0', which no step of the first run defines")
    refused(with_pass(LOOKUP, accs=(change(accs[0], start="acc0"), *accs[1:])), "starts as 'acc0'")
    started = tuple(change(acc, start="t0") for acc in loop.loops[1].accs)
    refused(with_pass(LOOKUP, level=1, accs=started), "starts as 't0'")
    refused_late(
        with_pass(LOOKUP, first=(*program, "t90 = add.u8x32 a0 a0")), "never used: t90 of the first run of pass 0"
    )


def test_an_outer_loop_reads_only_the_loop_inside():
    loop = LOOKUP.passes[0]
    line = lines(loop.loops[1].steps)[0]
    for name in ("a0", "w0_0", "c0", "acc99"):
        changed = line.replace(" acc0 ", f" {name} ")
        assert changed != line
        program = (changed, *loop.loops[1].steps[1:])
        refused(with_pass(LOOKUP, level=1, program=program), f"{name} has no value yet")
    flush = re.sub(r" acc\d+ ", " acc0 ", lines(loop.flush)[0])
    assert flush != lines(loop.flush)[0]
    refused(with_pass(LOOKUP, flush=(flush, *loop.flush[1:])), "acc0 has no value yet")


@pytest.mark.parametrize("isa", quick(("avx2",), of=("avx2", "neon", "armv7_neon", "avx512")))
def test_memory_forms_have_their_roles(isa):
    """Any form in any place: taken only where it does the same; never a traceback."""
    found = kernel(isa, "lookup", 1, 2)
    for field, own in msgspec.structs.asdict(found.memory).items():
        for op in load.load(isa).instrs:
            mutant = change(found, memory=change(found.memory, **{field: op}))
            if op == own or (field in ("add_tile", "broadcast_tile") and not found.has_row_terms):
                continue
            try:
                checker.check(mutant)
            except BitsynthError:
                continue
            assert moves_the_same(isa, op, own), f"{isa}: {field} = {op} passes"


def moves_the_same(isa, op, own):
    """The same bytes in lanes of any width, as they lie."""
    a, b = load.load(isa)[op], load.load(isa)[own]
    memory = [x.operands[0].type.total_bits for x in (a, b)]
    return memory[0] == memory[1] and a.out.total_bits == b.out.total_bits and a.store == b.store


def test_unknown_memory_form():
    refused(change(AVX2, memory=change(AVX2.memory, load="nothing")), "no instruction 'nothing'")


def test_unused_values_are_refused():
    extra = (*ONE.step.steps, "t900 = xor.u8x32 a0 a0")
    refused_late(with_pass(program=extra), "never used: t900 of loop 0 of pass 0")
    more = constant("k900", "u8x32", (0,) * 32)
    refused_late(change(AVX2, constants=(*AVX2.constants, more)), "never used: k900")
    refused_late(with_pass(rows=(*ONE.rows, ONE.rows[0])), f"never used: a{len(ONE.rows)} of loop 0 of pass 0")


def refused_late(kernel, message):
    with pytest.raises(SpecError, match=message):
        checker.check(kernel)


ZERO = next(c.name for c in AVX2.constants if not any(c.lanes))
GROWTH = "t900 = add.{} {} " + ONE.step.accs[0].next


def accumulated(*more, last):
    """The first accumulator's new value goes through more steps."""
    return with_pass(program=(*ONE.step.steps, *more), accs=(change(ONE.step.accs[0], next=last), *ONE.step.accs[1:]))


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (["t900 = add.u8x32 acc0 " + ONE.step.accs[0].next], "t900"),
        (["t900 = add.u8x32 acc1 " + ONE.step.accs[0].next], "t900"),
        (["t900 = sub.u8x32 k0 " + ONE.step.accs[0].next], "t900"),
        (["t900 = add.u8x32 a0 " + ONE.step.accs[0].next], "t900"),
        (["t900 = add.u16x16 " + ONE.step.accs[0].next + " a0"], "t900"),
        (["t900 = sll.u16x16 " + ONE.step.accs[0].next + " #1"], "t900"),
        (["t900 = sad_epu8.u8x32 " + ONE.step.accs[0].next + " " + ZERO], "t900"),
        (["t900 = unpacklo.u8x32 " + f"{ONE.step.accs[0].next} {ONE.step.accs[1].next}"], "t900"),
        (["t900 = permute4x64.u64x4 " + ONE.step.accs[0].next + " #27"], "t900"),
        (["t900 = xor.u8x32 " + f"{ONE.step.accs[0].next} k0"], "t900"),
    ],
)
def test_accumulators_only_grow_by_the_step(lines, last):
    """Doubling, mixing, reading as wider lanes, widening or moving inside the step."""
    refused(accumulated(*lines, last=last), r"shown exact|column|off by", Refuted)


def test_accumulators_do_not_trade_places():
    accs = (
        change(ONE.step.accs[0], next=ONE.step.accs[1].next),
        change(ONE.step.accs[1], next=ONE.step.accs[0].next),
        *ONE.step.accs[2:],
    )
    refused(with_pass(accs=accs), "is not itself plus what the step adds", Refuted)


def test_an_accumulator_cannot_be_flushed_as_wider_lanes():
    first = lines(ONE.flush)[0].partition(" = ")
    line = f"{first[0]} = add.u64x4 acc0 acc0"
    refused(with_line("flush", 0, line), r"shown exact|column|off by", Refuted)


def test_a_tile_register_cannot_be_used_twice():
    neon = steady(kernel("neon", "popcount", 2, 2))
    flush = tuple(line.replace("c1", "c0") for line in lines(neon.passes[0].flush))
    assert flush != lines(neon.passes[0].flush)
    with pytest.raises(BitsynthError, match=r"not itself plus sums|takes in column|never used"):
        checker.check(with_pass(neon, flush=flush))


def test_columns_do_not_mix():
    neon = steady(kernel("neon", "popcount", 2, 2))
    program = tuple(line.replace("w1_", "w0_") for line in lines(neon.passes[0].step.steps))
    assert program != lines(neon.passes[0].step.steps)
    refused(with_pass(neon, program=program), r"takes in column|every position", Refuted)


def test_sums_do_not_wrap_inside_a_step():
    """A count that is multiplied beyond its byte wraps before it reaches the accumulator."""
    found = steady(kernel("neon", "popcount", 1, 1))
    step = list(lines(found.passes[0].step.steps))
    at = next(i for i, line in enumerate(step) if " = cnt." in line)
    dst = Step.parse(step[at]).dst
    step[at] = f"t900 = {step[at].partition(' = ')[2]}"
    doubled = [f"t{901 + i} = add.u8x16 t{900 + i} t{900 + i}" for i in range(7)]
    step[at + 1 : at + 1] = [*doubled, f"{dst} = add.u8x16 t907 t907"]
    refused(with_pass(found, program=tuple(step)), r"shown exact|column|off by", Refuted)


def test_operand_counts_are_checked_before_obligations_are_recorded():
    trace = obligations.ObligationRecorder(load.load("avx2"), LinearDomain(1))
    with pytest.raises(SpecError, match="takes 2 operands"):
        trace.run(Step.parse("t0 = xor.u8x32 a0"))
    with pytest.raises(SpecError, match="a0 has no value yet"):
        trace.run(Step.parse("t0 = xor.u8x32 a0 a0"))


@pytest.mark.parametrize("isa", ["avx2", "neon", "armv7_neon"])
def test_constants_are_loaded_as_they_lie(isa):
    found = kernel(isa, "lookup", 1, 2)
    for c in (*found.constants, *found.build.constants):
        form = constant_load(load.load(isa), VecType.parse(c.type))
        assert form.name in found.forms


def test_products_of_accumulators_are_refused():
    """Not linear, and no KeyError where the flush looks up what a step adds."""
    found = kernel("avx2", "multiply", 2, 2)
    (loop,) = found.passes
    for name in ("acc0", "c0"):
        flush = (*loop.flush, f"t900 = mullo32.u32x8 {name} {name}", f"t901 = add.u32x8 {loop.tile[0]} t900")
        refused(with_pass(found, flush=flush, tile=("t901", *loop.tile[1:])), "is not itself plus sums", Refuted)


def test_kernels_are_plain_data():
    assert acc("acc0", "u8x32", "t1") == from_builtins({"name": "acc0", "type": "u8x32", "next": "t1"}, Acc)
    with pytest.raises(msgspec.ValidationError):
        from_builtins(to_builtins(AVX2) | {"more": 1}, Kernel)
    with pytest.raises(msgspec.ValidationError):
        from_builtins(to_builtins(AVX2) | {"rows": True}, Kernel)


@pytest.mark.slow
def test_row_terms_fit_32_bits_at_any_k():
    """Twice the codes of a row less in the sums, and more in its terms: C would multiply a sum beyond int32."""
    found = steady(kernel("avx2", "popcount", 1, 1))
    (loop,) = found.passes
    program = ["t900 = shuffle_epi8.u8x32 k0 a0"]
    for g in range(2):
        program += [f"t91{g} = add.u8x32 acc{g} t900", f"t92{g} = add.u8x32 t91{g} t900"]
    program += [x.replace(" acc0 ", " t920 ").replace(" acc1 ", " t921 ") for x in lines(loop.step.steps)]
    changed = change(loop, loops=(change(loop.step, trip_count=20, program=tuple(program)),))
    refused(change(found, passes=(changed,), row_terms=(0, 2)), "row terms whose sums fit 32 bits at any K")
