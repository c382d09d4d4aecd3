"""Synthesis from nothing: the same bytes every time, as good as what is shipped."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa.load import load, names
from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import METHODS, PREDICTED, KernelOptions
from bitsynth.store.matmul import MATMUL
from bitsynth.synth.synthesize import forget, solve_again, synthesize

SHIPPED = sorted(paths.shipped_kernels().rglob("bs_mm_*.json"))

CODE = """
import sys
from bitsynth.spec.matmul import Encoding, MatmulSpec, MatmulOperand
from bitsynth.synth.synthesize import synthesize
for text in sys.argv[1:]:
    isa, act, wgt = text.split(",")
    spec = MatmulSpec(isa, MatmulOperand(int(act), Encoding.UNSIGNED), MatmulOperand(int(wgt), Encoding.BIPOLAR))
    print(synthesize(spec).entry.digest)
"""


def spec(isa: str, act_bits: int, w_bits: int) -> MatmulSpec:
    return MatmulSpec(isa, MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.BIPOLAR))


def digests(seed: str, *configs: str) -> list[str]:
    env = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *configs], capture_output=True, text=True, check=True, env=env, timeout=300
    )
    return done.stdout.split()


@pytest.mark.slow
def test_the_same_input_gives_the_same_kernel_whatever_came_before():
    assert digests("1", "avx2,1,1", "neon,2,1")[1:] == digests("3", "neon,2,1")


@pytest.mark.slow
def test_the_same_input_gives_the_same_kernel_in_another_process():
    assert digests("1", "neon,1,1") == [synthesize(spec("neon", 1, 1)).entry.digest]


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "bits"), [(isa, [(3, 1), (2, 4)][k % 2]) for k, isa in enumerate(names())])
def test_configurations_are_solved_as_well_as_the_shipped_ones(isa, bits):
    """Sets with matrix registers ship kernels of bytes alone."""
    bits = (8, 8) if load(isa).table.matrices else bits
    forget()
    entry = synthesize(spec(isa, *bits)).entry
    shipped = get_kernel(isa, *bits)
    assert entry.cost.lower_bound == shipped.cost.lower_bound
    assert entry.method == shipped.entry.method
    assert entry.cost.ops_per_128_mac <= shipped.cost.ops_per_128_mac + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED[::149], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_claims_of_shipped_kernels_are_what_solving_again_gives(path):
    entry = MATMUL.load(path).entry
    assert solve_again(entry).entry.kernel == entry.kernel


@pytest.mark.parametrize("bits", quick([], of=[1, 3]))
def test_the_cheapest_of_all_methods(bits):
    method = {1: "lookup", 3: "dot"}[bits]
    found = synthesize(spec("avxvnni", bits, bits)).entry
    assert (found.method, found.asked) == (method, "")
    others = {x.method: x.cost for x in found.runners_up}
    assert others.keys() == set(METHODS) - {method, "matrix", *PREDICTED}
    assert min(others.values()) >= found.cost.ops_per_128_mac


@pytest.mark.slow
def test_a_method_that_lacks_an_instruction_says_so():
    found = synthesize(spec("avx2", 1, 1)).entry
    assert [(x.method, x.cost, x.why) for x in found.runners_up if x.cost is None] == [
        ("dot", None, "avx2 has no instruction for the dot method")
    ]


@pytest.mark.parametrize("method", quick(["multiply"], of=["lookup", "multiply"]))
def test_a_method_asked_for(method, tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    found = synthesize(spec("avx2", 2, 3), KernelOptions(method))
    entry = found.entry
    assert (entry.method, entry.asked, entry.runners_up) == (method, method, ())
    assert MATMUL.load(MATMUL.store(found.proved_entry)).entry == entry
    kernel = get_kernel("avx2", 2, 3, method=method)
    assert kernel.entry == entry
    act, wgt = np.full((3, 1000), 3), np.full((1000, 11), -7)
    assert (kernel.matmul(act, wgt) == act @ wgt).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "guess"}, "unknown method 'guess'; known: popcount, lookup, pairs, multiply, fip, dot"),
        ({"sketch": "guess"}, "unknown sketch 'guess'; known: exact, paper"),
        ({"method": "lookup", "sketch": "paper"}, "the paper's sketch counts bits and minimizes length"),
        ({"sketch": "paper", "model": "ops"}, "the paper's sketch counts bits and minimizes length"),
    ],
)
def test_choices_that_do_not_exist(fields, message):
    with pytest.raises(SpecError, match=message):
        KernelOptions(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [(1, 1), (2, 2), (3, 1)], ids=str)
def test_the_papers_sketch_gives_right_kernels(bits, tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    act_bits, w_bits = bits
    found = synthesize(spec("neon", *bits), KernelOptions(sketch="paper"))
    assert MATMUL.load(MATMUL.store(found.proved_entry)).entry == found.entry
    kernel = MatmulKernel(found.proved_entry, spec("neon", *bits))
    act = np.full((2, 4608), (1 << act_bits) - 1)
    wgt = np.full((4608, 9), (1 << w_bits) - 1)
    assert (kernel.matmul(act, wgt) == act @ wgt).all()
    assert (kernel.matmul(act, -wgt) == act @ -wgt).all()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["a53", "length"])
@pytest.mark.parametrize("act_bits", [1, 2])
def test_other_costs_give_proved_kernels(act_bits, model):
    found = synthesize(spec("neon", act_bits, 1), KernelOptions(model=model))
    assert found.entry.model == model
    act, wgt = np.full((3, 1000), (1 << act_bits) - 1), np.ones((1000, 11), int)
    assert (MatmulKernel(found.proved_entry, spec("neon", act_bits, 1)).matmul(act, wgt) == act @ wgt).all()


def test_a_kernel_for_a_processor():
    kernel = get_kernel("neon", 2, 2, cpu="a53")
    assert kernel.entry.model == "a53"
    assert kernel.cost.cycles["a53"] <= get_kernel("neon", 2, 2).cost.cycles["a53"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "popcount"}, "run `bitsynth synth --isa avx2 --act-bits 4 --w-bits 3 --method popcount`"),
        ({"cpu": "zen5"}, "run `bitsynth synth --isa avx2 --act-bits 4 --w-bits 3 --cpu zen5`"),
        ({"cpu": "z80"}, "unknown cpu 'z80'; avx2 knows zen5"),
        ({"cpu": "length"}, "unknown cpu 'length'; avx2 knows zen5"),
        ({"method": "guess"}, "unknown method 'guess'"),
    ],
)
def test_kernels_that_are_not_cached(options, message, tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    monkeypatch.setattr(paths, "shipped_kernels", lambda: tmp_path)
    with pytest.raises(SpecError, match=message):
        get_kernel("avx2", 4, 3, **options)
