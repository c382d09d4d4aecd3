"""The programs that glue runs are stored with their proofs; wrong ones are refused by the checker and by Z3."""

import msgspec
import numpy as np
import pytest

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.element_run import run
from bitsynth.layers.glue.programs import SPECS
from bitsynth.proof import element_check
from bitsynth.proof.element_discharge import discharge
from bitsynth.proof.elementwise import ProvedProgram
from bitsynth.solver.budget import Budget
from bitsynth.spec.elementwise import greatest, lookup
from bitsynth.store import elementwise as store
from bitsynth.synth.elementwise import get_program

STORED = [
    *(("avx512", spec) for spec in SPECS),
    *((isa, spec) for isa in ("avx2", "neon", "armv7_neon") for spec in (greatest(), lookup(16))),
]


@pytest.mark.parametrize(("isa", "spec"), STORED, ids=lambda x: getattr(x, "name", x))
def test_it_is_stored_with_what_was_proved(isa, spec):
    proved = store.find(isa, spec)
    assert proved is not None
    assert proved.statements[0].endswith(f": {spec.meaning}")
    assert get_program(isa, spec).program == proved.program


@pytest.mark.parametrize(("isa", "spec"), STORED, ids=lambda x: getattr(x, "name", x))
def test_every_code_and_pair_by_numpy(isa, spec):
    """All there are: what the proof says, once more, by instructions run on numbers."""
    program = store.find(isa, spec).program
    if spec == greatest():
        a, b = (x.ravel() for x in np.meshgrid(np.arange(256), np.arange(256)))
        given = {name: np.broadcast_to(x, (1, program.unit, x.size)) for name, x in (("a", a), ("b", b))}
        want = np.maximum(a, b)
    else:
        entries = spec.inputs[1].count
        table, x = np.random.default_rng(0).integers(0, 256, entries), np.arange(entries)
        given = {"x": np.broadcast_to(x, (1, program.unit, entries)), "t": table[:, None, None].repeat(entries, axis=2)}
        want = table[x]
    assert (run(program, {k: v.astype(np.uint64) for k, v in given.items()}) == want).all()


def mutants(program):
    """The program with a step's operands exchanged, an instruction of another meaning, or another step's result."""
    step = program.steps[0]
    first, second, *rest = step.args
    if program.spec != greatest():  # the greater of two is that of them exchanged
        yield [f"{step.dst} = {step.op} {' '.join([second, first, *rest])}", *program.program[1:]]
    other = "sub" if load(program.isa).instrs.get(f"sub.{step.op.partition('.')[2]}") else "ssub"
    yield [f"{step.dst} = {other}.{step.op.partition('.')[2]} {first} {second}", *program.program[1:]]
    if len(program.program) > 1:
        yield [program.program[0], program.program[1].replace("t0_3", "t0_1"), *program.program[2:]]


@pytest.mark.parametrize(("isa", "spec"), STORED, ids=lambda x: getattr(x, "name", x))
def test_mutants_are_refused(isa, spec):
    proved, refused = store.find(isa, spec), 0
    for steps in mutants(proved.program):
        mutant = msgspec.structs.replace(proved.program, program=tuple(steps))
        with pytest.raises((Refuted, SpecError)):
            element_check.check(mutant)
        if spec in (greatest(), lookup(16)):
            with pytest.raises((Refuted, SpecError)):
                discharge(mutant, Budget())
        refused += 1
    assert refused


def test_a_proof_of_other_statements_is_none():
    proved = store.find("avx2", lookup(16))
    with pytest.raises(SpecError, match="the statements differ"):
        ProvedProgram.on_record(proved.program, proved.statements[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "spec"), STORED, ids=lambda x: getattr(x, "name", x))
def test_z3_proves_it_again(isa, spec):
    assert ProvedProgram.by_solver(store.find(isa, spec).program, Budget()).program.spec == spec
