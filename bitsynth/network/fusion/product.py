"""Products with constant weights, as layers have them: integers, an image and a window.

Layers of products: the operands for which there is a kernel, and the layer in the layouts asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from bitsynth.errors import NoKernel, SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.types import INT32, Edge, Integers, Tensor
from bitsynth.layers.conv import Conv2d
from bitsynth.layers.dense import Dense
from bitsynth.layers.epilogues import Epilogue, gives_codes
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.operands import activations, weights
from bitsynth.network.program import CHANNELS_LAST, PACKED, PLAIN
from bitsynth.spec.matmul import MatmulOperand


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution or dense layer of integers.

    Args:
        nodes: The product's, with moves before and sums with integers behind that the layer does too.
        start: The edge of activations.
        end: The edge of sums.
        axis: The axis of channels in that.
        weight: (OC, IC / groups, KH, KW) of a convolution, (OC, features) of a dense layer: without zero points.
        zero_point: The integer of activations that stands for 0.
        image: (batch, height, width) as the layer takes activations.
        window: Arguments of `Conv2d` for the window.
        bias: Integers that are added to the sums, one for all or one a channel.
        flatten: The image that features are.
        layout: "NHWC", or "plain" where channels lie along the last axis of several.
    """

    nodes: tuple[Node, ...]
    start: str
    end: str
    axis: int
    weight: Tensor
    zero_point: int
    image: tuple[int, int, int]
    window: Mapping[str, Any] = field(default_factory=dict)
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))
    flatten: FlatImage | None = None
    layout: str = CHANNELS_LAST


def find_product(def_use: DefUse, node: Node) -> Product | None:
    """The product that begins with a node: with the flattening of an image before it, or a bias of integers after."""
    flat = _find_flattening(def_use, node)
    at = def_use.only_reader(node.outputs[0]) if flat else node
    if at is None or at.op not in _MAKERS or not _is_of_constants(def_use, at):
        return None
    made = _MAKERS[at.op](def_use, at)
    if made is None:
        return None
    if flat:
        made = replace(made, nodes=(node, *made.nodes), start=node.inputs[0], flatten=flat)
    return _add_bias(def_use, made)


def _is_of_constants(def_use: DefUse, node: Node) -> bool:
    """Whether activations and sums are integers, and weights constants of such, with one zero point for activations."""
    x, w, sums = (def_use.graph.edges[name].type for name in (*node.inputs, *node.outputs))
    if not (isinstance(x, Integers) and isinstance(w, Integers) and isinstance(sums, Integers)):
        return False
    return def_use.is_constant(node.inputs[1]) and not def_use.is_constant(node.inputs[0]) and x.zero.size == 1


def _weights(def_use: DefUse, name: str) -> Tensor:
    """Constants without their zero points."""
    made: Tensor = (def_use.graph.constants[name] - def_use.graph.edges[name].integers.zero).astype(np.int64)
    return made


def _zero_point(edge: Edge) -> int:
    return int(edge.integers.zero.reshape(-1)[0])


def _make_convolution(def_use: DefUse, node: Node) -> Product | None:
    """A convolution of images, or of lines, which are images of height 1."""
    x = def_use.graph.edges[node.inputs[0]]
    window, axes = node.attributes["window"], len(x.shape) - 2
    if axes not in (1, 2) or window.ceil:
        return None
    lead = (1,) * (2 - axes)
    none = (0,) * (2 - axes)
    weight = _weights(def_use, node.inputs[1])
    around = (*none, *window.begins, *none, *window.ends)
    sizes = {
        "stride": (*lead, *window.strides),
        "padding": around,
        "dilation": (*lead, *window.dilations),
        "groups": int(node.attributes["groups"]),
    }
    height, width = (*lead, *x.shape[2:])
    shape = (*weight.shape[:2], *lead, *weight.shape[2:])
    return Product(
        (node,),
        x.name,
        node.outputs[0],
        1,
        weight.reshape(shape),
        _zero_point(x),
        (x.shape[0], height, width),
        {key: tuple(map(int, n)) if isinstance(n, tuple) else n for key, n in sizes.items()},
    )


def _make_dense(def_use: DefUse, node: Node) -> Product | None:
    """A matrix product whose second factor is one matrix."""
    x, w = def_use.graph.edges_of(node.inputs)
    if len(w.shape) != 2 or len(x.shape) < 2:
        return None
    axis, rows = len(x.shape) - 1, math.prod(x.shape[:-1])
    layout = CHANNELS_LAST if axis == 1 else PLAIN
    weight = _weights(def_use, w.name).T
    return Product((node,), x.name, node.outputs[0], axis, weight, _zero_point(x), (1, 1, rows), layout=layout)


_MAKERS = {"conv": _make_convolution, "matmul": _make_dense}


def _find_flattening(def_use: DefUse, node: Node) -> FlatImage | None:
    """The image that a reshape of (N, C, H, W) makes features of."""
    if node.op != "reshape":
        return None
    before, after = (def_use.graph.edges[n].shape for n in (node.inputs[0], node.outputs[0]))
    if not 3 <= len(before) <= 4 or len(after) != 2 or before[0] != after[0]:
        return None
    height, width = before[2:] if len(before) == 4 else (1, before[2])
    return FlatImage(height, width, before[1])


def _add_bias(def_use: DefUse, product: Product) -> Product:
    """The product with a following sum of its sums and integers on their scale."""
    node = def_use.only_reader(product.end)
    if node is None or node.op != "add":
        return product
    (other,) = [name for name in node.inputs if name != product.end] or [""]
    kind, sums = (def_use.graph.edges[name].type for name in (node.outputs[0], product.end))
    if not def_use.is_constant(other) or not isinstance(kind, Integers) or not isinstance(sums, Integers):
        return product
    more, value = def_use.graph.edges[other].type, def_use.graph.constants[other]
    shape = def_use.graph.edges[node.outputs[0]].shape
    first = len(shape) - value.ndim
    if not isinstance(more, Integers) or not sums.same_grid(more) or shape != def_use.graph.edges[product.end].shape:
        return product
    if any(n != 1 and k + first != product.axis for k, n in enumerate(value.shape)):
        return product
    if kind.least <= INT32[0] or kind.most >= INT32[1]:
        return product
    bias = value.reshape(-1).astype(np.int64)
    return replace(product, nodes=(*product.nodes, node), end=node.outputs[0], bias=bias)


@dataclass(frozen=True, eq=False)
class LayerMaker:
    """What makes the layer of a product in any layouts: `act` and `wgt` are its operands."""

    product: Product
    target: NetworkTarget
    act: MatmulOperand
    wgt: MatmulOperand
    epilogue: Epilogue | None
    codes: MatmulOperand | None
    """What results are codes of; None for sums."""

    def layer(self, layout: str = CHANNELS_LAST, out_layout: str = CHANNELS_LAST) -> PackedLayer:
        """The packed layer; NoKernel or SpecError if there is none."""
        given, made = (CHANNELS_LAST if name == PLAIN else name for name in (layout, out_layout))
        return self._of_bytes if given == made == CHANNELS_LAST else self._packed(given, made)

    @cached_property
    def _of_bytes(self) -> PackedLayer:
        """The layer that most edges ask for, which also tells whether there is any."""
        return self._packed(CHANNELS_LAST, CHANNELS_LAST)

    def _packed(self, layout: str, out_layout: str) -> PackedLayer:
        options = {**self._options, "layout": layout, "out_layout": out_layout}
        if out_layout == PACKED and self.codes:
            options["out_encoding"] = self.codes.encoding.value
        product = self.product
        weight = product.weight + self.wgt.zero
        if weight.ndim == 4:
            return Conv2d(weight, self.act.bits, self.wgt.bits, **product.window, **options).packed
        if product.flatten:
            options["flatten"] = product.flatten.shape
        return Dense(weight, self.act.bits, self.wgt.bits, **options).packed

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "act_encoding": self.act.encoding.value,
            "weight_encoding": self.wgt.encoding.value,
            "zero_point": self.product.zero_point,
            "weight_zero_point": self.wgt.zero,
            "bias": self.product.bias,
            "isa": self.target.isa,
            "cpu": self.target.cpu,
            "threads": self.target.threads,
            "epilogue": self.epilogue,
            "image": self.product.image[1:],
        }

    @property
    def is_known(self) -> bool:
        """Whether there is a kernel, and sums stay in int32."""
        try:
            self.layer()
        except (NoKernel, SpecError):
            return False
        return True

    @property
    def packs(self) -> bool:
        """Whether results can be words: codes of as many bits as their operand has."""
        return gives_codes(self.epilogue) and self.codes is not None and self.epilogue.bits == self.codes.bits


def find_layer_maker(def_use: DefUse, product: Product, epilogue: Epilogue | None, end: str) -> LayerMaker | None:
    """The layer of a product by the narrowest operands that a kernel is known for; None if there is no such."""
    edges = def_use.graph.edges
    codes = operand_of(edges[end]) if epilogue else None
    for act in activations(edges[product.start].integers):
        for wgt in weights(product.weight):
            maker = LayerMaker(product, def_use.target, act, wgt, epilogue, codes)
            if maker.is_known:
                return maker
    return None
