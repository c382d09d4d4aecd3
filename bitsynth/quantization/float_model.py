"""A float network as the quantizer sees it: an ONNX model with fixed sizes, and the places where quantizers go.

ONNX Runtime folds constants and batch norm first. Then an edge gets a quantizer if it has to lie in memory:

* a product with constant weights reads it: its bits are searched;
* two of an operator's inputs are computed at run time, as of a residual addition: all inputs are quantized, but one of
  an Add, whose accumulators the addition joins;
* a pool or a mean reads it, or several nodes do; but not if its numbers are an output's numbers.

Every other edge is between a product and its quantizer, so that its operator is fused into the layer. That holds inside
an activation written out in several operators, as x * Sigmoid(x), too: its paths fork at one edge and join again.

Given:  a = Relu(Conv(x)); b = Conv(a); c = Relu(Add(b, a)); Gemm(GlobalAveragePool(c))
Result: x, a and the pool's result are quantized for products, c for the pool; b stays accumulators
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from numpy.typing import NDArray
from onnx import numpy_helper

from bitsynth.errors import SpecError, ToolError
from bitsynth.graph.read.file import edge_names
from bitsynth.graph.read.importer import inline_branches
from bitsynth.graph.read.inputs import close_shapes, fix_inputs, with_shapes
from bitsynth.network.check.data import Feed

INSTALL = "pip install 'bitsynth[quantize]'"
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_SEVERAL = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Concat", "Sum", "Where", "MatMul")
"""Operators that may have several inputs computed at run time."""
_POOLS = ("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "Resize")
_MOVES = (
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Identity",
    "MaxPool",
    "GlobalMaxPool",
    "Slice",
    "Pad",
)
"""Operators that only select or move elements, so that codes stay codes."""
_ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Clip"),
    *(
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Celu",
        "Softplus",
        "Softsign",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
    ),
    *("Gelu", "Mish", "ThresholdedRelu", "Identity", "Cast"),
)
"""Operators whose numbers depend on one number of each input alone."""
_MAX_FUNCTION_NODES = 64
"""Nodes of an activation written out in elementary operators: it has a dozen."""
_KEEP_SCALE = ("Relu", "Clip", "Add", "Sub", *_MOVES)
"""Operators whose results have the scale of their inputs: a quantizer after them divides by its own."""


def names_read(node: Any) -> list[str]:
    """Return the names that a node, or a node of its inner graphs, reads."""
    inner = [graph for a in node.attribute for graph in ([a.g] if a.HasField("g") else a.graphs)]
    within = [name for graph in inner for each in graph.node for name in names_read(each)]
    return [*node.input, *within, *(x.name for graph in inner for x in graph.output)]


def require_runtime() -> Any:
    """Import and return the package onnxruntime; ToolError if it is not installed."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ToolError(
            f"float networks are run with the package onnxruntime: {error}; install it with {INSTALL}"
        ) from None
    return onnxruntime


def simplify(model: Any, shapes: Mapping[str, int | Sequence[int]], batch: int | None, fixed: Mapping[str, Any]) -> Any:
    """Return a model with fixed sizes, in which ONNX Runtime folded constants and batch norm; nodes have names."""
    runtime = require_runtime()
    constant = inline_branches(fix_inputs(model, fixed, shapes, batch), shapes, batch)
    initializers = {x.name for x in constant.graph.initializer}
    inputs = [x for x in constant.graph.input if x.name not in initializers]
    closed = with_shapes(constant, close_shapes(inputs, shapes, batch))
    del closed.graph.value_info[:]
    closed = _in_new_opset(closed)
    for k, node in enumerate(closed.graph.node):
        node.name = f"n{k}"
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "simplified.onnx"
        options.optimized_model_filepath = str(path)
        try:
            runtime.InferenceSession(closed.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise SpecError(f"ONNX Runtime does not run it: {str(error).splitlines()[0]}") from None
        simplified = onnx.load(path)
    constants = {x.name for x in simplified.graph.initializer}
    if constant_output := next((x.name for x in simplified.graph.output if x.name in constants), None):
        raise SpecError(f"output {constant_output} depends on no input; remove it from the file")
    _keep_used_domains(simplified)
    edges = edge_names(simplified.graph)
    for k, node in enumerate(simplified.graph.node):
        node.name = f"{node.op_type}_{k}"
        while node.name in edges:  # edges and products are looked up by name together
            node.name += "_"
    return simplified


_LEAST_OPSET = 13
"""The least version of the standard operators in which quantizers can be written as float operators."""


def _in_new_opset(model: Any) -> Any:
    """Return a model in a version of the standard operators that has all that quantizers are written with."""
    version = max((x.version for x in model.opset_import if x.domain in ("", "ai.onnx")), default=1)
    if version >= _LEAST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, _LEAST_OPSET)
    except Exception as error:
        why = str(error).splitlines()[0]
        raise SpecError(f"opset {version} cannot be brought to {_LEAST_OPSET} ({why}); export it again") from None


def _keep_used_domains(model: Any) -> None:
    """Drop the versions of domains that no node has, which ONNX Runtime lists for all that it knows."""
    used = {node.domain for node in model.graph.node} | {""}
    kept = [x for x in model.opset_import if x.domain in used or (x.domain == "ai.onnx" and "" in used)]
    del model.opset_import[:]
    model.opset_import.extend(kept)


@dataclass(frozen=True)
class WeightedProduct:
    """A product with constant weights.

    Args:
        name: The node's.
        op: Its operator.
        edge: The edge of its activations.
        weights: The name of its weights, a constant.
        output: The edge of its result.
        channel_axis: The axis of output channels in the weights.
        group: Groups of a convolution.
    """

    name: str
    op: str
    edge: str
    weights: str
    output: str
    channel_axis: int
    group: int = 1


@dataclass(frozen=True)
class FloatModel:
    """A simplified float network.

    Args:
        model: The ONNX model.
        in_floats: Edges that get no quantizer, though they lie in memory; no product reads them.
    """

    model: Any
    in_floats: frozenset[str] = frozenset()

    @cached_property
    def constants(self) -> dict[str, NDArray[Any]]:
        """Constants by name."""
        return {x.name: numpy_helper.to_array(x) for x in self.model.graph.initializer}

    @cached_property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs by name."""
        return {x.name: tuple(d.dim_value for d in x.type.tensor_type.shape.dim) for x in self.model.graph.input}

    @cached_property
    def types(self) -> dict[str, Any]:
        """Types of the inputs by name."""
        numbers = {x.name: x.type.tensor_type.elem_type for x in self.model.graph.input}
        return {name: onnx.helper.tensor_dtype_to_np_dtype(number) for name, number in numbers.items()}

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The edges of the results."""
        return tuple(x.name for x in self.model.graph.output)

    @cached_property
    def float_outputs(self) -> tuple[str, ...]:
        """The results in floats, by which the loss is measured."""
        return tuple(name for name in self.outputs if self._is_float(name))

    @cached_property
    def _types(self) -> dict[str, int]:
        """Types of edges by name, as ONNX infers them."""
        graph = onnx.shape_inference.infer_shapes(self.model).graph
        return {x.name: x.type.tensor_type.elem_type for x in (*graph.value_info, *graph.output, *graph.input)}

    def _is_float(self, edge: str) -> bool:
        """Return whether an edge holds floats; edges of unknown type do."""
        return self._types.get(edge, onnx.TensorProto.FLOAT) == onnx.TensorProto.FLOAT

    @cached_property
    def makers(self) -> dict[str, Any]:
        """The node that makes each edge."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    @cached_property
    def readers(self) -> dict[str, list[Any]]:
        """The nodes that read each edge."""
        readers: dict[str, list[Any]] = {}
        for node in self.model.graph.node:
            for name in dict.fromkeys(node.input):
                readers.setdefault(name, []).append(node)
        return readers

    @cached_property
    def products(self) -> tuple[WeightedProduct, ...]:
        """The products with constant weights, in order."""
        return tuple(p for node in self.model.graph.node if (p := self._product(node)) is not None)

    def _product(self, node: Any) -> WeightedProduct | None:
        if node.op_type not in _PRODUCTS or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
            return None
        edge, weights = node.input[0], node.input[1]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        value = self.constants.get(weights)
        if edge in self.constants or value is None or value.dtype != np.float32 or value.ndim < 2:
            return None
        if node.op_type != "Conv" and (value.ndim != 2 or attributes.get("transA")):
            return None
        if self.shared_weights(node):  # they have one scale, which one of their products would choose
            return None
        axis = 0 if node.op_type == "Conv" or attributes.get("transB") else value.ndim - 1
        return WeightedProduct(node.name, node.op_type, edge, weights, node.output[0], axis, attributes.get("group", 1))

    def shared_weights(self, node: Any) -> str:
        """Return the name of a product's constant weights if other nodes read them too; empty if not."""
        if node.op_type not in _PRODUCTS or len(node.input) < 2:
            return ""
        weights: str = node.input[1]
        return weights if weights in self.constants and len(self.readers[weights]) > 1 else ""

    @cached_property
    def searched_edges(self) -> tuple[str, ...]:
        """The edges of activations whose bits are searched, in order: edges that products read, except inputs."""
        return tuple(dict.fromkeys(p.edge for p in self.products if p.edge not in self.inputs))

    @cached_property
    def other_edges(self) -> tuple[str, ...]:
        """The other edges that get a quantizer, of 8 bits: inputs of the network, residuals, inputs of pools."""
        of_inputs = dict.fromkeys(p.edge for p in self.products if p.edge in self.inputs)
        wanted, quantized = dict[str, None](), {*self.searched_edges, *of_inputs}
        for node in self.model.graph.node:
            edges = [n for n in self._find_computed_inputs(node) if n not in self.inner_edges]
            if node.op_type in _SEVERAL and len(edges) > 1:
                fused = next((e for e in edges if node.op_type == "Add" and self._is_accumulator(e)), None)
                wanted |= dict.fromkeys(e for e in edges if e != fused)
            elif node.op_type in _POOLS:
                wanted |= dict.fromkeys(edges[:1])
        for edge, readers in self.readers.items():
            if edge in self.makers and len(readers) > 1 and edge not in self.inner_edges:
                wanted[edge] = None
        kept = {e for e in wanted if self._is_float(e) and e not in self.in_floats and not self._is_of_output(e)}
        wanted = {e: None for e in wanted if e in kept}
        others = (e for e in wanted if e not in quantized and not self._is_of_codes(e, {*quantized, *wanted}))
        return (*of_inputs, *others)

    @cached_property
    def inner_edges(self) -> frozenset[str]:
        """The edges inside activations written out in several operators, whose paths fork at one edge and join again.

        Given:   h = Conv(x); g = Clip(Add(h, 3), 0, 6); y = Div(Mul(h, g), 6)
        Result:  g and the edge before it: y is a function of h
        """
        return frozenset(edge for node in self.model.graph.node for edge in self._inside_function(node))

    def _inside_function(self, node: Any) -> set[str]:
        """Return the edges between a node of several operands and the single edge that they are functions of, if
        any."""
        places, inside, names = self._places, set[str](), {node.name}
        open_edges = set(self._find_computed_inputs(node)) if node.op_type in _ELEMENTWISE else set[str]()
        while len(open_edges) > 1 and len(names) < _MAX_FUNCTION_NODES:
            edge = max(open_edges, key=lambda name: places.get(name, -1))
            maker = self.makers.get(edge)
            if maker is None or maker.op_type not in _ELEMENTWISE or edge in self.outputs:
                return set()
            if any(reader.name not in names for reader in self.readers[edge]):
                return set()
            names.add(maker.name)
            inside.add(edge)
            open_edges = (open_edges - {edge}) | {*self._find_computed_inputs(maker)}
        return inside if len(open_edges) == 1 else set()

    def _find_computed_inputs(self, node: Any) -> list[str]:
        """Return the inputs of a node that are no constants, each once."""
        return [name for name in dict.fromkeys(node.input) if name and name not in self.constants]

    @cached_property
    def _places(self) -> dict[str, int]:
        """The place in the graph of the node that makes each edge."""
        return {name: place for place, node in enumerate(self.model.graph.node) for name in node.output}

    @cached_property
    def quantized_edges(self) -> frozenset[str]:
        """All edges that get a quantizer."""
        return frozenset((*self.searched_edges, *self.other_edges))

    @cached_property
    def computed_edges(self) -> frozenset[str]:
        """The quantized edges of codes that layers compute: from accumulators, or as the other operand of an Add."""
        ends = {self.find_quantized_after(product.output) for product in self.products}
        for node in self.model.graph.node:
            if node.op_type in ("Add", "Sub"):
                ends |= {self._find_quantized_before(name) for name in node.input}
        return frozenset(edge for edge in ends if edge is not None)

    def find_quantized_after(self, edge: str) -> str | None:
        """Return the first quantized edge after an edge that has its scale; None if there is none."""
        while edge not in self.quantized_edges:
            readers = self.readers.get(edge, ())
            if len(readers) != 1 or readers[0].op_type not in _KEEP_SCALE:
                return None
            edge = readers[0].output[0]
        return edge

    def _find_quantized_before(self, edge: str) -> str | None:
        """Return the quantized edge whose codes an edge has; None if there is none."""
        while edge not in self.quantized_edges:
            node = self.makers.get(edge)
            if node is None or node.op_type not in _MOVES:
                return None
            edge = node.input[0]
        return edge

    def is_added(self, edge: str) -> bool:
        """Return whether a second operand that is computed is added between an edge and the next quantizer."""
        return self.residual_after(edge) is not None

    def residual_after(self, edge: str, through: Sequence[str] = _KEEP_SCALE) -> tuple[Any, int] | None:
        """Return the first addition of a second operand that is computed, and which of its inputs that operand is.

        None if a quantizer, an operator not in `through`, or several readers come before.
        """
        while edge not in self.quantized_edges:
            readers = self.readers.get(edge, ())
            if len(readers) != 1:
                return None
            node = readers[0]
            if node.op_type in ("Add", "Sub") and all(n not in self.constants for n in node.input):
                return node, 1 - list(node.input).index(edge)
            if node.op_type not in through:
                return None
            edge = node.output[0]
        return None

    def _is_accumulator(self, edge: str) -> bool:
        """Return whether an edge is a product's result, or one that elementwise operators made of it, read once."""
        while True:
            if len(self.readers.get(edge, ())) != 1 or edge in self.outputs:
                return False
            node = self.makers.get(edge)
            if node is None:
                return False
            if node.op_type in _PRODUCTS:
                return self._product(node) is not None
            runtime_edges = [n for n in node.input if n and n not in self.constants]
            if len(runtime_edges) != 1 or node.op_type in (*_POOLS, *_MOVES, "Softmax"):
                return False
            edge = runtime_edges[0]

    def _is_of_output(self, edge: str) -> bool:
        """Return whether an output has the numbers of an edge: only moves are in between, or a concatenation.

        Such an output is wanted in floats: the state of a recurrent network, for example, is an input of the next run,
        and errors of 8 bits would add up from run to run.
        """
        moved = [n for n in self.readers.get(edge, ()) if n.op_type in (*_MOVES, "Concat")]
        return edge in self.outputs or any(self._is_of_output(name) for n in moved for name in n.output)

    def _is_of_codes(self, edge: str, quantized: set[str]) -> bool:
        """Return whether an edge holds codes already: moves made it of a quantized edge."""
        node = self.makers.get(edge)
        while node is not None and node.op_type in _MOVES:
            edge = node.input[0]
            if edge in quantized:
                return True
            node = self.makers.get(edge)
        return False


class FloatRunner:
    """Runs a model with ONNX Runtime and returns some of its edges."""

    def __init__(self, model: Any, edges: Sequence[str]) -> None:
        runtime = require_runtime()
        opened = onnx.ModelProto()
        opened.CopyFrom(model)
        wanted = [x for x in opened.graph.output if x.name in edges]
        have = {x.name for x in wanted}
        del opened.graph.output[:]  # what no wanted edge needs is not run
        opened.graph.output.extend(wanted)
        opened.graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(edges) if n not in have)
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = runtime.InferenceSession(
            opened.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._edges = list(dict.fromkeys(edges))

    def __call__(self, feed: Feed) -> dict[str, NDArray[Any]]:
        """Return the edges by name."""
        return dict(zip(self._edges, self._session.run(self._edges, dict(feed)), strict=True))
