"""Tables as they are given: of codes, and of floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import plain_array


def codes_table(table: ArrayLike, shapes: Sequence[tuple[int, ...]], last: int) -> NDArray[np.uint8]:
    """Codes from 0 to `last`; SpecError for other entries, or a table that has none of `shapes`."""
    given = plain_array(table, "table")
    _require(given, "iub", "integers", shapes)
    if (given < 0).any() or (given > last).any():
        raise SpecError(f"entries of the table are codes from 0 to {last}; some are not")
    return given.astype(np.uint8)


def floats_table(table: ArrayLike, shapes: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
    """Numbers rounded to float32; SpecError for those it does not hold, or a table that has none of `shapes`."""
    given = plain_array(table, "table")
    _require(given, "iuf", "numbers", shapes)
    with np.errstate(over="ignore"):
        made = given.astype(np.float32)
    if (np.isinf(made) & np.isfinite(given)).any():
        raise SpecError("the table has numbers that float32 does not hold")
    return made


def _require(given: NDArray[Any], kinds: str, wanted: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if given.dtype.kind not in kinds or given.shape not in shapes:
        said = " or ".join(map(str, dict.fromkeys(shapes)))
        raise SpecError(f"table must be {wanted} of shape {said}, not {given.dtype} {given.shape}")
