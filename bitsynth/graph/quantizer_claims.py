"""Claims of a file's quantizer: its error against the float network, in the file's metadata and in certificates."""

from __future__ import annotations

from typing import Any

import msgspec

KEY = "bitsynth.quantize"
"""The name of the metadata of an ONNX file that has the claims as JSON."""
_MAX_TEXT = 1 << 16


class MeasuredErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measurements on the calibration inputs.

    Args:
        by: The program that ran the quantized network.
        samples: The calibration inputs.
        loss_is: "accuracy" or "error", as of the report of `bitsynth.quantize`.
        loss: The loss.
        standard_error: Its standard error.
        errors: The greatest absolute error seen, by output.
    """

    by: str
    samples: int
    loss_is: str
    loss: float
    standard_error: float
    errors: dict[str, float]


class ProvedErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of the error of every input in a box.

    Args:
        by: How they are proved.
        inputs: The box: the least and the greatest number of each input.
        errors: The greatest absolute error that is possible, by output; empty if there is no bound.
        errors_in_ranges: The same for inputs with which each quantized edge of the float network stays within the
            numbers that were seen.
        no_bound: Why there is none.
    """

    by: str
    inputs: dict[str, tuple[float, float]]
    errors: dict[str, float]
    errors_in_ranges: dict[str, float]
    no_bound: str


class QuantizerClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of the quantizer of a file; whoever only reads the file cannot check them."""

    about: str
    measured: MeasuredErrors
    proved: ProvedErrors


def claims_of(model: Any) -> QuantizerClaims | None:
    """Return the claims in the metadata of an ONNX model; None if it has none, or others than the quantizer writes."""
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), "")
    if not text or len(text) > _MAX_TEXT:
        return None
    try:
        return msgspec.json.decode(text, type=QuantizerClaims)
    except msgspec.DecodeError:
        return None


def add_claims(model: Any, claims: QuantizerClaims) -> None:
    """Write claims to the metadata of an ONNX model."""
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, msgspec.json.encode(claims).decode()
