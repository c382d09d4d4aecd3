"""Resize: numbers on lines between neighbours, whose definition is written out here."""

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from support.case_selection import quick
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

WHERE = {
    "half_pixel": lambda x, n, m: (x + 0.5) * n / m - 0.5,
    "align_corners": lambda x, n, m: x * (n - 1) / max(m - 1, 1),
    "asymmetric": lambda x, n, m: x * n / m,
}


def on_lines(x, sizes, where):
    """The definition: along one axis after the other."""
    for axis, (n, m) in enumerate(zip(x.shape, sizes, strict=True)):
        at = np.clip([where(k, n, m) for k in range(m)], 0, n - 1)
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        x = x.take(low, axis) * (1 - share) + x.take(np.minimum(low + 1, n - 1), axis) * share
    return x


def resized(shape, sizes, dtype=None, **how: Any):
    typed = {} if dtype is None else {"dtype": dtype}
    return model([node("Resize", "x - - s", "y", mode="linear", **how)], {"x": shape}, {"s": np.array(sizes)}, **typed)


SIZES = [((1, 2, 3, 4), (1, 2, 6, 8)), ((2, 3, 5), (2, 3, 7)), ((1, 1, 4, 6), (1, 1, 2, 1))]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", WHERE)
def test_resize_follows_its_definition(mode, sizes, rng):
    shape, out = sizes
    x = rng.normal(size=shape).astype(np.float32)
    values = run(read(resized(shape, out, coordinate_transformation_mode=mode)), {"x": x})
    np.testing.assert_allclose(values.floats("y"), on_lines(x.astype(float), out, WHERE[mode]), atol=1e-5)


def test_codes_lose_their_fraction(rng):
    x = rng.integers(-128, 128, (1, 2, 3, 3)).astype(np.int8)
    values = run(read(resized(x.shape, (1, 2, 6, 6), 3)), {"x": x})
    want = np.trunc(on_lines(x.astype(float), (1, 2, 6, 6), WHERE["half_pixel"]))
    np.testing.assert_array_equal(values.outputs()[0], want)


@pytest.mark.parametrize("how", [{"mode": "cubic"}, {"mode": "linear", "antialias": 1}])
def test_what_is_not_compiled_is_refused(how):
    onnx_model = model([node("Resize", "x - - s", "y", **how)], {"x": (1, 1, 2, 2)}, {"s": np.array([1, 1, 4, 4])})
    with pytest.raises(SpecError, match=r"Resize the_Resize: mode .* is not compiled; upsample by nearest or linear"):
        read(onnx_model)


def test_more_than_three_axes_are_refused():
    with pytest.raises(SpecError, match="4 axes are not interpolated at once; at most 3"):
        read(resized((1, 1, 2, 2, 2, 2), (1, 1, 3, 3, 3, 3)))


TIE = np.array([[[[1, 3, -7, 9, 5, 2, 4, 0]]]], np.float32)
"""Resized to 6 elements the fourth is 5 - 3 / 6, which is a tie of rounding."""


@pytest.mark.parametrize(("reference", "fourth"), [("exact", 4), ("onnx", 4), ("onnxruntime", 5)])
def test_weights_follow_the_reference(reference, fourth):
    """ONNX Runtime's weight of 1/6 is a float32, which is no longer on the tie."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Resize", "d - - n", "r", mode="linear"),
        node("QuantizeLinear", "r s z", "p"),
        node("DequantizeLinear", "p s z", "y"),
    ]
    given = {"s": np.float32(1), "z": np.int8(0), "n": np.array([1, 1, 1, 6])}
    onnx_model = model(nodes, {"x": TIE.shape}, given)
    net = bitsynth.compile(onnx_model, isa="avx2", reference=reference)
    wanted = [1, -2, 6, fourth, 3, 1]
    assert run(net.graph, {"x": TIE}).floats("y").ravel().tolist() == net(TIE).ravel().tolist() == wanted


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
@pytest.mark.parametrize("sizes", quick([(5, 7)], of=[(5, 7), (9, 2), (1, 13)]))
def test_exact_results_are_fractions(mode, sizes, rng):
    """Of integers, rounded down on a grid of fourths: no weight is rounded, so no tie is missed."""
    x = rng.integers(-9, 10, (1, 1, 3, 4)).astype(np.float32)
    rounded = node("Quant", "r s z b", "y", domain=QONNX, signed=1, narrow=0, rounding_mode="FLOOR")
    nodes = [
        node("Quant", "x one z b", "q", domain=QONNX, signed=1, narrow=0),
        node("Resize", "q - - n", "r", mode="linear", coordinate_transformation_mode=mode),
        rounded,
    ]
    given = {"one": np.float32(1), "s": np.float32(0.25), "z": np.float32(0), "b": np.float32(8)}
    onnx_model = model(nodes, {"x": x.shape}, given | {"n": np.array([1, 1, *sizes])})
    image = [[Fraction(int(value)) for value in row] for row in x[0, 0]]
    columns = list(map(list, zip(*_along(image, sizes[0], mode), strict=True)))
    want = np.array(_along(columns, sizes[1], mode)).T
    net = bitsynth.compile(onnx_model, isa="avx2", reference="exact")
    wanted = np.array([[floor(value * 4) / 4 for value in row] for row in want])
    np.testing.assert_array_equal(run(net.graph, {"x": x}).floats("y")[0, 0], wanted)
    np.testing.assert_array_equal(net(x)[0, 0], wanted)


def _along(rows, out, mode):
    """The definition along the first of two axes, in fractions."""
    size, half = len(rows), Fraction(1, 2)
    where = {
        "half_pixel": lambda x: (x + half) * size / out - half,
        "half_pixel_symmetric": lambda x: (x + half) * size / out - half,
        "align_corners": lambda x: Fraction(x * (size - 1), max(out - 1, 1)),
        "asymmetric": lambda x: Fraction(x * size, out),
    }[mode]
    items = []
    for k in range(out):
        at = min(max(where(k), 0), size - 1)
        a, b, share = rows[floor(at)], rows[min(floor(at) + 1, size - 1)], at - floor(at)
        items.append([u * (1 - share) + v * share for u, v in zip(a, b, strict=True)])
    return items


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_the_reference_onnx_is_its_evaluator(mode, where, rng):
    """To the bit, also where float64 and float32 place an element differently."""
    for _ in range(12):
        shape, scales = (1, 2, *rng.integers(2, 9, 2).tolist()), rng.choice([0.5, 0.6, 0.7, 1.25, 1.5, 1.7, 2, 2.6], 2)
        how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
        onnx_model = model(
            [node("Resize", "x - s", "y", **how)], {"x": shape}, {"s": np.array([1, 1, *scales], np.float32)}
        )
        x = rng.integers(-9, 10, shape).astype(np.float32)
        (want,) = ReferenceEvaluator(onnx_model).run(None, {"x": x})
        np.testing.assert_array_equal(run(read(onnx_model, reference="onnx"), {"x": x}).floats("y"), want)


def test_onnx_runtime_rounds_up_just_below_a_tie():
    """Of 1.32.0: the coordinate 4 / float32(8 / 7) is 3.4999998, and the element the fifth."""
    how: dict[str, Any] = {"nearest_mode": "round_prefer_ceil", "coordinate_transformation_mode": "asymmetric"}
    onnx_model = model([node("Resize", "x - - s", "y", **how)], {"x": (7,)}, {"s": np.array([8])})
    values = run(read(onnx_model, reference="onnxruntime"), {"x": np.arange(7, dtype=np.float32)})
    assert values.floats("y").tolist() == [0, 1, 2, 3, 4, 4, 5, 6]


def test_scales_without_a_common_divisor_are_refused():
    scales = np.array([1, 1, 1.1234567, 1.7654321, 1.3456789], np.float32)
    onnx_model = model([node("Resize", "x - s", "y", mode="linear")], {"x": (1, 1, 3, 3, 3)}, {"s": scales})
    with pytest.raises(SpecError, match=r"no common divisor up to 2\^53 has; give sizes instead of scales"):
        read(onnx_model, reference="exact")
