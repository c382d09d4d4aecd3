"""A proof as a type: what makes one, what does not, and which lemmas follow from which."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache as memoize
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.programs import change

from bitsynth import paths
from bitsynth.errors import Refuted, SpecError, Undecided
from bitsynth.isa import load
from bitsynth.kernel.program import Kernel
from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.proof import discharge, encodings, matmul
from bitsynth.proof.encodings import encoding_lemma
from bitsynth.proof.matmul import examine
from bitsynth.proof.obligations import Lane, Obligation, implies
from bitsynth.proof.proved import Proved, statements
from bitsynth.schedule.flush import with_flush_period
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, affine
from bitsynth.store.accept import accept
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.store.entry import ProvedEntry
from bitsynth.store.matmul import MATMUL

AVX2 = load.load("avx2")
SHIPPED = sorted(paths.shipped_kernels().rglob("bs_mm_*.json"))
PAIRS_BY_MASKS = {paths.shipped_kernels() / isa / "pairs-c64" for isa in ("avx2", "avxvnni")}
"""Kernels of pairs of rows that separate the sums of both rows by masks."""
OF_METHODS = [p for p in SHIPPED if p.parent.name.endswith("-c64") and "_a2u_w2b_" in p.stem]


@pytest.fixture
def lookup():
    """The kernel whose sums were once flushed more often without a proof of it."""
    return get_kernel("avx2", 2, 1, method="lookup")


def more_flushes(found, steps):
    passes = tuple(with_flush_period(loop, steps) for loop in found.entry.kernel.passes)
    return change(found.entry.kernel, passes=passes)


def new_lemmas(found, kernel):
    return found.form(kernel).proved.obligations - found.proved.obligations


def test_lemmas_that_were_not_discharged_follow_from_those_that_were(lookup):
    """Fewer steps between flushes: other lemmas, each of which Z3 would prove as well."""
    new = new_lemmas(lookup.proved_entry, more_flushes(lookup.proved_entry, 3))
    assert new
    assert discharge.discharge(AVX2, new, Budget()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED[::26], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_form_of_a_shipped_kernel_follows_from_it(path):
    found = MATMUL.load(path)
    longest = max(p.flush_every for p in found.entry.kernel.passes)
    flushes = {1, 2, 3, 17, 100, longest // 2 or 1, longest - 1 or 1}
    if path.parent in PAIRS_BY_MASKS:
        # Sums of one step fit the bits that a mask keeps, so that the lemmas of more steps do not cover them.
        with pytest.raises(SpecError, match="does not follow from its proof"):
            new_lemmas(found, more_flushes(found, 1))
        flushes.remove(1)
    kernels = [more_flushes(found, steps) for steps in flushes]
    kernels += [change(found.entry.kernel, **other) for other in ({"rows": found.entry.kernel.together}, {"unroll": 2})]
    new = set().union(*(new_lemmas(found, k) for k in kernels))
    discharge.discharge(load.load(found.entry.kernel.isa), new, Budget())


@pytest.mark.parametrize("path", OF_METHODS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_what_rows_and_orders_rest_on_is_what_they_are_checked_for(path):
    """A form with other rows, unrolling or order has its kernel's lemmas: the checker makes the same of it anew."""
    found = MATMUL.load(path)
    kernel, isa = found.proved.artifact, found.proved.artifact.isa
    order = next(iter(load.load(isa).table.in_order), "steps")
    other = change(kernel, rows=kernel.together, unroll=3, bit_axis=kernel.bit_axes[-1], order=order)
    result = found.proved.form(other)
    assert result.artifact == other
    assert examine(other) == (result.lemmas, result.obligations) == (found.proved.lemmas, found.proved.obligations)
    with pytest.raises(SpecError, match="rows"):
        found.proved.form(change(kernel, rows=25))


def test_what_does_not_follow_is_refused(lookup, monkeypatch):
    """Nothing is sealed whose lemmas nobody discharged."""
    monkeypatch.setattr(matmul, "implies", lambda *_: False)
    with pytest.raises(SpecError, match=r"does not follow from its proof \(instruction: .*\); take another"):
        lookup.proved_entry.form(more_flushes(lookup.proved_entry, 5))


def test_longer_loops_do_not_follow_from_shorter_ones(lookup):
    with pytest.raises(SpecError, match="does not follow from its proof"):
        lookup.with_flushes(3).proved_entry.form(lookup.entry.kernel)


@pytest.mark.parametrize("other", [("avx2", 2, 2), ("avx2", 1, 1), ("avxvnni", 2, 1), ("neon", 2, 1)], ids=str)
def test_another_kernel_is_not_a_form(lookup, other):
    with pytest.raises(SpecError, match="another kernel is not a form of this one"):
        lookup.proved_entry.form(get_kernel(*other).entry.kernel)
    with pytest.raises(SpecError, match="another kernel is not a form of this one"):
        lookup.proved_entry.form(change(lookup.entry.kernel, columns=32))


def test_nothing_is_claimed_of_a_form(lookup, tmp_path, monkeypatch):
    """That it is minimal, or what other methods take, was shown of the kernel it is a form of; nor is it stored."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    assert lookup.cost.minimal == "least steady loop of lookup sketches with at most 4 positions"
    form = lookup.with_flushes(1)
    assert (form.cost.minimal, form.certificate.minimality, form.entry.runners_up) == ("", (), ())
    assert form.cost.ops_per_128_mac > lookup.cost.ops_per_128_mac
    with pytest.raises(SpecError, match=f"is made of {lookup.entry.name} where it is wanted, not stored"):
        MATMUL.store(form.proved_entry)
    assert not list(tmp_path.rglob("*.json"))


def test_a_form_is_derived_once_a_process(lookup):
    assert lookup.with_flushes(7).proved_entry is lookup.with_flushes(7).proved_entry
    assert get_kernel("avx2", 2, 1, method="lookup").with_rows(2).proved_entry is lookup.with_rows(2).proved_entry


def test_a_proof_is_asked_before_anything_is_sealed(lookup):
    """Discharging that fails leaves nothing behind; a record of other lemmas is one."""
    kernel = lookup.entry.kernel
    with pytest.raises(Undecided, match="--rlimit"):
        Proved.by_solver(kernel, Budget(1))
    known = statements(examine(kernel)[1])
    for record in (known[1:], (*known, "instruction: more"), ()):
        with pytest.raises(SpecError, match="the instruction lemmas differ"):
            Proved.on_record(kernel, record)
    assert Proved.on_record(kernel, known).statements == known


def test_how_a_kernel_was_proved_is_known(lookup):
    kernel = get_kernel("avx2", 1, 1, method="popcount").entry.kernel
    assert Proved.by_solver(kernel, Budget()).how == "discharged"
    assert lookup.proved_entry.proved.how == "on record"
    assert lookup.with_flushes(3).proved_entry.proved.how == "derived"


def test_a_kernel_the_checker_refuses_is_not_discharged(lookup, monkeypatch):
    monkeypatch.setattr(discharge, "discharge", lambda *_: pytest.fail("discharged"))
    with pytest.raises(Refuted):
        Proved.by_solver(change(lookup.entry.kernel, row_terms=(1, 1, 1, 1)), Budget())


def test_nothing_but_what_is_proved_becomes_a_kernel(lookup, tmp_path, monkeypatch):
    """Neither an entry as it is read, nor a program, nor a proof of other widths."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    for other in (lookup.entry, lookup.entry.kernel, lookup.proved_entry.proved):
        with pytest.raises(SpecError, match=f"not of {type(other).__name__}"):
            MatmulKernel(other, lookup.spec)
        with pytest.raises(SpecError, match=f"not of {type(other).__name__}"):
            MATMUL.store(other)
    assert not list(tmp_path.rglob("*.json"))

    class Other(Kernel, frozen=True):
        """A kernel that could answer otherwise later."""

    fields = {name: getattr(lookup.entry.kernel, name) for name in lookup.entry.kernel.__struct_fields__}
    depthwise = PROOFS["depthwise kernel"]()
    with pytest.raises(SpecError, match="the proof is of DepthwiseProgram, not of a kernel"):
        ProvedEntry(depthwise, lookup.proved_entry.options, (), 0.0)
    with pytest.raises(SpecError, match="is no form of"):
        lookup.proved_entry.proved.form(depthwise.artifact)
    with pytest.raises(SpecError, match="a depthwise kernel has no forms"):
        depthwise.form(depthwise.artifact)
    with pytest.raises(SpecError, match="nothing is proved of Other"):
        Proved.by_solver(Other(**fields), Budget())
    with pytest.raises(SpecError, match="sealed by a proof, not by Kernel"):
        ProvedEntry(lookup.entry.kernel, lookup.proved_entry.options, (), 0.0)
    for spec in (MatmulSpec.plain("avx2", 3, 1), MatmulSpec.plain("neon", 2, 1)):
        with pytest.raises(SpecError, match="the proof is of 2-bit unsigned x 1-bit bipolar on avx2"):
            MatmulKernel(lookup.proved_entry, spec)


def test_a_kernel_of_other_encodings_rests_on_the_same_proof(lookup):
    ternary = MatmulSpec("avx2", MatmulOperand(2, Encoding.TERNARY), MatmulOperand(1, Encoding.UNSIGNED))
    assert MatmulKernel(lookup.proved_entry, ternary).proved_entry is lookup.proved_entry
    assert get_kernel("avx2", 2, 1, "signed", method="lookup").proved_entry is lookup.proved_entry


PROOFS: dict[str, Callable[[], Any]] = {
    "kernel": lambda: get_kernel("avx2", 2, 1, method="lookup").proved_entry.proved,
    "program": lambda: ELEMENTWISE.load(ELEMENTWISE.find_named("greatest_avx2")),
    "depthwise kernel": lambda: DEPTHWISE.load(DEPTHWISE.find("avx2", 4, 4)),
}


@pytest.mark.parametrize("what", PROOFS)
def test_a_proof_cannot_be_made_by_other_means(what):
    held = PROOFS[what]()
    kind, fields = type(held), {name: getattr(held, name) for name in held.__slots__}
    with pytest.raises(TypeError, match="a proof is made by"):
        kind()
    with pytest.raises(TypeError):
        replace(held, **fields)
    with pytest.raises(AttributeError):
        setattr(held, held.__slots__[0], None)
    with pytest.raises((AttributeError, TypeError)):
        held.other = None
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(held)
    with pytest.raises(TypeError, match="is not unpickled"):
        object.__new__(kind).__setstate__(list(fields.values()))
    with pytest.raises(TypeError, match="no other kinds"):
        type("Other", (kind,), {})
    assert copy.copy(held) is held
    assert copy.deepcopy(held) is held


def test_an_entry_has_no_other_kinds():
    with pytest.raises(TypeError, match="no other kinds"):
        type("Other", (ProvedEntry,), {})


def test_a_kernel_that_was_run_is_copied_and_pickled():
    kernel = get_kernel("neon", 2, 1)
    vars(kernel)["runner"] = __import__("sys")  # as after `matmul`: what is compiled is no part of it
    assert pickle.loads(pickle.dumps(kernel)).entry == copy.deepcopy(kernel).entry == kernel.entry


def test_a_pickled_kernel_is_checked_where_it_is_read(lookup):
    for kernel in (lookup, lookup.with_flushes(3).with_rows(2)):
        again = pickle.loads(pickle.dumps(kernel))
        assert again.entry == kernel.entry
        assert again.proved_entry.proved.how == kernel.proved_entry.proved.how
        assert again.source == kernel.source
    with pytest.raises(Refuted):
        accept(change(lookup.entry, kernel=change(lookup.entry.kernel, column_terms=(0, 1))))
    with pytest.raises(SpecError, match=r"^lower bound, name differ$"):
        accept(change(lookup.entry, name="other", cost=change(lookup.entry.cost, lower_bound=99.0)))


def test_forms_that_move_data_are_lemmas_too(lookup):
    """Loads, broadcasts and stores of inputs, tables and tiles: what Z3 sees them do is what the checker took."""
    kernel = lookup.entry.kernel
    moved = {getattr(kernel.memory, field) for field in kernel.memory.__struct_fields__}
    moved |= {kernel.build.load, kernel.build.store}
    assert moved <= {obligation.op for obligation in lookup.proved_entry.proved.obligations}


def sums(low, high, n=32, width=8):
    return (Lane("sum", low, high, width),) * n


def add(left, right):
    return Obligation("add.u8x32", 0, (left, right), AVX2["add.u8x32"].meaning)


@pytest.mark.parametrize(
    ("wider", "obligation", "follows"),
    [
        (add(sums(0, 9), sums(0, 9)), add(sums(0, 9), sums(3, 8)), True),
        (add(sums(0, 255), sums(0, 9)), add(sums(-5, 5), sums(0, 9)), True),
        (add(sums(0, 9), sums(0, 9)), add(sums(0, 10), sums(0, 9)), False),
        (add(sums(0, 9), sums(0, 9)), add(sums(-1, 9), sums(0, 9)), False),
        (add(sums(0, 9), sums(0, 9)), replace(add(sums(0, 9), sums(0, 9)), meaning="a[i] - b[i]"), False),
        (add(sums(0, 9), sums(0, 9)), replace(add(sums(0, 9), sums(0, 9)), op="sub.u8x32"), False),
        (add(sums(0, 9), sums(0, 9)), add(sums(0, 9), (Lane("const", 3, 3, 8),) * 32), False),
        (add(sums(0, 9), sums(0, 9)), add(sums(0, 9), (Lane("bits", 0, 7, 8),) * 32), False),
    ],
)
def test_which_lemmas_follow(wider, obligation, follows):
    assert implies(AVX2, wider, obligation) is follows


def test_a_sign_is_not_taken_for_a_number():
    """In a wider result -1 and 255 are different, so bytes that may be either are not bytes of one kind."""

    def mad(*lanes):
        return Obligation("madd.s16x16", 0, lanes, AVX2["madd.s16x16"].meaning)

    ones = (Lane("const", 1, 1, 16),) * 16
    wide, narrow = sums(-100, 100, 16, 16), sums(3, 100, 16, 16)
    assert not implies(AVX2, mad(wide, ones), mad(narrow, ones))
    assert implies(AVX2, mad(wide, ones), mad(sums(-3, 100, 16, 16), ones))


OF = [("avx2", 2, 2, "lookup"), ("avx2", 2, 2, "multiply"), ("avx2", 2, 1, "popcount"), ("neon", 2, 1, None)]
OF += [("neon", 1, 1, None), ("neon_dotprod", 3, 3, None), ("avx512", 2, 1, "lookup")]


@memoize
def obligations():
    """What kernels of every method rest on: sums, bits, constants, halves of lanes, entries of tables."""
    items = [(isa, get_kernel(isa, act, wgt, method=method).proved_entry.proved) for isa, act, wgt, method in OF]
    return [
        (isa, obligation)
        for isa, proof in items
        for obligation in sorted(proof.obligations, key=lambda obligation: obligation.statement)
    ]


@st.composite
def pairs(draw):
    """An obligation, and the same with other ranges: most of them within the first, lanes alike or each its own."""
    isa, obligation = draw(st.sampled_from(obligations()))
    operands = tuple(draw(changed(lanes)) for lanes in obligation.operands)
    return isa, obligation, replace(obligation, operands=operands)


@st.composite
def changed(draw, lanes):
    alike, drawn = draw(st.booleans()), {}
    out = []
    for n, lane in enumerate(lanes):
        parts = (lane.kind, lane.pieces, lane.high) if lane.kind == "entry" else lane
        key = parts if alike or lane.kind == "entry" else (n, parts)
        if key not in drawn:
            drawn[key] = draw(other_range(lane))
        out.append(drawn[key]._replace(low=lane.low) if lane.kind == "entry" else drawn[key])
    return tuple(out)


@st.composite
def other_range(draw, lane):
    if lane.kind in ("pieces", "entry"):
        return lane._replace(pieces=tuple(draw(other_range(x)) for x in lane.pieces))
    if lane.kind != "sum" or draw(st.booleans()):
        return lane
    if draw(st.integers(0, 9)) == 0:
        ends = st.integers(-(1 << lane.bits - 1), (1 << lane.bits) - 1)
        low, high = sorted((draw(ends), draw(ends)))
        return lane._replace(low=low, high=high)
    low = draw(st.integers(lane.low, lane.high))
    return lane._replace(low=low, high=draw(st.integers(low, lane.high)))


def sound(isa, wider, obligation):
    """What follows from a lemma that was discharged holds: Z3 agrees with the rule."""
    event("follows" if implies(isa, wider, obligation) else "does not")
    if implies(isa, wider, obligation) and wider != obligation:
        discharge.discharge(isa, [obligation], Budget())


@given(pairs())
@settings(max_examples=25, deadline=None)
def test_the_rule_is_sound(pair):
    isa, wider, obligation = pair
    sound(load.load(isa), wider, obligation)


@pytest.mark.slow
@given(pairs())
@settings(max_examples=400, deadline=None)
def test_the_rule_is_sound_on_more(pair):
    isa, wider, obligation = pair
    sound(load.load(isa), wider, obligation)


def test_every_certificate_has_the_lemma_of_encodings():
    for path in SHIPPED:
        entry = MATMUL.read(path)
        lemma = encoding_lemma(entry.kernel.act_bits, entry.kernel.w_bits)
        assert entry.certificate.lemmas.count(lemma) == 1, path


@pytest.mark.parametrize("bits", [(1, 1), (2, 2), (8, 8)])
def test_a_wrong_correction_is_refuted(bits, monkeypatch):
    """One term of one code of one pair of encodings is off by one."""
    right = affine

    def wrong(spec):
        result = right(spec)
        if (spec.act.encoding, spec.wgt.encoding) != ("signed", "signed"):
            return result
        return replace(result, wgt_terms=(*result.wgt_terms[:-1], result.wgt_terms[-1] + 1))

    encoding_lemma.cache_clear()
    assert "exact on all" in encoding_lemma(*bits)
    monkeypatch.setattr(encodings, "affine", wrong)
    encoding_lemma.cache_clear()
    with pytest.raises(Refuted, match=r"signed code 0 times .*signed code \d+: the correction is off"):
        encoding_lemma(*bits)
    encoding_lemma.cache_clear()
