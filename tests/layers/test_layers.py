"""Layers of every kind against plain integer convolutions, to the bit."""

import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from cases import Case, cases, check, encodings, machine, usable
from hypothesis import HealthCheck, given, settings

from bitsynth.build import host
from bitsynth.isa.load import load
from bitsynth.schedule.layer import GATHERS

FEW = [
    machine("avx2", "lookup", 2, 1),
    machine("avx2", "popcount", 1, 1, "bipolar", "bipolar"),
    machine("avx2", "multiply", 3, 2, "signed", "ternary"),
    machine("avx2", "lookup", 2, 2, "ternary", "signed"),
]
METHODS = {"avx2": ("popcount", "lookup", "multiply"), "avx512": ("popcount", "lookup", "multiply", "dot")}
WIDTHS = list(product(range(1, 5), repeat=2))
SCALE = int(os.environ.get("BITSYNTH_TEST_LAYERS", "1"))
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@pytest.fixture(scope="session")
def few(skip_isa):
    for m in FEW:
        usable(Case(m, 1, (1, 1), (1, 1), (1, 1)), skip_isa)


@settings(max_examples=250, derandomize=True, **QUIET)
@given(case=cases(FEW))
def test_any_layer(few, case):
    check(case)
