"""ConvTranspose as a convolution of phases: its definition, and layers of few bits."""

import re
from typing import Any

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

GIVEN = {"half": np.float32(0.5), "zero": np.float32(0), "four": np.float32(4), "coarse": np.float32(4)}


def transposed(x, w, stride, pads, more, groups):
    """The definition: each pixel adds its window of the result."""
    n, channels, *image = x.shape
    out, kernel = w.shape[1], w.shape[2:]
    full = np.zeros((n, groups * out, *(stride * (a - 1) + k + stride for a, k in zip(image, kernel, strict=True))))
    for c in range(channels):
        g = c // (channels // groups)
        for i, j in np.ndindex(*image):
            at = np.s_[
                :, g * out : (g + 1) * out, i * stride : i * stride + kernel[0], j * stride : j * stride + kernel[1]
            ]
            full[at] += x[:, c, i, j, None, None, None] * w[c]
    sizes = [
        stride * (a - 1) + k + m - b - e for a, k, m, b, e in zip(image, kernel, more, pads[:2], pads[2:], strict=True)
    ]
    return full[:, :, pads[0] : pads[0] + sizes[0], pads[1] : pads[1] + sizes[1]]


def net(w, image, stride=2, pads=(0, 0, 0, 0), more=(0, 0), groups=1):
    quant: dict[str, Any] = {"domain": QONNX, "signed": 1, "narrow": 0}
    how: dict[str, Any] = {"strides": [stride] * 2, "pads": list(pads), "output_padding": list(more), "group": groups}
    nodes = [
        node("Quant", "x half zero four", "q", **quant),
        node("ConvTranspose", "q w b", "r", **how),
        node("Quant", "r coarse zero four", "y", **quant),
    ]
    bias = np.linspace(-3, 3, w.shape[1] * groups).round().astype(np.float32)
    return model(nodes, {"x": image}, GIVEN | {"w": w, "b": bias}, outputs="y r"), bias


CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "phases apart": ((2, 2), {}),
    "overlapping": ((3, 3), {"pads": (1, 1, 1, 1), "more": (1, 1)}),
    "four taps": ((4, 4), {"pads": (1, 1, 1, 1)}),
    "cut unevenly": ((5, 3), {"pads": (2, 0, 1, 1)}),
    "cut by more than a stride": ((2, 2), {"pads": (3, 2, 2, 3)}),
    "fewer taps than phases": ((2, 1), {"stride": 3, "more": (2, 1)}),
    "stride 1": ((3, 2), {"stride": 1, "pads": (1, 0, 1, 0)}),
    "groups": ((3, 2), {"groups": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_conv_transpose_follows_its_definition(name, rng):
    kernel, how = CASES[name]
    w = rng.integers(-3, 4, (4, 3, *kernel)).astype(np.float32)
    network, bias = net(w, (2, 4, 5, 6), **how)
    x = rng.integers(-8, 8, (2, 4, 5, 6)).astype(np.float32) / 2
    values = run(read(network), {"x": x})
    given: dict[str, Any] = {"stride": 2, "pads": (0, 0, 0, 0), "more": (0, 0), "groups": 1} | how
    np.testing.assert_array_equal(values.floats("r"), transposed(x, w, **given) + bias[:, None, None])


def test_it_is_a_layer_of_few_bits(rng):
    network, _ = net(rng.integers(-1, 2, (32, 16, 2, 2)).astype(np.float32), (1, 32, 4, 4))
    compiled = bitsynth.compile(network, isa="avx2")
    assert sum(step.macs > 0 for step in compiled.report().steps) == 1
    x = rng.normal(size=(1, 32, 4, 4)).astype(np.float32) * 4
    values = run(compiled.graph, {"x": x})
    for name, got in zip(compiled.graph.outputs, compiled(x), strict=True):
        np.testing.assert_array_equal(got, values.floats(name))


def lone(image, weights, **how):
    """A model that is a ConvTranspose of `image` with `weights`."""
    return model([node("ConvTranspose", "x w", "y", **how)], {"x": image}, {"w": weights})


AXES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one axis": ((2, 4, 5), (4, 3, 4), {"strides": [2], "pads": [1, 0]}),
    "strides apart": ((1, 4, 4, 5), (4, 2, 3, 2), {"strides": [3, 2], "output_padding": [1, 0]}),
    "a stride of one axis": ((1, 4, 4, 5), (4, 2, 1, 4), {"strides": [1, 2], "pads": [0, 1, 0, 1]}),
    "three axes": ((1, 2, 3, 2, 4), (2, 3, 2, 1, 3), {"strides": [2, 1, 2]}),
    "dilations": ((1, 2, 4, 4), (2, 3, 3, 2), {"strides": [2, 1], "dilations": [3, 2], "pads": [1, 0, 2, 0]}),
    "as large as strides say": ((1, 2, 3, 4), (2, 3, 4, 3), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "cut more at the beginning": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "of a shape": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [6, 7]}),
    "all of it": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "VALID"}),
}


@pytest.mark.parametrize("name", AXES)
def test_onnxruntime_agrees_about(name, rng):
    shape, kernel, how = AXES[name]
    onnx_model = lone(shape, rng.integers(-3, 4, kernel).astype(np.float32), **how)
    x = rng.integers(-8, 8, shape).astype(np.float32)
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model.SerializeToString())
    np.testing.assert_array_equal(run(read(onnx_model), {"x": x}).floats("y"), *session.run(None, {"x": x}))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "strides": ({"strides": [2]}, "strides [2], dilations [1, 1], output_padding [0, 0] do not fit 2 axes"),
    "a stride": ({"strides": [65, 1]}, "strides [65, 1] and dilations [1, 1] must be 1 to 64"),
    "a dilation": ({"dilations": [1, 0]}, "strides [1, 1] and dilations [1, 0] must be 1 to 64"),
    "output padding": ({"output_padding": [1, 0]}, "output_padding [1, 0] must be below [1, 1]"),
    "a way to pad": ({"auto_pad": "SAME"}, "auto_pad 'SAME' is not known"),
    "a shape": ({"output_shape": [9, 9]}, "output_shape [9, 9] does not fit [5, 5] elements; export it with pads"),
    "pads": ({"pads": [1, 1]}, "pads [1, 1] do not fit 2 axes"),
    "pads of all": ({"pads": [3, 3, 2, 2]}, "pads [3, 3, 2, 2] leave nothing of an image (1, 2, 4, 4)"),
    "groups": ({"group": 3}, "weights (2, 3, 2, 2) of 3 groups do not fit an image (1, 2, 4, 4)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_attributes_that_do_not_fit_are_refused(name):
    how, message = WRONG[name]
    with pytest.raises(SpecError, match="ConvTranspose the_ConvTranspose: " + re.escape(message)):
        read(lone((1, 2, 4, 4), np.ones((2, 3, 2, 2), np.float32), **how))


def test_weights_of_too_many_phases_are_refused():
    with pytest.raises(SpecError, match=r"weights of all phases would be 4,294,967,296, more than 268,435,456; "):
        read(lone((1, 1024, 4, 4), np.ones((1024, 1024, 1, 1), np.float32), strides=[64, 64]))


def test_pads_beyond_what_the_image_adds_to_are_refused():
    how: dict[str, Any] = {"strides": [3, 3], "pads": [1, 1, 0, 0], "output_padding": [2, 2]}
    with pytest.raises(SpecError, match="no pixel of it is read"):
        read(lone((1, 2, 1, 1), np.ones((2, 3, 1, 1), np.float32), **how))
