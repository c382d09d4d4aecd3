"""Depthwise kernels: stored certificates, the sketch's choice, mutants that are refused."""

import pytest
from support.programs import change, lines

from bitsynth import paths
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.isa.step import from_json, to_json
from bitsynth.layers.epilogues.requantize import requantize_spec
from bitsynth.layers.epilogues.thresholds import thresholds_spec
from bitsynth.proof import depthwise as proof
from bitsynth.proof.proved import Proved
from bitsynth.schedule.depthwise import WIDTHS, cheapest, method_of, ops
from bitsynth.solver.budget import Budget
from bitsynth.spec.rescaling import CodeForm
from bitsynth.store.depthwise import DEPTHWISE, DepthwiseEntry
from bitsynth.store.elementwise import ELEMENTWISE

SHIPPED = sorted(paths.shipped_kernels().rglob("bs_dw_*.json"))
SETS = ("armv7_neon", "avx2", "avx512", "neon")
DOT = ("avx512", "neon_dotprod")
"""Sets with a kernel of dot products."""
KERNELS = [*((isa, "multiply") for isa in SETS), *((isa, "dot") for isa in DOT)]


def program_of(isa, act_bits=4, w_bits=4, method="multiply"):
    return DEPTHWISE.load(DEPTHWISE.find(isa, act_bits, w_bits, method)).artifact


def test_every_set_has_kernels_of_all_widths():
    assert len(SHIPPED) == len(SETS) * len(WIDTHS) ** 2 + len(DOT)
    for path in SHIPPED:
        DEPTHWISE.load(path)


@pytest.mark.parametrize(("isa", "method"), KERNELS)
def test_shipped_kernels_are_what_the_sketch_gives(isa, method):
    for act_bits, w_bits in ((2, 2), (8, 8)) if method == "multiply" else ((8, 8),):
        found = cheapest(load(isa), act_bits, w_bits, method)
        assert found == program_of(isa, act_bits, w_bits, method)
        assert method_of(found) == method


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED[::2], ids=lambda p: p.stem)
def test_solver_discharges_what_is_on_record(path):
    on_record = DEPTHWISE.load(path)
    proved = Proved.by_solver(on_record.artifact, Budget())
    assert DEPTHWISE.record_of(proved) == DEPTHWISE.record_of(on_record)


def programs_changed(program):
    """The kernel with one line of step or flush changed: another operand, another instruction of the same types."""
    for steps in lines_changed(program, program.steps, ["a0", "w0", "acc0"]):
        yield change(program, steps=steps)
    for steps in lines_changed(program, program.flushes[-1].steps, ["acc0", "c0", "c1"]):
        yield flush_changed(program, len(program.flushes) - 1, steps=steps)


def flush_changed(kernel, k, **changes):
    flushes = (*kernel.flushes[:k], change(kernel.flushes[k], **changes), *kernel.flushes[k + 1 :])
    return change(kernel, flushes=flushes)


def lines_changed(program, steps, inputs):
    isa = load(program.isa)
    for k, line in enumerate(steps):
        for other in step_changed(isa, inputs, line):
            yield (*steps[:k], other, *steps[k + 1 :])


def step_changed(isa, inputs, step):
    for k in range(len(step.args)):
        for name in (x for x in inputs if x != step.args[k]):
            yield change(step, args=(*step.args[:k], name, *step.args[k + 1 :]))
    instr = isa[step.op]
    for op, other in isa.instrs.items():
        same = [o.type for o in other.operands] == [o.type for o in instr.operands] and other.out == instr.out
        if same and op != step.op and not other.reads_memory and not other.store and bool(other.imm) == bool(instr.imm):
            yield change(step, op=op)
    if instr.imm:
        yield change(step, imm=1 - step.imm)


def fields_changed(program):
    yield change(program, flush_every=program.flush_every + 1)
    yield change(program, act=(program.act[0], 2 * program.act[1] + 1), act_bits=program.act_bits + 1)
    yield change(program, wgt=(2 * program.wgt[0] - 1, 2 * program.wgt[1] + 1))
    yield change(program, weights=tuple(places[::-1] for places in program.weights))
    for k, acc in enumerate(program.accs):
        yield change(program, accs=(*program.accs[:k], change(acc, next="a0"), *program.accs[k + 1 :]))
    for n, flush in enumerate(program.flushes):
        yield flush_changed(program, n, tile=flush.tile[::-1])
        yield flush_changed(program, n, order=(*flush.order[1:], flush.order[0]))
        for k, constant in enumerate(flush.constants):
            rolled = change(constant, lanes=(*constant.lanes[1:], constant.lanes[0]))
            yield flush_changed(program, n, constants=(*flush.constants[:k], rolled, *flush.constants[k + 1 :]))
    yield change(program, flushes=program.flushes[::-1] if len(program.flushes) > 1 else ())
    yield change(program, flushes=(*program.flushes, program.flushes[0]))


@pytest.mark.parametrize(
    ("isa", "method"), [pytest.param(*x, marks=pytest.mark.slow if x[0].startswith("avx") else ()) for x in KERNELS]
)
def test_mutants_are_refused(isa, method):
    whole, alive = program_of(isa, *((8, 8) if method == "dot" else (4, 4)), method), []
    program = change(whole, flushes=tuple(dict.fromkeys((whole.flushes[0], whole.flushes[-1]))))
    mutants = [*fields_changed(program), *programs_changed(program)]
    assert len(mutants) > 20
    for mutant in mutants:
        try:
            proof.examine(mutant)
        except (Refuted, SpecError):
            continue
        alive.append(mutant)
    assert not alive


def test_equal_instructions_of_other_lanes_are_no_mutants():
    """An instruction that does the same on other types is as right: a proof is about its effect."""
    program = program_of("avx2")
    flush = tuple(line.replace("add.u32x8", "add.s32x8") for line in lines(program.flushes[0].steps))
    assert flush != lines(program.flushes[0].steps)
    changed = flush_changed(program, 0, program=flush)
    proof.examine(changed)
    with pytest.raises(SpecError, match="the instruction lemmas differ"):
        Proved.on_record(changed, DEPTHWISE.load(DEPTHWISE.find("avx2", 4, 4)).statements)


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_sums_come_in_the_orders_of_programs_that_make_bytes(isa):
    assert program_of("avx512").orders == program_of("avx512", 8, 8, "dot").orders
    orders = program_of(isa).orders
    specs = [requantize_spec(CodeForm(out), row=False, wide=wide) for out in ("u8", "s16") for wide in (False, True)]
    specs += [thresholds_spec(3, words=False, narrow=narrow) for narrow in (False, True)]
    found = [one.artifact.order for spec in specs if (one := ELEMENTWISE.find(isa, spec))]
    assert len(found) > 4
    assert set(found) <= set(orders)


def test_a_damaged_file_is_refused(tmp_path):
    path = DEPTHWISE.find("avx2", 4, 4)
    entry = from_json(path.read_bytes(), DepthwiseEntry)
    damaged = tmp_path / path.name
    damaged.write_bytes(to_json(change(entry, program=change(entry.program, flush_every=1))))
    with pytest.raises(SpecError, match="edited or damaged"):
        DEPTHWISE.load(damaged)
    false = change(entry, program=change(entry.program, flush_every=73))
    damaged.write_bytes(to_json(change(false, digest=false.expected_digest)))
    with pytest.raises(SpecError, match="after 73 steps"):
        DEPTHWISE.load(damaged)


@pytest.mark.parametrize("changed", [{"act_bits": -1}, {"act_bits": 1 << 62}, {"taps": 1 << 40}, {"wgt": (0, 1)}])
def test_sizes_that_no_kernel_has_are_refused(changed):
    with pytest.raises(SpecError, match="malformed depthwise kernel"):
        proof.examine(change(program_of("avx2"), **changed))


def test_a_proof_is_made_in_two_ways_only():
    with pytest.raises(TypeError, match="by_solver"):
        Proved()
    with pytest.raises(SpecError, match="lemmas differ"):
        Proved.on_record(program_of("avx2"), ())


def test_cost_counts_steps_and_flushes():
    """AVX2, 3 x 3: five steps of 6 instructions, a flush of 12, two accumulators at zero, over 9 x 32 products."""
    assert ops(load("avx2"), program_of("avx2")) == pytest.approx((5 * 6 + 12 + 2) * 128 / (9 * 32))
