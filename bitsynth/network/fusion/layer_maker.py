"""Products with constant weights as layers take them: operands, image and window, and the layer in any layout."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypedDict

import numpy as np

from bitsynth.errors import NoKernel, SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.types import INT32, Edge, Integers, Tensor
from bitsynth.layers.epilogues import Epilogue, gives_codes
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.geometry import MAX_PIXELS, geometry_of
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.planning import plan
from bitsynth.layers.spec import LayerSpec
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.encodings import activations, weights
from bitsynth.network.fusion.codes import operand_of
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulOperand


class WindowOptions(TypedDict):
    """The arguments of `geometry_of` for a window."""

    stride: int | tuple[int, ...]
    padding: int | tuple[int, ...]
    dilation: int | tuple[int, ...]
    groups: int


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution or dense layer of integers.

    Args:
        nodes: The product, with the flattening before it and the addition of a bias after it.
        start: The edge of activations.
        end: The edge of accumulators.
        axis: The axis of their channels.
        weight: Values (OC, IC / groups, KH, KW) of a convolution, (OC, features) of a dense layer.
        zero_point: The integer of activations that stands for 0.
        image: (batch, height, width) as the layer takes activations.
        window: The window of a convolution.
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
    window: WindowOptions = field(default_factory=lambda: WindowOptions(stride=1, padding=0, dilation=1, groups=1))
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))
    flatten: FlatImage | None = None
    layout: Layout = Layout.NHWC


def find_product(def_use: DefUse, node: Node) -> Product | None:
    """Return the product that begins with a node, with a flattening before it or an integer bias after it; or None."""
    flat = _find_flattening(def_use, node)
    at = def_use.only_reader(node.outputs[0]) if flat else node
    if at is None or at.op not in _MAKERS:
        return None
    if not _is_of_constants(def_use, at):
        def_use.decline(at, Stage.OPERANDS, _explain_operands(def_use, at))
        return None
    product = _MAKERS[at.op](def_use, at)
    if product is None:
        def_use.decline(at, Stage.OPERANDS, _explain_form(def_use, at))
        return None
    if flat:
        product = replace(product, nodes=(node, *product.nodes), start=node.inputs[0], flatten=flat)
    return _add_bias(def_use, product)


def _is_of_constants(def_use: DefUse, node: Node) -> bool:
    """Return whether all operands are integers, weights are constant, and activations have one zero point."""
    x, w, sums = (def_use.graph.edges[name].type for name in (*node.inputs, *node.outputs))
    if not (isinstance(x, Integers) and isinstance(w, Integers) and isinstance(sums, Integers)):
        return False
    return def_use.is_constant(node.inputs[1]) and not def_use.is_constant(node.inputs[0]) and x.zero.size == 1


def _explain_operands(def_use: DefUse, node: Node) -> str:
    """Say which operand of a product no layer takes."""
    graph = def_use.graph
    if not def_use.is_constant(node.inputs[1]):
        return "its second operand is not constant"
    if def_use.is_constant(node.inputs[0]):
        return "its first operand is constant"
    for name, what in zip((*node.inputs, *node.outputs), ("activations", "weights", "results"), strict=True):
        if not isinstance(graph.edges[name].type, Integers):
            return f"its {what} are real numbers, not integers"
    return "zero points of its activations differ by channel"


def _explain_form(def_use: DefUse, node: Node) -> str:
    """Say why a product of integers with constants is not of the form that layers have."""
    if node.op == "matmul":
        return "its weights are several matrices"
    if node.attributes["window"].ceil:
        return "its windows may begin in the padding at the end (ceil)"
    return f"a convolution along {len(def_use.graph.edges[node.inputs[0]].shape) - 2} axes; layers have 1 or 2"


def _weights(def_use: DefUse, name: str) -> Tensor:
    """Return the values of constants: integers less their zero points."""
    weights: Tensor = (def_use.graph.constants[name] - def_use.graph.edges[name].integers.zero).astype(np.int64)
    return weights


def _zero_point(edge: Edge) -> int:
    return int(edge.integers.zero.reshape(-1)[0])


def _make_convolution(def_use: DefUse, node: Node) -> Product | None:
    """Return a convolution of images, or of (N, C, L) as images of height 1; None for other axes."""
    x = def_use.graph.edges[node.inputs[0]]
    window, axes = node.attributes["window"], len(x.shape) - 2
    if axes not in (1, 2) or window.ceil:
        return None
    lead = (1,) * (2 - axes)
    none = (0,) * (2 - axes)
    weight = _weights(def_use, node.inputs[1])
    sizes = WindowOptions(
        stride=_ints((*lead, *window.strides)),
        padding=_ints((*none, *window.begins, *none, *window.ends)),
        dilation=_ints((*lead, *window.dilations)),
        groups=int(node.attributes["groups"]),
    )
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
        sizes,
    )


def _ints(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return numbers of a file, which may be numpy's, as Python's."""
    return tuple(map(int, numbers))


def _make_dense(def_use: DefUse, node: Node) -> Product | None:
    """Return a matrix product by one matrix of weights; None for several matrices."""
    x, w = def_use.graph.edges_of(node.inputs)
    if len(w.shape) != 2 or len(x.shape) < 2:
        return None
    axis, rows = len(x.shape) - 1, math.prod(x.shape[:-1])
    layout = Layout.NHWC if axis == 1 else Layout.PLAIN
    weight = _weights(def_use, w.name).T
    return Product((node,), x.name, node.outputs[0], axis, weight, _zero_point(x), (1, 1, rows), layout=layout)


_MAKERS = {"conv": _make_convolution, "matmul": _make_dense}


def _find_flattening(def_use: DefUse, node: Node) -> FlatImage | None:
    """Return the image that a reshape flattens from (N, C, H, W) to (N, features); None for another node."""
    if node.op != "reshape":
        return None
    before, after = (def_use.graph.edges[n].shape for n in (node.inputs[0], node.outputs[0]))
    if not 3 <= len(before) <= 4 or len(after) != 2 or before[0] != after[0]:
        return None
    height, width = before[2:] if len(before) == 4 else (1, before[2])
    return FlatImage(height, width, before[1])


def _add_bias(def_use: DefUse, product: Product) -> Product:
    """Return the product with the bias that the next node adds, if it adds integers on the accumulators' scale."""
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
    """Makes the layer of a product in any layouts; `act` and `wgt` are its operands."""

    product: Product
    target: NetworkTarget
    act: MatmulOperand
    wgt: MatmulOperand
    epilogue: Epilogue | None
    codes: MatmulOperand | None
    """The operand of its results; None for accumulators."""

    def layer(self, layout: Layout = Layout.NHWC, out_layout: Layout = Layout.NHWC) -> PackedLayer:
        """Return the packed layer; NoKernel or SpecError if there is none."""
        reads, writes = (Layout.NHWC if name == Layout.PLAIN else name for name in (layout, out_layout))
        return self._of_bytes if reads == writes == Layout.NHWC else self._packed(reads, writes)

    @cached_property
    def _of_bytes(self) -> PackedLayer:
        """The layer in bytes, channels last: most edges ask for it, and it shows whether there is a kernel."""
        return self._packed(Layout.NHWC, Layout.NHWC)

    def _packed(self, layout: Layout, out_layout: Layout) -> PackedLayer:
        product, target = self.product, self.target
        codes, bias, flat = self.wgt.encode(product.weight, "weight"), product.bias, product.flatten
        if flat:
            flat = replace(flat, packed=layout == Layout.PACKED)
            codes = flat.weights(codes, Layout.NCHW, fill=0)
            bias = bias - flat.idle_sum(self.act, self.wgt, product.zero_point)
        if codes.ndim == 2:
            codes = codes[:, :, None, None]
        spec = LayerSpec(
            self.act,
            self.wgt,
            geometry_of(codes.shape, **product.window),
            layout,
            out_layout,
            product.image[1:],
            self.codes.encoding.value if out_layout == Layout.PACKED and self.codes else "",
            product.zero_point,
            flat,
        )
        planned = plan(spec, isa=target.isa, cpu=target.cpu, threads=target.threads)
        return PackedLayer(planned, codes, self.epilogue, bias)

    @property
    def packs(self) -> bool:
        """Whether results can be packed words: their codes have as many bits as the epilogue gives."""
        return gives_codes(self.epilogue) and self.codes is not None and self.epilogue.bits == self.codes.bits


def find_layer_maker(def_use: DefUse, product: Product, epilogue: Epilogue | None, end: str) -> LayerMaker | None:
    """Return the maker of a product's layer for the narrowest operands with a kernel.

    It is None if there is no kernel, or accumulators may leave int32: making the layer decides it.
    """
    edges = def_use.graph.edges
    codes = operand_of(edges[end]) if epilogue else None
    for act in activations(edges[product.start].integers):
        for wgt in weights(product.weight):
            maker = LayerMaker(product, def_use.target, act, wgt, epilogue, codes)
            with suppress(NoKernel, SpecError):
                maker.layer()
                return maker
    (node,) = (node for node in product.nodes if node.op in _MAKERS)
    def_use.decline(node, Stage.FORMULA, _explain_no_layer(edges[product.start], product))
    return None


def _explain_no_layer(given: Edge, product: Product) -> str:
    """Say in a few words why no layer computes a product."""
    high, wide = product.image[1:]
    if max(high, wide) > MAX_PIXELS:
        what = f"{wide:,} rows" if product.weight.ndim == 2 else f"an image of {high:,} x {wide:,} pixels"
        return f"{what}; a layer takes at most {MAX_PIXELS:,}{'' if product.weight.ndim == 2 else ' along an axis'}"
    act, wgt = next(activations(given.integers), None), next(weights(product.weight), None)
    if act is None or wgt is None:
        return f"{'activations' if act is None else 'weights'} of more than 8 bits"
    return f"no kernel for {act.bits}-bit activations and {wgt.bits}-bit weights, or sums beyond int32"
