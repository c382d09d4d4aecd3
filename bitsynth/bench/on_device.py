"""ResNet-18's layers on a board: checked and timed there, with a float convolution and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitsynth.bench.call_times import Subject
from bitsynth.bench.float_convolution import NAME
from bitsynth.bench.layers import LayersReport, rows
from bitsynth.bench.low_bit_layers import codes_of, layer_of
from bitsynth.bench.resnet18 import LAYERS
from bitsynth.device import Device, Measured


def measure(
    board: Device,
    isa: str,
    widths: Sequence[tuple[int, int]],
    threads: int,
    names: Sequence[str],
    rounds: int,
    onnxruntime: bool,
    cpu: str = "",
) -> tuple[Measured, LayersReport | None]:
    """Return the board's answer, and a report of its times; None if an emulator ran it, whose times mean nothing.

    Layers are for `cpu`, or if that is "" for the board's own processor.
    """
    layers = [layer for layer in LAYERS if layer.name in names]
    cpu = cpu or board.cpu(isa)
    work = [
        (f"A{a}W{w} {layer.name}", layer_of(layer, isa, a, w, threads, cpu=cpu), codes_of(layer, a))
        for a, w in widths
        for layer in layers
    ]
    answer = board.measure(work, threads=threads, repeats=rounds, onnxruntime=onnxruntime)
    return answer, None if answer.emulator else _report(answer, isa, widths, threads, [x.name for x in layers])


def _report(
    answer: Measured, isa: str, widths: Sequence[tuple[int, int]], threads: int, names: list[str]
) -> LayersReport:
    """Return the report of an answer. Baselines do not depend on widths: the first width's are shown."""
    by_name = {x.name: x for x in answer.layers}
    first = f"A{widths[0][0]}W{widths[0][1]}"
    by_subject: dict[Subject, list[Sequence[float]]] = {
        Subject(NAME, "fp32"): [by_name[f"{first} {n}"].fp32_ns for n in names],
        Subject("onnxruntime fp32", "fp32"): [by_name[f"{first} {n}"].onnxruntime_ns for n in names],
    }
    for a, w in widths:
        by_subject[Subject(f"A{a}W{w}", "bitsynth")] = [by_name[f"A{a}W{w} {n}"].ns for n in names]
    timed = {who: times for who, times in by_subject.items() if all(times)}
    samples = min(len(t) for times in timed.values() for t in times)
    array = np.array([[t[:samples] for t in times] for times in timed.values()], float)
    about = {"board": {"before": str(answer.before), "after": str(answer.after)}}
    return LayersReport(isa, threads, rows(list(timed), names, array), about, answer.left_out)
