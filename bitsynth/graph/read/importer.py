"""Import of ONNX: the nodes of a file in order, each by the reader of its operator; then the passes of graphs."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from bitsynth.errors import BitsynthWarning, SpecError
from bitsynth.graph.arithmetic import REFERENCES
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.infer import MAX_AXES, MAX_ELEMENTS
from bitsynth.graph.ir import Graph
from bitsynth.graph.overflow import find_overflows
from bitsynth.graph.passes import IMPORT_PASSES, run_passes
from bitsynth.graph.quantizer_claims import claims_of
from bitsynth.graph.read import file
from bitsynth.graph.read.file import array_of, dtype_of
from bitsynth.graph.read.file_node import FileNode
from bitsynth.graph.read.inputs import Shapes, close_shapes, fixed_value, require_inputs
from bitsynth.graph.read.nodes.constants_and_moves import concatenate
from bitsynth.graph.read.nodes.recurrent import MAX_STEPS
from bitsynth.graph.read.readers import default_reference, reader_of, require_known
from bitsynth.graph.read.tflite import CHANNELS_FIRST
from bitsynth.graph.read.tflite import DOMAIN as TFLITE
from bitsynth.graph.types import EdgeType, Integers, Reals, Shape, full_range, is_float
from bitsynth.spec.matmul import Encoding, MatmulOperand

_INPUT_QUANTIZERS = {
    *("Quant", "IntQuant", "BipolarQuant", "QuantizeLinear", "DynamicQuantizeLinear"),
    *("FakeQuantize", "VitisQuantizeLinear", "ExtendedQuantizeLinear"),
}


@dataclass(frozen=True)
class InputCodes:
    """The codes that float inputs hold, where no quantizer of the file says so.

    Args:
        bits: Bits of a code, 1 to 8.
        scale: The number that a code of 1 stands for.
        encoding: The encoding of the codes: unsigned, signed, ternary, narrow or bipolar.
    """

    bits: int
    scale: float = 1.0
    encoding: str = "unsigned"

    @property
    def type(self) -> Integers:
        """The type of the input's edge; SpecError if scale, bits and encoding describe none."""
        if not math.isfinite(self.scale) or not np.float32(self.scale) > 0:
            raise SpecError(f"the scale of input codes is {self.scale}; it must be a number above 0")
        operand = MatmulOperand(self.bits, Encoding.parse(self.encoding))
        low, high = operand.value(0), operand.value(operand.codes[-1])
        return Integers.between(low, high, np.float32(self.scale), 0.0, operand.scale)


MAX_BATCH = 1 << 20
"""The largest batch that a file is read with."""
_NEWEST_OPSET = 28
"""The newest version of the standard operators whose definitions readers follow."""


@dataclass
class _Import:
    """The import of one model."""

    model: Any
    graph: GraphBuilder
    batch: int | None
    codes: InputCodes | None
    fixed: Mapping[str, Any]
    shapes: Shapes
    edges: dict[str, str] = field(default_factory=dict)
    """Edges of the graph by their names in the file."""
    has_open: bool = False
    """Whether there is a float input that not only quantizers read."""
    versions: dict[str, int] = field(default_factory=dict)
    """The versions of operators by domain."""
    branch_names: dict[str, str] = field(default_factory=dict)
    """Names in the file of edges that branches of If nodes make."""
    iterations: int = 0
    """Iterations of loops that were read; loops within loops could have more than can be held."""
    path: tuple[str, ...] = ()
    """The outputs of the If nodes around the graph that is read, the outermost first."""
    taken: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """The branch of each If node, by the outputs of it and of the If nodes around it."""

    def run(self) -> Graph:
        """Read the inputs, the constants and all nodes; return the graph."""
        initializers = self._initializers()
        read = {name for node in file.nodes_of(self.model.graph) for name in node.input}
        read |= {given.name for graph in file.graphs_of(self.model.graph) for given in graph.output}
        require_inputs(self.fixed, self.model.graph)
        inputs = [given for given in self.model.graph.input if given.name in read and given.name not in initializers]
        closed = close_shapes(inputs, self.shapes, self.batch, self.fixed)
        for given in inputs:
            if given.name in self.fixed:
                value = fixed_value(given, self.fixed[given.name], closed.get(given.name, ()))
                self.edges[given.name] = self.graph.constant(value)
            else:
                self._input(given, closed[given.name])
        kind = self.codes.type if self.codes else None
        if kind is not None and not self.has_open:
            raise SpecError("no float input is without a quantizer; leave out the codes of inputs")
        self.versions = {o.domain: o.version for o in self.model.opset_import}
        if (version := self.versions.get("", 1)) > _NEWEST_OPSET:
            raise SpecError(
                f"opset {version} is newer than is known, {_NEWEST_OPSET}; export the network for that or an older one"
            )
        self.edges.update(self._constants(self.model.graph))
        self._read_nodes(self.model.graph)
        return self._finish()

    def _constants(self, graph: Any) -> dict[str, str]:
        """Return the edges of a graph's initializers by their names in the file."""
        return {tensor.name: self.graph.constant(array_of(tensor)) for tensor in graph.initializer}

    def _read_nodes(self, graph: Any) -> None:
        """Read the nodes of the file's graph, of a branch or of the body of a loop."""
        require_known(graph.node)
        for node in _sort_nodes(graph, set(self.edges)):
            if file.is_branching(node):
                self._branch(node)
            elif file.is_loop(node):
                self._loop(node)
            else:
                self._node(node)

    def _branch(self, node: Any) -> None:
        """Read the branch of an If that its condition, a constant, selects; errors name the node."""
        where = file.name_of(node)
        branches = {a.name: a.g for a in node.attribute if a.HasField("g")}
        condition = self.edges.get(node.input[0]) if len(node.input) == 1 else None
        if condition is None or branches.keys() != {"then_branch", "else_branch"}:
            raise SpecError(f"{where}: has no condition, or not the two branches of an If")
        branch = branches["then_branch" if self._constant_number(condition, "condition", where) else "else_branch"]
        if len(branch.output) != len(node.output):
            raise SpecError(f"{where}: {len(branch.output)} outputs of a branch, {len(node.output)} of the node")
        around, self.path = self.path, (*self.path, *node.output)
        self.taken[self.path] = branch
        outputs = self._read_inner(branch, where, self._constants(branch))
        self.path = around
        self.edges.update({name: edge for name, edge in zip(node.output, outputs, strict=True) if name})

    def _loop(self, node: Any) -> None:
        """Read the body of a Loop once for each iteration, whose number follows from constants; errors name the node.

        Given a body (i, more, x) -> (i < 2, f(x), g(x)), three iterations from x on result in f(f(f(x))), and in
        g(x), g(f(x)) and g(f(f(x))) one after the other along a new first axis.
        """
        where = file.name_of(node)
        bodies = [a.g for a in node.attribute if a.name == "body" and a.HasField("g")]
        if missing := [name for name in node.input if name and name not in self.edges]:
            raise SpecError(f"{where}: nothing makes its input {', '.join(missing)}")
        trips, more = [*map(self.edges.get, node.input[:2]), None, None][:2]
        states = [self.edges[name] for name in node.input[2:] if name]
        if len(bodies) != 1 or len(states) != len(node.input[2:]):
            raise SpecError(f"{where}: has not one body, or a state without a value to begin with")
        (body,) = bodies
        kept, given = len(states), [x.name for x in body.input]
        if len(given) != kept + 2 or len(body.output) <= kept or len(node.output) >= len(body.output):
            raise SpecError(
                f"{where}: its body has {len(given)} inputs and {len(body.output)} outputs, which do not fit {kept} "
                f"states and {len(node.output)} outputs"
            )
        most = None if trips is None else self._constant_number(trips, "number of iterations", where)
        more = more or self.graph.constant(np.array(True))
        constants = self._constants(body)
        results: list[list[str]] = []
        while (most is None or len(results) < most) and self._constant_number(more, "condition", where):
            self.iterations += 1
            if self.iterations > MAX_STEPS:
                raise SpecError(f"{where}: more than {MAX_STEPS:,} iterations of all loops; split the sequence")
            number = self.graph.constant(np.array(len(results), np.int64))
            inputs = dict(zip(given, (number, more, *states), strict=True))
            more, *outputs = self._read_inner(body, where, constants | inputs)
            states, rest = outputs[:kept], outputs[kept:]
            results.append(rest)
        if not results and len(node.output) > kept:
            raise SpecError(f"{where}: has no iteration, so its output {node.output[kept]} has no elements")
        file_node = FileNode("Loop", "", self.versions.get("", 1), where, {}, (), tuple(node.output), self.graph)
        stacked = [self._stack(file_node, edges) for edges in zip(*results, strict=True)]
        self.edges.update({name: edge for name, edge in zip(node.output, (*states, *stacked), strict=False) if name})

    def _stack(self, node: FileNode, edges: Iterable[str]) -> str:
        """Return the edge of several edges of one shape, one after the other along a new first axis."""
        return concatenate(node, [node.reshape(edge, (1, *self.graph.edges[edge].shape)) for edge in edges], 0)

    def _read_inner(self, graph: Any, where: str, given: Mapping[str, str]) -> list[str]:
        """Read a branch or the body of a loop, with the edges of its constants and inputs; return its outputs' edges.

        Its names are known in it alone: the other branch, and branches of other nodes, may have the same.
        """
        own = file.names_made(graph)
        if known := sorted(own & self.edges.keys()):
            raise SpecError(
                f"{where}: a branch makes {known[0]}, which exists already in the graph around it; rename one"
            )
        self.edges.update(given)
        self._read_nodes(graph)
        if missing := [o.name for o in graph.output if o.name not in self.edges]:
            raise SpecError(f"{where}: nothing makes the output {missing[0]} of a branch")
        outputs = [self.edges[o.name] for o in graph.output]
        for name in sorted(own & self.edges.keys()):
            self.branch_names.setdefault(self.edges.pop(name), name)
        return outputs

    def _constant_number(self, edge: str, what: str, where: str) -> float:
        """Return the constant of one element that decides control flow; SpecError if it is computed at run time."""
        value = self.graph.in_floats(edge)
        if value is None or value.size != 1:
            raise SpecError(f"{where}: {self._describe_condition(edge, what)}")
        return float(value.reshape(-1)[0])

    def _describe_condition(self, condition: str, what: str) -> str:
        """Return why an edge that decides control flow, such as the condition of an If, is no constant, and what to
        do."""
        todo, inputs = [condition], list[str]()
        visited = {condition}
        while todo:
            maker = self.graph.maker(name := todo.pop())
            inputs += [name] if name in self.graph.inputs else []
            new = {*maker.inputs} - visited if maker else set()
            visited |= new
            todo += sorted(new)
        if small := [name for name in inputs if math.prod(self.graph.edges[name].shape) == 1]:
            return f"its {what} depends on the input {small[0]}; fix that, as in --fix {small[0]}=VALUE"
        return f"its {what} is computed at run time; export the network without it"

    def _initializers(self) -> set[str]:
        """Return the names of the initializers; SpecError if a name is there twice."""
        graph = self.model.graph
        for what, given in (("input", graph.input), ("initializer", graph.initializer)):
            repeated = [name for name, count in Counter(x.name for x in given).items() if count > 1]
            if repeated:
                raise SpecError(f"{what} {repeated[0]} appears twice; give each a name of its own")
        return {tensor.name for tensor in graph.initializer}

    def _input(self, given: Any, shape: Shape) -> None:
        """Add an input to the graph."""
        name, tensor = given.name, given.type.tensor_type
        _require_size(name, shape)
        try:
            dtype = dtype_of(tensor.elem_type)
        except SpecError as error:
            raise SpecError(f"input {name}: {error}") from None
        kind: EdgeType = Reals() if is_float(dtype) else full_range(dtype)
        if is_float(dtype) and not self._is_quantized(name):
            self.has_open, kind = True, self.codes.type if self.codes else kind
        self.edges[name] = self.graph.input(name, shape, dtype, kind)

    def _is_quantized(self, name: str) -> bool:
        """Return whether quantizers alone read an input of the file: they say then what codes it holds."""
        operators = self._reading_operators.get(name)
        return operators is not None and operators <= _INPUT_QUANTIZERS

    @cached_property
    def _reading_operators(self) -> dict[str, set[str]]:
        """The operators that read each edge of the file."""
        operators: dict[str, set[str]] = {}
        for node in file.nodes_of(self.model.graph):
            for name in node.input:
                operators.setdefault(name, set()).add(node.op_type)
        return operators

    def _node(self, node: Any) -> None:
        """Read a node with the reader of its operator; errors name the node."""
        if missing := [i for i in node.input if i and i not in self.edges]:
            raise SpecError(f"{file.name_of(node)}: nothing makes its input {', '.join(missing)}")
        read = reader_of(node.op_type, node.domain)
        assert read is not None
        file_node = FileNode(
            node.op_type,
            node.domain,
            self.versions.get(node.domain, 1 if node.domain else 13),
            node.name or next((o for o in node.output if o), "without a name"),
            _read_attributes(node),
            tuple(self.edges[i] if i else None for i in node.input),
            tuple(node.output),
            self.graph,
        )
        try:
            edges = read(file_node)
        except SpecError as error:
            text = str(error)
            raise SpecError(text if text.startswith(f"{file_node}: ") else f"{file_node}: {text}") from None
        except (ValueError, IndexError, TypeError, KeyError, OverflowError, ArithmeticError) as error:
            raise SpecError(f"{file_node}: its inputs and attributes do not fit: {error}") from None
        self.edges.update({o: e for o, e in zip(node.output, edges, strict=False) if o})
        if node.domain == TFLITE:
            self._name_channels_first(node.output)

    def _name_channels_first(self, names: Iterable[str]) -> None:
        """Give images of a TensorFlow Lite file a name with channels first: as such they are in the graph."""
        for name in names:
            rank = len(self.graph.edges[self.edges[name]].shape)
            order = (0, rank - 1, *range(1, rank - 1))
            if (first := self.graph.transposed.get((self.edges[name], order))) and rank > 2:
                self.edges.setdefault(f"{name}{CHANNELS_FIRST}", first)

    def _finish(self) -> Graph:
        """Return the graph of the outputs; SpecError if an output is missing."""
        outputs = []
        for given in self.model.graph.output:
            if given.name not in self.edges:
                raise SpecError(f"nothing makes the output {given.name}")
            outputs.append(self.edges[given.name])
        if not outputs:
            raise SpecError("the network has no output")
        return _require_finite(_require_elements(self.graph.build(tuple(outputs), self._names())))

    def _names(self) -> dict[str, str]:
        """Return the file's name of each edge: the name of an input or output, else the first of several."""
        names = {name: name for name in self.graph.inputs}
        for name in (*(o.name for o in self.model.graph.output), *self.edges):
            names.setdefault(self.edges[name], name)
        used = set(names.values())
        for edge, name in self.branch_names.items():
            if edge not in names and name not in used:
                names[edge] = name
                used.add(name)
        return names


def _require_size(name: str, shape: Shape) -> None:
    """Raise SpecError if an input has too many axes or elements."""
    if len(shape) > MAX_AXES:
        raise SpecError(f"input {name} has {len(shape)} axes, more than {MAX_AXES}; reshape it to fewer")
    if np.prod([float(n) for n in shape]) > MAX_ELEMENTS:
        raise SpecError(f"input {name}: shape {shape} has more than {MAX_ELEMENTS:,} elements")


def _read_attributes(node: Any) -> dict[str, Any]:
    """Return the attributes of a node: texts as str, tensors as arrays."""
    onnx = file.require_onnx()
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            attributes[attribute.name] = array_of(attribute.t)
            continue
        try:
            value = onnx.helper.get_attribute_value(attribute)
        except ValueError as error:
            raise SpecError(f"{file.name_of(node)}: attribute {attribute.name}: {error}") from None
        if attribute.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) and np.isnan(value).any():
            raise SpecError(f"{file.name_of(node)}: attribute {attribute.name} is NaN; export the network again")
        attributes[attribute.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return attributes


def _names_read(node: Any) -> Iterator[str]:
    """Yield the names that a node reads, or that a branch of it may read of the graph around it."""
    yield from filter(None, node.input)
    for branch in file.branches_of(node):
        inner = [name for part in branch.node for name in _names_read(part)]
        own = file.names_made(branch)
        yield from (name for name in (*inner, *(given.name for given in branch.output)) if name not in own)


def _sort_nodes(graph: Any, known: set[str]) -> list[Any]:
    """Return the nodes in an order in which they can run: the file's order if it is such an order."""
    makers: dict[str, int] = {}
    for k, node in enumerate(graph.node):
        for name in node.output:
            if name and (name in makers or name in known):
                raise SpecError(f"{file.name_of(node)}: makes {name}, which exists already")
            makers[name] = k
    before = {k: {makers[i] for i in _names_read(node) if i in makers} for k, node in enumerate(graph.node)}
    if all(max(needed, default=-1) < k for k, needed in before.items()):
        return list(graph.node)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        node = graph.node[error.args[1][0]]
        raise SpecError(f"{file.name_of(node)}: depends on its own output; the graph has a cycle") from None
    return [graph.node[k] for k in order]


class ReadOptions(TypedDict, total=False):
    """The options of `read`, for functions that pass them on."""

    batch: int | None
    reference: str | None
    codes: InputCodes | None
    fixed: Mapping[str, Any] | None
    shapes: Shapes | None


def read(
    source: str | os.PathLike[str] | Any,
    *,
    batch: int | None = None,
    reference: str | None = None,
    codes: InputCodes | None = None,
    fixed: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
) -> Graph:
    """Read an ONNX or TensorFlow Lite file, or an ONNX model; return its graph.

    Args:
        source: A path, or a model that is loaded already.
        batch: The size of a first axis that the file leaves open.
        reference: The named reference that defines results: exact, onnxruntime, onnx or tflite; None takes the one that
            the file's operators suggest.
        codes: The codes that float inputs hold, if no quantizer of the file says so.
        fixed: The values of inputs that become constants, by name.
        shapes: The shapes of inputs, or the sizes of symbols, that the file leaves open, by name: {"x": (1, 3, 320,
            320)} or {"height": 320}.

    Warns:
        BitsynthWarning: Sums of the file's integers may wrap, or a bias was clipped to a limit of int32; the message
            names the node. The graph still computes what the file says.

    Raises:
        SpecError: The file is damaged, unsafe or not understood; the message names the node.
        ToolError: The package onnx is missing.
    """
    if reference is not None and reference not in REFERENCES:
        raise SpecError(f"unknown reference {reference!r}; known: {', '.join(REFERENCES)}")
    if batch is not None and (type(batch) is not int or not 1 <= batch <= MAX_BATCH):
        raise SpecError(f"batch is {batch!r}; it must be a whole number from 1 to {MAX_BATCH:,}")
    if not isinstance(source, str | os.PathLike):
        with file.name_in_errors(None):
            return _import(file.prepare(source, None), batch, reference, codes, fixed or {}, shapes or {})
    path = Path(source)
    model = file.load(path)
    with file.name_in_errors(path):
        return _import(model, batch, reference, codes, fixed or {}, shapes or {})


def inline_branches(model: Any, shapes: Shapes, batch: int | None) -> Any:
    """Return a model without If nodes, each replaced by the branch that is read; the model itself if it has none.

    Raises:
        SpecError: The model cannot be read, or has a loop.
    """
    nodes = list(file.nodes_of(model.graph))
    if loops := [node for node in nodes if file.is_loop(node)]:
        raise SpecError(
            f"{file.name_of(loops[0])}: a network with loops is compiled, not quantized; export it unrolled"
        )
    if not any(map(file.is_branching, nodes)):
        return model
    builder = GraphBuilder("", default_reference(model), file.edge_names(model.graph))
    reading = _Import(model, builder, batch, None, {}, shapes)
    reading.run()
    return file.inline_branches(model, reading.taken)


def _import(
    model: Any,
    batch: int | None,
    reference: str | None,
    codes: InputCodes | None,
    fixed: Mapping[str, Any],
    shapes: Shapes,
) -> Graph:
    """Import a checked model, run the passes, and warn of sums that may wrap.

    SpecError also says how to export the file if it can be imported with a batch of 1, but not with this `batch`.
    """

    is_tflite = any(o.domain == TFLITE for o in model.opset_import)
    if reference == "tflite" and not is_tflite:
        raise SpecError("the reference tflite is for TensorFlow Lite files alone; name another one")
    if batch is None and is_tflite:
        batch = 1  # which the shapes in the file hold, even of an open batch

    def import_with(batch: int | None) -> Graph:
        name = model.graph.name or "network"
        builder = GraphBuilder(name, reference or default_reference(model), file.edge_names(model.graph))
        builder.quantizer = claims_of(model)
        return _Import(model, builder, batch, codes, fixed, shapes).run()

    try:
        graph = run_passes(import_with(batch), IMPORT_PASSES)
    except SpecError as error:
        inputs: tuple[str, ...] = ()
        if batch not in (None, 1):
            with suppress(SpecError):
                inputs = import_with(1).inputs
        if not inputs:
            raise
        raise SpecError(
            f"{error}; with --batch 1 the file can be read: a shape in it holds the batch that it was exported with. "
            f"Export it with an open batch, {open_batch_export(inputs[0])}, and without its size in reshapes"
        ) from None
    for line in find_overflows(graph):
        warnings.warn(line, BitsynthWarning, stacklevel=3)
    return graph


def open_batch_export(name: str) -> str:
    """Return the call that exports a network whose input `name` has an open batch."""
    return f"torch.onnx.export(..., dynamic_axes={{{name!r}: {{0: 'N'}}}})"


def _require_elements(graph: Graph) -> Graph:
    """Return the graph; SpecError if a node reads, or the network gives, a tensor without elements.

    C has no arrays without elements. The message names the node that makes the tensor, else the one that reads it.
    """
    makers = graph.makers
    for node in graph.nodes:
        for name in node.inputs:
            if not math.prod(graph.edges[name].shape):
                raise SpecError(f"{makers.get(name, node)}: {_describe_empty(graph, name)}")
    for name in graph.outputs:
        if not math.prod(graph.edges[name].shape):
            raise SpecError(f"{makers.get(name, f'output {name}')}: {_describe_empty(graph, name)}")
    return graph


def _describe_empty(graph: Graph, name: str) -> str:
    """Return the text of an error about a tensor without elements."""
    return f"{name} has shape {graph.edges[name].shape}, so no elements; cut it and what reads it from the network"


def _require_finite(graph: Graph) -> Graph:
    """Return the graph; SpecError if it is exact and a node reads an infinite constant, which is no real number."""
    if graph.reference != "exact":
        return graph
    for node in graph.nodes:
        for edge in graph.edges_of(node.inputs):
            value = None if isinstance(edge.type, Integers) else graph.constants.get(edge.name)
            if value is not None and not np.isfinite(value.astype(np.float64)).all():
                raise SpecError(
                    f"{node}: the constant {edge.name} holds infinity, which is no real number; "
                    "replace it, or name another reference, such as onnxruntime"
                )
    return graph
