"""bitsynth's own layers as subjects: the whole call, and of it the packing of activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.baselines.convolution import convolve
from bitsynth.bench.call_times import LocalSubject, TimedSubject
from bitsynth.bench.layer_forms import SUMS, LayerForm
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer
from bitsynth.errors import Refuted
from bitsynth.layers import Conv2d
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.spec.matmul import Encoding, MatmulOperand

PACKING = " packing"
_PACKINGS = 16
"""Packings of one call: with one, what Python takes for it would count as packing."""


def subjects(
    isa: str, act_bits: int, w_bits: int, threads: int, names: Sequence[str], form: LayerForm = SUMS
) -> list[TimedSubject]:
    """Return the layers called `names` in a form, seeded random weights, each checked once; Refuted if one is wrong."""
    whole: dict[str, Callable[[], object]] = {}
    packing: dict[str, Callable[[], object]] = {}
    for layer in LAYERS:
        if layer.name in names:
            conv, codes, whole[layer.name] = in_form(layer, isa, act_bits, w_bits, form, threads)
            packing[layer.name] = conv.bind(codes, part="pack", times=_PACKINGS)[0]
    name = subject_name(act_bits, w_bits, form.options.get("weight_encoding", Encoding.BIPOLAR))
    return [
        LocalSubject(name, "bitsynth", whole, threads),
        LocalSubject(name + PACKING, "packing", packing, threads, _PACKINGS),
    ]


def subject_name(act_bits: int, w_bits: int, weight_encoding: str) -> str:
    """Return widths as A2W1, and the weights' encoding if it is not bipolar."""
    return f"A{act_bits}W{w_bits}" + (f" {weight_encoding}" if weight_encoding != Encoding.BIPOLAR else "")


def layer_of(
    layer: ResNetLayer,
    isa: str,
    act_bits: int,
    w_bits: int,
    threads: int = 1,
    schedule: LayerSchedule | None = None,
    **options: Any,
) -> Conv2d:
    """Return the layer with random weights, bipolar as in DoReFa networks unless `options` differ.

    Weights of any encoding have the same codes.
    """
    wgt = MatmulOperand(w_bits, Encoding.parse(options.get("weight_encoding", "bipolar")))
    shape = layer.out_channels, layer.in_channels, layer.kernel, layer.kernel
    codes = np.random.default_rng(layer.macs).integers(0, len(wgt.codes), shape)
    window: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "image": layer.image}
    return Conv2d(
        wgt.decode(codes.astype(np.uint8)),
        act_bits,
        w_bits,
        isa=isa,
        threads=threads,
        schedule=schedule,
        **window,
        **options,
    )


def codes_of(layer: ResNetLayer, act_bits: int) -> NDArray[np.uint8]:
    """Return seeded random activations, (1, H, W, C)."""
    shape = 1, layer.height, layer.height, layer.in_channels
    return np.random.default_rng(0).integers(0, 1 << act_bits, shape, np.uint8)


def prepare_call(
    layer: ResNetLayer, isa: str, act_bits: int, w_bits: int, threads: int = 1, schedule: LayerSchedule | None = None
) -> tuple[Conv2d, NDArray[np.uint8], Callable[[], object]]:
    """Return the layer, activations, and a call of it on those; Refuted if a sum is wrong."""
    conv, codes = layer_of(layer, isa, act_bits, w_bits, threads, schedule), codes_of(layer, act_bits)
    call, out = conv.bind(codes)
    call()
    require_exact(layer, conv, codes, out)
    return conv, codes, call


def in_form(
    layer: ResNetLayer, isa: str, act_bits: int, w_bits: int, form: LayerForm, threads: int = 1, times: int = 1
) -> tuple[Conv2d, NDArray[Any], Callable[[], object]]:
    """Return the layer in a form, its input, and a call that runs it `times` times; Refuted if a result is wrong."""
    codes = codes_of(layer, act_bits)
    sums = exact_sums(layer, layer_of(layer, isa, act_bits, w_bits, **form.options), codes)
    epilogue = form.make_epilogue(sums, act_bits)
    options: dict[str, Any] = {"layout": form.layout, "out_layout": form.out_layout, "epilogue": epilogue}
    conv = layer_of(layer, isa, act_bits, w_bits, threads, **form.options, **options)
    given = conv.act.decode(codes).astype(form.values) if form.values else form.codes(codes, act_bits)
    more = form.elements(sums)
    call, out = _call_repeatedly(conv, given, times) if form.values else conv.bind(given, residual=more, times=times)
    call()
    if not np.array_equal(out, form.results(epilogue, sums, act_bits)):
        raise Refuted(f"{layer.name}, {form.name}: {conv!r} gives a wrong result")
    return conv, given, call


def _call_repeatedly(conv: Conv2d, values: NDArray[Any], times: int) -> tuple[Callable[[], object], NDArray[Any]]:
    """Return a function that calls the layer on `values` `times` times, as Python does, and the layer's results."""

    def call() -> None:
        for _ in range(times):
            conv(values)

    return call, conv(values)


def exact_sums(layer: ResNetLayer, conv: Conv2d, codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the integer convolution (N, H, W, C) of codes."""
    exact = convolve(
        conv.act.decode(codes).transpose(0, 3, 1, 2).astype(np.float64), conv.weight, layer.stride, layer.padding
    )
    return exact.transpose(0, 2, 3, 1).astype(np.int64)


def require_exact(layer: ResNetLayer, conv: Conv2d, codes: NDArray[np.uint8], out: NDArray[np.int32]) -> None:
    """Raise Refuted unless `out` is the integer convolution."""
    if not np.array_equal(out, exact_sums(layer, conv, codes)):
        raise Refuted(f"{layer.name}: {conv!r} gives a wrong sum")
