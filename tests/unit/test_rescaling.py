"""Programs of codes and floats: what stored ones give, and that wrong ones are refused."""

import functools

import msgspec
import numpy as np
import pytest
from support.programs import change

from bitsynth.emit import elementwise
from bitsynth.errors import Refuted
from bitsynth.host.placement import runs_natively
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load
from bitsynth.kernel import straight_line
from bitsynth.kernel.elementwise.run import run
from bitsynth.layers.epilogues.floats import gated_spec, rescale_spec
from bitsynth.layers.epilogues.requantize import requantize_spec
from bitsynth.proof.elementwise.discharge import discharge
from bitsynth.run.runner import runner_for
from bitsynth.solver.budget import Budget
from bitsynth.spec.rescaling import CodeForm, ValueTerms
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.synth import elementwise as synth
from bitsynth.toolchain.library import compile_for

INT32 = np.iinfo(np.int32)
ONE = np.float32(1).view(np.uint32)


def given(program, **values):
    """Arrays (1, positions, inputs) of the unit, one value an input or for all."""
    out = {}
    for x in program.spec.inputs:
        lanes = 1 if x.per in ("row", "all") else program.unit
        out[x.name] = np.broadcast_to(np.asarray(values[x.name]), (lanes, len(values["s"])))[None]
    return out


EXTREMES = [INT32.min, INT32.min + 1, -129, -128, -3, -1, 0, 1, 127, 128, 254, 255, 256, 65536, INT32.max]


@functools.cache
def stored(isa, spec):
    return ELEMENTWISE.find(isa, spec).artifact


@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon"])
def test_sums_at_the_ends_saturate(isa):
    program = stored(isa, rescale_spec(ValueTerms(), CodeForm("u8"), bias=False))
    got = run(program, given(program, s=EXTREMES, m=int(ONE), z=0, l=0, h=255))
    assert (got == np.clip(EXTREMES, 0, 255)).all()


def test_ties_go_to_even_before_the_zero_point():
    program = stored("avx2", rescale_spec(ValueTerms(), CodeForm("u8"), bias=False))
    halves = np.array([-7, -1, 1, 3, 5, 509, 511])
    got = run(program, given(program, s=halves, m=int(np.float32(0.5).view(np.uint32)), z=1, l=2, h=254))
    assert (got == np.clip(np.rint(halves / 2) + 1, 2, 254)).all()


@pytest.mark.parametrize(("wide", "even"), [(False, False), (True, False), (False, True), (True, True)])
def test_products_round_half_up_or_to_even(wide, even):
    """s / 2: of products s * 2, or s * 2**30 of 64 bits."""
    program = stored("avx2", requantize_spec(CodeForm("u8"), row=not even, wide=wide, even=even))
    m, half, n = (-(1 << 31), 1 << 31, 0) if wide else (2, 2, 2)
    ends = {"k": 0, "g": half - 1} if even else {"k": half}
    halves = np.array([1, 3, 5, 7, 9])
    sums = -halves if wide else halves
    got = run(program, given(program, s=sums if even else sums - 4, r=4, m=m, n=n, z=0, l=0, h=255, **ends))
    assert (got == (np.rint(halves / 2) if even else (halves + 1) // 2)).all()


@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon"])
def test_a_gate_is_kept_between_0_and_1(isa):
    """Hard swish of whole numbers: halves go to even, below -32 all is 0, above 32 nothing is lost."""
    program = stored(isa, gated_spec(ValueTerms(), CodeForm("u8")))
    floats = {"m": 1.0, "b": 0.0, "g": 1 / 64, "a": 0.5}
    sums = np.arange(-300, 300)
    payloads = {name: int(np.float32(x).view(np.uint32)) for name, x in floats.items()}
    got = run(program, given(program, s=sums, z=5, l=0, h=255, **payloads))
    want = np.rint(sums * np.clip(sums / 64 + 0.5, 0, 1)) + 5
    assert (got == want.clip(0, 255)).all()
    assert (np.diff(want) < 0).any()


def test_a_mutant_is_refused_by_z3():
    program = stored("avx2", requantize_spec(CodeForm("u8"), row=False, wide=False))
    shifted = next(step for step in program.steps if step.op.startswith("srav"))
    wrong = change(shifted, args=("n0_0", "n0_0"))
    mutant = tuple(wrong if step == shifted else step for step in program.steps)
    with pytest.raises(Refuted):
        discharge(change(program, program=mutant), Budget())


@pytest.mark.parametrize("bound", [100.0, 2.0**31])
def test_a_bound_below_codes_or_beyond_int32_is_refused_by_z3(bound):
    """What keeps numbers in the range that is converted: above every code, and below 2**31."""
    program = stored("avx2", rescale_spec(ValueTerms(), CodeForm("u8"), bias=False))
    (great,) = program.constants
    wrong = msgspec.structs.replace(great, lanes=(int(np.float32(bound).view(np.uint32)),) * len(great.lanes))
    with pytest.raises(Refuted):
        discharge(msgspec.structs.replace(program, constants=(wrong,)), Budget())


def test_rounding_then_clamping_is_clamping_then_rounding():
    """The spec's order against ONNX's, on numbers around ties and ends."""
    spec = rescale_spec(ValueTerms(), CodeForm("u8"), bias=False)
    rng = np.random.default_rng(3)
    scale = (2.0 ** rng.uniform(-30, 20, 4000) * rng.choice([-1, 1], 4000)).astype(np.float32)
    sums = np.concatenate([rng.integers(-600, 600, 2000), rng.integers(INT32.min, INT32.max, 2000)]).astype(np.int32)
    low, high, zero = 3, 250, 7
    value = sums.astype(np.float32) * scale
    want = np.rint(value.clip(low - zero, high - zero)) + zero
    payloads = {"s": sums.view(np.uint32), "m": scale.view(np.uint32), "z": zero, "l": low, "h": high}
    got = spec.value(ConcreteDomain(), {k: [np.asarray(v, np.uint64)] for k, v in payloads.items()})
    assert (got == want).all()


WRAPPER = """
void run_{name}(const size_t *n, const void *constants, const void *shared, const void *from, const int32_t *row,
                void *to);
void run_{name}(const size_t *n, const void *constants, const void *shared, const void *from, const int32_t *row,
                void *to)
{{ {name}(constants, shared, n[0], n[1], from, n[2], row, 0, 0, to, n[3]); }}
"""
STORED = [
    spec
    for row in (False, True)
    for spec in (
        rescale_spec(ValueTerms(row, row), CodeForm("u8"), bias=False),
        rescale_spec(ValueTerms(), CodeForm("u8", whole=row), bias=row, small=True),
        gated_spec(ValueTerms(row, row), CodeForm("u8")),
        requantize_spec(CodeForm("s8"), row=row, wide=False),
        requantize_spec(CodeForm("u8"), row=row, wide=True),
        requantize_spec(CodeForm("u8"), row=row, wide=True, even=True),
    )
]


@pytest.mark.toolchains
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_c_gives_what_the_spec_says(isa):
    table = load(isa)
    if not runs_natively(table.table):
        pytest.skip(f"no {isa} here")
    programs = [stored(isa, spec) for spec in STORED]
    needs = straight_line.needs(programs[-1])
    text = elementwise.source(programs) + "".join(WRAPPER.format(name=p.name) for p in programs)
    runner = runner_for(table, compile_for(table, {"programs.c": text}, needs=needs), needs=needs)
    for program in programs:
        in_c(runner, program, np.random.default_rng(2))


def in_c(runner, program, rng):
    """One unit of three rows, with numbers around which rounding and saturation differ."""
    rows, unit = 3, program.unit
    sums = rng.integers(-3000, 3000, (rows, unit)).astype(np.int32)
    row = rng.integers(-9, 9, rows).astype(np.int32)
    wide = program.spec.name.startswith("requantize64")
    scales = rng.uniform(-0.2, 0.2, unit).astype(np.float32).view(np.uint32)
    whole = rng.integers(-(1 << 30), 1 << 30, unit) if wide else rng.integers(-9000, 9000, unit)
    shared = {"z": 5, "l": 1, "h": 120, "n": 1 if wide else 16}
    gated = program.spec.name.startswith("gated")
    if gated:
        shared |= {name: int(np.float32(x).view(np.uint32)) for name, x in {"g": 0.02, "a": 0.5}.items()}
    floats = gated or program.spec.name.startswith("rescale")
    arrays = {"m": scales if floats else whole, "b": scales[::-1], "c": rng.integers(-50, 50, unit)}
    arrays["g"] = np.full(unit, (1 << 32) - 1)
    arrays["k"] = rng.integers(0, 1 << 33, unit) if wide else rng.integers(0, 1 << 16, unit)
    numbers = b"".join(
        np.array(shared[x.name]).astype(f"{'i' if x.lane.sign == 's' else 'u'}{x.lane.bits // 8}").tobytes()
        for x in program.spec.inputs
        if x.per == "all"
    )
    to = np.zeros((rows, program.result_bytes), np.uint8)
    sizes = np.array([rows, unit, sums.strides[0], to.strides[0]], np.uint64)
    ordered = np.ascontiguousarray(sums[:, list(program.order)])
    packed = program.pack(unit, {x.name: arrays[x.name] for x in program.spec.inputs if x.per == "channel"})
    runner.call(f"run_{program.name}", sizes, packed, np.frombuffer(numbers, np.uint8).copy(), ordered, row, to)
    values = {"s": sums, "r": row[:, None], **arrays, **shared}
    with np.errstate(over="ignore"):
        payloads = {
            x.name: [np.asarray(values[x.name]).astype(np.int64).astype(np.uint64) & np.uint64((1 << x.lane.bits) - 1)]
            for x in program.spec.inputs
        }
        want = program.spec.value(ConcreteDomain(), payloads)
    assert (to == want).all()


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_stored_programs_are_what_the_sketch_makes(isa):
    spec = rescale_spec(ValueTerms(), CodeForm("u8"), bias=False)
    assert stored(isa, spec) == next(synth.alternatives(isa, spec))
