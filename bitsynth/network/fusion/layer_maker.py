"""Products as layers take them: operands, image and window, and the layer in any layout.

Weights are constants, or an edge of codes, as the second factor of attention is: C packs these before the layer runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypedDict

import numpy as np

from bitsynth.errors import NoKernel, SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.types import INT32, Edge, Integers, Shape, Tensor
from bitsynth.layers.epilogues import Epilogue, gives_codes
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.geometry import MAX_PIXELS, geometry_of
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.planning import plan
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.weight_zeros import weights_of
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.encodings import activations, weights
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.program import Format, Matrices
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand


class WindowOptions(TypedDict):
    """The arguments of `geometry_of` for a window."""

    stride: int | tuple[int, ...]
    padding: int | tuple[int, ...]
    dilation: int | tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Factor:
    """A factor of a product of two edges.

    Args:
        edge: The edge that is read, before a transposition that packing takes care of.
        axes: The edge's axis for each axis of the factor.
    """

    edge: str
    axes: tuple[int, ...]

    def strides(self, form: Format, shape: Shape, rank: int) -> Shape:
        """Return the stride along each of the factor's `rank` axes in memory: 0 along an axis that it repeats."""
        lies = form.strides(shape)
        own = [lies[axis] if shape[axis] > 1 or k >= len(self.axes) - 2 else 0 for k, axis in enumerate(self.axes)]
        return (*[0] * (rank - len(own)), *own)


@dataclass(frozen=True)
class EdgeFactors:
    """The factors of a product of two edges.

    Args:
        rows: The first factor (..., M, K).
        columns: The second factor (..., K, N).
        outer: The axes of separate products, () if rows of all of them are multiplied by one matrix.
        rank: The axes of the result.
        sizes: K and N.
        zero: The integer of the second factor that stands for 0.
    """

    rows: Factor
    columns: Factor
    outer: Shape
    rank: int
    sizes: tuple[int, int]
    zero: int

    def matrices(self, formats: tuple[Format, Format], shapes: tuple[Shape, Shape], results: Shape = ()) -> Matrices:
        """Return where both factors lie in memory of these formats; `results` is `Matrices.results`."""
        rows = self.rows.strides(formats[0], shapes[0], self.rank)
        columns = self.columns.strides(formats[1], shapes[1], self.rank)
        if not self.outer:
            rows, columns = rows[-2:], columns[-2:]
        return Matrices(self.outer, rows, (*columns[:-2], columns[-1], columns[-2]), results)


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution or dense layer of integers.

    Args:
        nodes: The product, with the flattening before it and the addition of a bias after it.
        start: The edge of activations.
        end: The edge of accumulators.
        axis: The axis of their channels.
        weight: Values (OC, IC / groups, KH, KW) of a convolution, (OC, features) of a dense layer; None of an edge.
        zero_point: The integer of activations that stands for 0.
        image: (batch, height, width) as the layer takes activations.
        window: The window of a convolution.
        bias: Integers that are added to the sums, one for all or one a channel.
        flatten: The image that features are.
        layout: "NHWC", or "plain" where channels lie along the last axis of several.
        factors: Both factors, if weights are an edge.
    """

    nodes: tuple[Node, ...]
    start: str
    end: str
    axis: int
    weight: Tensor | None
    zero_point: int
    image: tuple[int, int, int]
    window: WindowOptions = field(default_factory=lambda: WindowOptions(stride=1, padding=0, dilation=1, groups=1))
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))
    flatten: FlatImage | None = None
    layout: Layout = Layout.NHWC
    factors: EdgeFactors | None = None

    @property
    def weight_shape(self) -> Shape:
        """The shape of the weights; of a dense layer's weights it is (OC, features)."""
        if self.factors is not None:
            return self.factors.sizes[::-1]
        assert self.weight is not None
        return self.weight.shape


def find_product(def_use: DefUse, node: Node) -> Product | None:
    """Return the product that begins with a node, with a flattening before it or an integer bias after it; or None."""
    flat = _find_flattening(def_use, node)
    at = def_use.only_reader(node.outputs[0]) if flat else node
    if at is None or at.op not in _MAKERS:
        return None
    if not _is_of_integers(def_use, at):
        def_use.decline(at, Stage.OPERANDS, _explain_operands(def_use, at))
        return None
    product = _MAKERS[at.op](def_use, at)
    if product is None:
        def_use.decline(at, Stage.OPERANDS, _explain_form(def_use, at))
        return None
    if flat:
        product = replace(product, nodes=(node, *product.nodes), start=node.inputs[0], flatten=flat)
    return _add_bias(def_use, product)


def _is_of_integers(def_use: DefUse, node: Node) -> bool:
    """Return whether all operands are integers, activations have one zero point, and weights that are an edge too."""
    x, w, sums = (def_use.graph.edges[name].type for name in (*node.inputs, *node.outputs))
    if not (isinstance(x, Integers) and isinstance(w, Integers) and isinstance(sums, Integers)):
        return False
    if def_use.is_constant(node.inputs[0]) or x.zero.size > 1:
        return False
    return def_use.is_constant(node.inputs[1]) or (node.op == "matmul" and w.zero.size == 1)


def _explain_operands(def_use: DefUse, node: Node) -> str:
    """Say which operand of a product no layer takes."""
    graph = def_use.graph
    has_edges = not def_use.is_constant(node.inputs[1])
    if has_edges and node.op != "matmul":
        return "its second operand is not constant"
    if def_use.is_constant(node.inputs[0]):
        return "its first operand is constant"
    second = "second operand" if has_edges else "weights"
    for name, what in zip((*node.inputs, *node.outputs), ("activations", second, "results"), strict=True):
        if not isinstance(graph.edges[name].type, Integers):
            return f"its {what} {'is' if what == 'second operand' else 'are'} real numbers, not integers"
    if has_edges and graph.edges[node.inputs[1]].integers.zero.size > 1:
        return "zero points of its second operand differ by channel"
    return "zero points of its activations differ by channel"


def _explain_form(def_use: DefUse, node: Node) -> str:
    """Say why a product of integers with constants is not of the form that layers have."""
    if node.op == "matmul":
        return "a factor is a vector, or its weights are several matrices"
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
    """Return a matrix product by one matrix of weights, or by matrices of an edge; None for several constant ones."""
    x, w = def_use.graph.edges_of(node.inputs)
    if not def_use.is_constant(w.name):
        return _make_product_of_edges(def_use, node)
    if len(w.shape) != 2 or len(x.shape) < 2:
        return None
    axis, rows = len(x.shape) - 1, math.prod(x.shape[:-1])
    layout = Layout.NHWC if axis == 1 else Layout.PLAIN
    weight = _weights(def_use, w.name).T
    return Product((node,), x.name, node.outputs[0], axis, weight, _zero_point(x), (1, 1, rows), layout=layout)


def _make_product_of_edges(def_use: DefUse, node: Node) -> Product | None:
    """Return a product of matrices of two edges, with transpositions that nothing else reads; None for vectors.

    Rows of several matrices that are multiplied by one are rows of one product.
    """
    x, w = def_use.graph.edges_of(node.inputs)
    if min(len(x.shape), len(w.shape)) < 2:
        return None
    (rows, before_rows), (columns, before_columns) = (_find_factor(def_use, node, edge) for edge in (x, w))
    outer, rank = np.broadcast_shapes(x.shape[:-2], w.shape[:-2]), max(len(x.shape), len(w.shape))
    count = x.shape[-2]
    if math.prod(w.shape[:-2]) == 1 and rows.axes == tuple(range(len(x.shape))):
        outer, count = (), math.prod(x.shape[:-1])
    factors = EdgeFactors(rows, columns, outer, rank, (x.shape[-1], w.shape[-1]), _zero_point(w))
    nodes = sorted({*before_rows, *before_columns, node}, key=lambda each: def_use.order[each.name])
    return Product(
        tuple(nodes),
        rows.edge,
        node.outputs[0],
        rank - 1,
        None,
        _zero_point(x),
        (math.prod(outer), 1, count),
        layout=Layout.NHWC if rank == 2 else Layout.PLAIN,
        factors=factors,
    )


def _find_factor(def_use: DefUse, node: Node, edge: Edge) -> tuple[Factor, tuple[Node, ...]]:
    """Return a factor, and the transposition before it that `node` alone reads, if there is one."""
    maker = def_use.makers.get(edge.name)
    if maker is None or maker.op != "transpose" or def_use.only_reader(edge.name) is not node:
        return Factor(edge.name, tuple(range(len(edge.shape)))), ()
    return Factor(maker.inputs[0], tuple(int(axis) for axis in maker.attributes["order"])), (maker,)


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
    columns: MatmulOperand | None = None
    """The operand whose codes an edge of weights has; None for constant weights."""

    def layer(self, layout: Layout = Layout.NHWC, out_layout: Layout = Layout.NHWC) -> PackedLayer:
        """Return the packed layer; NoKernel or SpecError if there is none."""
        reads, writes = (Layout.NHWC if name == Layout.PLAIN else name for name in (layout, out_layout))
        return self._of_bytes if reads == writes == Layout.NHWC else self._pack(reads, writes)

    @cached_property
    def _of_bytes(self) -> PackedLayer:
        """The layer in bytes, channels last: most edges ask for it, and it shows whether there is a kernel."""
        return self._pack(Layout.NHWC, Layout.NHWC)

    def _pack(self, layout: Layout, out_layout: Layout) -> PackedLayer:
        product, target = self.product, self.target
        bias, flat, shape = product.bias, product.flatten, product.weight_shape
        codes = None if product.weight is None else self.wgt.encode(product.weight, "weight")
        if flat and codes is not None:
            flat = replace(flat, packed=layout == Layout.PACKED)
            codes = flat.weights(codes, Layout.NCHW, fill=0)
            bias = bias - flat.idle_sum(self.act, self.wgt, product.zero_point)
            shape = codes.shape
        shape = (*shape, 1, 1) if len(shape) == 2 else shape
        spec = LayerSpec(
            self.act,
            self.wgt,
            geometry_of(shape, **product.window),
            layout,
            out_layout,
            product.image[1:],
            self.codes.encoding.value if out_layout == Layout.PACKED and self.codes else "",
            product.zero_point,
            flat,
        )
        planned = plan(spec, isa=target.isa, cpu=target.cpu, threads=target.threads)
        return PackedLayer(planned, None if codes is None else codes.reshape(shape), self.epilogue, bias)

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
        for wgt, columns in _list_weights(def_use, product, act):
            maker = LayerMaker(product, def_use.target, act, wgt, epilogue, codes, columns)
            with suppress(NoKernel, SpecError):
                maker.layer()
                return maker
    (node,) = (node for node in product.nodes if node.op in _MAKERS)
    def_use.decline(node, Stage.FORMULA, _explain_no_layer(def_use, product))
    return None


def _list_weights(
    def_use: DefUse, product: Product, act: MatmulOperand
) -> Iterator[tuple[MatmulOperand, MatmulOperand | None]]:
    """Yield operands of a product's weights; of an edge with the operand of its codes, which may have a zero point."""
    if product.factors is None:
        assert product.weight is not None
        yield from ((wgt, None) for wgt in weights(product.weight, act.bits))
        return
    edge, zero = product.factors.columns.edge, product.factors.zero
    for columns in activations(def_use.graph.edges[edge].integers):
        if edge == product.start and columns != act:
            continue
        if zero == 0:
            yield columns, columns
        elif columns.encoding in (Encoding.UNSIGNED, Encoding.SIGNED):
            code = zero - columns.offset
            if 0 <= code < 1 << columns.bits:
                yield weights_of(columns.bits, Encoding.UNSIGNED, code), columns


def _explain_no_layer(def_use: DefUse, product: Product) -> str:
    """Say in a few words why no layer computes a product."""
    high, wide = product.image[1:]
    is_dense = len(product.weight_shape) == 2
    if max(high, wide) > MAX_PIXELS:
        what = f"{wide:,} rows" if is_dense else f"an image of {high:,} x {wide:,} pixels"
        return f"{what}; a layer takes at most {MAX_PIXELS:,}{'' if is_dense else ' along an axis'}"
    act = next(activations(def_use.graph.edges[product.start].integers), None)
    wgt = next(_list_weights(def_use, product, act), (None, None))[0] if act else None
    if product.factors is not None and act is not None and wgt is None:
        return "its second operand has more than 8 bits, or a zero point that is none of its codes"
    if act is None or wgt is None:
        return f"{'activations' if act is None else 'weights'} of more than 8 bits"
    return f"no kernel for {act.bits}-bit activations and {wgt.bits}-bit weights, or sums beyond int32"
