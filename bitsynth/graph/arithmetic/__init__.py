"""Arithmetic of the named references: floats of the file's types, intervals that hold real numbers, and fractions.

An operator is defined once, with `+ - * /` and the functions of an `Arithmetic`, and run in each of them.
"""

from __future__ import annotations

from bitsynth.graph.arithmetic.base import Arithmetic, Quantity
from bitsynth.graph.arithmetic.floats import Floats
from bitsynth.graph.arithmetic.fractions import Fractions, SomeFractions
from bitsynth.graph.arithmetic.intervals import Interval, Intervals, WideIntervals, interval

REFERENCES = ("exact", "onnxruntime", "onnx", "tflite")

__all__ = [
    "REFERENCES",
    "Arithmetic",
    "Floats",
    "Fractions",
    "Interval",
    "Intervals",
    "Quantity",
    "SomeFractions",
    "WideIntervals",
    "arithmetic_of",
    "interval",
]


def arithmetic_of(reference: str) -> Arithmetic:
    """Return the arithmetic of a named reference."""
    return Intervals() if reference == "exact" else Floats(reference)
