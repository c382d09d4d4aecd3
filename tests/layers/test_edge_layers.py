"""First and last layers, with 8 bits on a side, against plain integer convolutions; taps that are one run of codes."""

from itertools import product

import pytest
from hypothesis import given, settings
from msgspec import structs
from support.layer_cases import QUIET, Case, cases, check, few_cases, machine, usable

from bitsynth.layers.constants import has_joined_taps
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import rank
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import get_kernel
from bitsynth.spec.matmul import Encoding, MatmulOperand

EDGES = [
    machine("avx2", "multiply", 8, 8, "unsigned", "signed"),
    machine("avx2", "multiply", 8, 2, "unsigned", "narrow"),
    machine("avx2", "multiply", 2, 8, "signed", "unsigned"),
]
WIDER = [
    machine(isa, "dot", *widths, act, wgt)
    for isa in ("avxvnni", "avx512")
    for widths, act, wgt in (
        ((8, 8), "unsigned", "signed"),
        ((8, 8), "bipolar", "bipolar"),
        ((8, 4), "signed", "narrow"),
        ((4, 8), "unsigned", "unsigned"),
    )
]
EXTREMES = list(product(("max", "min"), repeat=2))
EDGE_AND_LOOKUP = (((8, 8), "dot"), ((2, 2), "lookup"))


def geometry(channels, window=(7, 7), dilation=(1, 1)):
    return Geometry(channels, 64, 1, window, (2, 2), (3,) * 4, dilation)


@settings(max_examples=8, **QUIET)
@given(case=few_cases(EDGES))
def test_any_edge_layer_is_exact(skip_isa, case):
    usable(case.machine, skip_isa)
    check(case)


@pytest.mark.slow
@settings(max_examples=250, **QUIET)
@given(case=cases([*EDGES, *WIDER], most=20, deep=200))
def test_many_edge_layers_are_exact(skip_isa, case):
    usable(case.machine, skip_isa)
    check(case)


@pytest.mark.parametrize(("isa", "method"), [("avx512", "dot"), ("avxvnni", "dot"), ("avx2", "multiply")])
@pytest.mark.parametrize("w_bits", [2, 8])
def test_a_first_layer_copies_no_patches(isa, method, w_bits):
    spec = LayerSpec(EDGES[0].act, MatmulOperand(w_bits, Encoding.SIGNED), geometry(3), image=(224, 224))
    found = rank(spec, isa, lambda entry: entry.kernel.isa == isa)[0].schedule
    assert (found.method, found.gather) == (method, "direct")


def test_taps_are_joined_where_it_saves_steps():
    dot, lookup = (get_kernel("avx512", *w, method=m, channels=64).entry.kernel for w, m in EDGE_AND_LOOKUP)
    assert has_joined_taps(dot, geometry(3), "direct")
    assert not has_joined_taps(dot, geometry(3), "im2col")
    assert not has_joined_taps(dot, geometry(4), "direct")
    assert not has_joined_taps(dot, geometry(3, (7, 1)), "direct")
    assert not has_joined_taps(dot, geometry(3, dilation=(1, 2)), "direct")
    assert not has_joined_taps(lookup, geometry(3), "direct")


def test_taps_are_joined_where_lines_are_then_copied():
    """Nine codes take three steps, and so do three times three; a line of sums is not copied."""
    dot = get_kernel("avx512", 8, 8, method="dot", channels=64).entry.kernel
    summed = structs.replace(dot, row_terms=tuple(range(256)))
    assert (dot.k_step, any(dot.row_terms)) == (4, False)
    assert has_joined_taps(dot, geometry(3, (3, 3)), "direct")
    assert not has_joined_taps(dot, geometry(4, (3, 3)), "direct")
    assert not has_joined_taps(dot, geometry(3, (3, 1)), "direct")
    assert not has_joined_taps(summed, geometry(3, (3, 3)), "direct")


@pytest.mark.parametrize("patterns", EXTREMES, ids="-".join)
@pytest.mark.parametrize("m", EDGES[:2], ids=str)
def test_first_layers_at_the_ends(skip_isa, m, patterns):
    """What a row of taps has beyond its codes are another pixel's, which meet weights of 0."""
    usable(m, skip_isa)
    check(Case(m, 1, (16, 15), (3, 5), (7, 7), stride=(2, 2), padding=(3,) * 4, patterns=patterns))
    check(Case(m, 1, (3, 4), (500, 2), (3, 3), patterns=patterns))
