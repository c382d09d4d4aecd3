"""A proof as a type: what makes one, what does not, and which lemmas follow from which."""

import copy
import pickle
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suites import quick

from bitsynth import api, cache, encodings, paths, prove, proved
from bitsynth.api import MatmulKernel, get_kernel
from bitsynth.encodings import encoding_lemma
from bitsynth.entry import ProvedEntry
from bitsynth.errors import Refuted, SpecError, Undecided
from bitsynth.isa import load
from bitsynth.proved import Proved, examine, implied_by, on_record, statements
from bitsynth.schedule.loops import flushed
from bitsynth.sketches.solver import Budget
from bitsynth.spec import MatmulSpec
from bitsynth.uses import Lane, Use, implies

AVX2 = load.load("avx2")
SHIPPED = sorted(paths.shipped_kernels().rglob("bs_mm_*.json"))


@pytest.fixture
def lookup():
    """The kernel whose sums were once flushed more often without a proof of it."""
    return get_kernel("avx2", 2, 1, method="lookup")


def more_flushes(found, steps):
    passes = tuple(flushed(loop, steps) for loop in found.entry.kernel.passes)
    return msgspec.structs.replace(found.entry.kernel, passes=passes)


def new_lemmas(found, kernel):
    return found.derived(kernel).proved.obligations - found.proved.obligations


def test_lemmas_that_were_not_discharged_follow_from_those_that_were(lookup):
    """Fewer steps between flushes: other lemmas, each of which Z3 would prove as well."""
    new = new_lemmas(lookup.sealed, more_flushes(lookup.sealed, 3))
    assert new
    assert prove.discharge(AVX2, new, Budget()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED[::3], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_form_of_a_shipped_kernel_follows_from_it(path):
    found = cache.load_entry(path)
    longest = max(p.flush_every for p in found.entry.kernel.passes)
    kernels = [more_flushes(found, steps) for steps in {1, 2, 3, 17, 100, longest // 2 or 1, longest - 1 or 1}]
    kernels += [msgspec.structs.replace(found.entry.kernel, **change) for change in ({"rows": 1}, {"unroll": 2})]
    new = set().union(*(new_lemmas(found, k) for k in kernels))
    prove.discharge(load.load(found.entry.kernel.isa), new, Budget())


def test_what_does_not_follow_is_refused(lookup, monkeypatch):
    """Nothing is sealed whose lemmas nobody discharged."""
    monkeypatch.setattr(proved, "implies", lambda *_: False)
    with pytest.raises(Refuted, match=r"^instruction: .* follows from no lemma discharged"):
        lookup.sealed.derived(more_flushes(lookup.sealed, 5))


def test_longer_loops_do_not_follow_from_shorter_ones(lookup):
    short = lookup.with_flushes(3).sealed
    with pytest.raises(Refuted, match="follows from no lemma discharged"):
        short.derived(lookup.entry.kernel)


def test_a_form_is_derived_once_a_process(lookup):
    assert lookup.with_flushes(7).sealed is lookup.with_flushes(7).sealed
    assert get_kernel("avx2", 2, 1, method="lookup").with_rows(2).sealed is lookup.with_rows(2).sealed


def test_a_proof_is_asked_before_anything_is_sealed(lookup):
    """Discharging that fails leaves nothing behind; a record of other lemmas is one."""
    kernel = lookup.entry.kernel
    with pytest.raises(Undecided, match="--rlimit"):
        Proved(kernel, prove.by_solver(Budget(1)))
    known = statements(examine(kernel)[1])
    for record in (known[1:], (*known, "instruction: more"), ()):
        with pytest.raises(SpecError, match="the instruction lemmas differ"):
            Proved(kernel, on_record(record))
    assert Proved(kernel, on_record(known)).statements == known


def test_a_kernel_the_checker_refuses_is_not_discharged(lookup):
    kernel = msgspec.structs.replace(lookup.entry.kernel, row_terms=(1, 1, 1, 1))
    with pytest.raises(Refuted):
        Proved(kernel, lambda isa, uses: pytest.fail("discharged"))


def test_nothing_but_what_is_proved_becomes_a_kernel(lookup, tmp_path, monkeypatch):
    """Neither an entry as it is read, nor one beside another kernel's proof, nor a look-alike."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    entry = lookup.entry
    for other in (entry, entry.kernel, lookup.sealed.proved):
        with pytest.raises(SpecError, match=f"not of {type(other).__name__}"):
            MatmulKernel(other, lookup.spec)
        with pytest.raises(SpecError, match=f"not of {type(other).__name__}"):
            cache.store(other)
    assert not list(tmp_path.rglob("*.json"))
    another = lookup.with_flushes(3).sealed
    with pytest.raises(SpecError, match="kernel, lemmas, instruction lemmas differ"):
        ProvedEntry(another.proved, entry)
    with pytest.raises(SpecError, match="seal differ"):
        ProvedEntry(lookup.sealed.proved, msgspec.structs.replace(entry, method="dot"))
    with pytest.raises(SpecError, match="sealed by a proof, not by Entry"):
        ProvedEntry(entry, entry)


def test_a_proof_cannot_be_made_by_other_means(lookup):
    held = lookup.sealed.proved
    with pytest.raises(TypeError):
        replace(held, kernel=lookup.entry.kernel)
    with pytest.raises(AttributeError):
        held.kernel = None
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(held)
    assert copy.copy(held) is held
    assert copy.deepcopy(held) is held


def sums(low, high, n=32, width=8):
    return (Lane("sum", low, high, width),) * n


def add(left, right):
    return Use("add.u8x32", 0, (left, right), "a[i] + b[i]")


@pytest.mark.parametrize(
    ("wider", "use", "follows"),
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
def test_which_lemmas_follow(wider, use, follows):
    assert implies(AVX2, wider, use) is follows


def test_a_sign_is_not_taken_for_a_number():
    """In a wider result -1 and 255 are different, so bytes that may be either are not bytes of one kind."""

    def mad(*lanes):
        return Use("madd.s16x16", 0, lanes, AVX2["madd.s16x16"].lane)

    ones = (Lane("const", 1, 1, 16),) * 16
    wide, narrow = sums(-100, 100, 16, 16), sums(3, 100, 16, 16)
    assert not implies(AVX2, mad(wide, ones), mad(narrow, ones))
    assert implies(AVX2, mad(wide, ones), mad(sums(-3, 100, 16, 16), ones))


@st.composite
def lanes(draw, n, width):
    low = draw(st.integers(-(1 << width - 1), (1 << width) - 1))
    high = draw(st.integers(low, min(low + (1 << width) - 1, (1 << width) - 1)))
    kind = draw(st.sampled_from(["sum", "sum", "sum", "bits", "const"]))
    match kind:
        case "sum":
            return (Lane("sum", low, high, width),) * n
        case "bits":
            ones = draw(st.integers(0, (1 << width) - 1))
            return (Lane("bits", ones, ones | draw(st.integers(0, (1 << width) - 1)), width),) * n
        case _:
            value = draw(st.integers(0, (1 << width) - 1))
            return (Lane("const", value, value, width),) * n


@st.composite
def pairs(draw):
    """Two uses of an instruction, the second now and then of operands within the first's."""
    op = draw(st.sampled_from(["add.u8x32", "sub.u8x32", "sad_epu8.u8x32", "srl.u16x16", "madd.s16x16", "and.u8x32"]))
    instr = AVX2[op]
    imm = draw(st.sampled_from(sorted(instr.imms)))
    made = [draw(lanes(o.type.lanes, o.type.bits)) for o in instr.operands]
    inside = [draw(st.one_of(st.just(x), narrowed(x), lanes(len(x), x[0].bits))) for x in made]
    return [Use(op, imm, tuple(operands), instr.lane) for operands in (made, inside)]


@st.composite
def narrowed(draw, given_lanes):
    lane = given_lanes[0]
    if lane.kind != "sum":
        return given_lanes
    low = draw(st.integers(lane.low, lane.high))
    return (lane._replace(low=low, high=draw(st.integers(low, lane.high))),) * len(given_lanes)


def holds(use):
    try:
        return prove.discharge(AVX2, [use], Budget()) >= 0
    except Refuted:
        return False


def sound(pair):
    """What follows from a lemma that holds, holds: Z3 agrees with the rule."""
    wider, use = pair
    if implies(AVX2, wider, use) and wider != use and holds(wider):
        assert holds(use), (wider, use)


@given(pairs())
@settings(max_examples=25, deadline=None)
def test_the_rule_is_sound(pair):
    sound(pair)


@pytest.mark.slow
@given(pairs())
@settings(max_examples=1500, deadline=None)
def test_the_rule_is_sound_on_more(pair):
    sound(pair)


@pytest.mark.parametrize("path", quick(SHIPPED[::60], of=SHIPPED), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_certificate_has_the_lemma_of_encodings(path):
    entry = cache.read_entry(path)
    lemma = encoding_lemma(entry.kernel.isa, entry.kernel.act_bits, entry.kernel.w_bits)
    assert entry.certificate.lemmas.count(lemma) == 1


@pytest.mark.parametrize("bits", [(1, 1), (2, 2), (8, 8)])
def test_a_wrong_correction_is_refuted(bits, monkeypatch):
    """One term of one code of one pair of encodings is off by one."""
    right = encodings.affine

    def wrong(spec):
        made = right(spec)
        if (spec.act.encoding, spec.wgt.encoding) != ("signed", "signed"):
            return made
        return replace(made, wgt_terms=(*made.wgt_terms[:-1], made.wgt_terms[-1] + 1))

    encoding_lemma.cache_clear()
    assert "exact on all" in encoding_lemma("avx2", *bits)
    monkeypatch.setattr(encodings, "affine", wrong)
    encoding_lemma.cache_clear()
    with pytest.raises(Refuted, match=r"signed code 0 times .*signed code \d+: the correction is off"):
        encoding_lemma("avx2", *bits)
    encoding_lemma.cache_clear()


def test_a_kernel_of_other_encodings_rests_on_the_same_proof(lookup):
    ternary = MatmulSpec("avx2", lookup.spec.act, MatmulSpec.plain("avx2", 2, 1).wgt)
    assert MatmulKernel(lookup.sealed, ternary).sealed is lookup.sealed
    assert api.get_kernel("avx2", 2, 1, "signed", method="lookup").sealed is lookup.sealed


def test_implied_by_takes_equal_lemmas_as_they_are(lookup):
    held = lookup.sealed.proved
    assert Proved(held.kernel, implied_by(held)).obligations == held.obligations
