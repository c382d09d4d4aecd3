"""`bitsynth bench kernels` and `bench resnet18`: times of kernels and of layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from bitsynth.cli import figures, output
from bitsynth.cli.options.instruction_sets import ForCpu, Isas
from bitsynth.cli.options.kernels import ManyActBits, ManyWBits, ManyWeightEncodings
from bitsynth.cli.options.measuring import (
    Baselines,
    DeviceOption,
    DeviceRunner,
    FormOption,
    Layers,
    Repeats,
    Rounds,
    Threads,
)
from bitsynth.cli.options.output import CsvFile, JsonFile, Plot
from bitsynth.cli.parse import parse_bits
from bitsynth.cli.reports import kernel_times
from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.spec.matmul import Encoding
from bitsynth.store.files import folders

if TYPE_CHECKING:
    from bitsynth.bench.layers import LayersReport
    from bitsynth.bench.setting import Basis

_Widths = tuple[int, int]
_REPEATS = 5
"""Calls in a row; a sample is the fastest of them."""


def kernels(
    isa: Isas = "",
    act_bits: ManyActBits = "",
    w_bits: ManyWBits = "",
    json_file: JsonFile = None,
    plot: Plot = None,
    repeats: Repeats = 31,
) -> None:
    """Measure every cached kernel, and hand-written fp32 and int8 loops.

    A kernel computes one tile whose operands stay in L1, on one core, without packing, with K = 576 if that fits. All
    are measured alternately in one process: medians of CPU time; IQR is the interquartile range. If this processor
    cannot run a set, the set is emulated and its instructions are counted; that is no time. Cycles and instructions are
    per 128 multiply-accumulates. The cost model's are printed too, and on Arm the cycles that a scoreboard model
    predicts for each processor.

    Without --isa every set that runs here is measured. Exit code 2 if a cached file is broken, 4 if a kernel
    cannot be compiled or run; the others are measured.
    """
    sets = _choose_sets(isa)
    widths = [parse_bits(name, text) if text else [] for name, text in (("--act-bits", act_bits), ("--w-bits", w_bits))]
    figures.require(json_file, plot=plot)
    from bitsynth.bench import kernels
    from bitsynth.bench.kernels import measure

    chosen = [kernels.cached_kernels(name, *widths) for name in sets]
    basis, reports = kernel_times.basis(chosen), []
    for some in chosen:
        with output.progress(f"bench {some.isa}", bar=True) as say:
            reports.append(measure(some, repeats, say))
        with figures.tables(json_file):
            kernel_times.show(reports[-1])
    if json_file:
        figures.write(json_file, kernel_times.as_json(reports, basis))
    if plot:
        from bitsynth.bench.plots import kernels as plotting

        plotting.draw(reports, plot)
    problems = [p for r in reports for p in r.problems]
    if problems:
        raise type(problems[0])(f"left out {output.count(len(problems), 'kernel')}: {problems[0]}")


def resnet18(
    isa: Isas = "",
    cpu: ForCpu = "",
    act_bits: ManyActBits = "1,2",
    w_bits: ManyWBits = "1",
    weight_encoding: ManyWeightEncodings = "bipolar",
    form: FormOption = "sums",
    threads: Threads = 1,
    baseline: Baselines = "torch,onnxruntime,openvino,ncnn",
    layers: Layers = None,
    rounds: Rounds = 11,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    plot: Plot = None,
    device: DeviceOption = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Measure the convolutions of ResNet-18, and fp32 and int8 of other packages.

    The packages are PyTorch, ONNX Runtime, OpenVINO and ncnn. The layers are the eleven of CGO 2020's Table 1, at
    batch 1 with seeded random weights; times include packing of activations, which also has a line of its own. All
    are measured alternately, layer by layer and round by round, with the same number of threads. A ratio is the median
    of the rounds' ratios. int8 baselines read and write requantized codes; bitsynth does so in the form `packed`, with
    codes in words from layer to layer. Pairs of bits and encodings that do not exist are left out. On avx2 the
    baselines are kept from wider instructions, or left out if that is not possible.

    Without --isa every set that runs here is measured, or a board's best. With --device the layers are compiled here,
    and checked and timed there, with bitsynth's own float convolution and, if it is installed, ONNX Runtime. On Arm
    that float convolution is measured here too.
    """
    from bitsynth.bench.resnet18 import LAYERS, select_layers

    names = [layer.name for layer in (LAYERS if layers is None else select_layers(layers))]
    widths = list(product(parse_bits("--act-bits", act_bits), parse_bits("--w-bits", w_bits)))
    packages, encodings = (text.split(",") if text else [] for text in (baseline, weight_encoding))
    mine = [(a, w, e) for (a, w), e in product(widths, map(Encoding.parse, encodings)) if w in e.widths]
    if not mine:
        raise SpecError(f"no weights of {w_bits} bits are {weight_encoding}")
    wanted = _Wanted(isa, mine, _require_form(form), threads, names, rounds, packages, cpu)
    if device and (form != "sums" or weight_encoding != "bipolar"):
        raise SpecError("with --device layers are measured in the form sums, with bipolar weights")
    figures.require(json_file, csv_file, plot=plot)
    from bitsynth.bench.baselines.start import require_known
    from bitsynth.cli.reports import layer_times

    require_known(wanted.packages)
    with figures.tables(json_file):
        reports, basis = _measure_here(wanted) if device is None else _measure_on_board(device, device_runner, wanted)
    if json_file:
        figures.write(json_file, layer_times.as_json(reports, basis))
    if csv_file:
        figures.write(csv_file, layer_times.as_csv(reports))
    if plot:
        from bitsynth.bench.plots import layers as layers_plot

        layers_plot.draw(reports, plot)


@dataclass(frozen=True)
class _Wanted:
    """The layers to measure, and how."""

    isa: str
    operands: list[tuple[int, int, Encoding]]
    form: str
    threads: int
    names: list[str]
    rounds: int
    packages: list[str]
    cpu: str = ""

    @property
    def widths(self) -> list[_Widths]:
        """Return the bits of activations and of weights, each pair once."""
        return list(dict.fromkeys((a, w) for a, w, _ in self.operands))


def _measure_here(wanted: _Wanted) -> tuple[list[LayersReport], Basis]:
    """Measure kernels or layers and their baselines on this machine, and show each report as soon as it is measured."""
    from bitsynth.cli.reports import layer_times
    from bitsynth.host.placement import require_native

    sets = _choose_sets(wanted.isa)
    for name in sets:
        require_native(load.load(name).table)
    basis, reports = layer_times.basis(sets, wanted.widths), []
    for name in sets:
        reports.append(_measure_set(name, wanted))
        layer_times.show(reports[-1])
    return reports, basis


def _measure_set(isa: str, wanted: _Wanted) -> LayersReport:
    from bitsynth.bench import low_bit_layers
    from bitsynth.bench.float_convolution import own_float
    from bitsynth.bench.layer_forms import FORMS
    from bitsynth.bench.layers import against_baselines
    from bitsynth.isa import architecture

    threads, names = wanted.threads, wanted.names
    with output.progress(f"bench {isa}", bar=True) as say:
        say("compiling")
        form, has_boards = FORMS[wanted.form], architecture.find_architecture(load.load(isa).table.arch).emulator
        floats = [own_float(isa, threads, names)] if has_boards else []
        mine = [
            *floats,
            *(
                subject
                for a, w, encoding in wanted.operands
                for subject in low_bit_layers.subjects(
                    isa, a, w, threads, names, form.replace_weights(encoding).on(wanted.cpu)
                )
            ),
        ]
        report = against_baselines(isa, threads, mine, wanted.packages, names, wanted.rounds, _REPEATS, say)
        return replace(report, form=form.name)


def _require_form(name: str) -> str:
    """Return the name of a form of layers; SpecError lists the known ones."""
    from bitsynth.bench.layer_forms import FORMS

    if name not in FORMS:
        raise SpecError(f"--form: unknown {name!r}; known: {', '.join(FORMS)}")
    return name


def _measure_on_board(host: str, runner: str, wanted: _Wanted) -> tuple[list[LayersReport], Basis]:
    """Measure on a board, and show its times."""
    from bitsynth.bench import on_device
    from bitsynth.cli.reports import layer_times
    from bitsynth.device import Device

    reports, ort = [], "onnxruntime" in wanted.packages
    with output.progress(f"bench {host}") as say, Device(host, emulator=runner) as board:
        sets = wanted.isa.split(",") if wanted.isa else [board.best_isa()]
        basis = layer_times.basis(sets, wanted.widths)
        for name in sets:
            say(f"{name}: compiling, copying, running")
            isa, threads, names = load.load(name).name, wanted.threads, wanted.names
            answer, report = on_device.measure(
                board, isa, wanted.widths, threads, names, wanted.rounds, ort, wanted.cpu
            )
            if report is None:
                checked = output.count(len(answer.layers), "layer")
                output.write(f"{name}: {checked} right on {answer.before}; run by {answer.emulator}, so no times")
            else:
                layer_times.show(report)
                reports.append(report)
    return reports, basis


def _choose_sets(text: str) -> list[str]:
    """Return the named instruction sets, or all sets with kernels that this processor runs; SpecError for none."""
    if text:
        return [load.load(name).name for name in dict.fromkeys(text.split(","))]
    from bitsynth.host import features

    homes = folders()
    cached = [name for name in load.names() if any(any(home.glob(f"{name}/**/bs_mm_*.json")) for home in homes)]
    here = [name for name in cached if features.matches(load.load(name).table)]
    if not here:
        raise SpecError(f"this processor runs none of {', '.join(cached)}; name one to be emulated with --isa")
    return here
