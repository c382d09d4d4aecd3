"""Products of two sums (Winograd 1968): what instruction sets have for them, their bounds, their terms, their proof."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.case_selection import quick
from support.programs import change
from support.solved_kernels import entry

from bitsynth import get_kernel
from bitsynth.emit.packing import packing
from bitsynth.errors import NoKernel, Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.kernel.packing import multiply_neighbours
from bitsynth.kernel.wellformed import check_shape
from bitsynth.layers.constants import has_joined_taps
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import default_schedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.proof import checker
from bitsynth.proof.counterexample import counterexample
from bitsynth.schedule.flush import with_trip_count
from bitsynth.sketches.lanes import terms
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.synth.synthesize import synthesize


@pytest.fixture(scope="module", params=[(3, 3), (4, 4)], ids=str)
def kernel(request):
    return entry("neon", "fip", *request.param).kernel


def test_neon_multiplies_sums_of_bytes_and_avx2_does_not():
    found = terms.find(load("neon"), "fip")
    assert {t.add_codes for t in found} == {"add.u8x16"}
    assert ("umlal.u8x16", "umlal2.u8x16") in {t.halves for t in found}
    with pytest.raises(NoKernel, match="avx2 has no instruction for the fip method"):
        terms.find(load("avx2"), "fip")


def test_half_the_products(kernel):
    """An `umlal` of 8 lanes is 16 multiply-accumulates; sums are as many instructions."""
    steps, pairs = kernel.passes[0].step.steps, kernel.columns * kernel.k_step // 2
    assert (kernel.method, kernel.cross_terms) == ("fip", -2)
    assert sum(step.op.startswith("umlal") for step in steps) == pairs // 8
    assert sum(step.op.startswith("add") for step in steps) == pairs // 8


def test_products_are_bounded_by_what_sums_hold(kernel):
    """72 of 4-bit codes, 72 * 30 * 30 = 64,800, fit 16 bits; one more does not."""
    (loop,) = kernel.passes
    most = (1 << kernel.act_bits) + (1 << kernel.w_bits) - 2
    assert loop.flush_every * kernel.k_step // 2 == 65535 // most**2
    checker.check(kernel)
    with pytest.raises(Refuted, match="may hold"):
        checker.check(change(kernel, passes=(with_trip_count(loop, 0, loop.step.trip_count + 1),)))


@pytest.mark.parametrize("depth", [1, 2, 143, 144, 145, 577])
@pytest.mark.parametrize(("of_act", "of_wgt"), [(-1, -1), (1, 1), (0, -1), (-1, 1)])
def test_ends_of_codes_at_every_depth(kernel, depth, of_act, of_wgt):
    """Zeros, ones and the greatest codes, up to a flush and beyond; of an odd K the last code has no neighbour."""
    rows = np.full((kernel.rows + 1, depth), of_act % (1 << kernel.act_bits), np.uint8)
    columns = np.full((depth, kernel.columns + 1), of_wgt % (1 << kernel.w_bits), np.uint8)
    assert (product(kernel, rows, columns) == compute_wanted_sums(kernel, rows, columns)).all()


@settings(max_examples=50, deadline=None)
@given(codes=st.lists(st.integers(0, 255), max_size=9))
def test_products_of_neighbours(codes):
    want = sum(x * y for x, y in zip(codes[::2], codes[1::2], strict=False))
    assert multiply_neighbours(np.array(codes, np.uint8)) == want


@pytest.mark.parametrize("factor", [-4, -3, -1, 1, 2])
def test_other_terms_of_neighbours_are_refused(kernel, factor):
    wrong = change(kernel, cross_terms=factor)
    with pytest.raises(Refuted, match="different positions of K are multiplied"):
        checker.check(wrong)
    found = counterexample(wrong, thorough=False)
    assert found is not None
    assert found.got != found.want


def test_no_terms_of_neighbours_are_refused(kernel):
    with pytest.raises(Refuted, match="different positions of K are multiplied"):
        checker.check(change(kernel, cross_terms=0))


def _adds(kernel, changed):
    """The kernel whose first sum of codes has other operands, in first runs too."""
    (loop,) = kernel.passes

    def program(steps):
        at = next((k for k, s in enumerate(steps) if s.op.startswith("add")), None)
        if at is None:
            return steps
        return (*steps[:at], changed(steps[at]), *steps[at + 1 :])

    step = change(loop.step, program=program(loop.step.steps), first=program(loop.step.first))
    return change(kernel, passes=(change(loop, loops=(step, *loop.loops[1:])),))


@pytest.mark.parametrize(
    "changed",
    [
        lambda s: change(s, args=("a1", s.args[1])),
        lambda s: change(s, args=(s.args[0], "w0_0")),
        lambda s: change(s, args=(s.args[0], s.args[0])),
        lambda s: change(s, args=(s.args[1], s.args[1])),
        lambda s: change(s, op=s.op.replace("add", "sub")),
    ],
    ids=["row", "column", "row twice", "column twice", "difference"],
)
def test_sums_that_do_not_cross_are_refused(kernel, changed):
    with pytest.raises((Refuted, SpecError)):
        checker.check(_adds(kernel, changed))


def test_steps_are_of_whole_pairs_of_single_rows():
    found = entry("neon", "fip", 3, 3).kernel
    with pytest.raises(SpecError, match="whole pairs of positions"):
        check_shape(load("neon"), change(found, k_step=found.k_step + 1))
    with pytest.raises(SpecError, match="whole pairs of positions, of single rows"):
        check_shape(load("neon"), change(entry("neon", "pairs", 2, 1).kernel, cross_terms=-2))


def test_neighbours_that_are_packed_in_another_order_are_refused(kernel):
    """C multiplies neighbours as codes come."""
    planes = kernel.passes[0].rows
    turned = change(kernel, passes=(change(kernel.passes[0], rows=planes[::-1]),))
    with pytest.raises(Refuted, match="products of neighbours are of codes in order"):
        packing(turned)


@pytest.mark.parametrize("widths", [(8, 1), (1, 8), (8, 8)], ids=str)
def test_sums_that_leave_a_byte_have_no_kernel(widths):
    with pytest.raises(NoKernel, match="no tile of the fip method"):
        synthesize(MatmulSpec.plain("neon", *widths), KernelOptions("fip"))


@pytest.mark.parametrize("bits", quick([], of=[(3, 3), (3, 4), (4, 3), (4, 4)]), ids=str)
def test_what_takes_them(bits):
    """Out-of-order processors: kernels that ship, and layers, at 3 and 4 bits on both sides of the Cortex-A72."""
    kernels = {cpu: get_kernel("neon", bits[0], bits[1], cpu=cpu).entry for cpu in ("a53", "a72", "a76")}
    assert [cpu for cpu, found in kernels.items() if found.method == "fip"] == ["a72"]
    tried = {cpu: {x.method for x in found.runners_up} for cpu, found in kernels.items()}
    assert [cpu for cpu, others in tried.items() if "fip" in others] == ["a76"]
    geometry = Geometry(64, 64, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    act, wgt = MatmulOperand(bits[0], Encoding.UNSIGNED), MatmulOperand(bits[1], Encoding.BIPOLAR)
    layer = LayerSpec(act, wgt, geometry, image=(56, 56))
    assert default_schedule(layer, "neon", cpu="a72").method == "fip"
    assert default_schedule(layer, "neon", cpu="a53").method != "fip"


def test_rows_of_codes_are_not_joined_taps():
    """Neighbours would be of two pixels."""
    kernel = entry("neon", "fip", 3, 3).kernel
    plain = entry("neon", "multiply", 2, 2).kernel
    geometry = Geometry(5, 64, 1, (3, 3), (1, 1), (0, 0, 0, 0), (1, 1))
    assert has_joined_taps(plain, geometry, "direct")
    assert not has_joined_taps(kernel, geometry, "direct")
