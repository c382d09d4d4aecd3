"""Dense layers on numpy arrays: convolutions of one pixel a feature vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.conv import Conv2d
from bitsynth.layers.epilogues.checks import broadcast_to_channels
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.layer import Call, Results
from bitsynth.layers.packed import Description
from bitsynth.layers.spec import check_zero_point
from bitsynth.layers.weight_zeros import weights_of
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand, whole_array

TYPICAL_BATCH = 64
"""Feature vectors a schedule is chosen for if no `image` says how many: pixels of a line."""


class Dense(Conv2d):
    """A dense layer, exact to the bit: activations (N, in features), results (N, out features).

    Args:
        weight: Operand values (out features, in features), of any integer dtype, or floats that are whole.
        act_bits: Bits of activations, 1 to 8.
        w_bits: Bits of weights, 1 to 8.
        flatten: (height, width, channels) of images that the layer reads instead, flat or not, as a convolution of its
            layout gives them: codes (N, H, W, C), or words of each pixel's channels.
        flatten_order: The order of an image's features in `weight`: "NCHW", as PyTorch flattens images, or "NHWC".
        **options: Options of `Conv2d` that do not concern a window.

    Raises:
        SpecError: The arguments do not fit together.
        NoKernel: No kernel is cached for these widths, or found.
    """

    def __init__(
        self,
        weight: ArrayLike,
        act_bits: int,
        w_bits: int,
        *,
        flatten: tuple[int, int, int] | None = None,
        flatten_order: str = Layout.NCHW,
        **options: Any,
    ) -> None:
        values = whole_array(weight, "weight")
        if values.ndim != 2:
            raise SpecError(f"want a weight (out features, in features), not {values.shape}")
        if unfit := sorted({"stride", "padding", "dilation", "groups"} & set(options)):
            raise SpecError(f"a dense layer has no {', '.join(unfit)}")
        if Layout.NCHW in (options.get("layout"), options.get("out_layout")):
            raise SpecError("a dense layer's activations are (N, features): layouts are NHWC and packed")
        if flatten is not None:
            self._flat = _flat_image(flatten, options.get("layout") == Layout.PACKED)
            act, wgt = _operands(act_bits, w_bits, options)
            values = self._flat.weights(values, flatten_order, wgt.value(0) + options.get("weight_zero_point", 0))
            check_zero_point(zero_point := options.get("zero_point", 0))
            bias = broadcast_to_channels("bias", whole_array(options.get("bias", 0), "bias"), len(values), np.int32)
            options["bias"] = bias.astype(np.int64) - self._flat.idle_sum(act, wgt, zero_point)
        super().__init__(values[:, :, None, None], act_bits, w_bits, **{"image": (1, TYPICAL_BATCH), **options})

    def run(self, codes: NDArray[Any], *, residual: NDArray[Any] | None = None) -> Results:
        """Return the results for `codes` (N, in features) or of images: uint8, or words if the layout is packed.

        A `residual` is (N, out features).
        """
        return super().run(self._flatten(codes), residual=residual)

    def _run(self, codes: NDArray[Any], residual: NDArray[Any] | None) -> Results:
        codes = self._features(codes)
        more = self._residual(residual, len(codes))
        if not len(codes):
            out = np.empty((0, self.packed.out_shape(1, 1, 1)[-1]), self.packed.out_type)
            return self.packed.results(out, self.packed.room_for_sums((0, self.geometry.out_channels)))
        return _vectors(super()._run(codes[None, None], more))

    def _residual(self, given: Any, count: int) -> NDArray[Any] | None:
        """Return a residual of `count` vectors as the residual of a line of `count` pixels."""
        checked = self.packed.residual_operand(given, (count, self.geometry.out_channels))
        return None if checked is None else checked[None, None]

    def bind(
        self, codes: NDArray[Any], *, residual: NDArray[Any] | None = None, part: str = "run", times: int = 1
    ) -> tuple[Call, Results]:
        """Return a call that runs the layer on the same arrays, and the array of its results, as of `Conv2d.bound`.

        Args:
            codes: Codes (N, in features), or words if the layout is packed.
            residual: What the epilogue adds (N, out features).
            part: "run" for the whole layer, "pack" to pack the activations alone.
            times: Runs a call.
        """
        codes = self._features(codes)
        more = self._residual(residual, len(codes)) if part == "run" else None
        call, out = super().bind(codes[None, None], residual=more, part=part, times=times)
        return call, _vectors(out)

    def describe(self, codes: NDArray[Any]) -> Description:
        """Return the numbers and constants that describe this layer and `codes` (N, in features) to generic C."""
        return super().describe(self._features(codes)[None, None])

    def _flatten(self, codes: NDArray[Any]) -> NDArray[Any]:
        flat = self.plan.spec.flat
        return flat.features(codes, self.act) if flat and isinstance(codes, np.ndarray) else codes

    def _features(self, codes: NDArray[Any]) -> NDArray[Any]:
        codes = self._flatten(codes)
        if np.ndim(codes) != 2 or np.shape(codes)[1] != self.plan.spec.in_elements:
            raise SpecError(f"want activations (N, {self.plan.spec.in_elements}), not {np.shape(codes)}")
        return codes


def _vectors(results: Results) -> Results:
    """Return results of a line of pixels as vectors."""
    return tuple(x[0, 0] for x in results) if isinstance(results, tuple) else results[0, 0]


def _flat_image(shape: Any, packed: bool) -> FlatImage:
    if not isinstance(shape, tuple | list) or len(shape) != 3:
        raise SpecError(f"flatten must be (height, width, channels), not {shape!r}")
    height, width, channels = shape
    return FlatImage(height, width, channels, packed)


def _operands(act_bits: int, w_bits: int, options: Mapping[str, Any]) -> tuple[MatmulOperand, MatmulOperand]:
    """Return activations and weights, of the encodings in `options`."""
    act, wgt = options.get("act_encoding", Encoding.UNSIGNED), options.get("weight_encoding", Encoding.BIPOLAR)
    zero = options.get("weight_zero_point", 0)
    return MatmulOperand(act_bits, Encoding.parse(act)), weights_of(w_bits, wgt, zero)
