"""Compiled layers, which run on the threads of a pool."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.runtime_abi import symbol
from bitsynth.errors import SpecError, ToolError
from bitsynth.layers.library import library
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.pool import Pool, pool_of, register_for_fork
from bitsynth.run.arguments import encode, make_aligned
from bitsynth.run.runner import Runner

Call = Callable[[], int]
Results = Any
"""An array of results; or a tuple of this array and the array of sums that a residual's `keep_sum` keeps."""
Tensors = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any], NDArray[Any] | None]
"""Codes, residual, results and kept sums of a call."""
PARTS = ("run", "pack")
MAX_FORMS = 64
"""The limit of input shapes whose sizes a layer remembers."""


class Scratch:
    """Memory that a layer's calls work in, one thread of Python at a time."""

    def __init__(self) -> None:
        self.arena, self.lock = np.zeros(0, np.uint8), Lock()
        register_for_fork(self)

    def after_fork(self) -> None:
        """Let go of the lock: the thread that held it is not in a forked process."""
        self.lock = Lock()

    def room(self, size: int) -> NDArray[np.uint8]:
        """Return at least `size` bytes; the lock is held, unless a bound call keeps them for itself."""
        if self.arena.size < size:
            self.arena = make_aligned(size, np.uint8)
        return self.arena


@dataclass(frozen=True)
class _Form:
    """Shapes of results and residuals for one input shape, its description for C, and bytes of scratch memory."""

    out: tuple[int, ...]
    tensor: tuple[int, ...]
    numbers: NDArray[np.int64]
    constants: NDArray[np.uint8]
    scratch: int


@dataclass(frozen=True, eq=False)
class Layer:
    """A compiled layer: `runner` has its machine code, `pool` the threads that run it."""

    packed: PackedLayer
    runner: Runner
    pool: Pool
    scratch: Scratch = field(default_factory=Scratch)
    _forms: dict[tuple[int, ...], _Form] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        return f"<bitsynth Layer {self.packed.plan.spec.geometry}, {self.packed.plan.kernel.name}>"

    def run(self, codes: NDArray[Any], residual: NDArray[Any] | None = None) -> Results:
        """Return the results for codes, uint8 in the layer's layout or packed words, and the epilogue's residual.

        SpecError for what is not an input of the layer, ToolError if it cannot be run.
        """
        self.packed.plan.spec.check_codes(codes)
        return self.run_checked(codes, residual)

    def codes(self, x: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the codes of values `x`, encoded by the layer's threads; SpecError names the first misfit."""
        with self.pool.acquire(self.runner) as pool:
            return encode(self.runner, self.packed.plan.spec.act, x, "x", pool)

    def run_checked(self, codes: NDArray[Any], residual: NDArray[Any] | None = None) -> Results:
        """Return `run` for codes that are known to be the encoding's."""
        form = self._form(codes)
        more = self.packed.residual_operand(residual, form.tensor)
        out, sums = np.empty(form.out, self.packed.out_type), self.packed.room_for_sums(form.tensor)
        if out.size:
            whole = codes.flags.c_contiguous and codes.flags.aligned
            given = codes if whole else np.require(codes, requirements=("C", "ALIGNED"))
            self.run_into(given, out, 1, residual=more, sums=sums)
        return self.packed.results(out, sums)

    def run_into(
        self,
        codes: NDArray[Any],
        out: NDArray[Any],
        calls: int,
        *,
        residual: NDArray[Any] | None = None,
        sums: NDArray[Any] | None = None,
    ) -> None:
        """Run `calls` times from C; one thread of Python at a time, which has the scratch memory."""
        with self.scratch.lock, self.pool.acquire(self.runner) as pool:
            given = self._arguments((codes, residual, out, sums), pool, calls)
            status = self.runner.call(self._symbol("run"), *given, bits=32)
        if status:
            raise ToolError(f"{self!r} failed with status {status}")

    def bind(
        self, codes: NDArray[Any], *, residual: NDArray[Any] | None = None, part: str = "run", times: int = 1
    ) -> tuple[Call, Results]:
        """Return a call that runs the layer `times` times on `codes`, with all look-ups done, and its result array.

        With `part="pack"` it packs the activations alone. The layer's pool must stay open, and be left to the call.
        """
        if part not in PARTS:
            raise SpecError(f"a layer's parts are {' and '.join(PARTS)}, not {part!r}")
        if type(times) is not int or times < 1:
            raise SpecError(f"times must be a whole number of at least 1, not {times!r}")
        self.packed.plan.spec.check_codes(codes)
        size = self.packed.plan.spec.shape(codes)
        shape, tensor = self.packed.out_shape(*size), self.packed.tensor_shape(*size)
        more = self.packed.residual_operand(residual, tensor) if part == "run" else None
        out, sums = (
            make_aligned(math.prod(shape), self.packed.out_type).reshape(shape),
            self.packed.room_for_sums(tensor),
        )
        if not out.size:
            return lambda: 0, self.packed.results(out, sums)
        with self.pool.acquire(self.runner) as pool:
            given = np.require(codes, requirements=("C", "ALIGNED")), more, out, sums
            arguments = self._arguments(given, pool, times)
        return self.runner.bind(self._symbol(part), *arguments), self.packed.results(out, sums)

    def _arguments(self, tensors: Tensors, pool: int, calls: int) -> tuple[Any, ...]:
        codes = tensors[0]
        form = self._form(codes)
        if form.scratch < 0:
            isa, (_, height, width) = self.packed.plan.kernel.spec.isa, self.packed.plan.spec.shape(codes)
            raise SpecError(f"an input of {height} x {width} takes more scratch memory than {isa} can have")
        arena = self.scratch.room(form.scratch)
        return form.numbers, form.constants, *tensors, arena, arena.size, pool, calls

    def _form(self, codes: NDArray[Any]) -> _Form:
        """Return the sizes of calls for this input shape, from a memo; raise SpecError if the shape does not fit."""
        form = self._forms.get(codes.shape)
        if form is None:
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
            batch, height, width = self.packed.plan.spec.shape(codes)
            out, tensor = (of(batch, height, width) for of in (self.packed.out_shape, self.packed.tensor_shape))
            numbers, constants = self.packed.describe(batch, height, width)
            scratch = self.runner.call(self._symbol("arena"), numbers, constants, self.pool.threads)
            form = self._forms[codes.shape] = _Form(out, tensor, numbers, constants, scratch)
        return form

    def _symbol(self, what: str) -> str:
        return symbol(self.packed.plan.kernel.name, what)


def compile(packed: PackedLayer, pool: Pool | None = None) -> Layer:
    """Compile a packed layer for this machine, natively or for an emulator, once for all layers of its kernel.

    Without a `pool` it has the one that all layers of its plan's threads share. ToolError if it cannot be
    compiled, or its code cannot be run.
    """
    lent = pool_of(packed.plan.threads if pool is None else pool)
    return Layer(packed, library(packed.plan.kernel, packed.programs), lent)
