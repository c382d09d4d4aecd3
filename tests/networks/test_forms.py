"""Operators in the forms in which exporters write them: read, compiled, and the reference's at every edge."""

import numpy as np
import pytest
from support.network_batches import compiled_together, numbers, same
from support.network_forms import FORMS
from support.prequantized_networks import PATTERNS
from support.quantized_forms import FORMS as QUANTIZED

import bitsynth
from bitsynth.graph import run


@pytest.mark.slow
def test_forms_are_compiled(rng):
    every = {name: make() for name, make in (FORMS | QUANTIZED).items()} | PATTERNS
    nets = {name: bitsynth.compile(each, isa="avx2") for name, each in every.items()}
    compiled_together("avx2", nets.values())
    for name, net in nets.items():
        given = {x: numbers(rng, net.graph.edges[x]) for x in net.graph.inputs}
        values, each = run(net.graph, given), net(given)
        wrong = [e for e, got in (*net.trace(given).items(), (net.graph.outputs[0], each)) if not same(values, e, got)]
        assert not wrong, f"{name}: {wrong}"
        assert len(np.unique(each)) > (each.size > 1), name
