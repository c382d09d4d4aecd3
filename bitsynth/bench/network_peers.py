"""Peers of a whole network: ONNX Runtime and the C of emx-onnx-cgen, on the same file and on its twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.graph.types import Tensor, numpy_type
from bitsynth.network.run import Network
from bitsynth.progress import Progress

Bound = Callable[[Any], Callable[[], object]]
"""What makes of a model a call of it."""
ORT, EMX = "onnxruntime", "emx-onnx-cgen"


def bound(
    model: Path, net: Network, inputs: Mapping[str, Tensor], left_out: dict[str, str], progress: Progress
) -> Iterator[tuple[str, Callable[[], object]]]:
    """The peers that run, by name; why others do not goes to `left_out`."""
    packages: dict[str, Bound] = {}
    for package, load in {ORT: _onnxruntime, **({EMX: _emx} if net.program.threads == 1 else {})}.items():
        try:
            packages[package] = load(net, inputs)
        except ImportError as why:
            left_out[package] = f"{why}; pip install 'bitsynth[peers]'"
    for what, file in models(model, inputs, left_out):
        for package, make in packages.items():
            progress(f"starting {package}, {what}")
            try:
                yield f"{package}, {what}", make(file)
            except Exception as why:  # whatever a peer says of a file that it cannot run
                left_out[f"{package}, {what}"] = _first_line(why)


def _onnxruntime(net: Network, inputs: Mapping[str, Tensor]) -> Bound:
    from bitsynth.bench import onnxruntime_network

    return lambda file: onnxruntime_network.bound(file, inputs, net.program.threads)


def _emx(net: Network, inputs: Mapping[str, Tensor]) -> Bound:
    from bitsynth.bench import emx_network

    edges = [net.graph.edges[name] for name in net.graph.outputs]
    outputs = [np.empty(edge.shape, numpy_type(edge.dtype)) for edge in edges]
    given = [inputs[name] for name in net.graph.inputs]
    return lambda file: emx_network.bound(file, net.program.isa, given, outputs)


def models(model: Path, inputs: Mapping[str, Tensor], left_out: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """What peers are to run, by name: the file, shapes fixed, and the twins that it has."""
    import onnx

    from bitsynth.bench import twins

    file = twins.fixed(onnx.load(model), {name: x.shape for name, x in inputs.items()})
    makers: dict[str, Callable[[], Any]] = {
        "same file": lambda: file,
        "fp32 twin": lambda: twins.float_twin(file),
        "int8 twin": lambda: twins.int8_twin(twins.float_twin(file), inputs),
    }
    for what, make in makers.items():
        try:
            yield what, make()
        except Exception as why:  # whatever a package says of a file that it cannot read
            left_out[what] = _first_line(why)


def _first_line(why: Exception) -> str:
    """What an exception says, cut short."""
    return str(why).strip().split("\n")[0][:200]
