"""Dense layers on numpy arrays: convolutions of one pixel a feature vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.conv import Conv2d
from bitsynth.layers.layer import Call
from bitsynth.layers.packed import Description
from bitsynth.spec.matmul import whole_array

TYPICAL_BATCH = 64
"""Feature vectors a schedule is chosen for if no `image` says how many: pixels of a line."""


class Dense(Conv2d):
    """A dense layer, exact to the bit: activations (N, in features), results (N, out features).

    Args:
        weight: Operand values (out features, in features), of any integer dtype, or floats that are whole.
        act_bits: Bits of activations, 1 to 8.
        w_bits: Bits of weights, 1 to 8.
        **options: Those of `Conv2d` that do not concern a window.

    Raises:
        SpecError: The arguments do not fit together.
        NoKernel: No kernel is cached for these widths, or found.
    """

    def __init__(self, weight: ArrayLike, act_bits: int, w_bits: int, **options: Any) -> None:
        values = whole_array(weight, "weight")
        if values.ndim != 2:
            raise SpecError(f"want a weight (out features, in features), not {values.shape}")
        if unfit := sorted({"stride", "padding", "dilation", "groups"} & set(options)):
            raise SpecError(f"a dense layer has no {', '.join(unfit)}")
        if "NCHW" in (options.get("layout"), options.get("out_layout")):
            raise SpecError("a dense layer's activations are (N, features): layouts are NHWC and packed")
        super().__init__(values[:, :, None, None], act_bits, w_bits, **{"image": (1, TYPICAL_BATCH), **options})

    def _run(self, codes: NDArray[Any]) -> NDArray[Any]:
        self._check_features(codes)
        if not len(codes):
            return self.packed.typed(np.empty((0, self.packed.out_shape(1, 1, 1)[-1]), self.packed.out_type))
        made: NDArray[Any] = super()._run(codes[None, None])[0, 0]
        return made

    def bound(self, codes: NDArray[Any], *, part: str = "run", times: int = 1) -> tuple[Call, NDArray[Any]]:
        """A call that runs the layer on the same arrays, and the array of its results, as of `Conv2d.bound`.

        Args:
            codes: Codes (N, in features), or words if the layout is packed.
            part: "run" for the whole layer, "pack" to pack the activations alone.
            times: Runs a call.
        """
        self._check_features(codes)
        call, out = super().bound(codes[None, None], part=part, times=times)
        return call, out[0, 0]

    def described(self, codes: NDArray[Any]) -> Description:
        """The numbers and bytes of constants that C for any layer takes of this one and `codes` (N, in features)."""
        return super().described(codes[None, None])

    def _check_features(self, codes: NDArray[Any]) -> None:
        if codes.ndim != 2 or codes.shape[1] != self.plan.spec.in_elements:
            raise SpecError(f"want activations (N, {self.plan.spec.in_elements}), not {codes.shape}")
