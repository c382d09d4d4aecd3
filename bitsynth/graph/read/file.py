"""ONNX files as protobuf messages: checked before they are trusted, and nothing in them is executed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.errors import SpecError, ToolError
from bitsynth.files import read_file
from bitsynth.graph.read import tflite
from bitsynth.graph.types import Tensor, is_float
from bitsynth.printable import one_line, show

INSTALL_ONNX = "pip install 'onnx>=1.20,<2'"
"""The command that installs the package that reads files."""
_MAX_BYTES = (1 << 31) - 1
"""The most bytes of a protobuf message; external data of a network may not have more either."""
_MAX_NODES = 100_000


def require_onnx() -> Any:
    """Import and return the package onnx; ToolError if it is not installed."""
    try:
        import onnx
        import onnx.external_data_helper
        import onnx.inliner
        import onnx.numpy_helper
    except ImportError as error:
        raise ToolError(f"networks are read with the package onnx: {error}; install it with {INSTALL_ONNX}") from None
    return onnx


@contextmanager
def name_in_errors(path: Path | None) -> Iterator[None]:
    """Put the file's name before the message of a SpecError raised inside; escape its names, and cut long ones.

    A model that was loaded already has no `path`.
    """
    start = f"{path}: " if path else ""
    try:
        yield
    except SpecError as error:
        if path and str(error).startswith(start):
            raise
        raise SpecError(f"{start}{one_line(str(error))}") from None


def load(path: Path) -> Any:
    """Load the model of an ONNX file, with external data from its folder, or of a TensorFlow Lite file.

    SpecError if it is damaged or unsafe.
    """
    onnx = require_onnx()
    data = _read(path)
    with name_in_errors(path):
        if is_tflite_file(path, data):
            return prepare(tflite.parse(data), None)
        try:
            model = onnx.load_model_from_string(data)
        except Exception as error:
            raise SpecError(f"not an ONNX model, or cut short: {error}") from None
        return prepare(model, path.parent)


def _read(path: Path) -> bytes:
    """Return the bytes of a file; SpecError if it cannot be read."""
    try:
        return read_file(path, _MAX_BYTES)
    except OSError as error:
        raise SpecError(f"{path}: cannot read it: {error.strerror or error}") from None


def is_tflite_file(path: Path, data: bytes) -> bool:
    """Return whether a file is of TensorFlow Lite, by its name or its first bytes."""
    return path.suffix == ".tflite" or tflite.is_tflite(data)


def load_for_peers(path: Path) -> Any:
    """Return what other runtimes take of a file: the bytes of a TensorFlow Lite file, or the model of an ONNX file."""
    data = _read(path)
    return data if is_tflite_file(path, data) else load(path)


def prepare(model: Any, folder: Path | None) -> Any:
    """Return a model with external data of its `folder` loaded and functions inlined; SpecError if it is unsound."""
    onnx = require_onnx()
    if not model.graph.node and not model.graph.initializer:
        raise SpecError("not an ONNX model: it has no nodes")
    _require_no_control_flow(model.graph)
    if sum(1 for _ in islice(nodes_of(model.graph), _MAX_NODES + 1)) > _MAX_NODES:
        raise SpecError(f"more than the {_MAX_NODES:,} nodes that are read")
    _require_text(model)
    if model.functions:
        _require_few_inlined_nodes(model)
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:
            raise SpecError(f"its functions cannot be inlined: {error}") from None
        _require_no_control_flow(model.graph)
    _load_external(model, folder)
    return model


def _require_few_inlined_nodes(model: Any) -> None:
    """Raise SpecError if inlined functions would be too many nodes: each may call another twice, and so on."""
    bodies = {(f.domain, f.name): f for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(part: Any, around: frozenset[tuple[str, str]]) -> int:
        return sum(of((node.domain, node.op_type), around) for node in nodes_of(part))

    def of(called: tuple[str, str], around: frozenset[tuple[str, str]]) -> int:
        if called not in bodies or called in around:
            return 1
        if called not in counts:
            counts[called] = count(bodies[called], around | {called})
        return counts[called]

    try:
        total = count(model.graph, frozenset())
    except RecursionError:
        raise SpecError("its functions call each other too deeply; export the network without functions") from None
    if total > _MAX_NODES:
        raise SpecError(f"its functions are {total:,} nodes, more than the {_MAX_NODES:,} that are read")


def _require_text(model: Any) -> None:
    """Raise SpecError for names that are not UTF-8, which protobuf gives as bytes."""
    nodes = [node for part in (model.graph, *model.functions) for node in nodes_of(part)]
    names = [name for node in nodes for name in (node.name, node.op_type, node.domain, *node.input, *node.output)]
    names += [x.name for graph in graphs_of(model.graph) for x in (*graph.input, *graph.output, *graph.initializer)]
    names += [a.name for node in nodes for a in node.attribute]
    names += [x.domain for x in model.opset_import]
    if bad := [name for name in names if not isinstance(name, str)]:
        raise SpecError(f"the name {bad[0]!r} is not UTF-8; the file is damaged")


def name_of(node: Any) -> str:
    """Return the text by which errors name a node of a file: its operator, and its name or its first output's name."""
    return show(f"{node.op_type} {node.name or next((o for o in node.output if o), 'without a name')}")


def edge_names(graph: Any) -> frozenset[str]:
    """Return every name that the graph of a file uses for an edge, but the empty name of inputs that are left out."""
    names = {name for node in nodes_of(graph) for name in (*node.input, *node.output)}
    for part in graphs_of(graph):
        names |= {x.name for own in (part.input, part.output, part.initializer, part.value_info) for x in own}
    return frozenset(names - {""})


_MAX_DEPTH = 24
"""The most branches of If nodes inside one another; protobuf reads about 30."""


def branches_of(node: Any) -> Iterator[Any]:
    """Yield the graphs in the attributes of a node: the branches of an If, or the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs_of(graph: Any) -> Iterator[Any]:
    """Yield a graph, or the body of a function, and the branches in it; SpecError if they are nested too deeply."""
    todo = [(graph, 0)]
    while todo:
        part, depth = todo.pop()
        if depth > _MAX_DEPTH:
            raise SpecError(f"its control flow is nested more than {_MAX_DEPTH} deep; export the network without it")
        yield part
        todo += [(branch, depth + 1) for node in part.node for branch in branches_of(node)]


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, or of a function, and of the branches in it."""
    return (node for part in graphs_of(graph) for node in part.node)


def is_branching(node: Any) -> bool:
    """Return whether a node is an If of standard ONNX, one of whose branches is read."""
    return node.op_type == "If" and node.domain in ("", "ai.onnx")


def is_loop(node: Any) -> bool:
    """Return whether a node is a Loop of standard ONNX, whose body is read once for each iteration."""
    return node.op_type == "Loop" and node.domain in ("", "ai.onnx")


def is_control_flow(node: Any) -> bool:
    """Return whether a node is an If or a Loop, whose graphs are read in its place."""
    return is_branching(node) or is_loop(node)


def names_made(graph: Any) -> frozenset[str]:
    """Return the names of a graph's inputs, constants and nodes' outputs, without names in branches."""
    outputs = {name for node in graph.node for name in node.output if name}
    return frozenset(outputs | {x.name for x in (*graph.initializer, *graph.input)})


def inline_branches(model: Any, taken: Mapping[tuple[str, ...], Any]) -> Any:
    """Return a copy of a model in which each If node is the nodes of one of its branches, with names of their own.

    Args:
        model: The model.
        taken: The branch of each If node, by the outputs of it and of the If nodes around it; the outermost first.
    """
    onnx = require_onnx()
    inlined = onnx.ModelProto()
    inlined.CopyFrom(model)
    used = set(edge_names(model.graph))
    del inlined.graph.node[:]

    def rename(name: str, around: str) -> str:
        fresh = next(f for k in count() if (f := f"{around}/{name}{k or ''}") not in used)
        used.add(fresh)
        return fresh

    def add(nodes: Iterable[Any], path: tuple[str, ...], names: Mapping[str, str]) -> None:
        for node in nodes:
            if is_branching(node):
                inner = (*path, *node.output)
                branch = taken[inner]
                own = dict(names) | {name: rename(name, node.output[0]) for name in sorted(names_made(branch))}
                for tensor in branch.initializer:
                    inlined.graph.initializer.add().CopyFrom(tensor)
                    inlined.graph.initializer[-1].name = own[tensor.name]
                add(branch.node, inner, own)
                for given, output in zip(branch.output, node.output, strict=True):
                    source, target = own.get(given.name, given.name), names.get(output, output)
                    inlined.graph.node.append(onnx.helper.make_node("Identity", [source], [target]))
                continue
            copy = inlined.graph.node.add()
            copy.CopyFrom(node)
            for edges in (copy.input, copy.output):
                edges[:] = [names.get(name, name) for name in edges]

    add(model.graph.node, (), {})
    return inlined


def _require_no_control_flow(graph: Any) -> None:
    """Raise SpecError for control flow other than If and Loop, and for sparse tensors."""
    for part in graphs_of(graph):
        for node in part.node:
            if not is_control_flow(node) and any(True for _ in branches_of(node)):
                why = "this control flow is not compiled; export the network without it"
                raise SpecError(f"{name_of(node)}: {why}")
        if part.sparse_initializer:
            raise SpecError("sparse initializers are not read; store them dense")


def _tensors(model: Any) -> Iterator[Any]:
    """Yield the tensors of a model: initializers and attributes."""
    for graph in graphs_of(model.graph):
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _load_external(model: Any, folder: Path | None) -> None:
    """Load the external data of all tensors; SpecError for paths outside the folder, and for sizes that do not fit."""
    onnx = require_onnx()
    total = 0
    for tensor in _tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        info = {entry.key: entry.value for entry in tensor.external_data}
        path = _external_path(folder, info.get("location", ""), tensor.name)
        size = _external_size(info, path, tensor.name)
        total += size
        if total > _MAX_BYTES:
            raise SpecError(f"{tensor.name}: external data of more than {_MAX_BYTES:,} bytes are not read")
        if size != (wanted := _byte_count(tensor)):
            raise SpecError(
                f"{tensor.name}: its data do not fit its type and shape: {size:,} bytes in {path.name}, "
                f"where {wanted:,} are wanted"
            )
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:
            raise SpecError(f"{tensor.name}: its external data cannot be read: {error}") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _external_path(folder: Path | None, location: str, name: str) -> Path:
    """Return the path of external data; SpecError unless it is a plain file below the model's folder."""
    if folder is None:
        raise SpecError(f"{name}: external data can only be read next to a model file; save the model in one file")
    root = folder.resolve()
    path = Path(os.path.normpath(root / location))
    inside = location and "\0" not in location and path.is_relative_to(root)
    if not inside or not Path(os.path.realpath(path)).is_relative_to(root):
        raise SpecError(
            f"{name}: external data {location!r} lie outside the model's folder; save the model in one file"
        )
    if not os.path.isfile(path):  # Of a name that no file system takes pathlib raises OSError.
        raise SpecError(f"{name}: external data {location!r} do not exist; put the file into the folder of the model")
    return path


def _byte_count(tensor: Any) -> int:
    """Return the bytes of a tensor's data by its type and shape; SpecError for an unknown type."""
    onnx = require_onnx()
    kinds = onnx.TensorProto.DataType
    of_few_bits = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
    try:
        name = kinds.Name(tensor.data_type)
        bits = of_few_bits.get(name) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, ValueError, TypeError):
        raise SpecError(f"{tensor.name}: type {tensor.data_type} is not known") from None
    return int(-(-math.prod(tensor.dims) * bits // 8))


def _external_size(info: dict[str, str], path: Path, name: str) -> int:
    """Return the bytes of external data; SpecError if they would go past the end of the file."""
    try:
        offset = int(info.get("offset") or 0)
        size = int(info.get("length") or max(0, path.stat().st_size - offset))
    except ValueError:
        raise SpecError(f"{name}: offset and length of its external data are not numbers") from None
    if size < 0 or offset < 0 or offset + size > path.stat().st_size:
        raise SpecError(f"{name}: external data end after {path.name} does; the file is cut short")
    return size


_UNSUPPORTED_TYPES = ("complex", "string", "object", "<U", "float8_", "float4_", "float6_")


def dtype_of(number: int) -> str:
    """Return the name of a type by its number in ONNX; SpecError for types that are not compiled."""
    onnx = require_onnx()
    try:
        name = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))
    except (KeyError, ValueError, TypeError):
        raise SpecError(f"type {number} is not known") from None
    return require_known_type(name)


def require_known_type(name: str) -> str:
    """Return the name of a type; SpecError for types that are not compiled."""
    if name.startswith(_UNSUPPORTED_TYPES):
        raise SpecError(f"type {name} is not compiled; known: float, int and uint types")
    return name


def array_of(tensor: Any) -> Tensor:
    """Return a tensor as an array; SpecError if its data do not fit its shape, or it holds NaN."""
    onnx = require_onnx()
    where = tensor.name or "a tensor"
    try:
        dtype_of(tensor.data_type)
        array: Tensor = onnx.numpy_helper.to_array(tensor)
        if any(n < 0 for n in tensor.dims):
            raise SpecError(f"its shape is {tuple(tensor.dims)}; sizes are 0 or more")
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    except Exception as error:
        raise SpecError(f"{where}: its data do not fit its type and shape: {error}") from None
    if is_float(str(array.dtype)) and np.isnan(array.astype(np.float64)).any():
        raise SpecError(f"{where}: it holds NaN; train or export the network again")
    return array
