"""A back end of ONNX: models compiled to C behind the interface of `onnx.backend.base`.

rep = Backend.prepare(onnx.load("model.onnx"))
outputs = rep.run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.backend import base

from bitsynth.errors import SpecError
from bitsynth.graph.read.readers import reader_of
from bitsynth.graph.types import Tensor
from bitsynth.network.compiling import compile
from bitsynth.network.run import Network


class CompiledModel(base.BackendRep):
    """A model ready to run.

    A model with an input that must be constant, such as the shape of a Reshape, is compiled when it runs: all inputs,
    or all but the first, are constants of that run.
    """

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self._model, self._options = model, options
        constants = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [given.name for given in model.graph.input if given.name not in constants]
        try:
            self._network: Network | None = compile(model, **options)
        except SpecError:
            if not self._inputs or not Backend.is_compatible(model):
                raise
            self._network = None

    def run(self, inputs: Any, **_: Any) -> tuple[Tensor, ...]:
        """Return the outputs, for inputs in the model's order or by name; SpecError for inputs that do not fit."""
        given = self._by_name(inputs)
        net = self._network or self._compile(given)
        outputs = net({name: given[name] for name in net.graph.inputs})
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def _by_name(self, inputs: Any) -> dict[str, Tensor]:
        if not isinstance(inputs, Mapping):
            tensors = inputs if isinstance(inputs, Sequence) else [inputs]
            if len(tensors) > len(self._inputs):
                raise SpecError(f"{len(tensors)} inputs; the model has {', '.join(self._inputs)}")
            inputs = dict(zip(self._inputs, tensors, strict=False))
        return {name: np.asarray(value) for name, value in inputs.items()}

    def _compile(self, given: Mapping[str, Tensor]) -> Network:
        fixed = {name: given[name] for name in self._inputs if name in given}
        try:
            varying = {name: fixed[name] for name in self._inputs[1:] if name in fixed}
            return compile(self._model, fixed=varying, **self._options)
        except SpecError:
            return compile(self._model, fixed=fixed, **self._options)


class Backend(base.Backend):
    """What `onnx.backend.base` asks of a back end."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> CompiledModel:
        """Return the model compiled, with the options of `bitsynth.compile`; SpecError names what cannot be."""
        if not cls.supports_device(device):
            raise SpecError(f"device {device!r}: networks run on the CPU")
        return CompiledModel(model, options)

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **_: Any) -> bool:
        """Return whether each operator of the model is read, and the device is a CPU."""
        return cls.supports_device(device) and all(reader_of(node.op_type, node.domain) for node in model.graph.node)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether networks run on the device: on the CPU alone."""
        return device.partition(":")[0] == "CPU"


prepare, run_model = Backend.prepare, Backend.run_model
is_compatible, supports_device = Backend.is_compatible, Backend.supports_device
