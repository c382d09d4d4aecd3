"""The checker: what it states, what it refuses, what it does not import."""

import subprocess
import sys

import msgspec
import pytest

from bitsynth import cache, paths, verify
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa import check as isa_check
from bitsynth.isa import load

change = msgspec.structs.replace
KERNELS = sorted(paths.shipped_kernels().glob("*/*.json"))


def shipped(isa, widths):
    (path,) = (paths.shipped_kernels() / isa).glob(f"bs_mm_{widths}_*.json")
    return cache.read_entry(path).kernel


def with_pass(kernel, index=0, **fields):
    passes = list(kernel.passes)
    passes[index] = change(passes[index], **fields)
    return change(kernel, passes=tuple(passes))


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_the_lemmas_compose_end_to_end(path):
    kernel = cache.read_entry(path).kernel
    lemmas = verify.check(kernel).lemmas
    kinds = [x.partition(":")[0] for x in lemmas]
    passes = [f"pass {i}" for i in range(len(kernel.passes)) for _ in range(3)]
    assert kinds == ["memory", *passes, "bit", "padding", "loop"]
    assert lemmas == cache.read_entry(path).certificate.lemmas


def test_what_the_lemmas_say():
    kernel = shipped("neon", "a2u_w2b")
    loop = kernel.passes[0]
    lemmas = verify.check(kernel).lemmas
    lanes = sum(int(acc.type.split("x")[1]) for acc in loop.accs)
    assert any(f"a step adds to each of {lanes} accumulator lanes a sum of bits in [0, " in x for x in lemmas)
    assert any(f"{kernel.k_step} positions of K a step, {len(loop.step)} instructions" in x for x in lemmas)
    assert any(f"a flush every {loop.flush_every} steps moves every lane to its column, none" in x for x in lemmas)
    assert any("act * bipolar(wgt) == g(wgt) + h(act) - counts on all 16 rows" in x for x in lemmas)


def test_a_recorder_changes_nothing():
    kernel = shipped("avx2", "a3u_w3b")
    lemmas, uses = cache.examine(kernel)
    assert lemmas == verify.check(kernel).lemmas
    assert {u.op for u in uses} == {s.op for p in kernel.passes for s in (*p.step_program, *p.flush_program)}


@pytest.mark.parametrize("path", KERNELS[::4], ids=lambda p: p.stem)
def test_the_longest_period_is_where_proofs_end(path):
    kernel = cache.read_entry(path).kernel
    isa = load.load(kernel.isa)
    for index, loop in enumerate(kernel.passes):
        longest = verify.longest_period(isa, kernel, loop)
        assert loop.flush_every <= longest
        verify.check(with_pass(kernel, index, flush_every=longest))
        with pytest.raises(Refuted, match=f"the flush cannot be shown exact after {longest + 1} steps"):
            verify.check(with_pass(kernel, index, flush_every=longest + 1))


def test_a_shorter_period_is_right_too():
    kernel = shipped("avx2", "a2u_w2b")
    for period in range(1, kernel.passes[0].flush_every):
        assert verify.check(with_pass(kernel, flush_every=period))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"g_table": (0, 3, 6, 10)}, r"act code 0 times wgt code 3 gives 1, want 0"),
        ({"h_table": (0, 0, 1, 0)}, r"act code 2 times wgt code 0 gives -5, want -6"),
        ({"g_table": (1, 4, 7, 10), "h_table": (-1, -1, -1, -1)}, "zero padding would count"),
    ],
)
def test_tables(fields, message):
    with pytest.raises(Refuted, match=message):
        verify.check(change(shipped("avx2", "a2u_w2b"), **fields))


def test_columns_out_of_order():
    kernel = shipped("neon", "a1u_w1b")
    slots = (kernel.slots[1], kernel.slots[0], *kernel.slots[2:])
    with pytest.raises(Refuted, match=r"column 0 takes in column 1|column 1 takes in column 0"):
        verify.check(change(kernel, slots=slots))


def test_every_position_counts():
    """A table that does not count one bit of a byte."""
    kernel = shipped("avx2", "a1u_w1b")
    c = kernel.constants[0]
    blind = tuple((lane % 16 & 7).bit_count() for lane in range(32))
    constants = (change(c, lanes=blind), *kernel.constants[1:])
    with pytest.raises(Refuted, match="does not count every position of K alike"):
        verify.check(change(kernel, constants=constants))


def test_untested_instructions_are_refused(monkeypatch):
    monkeypatch.setattr(isa_check, "is_tested", lambda instr: instr.name != "xor.u8x32")
    with pytest.raises(SpecError, match=r"xor\.u8x32 is not differential-tested"):
        verify.check(shipped("avx2", "a1u_w1b"))


def test_an_instruction_set_that_does_not_exist():
    with pytest.raises(SpecError, match="unknown instruction set 'sse9'"):
        verify.check(change(shipped("avx2", "a1u_w1b"), isa="sse9"))


def test_forms_used_are_all_that_c_will_contain():
    kernel = shipped("avx2", "a3u_w3b")
    isa = load.load("avx2")
    used = verify.forms_used(isa, kernel)
    assert {kernel.memory.load, kernel.memory.store_tile} <= used
    assert (kernel.memory.add_tile in used) >= kernel.has_row_terms
    assert all(op in isa.instrs for op in used)


def test_the_checker_and_the_search_import_neither_solver_nor_synthesizer():
    text = (
        "import sys; from bitsynth import verify, simulate, cache, api; api.get_kernel('neon', 2, 2).source; "
        "print([m for m in sys.modules if m == 'z3' or m in ('bitsynth.synth', 'bitsynth.sketches')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
