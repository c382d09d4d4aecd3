"""Fine-tuning: weights, biases and scales of a quantized network, trained by gradients in PyTorch.

The quantized network, as its QONNX file states it, is run forward with all its rounding; gradients take rounding for
the identity (`torch_network`). It is trained to give the outputs of the float network
(distillation, Hinton et al., 2015). Scales are trained too, as in LSQ (Esser et al., 2020), except scales of edges of
more than 5 bits. Samples that are not trained on are held back, a fifth of the calibration's, or all of them if there
are others to train on: the state that does best on these is kept, or the state before fine-tuning if none does better.

Parameters are real numbers. The network has what `_Parameters.constants` makes of them: scales of few significant bits,
and biases of whole accumulators, as the kernels need them.

Given:  y = 4 x, a weight with the codes -1, 0 and 1, a scale of 3 before, and samples x = 1, 2
Result: the code 1 and a scale of 4
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.network.check.data import Feed
from bitsynth.progress import Progress
from bitsynth.quantization.calibration import MOST_BITS_OF_LONG_SCALES, Calibration
from bitsynth.quantization.float_model import WeightedProduct
from bitsynth.quantization.grids import shorten
from bitsynth.quantization.quantized_model import Corrections, Widths, bias_of, write_model
from bitsynth.quantization.torch_network import TorchNetwork, TorchTensor, odd_codes, require_torch

_MIN_SAMPLES = 20
"""The fewest samples: a fifth of them is held back."""
_HELD_BACK = 5
"""One in five samples is held back."""
_BATCH = 64
"""Samples of a step."""
_EVALUATED = 128
"""Samples that are run together to evaluate a state."""
_WARM_UP = 20
"""Steps in which the learning rate grows."""
_EVALUATIONS = 20
"""Times that the held-back samples are run, at equal distances."""
_WEIGHT_RATE = 0.03
"""The first learning rate of weights, in steps of codes."""
_OTHER_RATE = 0.004
"""The first learning rate of biases and of the logarithms of scales."""
_INSIDE = 0.999
"""The part of the greatest code to which weights are limited."""
_TOLERANCE = 1e-3
"""The most that an output of PyTorch's run may be off, relative to the largest number of the output."""


@dataclass(frozen=True)
class FineTuning:
    """How long a network is fine-tuned.

    Args:
        minutes: The minutes of wall time.
        steps: The steps of gradient descent, instead of minutes. Only these give the same result again.
        seed: Determines the samples that are held back, and the order of the others.
    """

    minutes: float | None = None
    steps: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lengths = [n for n in (self.minutes, self.steps) if n is not None]
        if len(lengths) != 1 or not 0 < lengths[0] < math.inf:
            raise SpecError("fine-tuning takes a number of minutes, or of steps, above 0")

    @classmethod
    def parse(cls, text: str) -> FineTuning:
        """Return the length in `10`, `0.5` (minutes) or `2000steps`; SpecError for anything else."""
        if match := re.fullmatch(r"(\d{1,9})\s*steps?", text, re.ASCII):
            return cls(steps=int(match[1]))
        if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text, re.ASCII):
            return cls(minutes=float(text))
        raise SpecError(f"--finetune: want minutes, such as 10 or 0.5, or steps, such as 2000steps, not {text!r}")

    def share(self, seconds: float, steps: int) -> float:
        """Return which share is over."""
        return seconds / (60 * self.minutes) if self.minutes is not None else steps / (self.steps or 1)


@dataclass(frozen=True)
class Tuned:
    """The result of fine-tuning.

    Args:
        corrections: Weights, biases and grids.
        held_back: The samples of the calibration that were not trained on.
        trained: How many samples were trained on.
        steps: The steps that were done.
        is_better: Whether the corrections are better on the held-back samples than the earlier corrections.
    """

    corrections: Corrections
    held_back: tuple[int, ...]
    trained: int
    steps: int
    is_better: bool


def require_trainable(calibration: Calibration, in_floats: TorchNetwork, others: Sequence[Feed] | None) -> None:
    """Raise SpecError unless PyTorch runs the float network with the same outputs, and samples are enough."""
    network, samples = calibration.network, calibration.samples
    trained = samples if others is None else others
    if len(trained) < _MIN_SAMPLES:
        raise SpecError(f"data have {len(trained)} samples; fine-tuning takes {_MIN_SAMPLES} at least")
    results = in_floats.run(_stack(in_floats, samples[:1]), network.float_outputs)
    for name, result, wanted in zip(network.float_outputs, results, calibration.outputs[0], strict=True):
        own = result[0].numpy()
        if own.shape != wanted.shape or np.abs(own - wanted).max() > _TOLERANCE * max(np.abs(wanted).max(), 1e-6):
            raise SpecError(f"PyTorch's run of the float network has another output {name}; leave out --finetune")


def _stack(network: TorchNetwork, samples: Sequence[Feed]) -> dict[str, TorchTensor]:
    """Return samples as one tensor for each input."""
    return {name: network.tensor(np.stack([sample[name] for sample in samples])) for name in samples[0]}


class _Parameters:
    """The parameters of a quantized network, and the constants of its file that they stand for.

    Weights are in units of their first scale, biases in units of their first accumulator times the root of the depth,
    scales are logarithms.
    """

    def __init__(
        self, calibration: Calibration, widths: Widths, corrections: Corrections, network: TorchNetwork, model: Any
    ) -> None:
        self._calibration, self._widths, self._network = calibration, widths, network
        self._products = {p.name: p for p in calibration.network.products}
        nodes = {node.name: node for node in model.graph.node}
        makers = {name: node for node in model.graph.node for name in node.output}
        self._weights = {name: makers[nodes[name].input[1]] for name in self._products}
        """The quantizer of weights, by product."""
        self._biases = {n: b for n, p in self._products.items() if (b := _bias_name(p, nodes, makers, network))}
        """The constant that is the bias, by product."""
        self._edges = {
            node.input[0]: node.input[1]
            for node in model.graph.node
            if node.op_type == "Quant" and 0 < widths.edges.get(node.input[0], 0) <= MOST_BITS_OF_LONG_SCALES
        }
        """The constant that is the scale of an edge's quantizer, by edge."""
        self.values: dict[tuple[str, str], TorchTensor] = {}
        """The parameters, by kind and product or edge."""
        self._units: dict[str, TorchTensor] = {}
        for name, product in self._products.items():
            grid, rounded = corrections.weights.get(name) or calibration.weights(product, widths.codes(name))
            self._units[name] = network.tensor(grid.scale)
            self._add("scale", name, np.log(grid.scale.astype(np.float64)))
            # The float network's weights, near the middle between two codes, would leave their codes at once.
            self._add("weights", name, np.rint(rounded / grid.scale))
            if name in self._biases:
                bias = network.constants[self._biases[name]].numpy()
                self._add("bias", name, bias / self._bias_unit(product, grid.scale))
        for edge, constant in self._edges.items():
            self._add("edge", edge, np.log(network.constants[constant].numpy().astype(np.float64)))
        self.keep_in_limits()

    def _add(self, kind: str, name: str, value: NDArray[Any]) -> None:
        self.values[kind, name] = self._network.tensor(np.asarray(value, np.float32)).requires_grad_()

    def _bias_unit(self, product: WeightedProduct, scale: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the unit of a bias's parameter, by the first scale of the weights."""
        weights = self._calibration.network.constants[product.weights]
        bits = self._widths.edges.get(product.edge)
        step = self._calibration.grid(product.edge, bits).scale if bits else 1.0
        depth = weights.size // weights.shape[product.channel_axis]
        return np.asarray(scale.reshape(-1) * step * math.sqrt(depth), np.float32)

    def keep_in_limits(self) -> None:
        """Move weights beyond the limits of codes back to these: beyond them they would have no gradient."""
        with require_torch().no_grad():
            for name, product in self._products.items():
                scale = self._scale("scale", name, self._calibration.shortening(product))
                ratio = scale / self._units[name] * _INSIDE
                low, high = self._widths.codes(name).limits
                weights = self.values["weights", name]
                weights.copy_(weights.clamp(low * ratio, high * ratio))

    def _scale(self, kind: str, name: str, shortening: Callable[[NDArray[Any]], NDArray[Any]]) -> TorchTensor:
        """Return a scale that the quantizer may have, with the gradient of the parameter's."""
        scale = self.values[kind, name].exp()
        short = self._network.tensor(shortening(scale.detach().numpy()))
        return scale + (short - scale).detach()

    def constants(self) -> dict[str, TorchTensor]:
        """Return the constants of the file that the parameters stand for."""
        constants = {}
        for edge, name in self._edges.items():
            significant = self._calibration.significant_bits(edge, self._widths.edges[edge])
            constants[name] = self._scale("edge", edge, partial(shorten, significant=significant))
        for name, product in self._products.items():
            quantizer = self._weights[name]
            scale = self._scale("scale", name, self._calibration.shortening(product))
            weights = self.values["weights", name] * self._units[name]
            constants[quantizer.input[0]] = odd_codes(weights, scale) if name in self._widths.bipolar else weights
            constants[quantizer.input[1]] = scale
            if name in self._biases:
                constants[self._biases[name]] = self._bias(product, scale, constants)
        return constants

    def _bias(self, product: WeightedProduct, scale: TorchTensor, constants: Mapping[str, TorchTensor]) -> TorchTensor:
        """Return a bias of whole accumulators, as `write_model` rounds it."""
        bias_unit = self._bias_unit(product, self._units[product.name].numpy())
        bias = self.values["bias", product.name] * self._network.tensor(bias_unit)
        if product.edge not in self._widths.edges:
            return bias
        step = self._edges.get(product.edge)
        if step is not None:
            unit = scale.detach().reshape(-1) * constants[step].detach()
        else:
            fixed = self._calibration.grid(product.edge, self._widths.edges[product.edge])
            unit = scale.detach().reshape(-1) * float(fixed.scale)
        half = 0.5 * self._calibration.network.is_added(product.output)
        whole = ((bias / unit - half).round() + half) * unit
        return bias + (whole - bias).detach()

    def corrections(self, before: Corrections) -> Corrections:
        """Return the corrections that the parameters stand for."""
        constants = {name: tensor.detach().numpy() for name, tensor in self.constants().items()}
        calibration, bias, weights = self._calibration, dict(before.bias), dict(before.weights)
        for name, product in self._products.items():
            grid, _ = before.weights.get(name) or calibration.weights(product, self._widths.codes(name))
            quantizer = self._weights[name]
            grid = replace(grid, scale=np.asarray(constants[quantizer.input[1]], np.float32).reshape(grid.scale.shape))
            weights[name] = grid, np.ascontiguousarray(grid.quantize(constants[quantizer.input[0]]))
            if name in self._biases:
                own = bias_of(calibration.network, product)
                assert own is not None
                bias[name] = constants[self._biases[name]] - own
        edges = {
            edge: replace(
                calibration.grid(edge, self._widths.edges[edge]), scale=np.asarray(constants[name], np.float32)
            )
            for edge, name in self._edges.items()
        }
        return Corrections(bias, weights, {**before.edges, **edges})

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups of parameters for an optimizer, with their first learning rates."""
        weights = [value for (kind, _), value in self.values.items() if kind == "weights"]
        others = [value for (kind, _), value in self.values.items() if kind != "weights"]
        return [{"params": weights, "lr": _WEIGHT_RATE}, {"params": others, "lr": _OTHER_RATE}]


def _bias_name(
    product: WeightedProduct, nodes: Mapping[str, Any], makers: Mapping[str, Any], network: TorchNetwork
) -> str | None:
    """Return the constant of a file that is the bias of a product; None if there is none that may change."""
    node = nodes[product.name]
    if node.op_type == "MatMul":
        following = makers[product.output]
        return str(following.input[1]) if following is not node else None
    name = node.input[2] if len(node.input) > 2 else ""
    return str(name) if name in network.constants and network.constants[name].ndim == 1 else None


@dataclass(frozen=True)
class _Samples:
    """Inputs, and the outputs of the float network for them.

    Args:
        inputs: The inputs by name, a sample along the first axis.
        outputs: The outputs; none before the float network has run.
    """

    inputs: Mapping[str, TorchTensor]
    outputs: Sequence[TorchTensor]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def pick(self, places: NDArray[np.int64]) -> _Samples:
        """Return the samples at these places."""
        return _Samples({name: some[places] for name, some in self.inputs.items()}, [x[places] for x in self.outputs])

    def parts(self) -> Iterator[_Samples]:
        """Yield all samples, some that are run together at a time."""
        for first in range(0, len(self), _EVALUATED):
            yield self.pick(np.arange(first, min(first + _EVALUATED, len(self))))


def _calibration_samples(calibration: Calibration, network: TorchNetwork) -> _Samples:
    outputs = zip(*calibration.outputs, strict=True)
    return _Samples(_stack(network, calibration.samples), [network.tensor(np.stack(some)) for some in outputs])


def _other_samples(calibration: Calibration, feeds: Sequence[Feed], progress: Progress) -> _Samples:
    """Run the float network in PyTorch on samples that the calibration does not have."""
    in_floats, names = TorchNetwork(calibration.network.model), calibration.network.float_outputs
    samples, batches = _Samples(_stack(in_floats, feeds), ()), []
    with require_torch().no_grad():
        for k, part in enumerate(samples.parts()):
            progress("running the float network", k * _EVALUATED, len(samples))
            batches.append(in_floats.run(part.inputs, names))
    return _Samples(samples.inputs, [require_torch().cat(parts) for parts in zip(*batches, strict=True)])


@dataclass
class _Training:
    """What fine-tuning minimizes.

    Args:
        calibration: The float network on the samples.
        quantized: The quantized network.
        parameters: Its parameters.
        items: Items of a sample that have a class each; 0 without labels.
    """

    calibration: Calibration
    quantized: TorchNetwork
    parameters: _Parameters
    items: int

    def __post_init__(self) -> None:
        outputs = zip(*self.calibration.outputs, strict=True)
        self._variances = [max(float(np.stack(some).astype(np.float64).var()), 1e-30) for some in outputs]
        network = self.calibration.network
        maker = network.makers.get(network.float_outputs[0])
        self._is_softmax = maker is not None and maker.op_type == "Softmax"

    def compute_loss(self, samples: _Samples) -> TorchTensor:
        """Return the mean distance of outputs from the float network's, over samples, which training minimizes.

        With labels it is the divergence of Kullback and Leibler between shares of classes, else the squared error
        relative to the variance.
        """
        results = self.quantized.run(
            samples.inputs, self.calibration.network.float_outputs, self.parameters.constants()
        )
        if self.items:
            own, its = (self._log_shares(some[0]) for some in (results, samples.outputs))
            return (its.exp() * (its - own)).sum(-1).mean()
        triples = zip(results, samples.outputs, self._variances, strict=True)
        return sum(((a - b) ** 2).mean() / variance for a, b, variance in triples)

    def _log_shares(self, scores: TorchTensor) -> TorchTensor:
        """Return logarithms of the shares of classes (items, classes)."""
        rows = scores.reshape(len(scores) * self.items, -1)
        return (rows + 1e-12).log() if self._is_softmax else rows.log_softmax(-1)

    def measure(self, samples: _Samples) -> float:
        """Return how far the outputs of many samples are from the float network's."""
        with require_torch().no_grad():
            return sum(len(some) * float(self.compute_loss(some)) for some in samples.parts()) / len(samples)


def fine_tune(
    calibration: Calibration,
    widths: Widths,
    corrections: Corrections,
    labels: NDArray[np.int64] | None,
    length: FineTuning,
    progress: Progress,
    others: Sequence[Feed] | None = None,
) -> Tuned:
    """Return weights, biases and grids that are trained, or those given if training does not improve them.

    Args:
        calibration: The float network on the samples.
        widths: The bits of every quantizer.
        corrections: Weights and biases before.
        labels: The class of each item; None if outputs are no scores of classes.
        length: How long it is trained.
        progress: Hears what is being done.
        others: Samples to train on, all of them; None for four fifths of the calibration's.
    """
    rng, count = np.random.default_rng(length.seed), len(calibration.samples)
    model = write_model(calibration, widths, corrections)
    quantized = TorchNetwork(model)
    own = _calibration_samples(calibration, quantized)
    if others is None:
        order = rng.permutation(count)
        held_back, rest = np.sort(order[: -(-count // _HELD_BACK)]), order[-(-count // _HELD_BACK) :]
        trained = own
    else:
        held_back, rest = np.arange(count), rng.permutation(len(others))
        trained = _other_samples(calibration, others, progress)
    judging = own.pick(held_back)
    parameters = _Parameters(calibration, widths, corrections, quantized, model)
    training = _Training(calibration, quantized, parameters, 0 if labels is None else len(labels) // count)
    optimizer = require_torch().optim.Adam(parameters.groups())
    rates = [group["lr"] for group in optimizer.param_groups]
    best, first = corrections, training.measure(judging)
    least, started, steps, evaluations = first, time.monotonic(), 0, 0
    while (share := length.share(time.monotonic() - started, steps)) < 1:
        progress(f"fine-tuning, {least / first:.0%} of the first error" if first else "fine-tuning", share, 1)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, (steps + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * share))
        batch = steps % -(-len(rest) // _BATCH)
        if batch == 0:
            rng.shuffle(rest)
        loss = training.compute_loss(trained.pick(rest[batch * _BATCH : (batch + 1) * _BATCH]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        parameters.keep_in_limits()
        steps += 1
        if length.share(time.monotonic() - started, steps) * _EVALUATIONS >= evaluations + 1:
            evaluations += 1
            if (error := training.measure(judging)) < least:
                best, least = parameters.corrections(corrections), error
    return Tuned(best, tuple(map(int, held_back)), len(rest), steps, best is not corrections)
