"""The programs that glue runs are stored with their proofs; wrong ones are refused by the checker and by Z3."""

import msgspec
import numpy as np
import pytest
from support.programs import change, lines

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.run import run
from bitsynth.proof.elementwise import checker
from bitsynth.proof.elementwise.discharge import discharge, discharge_words
from bitsynth.proof.proved import Proved
from bitsynth.solver.budget import Budget
from bitsynth.spec import glue, words
from bitsynth.spec.glue import greatest, lookup
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.synth.elementwise import get_program

LARGE = {*(lookup(1 << bits) for bits in (5, 6, 7, 8)), glue.pairs(3), glue.pairs(4)}
TABLES = {glue.lookup_channels(), glue.lookup_channels(floats=True), glue.lookup_sums(), glue.pairs(8)}
EVERYWHERE = {glue.average(), *TABLES}
PLAIN = {
    "avx512": EVERYWHERE,
    "avx2": {*EVERYWHERE, *LARGE},
    "neon": {*EVERYWHERE, glue.mean(even=True), glue.quantize(), glue.signs(), *LARGE},
}
PLAIN["armv7_neon"] = PLAIN["neon"] | {glue.dequantize()}
"""Specs that have no program, and run as plain C."""
STORED = [(isa, spec) for isa, plain in PLAIN.items() for spec in glue.every() if spec not in plain]
MAPS = [(isa, spec) for isa, spec in STORED if spec.name.startswith(("greatest", "lookup", "pairs"))]
AGAIN = [(isa, spec) for isa, spec in STORED if (isa, spec) != ("avx512", glue.quantize())][::4]


def test_others_have_none():
    assert all(ELEMENTWISE.find(isa, spec) is None for isa, plain in PLAIN.items() for spec in plain)


@pytest.mark.parametrize(("isa", "spec"), STORED, ids=lambda x: getattr(x, "name", x))
def test_it_is_stored_with_what_was_proved(isa, spec):
    proved = ELEMENTWISE.find(isa, spec)
    assert proved is not None
    assert proved.statements[0].endswith(f": {spec.meaning}")
    assert get_program(isa, spec).artifact == proved.artifact


@pytest.mark.parametrize(("isa", "spec"), MAPS, ids=lambda x: getattr(x, "name", x))
def test_every_code_and_pair_by_numpy(isa, spec):
    """All there are: what the proof says, once more, by instructions run on numbers."""
    program = ELEMENTWISE.find(isa, spec).artifact
    last = spec.inputs[-1]
    table = np.random.default_rng(0).integers(0, 256, last.count)
    most = 256 if spec == greatest() else int(last.count**0.5)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(most), np.arange(most)))
    given, want = {"a": a, "b": b}, np.maximum(a, b) if spec == greatest() else table[a * most + b]
    if spec.name.startswith("lookup"):
        given, want = {"x": np.arange(last.count)}, table
    given = {name: np.broadcast_to(x, (1, program.unit, x.size)) for name, x in given.items()}
    if last.per == "table":
        given["t"] = table[:, None, None].repeat(want.size, axis=2)
    assert (run(program, {k: v.astype(np.uint64) for k, v in given.items()}) == want).all()


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_a_weighted_sum_by_numpy(isa, wide, even):
    spec, rng, count = glue.add_weighted(even=even, wide=wide), np.random.default_rng(0), 500
    program = ELEMENTWISE.find(isa, spec).artifact
    n, most = rng.integers(1, 15, count), (1 << 20 if wide else 1 << 14)
    f, g, k, z = (rng.integers(-x, x, count) for x in (most, most, 1 << 20, 200))
    a, b = rng.integers(0, 256, (2, program.unit, count))
    p, half = a * f + b * g + k, (1 << n - 1) - 1
    code = (p + half + (p >> n & 1) >> n) + z if even else p >> n
    given = {"f": f, "g": g, "k": k, "n": n, "h": np.full(count, 200), "e": half, "z": z}
    arrays = {x.name: given[x.name][None, None] for x in spec.inputs[2:]}
    result = run(program, {k: v.astype(np.int64) for k, v in {"a": a[None], "b": b[None], **arrays}.items()})
    np.testing.assert_array_equal(result, code.clip(0, 200))


@pytest.mark.parametrize(("isa", "even"), [("avx2", False), ("avx2", True), ("neon", False)])
@pytest.mark.parametrize("pixels", [1, 4, 6, 49, 4_000_000])
def test_a_mean_by_numpy(isa, even, pixels):
    """What the proof does not know: that the product with this reciprocal is the quotient."""
    spec, rng, count = glue.mean(even=even), np.random.default_rng(0), 500
    program, divisor = ELEMENTWISE.find(isa, spec).artifact, 2 * pixels
    shift = max(32, 31 + (divisor - 1).bit_length())
    near = pixels * rng.integers(0, 256, (program.unit, count)) + rng.integers(-3, 4, (program.unit, count))
    sums = np.where(rng.random(near.shape) < 0.5, near, near + pixels // 2).clip(0, 255 * pixels)
    numbers = {"c": pixels, "m": (1 << shift) // divisor + 1, "d": divisor, "w": 1, "t": shift - 32, "h": 200}
    arrays = {x.name: np.full((1, 1, count), numbers[x.name]) for x in spec.inputs[1:]}
    quotient, rest = np.divmod(2 * sums + pixels, divisor)
    want = quotient - ((rest == 0) & (quotient % 2 == 0)) if even else quotient
    np.testing.assert_array_equal(run(program, {"s": sums[None], **arrays}), want.clip(0, 200))


def mutants(program):
    """The program with a step's operands exchanged, an instruction of another meaning, or another step's result."""
    names = {"pairs": ("b0_0", "a0_0"), "weighted": ("b0_0", "a0_0"), "mean": ("m0_0", "c0_0")}
    names |= {"quantize": ("l0_0", "h0_0"), "dequantize": ("f0_0", "k0_0"), "signs": ("k1", "k2")}
    if found := [x for kind, x in names.items() if program.spec.name.startswith(kind)]:
        yield [line.replace(*found[0]) for line in lines(program.steps)]
        return
    step = program.steps[0]
    first, second, *rest = step.args
    if program.spec != greatest():  # the greater of two is that of them exchanged
        yield [f"{step.dst} = {step.op} {' '.join([second, first, *rest])}", *program.steps[1:]]
    other = "sub" if load(program.isa).instrs.get(f"sub.{step.op.partition('.')[2]}") else "ssub"
    yield [f"{step.dst} = {other}.{step.op.partition('.')[2]} {first} {second}", *program.steps[1:]]
    if len(program.steps) > 1:
        yield [program.steps[0], str(program.steps[1]).replace("t0_3", "t0_1"), *program.steps[2:]]


@pytest.mark.parametrize(("isa", "spec"), STORED, ids=lambda x: getattr(x, "name", x))
def test_mutants_are_refused(isa, spec):
    proved, refused = ELEMENTWISE.find(isa, spec), 0
    for steps in mutants(proved.artifact):
        mutant = change(proved.artifact, program=tuple(steps))
        with pytest.raises((Refuted, SpecError)):
            checker.check(mutant)
        if spec == greatest() or (isa == "avx2" and spec in (lookup(16), glue.pairs(2))):
            with pytest.raises((Refuted, SpecError)):
                discharge(mutant, Budget())
        refused += 1
    assert refused


def test_a_proof_of_other_statements_is_none():
    proved = ELEMENTWISE.find("avx2", lookup(16))
    with pytest.raises(SpecError, match="the statements differ"):
        Proved.on_record(proved.artifact, proved.statements[:-1])


@pytest.mark.parametrize("spec", words.every()[:4], ids=lambda x: x.name)
def test_words_are_what_their_codes_ask_for(spec):
    """The text that C is made of is proved; one with another plane, operator or order of planes is refuted."""
    discharge_words(spec, Budget())
    changes = [("a[0]", "b[0]"), ("~b[0]", "b[0]"), ("b[i] ^ (", "a[i] ^ ("), (" & (a", " | (a")]
    if spec.planes > 1:
        changes += [("~(a[1]", "(a[1]"), ("a[1] &", "a[0] &"), ("^ b[1])", "^ b[0])")]
    for old, new in changes:
        mutant = msgspec.structs.replace(spec, meaning=spec.meaning.replace(old, new))
        assert mutant != spec
        with pytest.raises(Refuted, match="is wrong for"):
            discharge_words(mutant, Budget())


@pytest.mark.slow
@pytest.mark.parametrize("spec", words.every()[4:], ids=lambda x: x.name)
def test_words_of_many_planes_are_proved(spec):
    discharge_words(spec, Budget())


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "spec"), AGAIN, ids=lambda x: getattr(x, "name", x))
def test_z3_proves_it_again(isa, spec):
    assert Proved.by_solver(ELEMENTWISE.find(isa, spec).artifact, Budget()).artifact.spec == spec
