"""Layers of Arm processors under an emulator, which puts every array beside pages that cannot be touched."""

import sys

import numpy as np
import pytest
from cases import QUIET, Case, cases, check, machine, usable
from hypothesis import given, settings

import bitsynth.layers.library
from bitsynth.build import host
from bitsynth.errors import SpecError
from bitsynth.isa.load import load

ONE = machine("neon", "lookup", 2, 1)
OTHER = machine("armv7_neon", "lookup", 2, 1)
MORE = [
    machine("neon", "popcount", 2, 2, "ternary", "signed"),
    machine("neon", "popcount", 2, 2, unroll=2, bit_axis="outer"),
    machine("neon", "multiply", 4, 3, "unsigned", "unsigned"),
    machine("neon", "lookup", 8, 1, "signed", "bipolar"),
    machine("neon_dotprod", "dot", 3, 2, "signed", "ternary"),
    machine("armv7_neon", "popcount", 1, 1, "bipolar", "bipolar"),
    machine("armv7_neon", "lookup", 2, 2, "signed", "signed"),
    machine("armv7_neon", "multiply", 3, 4, "bipolar", "unsigned"),
]
SMALL = {"most": 3, "deep": 20, "threads": 1}


def run(m, count, **sizes):
    @settings(max_examples=count, **QUIET)
    @given(case=cases([m], **{**SMALL, **sizes}))
    def each(case):
        check(case)

    each()


@pytest.mark.parametrize("m", [ONE, OTHER], ids=str)
def test_some_layers(m, skip_isa):
    usable(m, skip_isa)
    run(m, 25)


@pytest.mark.slow
@pytest.mark.parametrize("m", [ONE, *MORE], ids=str)
def test_many_layers(m, skip_isa):
    usable(m, skip_isa)
    run(m, 150, most=6, deep=70)
    check(Case(m, 1, (3, 3), (520, 2), (3, 3), patterns=("max", "min")))


@pytest.mark.slow
@pytest.mark.parametrize("m", [ONE, MORE[5]], ids=str)
def test_layers_in_the_other_emulator(m, skip_isa, monkeypatch):
    if host.arch() == load(m.isa).table.arch or sys.platform == "darwin":
        pytest.skip("this machine runs the code itself")
    monkeypatch.setenv("BITSYNTH_RUNNER", "unicorn")
    monkeypatch.setattr(bitsynth.layers.library, "_made", {})
    assert "unicorn" in usable(m, skip_isa).description
    run(m, 40)


def test_an_emulated_layer_has_one_thread(skip_isa):
    usable(ONE, skip_isa)
    if host.arch() == load(ONE.isa).table.arch:
        pytest.skip("this machine runs the code itself")
    with pytest.raises(SpecError, match="has one thread, not 2"):
        Case(ONE, 1, (1, 1), (1, 1), (1, 1), threads=2).made(np.ones((1, 1, 1, 1), int))(np.ones((1, 1, 1, 1), int))
