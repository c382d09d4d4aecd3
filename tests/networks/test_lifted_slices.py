"""Slices move above elementwise nodes up to codes: which do, and that the numbers stay as they are."""

import numpy as np
import pytest
from support.plain_cases import codes

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.passes.slices import lift_slices
from bitsynth.graph.reference import run
from bitsynth.graph.types import Integers
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower

SHAPE = (1, 8, 4, 4)
HALVES = [((0, 1, 1), (c, c + 4, 1), (0, 4, 1), (0, 4, 1)) for c in (0, 4)]


def swish(b, x):
    """SiLU with a quantizer behind its sigmoid."""
    return b.add("mul", x, codes(b, b.add("sigmoid", x), bits=8, scale=1 / 256, zero=-128.0, zero_first=True))


def split(b, x):
    """Two halves of the channels, each with a quantizer."""
    return tuple(
        codes(b, b.add("slice", x, slices=slices), bits=8, scale=scale)
        for slices, scale in zip(HALVES, (0.125, 0.0625), strict=True)
    )


def read_twice(b, x):
    y = swish(b, x)
    return (*split(b, y), b.add("relu", y))


def differing_channels(b, x):
    return split(b, b.add("mul", x, b.constant(np.arange(1, 9, dtype=np.float32).reshape(1, 8, 1, 1))))


CASES = {
    "an activation": (lambda b, x: split(b, swish(b, x)), True),
    "a function": (lambda b, x: split(b, b.add("tanh", x)), True),
    "codes": (lambda b, x: split(b, codes(b, swish(b, x), bits=8, scale=0.125)), False),
    "a result that is read as a whole": (read_twice, False),
    "constants of channels": (differing_channels, False),
    "a sum before it": (lambda b, x: split(b, swish(b, b.add("add", x, b.constant(np.float32(0.3))))), True),
}


def built(build, kind):
    builder = GraphBuilder("slices", "exact")
    x = builder.input("x", SHAPE, "float32", kind)
    return builder.build(build(builder, x))


@pytest.mark.parametrize("name", CASES)
def test_slices_that_move(name):
    build, moves = CASES[name]
    graph = built(build, Integers.between(0, 255, 0.0625, 100))
    lifted = lift_slices(graph)
    assert (lifted is not graph) == moves
    sliced = {lifted.edges[node.inputs[0]].name for node in lifted.nodes if node.op == "slice"}
    assert not moves or sliced == {"x"}
    numbers = {"x": ((np.arange(128).reshape(SHAPE) * 2 - 100) * 0.0625).astype(np.float32)}
    for got, wanted in zip(run(lifted, numbers).outputs(), run(graph, numbers).outputs(), strict=True):
        assert (got == wanted).all()


def test_slices_stay_below_accumulators():
    """A layer computes its activation and its quantizer with the product."""
    graph = built(CASES["an activation"][0], Integers.between(-5000, 5000, 1 / 1024))
    assert lift_slices(graph) is graph


def test_each_part_is_one_lookup():
    graph = built(CASES["an activation"][0], Integers.between(0, 255, 0.0625, 100))
    steps = [step for step in lower(graph, NetworkTarget("avx2")).steps if step.kind == "glue"]
    assert sorted(step.outputs[0] for step in steps) == sorted(graph.outputs)


def test_a_slice_of_all_elements_is_a_view():
    every = tuple((0, n, 1) for n in SHAPE)
    graph = built(lambda b, x: (b.add("slice", swish(b, x), slices=every),), Integers.between(0, 255, 0.0625, 100))
    lifted = lift_slices(graph)
    assert [node.op for node in lifted.nodes][-1] == "reshape"
    numbers = {"x": ((np.arange(128).reshape(SHAPE) * 2 - 100) * 0.0625).astype(np.float32)}
    assert (run(lifted, numbers).outputs()[0] == run(graph, numbers).outputs()[0]).all()
    turned = tuple((n - 1, None, -1) for n in SHAPE)
    reverse = built(lambda b, x: (b.add("slice", swish(b, x), slices=turned),), Integers.between(0, 255, 0.0625, 100))
    assert "reshape" not in {node.op for node in lift_slices(reverse).nodes}
