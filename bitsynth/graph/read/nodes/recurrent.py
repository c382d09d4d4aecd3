"""LSTM and GRU, and DynamicQuantizeLSTM of ONNX Runtime, unrolled: a step of the sequence becomes nodes of its own.

The products of all inputs are one matrix product, whose rows are the steps; each step adds the product of the state
before it.

Given:  y, y_h, y_c = LSTM(x, W, R, B) over 2 steps
Result: z = x @ W.T + b;
        z0 = z[0]; i, o, f, c = split(z0);                c0 = sigmoid(i) * tanh(c); h0 = sigmoid(o) * tanh(c0)
        z1 = z[1] + h0 @ R.T; i, o, f, c = split(z1);     c1 = sigmoid(f) * c0 + sigmoid(i) * tanh(c);  ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bitsynth.graph.read.file_node import FileNode, Reader, cast_to, transpose
from bitsynth.graph.read.nodes.constants_and_moves import concatenate
from bitsynth.graph.read.nodes.quantized import read_dynamic_quantize_linear, scale_of, zero_point_of
from bitsynth.graph.types import Tensor, cast

MAX_STEPS = 4096
"""The most steps of a sequence, over all directions: each becomes about a dozen nodes."""
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each direction whether it goes through the sequence from its end."""
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}


@dataclass(frozen=True)
class _Direction:
    """A recurrent node in one direction.

    Args:
        node: The node.
        index: The direction: the first axis of the weights.
        backward: Whether the last step of the sequence is the first one computed.
        gates: Gates of the cell: 4 of LSTM, 3 of GRU.
        activations: The rows of the graph that are the cell's activations, in the order of ONNX.
        sequence: The edge of the inputs (steps, batch, features).
    """

    node: FileNode
    index: int
    backward: bool
    gates: int
    activations: tuple[str, ...]
    sequence: str

    @property
    def hidden(self) -> int:
        """Elements of the state."""
        return self.node.shape(2)[-1]

    @property
    def batch(self) -> int:
        """Sequences that are computed together."""
        return self.node.graph.edges[self.sequence].shape[1]

    @cached_property
    def step_order(self) -> list[int]:
        """The steps of the sequence in the order in which they are computed."""
        steps = range(self.node.graph.edges[self.sequence].shape[0])
        return list(reversed(steps) if self.backward else steps)

    def pick(self, index: int, what: str) -> str:
        """Return the edge of this direction's part of an input; SpecError for other directions than the node has."""
        edge, shape = self.node.edge(index), self.node.shape(index)
        if self.index >= shape[0]:
            raise self.node.fail(f"{what} of {shape[0]} directions")
        part = self.node.add(
            "slice", edge, slices=((self.index, self.index + 1, 1), *[(None, None, 1)] * (len(shape) - 1))
        )
        return self.node.reshape(part, shape[1:])

    def rows(self, edge: str, first: int, count: int) -> str:
        """Return the edge of `count` rows of weights or biases from row `first` on."""
        rank = len(self.node.graph.edges[edge].shape)
        return self.node.add("slice", edge, slices=((first, first + count, 1), *[(None, None, 1)] * (rank - 1)))

    def columns(self, edge: str, first: int, count: int = 1) -> str:
        """Return the edge of `count` gates of (batch, gates * hidden), from gate `first` on."""
        ends = first * self.hidden, (first + count) * self.hidden
        return self.node.add("slice", edge, slices=((None, None, 1), (*ends, 1)))

    def times(self, edge: str, weights: str) -> str:
        """Return the edge of a product by the transposed weights (rows, columns)."""
        return self.node.add("matmul", edge, transpose(self.node, weights, (1, 0)))

    @cached_property
    def factors(self) -> tuple[str, str]:
        """The weights of inputs (features, gates * hidden) and of the state (hidden, gates * hidden)."""
        of_inputs, of_state = (transpose(self.node, self.pick(k, "weights"), (1, 0)) for k in (1, 2))
        return of_inputs, of_state

    def of_inputs(self, edge: str) -> str:
        """Return the edge of a product by the weights of inputs."""
        return self.node.add("matmul", edge, self.factors[0])

    def of_state(self, edge: str) -> str:
        """Return the edge of a product by the weights of the state."""
        return self.node.add("matmul", edge, self.factors[1])

    @cached_property
    def bias(self) -> tuple[str, str] | None:
        """The biases (gates * hidden,) of inputs and of the state; None if the node has none."""
        if not self.node.has(3):
            return None
        both, count = self.pick(3, "biases"), self.gates * self.hidden
        return self.rows(both, 0, count), self.rows(both, count, count)

    def products(self, added: str | None) -> list[str]:
        """Return the products of the inputs and the weights of each step, (batch, gates * hidden), with a bias."""
        node = self.node
        steps, batch, features = node.graph.edges[self.sequence].shape
        rows = self.of_inputs(node.reshape(self.sequence, (steps * batch, features)))
        rows = node.add("add", rows, added) if added else rows
        return [self.rows(rows, k * batch, batch) for k in range(steps)]

    def initial(self, index: int) -> str | None:
        """Return the edge of a state before the first step, (batch, hidden); None if it is 0."""
        if not self.node.has(index):
            return None
        value = self.node.graph.value(self.node.edge(index))
        return None if value is not None and not value.any() else self.pick(index, "initial states")

    def stack(self, states: Sequence[str]) -> str:
        """Return the edge of the states of all steps, (steps, 1, batch, hidden), in the order of the sequence."""
        in_order = reversed(states) if self.backward else states
        return concatenate(self.node, [self.node.reshape(s, (1, 1, self.batch, self.hidden)) for s in in_order], 0)

    def zeros(self) -> str:
        """Return the edge of a state of zeros."""
        zeros: Tensor = np.zeros((self.batch, self.hidden), self.node.input(0).dtype)
        return self.node.constant(zeros)


class _CodedDirection(_Direction):
    """A direction of DynamicQuantizeLSTM: codes of inputs and of each state, by their own ranges, times codes."""

    def of_inputs(self, edge: str) -> str:
        return self._times_codes(edge, self.factors[0], 8)

    def of_state(self, edge: str) -> str:
        return self._times_codes(edge, self.factors[1], 10)

    def _times_codes(self, edge: str, weights: str, index: int) -> str:
        """Return the edge of a product by codes whose scales and zero points are inputs `index` and the next."""
        node, columns = self.node, self.gates * self.hidden
        codes, scale, zero = read_dynamic_quantize_linear(replace(node, inputs=(edge,)))
        grid = [scale_of(node, index), zero_point_of(node, index + 1)]
        count = len(_DIRECTIONS[node.get("direction", "forward")])
        if any(part.size not in (count, count * columns) for part in grid):
            raise node.fail(f"scales and zero points of {[p.size for p in grid]} numbers do not fit {columns} columns")
        own_scale, own_zero = (part.reshape(count, -1)[self.index].reshape(1, -1) for part in grid)
        whole = node.add("sub", cast_to(node, codes, "int32"), cast_to(node, zero, "int32"))
        weights = node.add("view", weights, scale=1.0, zero=own_zero.astype(np.float64), dtype="int32")
        sums = cast_to(node, node.add("matmul", whole, weights, dtype="int32"), "float32")
        return node.add("mul", sums, node.add("mul", scale, node.constant(own_scale)))


_Steps = Callable[[_Direction], tuple[list[str], list[str]]]
"""Adds the steps of one direction; returns the states of each step, and the last of each kind of state."""


def _lstm_steps(direction: _Direction) -> tuple[list[str], list[str]]:
    """Add the steps of an LSTM: gates i, o, f, c."""
    node, hidden, bias = direction.node, direction.hidden, direction.bias
    of_gates, of_cell, of_output = direction.activations
    products = direction.products(node.add("add", *bias) if bias else None)
    peepholes = direction.pick(7, "peepholes") if node.has(7) else None
    looks = [direction.rows(peepholes, k * hidden, hidden) for k in range(3)] if peepholes else []
    h, c, states = direction.initial(5), direction.initial(6), list[str]()

    def gate(values: str, index: int, state: str | None, peephole: int) -> str:
        value = direction.columns(values, index)
        if looks and state:
            value = node.add("add", value, node.add("mul", state, looks[peephole]))
        return node.add(of_gates, value)

    for step in direction.step_order:
        values = products[step] if h is None else node.add("add", products[step], direction.of_state(h))
        new = node.add("mul", gate(values, 0, c, 0), node.add(of_cell, direction.columns(values, 3)))
        c = new if c is None else node.add("add", node.add("mul", gate(values, 2, c, 2), c), new)
        h = node.add("mul", gate(values, 1, c, 1), node.add(of_output, c))
        states.append(h)
    return states, [states[-1], c or direction.zeros()]


def _gru_steps(direction: _Direction) -> tuple[list[str], list[str]]:
    """Add the steps of a GRU: gates z, r, h."""
    node, hidden, bias = direction.node, direction.hidden, direction.bias
    of_gates, of_state = direction.activations
    linear = bool(node.get("linear_before_reset", 0))
    recurrent = direction.pick(2, "weights")
    if bias is None or not linear:
        products, later = direction.products(node.add("add", *bias) if bias else None), None
    else:  # The bias of the candidate's state is inside the reset gate.
        gates = node.add("add", direction.rows(bias[0], 0, 2 * hidden), direction.rows(bias[1], 0, 2 * hidden))
        of_state_input = direction.rows(bias[0], 2 * hidden, hidden)
        products = direction.products(node.add("concatenate", gates, of_state_input, axis=0))
        later = direction.rows(bias[1], 2 * hidden, hidden)
    of_both, of_candidate = direction.rows(recurrent, 0, 2 * hidden), direction.rows(recurrent, 2 * hidden, hidden)
    one = node.constant(cast(1, node.input(0).dtype))
    h, states = direction.initial(5), list[str]()
    for step in direction.step_order:
        both, candidate = direction.columns(products[step], 0, 2), direction.columns(products[step], 2)
        gates = node.add(of_gates, both if h is None else node.add("add", both, direction.times(h, of_both)))
        z, r = direction.columns(gates, 0), direction.columns(gates, 1)
        if linear:
            product = direction.times(h, of_candidate) if h else None
            terms = [term for term in (product, later) if term]
            state = node.add("mul", r, node.add("add", *terms) if len(terms) == 2 else terms[0]) if terms else None
        else:
            state = direction.times(node.add("mul", r, h), of_candidate) if h else None
        new = node.add(of_state, node.add("add", candidate, state) if state else candidate)
        updated = node.add("mul", node.add("sub", one, z), new)
        h = updated if h is None else node.add("add", updated, node.add("mul", z, h))
        states.append(h)
    return states, [states[-1]]


def _recurrent_reader(
    gates: int, defaults: tuple[str, ...], add_steps: _Steps, direction_type: type[_Direction] = _Direction
) -> Reader:
    """Return the reader of a recurrent operator.

    Args:
        gates: The gates of its cell.
        defaults: The activations of one direction, if the node names none.
        add_steps: Adds the steps of one direction.
        direction_type: How its products are computed.
    """

    def read(node: FileNode) -> tuple[str, ...]:
        _require_supported(node, gates)
        layout = int(node.get("layout", 0))
        sequence = transpose(node, node.edge(0), (1, 0, 2)) if layout else node.edge(0)
        if layout:
            node = replace(node, inputs=tuple(_states_first(node, k) for k in range(len(node.inputs))))
        names = [x.decode(errors="replace") for x in node.get("activations") or ()]
        backward = _DIRECTIONS[node.get("direction", "forward")]
        names = names or list(defaults) * len(backward)
        if len(names) != len(defaults) * len(backward) or any(name not in _ACTIVATIONS for name in names):
            raise node.fail(f"activations {', '.join(names)} are not compiled; known: {', '.join(_ACTIVATIONS)}")
        rows = [_ACTIVATIONS[name] for name in names]
        all_states, last = [], []
        for k, reverse in enumerate(backward):
            own = tuple(rows[k * len(defaults) : (k + 1) * len(defaults)])
            direction = direction_type(node, k, reverse, gates, own, sequence)
            states, ends = add_steps(direction)
            all_states.append(direction.stack(states))
            last.append([node.reshape(end, (1, direction.batch, direction.hidden)) for end in ends])
        outputs = [
            concatenate(node, all_states, 1),
            *(concatenate(node, list(e), 0) for e in zip(*last, strict=True)),
        ]
        if layout:
            outputs = [transpose(node, outputs[0], (2, 0, 1, 3)), *(transpose(node, e, (1, 0, 2)) for e in outputs[1:])]
        return tuple(outputs)

    return read


def _states_first(node: FileNode, index: int) -> str | None:
    """Return an input of layout 1; initial states (batch, directions, hidden) with the directions first."""
    if index not in (5, 6) or not node.has(index):
        return node.inputs[index]
    return transpose(node, node.edge(index), (1, 0, 2))


_read_coded_lstm = _recurrent_reader(4, ("Sigmoid", "Tanh", "Tanh"), _lstm_steps, _CodedDirection)


def _read_dynamic_quantize_lstm(node: FileNode) -> tuple[str, ...]:
    """Read DynamicQuantizeLSTM, whose weights (directions, features, gates * hidden) are codes."""
    for k in (1, 2):
        node.integers(k)
        if len(node.shape(k)) != 3:
            raise node.fail(f"weights {node.shape(k)} must have 3 axes")
    turned = [transpose(node, node.edge(k), (0, 2, 1)) for k in (1, 2)]
    return _read_coded_lstm(replace(node, inputs=(node.inputs[0], *turned, *node.inputs[3:])))


def _require_supported(node: FileNode, gates: int) -> None:
    """Raise SpecError for shapes that do not fit one another, and for attributes that are not compiled."""
    direction = node.get("direction", "forward")
    if direction not in _DIRECTIONS:
        raise node.fail(f"direction {direction!r} is not known; known: {', '.join(_DIRECTIONS)}")
    for name in ("clip", "activation_alpha", "activation_beta"):
        if node.get(name):
            raise node.fail(f"{name} {node.get(name)} is not compiled; export the network without it")
    if node.get("input_forget"):
        raise node.fail("input_forget is not compiled; export the network without it")
    sequence, weights, recurrent = (node.shape(k) for k in range(3))
    count = len(_DIRECTIONS[direction])
    if not len(sequence) == len(weights) == len(recurrent) == 3 or not math.prod(sequence):
        raise node.fail(f"inputs {sequence} and weights {weights}, {recurrent} must have 3 axes each, and elements")
    hidden, steps = recurrent[-1], sequence[1 if node.get("layout", 0) else 0]
    if weights != (count, gates * hidden, sequence[-1]) or recurrent != (count, gates * hidden, hidden):
        raise node.fail(f"weights {weights} and {recurrent} do not fit inputs {sequence} and {count} directions")
    if node.has(3) and node.shape(3) != (count, 2 * gates * hidden):
        raise node.fail(f"biases {node.shape(3)} do not fit; wanted {(count, 2 * gates * hidden)}")
    if node.has(7) and node.shape(7) != (count, 3 * hidden):
        raise node.fail(f"peepholes {node.shape(7)} do not fit; wanted {(count, 3 * hidden)}")
    if node.has(4) and (node.value(4, "the lengths of sequences") != steps).any():
        raise node.fail(f"lengths of sequences below {steps} are not compiled; leave them out")
    if count * steps > MAX_STEPS:
        raise node.fail(f"{count * steps:,} steps, more than the {MAX_STEPS:,} that are unrolled; split the sequence")


READERS: dict[str, Reader] = {
    "GRU": _recurrent_reader(3, ("Sigmoid", "Tanh"), _gru_steps),
    "LSTM": _recurrent_reader(4, ("Sigmoid", "Tanh", "Tanh"), _lstm_steps),
}
MICROSOFT_READERS: dict[str, Reader] = {"DynamicQuantizeLSTM": _read_dynamic_quantize_lstm}
"""Readers of com.microsoft."""
