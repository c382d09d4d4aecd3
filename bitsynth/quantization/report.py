"""The report of a quantization: each layer's widths, what they cost and lose, and every choice that was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bitsynth.quantization.float_model import WeightedProduct
from bitsynth.quantization.goal import Cost, CostName, cost_in
from bitsynth.quantization.grids import WeightCodes
from bitsynth.quantization.integer_program import Choice
from bitsynth.quantization.quantized_model import Widths
from bitsynth.quantization.search import FIXED_BITS, Search, bits_of
from bitsynth.quantization.search_state import Trial


@dataclass(frozen=True)
class LayerChoice:
    """The widths of a product, and what they cost.

    Args:
        name: The edge of the product's result in the simplified file.
        op: Its operator.
        act_bits: Bits of its activations.
        w_bits: Bits of its weights.
        w_encoding: The encoding of its weights: bipolar (odd numbers), ternary or narrow.
        cycles: Predicted cycles, with packing and epilogue.
        weight_bytes: Bytes of its constants as packed.
        loss: What its weights and activations lose by the estimate, as the output's mean squared error relative to its
            variance; 0 at the most bits.
        why: Why its activations or its weights have the most bits; empty if both have fewer.
    """

    name: str
    op: str
    act_bits: int
    w_bits: int
    w_encoding: str
    cycles: int
    weight_bytes: int
    loss: float
    why: str = ""


@dataclass(frozen=True)
class TrialPoint:
    """A choice of widths that was run.

    Args:
        loss: Its loss on the calibration inputs.
        standard_error: The standard error of the loss.
        cycles: Predicted cycles of the network.
        bytes: Bytes of its constants.
        on_front: Whether no other choice costs and loses at most as much.
        chosen: Whether it is the choice that was written.
    """

    loss: float
    standard_error: float
    cycles: float
    bytes: float
    on_front: bool
    chosen: bool


@dataclass(frozen=True)
class OutputError:
    """How far an output of the quantized network is from the float network's.

    Args:
        output: The output.
        measured: The greatest absolute error of an element, on the calibration inputs.
        bound: The greatest one that is possible for inputs within the range of the calibration inputs, proved by
            interval arithmetic (`error_bound`); None if there is no bound.
        bound_in_ranges: The same for inputs with which each quantized edge of the float network also stays within the
            numbers that were seen.
    """

    output: str
    measured: float
    bound: float | None
    bound_in_ranges: float | None


@dataclass(frozen=True)
class FineTuningReport:
    """What fine-tuning did.

    Args:
        steps: Steps of gradient descent.
        trained_on: The samples that it was trained on.
        held_back: Samples that it was not trained on, by which the report's loss, accuracy and errors are measured.
        loss_before: The loss on these before fine-tuning.
        is_better: Whether a state came nearer to the float network's outputs on them, though the loss of accuracy may
            be greater; else the network was left as it was.
    """

    steps: int
    trained_on: int
    held_back: int
    loss_before: float
    is_better: bool


@dataclass(frozen=True)
class QuantizationReport:
    """The result of a quantization.

    Args:
        isa: The instruction set that costs are for.
        cpu: Its processor.
        samples: Calibration inputs.
        loss_is: What `loss` is: "accuracy", the share of right classes lost; or "error", the root mean square of the
            output's error over the standard deviation of the float network's output, of the output that loses most.
        loss: The loss of the network that was written, on the calibration inputs; after fine-tuning on those held back.
        standard_error: The standard error of the loss; 0 if `loss_is` is "error". The bound holds for the sum of both.
        measured_by: What ran it: "compiled C", or "ONNX Runtime" where the instruction set does not run here.
        bound: The loss that was allowed; None if any was.
        minimized: The quantity that was minimized: cycles, bytes or loss.
        most_cycles: The predicted cycles that were allowed; None for any.
        most_bytes: The bytes of constants that were allowed; None for any.
        float_accuracy: The share of right classes of the float network; None without labels.
        layers: Its products, in order.
        cycles: Predicted cycles of all steps.
        weight_bytes: Bytes of all constants.
        float_bytes: Bytes of the float network's weights.
        trials: Each choice that was run, in order.
        front_by: The cost of the front: cycles or bytes.
        in_kernels: Products that layers compute.
        errors: The greatest errors of each output, measured and proved.
        no_error_bound: Why no bound of the errors is proved; empty if one is.
        finetuned: What fine-tuning did; None without.
        equalized: Edges whose channels were equalized.
        not_equalized: Why an edge between two products cannot be, by edge.
        in_floats: Edges that stay in floats, as their 8 bits alone would lose too much.
    """

    isa: str
    cpu: str
    samples: int
    loss_is: str
    loss: float
    standard_error: float
    measured_by: str
    bound: float | None
    minimized: str
    most_cycles: float | None
    most_bytes: float | None
    float_accuracy: float | None
    layers: tuple[LayerChoice, ...]
    cycles: int
    weight_bytes: int
    float_bytes: int
    trials: tuple[TrialPoint, ...]
    front_by: CostName
    in_kernels: int
    errors: tuple[OutputError, ...]
    no_error_bound: str
    finetuned: FineTuningReport | None
    equalized: tuple[str, ...] = ()
    not_equalized: Mapping[str, str] = field(default_factory=dict)
    in_floats: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)


def layer_choices(search: Search, widths: Widths, costs: Mapping[str, Cost]) -> tuple[LayerChoice, ...]:
    """Return the choice of each product; `costs` has the costs of products that layers compute."""
    return tuple(
        LayerChoice(
            product.output,
            product.op,
            widths.edges[product.edge],
            widths.weights[product.name],
            widths.codes(product.name).encoding.value,
            *((int(cost.cycles), int(cost.bytes)) if (cost := costs.get(product.name)) else (0, 0)),
            search.product_loss(product, widths),
            _why_most(search, product, widths),
        )
        for product in search.calibration.network.products
    )


def trial_points(trials: Sequence[Trial], chosen: Trial, by: CostName) -> tuple[TrialPoint, ...]:
    """Return the points of trials; the front is in loss and one of the costs."""
    front = pareto_front(trials, by)
    return tuple(
        TrialPoint(t.loss.mean, t.loss.error, t.cost.cycles, t.cost.bytes, t in front, t == chosen) for t in trials
    )


def pareto_front(trials: Sequence[Trial], by: CostName) -> list[Trial]:
    """Return the trials of the Pareto front, the cheapest first: every other costs or loses more than one of them."""
    front: list[Trial] = []
    for trial in sorted(trials, key=lambda t: (cost_in(t.cost, by), t.loss.mean)):
        if not front or trial.loss.mean < front[-1].loss.mean:
            front.append(trial)
    return front


def _why_most(search: Search, product: WeightedProduct, widths: Widths) -> str:
    """Return why the activations and weights of a product have the most bits; empty if both have fewer."""
    reasons = []
    if product.edge not in search.choices:
        reasons.append(f"its activations are inputs of the network, which keep {FIXED_BITS} bits")
    else:
        readers = [p for p in search.calibration.network.products if p.edge == product.edge]
        reasons.append(_why(search, product.edge, widths.edges[product.edge], widths, readers, "activations"))
    reasons.append(_why(search, product.name, widths.weights[product.name], widths, [product], "weights"))
    return "; ".join(filter(None, reasons))


def _why(search: Search, name: str, bits: int, widths: Widths, readers: Sequence[WeightedProduct], what: str) -> str:
    """Return why an edge or product has the most bits: what fewer would save and lose."""
    options = search.choices[name]
    most = max(map(bits_of, options))
    fewer = [choice for choice in options if bits_of(choice) < most]
    if bits < most or not fewer:
        return "" if fewer else f"only {bits} bits were allowed for its {what}"
    now = sum(search.product_cost(p, widths).cycles for p in readers)
    saved = {
        choice: now - sum(search.product_cost(p, _with(widths, name, choice)).cycles for p in readers)
        for choice in fewer
    }
    cheaper = [choice for choice in fewer if saved[choice] > 0]
    if not cheaper:
        return f"fewer bits of its {what} take no fewer cycles"
    losses = {choice: search.state.estimates.get((name, choice), 0.0) for choice in cheaper}
    next_best = min(cheaper, key=lambda choice: (-bits_of(choice), losses[choice]))
    loss, cycles = losses[next_best], saved[next_best]
    return f"{bits_of(next_best)}-bit {what} would save {cycles:,.0f} cycles, and lose {loss:.2%} by the estimate"


def _with(widths: Widths, name: str, choice: Choice) -> Widths:
    """Return the widths with another choice for an edge or a product."""
    if not isinstance(choice, WeightCodes):
        return replace(widths, edges={**widths.edges, name: choice})
    bipolar = widths.bipolar - {name} | ({name} if choice.bipolar else set())
    return replace(widths, weights={**widths.weights, name: choice.bits}, bipolar=bipolar)
