"""Weights with a zero point: sums of products of (activation - zero point) and (weight - zero point)."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.case_selection import quick
from support.layer_cases import QUIET, Case, cases, check, few_cases, machine, usable

import bitsynth
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.layers import pack_words, weight_zeros
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.weight_zeros import encode_weights, plain_product, row_scale, weights_of
from bitsynth.layers.widening import find_problem
from bitsynth.proof import encodings
from bitsynth.spec.matmul import INT32_MAX, Affine, Encoding, MatmulOperand, MatmulSpec, affine
from bitsynth.toolchain import compile_for

METHODS = {"avx2": "multiply", "avx512": "dot", "avxvnni": "dot", "neon": "multiply", "neon_dotprod": "dot"}
METHODS |= {"armv7_neon": "multiply"}
FORMS = ((8, "unsigned", 1), (8, "unsigned", 113), (8, "signed", 129), (8, "unsigned", 255))
EVERY = [
    machine(isa, method, bits, 8, act, "unsigned", zero=zero)
    for isa, method in METHODS.items()
    for bits, act, zero in FORMS
]
FEWER = [
    machine("avx2", "lookup", 4, 4, wgt="unsigned", zero=7),
    machine("avx2", "multiply", 2, 2, wgt="unsigned", zero=1),
    machine("avx512", "dot", 4, 4, wgt="unsigned", zero=9),
    machine("avx512", "popcount", 3, 3, "signed", "unsigned", zero=5),
    machine("neon", "lookup", 2, 2, wgt="unsigned", zero=1),
    machine("neon", "popcount", 3, 3, "bipolar", "unsigned", zero=6),
    machine("neon", "multiply", 4, 4, wgt="unsigned", zero=8),
    machine("armv7_neon", "popcount", 3, 3, "narrow", "unsigned", zero=6),
]
WIDER = [machine(isa, METHODS[isa], 4, 4, wgt="unsigned", zero=7, operands="8x8") for isa in ("avx2", "avx512")]


def is_computed(case):
    """Whether the wider operands, if there are any, compute the layer."""
    m, window = case.machine, Geometry(64, 64, 1, (3, 3), (1, 1), (1,) * 4, (1, 1))
    return (
        not m.operands or find_problem(LayerSpec(m.act, m.wgt, window, zero_point=case.zero_point), m.operands) is None
    )


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_of_integers_stand_for_these_less_their_zero_point(bits):
    integers = np.arange(1 << bits)
    for zero in range(1, 1 << bits):
        operand = weights_of(bits, "unsigned", zero)
        codes = encode_weights(integers, operand, zero)
        assert (operand.decode(codes) + zero == integers).all()
        assert (operand.encode(integers - zero, "weight") == codes).all()
        assert zero == 1 << (bits - 1) or zero in codes[integers - zero == 0]
    with pytest.raises(SpecError, match=f"weight.0. is {1 << bits}; {bits}-bit unsigned holds 0 to"):
        encode_weights(np.array([1 << bits]), operand, 1)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_half_of_all_codes_is_the_zero_point_of_signed_weights(bits):
    w = np.arange(1 << bits).reshape(-1, 2, 1, 1)
    half = 1 << (bits - 1)
    layer = bitsynth.Conv2d(w, 8, bits, weight_encoding="unsigned", weight_zero_point=half, isa="avx2")
    assert (layer.weight == w - half).all()
    x = np.array([[[[255, 3]]]])
    assert (layer(x)[0, 0, 0] == (w - half)[:, :, 0, 0] @ x[0, 0, 0]).all()
    dense = bitsynth.Dense(
        w[:, :, 0, 0], 8, bits, weight_encoding="unsigned", weight_zero_point=half, isa="avx2", flatten=(1, 1, 2)
    )
    assert (dense(x) == layer(x)[0, 0]).all()


@settings(max_examples=6, **QUIET)
@given(case=few_cases([m for m in EVERY if m.isa == "avx2"][:2]))
def test_any_layer_with_weight_zeros_is_exact(skip_isa, case):
    usable(case.machine, skip_isa)
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("isa", METHODS)
def test_many_layers_with_weight_zeros_are_exact(skip_isa, isa):
    machines = [m for m in (*EVERY, *FEWER, *WIDER) if m.isa == isa]
    for m in machines:
        usable(m, skip_isa)

    @settings(max_examples=15, **QUIET)
    @given(case=cases(machines, threads=1 if "neon" in isa else 4).filter(is_computed))
    def any_layer(case):
        check(case)

    any_layer()


@pytest.mark.parametrize("pattern", ["max", "min"])
def test_sums_as_deep_as_they_may_be(pattern):
    """The row's term is as great as it can be, and so is what is left of it."""
    for zero in (1, 127, 254):
        m = machine("avx2", "multiply", 8, 8, wgt="unsigned", zero=zero)
        depth = INT32_MAX // (255 * 255)
        check(Case(m, 1, (1, 2), (depth, 3), (1, 1), patterns=("max", pattern)))
        with pytest.raises(SpecError, match="int32"):
            Case(m, 1, (1, 1), (depth + 1, 3), (1, 1)).made(np.zeros((3, depth + 1, 1, 1), int))


@pytest.mark.parametrize("isa", quick(["avx2"], of=["avx2", "avx512"]))
def test_depthwise_layers_with_weight_zeros_are_exact(isa, skip_isa):
    rng = np.random.default_rng(0)
    w, x = rng.integers(0, 256, (40, 1, 3, 3)), rng.integers(0, 256, (1, 7, 6, 40))
    layer = bitsynth.Conv2d(
        w, 8, 8, groups=40, padding=1, weight_encoding="unsigned", zero_point=9, weight_zero_point=77, isa=isa
    )
    usable(machine(isa, METHODS[isa], 8, 8, wgt="signed"), skip_isa)
    around = np.pad(x - 9, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(around[:, i : i + 7, j : j + 6] * (w - 77)[:, 0, i, j] for i in range(3) for j in range(3))
    assert (layer(x) == want).all()


@pytest.mark.parametrize("layout", ["NHWC", "packed"])
def test_dense_of_images(layout):
    """Idle features of packed images have code 0, which stands for less than 0 among the weights."""
    rng = np.random.default_rng(1)
    w, x = rng.integers(0, 256, (5, 3 * 2 * 10)), rng.integers(0, 256, (4, 3, 2, 10))
    flat: dict[str, Any] = {"flatten": (3, 2, 10), "flatten_order": "NHWC", "layout": layout}
    layer = bitsynth.Dense(w, 8, 8, weight_encoding="unsigned", zero_point=3, weight_zero_point=200, isa="avx2", **flat)
    given = pack_words(x.astype(np.uint8), 8) if layout == "packed" else x
    assert (layer(given) == (x.reshape(4, -1) - 3) @ (w - 200).T).all()


def test_a_layer_keeps_its_zero_point():
    w = np.arange(16).reshape(2, 8, 1, 1) * 16
    layer = bitsynth.Conv2d(w.astype(np.uint8), 8, 8, weight_encoding="unsigned", weight_zero_point=100, isa="avx2")
    again = pickle.loads(pickle.dumps(layer))
    assert (again.weight == layer.weight).all()
    assert (layer.weight == w - 100).all()
    assert "8-bit unsigned less 100" in layer.explain()
    x = np.full((1, 1, 1, 8), 255)
    assert (again(x) == layer(x)).all()
    assert (layer(x)[0, 0, 0] == 255 * (w - 100).sum(axis=(1, 2, 3))).all()


def test_emitted_c_tests_itself():
    rng = np.random.default_rng(2)
    layer = bitsynth.Conv2d(
        rng.integers(0, 256, (9, 5, 3, 3)),
        8,
        8,
        padding=1,
        weight_encoding="unsigned",
        weight_zero_point=19,
        isa="avx2",
    )
    files = layer.files("layer")
    assert "return code - 19;" in files["layer_selftest.c"]
    sources = {n: t for n, t in files.items() if n.endswith((".c", ".h")) and n != "main.c"}
    flags = ["-O0", "-pthread", "-DBITSYNTH_NO_MAIN"]
    isa, needs = load("avx2"), layer.kernel.needs
    library = compile_for(isa, sources, needs=needs, flags=flags, cached=sources)
    assert bitsynth.run.runner.runner_for(isa, library, needs=needs).call("layer_selftest", bits=32) == 0


def test_kernels_that_sum_no_rows_serve_no_zero_point():
    layer: dict[str, Any] = {"act_bits": 2, "w_bits": 2, "weight_encoding": "unsigned", "weight_zero_point": 1}
    schedule = bitsynth.LayerSchedule("avx2", "popcount", 64, "direct")
    with pytest.raises(SpecError, match="has no sums of rows, which 2-bit unsigned less 1 weights want"):
        bitsynth.Conv2d(np.ones((4, 4, 1, 1), int), schedule=schedule, isa="avx2", **layer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_zero_point": 256}, "the zero point of 8-bit codes is one of them, not 256"),
        ({"weight_zero_point": -1}, "is one of them, not -1"),
        ({"weight_zero_point": 1.5}, "is one of them, not 1.5"),
        ({"weight_zero_point": np.array([1, 2])}, "is one of them, not array"),
        (
            {"weight_zero_point": 3, "weight_encoding": "signed"},
            "only unsigned codes have a zero point, signed ones none",
        ),
        ({"weight": np.full((2, 2, 1, 1), 256)}, r"weight\[0, 0, 0, 0\] is 256; 8-bit unsigned holds 0 to 255"),
        ({"weight": np.full((2, 2, 1, 1), -1)}, r"weight\[0, 0, 0, 0\] is -1; 8-bit unsigned holds 0 to 255"),
    ],
)
def test_bad_weight_zeros_are_refused(options, message):
    usual: dict[str, Any] = {
        "weight": np.zeros((2, 2, 1, 1), int),
        "weight_encoding": "unsigned",
        "weight_zero_point": 5,
    }
    with pytest.raises(SpecError, match=message):
        bitsynth.Conv2d(act_bits=8, w_bits=8, isa="avx2", **(usual | options))


def test_a_correction_that_is_off_is_refuted(monkeypatch):
    kernel = bitsynth.get_kernel("avx2", 8, 8, weight_encoding="signed").entry.kernel
    spec = MatmulSpec("avx2", MatmulOperand(8, Encoding.UNSIGNED), MatmulOperand(8, Encoding.UNSIGNED, zero=42))
    assert row_scale(kernel, spec) == {"row_shift": 7, "row_factor": 128 - 42}
    assert plain_product(kernel, spec).wgt == MatmulOperand(8, Encoding.UNSIGNED)

    def off(of):
        found = affine(of)
        return Affine(found.shift, found.factor, tuple(2 * x for x in found.act_terms), found.wgt_terms)

    monkeypatch.setattr(encodings, "affine", off)
    encodings.require_exact.cache_clear()
    with pytest.raises(Refuted, match="the correction is off"):
        weight_zeros.row_scale(kernel, spec)
    encodings.require_exact.cache_clear()
