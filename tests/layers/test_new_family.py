"""A family of epilogues is one class: a layer computes it without any other part that knows it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from bitsynth.layers import Conv2d
from bitsynth.layers.epilogues import CodesEpilogue
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.network.certificate.recipe import CLASSES
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.rescaling import SUM


@dataclass(frozen=True, eq=False)
class Halves(CodesEpilogue):
    """Codes: half the size of the accumulator, at most 255."""

    bits: int = 8
    residual: Residual | None = None

    @property
    def codes(self) -> tuple[int, int]:
        return 0, 255

    @property
    def out_type(self) -> np.dtype:
        return np.dtype(np.uint8)

    def _results(self, values: np.ndarray) -> np.ndarray:
        return (np.abs(values.astype(np.int64)) >> 1).clip(0, 255).astype(np.uint8)

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        if sums.are_values and not planes:
            yield ElementwiseSpec("halves_u8", (SUM,), "uclamp(lsr(smax(s, ~s + 1), 1), 8)", "u8"), {}


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_a_layer_computes_a_family_of_its_own(isa):
    rng = np.random.default_rng(7)
    w = rng.choice([-1, 1], (5, 64, 3, 3))
    x = rng.integers(0, 4, (2, 6, 7, 64))
    sums = Conv2d(w, act_bits=2, w_bits=1, padding=1, isa=isa)(x)
    result = Conv2d(w, act_bits=2, w_bits=1, padding=1, isa=isa, epilogue=Halves())(x)
    assert result.dtype == np.uint8
    assert (result == np.minimum(np.abs(sums) // 2, 255)).all()
    assert len(np.unique(result)) > 9


def test_certificates_name_no_class_that_is_not_exported():
    assert "Halves" not in CLASSES
    assert {"Thresholds", "Rescale", "Scale", "Requantize", "FixedPoint", "Residual"} < CLASSES.keys()
    assert not {"Epilogue", "CodesEpilogue", "ClampedCodes"} & CLASSES.keys()
