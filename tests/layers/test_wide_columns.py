"""Popcount kernels whose columns have 16 bytes of a register: a step takes twice as many positions of K."""

from functools import cache

import msgspec
import numpy as np
import pytest
from support.case_selection import quick
from support.kernel_checks import check
from support.solved_kernels import on_record, spec_of

from bitsynth.emit.packing import packing
from bitsynth.errors import NoKernel, SpecError, ToolError
from bitsynth.layers import Conv2d, pack_words
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.solver.budget import Budget
from bitsynth.spec.options import KernelOptions, synth_command
from bitsynth.store.entry import ProvedEntry
from bitsynth.synth import synthesize

OPTIONS = KernelOptions("popcount", channels=64, k_step=128)
DEEP = LayerSchedule("neon", "popcount", 64, "direct", k_step=128)
EVERY = [("neon", 1, 1), ("neon", 2, 2), ("armv7_neon", 1, 1)]
SOLVED = [x if x[0] == "neon" else pytest.param(x, marks=pytest.mark.slow) for x in EVERY]


@cache
def solved(isa, act_bits, w_bits):
    """A kernel as if its lemmas were on record as discharged."""
    options = KernelOptions("popcount", k_step=128)
    spec = spec_of(isa, act_bits, w_bits)
    (best,), others = synthesize.candidates(options.isa(isa), spec, options, Budget())
    return MatmulKernel(ProvedEntry(on_record(best.kernel), options, best.claims, best.bound, others), spec)


@pytest.mark.parametrize("config", quick(EVERY[:2], of=EVERY))
def test_products_are_exact(config, skip_isa):
    """Also of depths that end in either half of a step, on whose other half zeros lie."""
    k = solved(*config)
    found = k.entry.kernel
    assert (found.k_step, found.slot_bytes, found.method) == (128, 16, "popcount")
    assert packing(found).rows == "words"
    try:
        for axis in found.bit_axes:
            result = k.with_bit_axis(axis)
            for length in (1, 63, 64, 65, 127, 128, 129, 200, 1500):
                check(result, found.rows + 1, length, found.columns + 3, ("random", "max", "alternating"))
    except ToolError as why:
        skip_isa(config[0], str(why))


@pytest.mark.parametrize(
    ("window", "cpu"),
    quick(
        [((67, 3, 2, "direct"), "a53"), ((200, 3, 1, "indirect"), "a72")],
        of=[
            (window, cpu)
            for window in ((1, 1, 1, "direct"), (67, 3, 2, "direct"), (200, 3, 1, "indirect"), (256, 2, 2, "im2col"))
            for cpu in ("a53", "a72")
        ],
        spread=True,
    ),
)
def test_layers_are_those_of_other_steps(window, cpu, skip_isa):
    channels, size, stride, gather = window
    rng = np.random.default_rng(channels)
    codes, weight = rng.integers(0, 2, (2, 6, 7, channels), np.uint8), rng.choice([-1, 1], (70, channels, size, size))
    deep = msgspec.structs.replace(DEEP, gather=gather)
    options = {"stride": stride, "padding": size // 2, "cpu": cpu, "isa": "neon", "out_layout": "NHWC"}
    items = [
        Conv2d(weight, 1, 1, layout=layout, schedule=schedule, **options)
        for schedule in (deep, msgspec.structs.replace(deep, k_step=0))
        for layout in ("NHWC", "packed")
    ]
    try:
        sums = [layer.run(pack_words(codes, 1) if layer.layout == "packed" else codes) for layer in items]
    except ToolError as why:
        skip_isa("neon", str(why))
    for one in sums[1:]:
        np.testing.assert_array_equal(one, sums[0])


DEEP_LAYERS = [(cpu, channels, step) for cpu in ("a53", "a72") for channels, step in ((64, 0), (128, 128), (256, 128))]


@pytest.mark.parametrize("case", quick([("a53", 64, 0), ("a72", 128, 128)], of=DEEP_LAYERS), ids=str)
def test_deep_layers_have_wide_columns(case):
    """Of 64 channels a row of the window is one step and a half."""
    cpu, channels, step = case
    layer = Conv2d(np.ones((64, channels, 3, 3), int), 1, 1, padding=1, image=(14, 14), isa="neon", cpu=cpu)
    assert (layer.schedule.method, layer.schedule.k_step) == ("popcount", step)
    assert ("in steps of 128" in str(layer.schedule)) == bool(step)


def test_they_are_asked_for_by_name():
    assert OPTIONS.variant == "popcount-c64-k128"
    assert synth_command(spec_of("neon", 1, 1), OPTIONS).endswith("--method popcount --channels 64 --k-step 128")
    found = get_kernel("neon", 1, 1, method="popcount", channels=64, k_step=128)
    assert found.entry.options == OPTIONS == DEEP.kernel_options
    with pytest.raises(SpecError, match=r"A2W2 on neon, popcount-c64-k128 is not cached; run `.* --k-step 128`"):
        get_kernel("neon", 2, 2, method="popcount", channels=64, k_step=128)


@pytest.mark.parametrize("asked", [{"method": "lookup"}, {"method": None}])
def test_only_popcount_is_asked_for_so_many_positions(asked):
    with pytest.raises(SpecError, match="k_step asks for popcount: 128"):
        KernelOptions(**{"method": "popcount", "k_step": 128} | asked)


@pytest.mark.parametrize("number", [-1, 64.0, True, 10**400])
@pytest.mark.parametrize("name", ["k_step", "channels"])
def test_numbers_that_are_none(name, number):
    with pytest.raises(SpecError, match=f"{name} must be a whole number up to 1,048,576, 0 for any, not '.{{2,40}}'"):
        KernelOptions(**{"method": "popcount", name: number})


def test_the_paper_has_its_own():
    with pytest.raises(SpecError, match="k_step is of the exact sketch"):
        KernelOptions("popcount", "paper", k_step=128)


@pytest.mark.parametrize(("isa", "asked", "known"), [("neon", 96, "64 or 128"), ("avx2", 128, "32 or 64")])
def test_steps_that_no_register_takes(isa, asked, known):
    options = KernelOptions("popcount", k_step=asked)
    with pytest.raises(NoKernel, match=f"{isa}: steps of popcounts take {known} positions of K, not {asked}"):
        synthesize.candidates(options.isa(isa), spec_of(isa, 1, 1), options, Budget())
