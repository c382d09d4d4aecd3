"""Quantization of a float network from beginning to end, and its report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import BitsynthWarning, SpecError
from bitsynth.graph.quantizer_claims import MeasuredErrors, ProvedErrors, QuantizerClaims, add_claims
from bitsynth.graph.read import file, read
from bitsynth.host.placement import runs_natively, widest
from bitsynth.isa.load import load
from bitsynth.layers.candidates import cpu_for, require_cpu
from bitsynth.layers.planning import plans_kept
from bitsynth.network.compiling import network_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.run import Network
from bitsynth.progress import Progress, silent
from bitsynth.quantization.calibration import Calibration, FloatResults
from bitsynth.quantization.equalization import Equalized, equalize
from bitsynth.quantization.error_bound import bound_error
from bitsynth.quantization.finetuning import FineTuning, Tuned, fine_tune, require_trainable
from bitsynth.quantization.float_model import FloatModel, simplify
from bitsynth.quantization.goal import CostName, SearchGoal, goal_of
from bitsynth.quantization.grids import RangeRule, range_rule
from bitsynth.quantization.integer_program import require_scipy
from bitsynth.quantization.layer_costs import find_layers, layer_cost, network_cost
from bitsynth.quantization.quantized_model import FILE_FORMATS, FileFormat, write_model
from bitsynth.quantization.report import (
    FineTuningReport,
    OutputError,
    QuantizationReport,
    TrialPoint,
    layer_choices,
    pareto_front,
    trial_points,
)
from bitsynth.quantization.search import ImpossibleGoal, Search, lossy_edges
from bitsynth.quantization.search_state import Trial, restore, state_path
from bitsynth.quantization.torch_network import TorchNetwork, require_torch
from bitsynth.spec.matmul import MAX_BITS

_MIN_SAMPLES = 4
"""The fewest samples: of fewer, ranges and losses say nothing."""
_FRONT_POINTS = 8
"""Costs at which the front of loss and cost is searched."""


@dataclass(frozen=True)
class FrontModel:
    """A quantized network of the front, and its point: no other that was run costs and loses at most as much."""

    model: Any
    point: TrialPoint


@dataclass(frozen=True)
class Quantized:
    """A quantized network, and the report on it.

    Args:
        model: An ONNX model (`onnx.ModelProto`), whose quantizers have the format that was asked for.
        report: Widths, costs, losses and error bounds.
        front: The networks of the front, the cheapest first, if they were asked for.
    """

    model: Any
    report: QuantizationReport
    front: tuple[FrontModel, ...] = ()


@plans_kept()
def quantize(
    model: str | os.PathLike[str] | Any,
    data: Mapping[str, NDArray[Any]] | NDArray[Any],
    *,
    labels: NDArray[Any] | None = None,
    loss: float | None = None,
    cycles: float | None = None,
    bytes: float | None = None,
    minimize: str = "",
    isa: str = "auto",
    cpu: str = "",
    threads: int = 1,
    act_bits: Sequence[int] = (2, 3, 4, 8),
    w_bits: Sequence[int] = (2, 3, 4, 8),
    ranges: str = "auto",
    front: bool = False,
    finetune: float | FineTuning | None = None,
    finetune_data: Mapping[str, NDArray[Any]] | NDArray[Any] | None = None,
    file_format: str = "qonnx",
    batch: int | None = None,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    fixed: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Quantized:
    """Quantize a float network: the widths of each layer with the fewest cycles, or another goal, within bounds.

    What was measured is kept in the user's cache folder: a search that was interrupted goes on when it is repeated.

    Args:
        model: A path of an ONNX file, or a model that is loaded already.
        data: Typical inputs: an array for each input by name, or the array of a single input, an input a sample.
        labels: The class of each sample. With them the loss is the accuracy of the first output that is lost, else the
            largest error of an output.
        loss: The greatest loss, such as 0.01 for one percent; of accuracy with its standard error, which few samples
            make large. With `finetune` that after training. None for 0.01, or for any loss if the loss is minimized.
        cycles: The most predicted cycles of the network.
        bytes: The most bytes of its constants.
        minimize: "cycles", "bytes" or "loss"; empty for cycles if the loss is bounded, else for the loss.
        isa: The instruction set that costs are for, or "auto" for the best this processor has.
        cpu: The processor of the set.
        threads: Threads that the network will run on.
        act_bits: Widths of activations to choose from, 2 to 8.
        w_bits: Widths of weights to choose from, 1 to 8.
        finetune: Minutes for which the network with the best widths is trained to give the float network's outputs
            (with labels, the shares of classes in the first output alone), or how long as a `FineTuning`. The reported
            loss is then measured on a fifth of the samples, which are held back from training. Networks of the front
            are not trained.
        finetune_data: Inputs to train on, like `data` but without labels; then no sample of `data` is trained on, and
            the loss is measured on all of `data`. Some hundred samples are enough for `data`; all others belong here.
        ranges: Which numbers of activations the codes hold: with "mse" the range of the least mean squared error; with
            "minmax" all that were seen; with "percentile" numbers up to the 99.9th percentile, or "percentile=99.99";
            "auto" is "mse".
        file_format: "qonnx"; "qcdq", which has no 1-bit weights; or "qdq", whose activations have 8 bits.
        front: Whether the front of loss and cycles is searched too; of bytes, if these are minimized, or if the loss is
            minimized and cycles have no bound.
        batch: The size of an open first axis.
        shapes: Shapes and sizes that the file leaves open, as of `bitsynth.compile`.
        fixed: Inputs that become constants.
        progress: Hears what is being done.

    Raises:
        SpecError: The file, the data or the options do not fit; or no choice keeps the bounds.
        ToolError: A package is missing: `pip install 'bitsynth[quantize]'`; for `finetune` 'bitsynth[quantize,train]'.
    """
    acts, wgts = _widths("activations", act_bits, 2), _widths("weights", w_bits, 1)
    rule = range_rule(ranges)
    goal = goal_of(loss=loss, cycles=cycles, bytes=bytes, minimize=minimize)
    written_as = _format(file_format)
    if written_as == "qdq" and acts != (MAX_BITS,):
        raise SpecError("activations of QDQ files have 8 bits; allow only these (--act-bits 8), or write qcdq")
    if written_as != "qonnx" and 1 in wgts:
        raise SpecError(f"1-bit weights cannot be written as {written_as}; allow 2 bits or more, or write qonnx")
    length = _fine_tuning(finetune, finetune_data is not None)
    require_cpu(isa, cpu)
    chosen_isa = widest(isa)
    target = NetworkTarget(chosen_isa, threads, cpu or cpu_for(isa))
    progress("reading")
    network = FloatModel(simplify(_load(model), shapes or {}, batch, fixed or {}))
    if not network.products:
        raise SpecError(f"{_no_product(network)}; there is nothing to quantize")
    if not network.float_outputs:
        raise SpecError("the network has no output in floats, by which the loss could be measured")
    require_scipy()
    in_torch = TorchNetwork(network.model) if length else None
    samples = _samples(network, data, "data")
    others = None if finetune_data is None else _samples(network, finetune_data, "data for fine-tuning")
    calibration, equalized = _calibrate(network, samples, rule, progress)
    if in_torch:
        require_trainable(calibration, in_torch, others)
    classes = None if labels is None else _classes(labels, calibration.outputs, next(iter(network.inputs.values())))
    parts = {
        "model": calibration.network.model.SerializeToString(deterministic=True),
        "target": target,
        "widths": (acts, wgts),
        "ranges": rule,
    }
    data_parts = {f"{k} {name}": array for k, sample in enumerate(samples) for name, array in sample.items()}
    state = restore(state_path({**parts, "labels": classes, **data_parts}, target.isa))
    search = Search(calibration, target, acts, wgts, classes, progress, state)
    search.prepare()
    best = _find(search, goal, length)
    by: CostName = "bytes" if goal.minimize == "bytes" or (goal.minimize == "loss" and not goal.cycles) else "cycles"
    if front:
        search.explore(by, _FRONT_POINTS)
        best = _find(search, goal, length)
    points = trial_points(search.trials, best, by)
    corrections = search.corrections(best.widths)
    tuned = fine_tune(calibration, best.widths, corrections, classes, length, progress, others) if length else None
    corrections = tuned.corrections if tuned else corrections
    quantized = write_model(calibration, best.widths, corrections)
    progress("compiling")
    report = replace(
        _report(search, best, quantized, goal, points, by, tuned),
        equalized=equalized.edges,
        not_equalized=equalized.left,
        in_floats=tuple(sorted(calibration.network.in_floats)),
    )
    on_front = pareto_front(search.trials, by) if front else []
    models = [
        FrontModel(search.model(trial.widths, written_as), points[search.trials.index(trial)]) for trial in on_front
    ]
    if written_as != "qonnx":
        quantized = write_model(calibration, best.widths, corrections, file_format=written_as)
    add_claims(quantized, _claims(report, _box(calibration)))
    return Quantized(quantized, report, tuple(models))


def _fine_tuning(length: float | FineTuning | None, has_data: bool) -> FineTuning | None:
    """Return how long to train, None for not at all; SpecError if there are data to train on nevertheless."""
    if length is None:
        if has_data:
            raise SpecError("there are data for fine-tuning, but no length of it: give --finetune, or leave them out")
        return None
    require_torch()
    return length if isinstance(length, FineTuning) else FineTuning(minutes=length)


def _format(name: str) -> FileFormat:
    """Return the format of this name; SpecError if there is none."""
    file_format = next((known for known in FILE_FORMATS if known == name), None)
    if file_format is None:
        raise SpecError(f"the format is qonnx, qcdq or qdq, not {name!r}")
    return file_format


def _load(model: str | os.PathLike[str] | Any) -> Any:
    """Return the ONNX model of a path, or one that is loaded already; SpecError for a file of another kind."""
    if not isinstance(model, str | os.PathLike):
        return file.prepare(model, None)
    if Path(model).suffix == ".tflite":
        raise SpecError(f"{model}: a TensorFlow Lite file is not quantized; give the float network as ONNX")
    return file.load(Path(model))


def _calibrate(
    network: FloatModel, samples: Sequence[Mapping[str, NDArray[Any]]], rule: RangeRule, progress: Progress
) -> tuple[Calibration, Equalized]:
    """Equalize channels and run the float network on all samples; lossy edges are left in floats."""
    equalized = equalize(network, samples)
    calibration = Calibration(equalized.network, samples, rule)
    calibration.collect(progress)
    if in_floats := lossy_edges(calibration, progress):
        calibration = Calibration(replace(equalized.network, in_floats=in_floats), samples, rule)
        calibration.collect(progress)
    return calibration, equalized


def _no_product(network: FloatModel) -> str:
    """Return why a network has no product that can be quantized."""
    shared = next((p for node in network.model.graph.node if (p := network.shared_weights(node))), "")
    if shared:
        return f"every product with constant float weights shares them with another, such as {shared}"
    return "the network has no product with constant float weights"


def _widths(what: str, bits: Sequence[int], least: int) -> tuple[int, ...]:
    """Return widths to choose from, sorted; SpecError unless they are `least` to 8."""
    if not bits or not all(type(b) is int and least <= b <= MAX_BITS for b in bits):
        raise SpecError(f"bits of {what} are {least} to {MAX_BITS}, not {', '.join(map(str, bits)) or 'none'}")
    return tuple(sorted(set(bits)))


def _samples(
    network: FloatModel, data: Mapping[str, NDArray[Any]] | NDArray[Any], what: str
) -> list[dict[str, NDArray[Any]]]:
    """Return the samples; SpecError for arrays that are missing or do not fit the network's inputs."""
    arrays = data if isinstance(data, Mapping) else {next(iter(network.inputs)): np.asarray(data)}
    if missing := [name for name in network.inputs if name not in arrays]:
        raise SpecError(f"no {what} of the input {missing[0]}; arrays: {', '.join(arrays) or 'none'}")
    parts: dict[str, list[NDArray[Any]]] = {}
    for name, shape in network.inputs.items():
        array = np.asarray(arrays[name])
        if array.dtype.kind not in "biuf":
            raise SpecError(f"{what} of {name} are of type {array.dtype}; wanted numbers")
        batch = shape[0] if shape else 1
        fits = array.ndim == max(1, len(shape)) and array.shape[1:] == shape[1:]
        if fits and len(array) % batch:
            raise SpecError(
                f"{what} of {name} have {len(array)} samples, and the network takes {batch} at once: give a multiple "
                f"of {batch}, or another batch"
            )
        if not fits or not len(array):
            raise SpecError(f"{what} of {name} have shape {array.shape}; wanted {('samples', *shape[1:])}")
        if not np.isfinite(array.astype(np.float64)).all():
            raise SpecError(f"{what} of {name} hold NaN or infinity")
        with np.errstate(all="ignore"):
            typed = array.astype(network.types[name])
        same = typed == array if typed.dtype.kind != "f" else np.isfinite(typed)
        if not same.all():
            wrong = array[~same].flat[0]
            raise SpecError(f"{what} of {name} have numbers that are no {typed.dtype}, such as {wrong}")
        parts[name] = [typed[k : k + batch] if shape else np.asarray(typed[k]) for k in range(0, len(array), batch)]
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) > 1:
        raise SpecError(f"{what} have {', '.join(f'{n} of {name}' for name, n in counts.items())}")
    if min(counts.values()) < _MIN_SAMPLES:
        raise SpecError(
            f"{what} have {min(counts.values())} samples; give {_MIN_SAMPLES} at least, some hundred at best"
        )
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
    outputs = results if isinstance(results, tuple) else (results,)
    by_name = dict(zip(network.outputs, outputs, strict=True))
    return tuple(np.asarray(by_name[name], np.float32) for name in network.float_outputs)


def _find(search: Search, goal: SearchGoal, length: FineTuning | None) -> Trial:
    """Return the best trial that meets a goal; with fine-tuning the most bits if they lose too much before."""
    if length and goal.loss is not None:
        most = search.measure(search.most_bits)
        if not most.loss.fits(goal.loss):
            return most
    return search.find(goal)


def _report(
    search: Search,
    best: Trial,
    quantized: Any,
    goal: SearchGoal,
    points: tuple[TrialPoint, ...],
    by: CostName,
    tuned: Tuned | None,
) -> QuantizationReport:
    """Compile the network, run it on all samples (after training on those held back), and return the report.

    Raises:
        ImpossibleGoal: The network lost too much before training, and does after it.
    """
    calibration, target = search.calibration, search.target
    network = calibration.network
    judged = tuned.held_back if tuned else range(len(calibration.samples))
    net = network_of(read(quantized), target, target.threads, search.progress, {})
    report = net.report()
    native = runs_natively(load(target.isa).table)
    finetuned, first = None, best.loss
    if tuned:
        outputs = search.outputs(best.widths)
        first = search.loss([outputs[k] for k in judged], judged)
        finetuned = FineTuningReport(tuned.steps, tuned.trained, len(judged), first.mean, tuned.is_better)
    if native:
        search.progress("running the compiled network")
        outputs = [_float_outputs(net, network, calibration.samples[k]) for k in judged]
    else:
        run = search.outputs(best.widths, tuned.corrections if tuned else None)
        outputs = [run[k] for k in judged]
    loss = search.loss(outputs, judged)
    if goal.loss is not None and not loss.fits(goal.loss):
        if tuned and not best.loss.fits(goal.loss) and loss.mean > goal.loss:
            raise ImpossibleGoal(
                f"{goal}: not possible. The most bits lose {first.mean:.2%} before fine-tuning, and {loss.mean:.2%} "
                f"after {tuned.steps} steps of it; allow a greater loss, more bits, or more minutes"
            )
        before = "before fine-tuning it" if tuned else "where ONNX Runtime's run of the same widths"
        warnings.warn(
            f"the network, run by {'compiled C' if native else 'ONNX Runtime'}, loses {loss.mean:.2%} (standard error "
            f"{loss.error:.2%}), above the bound of {goal.loss:.2%}, {before} lost {first.mean:.2%}",
            BitsynthWarning,
            stacklevel=3,
        )
    errors, no_bound = _errors(calibration, quantized, outputs, judged, search.progress)
    costs = {name: layer_cost(step, target) for name, step in find_layers(network.products, net.program).items()}
    return QuantizationReport(
        isa=target.isa,
        cpu=target.cpu,
        samples=len(calibration.samples),
        loss_is="error" if search.labels is None else "accuracy",
        loss=loss.mean,
        standard_error=loss.error,
        measured_by="compiled C" if native else "ONNX Runtime",
        bound=goal.loss,
        minimized=goal.minimize,
        most_cycles=goal.cycles,
        most_bytes=goal.bytes,
        float_accuracy=search.float_accuracy(judged),
        layers=layer_choices(search, best.widths, costs),
        cycles=int(network_cost(net.program, report.weight_bytes, target).cycles),
        weight_bytes=report.weight_bytes,
        float_bytes=sum(network.constants[p.weights].nbytes for p in network.products),
        trials=points,
        front_by=by,
        in_kernels=len(costs),
        errors=errors,
        no_error_bound=no_bound,
        finetuned=finetuned,
    )


def _box(calibration: Calibration) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest number of each input of the samples."""
    return {
        name: (
            min(float(sample[name].min()) for sample in calibration.samples),
            max(float(sample[name].max()) for sample in calibration.samples),
        )
        for name in calibration.network.inputs
    }


def _errors(
    calibration: Calibration,
    quantized: Any,
    outputs: Sequence[FloatResults],
    samples: Sequence[int],
    progress: Progress,
) -> tuple[tuple[OutputError, ...], str]:
    """Return the greatest errors of each output, measured on samples and proved, and why no bound is proved."""
    progress("bounding the error")
    network = calibration.network
    seen = {edge: (float(some.min()), float(some.max())) for edge, some in calibration.numbers.items()}
    box = _box(calibration)
    bound, in_ranges = (bound_error(network, quantized, box, ranges) for ranges in ({}, seen))
    errors = []
    for k, name in enumerate(network.float_outputs):
        pairs = zip(outputs, (calibration.outputs[s] for s in samples), strict=True)
        worst = max(float(np.abs(ours[k].astype(np.float64) - theirs[k]).max()) for ours, theirs in pairs)
        errors.append(OutputError(name, worst, bound.outputs.get(name), in_ranges.outputs.get(name)))
    return tuple(errors), bound.no_bound


def _claims(report: QuantizationReport, box: dict[str, tuple[float, float]]) -> QuantizerClaims:
    """Return what the file and the certificates of its compiled networks say of the error."""
    measured = {error.output: error.measured for error in report.errors}
    proved = {error.output: error.bound for error in report.errors if error.bound is not None}
    in_ranges = {e.output: e.bound_in_ranges for e in report.errors if e.bound_in_ranges is not None}
    return QuantizerClaims(
        "the error of the quantized network against the float network, by its quantizer; not checked by readers",
        MeasuredErrors(
            by=report.measured_by,
            samples=report.finetuned.held_back if report.finetuned else report.samples,
            loss_is=report.loss_is,
            loss=report.loss,
            standard_error=report.standard_error,
            errors=measured,
        ),
        ProvedErrors("interval arithmetic in float64, rounded outward", box, proved, in_ranges, report.no_error_bound),
    )
