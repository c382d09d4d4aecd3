"""Epilogues of a layer's int32 sums: floats, or codes for the next layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError
from bitsynth.spec.matmul import MAX_BITS, plain_array


@dataclass(frozen=True, eq=False)
class Scale:
    """float32 results: scale * sum + bias.

    Sum, product and result are each rounded to float32, as numpy does: C compiled with -ffast-math is refused.

    Args:
        scale: One factor a channel, or one for all.
        bias: One summand a channel, or one for all.
    """

    scale: ArrayLike
    bias: ArrayLike = 0.0

    def __post_init__(self) -> None:
        _keep(self, scale="scale", bias="bias")

    def constants(self, channels: int) -> tuple[dict[str, Number], dict[str, NDArray[Any]]]:
        """The numbers and arrays of the C runtime, for `channels` output channels."""
        arrays = {
            "scale": _channels("scale", self.scale, channels, np.float32),
            "bias": _channels("bias", self.bias, channels, np.float32),
        }
        return {"epilogue": "scale"}, arrays


@dataclass(frozen=True, eq=False)
class Requantize:
    """Codes: (sum * multiplier + half) >> shift, clamped to 0 .. 2**bits - 1; half is 2**(shift - 1), or 0 for shift 0.

    Args:
        multiplier: One int32 a channel, or one for all.
        shift: Bits of the shift to the right, 0 to 62.
        bits: Bits of a code, 1 to 8.
    """

    multiplier: ArrayLike
    shift: int
    bits: int

    def __post_init__(self) -> None:
        _keep(self, multiplier="multiplier")

    def constants(self, channels: int) -> tuple[dict[str, Number], dict[str, NDArray[Any]]]:
        """The numbers and arrays of the C runtime, for `channels` output channels."""
        _check_bits(self.bits)
        if type(self.shift) is not int or not 0 <= self.shift <= 62:
            raise SpecError(f"shift must be a whole number from 0 to 62, not {self.shift!r}")
        arrays = {"multiplier": _channels("multiplier", self.multiplier, channels, np.int32)}
        return {"epilogue": "requantize", "multiplier_shift": self.shift, "out_bits": self.bits}, arrays


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Codes: the number of a channel's thresholds that lie below its sum.

    Args:
        values: Integers (channels, levels), 1 to 255 levels. Codes of n bits take at most 2**n - 1 of them.
    """

    values: ArrayLike

    def __post_init__(self) -> None:
        _keep(self, values="thresholds")

    @property
    def bits(self) -> int:
        """Bits of a code: the fewest that hold the number of levels."""
        return max(1, int(self._levels().shape[1]).bit_length())

    def _levels(self) -> NDArray[Any]:
        values = np.asarray(self.values)
        if values.ndim != 2 or values.dtype.kind not in "iu" or not 1 <= values.shape[1] < 1 << MAX_BITS:
            raise SpecError(f"thresholds must be integers (channels, 1 to 255), not {values.dtype} {values.shape}")
        return values

    def constants(self, channels: int) -> tuple[dict[str, Number], dict[str, NDArray[Any]]]:
        """The numbers and arrays of the C runtime, for `channels` output channels."""
        levels = self._levels()
        if len(levels) != channels:
            raise SpecError(f"{len(levels)} channels of thresholds for {channels} output channels")
        info = np.iinfo(np.int32)
        if levels.dtype.kind == "u":
            levels = np.minimum(levels.astype(np.uint64), np.uint64(info.max))
        clipped = levels.astype(np.int64).clip(info.min, info.max).astype(np.int32)
        count = levels.shape[1]
        numbers: dict[str, Number] = {"epilogue": "thresholds", "threshold_count": count, "out_bits": self.bits}
        return numbers, {"thresholds": np.ascontiguousarray(clipped.T)}


Epilogue = Scale | Requantize | Thresholds


def check_epilogue(epilogue: Any, out_layout: str) -> None:
    """SpecError for what is not an epilogue, or is one whose results cannot lie as `out_layout` says."""
    if epilogue is not None and not isinstance(epilogue, Epilogue):
        raise SpecError(f"an epilogue is Scale, Requantize or Thresholds, not {epilogue!r}")
    if out_layout == "packed" and (epilogue is None or isinstance(epilogue, Scale)):
        raise SpecError("only codes can be packed: give Thresholds or Requantize, or another out_layout")


def _check_bits(bits: Any) -> None:
    if type(bits) is not int or not 1 <= bits <= MAX_BITS:
        raise SpecError(f"bits must be a whole number from 1 to {MAX_BITS}, not {bits!r}")


def _keep(epilogue: Epilogue, **names: str) -> None:
    """Put read-only copies, called so in errors, in the place of arrays that the caller may edit later."""
    for attribute, name in names.items():
        kept = plain_array(getattr(epilogue, attribute), name).copy()
        kept.flags.writeable = False
        object.__setattr__(epilogue, attribute, kept)


def _channels(name: str, value: ArrayLike, channels: int, dtype: Any) -> NDArray[Any]:
    """One number a channel as `dtype`; SpecError for what `value` does not hold."""
    given = np.asarray(value)
    kinds = "iu" if np.dtype(dtype).kind == "i" else "iuf"
    if given.dtype.kind not in kinds or given.shape not in ((), (1,), (channels,)):
        raise SpecError(f"{name} must be one number or {channels} of them, not {given.dtype} {given.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.broadcast_to(given, (channels,)).astype(dtype)
    if not np.isfinite(made.astype(np.float64)).all() or (np.dtype(dtype).kind == "i" and (made != given).any()):
        raise SpecError(f"{name} has numbers that {np.dtype(dtype)} does not hold")
    return np.ascontiguousarray(made)
