"""What the self-test of an emitted layer makes of sums, by the epilogue's own numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.layer import SelfTestEpilogue
from bitsynth.layers.epilogues.base import INT32, broadcast_to_channels, factors
from bitsynth.layers.epilogues.kinds import (
    Epilogue,
    FixedPoint,
    Requantize,
    Rescale,
    Scale,
    Thresholds,
    floats_of,
    levels_of,
)
from bitsynth.spec.rescaling import FIXED_SHIFT


def self_test_epilogue(epilogue: Epilogue | None, channels: int) -> SelfTestEpilogue:
    """Return the epilogue of `channels` output channels as the self-test computes it."""
    if epilogue is None:
        return SelfTestEpilogue()
    made, residual = _without_residual(epilogue, channels), epilogue.residual
    if residual is None:
        return made
    scale = factors(residual, channels, not isinstance(epilogue, Scale | Rescale))
    numbers = {**made.numbers, "residual_zero": residual.zero_point}
    arrays = {**made.arrays, "residual_scale": scale}
    return replace(made, numbers=numbers, arrays=arrays, residual=np.dtype(residual.type))


def _without_residual(epilogue: Epilogue, channels: int) -> SelfTestEpilogue:
    if isinstance(epilogue, Thresholds):
        return _thresholds(epilogue, channels)
    if isinstance(epilogue, Requantize):
        numbers = {"shift": epilogue.shift, "even": int(epilogue.rounding == "even"), **_codes(epilogue)}
        multiplier = broadcast_to_channels("multiplier", epilogue.multiplier, channels, np.int32)
        return SelfTestEpilogue("requantize", epilogue.out_type, numbers, {"multiplier": multiplier})
    if isinstance(epilogue, Rescale):
        arrays = floats_of(epilogue, channels)
        if epilogue.gate is not None:
            arrays["gate"] = np.asarray(epilogue.gate, np.float32)
        return SelfTestEpilogue("rescale", epilogue.out_type, _codes(epilogue), arrays)
    if isinstance(epilogue, FixedPoint):
        return _fixed_point(epilogue, channels)
    return SelfTestEpilogue("scale", epilogue.out_type, {}, floats_of(epilogue, channels))


def _thresholds(epilogue: Thresholds, channels: int) -> SelfTestEpilogue:
    given, rising = levels_of(epilogue, channels)
    arrays: dict[str, NDArray[Any]] = {"thresholds": np.ascontiguousarray(given.T.clip(INT32.min, INT32.max), np.int32)}
    if not rising.all():
        arrays["rising"] = rising.astype(np.int32)
    return SelfTestEpilogue("thresholds", epilogue.out_type, {"levels": given.shape[1]}, arrays)


def _fixed_point(epilogue: FixedPoint, channels: int) -> SelfTestEpilogue:
    least, most = epilogue.window(channels)
    multiplier, summand = epilogue.line.of(channels)
    numbers = {"shift": FIXED_SHIFT}
    if epilogue.then:
        factor, more = epilogue.then.of(1)
        numbers |= {"then_multiplier": int(factor[0]), "then_summand": int(more[0])}
    named = {"least": least, "most": most, "multiplier": multiplier, "summand": summand}
    arrays = {name: x.astype(np.int32) for name, x in named.items()}
    return SelfTestEpilogue("fixed_point", epilogue.out_type, numbers, arrays)


def _codes(epilogue: Requantize | Rescale) -> dict[str, int]:
    low, high = epilogue.codes
    return {"zero_point": epilogue.zero_point, "low": low, "high": high}
