"""Layers on kernels of wider operands give the same sums."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from support.layer_cases import QUIET, cases, check, few_cases, machine, usable

from bitsynth.errors import SpecError, ToolError
from bitsynth.layers import Conv2d, pack_words
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import default_schedule
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import MAX_ZERO_POINT, LayerSpec
from bitsynth.layers.widening import find_problem, list_widenings, widen_operands
from bitsynth.spec.matmul import Encoding, MatmulOperand

FORMS = (
    (4, 4, "unsigned", "bipolar", "8x8"),
    (3, 2, "signed", "signed", "8x4"),
    (2, 1, "narrow", "bipolar", "8x2"),
    (8, 1, "unsigned", "bipolar", "8x8"),
    (1, 4, "signed", "unsigned", "4x8"),
    (3, 3, "bipolar", "bipolar", "8x8"),
)
METHODS = {"avx2": "multiply", "avx512": "dot", "avxvnni": "dot", "neon_dotprod": "dot", "armv7_neon": "multiply"}
EVERY = [machine(isa, method, *form[:4], operands=form[4]) for isa, method in METHODS.items() for form in FORMS]
FEW = [m for m in EVERY if m.isa == "avx2" and m.operands == "8x8"]
WORDS = (
    (64, 1, 1, "direct"),
    (64, 1, 3, "direct"),
    (128, 2, 1, "im2col"),
    (128, 1, 3, "indirect"),
    (72, 1, 1, "im2col"),
)
"""Channels, groups, kernels and algorithms: whole words, and words that are staged."""
WINDOW, DEEP = (Geometry(channels, 64, 1, (3, 3), (1, 1), (1,) * 4, (1, 1)) for channels in (64, 7400))


def is_computed(case):
    """Whether the wider operands compute the layer: a code stands for the zero point with both, or with neither."""
    m = case.machine
    return find_problem(LayerSpec(m.act, m.wgt, WINDOW, zero_point=case.zero_point), m.operands) is None


def layer(act_bits, w_bits, act="unsigned", wgt="signed", **options):
    operands = MatmulOperand(act_bits, Encoding(act)), MatmulOperand(w_bits, Encoding(wgt))
    return LayerSpec(*operands, options.pop("geometry", WINDOW), **options)


@settings(max_examples=6, **QUIET)
@given(case=few_cases(FEW).filter(is_computed))
def test_any_widened_layer_is_exact(skip_isa, case):
    usable(case.machine, skip_isa)
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("isa", METHODS)
def test_many_widened_layers_are_exact(skip_isa, isa):
    machines = [m for m in EVERY if m.isa == isa]
    for m in machines:
        usable(m, skip_isa)
    threads = 1 if "neon" in isa else 4

    @settings(max_examples=25, **QUIET)
    @given(case=cases(machines, threads=threads).filter(is_computed))
    def any_layer(case):
        check(case)

    any_layer()


@pytest.mark.parametrize("act", ["unsigned", "signed", "narrow", "bipolar"])
@pytest.mark.parametrize("wgt", ["unsigned", "signed", "bipolar"])
def test_wider_operands_hold_the_same_values(act, wgt):
    for spec in (layer(a, w, act, wgt, zero_point=z) for a in (2, 4, 8) for w in (1, 4, 8) for z in (0, 1)):
        for operands, wide in list_widenings(spec):
            values = [spec.act.value(code) - spec.zero_point for code in spec.act.codes]
            assert [wide.act.value(code) - wide.zero_point for code in spec.act.codes] == values
            wide.wgt.encode([spec.wgt.value(code) for code in spec.wgt.codes], operands)


REFUSED = {
    "more bits": (layer(4, 4), "2x8", "these are not wider"),
    "the same": (layer(8, 4), "8x4", "these are not wider"),
    "great weights": (layer(4, 8, wgt="bipolar"), "8x8", "do not hold its weights"),
    "weights of 4 bits": (layer(4, 4, wgt="unsigned"), "8x4", "do not hold its weights"),
    "a zero point beyond": (layer(4, 4, zero_point=200), "8x8", "no code of the zero point"),
    "an odd zero point beyond": (layer(4, 4, "bipolar", zero_point=17), "8x8", "no code of the zero point"),
    "the last zero point": (layer(4, 4, "signed", zero_point=MAX_ZERO_POINT), "8x8", "no code of the zero point"),
    "long sums": (layer(4, 4, geometry=DEEP), "8x8", "may leave int32"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_wider_operands_are_refused(what):
    spec, operands, message = REFUSED[what]
    assert message in (find_problem(spec, operands) or "")
    with pytest.raises(SpecError, match=f"a kernel of {operands} bits computes no layer"):
        widen_operands(spec, operands)


def test_a_layer_that_is_faster_so_is_run_so():
    wide, bipolar, own = (
        default_schedule(layer(n, n, act, image=(28, 28)), "avx512")
        for n, act in ((4, "unsigned"), (4, "bipolar"), (1, "unsigned"))
    )
    assert (wide.method, wide.operands, own.operands) == ("dot", "8x8", "")
    assert "avx512 dot of 8x8 bits" in str(wide)
    assert bipolar == wide


def test_a_schedule_names_operands_that_there_are():
    with pytest.raises(SpecError, match="unknown operands '9x9' of a schedule"):
        LayerSchedule("avx2", "multiply", 64, "direct", operands="9x9")
    old = msgspec.json.decode(b'{"isa":"avx2","method":"dot","channels":64,"gather":"direct"}', type=LayerSchedule)
    assert old.operands == ""


@pytest.mark.parametrize("isa", ["avx2", *(pytest.param(x, marks=pytest.mark.slow) for x in METHODS if x != "avx2")])
@pytest.mark.parametrize("act", ["unsigned", "bipolar"])
@pytest.mark.parametrize(("channels", "groups", "kernel", "gather"), WORDS)
def test_words_of_fewer_bits_become_rows_of_codes(isa, channels, groups, kernel, gather, act, skip_isa):
    rng = np.random.default_rng(channels)
    codes = rng.integers(0, 8, (2, 5, 70, channels), np.uint8)
    weight = rng.choice([-7, -3, 1, 5], (8, channels // groups, kernel, kernel))
    schedule = LayerSchedule(isa, METHODS[isa], 64, gather, operands="8x8")
    conv, plain = (
        Conv2d(weight, 3, 3, act_encoding=act, groups=groups, padding=kernel // 2, schedule=schedule, layout=layout)
        for layout in ("packed", "NHWC")
    )
    try:
        got = conv.run(pack_words(codes, 3))
    except ToolError as why:
        skip_isa(isa, str(why))
    np.testing.assert_array_equal(got, plain.run(codes))
