"""Predicted costs of the layers of a compiled network, and of the same layers with other codes of weights.

Cycles are counted for accumulators and packing, sums of activations included, by the model that chose a layer's
schedule, and of the epilogue's programs. Other codes of weights take another kernel and schedule, but keep the
epilogue. So one compiled network gives the costs of all codes of its weights.

Given:  a layer of the network compiled for AVX2 with 2-bit activations and 8-bit weights, which takes 18,234 cycles
Result: 11,078 cycles with 2-bit weights, whose kernel counts bits; 10,948 with 3 bits, by another kernel
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bitsynth.errors import NoKernel, SpecError
from bitsynth.graph.operators import PRODUCTS
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.planning import plan
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.encodings import weights
from bitsynth.network.fusion.cost import layer_cycles, processor_of
from bitsynth.network.program import LayerStep, NetworkProgram
from bitsynth.quantization.float_model import WeightedProduct
from bitsynth.quantization.goal import Cost
from bitsynth.quantization.grids import WeightCodes


def find_layers(products: Iterable[WeightedProduct], program: NetworkProgram) -> dict[str, LayerStep]:
    """Return the layer that computes each product, by the product's name in the file; products in plain C have none."""
    of_node = {node: step for step in program.steps if isinstance(step, LayerStep) for node in step.nodes}
    nodes = {node.source: node.name for node in program.graph.nodes if node.op in PRODUCTS}
    names = {product.name: nodes.get(f"{product.op} {product.name}", "") for product in products}
    return {name: of_node[node] for name, node in names.items() if node in of_node}


def network_cost(program: NetworkProgram, weight_bytes: int, target: NetworkTarget) -> Cost:
    """Return the cost of a network: predicted cycles of its layers, and the bytes of its constants."""
    steps = [step for step in program.steps if isinstance(step, LayerStep)]
    return Cost(sum(layer_cost(step, target).cycles for step in steps), float(weight_bytes))


def layer_cost(step: LayerStep, target: NetworkTarget) -> Cost:
    """Return the cost of a layer."""
    return _cost(step.layer, step.image[0], target)


def cost_with_codes(step: LayerStep, codes: WeightCodes, target: NetworkTarget) -> Cost | None:
    """Return the cost of a layer whose weights have other codes; None if no kernel computes it."""
    low, high = codes.limits
    layer = step.layer
    zeros = np.zeros(layer.plan.spec.geometry.weight_shape, np.uint8)
    for operand in weights(np.arange(low, high + 1, 1 + codes.is_odd), layer.plan.spec.act.bits):
        with suppress(NoKernel, SpecError):
            spec = replace(layer.plan.spec, wgt=operand)
            planned = plan(spec, isa=target.isa, cpu=target.cpu, threads=target.threads)
            return _cost(PackedLayer(planned, zeros, layer.epilogue, layer.bias), step.image[0], target)
    return None


def _cost(layer: PackedLayer, batch: int, target: NetworkTarget) -> Cost:
    """Return the cost of a layer that is run for some images."""
    size = sum(array.nbytes for array in layer.constants.arrays.values())
    return Cost(float(round(layer_cycles(layer, batch, processor_of(target)))), float(size))
