"""Comparison of every edge of a network: elements that differ between the reference and the C, or another runtime."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bitsynth.errors import BitsynthError
from bitsynth.graph import run
from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.ir import Graph
from bitsynth.graph.overflow import find_overflows
from bitsynth.graph.reference import Evaluation
from bitsynth.graph.types import Integers, Tensor, is_float, numpy_type
from bitsynth.network.check.data import Feed, on_ties
from bitsynth.network.check.peers import PEERS, TFLITE_PEERS, Executor
from bitsynth.network.run import Network
from bitsynth.progress import Progress, silent

OURS = "C"
_ROUNDINGS = 8
"""Units in the last place, of an edge's greatest number, that sums of real numbers may be off."""
_EXPONENTIALS = ("exp", "softmax")
"""Operators that multiply a relative error of their operand by its size."""
_NOTHING = 1e-290
"""Numbers as small are 0."""
_PEERS_OFF = 1e-4
"""The error of peers relative to an edge's greatest number: they sum in float32 and in their own order."""


@dataclass(frozen=True)
class EdgeCheck:
    """The comparison of an edge on all inputs.

    Args:
        edge: Its name.
        op: The operator that makes it.
        by: What computes it in C: a layer, glue or plain; empty if it is not in memory.
        elements: How many were compared, on all inputs.
        carries: codes, or reals.
        differ: By who computed it, how many elements are not the reference's: codes, or numbers by more than rounding.
        on_ties: Of `differ` the part on inputs with numbers on ties of the quantizers that read them.
    """

    edge: str
    op: str
    by: str
    elements: int
    carries: str
    differ: Mapping[str, int]
    on_ties: Mapping[str, int]

    @property
    def ordinary(self) -> dict[str, int]:
        """The elements of `differ` on inputs without ties."""
        return {who: count - self.on_ties[who] for who, count in self.differ.items()}


@dataclass(frozen=True)
class NetworkCheck:
    """The comparison of a network.

    Args:
        name: The network's name.
        reference: The name of the reference.
        isa: The instruction set that its C is for.
        inputs: The number of inputs that it ran.
        edges: The edges that were compared, in order.
        left_out: Peers that did not run, and why.
        warnings: The warnings that reading the file gave.
        inputs_on_ties: The number of `inputs` with numbers on ties of the quantizers that read them.
    """

    name: str
    reference: str
    isa: str
    inputs: int
    edges: tuple[EdgeCheck, ...]
    left_out: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    inputs_on_ties: int = 0

    @property
    def peers(self) -> tuple[str, ...]:
        """The runtimes that computed edges, the C first."""
        names = {name for edge in self.edges for name in edge.differ}
        return tuple(name for name in (OURS, *PEERS, *TFLITE_PEERS) if name in names)

    @property
    def first(self) -> EdgeCheck | None:
        """The first edge at which the C differs from the reference."""
        return next((e for e in self.edges if e.differ.get(OURS)), None)

    def as_json(self) -> dict[str, Any]:
        """Return the check as plain values for JSON."""
        return {**asdict(self), "agrees": self.first is None}


@dataclass
class _Counts:
    """Elements that differ so far, by edge and by runtime: on all inputs, and on inputs with ties."""

    graph: Graph
    differ: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    on_ties: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, who: str, values: Evaluation, tensors: Mapping[str, Tensor], *, ties: bool) -> None:
        for name, got in tensors.items():
            if name in self.graph.edges and name not in self.graph.constants:
                off = _off if who == OURS else _off_of_peer
                count = int(np.count_nonzero(off(values, name, got)))
                self.differ[name][who] += count
                self.on_ties[name][who] += count * ties


def check_network(net: Network, model: Any, inputs: Sequence[Feed], progress: Progress = silent) -> NetworkCheck:
    """Compare a network's C, and each installed runtime, with its reference on inputs.

    Args:
        net: The compiled network.
        model: The model that was compiled, for the peers: an ONNX model, or the bytes of a TensorFlow Lite file.
        inputs: Arrays by the name of an input.
        progress: Hears what is being done.

    What differs on inputs with numbers on ties of their quantizers is counted apart too.
    """
    counts, left_out = _Counts(net.graph), dict[str, str]()
    peers = _peers(model, left_out)
    ties = [on_ties(net.graph, given) for given in inputs]
    for k, given in enumerate(inputs):
        progress(f"input {k + 1} of {len(inputs)}")
        values = run(net.graph, {name: given[name] for name in net.graph.inputs})
        counts.add(OURS, values, _results(net, net.trace(given)), ties=ties[k])
        for name, runs in list(peers.items()):
            try:
                counts.add(name, values, runs(given), ties=ties[k])
            except Exception as error:
                left_out[name] = _why(error)
                del peers[name]
    names = net.graph.name, net.graph.reference, net.program.isa
    edges = _edges(net, counts, len(inputs), left_out)
    return NetworkCheck(*names, len(inputs), edges, left_out, find_overflows(net.graph), sum(ties))


def _results(net: Network, trace: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the edges that the C computed, without its inputs."""
    return {name: value for name, value in trace.items() if name not in net.graph.inputs}


def _peers(model: Any, left_out: dict[str, str]) -> dict[str, Executor]:
    executors = {}
    runtimes: Mapping[str, Callable[[Any], Executor]] = TFLITE_PEERS if isinstance(model, bytes) else PEERS
    for name, begin in runtimes.items():
        try:
            executors[name] = begin(model)
        except ImportError:
            left_out[name] = "not installed"
        except BitsynthError:
            raise
        except Exception as error:
            left_out[name] = _why(error)
    return executors


def _why(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'it said nothing'}"[:200]


def _edges(net: Network, counts: _Counts, inputs: int, left_out: Mapping[str, str]) -> tuple[EdgeCheck, ...]:
    by = {
        net.program.buffers[out].edge.name: report.kind
        for report, step in zip(net.report().steps, net.program.steps, strict=True)
        for out in step.outputs
        if report.method != "conversion"
    }
    checks = []
    for node in net.graph.nodes:
        for name in node.outputs:
            edge = net.graph.edges[name]
            carries = "codes" if isinstance(edge.type, Integers) else "reals"
            differ, on_ties = (
                {who: n for who, n in count[name].items() if who not in left_out}
                for count in (counts.differ, counts.on_ties)
            )
            size = inputs * int(np.prod(edge.shape))
            checks.append(EdgeCheck(name, node.op, by.get(name, ""), size, carries, differ, on_ties))
    return tuple(checks)


def _off(values: Evaluation, name: str, got: Tensor) -> Tensor:
    """Return where the C differs: integers that are not equal, numbers off by more than rounding allows."""
    edge, want = values.graph.edges[name], values[name]
    if isinstance(edge.type, Integers) and got.dtype == np.int64 and not _is_given_out(values, name):
        return np.asarray(got != want)
    if isinstance(want, Interval) and got.dtype == np.float64:
        want = (want.low + want.high) / 2
    else:
        want = values.floats(name)
        if isinstance(edge.type, Integers):
            return np.asarray(got != want)
    return _apart(got, want, _ROUNDINGS * _unit(got.dtype) * _condition(values, name))


def _condition(values: Evaluation, name: str) -> float:
    """Return by how much the computation of an edge multiplies relative errors of its operand.

    exp(x + e) = exp(x) (1 + e): an error of x relative to x is multiplied by x. Softmax divides such numbers.
    """
    maker = values.graph.makers.get(name)
    if maker is None or maker.op not in _EXPONENTIALS:
        return 1.0
    return 1.0 + float(np.abs(_real(values.floats(maker.inputs[0]))).max(initial=0.0))


def _is_given_out(values: Evaluation, name: str) -> bool:
    """Return whether an output is in memory only in the form that the caller gets, numbers of the file."""
    return name in values.graph.outputs and not values.graph.edges[name].is_float


def _unit(dtype: np.dtype[Any]) -> float:
    """Return a unit in the last place of 1."""
    name = str(dtype)
    if not is_float(name):
        return 0.0
    return 2.0**-7 if name == "bfloat16" else float(np.finfo(numpy_type(name)).eps)


def _off_of_peer(values: Evaluation, name: str, got: Tensor) -> Tensor:
    """Return where a peer differs: by half a code or more, or by more than float32 rounds away."""
    edge, want = values.graph.edges[name], values.floats(name)
    if got.shape != want.shape:
        return np.ones(want.shape, bool)
    if isinstance(edge.type, Integers):
        step = edge.type.scale if edge.is_float else 1.0
        return np.asarray(np.abs(_real(got) - _real(want)) >= step / 2)
    return _apart(got, want, _PEERS_OFF)


def _apart(got: Tensor, want: Tensor, share: float) -> Tensor:
    """Return where numbers differ by more than a share of the greatest one, or one is NaN."""
    a, b = _real(got), _real(want)
    most = np.abs(b[np.isfinite(b)]).max(initial=_NOTHING)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        return np.asarray(~same & ~(np.abs(a - b) <= share * most))


def _real(array: Any) -> Tensor:
    return np.asarray(array).astype(np.float64)
