"""Peers of a whole network: ONNX Runtime on the same file, and on its twins in floats and in int8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bitsynth.graph.types import Tensor

Bound = tuple[str, Callable[[], object]]
"""A peer's name, and a call of it on inputs that it has."""


def bound(model: Path, inputs: Mapping[str, Tensor], threads: int, left_out: dict[str, str]) -> Iterator[Bound]:
    """The peers that run; why others do not goes to `left_out`."""
    try:
        from bitsynth.bench import onnxruntime_network
    except ImportError as why:
        left_out["onnxruntime"] = f"{why}; pip install 'bitsynth[peers]'"
        return
    for name, file in models(model, inputs, left_out):
        try:
            yield name, onnxruntime_network.bound(file, inputs, threads)
        except Exception as why:  # whatever a peer says of a file that it cannot run
            left_out[name] = first_line(why)


def models(model: Path, inputs: Mapping[str, Tensor], left_out: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """What ONNX Runtime is to run, by name: the file, shapes fixed, and the twins that it has."""
    import onnx

    from bitsynth.bench import twins

    file = twins.fixed(onnx.load(model), {name: x.shape for name, x in inputs.items()})
    makers: dict[str, Callable[[], Any]] = {
        "same file": lambda: file,
        "fp32 twin": lambda: twins.float_twin(file),
        "int8 twin": lambda: twins.int8_twin(twins.float_twin(file), inputs),
    }
    for what, make in makers.items():
        name = f"onnxruntime, {what}"
        try:
            yield name, make()
        except Exception as why:  # whatever a package says of a file that it cannot read
            left_out[name] = first_line(why)


def first_line(why: Exception) -> str:
    """What an exception says, cut short."""
    return str(why).strip().split("\n")[0][:200]
