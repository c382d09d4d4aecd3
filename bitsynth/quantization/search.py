"""The search for widths: the cheapest bits of each layer whose loss stays below a bound.

A cost table has the predicted cycles and bytes of each product at each pair of widths. They come from the network
compiled for the processor with these widths everywhere, so kernels, packing and epilogues are included. The loss of
each choice is measured alone, all others at the most bits, as the error of the network's output. The sum of the losses
is an estimate; an integer program finds the choice of least cost whose estimate is below a budget. The choice is then
run. The budget is bisected until the cheapest choice is found whose measured loss is below the bound.

Given:  two layers that cost 9 and 8 at 8 bits, 5 and 4 at 4 bits, and lose 2 and 1 at 4 bits by estimate; a budget of 2
Result: the first layer at 4 bits, the second at 8: both at 4 bits would lose 3
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as pairs_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError, ToolError, Undecided
from bitsynth.graph.ir import Graph
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.read import read
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.report import NetworkReport, StepReport
from bitsynth.network.run import Network
from bitsynth.progress import Progress
from bitsynth.quantization.calibration import Calibration, FloatResults
from bitsynth.quantization.float_model import INSTALL, FloatRunner, WeightedProduct
from bitsynth.quantization.quantized_model import Widths, correct_bias, write_model

FIXED_BITS = 8
"""Bits of inputs, residuals and inputs of pools, which are not searched."""
_PLAIN_CYCLES = 8
"""Cycles of a multiply-accumulate in plain C, for products that no kernel computes."""
_MAX_BISECTIONS = 8
_PROXY_SAMPLES = 64
"""Samples with which the loss of each choice is estimated."""
_ROUNDING = 1e-9
"""The tolerance when a loss is compared with its bound: both are floats."""
_TIE = 1e-4
"""The weight of the cost that is not minimized; it breaks ties."""


@dataclass(frozen=True)
class Cost:
    """What a product costs: predicted cycles, and bytes of its weights."""

    cycles: float
    bytes: float


@dataclass(frozen=True)
class Loss:
    """What a choice of widths loses.

    Args:
        mean: Over the samples.
        error: The standard error of the mean, of accuracy: a search among many choices finds those that do well on
            these samples by chance. So the bound is for the sum of both.
    """

    mean: float
    error: float

    def fits(self, bound: float) -> bool:
        """Return whether the loss and its standard error are at most a bound, but for rounding."""
        return self.mean + self.error <= bound + _ROUNDING


@dataclass(frozen=True)
class Trial:
    """A choice of widths that was run: its measured loss, predicted cycles and bytes."""

    widths: Widths
    loss: Loss
    cycles: float
    bytes: float
    bias: Mapping[str, NDArray[np.float32]] = field(repr=False, default_factory=dict)


@dataclass
class Search:
    """The search of one network.

    Args:
        calibration: The float network on calibration inputs.
        target: The processor.
        act_bits: Widths of activations that are tried.
        w_bits: Widths of weights that are tried.
        labels: The class of each sample; None if the loss is the error of the output.
        progress: Hears what is being done.
    """

    calibration: Calibration
    target: NetworkTarget
    act_bits: Sequence[int]
    w_bits: Sequence[int]
    labels: NDArray[np.int64] | None
    progress: Progress
    trials: list[Trial] = field(default_factory=list)
    costs: dict[tuple[str, int, int], Cost] = field(default_factory=dict)
    estimates: dict[tuple[str, int], float] = field(default_factory=dict)
    """Estimated loss of an edge or a product at some bits."""

    def prepare(self) -> None:
        """Measure what each choice costs and loses."""
        choices = list(pairs_of(self.act_bits, self.w_bits))
        for k, (act, wgt) in enumerate(choices):
            self.progress("costs", k, len(choices))
            self._add_costs(act, wgt)
        most = {name: max(widths) for name, widths in self._variables().items()}
        kept = range(min(len(self.calibration.samples), _PROXY_SAMPLES))
        base = self._output_error(self._widths(most), kept)
        trials = [(name, bits) for name, widths in self._variables().items() for bits in widths]
        for k, (name, bits) in enumerate(trials):
            self.progress("losses", k, len(trials))
            if bits == most[name]:
                self.estimates[name, bits] = 0.0
            else:
                loss = self._output_error(self._widths({**most, name: bits}), kept)
                self.estimates[name, bits] = max(0.0, loss - base)

    def _widths(self, bits: Mapping[str, int]) -> Widths:
        """Return the widths of every quantizer, where each searched edge and each product has these bits."""
        network = self.calibration.network
        edges = {name: bits[name] for name in network.searched_edges}
        fixed = dict.fromkeys(network.other_edges, FIXED_BITS)
        return Widths({**edges, **fixed}, {p.name: bits[p.name] for p in network.products})

    def _uniform(self, act: int, wgt: int) -> Widths:
        """Return the same bits of all searched edges, and of all products."""
        network = self.calibration.network
        return self._widths({**dict.fromkeys(network.searched_edges, act), **{p.name: wgt for p in network.products}})

    def _add_costs(self, act: int, wgt: int) -> None:
        graph = read(write_model(self.calibration, self._uniform(act, wgt)))
        report = Network(lower(graph, self.target), self.target.threads).report()
        steps = find_steps(self.calibration.network.products, graph, report)
        for product in self.calibration.network.products:
            step = steps.get(product.name)
            elements = int(self.calibration.network.constants[product.weights].size)
            cycles = step.cycles if step else _PLAIN_CYCLES * elements * self._positions(product)
            self.costs[product.name, act, wgt] = Cost(cycles, step.weight_bytes if step else 4 * elements)

    def _positions(self, product: WeightedProduct) -> int:
        """Return how often each weight is used."""
        shape = self.calibration.shapes[product.output]
        channels = self.calibration.network.constants[product.weights].shape[product.channel_axis]
        return math.prod(shape) // int(channels)

    def _run(
        self, widths: Widths, samples: Sequence[int], bias: Mapping[str, NDArray[np.float32]] | None = None
    ) -> list[FloatResults]:
        """Return the float outputs with some widths."""
        run = FloatRunner(
            write_model(self.calibration, widths, bias, runnable=True), self.calibration.network.float_outputs
        )
        return [tuple(run(self.calibration.samples[k]).values()) for k in samples]

    def _output_error(self, widths: Widths, samples: Sequence[int]) -> float:
        """Return the mean squared error of the outputs, relative to the variance of the float network's."""
        wanted = [self.calibration.outputs[k] for k in samples]
        return float(np.mean(relative_errors(self._run(widths, samples), wanted)))

    def measure(self, widths: Widths) -> Trial:
        """Run a choice of widths on all samples, its biases corrected; keep and return what it loses and costs."""
        bias = correct_bias(self.calibration, widths)
        got = self._run(widths, range(len(self.calibration.samples)), bias)
        costs = [self._cost(product, widths) for product in self.calibration.network.products]
        trial = Trial(widths, self.loss(got), sum(c.cycles for c in costs), sum(c.bytes for c in costs), bias)
        self.trials.append(trial)
        return trial

    def _cost(self, product: WeightedProduct, widths: Widths) -> Cost:
        act = widths.edges[product.edge] if product.edge in self.calibration.network.searched_edges else None
        return self.costs[product.name, act or max(self.act_bits), widths.weights[product.name]]

    def loss(self, outputs: Sequence[FloatResults]) -> Loss:
        """Return the loss: the share of right classes lost, or the largest error of an output over its deviation."""
        wanted = self.calibration.outputs
        if self.labels is None:
            return Loss(math.sqrt(max(relative_errors(outputs, wanted))), 0.0)
        lost = _right(wanted, self.labels).astype(np.int64) - _right(outputs, self.labels)
        return Loss(float(lost.mean()), float(lost.std() / math.sqrt(len(lost))))

    def cheapest(self, bound: float, minimize: str = "cycles") -> Trial:
        """Return the cheapest choice found, in cycles or bytes, whose measured loss fits `bound`.

        SpecError if even the most bits lose more.
        """
        best = self.measure(self._uniform(max(self.act_bits), max(self.w_bits)))
        if not best.loss.fits(bound):
            raise SpecError(
                f"{max(self.act_bits)}-bit activations and {max(self.w_bits)}-bit weights lose {best.loss.mean:.2%}, "
                f"with a standard error of {best.loss.error:.2%} "
                "already; allow a greater loss, more bits, or give more data"
            )
        top = sum(max(self.estimates[name, bits] for bits in widths) for name, widths in self._variables().items())
        least = min((loss for loss in self.estimates.values() if loss > 0), default=top or 1.0)
        low, high = math.log(least / 2), math.log(max(top, least))
        seen = {_key(best.widths): best}
        for k in range(_MAX_BISECTIONS):
            self.progress("widths", k, _MAX_BISECTIONS)
            middle = (low + high) / 2
            widths = self.solve(math.exp(middle), minimize)
            trial = seen.get(_key(widths)) or self.measure(widths)
            seen[_key(widths)] = trial
            if trial.loss.fits(bound):
                low = middle
                best = min(best, trial, key=lambda t: _price(t, minimize))
            else:
                high = middle
        return best

    def _variables(self) -> dict[str, Sequence[int]]:
        """Return the bits to choose from for each edge and product."""
        network = self.calibration.network
        edges = dict.fromkeys(network.searched_edges, self.act_bits)
        return {**edges, **{p.name: self.w_bits for p in network.products}}

    def solve(self, budget: float, minimize: str = "cycles") -> Widths:
        """Return the widths of least cost whose estimated loss is at most a budget, by an integer program.

        It has a 0-1 variable for each choice of an edge or product, and one for each pair of choices of a product.
        Pairs have the costs, choices the losses; the pairs of a choice add up to it.
        """
        optimize, sparse = require_scipy()
        network, variables = self.calibration.network, self._variables()
        choices = [(name, bits) for name, widths in variables.items() for bits in widths]
        column = {choice: k for k, choice in enumerate(choices)}
        prices, integral = [0.0] * len(choices), [1] * len(choices)
        rows: list[tuple[dict[int, float], float, float]] = []
        for name, widths in variables.items():
            rows.append(({column[name, bits]: 1.0 for bits in widths}, 1.0, 1.0))
        rows.append(({column[choice]: self.estimates[choice] / budget for choice in choices}, 0.0, 1.0))
        for product in network.products:
            searched = product.edge in network.searched_edges
            acts = self.act_bits if searched else (max(self.act_bits),)
            pairs = {pair: len(prices) + k for k, pair in enumerate(pairs_of(acts, self.w_bits))}
            prices += [_price(self.costs[product.name, act, wgt], minimize) for act, wgt in pairs]
            integral += [0] * len(pairs)
            for wgt in self.w_bits:
                rows.append(({**{pairs[act, wgt]: 1.0 for act in acts}, column[product.name, wgt]: -1.0}, 0.0, 0.0))
            for act in acts if searched else ():
                rows.append(
                    ({**{pairs[act, wgt]: 1.0 for wgt in self.w_bits}, column[product.edge, act]: -1.0}, 0.0, 0.0)
                )
        entries = [(k, c, value) for k, (row, _, _) in enumerate(rows) for c, value in row.items()]
        places = [e[0] for e in entries], [e[1] for e in entries]
        matrix = sparse.csr_array(([e[2] for e in entries], places), shape=(len(rows), len(prices)))
        limits = optimize.LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows])
        solved = optimize.milp(prices, constraints=limits, integrality=integral, bounds=optimize.Bounds(0, 1))
        if not solved.success:
            raise Undecided(f"the integer program of widths ended without an answer: {solved.message}")
        bits = {name: max(widths, key=lambda b: solved.x[column[name, b]]) for name, widths in variables.items()}
        return self._widths(bits)


def _price(cost: Cost | Trial, minimize: str) -> float:
    """Return what is minimized; of two equal ones the other decides."""
    cycles, size = float(cost.cycles), float(cost.bytes)
    return cycles + size * _TIE if minimize == "cycles" else size + cycles * _TIE


def find_steps(products: Iterable[WeightedProduct], graph: Graph, report: NetworkReport) -> dict[str, StepReport]:
    """Return the step of each product that a layer computes, by the product's name in the file."""
    of_node = {node: step for step in report.steps if step.kind == "layer" for node in step.nodes}
    nodes = {node.source: node.name for node in graph.nodes if node.op in PRODUCTS}
    names = {product.name: nodes.get(f"{product.op} {product.name}", "") for product in products}
    return {name: of_node[node] for name, node in names.items() if node in of_node}


def require_scipy() -> tuple[Any, Any]:
    """Import and return the modules of scipy for programs and matrices; ToolError if it is not installed."""
    try:
        from scipy import optimize, sparse
    except ImportError as error:
        raise ToolError(f"widths are chosen with the package scipy: {error}; install it with {INSTALL}") from None
    return optimize, sparse


def _key(widths: Widths) -> tuple[Any, ...]:
    return tuple(sorted(widths.edges.items())), tuple(sorted(widths.weights.items()))


def relative_errors(got: Sequence[FloatResults], wanted: Sequence[FloatResults]) -> list[float]:
    """Return for each output the mean squared error over the variance of the output that is wanted."""
    errors = []
    for own, its in zip(zip(*got, strict=True), zip(*wanted, strict=True), strict=True):
        a, b = np.stack(own).astype(np.float64), np.stack(its).astype(np.float64)
        errors.append(float(np.square(a - b).mean() / max(float(b.var()), 1e-30)))
    return errors


def accuracy(outputs: Sequence[FloatResults], labels: NDArray[np.int64]) -> float:
    """Return the share of samples whose greatest number of the first output is that of their class."""
    return float(_right(outputs, labels).mean())


def _right(outputs: Sequence[FloatResults], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the greatest number of the first output of each sample is that of its class."""
    items = labels.size // len(outputs)
    classes = np.concatenate([output[0].reshape(items, -1).argmax(1) for output in outputs])
    right: NDArray[np.bool_] = classes == labels
    return right
