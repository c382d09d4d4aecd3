"""Quantization of a float network from beginning to end, and its report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import BitsynthWarning, SpecError
from bitsynth.graph.read import file, read
from bitsynth.host.placement import runs_natively
from bitsynth.host.sets import widest
from bitsynth.isa.load import load
from bitsynth.layers.candidates import cpu_for, require_cpu
from bitsynth.network.compiling import network_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.run import Network
from bitsynth.progress import Progress, silent
from bitsynth.quantization.calibration import Calibration, FloatResults
from bitsynth.quantization.float_model import FloatModel, simplify
from bitsynth.quantization.quantized_model import write_model
from bitsynth.quantization.search import Search, Trial, accuracy, find_steps, require_scipy
from bitsynth.spec.matmul import MAX_BITS


@dataclass(frozen=True)
class LayerChoice:
    """The widths of a product, and what they cost.

    Args:
        name: The edge of the product's result in the simplified file.
        op: Its operator.
        act_bits: Bits of its activations.
        w_bits: Bits of its weights.
        cycles: Predicted cycles, with packing and epilogue.
        weight_bytes: Bytes of its constants as packed.
        loss: What its weights and activations lose by the estimate, as the output's mean squared error relative to its
            variance; 0 at the most bits.
    """

    name: str
    op: str
    act_bits: int
    w_bits: int
    cycles: int
    weight_bytes: int
    loss: float


@dataclass(frozen=True)
class QuantizationReport:
    """The result of a quantization.

    Args:
        isa: The instruction set that costs are for.
        cpu: Its processor.
        samples: Calibration inputs.
        loss_is: What `loss` is: "accuracy", the share of right classes lost; or "error", the root mean square of the
            output's error over the standard deviation of the float network's output, of the output that loses most.
        loss: The loss of the network that was written, on the calibration inputs.
        standard_error: The standard error of the loss; 0 if `loss_is` is "error". The bound holds for the sum of both.
        measured_by: What ran it: "compiled C", or "ONNX Runtime" where the instruction set does not run here.
        bound: The loss that was allowed.
        float_accuracy: The share of right classes of the float network; None without labels.
        layers: Its products, in order.
        cycles: Predicted cycles of all steps.
        weight_bytes: Bytes of all constants.
        float_bytes: Bytes of the float network's weights.
        trials: Loss, cycles and bytes of the products in each choice that was run.
        in_kernels: Products that layers compute.
    """

    isa: str
    cpu: str
    samples: int
    loss_is: str
    loss: float
    standard_error: float
    measured_by: str
    bound: float
    float_accuracy: float | None
    layers: tuple[LayerChoice, ...]
    cycles: int
    weight_bytes: int
    float_bytes: int
    trials: tuple[tuple[float, float, float], ...]
    in_kernels: int

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Quantized:
    """A quantized network: an ONNX model with quantizers of QONNX, and the report."""

    model: Any
    report: QuantizationReport


def quantize(
    model: str | os.PathLike[str] | Any,
    data: Mapping[str, NDArray[Any]] | NDArray[Any],
    *,
    labels: NDArray[Any] | None = None,
    loss: float = 0.01,
    isa: str = "auto",
    cpu: str = "",
    threads: int = 1,
    act_bits: Sequence[int] = (2, 3, 4, 8),
    w_bits: Sequence[int] = (2, 3, 4, 8),
    minimize: str = "cycles",
    batch: int | None = None,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    fixed: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Quantized:
    """Quantize a float network: the cheapest widths of each layer whose loss on `data` stays below a bound.

    Args:
        model: A path of an ONNX file, or a model that is loaded already.
        data: Typical inputs: an array for each input by name, or the array of a single input, an input a sample.
        labels: The class of each sample. With them the loss is the accuracy of the first output that is lost, else the
            largest error of an output.
        loss: The greatest loss, such as 0.01 for one percent; of accuracy with its standard error, which few samples
            make large.
        isa: The instruction set that costs are for, or "auto" for the best this processor has.
        cpu: The processor of the set.
        threads: Threads that the network will run on.
        act_bits: Widths of activations to choose from, 2 to 8.
        w_bits: Widths of weights to choose from, 1 to 8.
        minimize: "cycles" or "bytes".
        batch: The size of an open first axis.
        shapes: Shapes and sizes that the file leaves open, as of `bitsynth.compile`.
        fixed: Inputs that become constants.
        progress: Hears what is being done.

    Raises:
        SpecError: The file, the data or the options do not fit; or no choice has a loss below the bound.
        ToolError: A package is missing: `pip install 'bitsynth[quantize]'`.
    """
    acts, wgts = _widths("activations", act_bits, 2), _widths("weights", w_bits, 1)
    if minimize not in ("cycles", "bytes"):
        raise SpecError(f"minimize is cycles or bytes, not {minimize!r}")
    if not 0 < loss < 1:
        raise SpecError(f"the loss allowed is {loss}; it must be between 0 and 1, such as 0.01 for 1 percent")
    require_cpu(isa, cpu)
    chosen_isa = widest(isa)
    target = NetworkTarget(chosen_isa, threads, cpu or cpu_for(isa))
    if isinstance(model, str | os.PathLike) and Path(model).suffix == ".tflite":
        raise SpecError(f"{model}: a TensorFlow Lite file is not quantized; give the float network as ONNX")
    progress("reading")
    loaded = file.load(Path(model)) if isinstance(model, str | os.PathLike) else file.prepare(model, None)
    network = FloatModel(simplify(loaded, shapes or {}, batch, fixed or {}))
    if not network.products:
        raise SpecError("the network has no product with constant float weights; there is nothing to quantize")
    if not network.float_outputs:
        raise SpecError("the network has no output in floats, by which the loss could be measured")
    require_scipy()
    samples = _samples(network, data)
    calibration = Calibration(network, samples)
    calibration.collect(progress)
    classes = None if labels is None else _classes(labels, calibration.outputs, next(iter(network.inputs.values())))
    search = Search(calibration, target, acts, wgts, classes, progress)
    search.prepare()
    best = search.cheapest(loss, minimize)
    quantized = write_model(calibration, best.widths, best.bias)
    progress("compiling")
    return Quantized(quantized, _report(search, best, quantized, loss))


def _widths(what: str, bits: Sequence[int], least: int) -> tuple[int, ...]:
    """Return widths to choose from, sorted; SpecError unless they are `least` to 8."""
    if not bits or not all(type(b) is int and least <= b <= MAX_BITS for b in bits):
        raise SpecError(f"bits of {what} are {least} to {MAX_BITS}, not {', '.join(map(str, bits)) or 'none'}")
    return tuple(sorted(set(bits)))


def _samples(network: FloatModel, data: Mapping[str, NDArray[Any]] | NDArray[Any]) -> list[dict[str, NDArray[Any]]]:
    """Return the samples; SpecError for arrays that are missing or do not fit the network's inputs."""
    arrays = data if isinstance(data, Mapping) else {next(iter(network.inputs)): np.asarray(data)}
    if missing := [name for name in network.inputs if name not in arrays]:
        raise SpecError(f"no data of the input {missing[0]}; arrays: {', '.join(arrays) or 'none'}")
    parts: dict[str, list[NDArray[Any]]] = {}
    for name, shape in network.inputs.items():
        array = np.asarray(arrays[name])
        if array.dtype.kind not in "biuf":
            raise SpecError(f"data of {name} are of type {array.dtype}; wanted numbers")
        batch = shape[0] if shape else 1
        if array.ndim != max(1, len(shape)) or array.shape[1:] != shape[1:] or not len(array) or len(array) % batch:
            raise SpecError(f"data of {name} have shape {array.shape}; wanted {('samples', *shape[1:])}")
        if not np.isfinite(array.astype(np.float64)).all():
            raise SpecError(f"data of {name} hold NaN or infinity")
        with np.errstate(all="ignore"):
            typed = array.astype(network.types[name])
        same = typed == array if typed.dtype.kind != "f" else np.isfinite(typed)
        if not same.all():
            raise SpecError(f"data of {name} have numbers that are no {typed.dtype}, such as {array[~same].flat[0]}")
        parts[name] = [typed[k : k + batch] if shape else np.asarray(typed[k]) for k in range(0, len(array), batch)]
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) > 1:
        raise SpecError(f"data have {', '.join(f'{n} of {name}' for name, n in counts.items())}")
    return [dict(zip(parts, some, strict=True)) for some in zip(*parts.values(), strict=True)]


def _classes(labels: NDArray[Any], outputs: Sequence[FloatResults], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the class of each item; SpecError for labels that are none of the first output's classes."""
    array, batch = np.asarray(labels), shape[0] if shape else 1
    items = len(outputs) * batch
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) != items:
        raise SpecError(f"labels are {array.dtype} {array.shape}; wanted {items} whole numbers, a class a sample")
    scores = outputs[0][0]
    if scores.size % batch:
        raise SpecError(f"the first output has shape {scores.shape}; wanted the scores of {batch} samples")
    classes = scores.size // batch
    if array.min() < 0 or array.max() >= classes:
        raise SpecError(
            f"labels go from {array.min()} to {array.max()}; the first output has classes 0 to {classes - 1}"
        )
    return array.astype(np.int64)


def _float_outputs(net: Network, network: FloatModel, sample: Mapping[str, NDArray[Any]]) -> FloatResults:
    """Return the float outputs of the compiled network."""
    results = net({name: sample[name] for name in net.graph.inputs})
    several = results if isinstance(results, tuple) else (results,)
    by_name = dict(zip(net.graph.outputs, several, strict=True))
    return tuple(np.asarray(by_name[name], np.float32) for name in network.float_outputs)


def _report(search: Search, best: Trial, quantized: Any, bound: float) -> QuantizationReport:
    """Compile the network, run it on all samples, and return the report."""
    calibration, target = search.calibration, search.target
    network, widths = calibration.network, best.widths
    net = network_of(read(quantized), target, target.threads, search.progress, {})
    report = net.report()
    loss, native = best.loss, runs_natively(load(target.isa).table)
    if native:
        search.progress("running the compiled network")
        loss = search.loss([_float_outputs(net, network, sample) for sample in calibration.samples])
        if not loss.fits(bound):
            warnings.warn(
                f"the compiled network loses {loss.mean:.2%} (standard error {loss.error:.2%}), above the bound of "
                f"{bound:.2%}, where ONNX Runtime's run of the same widths lost {best.loss.mean:.2%}",
                BitsynthWarning,
                stacklevel=3,
            )
    steps = find_steps(network.products, net.graph, report)
    layers = tuple(
        LayerChoice(
            product.output,
            product.op,
            widths.edges[product.edge],
            widths.weights[product.name],
            *((step.cycles, step.weight_bytes) if (step := steps.get(product.name)) else (0, 0)),
            search.estimates.get((product.name, widths.weights[product.name]), 0.0)
            + search.estimates.get((product.edge, widths.edges[product.edge]), 0.0),
        )
        for product in network.products
    )
    return QuantizationReport(
        target.isa,
        target.cpu,
        len(calibration.samples),
        "error" if search.labels is None else "accuracy",
        loss.mean,
        loss.error,
        "compiled C" if native else "ONNX Runtime",
        bound,
        None if search.labels is None else accuracy(calibration.outputs, search.labels),
        layers,
        sum(step.cycles for step in report.steps),
        report.weight_bytes,
        sum(network.constants[p.weights].nbytes for p in network.products),
        tuple((t.loss.mean, t.cycles, t.bytes) for t in search.trials),
        len(steps),
    )
