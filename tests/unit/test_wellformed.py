"""Attacks on the checker: programs that are not what they seem never reach a C compiler.

C is written from cache files that passed `verify.check`, so each of these must be refused
with a message, not with a traceback and not by the compiler.
"""

import msgspec
import pytest

from bitsynth import cache, paths, simulate, uses, verify
from bitsynth.errors import BitsynthError, Refuted, SpecError
from bitsynth.isa import load
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.program import Acc, Constant, Kernel, Step
from bitsynth.wellformed import constant_load

change = msgspec.structs.replace


def shipped(isa, widths):
    (path,) = (paths.shipped_kernels() / isa).glob(f"bs_mm_{widths}_*.json")
    return cache.read_entry(path).kernel


AVX2, NEON = shipped("avx2", "a2u_w2b"), shipped("neon", "a2u_w2b")
ONE = AVX2.passes[0]


def with_pass(kernel=AVX2, **fields):
    return change(kernel, passes=(change(kernel.passes[0], **fields), *kernel.passes[1:]))


def with_constant(**fields):
    return change(AVX2, constants=(change(AVX2.constants[0], **fields), *AVX2.constants[1:]))


def with_line(field, at, line, kernel=AVX2):
    lines = list(getattr(kernel.passes[0], field))
    lines[at] = line
    return with_pass(kernel, **{field: tuple(lines)})


def refused(kernel, message, error=SpecError):
    """By the checker, with or without a record of uses, and by the simulator where it is malformed."""
    with pytest.raises(error, match=message):
        verify.check(kernel)
    with pytest.raises(error, match=message):
        cache.examine(kernel)
    if error is SpecError:
        with pytest.raises(SpecError):
            simulate.product(kernel, *two_codes())


def two_codes():
    import numpy as np

    return np.ones((1, 9), np.uint8), np.ones((9, 1), np.uint8)


FIRST = ONE.step[0].partition(" = ")[2]
HOSTILE = ["t0;system(0)", "t0, y", "int", "a", "acc0_0", "t0\n", "T0", "t", "t-1", "t٣", "", "t1234567"]


@pytest.mark.parametrize("name", HOSTILE)
def test_values_have_plain_names(name):
    refused(with_line("step", 0, f"{name} = {FIRST}"), "no name of a value|bad program line")


@pytest.mark.parametrize("name", [*HOSTILE, "k0};int x[]={0", "zero", "k"])
def test_constants_have_plain_names(name):
    refused(with_constant(name=name), "no name of a constant")


@pytest.mark.parametrize("name", [*HOSTILE, "acc", "steps", "accx"])
def test_accumulators_have_plain_names(name):
    refused(with_pass(accs=(change(ONE.accs[0], name=name), *ONE.accs[1:])), "no name of an? accumulator")


@pytest.mark.parametrize("name", ["a0", "w0_0", "acc0", "acc1", "k0", "c0", "steps", "count", "zero"])
def test_inputs_are_not_written(name):
    """A step that wrote acc0 would only write a copy of it in C, and the sum would be lost."""
    refused(with_line("step", 0, f"{name} = {FIRST}"), "no name of a value")
    refused(with_line("flush", 0, f"{name} = {ONE.flush[0].partition(' = ')[2]}"), "no name of a value")


def test_a_value_is_defined_once():
    refused(with_pass(step=(ONE.step[0], *ONE.step)), "value t0 is defined twice")


def test_a_value_is_defined_before_it_is_read():
    refused(with_pass(step=(*ONE.step[1:], ONE.step[0])), "has no value yet")
    refused(with_line("step", 0, "t0 = xor.u8x32 a0 t0"), "t0 has no value yet")


@pytest.mark.parametrize("name", ["a9", "w9_0", "w0_9", "c0", "acc9", "k9", "t99", "g", "steps"])
def test_only_inputs_of_a_step_are_read(name):
    refused(with_line("step", 0, f"t0 = xor.u8x32 a0 {name}"), f"{name} has no value yet")


@pytest.mark.parametrize("name", ["a0", "w0_0", "c9"])
def test_a_flush_reads_no_planes(name):
    refused(with_line("flush", 0, f"t0 = sad_epu8.u8x32 {name} k0"), f"{name} has no value yet")


def test_names_are_not_shared():
    refused(change(AVX2, constants=(AVX2.constants[0], *AVX2.constants)), "constant k0 is defined twice")
    refused(with_pass(accs=(ONE.accs[0], *ONE.accs)), "accumulator acc0 is defined twice")


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
    refused(with_line("step", 0, line), "moves data from or to memory")


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
    refused(with_line("step", 0, line), message)


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
    refused(with_pass(accs=(change(ONE.accs[0], type=kind), *ONE.accs[1:])), "no type of a full register|bad vector")


@pytest.mark.parametrize("name", ["acc0", "a0", "k0", "c0", "t999", "t1; x", ""])
def test_accumulators_become_values(name):
    refused(with_pass(accs=(change(ONE.accs[0], next=name), *ONE.accs[1:])), "which no step defines")


@pytest.mark.parametrize("tile", [(), ("t0", "t0"), ("acc0",), ("k0",), ("c1",), ("t999",), ("c0; x",)])
def test_the_tile_becomes_values(tile):
    refused(with_pass(tile=tile), "tile registers, not|which no step of the flush defines")


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
        {"bits_per_byte": 0},
        {"bits_per_byte": 5},
        {"bits_per_byte": 16},
        {"slots": ()},
        {"slots": (0,) * 8},
        {"slots": tuple(range(1, 9))},
        {"slots": tuple(range(16))},
        {"passes": ()},
        {"g_table": (0, 3, 6)},
        {"g_table": (0, 3, 6, 9, 12)},
        {"h_table": ()},
        {"h_table": (0, 0, 0, 1 << 31)},
        {"g_table": (0, 3, 6, -(10**30))},
    ],
    ids=str,
)
def test_sizes(fields):
    refused(change(AVX2, **fields), "malformed kernel: it lacks")


@pytest.mark.parametrize(
    "fields",
    [
        {"flush_every": 0},
        {"flush_every": -1},
        {"flush_every": 10**30},
        {"act_planes": ()},
        {"wgt_planes": ()},
        {"act_planes": (12, 10, 7)},
        {"act_planes": (12, 10, 0)},
        {"act_planes": (12, 10, 16)},
        {"act_planes": (12, 10, -2)},
        {"wgt_planes": (2,) * 65},
        {"accs": ()},
    ],
    ids=str,
)
def test_pass_sizes(fields):
    refused(with_pass(**fields), "malformed kernel: it lacks")


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_memory_forms_have_their_roles(isa):
    """Any form in any place: taken only where it does the same; never a traceback."""
    kernel = shipped(isa, "a2u_w2b")
    for field, own in msgspec.structs.asdict(kernel.memory).items():
        for op in load.load(isa).instrs:
            mutant = change(kernel, memory=change(kernel.memory, **{field: op}))
            if op == own:
                continue
            try:
                verify.check(mutant)
            except BitsynthError:
                continue
            signless = op.replace(".s", ".u") == own.replace(".s", ".u")
            assert signless, f"{isa}: {field} = {op} passes"


def test_unknown_memory_form():
    refused(change(AVX2, memory=change(AVX2.memory, load="nothing")), "no instruction 'nothing'")


def test_unused_values_are_refused():
    extra = (*ONE.step, "t900 = xor.u8x32 a0 a0")
    refused_late(with_pass(step=extra), "never used: t900 of pass 0")
    more = Constant("k900", "u8x32", (0,) * 32)
    refused_late(change(AVX2, constants=(*AVX2.constants, more)), "never used: k900")
    refused_late(with_pass(act_planes=(*ONE.act_planes, 2)), "never used: a3 of pass 0")


def refused_late(kernel, message):
    with pytest.raises(SpecError, match=message):
        verify.check(kernel)


ZERO = next(c.name for c in AVX2.constants if not any(c.lanes))
GROWTH = "t900 = add.{} {} " + ONE.accs[0].next


def accumulated(*lines, last):
    """The first accumulator's new value goes through more steps."""
    return with_pass(step=(*ONE.step, *lines), accs=(change(ONE.accs[0], next=last), *ONE.accs[1:]))


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (["t900 = add.u8x32 acc0 " + ONE.accs[0].next], "t900"),
        (["t900 = add.u8x32 acc1 " + ONE.accs[0].next], "t900"),
        (["t900 = sub.u8x32 k0 " + ONE.accs[0].next], "t900"),
        (["t900 = add.u8x32 a0 " + ONE.accs[0].next], "t900"),
        (["t900 = add.u16x16 " + ONE.accs[0].next + " a0"], "t900"),
        (["t900 = sll.u16x16 " + ONE.accs[0].next + " #0"], "t900"),
        (["t900 = sad_epu8.u8x32 " + ONE.accs[0].next + " " + ZERO], "t900"),
        (["t900 = unpacklo.u8x32 " + f"{ONE.accs[0].next} {ONE.accs[1].next}"], "t900"),
        (["t900 = permute4x64.u64x4 " + ONE.accs[0].next + " #27"], "t900"),
        (["t900 = xor.u8x32 " + f"{ONE.accs[0].next} k0"], "t900"),
    ],
)
def test_accumulators_only_grow_by_the_step(lines, last):
    """Doubling, mixing, reading as wider lanes, widening or moving inside the step."""
    refused(accumulated(*lines, last=last), r"shown exact|column|off by", Refuted)


def test_accumulators_do_not_trade_places():
    accs = (change(ONE.accs[0], next=ONE.accs[1].next), change(ONE.accs[1], next=ONE.accs[0].next), *ONE.accs[2:])
    refused(with_pass(accs=accs), "is not itself plus what the step adds", Refuted)


def test_an_accumulator_cannot_be_flushed_as_wider_lanes():
    first = ONE.flush[0].partition(" = ")
    line = f"{first[0]} = add.u64x4 acc0 acc0"
    refused(with_line("flush", 0, line), r"shown exact|column|off by", Refuted)


def test_a_tile_register_cannot_be_used_twice():
    lines = tuple(line.replace("c1", "c0") for line in NEON.passes[0].flush)
    assert lines != NEON.passes[0].flush
    with pytest.raises(BitsynthError, match=r"not itself plus sums|takes in column|never used"):
        verify.check(with_pass(NEON, flush=lines))


def test_columns_do_not_mix():
    lines = tuple(line.replace("w1_", "w0_") for line in NEON.passes[0].step)
    assert lines != NEON.passes[0].step
    refused(with_pass(NEON, step=lines), r"takes in column|every position", Refuted)


def test_sums_do_not_wrap_inside_a_step():
    """A count that is multiplied beyond its byte wraps before it reaches the accumulator."""
    kernel = shipped("neon", "a1u_w1b")
    step = list(kernel.passes[0].step)
    at = next(i for i, line in enumerate(step) if " = cnt." in line)
    dst = Step.parse(step[at]).dst
    step[at] = f"t900 = {step[at].partition(' = ')[2]}"
    doubled = [f"t{901 + i} = add.u8x16 t{900 + i} t{900 + i}" for i in range(7)]
    step[at + 1 : at + 1] = [*doubled, f"{dst} = add.u8x16 t907 t907"]
    refused(with_pass(kernel, step=tuple(step)), r"shown exact|column|off by", Refuted)


def test_operand_counts_are_checked_before_uses_are_recorded():
    trace = uses.Recorder(load.load("avx2"), LinearDomain(1))
    with pytest.raises(SpecError, match="takes 2 operands"):
        trace.run(Step("t0", "xor.u8x32", ("a0",)))
    with pytest.raises(SpecError, match="a0 has no value yet"):
        trace.run(Step("t0", "xor.u8x32", ("a0", "a0")))


def test_constants_are_loaded_as_they_lie():
    for isa in sorted({p.parent.name for p in paths.shipped_kernels().glob("*/*.json")}):
        for kernel in (shipped(isa, "a2u_w2b"), shipped(isa, "a3u_w3b")):
            for c in kernel.constants:
                form = constant_load(load.load(isa), load.VecType.parse(c.type))
                assert form.name in verify.forms_used(load.load(isa), kernel)


def test_kernels_are_plain_data():
    assert Acc("acc0", "u8x32", "t1") == msgspec.convert({"name": "acc0", "type": "u8x32", "next": "t1"}, Acc)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(AVX2) | {"more": 1}, Kernel)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(AVX2) | {"rows": True}, Kernel)
