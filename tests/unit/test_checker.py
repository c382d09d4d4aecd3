"""The checker: its lemmas, the kernels that it refuses, the modules that it does not import."""

import subprocess
import sys

import pytest
from support.case_selection import quick
from support.programs import change
from support.solved_kernels import REPRESENTATIVE, kernel, name

from bitsynth import paths
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa import load, tested
from bitsynth.kernel.in_order.halves import half_loads
from bitsynth.kernel.inputs import Build, Table
from bitsynth.kernel.program import MATRIX
from bitsynth.kernel.straight_line import sign_shift
from bitsynth.proof import checker, matmul
from bitsynth.schedule.flush import max_trip_counts, with_trip_count
from bitsynth.store.matmul import MATMUL

KERNELS = sorted(paths.shipped_kernels().glob("*/*.json"))


def with_pass(found, index=0, **fields):
    passes = list(found.passes)
    passes[index] = change(passes[index], **fields)
    return change(found, passes=tuple(passes))


@pytest.mark.parametrize("path", quick(KERNELS[::5], of=KERNELS), ids=lambda p: p.stem)
def test_the_lemmas_compose_end_to_end(path):
    entry = MATMUL.read(path)
    assert_composed(entry.kernel, entry.certificate.lemmas)


@pytest.mark.parametrize("config", quick(REPRESENTATIVE[::3], of=REPRESENTATIVE), ids=name)
def test_the_lemmas_of_every_method_compose(config):
    found = kernel(*config)
    assert_composed(found, checker.check(found).lemmas)


def assert_composed(found, stored):
    lemmas = checker.check(found).lemmas
    kinds = [x.partition(":")[0] for x in lemmas]
    passes = [f"pass {i}" for i, p in enumerate(found.passes) for _ in range(2 + len(p.loops))]
    tables = ["table"] if found.build else []
    matrices = ["matrices"] if found.order == MATRIX else []
    assert kinds == ["memory", *matrices, *tables, *passes, "bit", "padding", "loop", "encoding"]
    assert lemmas == stored


def test_what_the_lemmas_say():
    found = kernel("neon", "popcount", 2, 2)
    loop = found.passes[0]
    lemmas = checker.check(found).lemmas
    lanes = sum(int(acc.type.split("x")[1]) for acc in loop.step.accs)
    assert any(f"a step adds to each of {lanes} accumulator lanes a sum of bits in [0, " in x for x in lemmas)
    assert any(f"{found.k_step} positions of K a step, {len(loop.step.steps)} instructions" in x for x in lemmas)
    assert any(f"a flush every {loop.flush_every} steps moves every lane to its column, none" in x for x in lemmas)
    assert any("act * bipolar(wgt) == row term + column term + sum on all 16 rows" in x for x in lemmas)


def test_what_the_lemmas_of_a_lookup_say():
    found = kernel("neon", "lookup", 2, 1)
    inner, outer = found.passes[0].loops
    lemmas = checker.check(found).lemmas
    assert any("each of 16 entries is the sum of the values, up to 3, that its number selects" in x for x in lemmas)
    lanes = sum(int(acc.type.split("x")[1]) for acc in outer.accs)
    assert any(
        f"loop 1 adds {inner.trip_count} runs of the loop inside to {lanes} lanes, none overflows" in x for x in lemmas
    )


def test_what_the_lemmas_of_mixed_sums_say():
    found = kernel("avx2", "lookup", 2, 1)
    inner, outer = found.passes[0].loops
    (text,) = (x for x in checker.check(found).lemmas if "loop 1 adds" in x)
    lanes = 16 * len(outer.accs)
    wrap = f"{lanes // 2} of which hold sums modulo 2**16"
    assert text.endswith(f"{inner.trip_count} runs of the loop inside to {lanes} lanes, {wrap}")


@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_a_recorder_changes_nothing(config):
    found = kernel(*config)
    lemmas, obligations = matmul.examine(found)
    assert lemmas == checker.check(found).lemmas
    programs = [program for p in found.passes for program in p.programs]
    build = found.build.steps if found.build else ()
    moves = {getattr(found.memory, field) for field in found.memory.__struct_fields__}
    moves |= {found.build.load, found.build.store} if found.build else set()
    isa = load.load(found.isa)
    halves = [half_loads(isa, cpu) for cpu in isa.table.in_order]
    moves |= {form for x in halves if x for form in (x.load, x.join)}
    moves |= {sign_shift(isa).name} if found.shifts else set()
    assert {u.op for u in obligations} == {s.op for program in (*programs, build) for s in program} | moves


@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_max_trip_counts_are_where_proofs_end(config):
    found = kernel(*config)
    isa = load.load(found.isa)
    for chain in found.chains:
        longest = max_trip_counts(isa, found, chain)
        assert [[x.trip_count for x in p.loops] for p in chain] == [[x.trip_count for x in p.loops] for p in longest]
        for level, nested in enumerate(chain[0].loops):
            if nested.trip_count >= 1 << 24:
                continue
            after = "the flush|what is carried" if level + 1 == len(chain[0].loops) else f"loop {level + 1}"
            with pytest.raises(Refuted, match=f"({after}|the step) cannot be shown exact"):
                checker.check(with_chain(found, chain, level, nested.trip_count + 1))


@pytest.mark.parametrize("config", REPRESENTATIVE[:3], ids=name)
def test_shorter_loops_are_right_too(config):
    found = kernel(*config)
    chain = found.chains[0]
    for level, nested in enumerate(chain[0].loops):
        for times in {1, 2, nested.trip_count // 2, nested.trip_count - 1} - {0}:
            assert checker.check(with_chain(found, chain, level, times))


def with_chain(found, chain, level, times):
    """The kernel with another bound on the runs of one loop of every pass of the chain."""
    return change(found, passes=tuple(with_trip_count(p, level, times) if p in chain else p for p in found.passes))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"column_terms": (0, 3, 6, 10)}, r"act code 0 times wgt code 3 gives 1, want 0"),
        ({"row_terms": (0, 0, 1, 0)}, r"act code 2 times wgt code 0 gives -5, want -6"),
        ({"column_terms": (1, 4, 7, 10), "row_terms": (-1, -1, -1, -1)}, "zero padding would count"),
    ],
)
def test_wrong_terms_are_refuted(fields, message):
    with pytest.raises(Refuted, match=message):
        checker.check(change(kernel("avx2", "popcount", 2, 2), **fields))


def test_either_operand_in_rows():
    """A kernel is right for the operands it says are rows, and for no others."""
    found = kernel("avx2", "lookup", 2, 2)
    with pytest.raises(Refuted, match=r"act code . times wgt code . gives"):
        checker.check(change(found, swapped=not found.swapped))


def test_columns_out_of_order():
    found = kernel("neon", "popcount", 1, 1)
    slots = (found.slots[1], found.slots[0], *found.slots[2:])
    with pytest.raises(Refuted, match=r"column 0 takes in column 1|column 1 takes in column 0"):
        checker.check(change(found, slots=slots))


def test_every_position_counts():
    """A table that does not count one bit of a byte."""
    found = kernel("avx2", "popcount", 1, 1)
    c = found.constants[0]
    blind = tuple((lane % 16 & 7).bit_count() for lane in range(32))
    constants = (change(c, lanes=blind), *found.constants[1:])
    with pytest.raises(Refuted, match="does not count every position of K alike"):
        checker.check(change(found, constants=constants))


LOOKUP = ("neon", "lookup", 2, 1)


@pytest.mark.parametrize("at", quick(range(3, 16, 4), of=range(16)))
def test_a_table_with_one_wrong_entry(at):
    """Each entry is the sum its number selects: the last round's constant is changed at one of them."""
    found = kernel(*LOOKUP)
    build = found.build
    last = build.constants[-1]
    lanes = tuple((x + 1) % 16 if k == at else x for k, x in enumerate(last.lanes))
    wrong = change(build, constants=(*build.constants[:-1], change(last, lanes=lanes)))
    assert_table_refused(found, wrong)


def assert_table_refused(found, build: Build):
    """Unless the entries are the same, which the interpreter says of the bytes of a row."""
    from bitsynth.proof import counterexample

    changed = change(found, build=build)
    if counterexample.counterexample(changed, thorough=False) is None:
        checker.check(changed)
        return
    with pytest.raises(Refuted, match=r"entry \d+ is another sum|cannot be shown exact"):
        checker.check(changed)


def test_two_codes_of_a_table_change_places():
    found = kernel(*LOOKUP)
    other = {0: 1, 1: 0}
    stage = tuple(other.get(n, n) for n in found.build.stage)
    with pytest.raises(Refuted, match="is another sum"):
        checker.check(change(found, build=change(found.build, stage=stage)))


def test_an_entry_of_another_round():
    found = kernel(*LOOKUP)
    for step in found.build.steps[:-1]:
        with pytest.raises((Refuted, SpecError), match=r"is another sum|cannot be shown exact"):
            checker.check(change(found, build=change(found.build, table=step.dst)))


def test_values_that_do_not_fit_a_byte():
    found = kernel("avx2", "lookup", 2, 2)
    passes = tuple(
        change(p, rows=tuple(change(x, values=(0, 1, 2, 64)) for x in p.rows if isinstance(x, Table)))
        for p in found.passes
    )
    with pytest.raises(Refuted, match="sums of 4 values up to 64 do not fit the bytes of a table"):
        checker.check(change(found, passes=passes))


def test_a_lookup_takes_the_positions_of_its_table():
    """Columns of other positions than the table's: each bit would select another code's value."""
    found = kernel("neon", "lookup", 2, 1)
    loop = found.passes[0]
    if len(loop.rows) < 2:
        later = change(loop.rows[0], first=found.k_step)
        wider = change(found, k_step=2 * found.k_step)
        wrong = with_pass(wider, rows=(later,))
    else:
        wrong = with_pass(found, columns=loop.columns[::-1])
    with pytest.raises(Refuted, match=r"different positions of K|another position of K"):
        checker.check(wrong)


@pytest.mark.parametrize("config", [c for c in REPRESENTATIVE if c[1] in ("multiply", "dot")], ids=name)
def test_a_product_is_of_one_position(config):
    """Rows one position ahead of the columns, in steps that are one longer."""
    found = kernel(*config)
    later = tuple(change(x, first=x.first + 1) for x in found.passes[0].rows)
    wrong = with_pass(change(found, k_step=found.k_step + 1), rows=later)
    with pytest.raises(Refuted, match="bits of different positions of K are multiplied"):
        checker.check(wrong)


def test_a_first_run_that_is_another():
    """What the first run leaves is what every run adds."""
    found = kernel("avx2", "lookup", 2, 2)
    loop = found.passes[0]
    accs = loop.step.accs
    turned = tuple(change(a, start=b.start) for a, b in zip(accs, (*accs[1:], accs[0]), strict=True))
    step = change(loop.step, accs=turned)
    with pytest.raises(Refuted, match="the first run leaves in acc0 another sum than a run adds"):
        checker.check(with_pass(found, loops=(step, *loop.loops[1:])))


def test_untested_instructions_are_refused(monkeypatch):
    monkeypatch.setattr(tested, "is_tested", lambda instr: instr.name != "xor.u8x32")
    with pytest.raises(SpecError, match=r"xor\.u8x32 is not differential-tested"):
        checker.check(kernel("avx2", "popcount", 1, 1))


def test_an_instruction_set_that_does_not_exist():
    with pytest.raises(SpecError, match="unknown instruction set 'sse9'"):
        checker.check(change(kernel("avx2", "popcount", 1, 1), isa="sse9"))


@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_forms_used_are_all_that_c_will_contain(config):
    found = kernel(*config)
    isa = load.load(found.isa)
    used = {*found.forms}
    assert {found.memory.load, found.memory.store_tile} <= used
    assert (found.memory.add_tile in used) >= found.has_row_terms
    assert all(op in isa.instrs for op in used)
    if found.build:
        assert {found.build.load, found.build.store, *(s.op for s in found.build.steps)} <= used


def test_the_checker_and_the_search_import_neither_solver_nor_synthesizer():
    text = (
        "import sys; import bitsynth, bitsynth.proof.checker, bitsynth.proof.counterexample, bitsynth.store.matmul\n"
        "bitsynth.get_kernel('neon', 2, 2).source; "
        "print([m for m in sys.modules if m == 'z3' or m in ('bitsynth.synth', 'bitsynth.sketches')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
