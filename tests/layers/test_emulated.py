"""Layers of Arm processors under an emulator, which puts every array beside pages that cannot be touched."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.case_selection import quick
from support.layer_cases import QUIET, Case, cases, check, machine, usable

import bitsynth.layers.library
from bitsynth import Pool
from bitsynth.errors import SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.layers.layer import Layer
from bitsynth.run.runner import runner_for

pytestmark = pytest.mark.toolchains

ONE = machine("neon", "lookup", 2, 1)
OTHER = machine("armv7_neon", "lookup", 2, 1)
MORE = [
    machine("neon", "popcount", 2, 2, "narrow", "signed"),
    machine("neon", "popcount", 2, 2, unroll=2, bit_axis="outer"),
    machine("neon", "multiply", 4, 3, "unsigned", "unsigned"),
    machine("neon", "lookup", 8, 1, "signed", "bipolar"),
    machine("neon_dotprod", "dot", 3, 2, "signed", "ternary"),
    machine("armv7_neon", "popcount", 1, 1, "bipolar", "bipolar"),
    machine("armv7_neon", "lookup", 2, 2, "signed", "signed"),
    machine("armv7_neon", "multiply", 3, 4, "bipolar", "unsigned"),
    machine("neon", "fip", 4, 4, "signed", "signed"),
    machine("neon", "fip", 3, 4, "bipolar", "unsigned", rows=1),
    machine("neon", "fip", 3, 3, "narrow", "bipolar"),
    machine("neon", "pairs", 2, 1),
    machine("neon", "pairs", 2, 2, "signed", "signed", rows=2),
    machine("neon", "pairs", 1, 2, "bipolar", "unsigned"),
    machine("neon_dotprod", "pairs", 1, 1, "bipolar", "bipolar"),
]
SMALL = {"most": 3, "deep": 20, "threads": 1}


def run(m, count, **sizes):
    @settings(max_examples=count, **QUIET)
    @given(case=cases([m], **{**SMALL, **sizes}))
    def each(case):
        check(case)

    each()


@pytest.mark.parametrize("m", quick([ONE], of=[ONE, OTHER]), ids=str)
def test_some_layers_are_exact_in_emulators(m, skip_isa):
    usable(m, skip_isa)
    run(m, 5, epilogues=("none", "requantize", "thresholds") if m is ONE else ("none", "scale"), levels=(3,))


@pytest.mark.slow
@pytest.mark.parametrize("m", [ONE, *MORE[::2]], ids=str)
def test_many_layers_are_exact_in_emulators(m, skip_isa):
    usable(m, skip_isa)
    run(m, 12, most=6, deep=70)
    check(Case(m, 1, (3, 3), (520, 2), (3, 3), patterns=("max", "min")))


@pytest.mark.slow
@pytest.mark.parametrize("m", [ONE, MORE[5]], ids=str)
def test_layers_in_the_other_emulator(m, skip_isa, monkeypatch):
    if features.arch() == load(m.isa).table.arch or sys.platform == "darwin":
        pytest.skip("this machine runs the code itself")
    monkeypatch.setenv("BITSYNTH_RUNNER", "unicorn")
    monkeypatch.setattr(bitsynth.layers.library, "_runners", {})
    assert "unicorn" in usable(m, skip_isa).description
    run(m, 40)


@pytest.mark.parametrize("threads", [2, Pool(2)], ids=["number", "pool"])
def test_an_emulated_layer_has_one_thread(threads, skip_isa):
    usable(ONE, skip_isa)
    if features.arch() == load(ONE.isa).table.arch:
        pytest.skip("this machine runs the code itself")
    layer, x, want = Case(ONE, 1, (1, 1), (1, 1), (1, 1), threads=Pool(1)).prepared()
    assert (layer(x) == want).all()
    with pytest.raises(SpecError, match="has one thread, not 2"):
        Case(ONE, 1, (1, 1), (1, 1), (1, 1), threads=threads).run_once()


@pytest.mark.parametrize("threads", [2, Pool(2)], ids=["number", "pool"])
def test_threads_of_a_native_layer_are_none_for_an_emulated_one(threads, skip_isa):
    """Their addresses would be of another machine's memory."""
    natives = [m for m in (machine("avx2", "lookup", 2, 1), ONE) if features.matches(load(m.isa).table)]
    if not natives or natives == [ONE]:
        skip_isa(ONE.isa, "this machine runs the code itself, or nothing")
    for m in (ONE, natives[0]):
        usable(m, skip_isa)
    check(Case(natives[0], 1, (6, 7), (8, 70), (3, 3), threads=threads))
    with pytest.raises(SpecError, match="has one thread, not 2"):
        Case(ONE, 1, (6, 7), (8, 70), (3, 3), threads=threads).run_once()


def packing(case, skip_isa):
    """Instructions that packing the activations of `case` takes."""
    layer, x, _ = case.prepared()
    kernel = layer.kernel
    try:
        library = bitsynth.layers.library.compile_library(kernel)
        counted = runner_for(load(case.machine.isa), library, needs=kernel.needs, count=True)
    except ToolError as why:
        skip_isa(case.machine.isa, str(why))
    codes = x if case.layout == "packed" else case.machine.act.encode(x, "x")
    assert Layer(layer.packed, counted, layer.pool).bind(codes, part="pack")[0]() == 0
    return counted.instructions


@pytest.mark.parametrize("gather", ["direct", "im2col"])
@pytest.mark.parametrize("layout", ["NCHW", "packed"])
def test_a_line_of_the_input_is_staged_once(layout, gather, skip_isa):
    """However wide it is, and whatever groups and windows read it: packing is linear in pixels, and in channels.

    Several groups of 8 channels begin inside of words, so that packed lines are staged: one group's words are not.
    """
    if features.arch() == load(ONE.isa).table.arch:
        pytest.skip("this machine runs the code itself")
    two = Case(ONE, 1, (6, 12), (8, 4), (3, 3), groups=2, padding=(1, 1, 1, 1), layout=layout, gather=gather)
    count = packing(two, skip_isa)
    assert packing(replace(two, image=(6, 24)), skip_isa) < 2.2 * count
    assert packing(replace(two, groups=8), skip_isa) < 4.4 * count
