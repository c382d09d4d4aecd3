"""Resize: numbers on lines between neighbours, whose definition is written out here."""

from typing import Any

import numpy as np
import pytest
from onnx_files import model, node

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
def test_the_definition(mode, sizes, rng):
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
    made = model([node("Resize", "x - - s", "y", **how)], {"x": (1, 1, 2, 2)}, {"s": np.array([1, 1, 4, 4])})
    with pytest.raises(SpecError, match=r"Resize the_Resize: mode .* is not compiled; upsample by nearest or linear"):
        read(made)


def test_more_than_three_axes_are_refused():
    with pytest.raises(SpecError, match="4 axes are not interpolated at once; at most 3"):
        read(resized((1, 1, 2, 2, 2, 2), (1, 1, 3, 3, 3, 3)))
