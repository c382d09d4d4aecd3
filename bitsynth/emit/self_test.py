"""The layer as its self-test computes it: weight codes, biases, and the epilogue as plain C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit import plain
from bitsynth.emit.initializers import elements
from bitsynth.emit.render import array
from bitsynth.kernel.elementwise.constants import shared_numbers
from bitsynth.kernel.elementwise.program import LEAST_UNIT, PlainProgram
from bitsynth.spec.elementwise import ElementwiseSpec


@dataclass(frozen=True, eq=False)
class SelfTestProgram:
    """A spec as plain C, with the constants of all channels and the numbers that all elements share, as bytes."""

    program: PlainProgram
    constants: NDArray[np.uint8]
    shared: NDArray[np.uint8]

    @classmethod
    def of(cls, spec: ElementwiseSpec, inputs: Mapping[str, NDArray[Any]], channels: int) -> SelfTestProgram:
        """Return the program of a spec for `channels` channels, with its `inputs` by name."""
        program = PlainProgram(spec, LEAST_UNIT)
        own = {x.name: inputs[x.name] for x in spec.inputs if x.per == "channel"}
        return cls(program, program.pack(channels, own), shared_numbers(spec, inputs))

    def text(self, name: str) -> str:
        """Return its function `name`, and its arrays."""
        arrays = [
            array(f"static const uint64_t {name}_{kind}[{len(words)}]", words)
            for kind, data in (("constants", self.constants), ("shared", self.shared))
            for words in [elements(data, "uint64_t")]
        ]
        return "\n".join([*arrays, "", plain.function(self.program, name)])


@dataclass(frozen=True, eq=False)
class SelfTestEpilogue:
    """The epilogue as the self-test computes it.

    Attributes:
        out: The type of results.
        program: The program of results of values; None if values are the results.
        residual: The type of the residual's elements; None without a residual.
        added: The program that adds the residual to accumulators; None without one.
        kept: The type of values.
    """

    out: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int32))
    program: SelfTestProgram | None = None
    residual: np.dtype[Any] | None = None
    added: SelfTestProgram | None = None
    kept: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int32))


@dataclass(frozen=True, eq=False)
class SelfTestLayer:
    """The layer as the self-test computes it: `weight` codes (OC, IC / groups, KH, KW), `bias` (OC), zero point."""

    weight: NDArray[np.uint8]
    bias: NDArray[np.int64]
    zero_point: int
    epilogue: SelfTestEpilogue
