"""Operands of tuning: sums by numpy that boards' results are checked against."""

import numpy as np
import pytest
from support.layer_cases import convolution

from bitsynth.layers.geometry import Geometry
from bitsynth.layers.tuned import TuningTask
from bitsynth.tune.measurer import TaskOperands


@pytest.mark.parametrize(
    "g",
    [
        Geometry(6, 10, 2, (3, 2), (2, 1), (1, 2, 0, 3), (1, 2)),
        Geometry(7, 5, 1, (1, 1), (3, 2), (0, 0, 0, 0), (1, 1)),
        Geometry(4, 4, 4, (2, 3), (1, 1), (1, 0, 1, 1), (2, 1)),
    ],
)
def test_sums_of_operands_are_exact(g):
    operands = TaskOperands(TuningTask("avx2", 3, 2, g, (9, 11), 1))
    window = {"stride": g.stride, "padding": g.padding, "dilation": g.dilation, "groups": g.groups}
    assert operands.exact().dtype == np.int32
    assert np.array_equal(operands.exact(), convolution(operands.codes, operands.weight, **window))
