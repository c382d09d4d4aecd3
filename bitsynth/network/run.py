"""A network that is called on arrays; its results equal its C library's, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.files import write_texts
from bitsynth.graph.inspect import NetworkFacts, inspect_graph
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Integers, Tensor, is_float
from bitsynth.layers.layer import Call
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.network.arena import plan_arena
from bitsynth.network.certificate import certificate, certificate_files
from bitsynth.network.library import NetworkText
from bitsynth.network.machine import NetworkMachine
from bitsynth.network.program import NetworkProgram, alias_root
from bitsynth.network.reading import Reading
from bitsynth.network.report import NetworkReport, report

Outputs = Any
"""An array, or a tuple of them if a network has several outputs."""


class Network:
    """A compiled network: `compile` makes one from an ONNX file.

    Args:
        program: The steps that it was lowered to.
        threads: Threads that run it, or a `Pool`.
        reading: How its file was read.

    Attributes:
        program: The steps.
        plan: Where its buffers lie.
        pool: The threads.
    """

    def __init__(self, program: NetworkProgram, threads: int | Pool = 1, reading: Reading | None = None) -> None:
        self.reading = reading or Reading()
        self.program, self.pool, self.plan = program, pool_of(threads), plan_arena(program)
        self._machine = NetworkMachine(program, self.plan, self.pool)

    def __repr__(self) -> str:
        return f"<bitsynth Network {self.graph.name}, {len(self.program.steps)} steps on {self.program.isa}>"

    @property
    def graph(self) -> Graph:
        """The graph that it computes."""
        return self.program.graph

    def __call__(self, *inputs: Any, **named: Any) -> Outputs:
        """Return the outputs, in the file's types.

        Args:
            inputs: Arrays in the file's order, or one dict of arrays by name.
            named: The inputs that are given by name.

        Raises:
            SpecError: An input is missing, has another shape, or numbers that its type or codes do not hold.
            ToolError: The network cannot be compiled or run.
        """
        block, views = self._machine.tensors()
        self._fill(views, self._by_name(inputs, named))
        self._machine.run(block)
        return self._results(views)

    def bind(
        self, *inputs: Any, steps: tuple[int, int] | None = None, times: int = 1, **named: Any
    ) -> tuple[Call, Outputs]:
        """Return a call that runs the network `times` times on `inputs` or `named` ones without look-ups, and outputs.

        With `steps` (first, end) it runs these steps alone, on the buffers that earlier steps left. The call gives 0,
        or a status of `NAME_run`. The pool must stay open, and be left to the call.
        """
        if type(times) is not int or times < 1:
            raise SpecError(f"times must be a whole number of at least 1, not {times!r}")
        block, views = self._machine.tensors()
        self._fill(views, self._by_name(inputs, named))
        return self._machine.bind(block, steps, times), self._results(views)

    def trace(self, *inputs: Any, **named: Any) -> dict[str, Tensor]:
        """Return every edge in memory, by name, for `inputs` or `named` ones: integers in int64, or numbers.

        Edges inside a step, as between a convolution and its epilogue, are not in memory.
        """
        machine = self._tracing
        block, views = machine.tensors()
        self._fill(views, self._by_name(inputs, named))
        machine.run(block)
        values: dict[str, Tensor] = {}
        for name, buffer in self.program.buffers.items():
            root = alias_root(self.program.buffers, name)
            if root in machine.plan.offsets and buffer.edge.name not in values:
                memory = machine.memory(root).view(buffer.format.dtype)
                value = buffer.read(memory.copy())
                values[buffer.edge.name] = value.astype(np.int64) if isinstance(buffer.edge.type, Integers) else value
        given = (*self.program.inputs, *self.program.outputs)
        return values | {self.program.buffers[n].edge.name: views[n] for n in given if self._is_new(n, values)}

    def _is_new(self, name: str, values: Mapping[str, Tensor]) -> bool:
        return self.program.buffers[name].edge.name not in values

    @cached_property
    def _tracing(self) -> NetworkMachine:
        """The network with every buffer in a place of its own, so that no step overwrites another's result."""
        return NetworkMachine(self.program, plan_arena(self.program, apart=True), self.pool)

    def inspect(self) -> NetworkFacts:
        """Return the facts of each node, as `bitsynth inspect` shows them."""
        return inspect_graph(self.graph)

    @property
    def certificate(self) -> dict[str, Any]:
        """Return the claims of each step and of memory, as in `NAME.certificate.json`, without files."""
        return certificate(self.program, self.plan, {}, self.reading)

    def report(self) -> NetworkReport:
        """Return how each step is computed, and memory."""
        return report(self.program, self.plan, NetworkText("network", self.program, self.plan).weight_bytes)

    def files(self, name: str, *, weights_file: bool = False) -> dict[str, str | bytes]:
        """Return the network as plain C under `name`, its certificate and the certificate's checker, by file name.

        Weights are C too, or with `weights_file` one binary file that the build takes in.
        """
        text = self.text(name, weights_file=weights_file)
        files: dict[str, str | bytes] = {**text.files(), **text.binaries}
        return files | certificate_files(name, self.program, self.plan, files, self.reading)

    def text(self, name: str, *, weights_file: bool = False) -> NetworkText:
        """Return the text from which its C under `name` is rendered; `weights_file` is as for `files`."""
        return NetworkText(name, self.program, self.plan, has_weights_file=weights_file, reading=self.reading)

    def emit(self, folder: str | Path, name: str, *, weights_file: bool = False) -> list[Path]:
        """Write the files of the network under `name` into `folder`, `weights_file` as `files` has it; their paths.

        SpecError, and none is written, if one would replace another's file.
        """
        return write_texts(Path(folder), self.files(name, weights_file=weights_file))

    def _by_name(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self.graph.inputs
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            by_name = dict(inputs[0])
        elif len(inputs) > len(names):
            raise SpecError(f"{self!r} takes {len(names)} inputs, not {len(inputs)}")
        else:
            by_name = dict(zip(names, inputs, strict=False))
        given = {**by_name, **named}
        if unknown := [name for name in given if name not in names]:
            raise SpecError(f"no input {', '.join(unknown)}; the network's are {', '.join(names)}")
        if missing := [name for name in names if name not in given]:
            raise SpecError(f"input {', '.join(missing)} is missing")
        return given

    def _fill(self, views: Mapping[str, Tensor], given: Mapping[str, Any]) -> None:
        for edge, buffer in zip(self.graph.inputs, self.program.inputs, strict=True):
            _put(views[buffer], _fitting(edge, _array(edge, given[edge]), views[buffer]))

    def _results(self, views: Mapping[str, Tensor]) -> Outputs:
        results = tuple(views[name] for name in self.program.outputs)
        return results[0] if len(results) == 1 else results


def _put(room: Tensor, x: Tensor) -> None:
    """Write numbers to memory as C has them: 2 and 4 bits with a sign as bytes; ml_dtypes would clear bits."""
    if room.dtype.name in ("int2", "int4"):
        room.view(np.int8)[...] = x.astype(np.int8)
    else:
        room[...] = x


def _array(name: str, given: Any) -> Tensor:
    """Return an input as an array; SpecError unless it holds numbers."""
    try:
        x = np.asarray(given)
    except (ValueError, TypeError) as error:
        raise SpecError(f"input {name} is no array: {error}") from None
    if x.dtype.kind in "OSUMmcV" and not is_float(x.dtype.name) and not x.dtype.name.startswith(("int", "uint")):
        raise SpecError(f"input {name} has type {x.dtype}; it wants integers or floats")
    return x


def _fitting(name: str, x: Tensor, room: Tensor) -> Tensor:
    """Return numbers for an input in its type; SpecError for another shape, or numbers outside the type."""
    if x.shape != room.shape:
        raise SpecError(f"input {name} has shape {x.shape}, not {room.shape}")
    if x.dtype == room.dtype:
        return x
    with np.errstate(all="ignore"):
        converted = x.astype(room.dtype)
    rounds = is_float(x.dtype.name) and is_float(room.dtype.name)
    if not rounds and not (converted.astype(x.dtype) == x).all():
        raise SpecError(f"input {name} has numbers of {x.dtype} that {room.dtype} does not hold")
    return converted
