"""The four steps of a layer, each by itself: what is wanted, what is decided, what is packed, what runs."""

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from support.layer_cases import convolution, machine, usable

from bitsynth import toolchain
from bitsynth.errors import NoKernel, SpecError
from bitsynth.layers import Conv2d, Pool, Scale, Thresholds, candidates, library, planning
from bitsynth.layers.geometry import geometry_of
from bitsynth.layers.layer import compile
from bitsynth.layers.packed import PackedLayer, pack
from bitsynth.layers.planning import LayerPlan, plan
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.matmul import Encoding, MatmulOperand

M = machine("avx2", "lookup", 2, 2, "ternary", "signed")
SCHEDULE = LayerSchedule("avx2", "lookup", 64, gather="direct")
GEOMETRY = geometry_of((6, 4, 3, 3), stride=1, padding=1, dilation=1, groups=1)
SPEC = LayerSpec(MatmulOperand(2, Encoding.TERNARY), MatmulOperand(2, Encoding.SIGNED), GEOMETRY, image=(14, 14))
RNG = np.random.default_rng(8)
W, X = RNG.integers(-2, 2, (6, 4, 3, 3)), RNG.integers(-1, 2, (2, 5, 6, 4))
LEVELS = np.sort(RNG.integers(-9, 9, (6, 3)))
WINDOW: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


@pytest.fixture
def bare(monkeypatch):
    """A machine without a compiler, whose layers nobody may call."""
    for module, name in ((toolchain, "compile_for"), (library, "runner_for")):
        monkeypatch.setattr(module, name, lambda *args, **options: pytest.fail("compiled"))
    monkeypatch.setattr(library, "_runners", {})


def planned(**changes):
    return plan(replace(SPEC, **changes), isa="avx2", schedule=SCHEDULE)


def test_a_plan_needs_no_compiler(bare):
    default, given = plan(SPEC, isa="avx2"), planned()
    assert (default.origin, given.origin) == ("default", "as given")
    assert (default.kernel.spec.act, given.kernel.spec.act) == (default.computed.act, SPEC.act)
    assert default.schedule == Conv2d(W, 2, 2, **options(), isa="avx2", image=(14, 14)).schedule


def options():
    return {**WINDOW, "act_encoding": "ternary", "weight_encoding": "signed"}


def test_packing_and_text_need_no_compiler(bare):
    packed = pack(planned(out_layout="packed"), W, Thresholds(LEVELS))
    assert {"conv1.h", "conv1.c", "conv1_selftest.c", "CMakeLists.txt"} <= set(packed.files("conv1"))
    assert packed.out_type == np.uint64
    assert packed.out_shape(2, 5, 6) == (2, 5, 6, 2)
    assert np.array_equal(packed.weight, W)


def test_what_is_compiled_gives_the_convolution(skip_isa):
    usable(M, skip_isa)
    want = convolution(X, W, **WINDOW)
    codes = SPEC.act.encode(X, "x")
    layer = compile(pack(planned(), W))
    assert np.array_equal(layer.run(codes), want)
    with Pool(2) as pool:
        call, out = compile(layer.packed, pool).bind(codes)
        assert (call(), np.array_equal(out, want)) == (0, True)


def test_the_same_plan_gives_the_same_c():
    """And the same as the class around the steps."""
    one, other = plan(SPEC, isa="avx2", threads=2), plan(replace(SPEC), isa="avx2", threads=2)
    assert one is not other
    assert one == other
    assert len({one, other}) == 1
    files = [pack(p, W, Scale(0.5)).files("conv1") for p in (one, one, other)]
    layer = Conv2d(W, 2, 2, **options(), isa="avx2", image=(14, 14), threads=2, epilogue=Scale(0.5))
    assert files == [layer.files("conv1")] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"out_layout": "NCHW"},
        {"image": (14, 15)},
        {"wgt": MatmulOperand(2, Encoding.TERNARY)},
        {"geometry": replace(GEOMETRY, stride=(2, 1))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_layer_is_another_value(change):
    assert replace(SPEC, **change) != SPEC
    assert planned(**change) != planned()


def test_another_schedule_is_another_plan():
    other = msgspec.structs.replace(SCHEDULE, band_rows=2)
    assert plan(SPEC, schedule=other) != plan(SPEC, schedule=SCHEDULE)


def test_values_are_frozen(skip_isa):
    usable(M, skip_isa)
    packed = pack(planned(), W)
    for value, name in ((SPEC, "image"), (packed.plan, "schedule"), (packed, "codes"), (compile(packed), "runner")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)
    for array in (packed.codes, packed.weight, packed.constants.arrays["weights"], packed.describe(1, 5, 5)[1]):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    with pytest.raises(TypeError, match="does not support item assignment"):
        cast(dict[str, Any], packed.constants.numbers)["groups"] = 2


def test_a_weight_edited_later_is_not_the_layers():
    weight = W.astype(np.uint8) & 1
    spec = replace(SPEC, wgt=MatmulOperand(2, Encoding.UNSIGNED))
    packed = pack(plan(spec, isa="avx2"), weight)
    weight[:] = 0
    assert packed.codes.any()


def test_the_callers_codes_stay_writable():
    codes = np.zeros(W.shape, np.uint8)
    packed = PackedLayer(planned(), codes)
    codes[:] = 1
    assert not packed.codes.any()


REFUSED = {
    "layout": (lambda: replace(SPEC, layout="HWC"), "unknown layout 'HWC'"),
    "image": (lambda: replace(SPEC, image=(0, 3)), "image must be"),
    "no image": (lambda: replace(SPEC, image=cast(Any, 0)), "image must be"),
    "threads": (lambda: plan(SPEC, threads=0), "threads must be"),
    "many threads": (lambda: plan(SPEC, threads=257), "threads must be"),
    "threads of a plan": (lambda: replace(planned(), threads=cast(int, 1.5)), "threads must be"),
    "codes beyond the last": (lambda: PackedLayer(planned(), np.full(W.shape, 7, np.uint8)), "at most 3"),
    "values for codes": (lambda: PackedLayer(planned(), cast(Any, W)), "want uint8 codes"),
    "a list": (lambda: SPEC.check_codes(cast(Any, [[1]])), "codes are a numpy array, not list"),
    "a pool": (lambda: compile(pack(planned(), W), cast(Pool, "2")), "threads must be"),
    "no room": (lambda: plan(replace(SPEC, geometry=replace(GEOMETRY, padding=(0,) * 4), image=(2, 2))), "no room"),
    "schedule": (lambda: plan(SPEC, schedule=cast(LayerSchedule, "fast")), "a schedule is a LayerSchedule"),
    "weight of another window": (lambda: pack(planned(), W[..., :2]), r"want a weight of \(6, 4, 3, 3\)"),
    "weight values": (lambda: pack(planned(), W * 3), "2-bit signed holds -2 to 1"),
    "packed sums": (lambda: pack(planned(out_layout="packed"), W), "only codes can be packed"),
    "an epilogue of other channels": (lambda: pack(planned(), W, Thresholds(LEVELS[:5])), "5 channels of thresholds"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_k_steps_are_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(SpecError, match=message):
        make()


def test_a_k_step_without_kernel_is_reported():
    with pytest.raises(NoKernel, match=r"bitsynth synth --isa avx2 .* --channels 64"):
        plan(replace(SPEC, wgt=MatmulOperand(8, Encoding.BIPOLAR), act=MatmulOperand(7, Encoding.BIPOLAR)), isa="avx2")


def no_search(*args):
    pytest.fail("chosen anew")


@pytest.mark.parametrize("value", [plan(SPEC, isa="avx2", threads=2), pack(plan(SPEC, isa="avx2"), W)], ids=type)
def test_a_pickled_value_keeps_its_plan(value, monkeypatch):
    """Though another schedule would be chosen now."""
    data = pickle.dumps(value)
    monkeypatch.setattr(planning, "_choose", no_search)
    other = pickle.loads(data)
    if isinstance(value, PackedLayer):
        assert other.files("conv1") == value.files("conv1")
        value, other = value.plan, other.plan
    assert other == value


def test_a_plan_that_cannot_run_here_is_made_again(monkeypatch):
    """On a processor without what its kernel needs; one that was given is what was asked for."""
    better = LayerSchedule("avx2", "lookup", 64, gather="im2col", rows=1)
    chosen, given = LayerPlan(SPEC, better, "tuned elsewhere", "avx2"), planned()
    data = [pickle.dumps(chosen), pickle.dumps(given)]
    assert [pickle.loads(x) for x in data] == [chosen, given]
    monkeypatch.setattr(planning, "runs_here", lambda entry, isa: False)
    monkeypatch.setattr(planning, "_choose", lambda *args: (SCHEDULE, "default", ""))
    assert pickle.loads(data[0]) == LayerPlan(SPEC, SCHEDULE, "default", "avx2")
    assert pickle.loads(data[1]) == given


def test_the_kernel_of_a_plan_may_be_gone(monkeypatch):
    default = plan(SPEC, isa="avx2")
    data = pickle.dumps(replace(default, origin="tuned elsewhere"))
    monkeypatch.setattr(planning, "cached_entry", lambda *args: None)
    assert pickle.loads(data) == default


def test_what_a_kernel_needs_is_asked_once(monkeypatch):
    list(candidates.candidates(SPEC.act, SPEC.wgt, "avx2"))
    monkeypatch.setattr(candidates, "needs", lambda *args: pytest.fail("asked again"))
    assert list(candidates.candidates(SPEC.act, SPEC.wgt, "avx2"))
