"""Dense layers: images that lie flat, in either order, and the last one, which gives sums."""

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from support.layer_cases import machine, usable, words

from bitsynth.errors import SpecError
from bitsynth.layers import Conv2d, Dense, Thresholds, compile_all
from bitsynth.layers import library as libraries
from bitsynth.layers.schedule import LayerSchedule

M = machine("avx2", "lookup", 2, 2, "unsigned", "signed")
ISA: dict[str, Any] = {"act_bits": 2, "w_bits": 2, "isa": "avx2", "weight_encoding": "signed"}
SCHEDULE = LayerSchedule("avx2", "lookup", 64, gather="direct")
SHAPE = HEIGHT, WIDTH, CHANNELS = 2, 3, 70
RNG = np.random.default_rng(5)
X = RNG.integers(0, 4, (3, *SHAPE)).astype(np.uint8)
W = RNG.integers(-2, 2, (5, HEIGHT * WIDTH * CHANNELS))


@pytest.fixture(autouse=True, scope="module")
def compiled(skip_isa):
    usable(M, skip_isa)


def flat(order):
    pixels = X.astype(int)
    return (pixels.transpose(0, 3, 1, 2) if order == "NCHW" else pixels).reshape(3, -1)


def dense(weight=W, **options):
    return Dense(weight, **{**ISA, "schedule": SCHEDULE, "flatten": SHAPE, **options})


@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
@pytest.mark.parametrize("layout", ["NHWC", "packed"])
@pytest.mark.parametrize("options", [{}, {"bias": [7, 0, -3, 1, 9], "zero_point": 2}], ids=["plain", "offset"])
@pytest.mark.parametrize("encoding", ["signed", "bipolar"])
def test_images_lie_flat_in_either_order(order, layout, options, encoding):
    """Channels are no multiple of 64: pixels of words have some that nobody uses."""
    weight = 2 * W + 1 if encoding == "bipolar" else W
    layer = dense(weight, flatten_order=order, layout=layout, weight_encoding=encoding, **options)
    want = (flat(order) - options.get("zero_point", 0)) @ weight.T + options.get("bias", 0)
    given = words(X, 2) if layout == "packed" else X
    for x in (given, given.reshape(3, -1)):
        np.testing.assert_array_equal(layer.run(x), want)
    for same in (copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(same(given), want)
    call, out = layer.bind(given)
    assert (call(), (out == want).all()) == (0, True)


def test_bits_of_no_channel_are_not_read():
    """As in all layers of words, whatever lies there."""
    layer = dense(2 * W + 1, layout="packed", weight_encoding="bipolar")
    full = words(np.concatenate([X, np.full((3, HEIGHT, WIDTH, 128 - CHANNELS), 3, X.dtype)], axis=-1), 2)
    assert (full != words(X, 2)).any()
    for x in (full, full.reshape(3, -1)):
        np.testing.assert_array_equal(layer.run(x), flat("NCHW") @ (2 * W + 1).T)


def test_activations_that_have_no_zero():
    """Sums of idle channels count, and are subtracted again."""
    layer = dense(layout="packed", act_encoding="bipolar", zero_point=1)
    np.testing.assert_array_equal(layer.run(words(X, 2)), (2 * flat("NCHW") - 3 - 1) @ W.T)


def test_a_packed_convolution_before_a_last_dense_layer():
    """The words of a convolution of 70 channels; int32 sums if unsaid."""
    first = Conv2d(
        RNG.integers(-2, 2, (CHANNELS, 4, 1, 1)),
        **ISA,
        schedule=SCHEDULE,
        epilogue=Thresholds(np.sort(RNG.integers(-4, 9, (CHANNELS, 3)))),
        out_layout="packed",
    )
    image = RNG.integers(0, 4, (3, HEIGHT, WIDTH, 4))
    last = dense(layout="packed")
    assert (last.out_layout, first.out_layout) == ("NHWC", "packed")
    first_layer = first(image)
    codes = Conv2d(first.weight, **ISA, schedule=SCHEDULE, epilogue=first.epilogue)(image)
    want = codes.transpose(0, 3, 1, 2).reshape(3, -1).astype(int) @ W.T
    got = last(first_layer)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two sizes": ({"flatten": (6, 70)}, "flatten must be (height, width, channels), not (6, 70)"),
    "no pixels": ({"flatten": (0, 3, 70)}, "whole numbers of at least 1"),
    "other features": ({"flatten": (2, 3, 71)}, "images of (2, 3, 71) have 426 features, not 420"),
    "other order": ({"flatten_order": "CHW"}, "flatten_order must be NCHW or NHWC, not 'CHW'"),
    "an array of orders": (
        {"flatten_order": np.array(["NCHW", "NHWC"])},
        "flatten_order must be NCHW or NHWC, not array",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_dense_layers_are_refused(what):
    options, message = REFUSED[what]
    with pytest.raises(SpecError, match=re.escape(message)):
        dense(**options)


def test_images_of_other_sizes():
    with pytest.raises(SpecError, match=re.escape("want images of 2 x 3 pixels, not (3, 3, 2, 70)")):
        dense().run(X.transpose(0, 2, 1, 3))
    with pytest.raises(SpecError, match="want activations"):
        dense().run(X[..., :69])


def test_layers_are_compiled_before_their_first_call(monkeypatch):
    """Layers of one kernel are compiled once."""
    monkeypatch.setattr(libraries, "_runners", {})
    compiling: list[str] = []
    made_by = libraries.compile_library

    def compiled(kernel, *program):
        compiling.append(kernel.name)
        return made_by(kernel, *program)

    monkeypatch.setattr(libraries, "compile_library", compiled)
    three = [dense(), dense(bias=3), dense(-W[:, ::-1] - 1)]
    heard: list[tuple[float, float | None]] = []
    compile_all(three, progress=lambda message, done=0, total=None: heard.append((done, total)))
    assert compiling == [three[0].kernel.name]
    assert heard == [(1, 1)]
    assert three[0].compile() is three[0]
    assert (three[0].run(X) + 3 == three[1].run(X)).all()
    assert len(compiling) == 1
    compile_all([])
