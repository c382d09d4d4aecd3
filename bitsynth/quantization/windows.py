"""Windows of images: the numbers that each result of a convolution or a pool is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

_Number = TypeVar("_Number", bound=np.floating)


def windows_of(
    x: NDArray[_Number],
    kernel: Sequence[int],
    pads: Sequence[tuple[int, int]] = (),
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    filler: float = 0.0,
) -> NDArray[_Number]:
    """Return the windows of `x` (N, C, *image) as a view (N, C, *results, *kernel).

    Args:
        x: The images.
        kernel: The size of a window along each axis of an image.
        pads: Numbers added before and after each axis; none if not given.
        strides: Steps from one window to the next; 1 if not given.
        dilations: Steps from one number of a window to the next; 1 if not given.
        filler: The number that is added.
    """
    axes = tuple(range(2, 2 + len(kernel)))
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=filler) if pads else x
    steps = [slice(None, None, step) for step in (*(strides or [1] * len(axes)), *(dilations or [1] * len(axes)))]
    spans = [(size - 1) * step.step + 1 for size, step in zip(kernel, steps[len(axes) :], strict=True)]
    return sliding_window_view(padded, spans, axis=axes)[(slice(None), slice(None), *steps)]
