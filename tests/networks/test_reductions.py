"""Folds along axes in plain C: in the order of memory where that is the order of sums, else row by row."""

from typing import Any

import numpy as np
import pytest

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Reals
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.run import Network

SHAPE = (3, 20, 4, 40)
NUMPY: dict[str, Any] = {"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min}


def network(op, axes):
    builder = GraphBuilder("folds", "exact")
    x = builder.input("x", SHAPE, "float64", Reals())
    net = Network(lower(builder.build((builder.add(op, x, axes=axes),)), NetworkTarget("avx2")))
    (step,) = (step for step in net.program.steps if step.nodes)
    return net, step


def sums_in_order(x, axes):
    """Return sums of float64, added one after another in the order of the axes."""
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(*kept, *axes).reshape(*(x.shape[k] for k in kept), -1)
    return np.add.accumulate(rows, axis=-1)[..., -1].reshape([1 if k in axes else n for k, n in enumerate(x.shape)])


@pytest.mark.parametrize("axes", [(1,), (0,), (1, 2), (0, 2), (3,), (2, 3), (1, 3)])
@pytest.mark.parametrize("op", NUMPY)
def test_folds_of_numbers(rng, op, axes):
    net, step = network(op, axes)
    x = rng.normal(size=SHAPE) * 10.0 ** rng.integers(-9, 9, SHAPE)
    wanted = sums_in_order(x, axes) if op == "reduce_sum" else NUMPY[op](x, axis=axes, keepdims=True)
    assert (net({"x": x}) == wanted).all()
    copies = 3 in axes or op == "reduce_min"
    assert step.scratch_bytes > x.nbytes or not copies
    assert step.scratch_bytes < x.nbytes or copies


def test_a_maximum_with_no_number_is_none(rng):
    net, _ = network("reduce_max", (1,))
    x = rng.normal(size=SHAPE)
    x[0, 7, 2, 5] = np.nan
    result = net({"x": x})
    assert np.isnan(result[0, 0, 2, 5])
    assert np.isnan(result).sum() == 1
