"""The search for widths: the bits and encodings of layers with which a network meets a goal, such as the fewest cycles.

A table has the predicted cycles and bytes of each product, at each width of its activations and each width and encoding
of its weights. They come from the network compiled for the processor with one width of activations everywhere, so
kernels, packing and epilogues are included; its layers are planned again for other weights. The loss of each choice
is measured alone, all others at the most bits, as the error of the network's output. The sum of the losses is an
estimate; an integer program finds the best choice whose estimate is below a budget. The choice is then run, and its
network compiled. Budgets are changed until the best choice is found whose measured loss and cost keep the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product as pairs_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.graph.read import read
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.program import LayerStep, NetworkProgram
from bitsynth.network.run import Network
from bitsynth.progress import Progress
from bitsynth.quantization.calibration import Calibration, FloatResults
from bitsynth.quantization.float_model import WeightedProduct
from bitsynth.quantization.goal import Cost, CostName, Loss, SearchGoal, cost_in
from bitsynth.quantization.grids import WeightCodes
from bitsynth.quantization.integer_program import Choice, WidthTable, cheapest_choices, price
from bitsynth.quantization.layer_costs import cost_with_codes, find_layers, layer_cost, network_cost
from bitsynth.quantization.partial_runs import PartialRuns
from bitsynth.quantization.quantized_model import Corrections, FileFormat, Widths, write_model
from bitsynth.quantization.reconstruction import reconstruct
from bitsynth.quantization.search_state import SearchState, Trial

FIXED_BITS = 8
"""Bits of inputs, residuals and inputs of pools, which are not searched."""
_MOST_BIPOLAR_BITS = 4
"""The most bits of weights that may be bipolar: of more bits another code gains nothing, and bytes do not hold 8."""
_PLAIN_CYCLES = 8
"""Cycles of a multiply-accumulate in plain C, for products that no kernel computes."""
_MAX_BISECTIONS = 8
_MAX_CORRECTIONS = 6
"""Choices that are compiled until the cost of one keeps its bound."""
_SLACKS = (0.97, 0.93, 0.87)
"""Shares of a bound of cost that are tried too: the estimate may favour a choice that loses more when it is run."""
_ROUNDING = 1e-9
"""What a budget is raised by, so that rounding does not exclude the choice that it was taken from."""
_EDGE_SAMPLES = 32
"""Samples with which the loss of edges that are not searched is measured."""
_MAX_EDGE_LOSS = 1e-3
"""The most that one of these edges may lose alone at 8 bits, as the outputs' mean squared error over their variance."""
_PROXY_SAMPLES = 64
"""Samples with which the loss of each choice is estimated."""


class ImpossibleGoal(SpecError):
    """No choice that was found keeps the bounds."""


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
        state: What was measured already.
    """

    calibration: Calibration
    target: NetworkTarget
    act_bits: Sequence[int]
    w_bits: Sequence[int]
    labels: NDArray[np.int64] | None
    progress: Progress
    state: SearchState = field(default_factory=SearchState)
    trials: list[Trial] = field(default_factory=list)
    """The choices that this search ran, or would have run had the state not kept them, in order.

    Other goals may have left more in the state. They are not chosen from: results depend on this search's goal only.
    """
    _corrections: dict[Any, Corrections] = field(default_factory=dict)
    _layers: dict[int, tuple[dict[str, LayerStep], Cost]] = field(default_factory=dict)
    """By bits of activations, the layers of a compiled network by product, and the cost of all else."""

    def prepare(self) -> None:
        """Measure what each choice costs and loses."""
        choices = list(pairs_of(self.act_bits, self.w_bits))
        for k, (act, wgt) in enumerate(choices):
            self.progress("costs", k, len(choices))
            if (act, wgt) not in self.state.overheads:
                self._add_costs(act, wgt)
                self.state.save()
        self._estimate()

    def _estimate(self) -> None:
        """Measure what each choice loses alone, in the order of the network: runs start at what a choice changes."""
        most = {name: choices[-1] for name, choices in self.choices.items()}
        kept = range(min(len(self.calibration.samples), _PROXY_SAMPLES))
        whole = write_model(self.calibration, self._widths(most), runnable=True)
        if self.state.baseline is None:
            self.state.baseline = self._output_error(whole, kept)
        runs = PartialRuns([self.calibration.samples[k] for k in kept])
        places = {name: place for place, node in enumerate(whole.graph.node) for name in (node.name, *node.output)}
        # A product changes its own node, an edge what is after the node that makes it: so also where both are one node.
        starts = {name: places[name] + (name in self.calibration.network.searched_edges) for name in self.choices}
        trials = [(name, each) for name in sorted(starts, key=starts.__getitem__) for each in self.choices[name]]
        for k, (name, choice) in enumerate(trials):
            self.progress("losses", k, len(trials))
            if choice == most[name]:
                self.state.estimates.setdefault((name, choice), 0.0)  # above 0 in a search that is resumed
            elif (name, choice) not in self.state.estimates:
                runs.advance(whole, starts[name])
                changed = write_model(self.calibration, self._widths({**most, name: choice}), runnable=True)
                loss = self._output_error(changed, kept, runs)
                self.state.estimates[name, choice] = loss - self.state.baseline
                self.state.save()
        for name, choices in self.choices.items():
            least = min(self.state.estimates[name, choice] for choice in _of_most_bits(choices))
            for choice in choices:
                self.state.estimates[name, choice] = max(0.0, self.state.estimates[name, choice] - least)
        self.state.save()

    @property
    def choices(self) -> dict[str, Sequence[Choice]]:
        """The bits to choose from for each edge, and the codes of weights for each product, most bits last."""
        network = self.calibration.network
        codes = [each for bits in self.w_bits for each in _codes_of(bits)]
        edges: dict[str, Sequence[Choice]] = dict.fromkeys(network.searched_edges, self.act_bits)
        return {**edges, **{p.name: codes for p in network.products}}

    def _widths(self, chosen: Mapping[str, Choice]) -> Widths:
        """Return the widths of every quantizer, where each searched edge and each product has the chosen ones."""
        network = self.calibration.network
        edges = {name: bits_of(chosen[name]) for name in network.searched_edges}
        fixed = dict.fromkeys(network.other_edges, FIXED_BITS)
        codes = {p.name: chosen[p.name] for p in network.products}
        bipolar = frozenset(name for name, each in codes.items() if isinstance(each, WeightCodes) and each.bipolar)
        return Widths({**edges, **fixed}, {name: bits_of(each) for name, each in codes.items()}, bipolar)

    def _uniform(self, act: int, wgt: int) -> Widths:
        """Return the same bits of all searched edges, and of all products, whose weights are bipolar if they may be."""
        network = self.calibration.network
        codes = _codes_of(wgt)[-1]
        return self._widths({**dict.fromkeys(network.searched_edges, act), **{p.name: codes for p in network.products}})

    @property
    def most_bits(self) -> Widths:
        """The widths where everything has the most bits, and weights the encoding that loses least by the estimates."""
        estimates = self.state.estimates
        most = {name: _of_most_bits(choices)[::-1] for name, choices in self.choices.items()}
        return self._widths({n: min(some, key=lambda c: estimates.get((n, c), 0.0)) for n, some in most.items()})

    def _compile(self, model: Any) -> tuple[NetworkProgram, Cost]:
        """Return a network compiled for the processor, and its cost."""
        program = lower(read(model), self.target)
        report = Network(program, self.target.threads).report()
        return program, network_cost(program, report.weight_bytes, self.target)

    def _add_costs(self, act: int, wgt: int) -> None:
        """Add the costs of all products with some bits of activations and of weights."""
        layers, overhead = self._compile_layers(act)
        for product in self.calibration.network.products:
            step = layers.get(product.name)
            elements = int(self.calibration.network.constants[product.weights].size)
            plain = Cost(float(_PLAIN_CYCLES * elements * self._positions(product)), 4.0 * elements)
            for codes in _codes_of(wgt):
                cost = cost_with_codes(step, codes, self.target) if step else None
                self.state.costs[product.name, act, codes] = cost or plain
        self.state.overheads[act, wgt] = overhead

    def _compile_layers(self, act: int) -> tuple[dict[str, LayerStep], Cost]:
        """Return the layers of the network with some bits of activations, and the cost of all else; compiled once."""
        if act not in self._layers:
            program, whole = self._compile(write_model(self.calibration, self._uniform(act, max(self.w_bits))))
            layers = find_layers(self.calibration.network.products, program)
            costs = [layer_cost(step, self.target) for step in layers.values()]
            rest = whole.cycles - sum(c.cycles for c in costs), whole.bytes - sum(c.bytes for c in costs)
            self._layers[act] = layers, Cost(*rest)
        return self._layers[act]

    def _positions(self, product: WeightedProduct) -> int:
        """Return how often each weight is used."""
        shape = self.calibration.shapes[product.output]
        channels = self.calibration.network.constants[product.weights].shape[product.channel_axis]
        return math.prod(shape) // int(channels)

    def _run(self, model: Any, samples: Sequence[int], runs: PartialRuns | None = None) -> list[FloatResults]:
        """Return the float outputs of a quantized network, by runs that may start in the middle."""
        runs = runs or PartialRuns([self.calibration.samples[k] for k in samples])
        return [tuple(values.values()) for values in runs.run(model, self.calibration.network.float_outputs)]

    def _output_error(self, model: Any, samples: Sequence[int], runs: PartialRuns | None = None) -> float:
        """Return the mean squared error of the outputs, relative to the variance of the float network's."""
        wanted = [self.calibration.outputs[k] for k in samples]
        return float(np.mean(relative_errors(self._run(model, samples, runs), wanted)))

    def corrections(self, widths: Widths) -> Corrections:
        """Return weights and biases for some widths; they are computed once."""
        if (key := _key(widths)) not in self._corrections:
            self._corrections[key] = reconstruct(self.calibration, widths)
        return self._corrections[key]

    def model(self, widths: Widths, file_format: FileFormat = "qonnx") -> Any:
        """Return the quantized network with some widths, its products reconstructed."""
        return write_model(self.calibration, widths, self.corrections(widths), file_format=file_format)

    def measure(self, widths: Widths) -> Trial:
        """Reconstruct products for a choice of widths, run it on all samples, compile it, and return the trial."""
        key = _key(widths)
        trial = next((known for known in self.state.trials if _key(known.widths) == key), None)
        if trial is None:
            outputs = self.outputs(widths)
            _, cost = self._compile(self.model(widths))
            trial = Trial(widths, self.loss(outputs, range(len(outputs))), cost)
            self.state.trials.append(trial)
            self.state.save()
        if trial not in self.trials:
            self.trials.append(trial)
        return trial

    def outputs(self, widths: Widths, corrections: Corrections | None = None) -> list[FloatResults]:
        """Return the float outputs for all samples with some widths; products reconstructed unless they are given."""
        corrected = corrections or self.corrections(widths)
        model = write_model(self.calibration, widths, corrected, runnable=True)
        return self._run(model, range(len(self.calibration.samples)))

    def product_cost(self, product: WeightedProduct, widths: Widths) -> Cost:
        """Return the cost of a product with some widths, by the table."""
        return self.state.costs[product.name, self._act_bits(product, widths), widths.codes(product.name)]

    def _act_bits(self, product: WeightedProduct, widths: Widths) -> int:
        """Return the bits of activations under which the table has a product's costs."""
        searched = product.edge in self.calibration.network.searched_edges
        return widths.edges[product.edge] if searched else max(self.act_bits)

    def product_loss(self, product: WeightedProduct, widths: Widths) -> float:
        """Return what a product's weights and activations lose by the estimate; 0 at the most bits."""
        of_edge = self.state.estimates.get((product.edge, widths.edges.get(product.edge, 0)), 0.0)
        return of_edge + self.state.estimates.get((product.name, widths.codes(product.name)), 0.0)

    def loss(self, outputs: Sequence[FloatResults], samples: Sequence[int]) -> Loss:
        """Return the loss on samples: the share of right classes lost, or the largest error of an output.

        Errors are relative to the deviation of the float network's output.
        """
        wanted, labels = [self.calibration.outputs[k] for k in samples], self._labels_of(samples)
        if labels is None:
            return Loss(math.sqrt(max(relative_errors(outputs, wanted))), 0.0)
        lost = _right(wanted, labels).astype(np.int64) - _right(outputs, labels)
        return Loss(float(lost.mean()), float(lost.std() / math.sqrt(len(lost))))

    def float_accuracy(self, samples: Sequence[int]) -> float | None:
        """Return the share of right classes of the float network on samples; None without labels."""
        labels = self._labels_of(samples)
        wanted = [self.calibration.outputs[k] for k in samples]
        return None if labels is None else float(_right(wanted, labels).mean())

    def _labels_of(self, samples: Sequence[int]) -> NDArray[np.int64] | None:
        """Return the class of each item of samples."""
        if self.labels is None:
            return None
        return self.labels.reshape(len(self.calibration.samples), -1)[list(samples)].reshape(-1)

    def find(self, goal: SearchGoal) -> Trial:
        """Return this search's best trial that meets a goal; ImpossibleGoal if none does."""
        first = self.measure(self.most_bits)
        if goal.loss is not None and not first.loss.fits(goal.loss):
            raise ImpossibleGoal(self._lossy(first, goal))
        if goal.minimize == "loss":
            self._lower_cost(replace(goal, loss=None))
        else:
            self._raise_loss(goal)
        fitting = [trial for trial in self.trials if goal.fits(trial.loss, trial.cost)]
        if not fitting:
            raise ImpossibleGoal(self._costly(goal))
        if goal.minimize == "loss":
            return min(fitting, key=lambda t: (t.loss.mean + t.loss.error, t.cost.cycles))
        return min(fitting, key=lambda t: price(t.cost, goal))

    def _raise_loss(self, goal: SearchGoal) -> None:
        """Run choices whose estimated loss is at most a budget, which is bisected until the measured loss fits."""
        assert goal.loss is not None
        table = self.state.estimates
        top = sum(max(table[name, bits] for bits in widths) for name, widths in self.choices.items())
        least = min((loss for loss in table.values() if loss > 0), default=top or 1.0)
        low, high = math.log(least / 2), math.log(max(top, least))
        for k in range(_MAX_BISECTIONS):
            self.progress("widths", k, _MAX_BISECTIONS)
            middle = (low + high) / 2
            trial = self._try(replace(goal, loss=math.exp(middle)))
            if trial is None or trial.loss.fits(goal.loss):
                low = middle
            else:
                high = middle

    def _lower_cost(self, goal: SearchGoal) -> None:
        """Run choices of the least estimated loss, below bounds of cost that shrink a little."""
        for k, slack in enumerate((1.0, *_SLACKS)):
            self.progress("widths", k, 1 + len(_SLACKS))
            self._try(goal.with_costs(*(most and most * slack for most in (goal.cycles, goal.bytes))))

    def explore(self, by: CostName, points: int) -> None:
        """Run the choices of least estimated loss at costs from the least to the cost of the most bits."""
        most = self.measure(self.most_bits)
        cheapest = self.solve(SearchGoal(by, None, None, None))
        assert cheapest is not None
        low, high = (math.log(max(cost_in(t.cost, by), 1.0)) for t in (self.measure(cheapest), most))
        for k in range(points):
            self.progress("front", k, points)
            budget = math.exp(low + (high - low) * k / (points - 1)) * (1 + _ROUNDING)
            self._try(SearchGoal("loss", None, *((budget, None) if by == "cycles" else (None, budget))))

    def _try(self, goal: SearchGoal) -> Trial | None:
        """Run the choice that meets a goal by the table; None if there is none.

        The cost of the compiled network differs from the table's: bounds of cost are corrected until it keeps them.
        """
        overhead = max(self.state.overheads.values(), key=lambda cost: cost.cycles, default=Cost(0.0, 0.0))
        cycles, size = overhead.cycles, overhead.bytes
        for _ in range(_MAX_CORRECTIONS):
            spent = zip((goal.cycles, goal.bytes), (cycles, size), strict=True)
            widths = self.solve(goal.with_costs(*(most and max(most - part, 1.0) for most, part in spent)))
            if widths is None:
                return None
            trial = self.measure(widths)
            exceeded = goal.find_exceeded(trial.cost)
            if not exceeded:
                return trial
            if "cycles" in exceeded and goal.cycles is not None:
                cycles += trial.cost.cycles - goal.cycles
            if "bytes" in exceeded and goal.bytes is not None:
                size += trial.cost.bytes - goal.bytes
        return None

    def solve(self, goal: SearchGoal) -> Widths | None:
        """Return the widths that meet a goal by the estimates and the costs of products; None if none do."""
        products = self.calibration.network.products
        choices = {**self.choices, **{p.name: self._sensible_codes(p) for p in products}}
        table = WidthTable(choices, products, self.state.costs, self.state.estimates, max(self.act_bits))
        chosen = cheapest_choices(table, goal)
        return None if chosen is None else self._widths(chosen)

    def _sensible_codes(self, product: WeightedProduct) -> list[Choice]:
        """Return the codes of a product's weights, except codes that cost and lose no less than others.

        Such are often the codes of another encoding with as many bits: the same kernel computes both.
        """
        numbers: dict[Choice, list[float]] = {}
        for codes in self.choices[product.name]:
            costs = [self.state.costs[product.name, act, codes] for act in self.act_bits]
            loss = self.state.estimates[product.name, codes]
            numbers[codes] = [loss, *(cost.cycles for cost in costs), *(cost.bytes for cost in costs)]
        sensible: list[Choice] = []
        for codes in sorted(numbers, key=numbers.__getitem__):
            if not any(all(a <= b for a, b in zip(numbers[x], numbers[codes], strict=True)) for x in sensible):
                sensible.append(codes)
        return sensible

    def _lossy(self, most: Trial, goal: SearchGoal) -> str:
        """Return the message that even the most bits lose too much, and the layer that loses most."""
        network, loss = self.calibration.network, most.loss
        kept = range(min(len(self.calibration.samples), _PROXY_SAMPLES))
        base = self._output_error(write_model(self.calibration, most.widths, runnable=True), kept)
        gains = {}
        for k, product in enumerate(network.products):
            self.progress("layers that lose most", k, len(network.products))
            edges = {edge: bits for edge, bits in most.widths.edges.items() if edge != product.edge}
            weights = {name: bits for name, bits in most.widths.weights.items() if name != product.name}
            without = write_model(self.calibration, Widths(edges, weights, most.widths.bipolar), runnable=True)
            gains[product.output] = base - self._output_error(without, kept)
        worst = max(gains, key=lambda name: gains[name])
        share = f"{max(0.0, gains[worst]) / base:.0%} of the output's squared error" if base else "no error alone"
        error = f" with a standard error of {loss.error:.2%}" if loss.error else ""
        return (
            f"{goal}: not possible. The most bits, {max(self.act_bits)} of activations and {max(self.w_bits)} of "
            f"weights, lose {loss.mean:.3%}{error}. {worst} stands in the way, with {share}; allow a greater loss, "
            "more bits, or give more data"
        )

    def _costly(self, goal: SearchGoal) -> str:
        """Return the message that nothing costs so little, the best that was found, and the layer that costs most."""
        fitting = [t for t in self.trials if goal.loss is None or t.loss.fits(goal.loss)]
        if goal.loss is None:
            least = SearchGoal("bytes" if goal.cycles is None else "cycles", None, None, None)
            widths = self.solve(least)
            assert widths is not None
            fitting = [self.measure(widths)]
        what: CostName = "bytes" if goal.cycles is None else "cycles"
        best = min(fitting, key=lambda t: cost_in(t.cost, what))
        costs = {p: cost_in(self.product_cost(p, best.widths), what) for p in self.calibration.network.products}
        worst = max(costs, key=lambda p: costs[p])
        bits = f"{best.widths.edges[worst.edge]}-bit activations and {best.widths.weights[worst.name]}-bit weights"
        advice = "allow a greater loss, more of them, or fewer bits" if goal.loss else "allow more, or fewer bits"
        return (
            f"{goal}: not possible. The best found has {best.cost.cycles:,.0f} cycles and {best.cost.bytes:,.0f} bytes "
            f"and loses {best.loss.mean:.2%}. {worst.output} stands in the way, with {costs[worst]:,.0f} {what} at "
            f"{bits}; {advice}"
        )


def _codes_of(bits: int) -> tuple[WeightCodes, ...]:
    """Return the codes that weights of some bits may have."""
    is_several = 1 < bits <= _MOST_BIPOLAR_BITS
    return (WeightCodes(bits), WeightCodes(bits, bipolar=True)) if is_several else (WeightCodes(bits),)


def _of_most_bits(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices with the most bits."""
    most = max(map(bits_of, choices))
    return [choice for choice in choices if bits_of(choice) == most]


def bits_of(choice: Choice) -> int:
    """Return the bits of a choice."""
    return choice.bits if isinstance(choice, WeightCodes) else choice


def lossy_edges(calibration: Calibration, progress: Progress) -> frozenset[str]:
    """Return the edges no product reads, and no input, whose 8 bits alone lose too much of the outputs.

    Such are squares in a layer norm, whose mean is subtracted from another number of nearly the same size.
    """
    network, samples = calibration.network, calibration.samples[:_EDGE_SAMPLES]
    places = {name: place + 1 for place, node in enumerate(network.model.graph.node) for name in node.output}
    edges = sorted((edge for edge in network.other_edges if edge in places), key=places.__getitem__)
    runs, lossy = PartialRuns(samples), set()
    for k, edge in enumerate(edges):
        progress("edges", k, len(edges))
        runs.advance(network.model, places[edge])
        alone = write_model(calibration, Widths({edge: FIXED_BITS}, {}), runnable=True)
        outputs = [tuple(values.values()) for values in runs.run(alone, network.float_outputs)]
        errors = relative_errors(outputs, calibration.outputs[: len(samples)])
        if not max(errors) <= _MAX_EDGE_LOSS:
            lossy.add(edge)
    return frozenset(lossy)


def _key(widths: Widths) -> tuple[Any, ...]:
    return tuple(sorted(widths.edges.items())), tuple(sorted(widths.weights.items())), widths.bipolar


def relative_errors(got: Sequence[FloatResults], wanted: Sequence[FloatResults]) -> list[float]:
    """Return for each output the mean squared error over the variance of the output that is wanted."""
    errors = []
    for own, its in zip(zip(*got, strict=True), zip(*wanted, strict=True), strict=True):
        a, b = np.stack(own).astype(np.float64), np.stack(its).astype(np.float64)
        errors.append(float(np.square(a - b).mean() / max(float(b.var()), 1e-30)))
    return errors


def _right(outputs: Sequence[FloatResults], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the greatest number of each sample's first output is at the sample's class."""
    items = labels.size // len(outputs)
    classes = np.concatenate([output[0].reshape(items, -1).argmax(1) for output in outputs])
    right: NDArray[np.bool_] = classes == labels
    return right
