"""Values become codes in C exactly as numpy makes them: every integer type, encoding and stride; misfits are named."""

import numpy as np
import pytest
from support.case_selection import HERE

from bitsynth.errors import SpecError
from bitsynth.layers import Conv2d
from bitsynth.run import arguments
from bitsynth.spec.matmul import Encoding, MatmulOperand

TYPES = [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]
OPERANDS = [MatmulOperand(b, e) for e in Encoding for b in e.widths]


@pytest.fixture(scope="module")
def runner():
    return Conv2d(np.ones((1, 1, 1, 1), int), 1, 1, isa=HERE).runner


def values(operand, dtype, shape=(2, 1, 2, 300)):
    """Values that the encoding and the type have, both ends among them."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    all_of = np.array([v for c in operand.codes if low <= (v := operand.value(c)) <= high], dtype)
    return np.resize(all_of, shape)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_codes_and_misfits_of_a_type(runner, dtype):
    """A misfit is any value without a code: both ends of the type, and values that wrap to a value with a code."""
    for operand in OPERANDS:
        x = values(operand, dtype)
        want = operand.encode(x, "x")
        assert (arguments.encode(runner, operand, x, "x") == want).all(), operand
        info, held = np.iinfo(dtype), {operand.value(c) for c in operand.codes}
        near = {min(held) - 1, max(held) + 1, info.min, 255, 256, -129}
        near |= {info.max - i for i in (0, 1, 2, 100, 254, 255, 509)}
        for wrong in sorted(v for v in near if info.min <= v <= info.max and v not in held):
            y = x[:1, :1, :1].copy()
            y[0, 0, 0, 290] = wrong
            with pytest.raises(SpecError, match=rf"x\[0, 0, 0, 290\] is {wrong}; "):
                arguments.encode(runner, operand, y, "x")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_values_of_any_strides_are_encoded(runner, order, step):
    """Transposed, in steps and backwards; rows that are one row, and lines longer than a piece."""
    for operand, dtype in ((OPERANDS[1], np.uint8), (OPERANDS[-1], np.int64)):
        for shape in ((2, 6, 5, 33), (1, 1, 2, 9000)):
            x = values(operand, dtype, shape).transpose(order)[:, ::step, :, ::step]
            assert (arguments.encode(runner, operand, x, "x") == operand.encode(x, "x")).all()
    broadcast = np.broadcast_to(np.arange(4, dtype=np.int16), (3, 2, 4))
    assert (arguments.encode(runner, OPERANDS[1], broadcast, "x") == broadcast).all()


def test_other_arrays_are_encoded_by_numpy(runner):
    """Bytes in the other order, five axes, no elements, bool, and what is no integer."""
    two = MatmulOperand(2, Encoding.UNSIGNED)
    for x in (np.arange(4, dtype=">i4"), np.resize([0, 1, 2], (2,) * 5)[..., ::-1], np.zeros((0, 3), int)):
        assert (arguments.encode(runner, two, x, "x") == x).all()
    assert arguments.encode(runner, two, np.array([True, False]), "x").tolist() == [1, 0]
    with pytest.raises(SpecError, match="x must be an integer array"):
        arguments.encode(runner, two, np.zeros(3), "x")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_layers_take_values_of_any_type_and_stride(threads, layout):
    weight = np.resize([1, -1, -1, 1, 1], (5, 6, 3, 3))
    layer = Conv2d(weight, 3, 1, padding=1, act_encoding="signed", layout=layout, threads=threads, isa=HERE)
    x = np.random.default_rng(0).integers(-4, 4, (2, 6, 9, 7) if layout == "NCHW" else (2, 9, 7, 6))
    want = layer.run(layer.act.encode(x, "x"))
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        wide = np.zeros((*x.shape[:3], 2 * x.shape[3]), dtype)
        wide[..., ::2] = x
        assert (layer(x.astype(dtype)) == want).all()
        assert (layer(wide[..., ::2]) == want).all()
        x[1, 2, 3, 4] = 4
        with pytest.raises(SpecError, match=r"x\[1, 2, 3, 4\] is 4; 3-bit signed holds -4 to 3"):
            layer(x.astype(dtype))
        x[1, 2, 3, 4] = -1
        want = layer.run(layer.act.encode(x, "x"))
