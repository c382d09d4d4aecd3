"""What all layers of glue share: activations that they read and give, calls of C, and C text."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.command import command
from bitsynth.emit.glue import GlueText
from bitsynth.emit.glue_abi import INPUTS, GlueConstants
from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import write_texts
from bitsynth.layers.glue.programs import instruction_set, library, programs, requirements
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.layer import Call, Scratch
from bitsynth.layers.packed_codes import Packed, pack_words, packed_words, unpack_words
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.run.arguments import make_aligned
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand, is_one_of

T = TypeVar("T")
LAYOUTS = (Layout.NHWC, Layout.PACKED)
"""The layouts of glue."""
MAX_CHANNELS = 1 << 24


def require_channels(channels: Any) -> None:
    """Raise SpecError unless `channels` is a number of channels."""
    if type(channels) is not int or not 1 <= channels <= MAX_CHANNELS:
        raise SpecError(f"channels must be a whole number from 1 to {MAX_CHANNELS:,}, not {channels!r}")


@dataclass(frozen=True)
class Activations:
    """Activations (N, H, W, C): codes of `operand`, packed or not; without an operand, float32 or the type `others`.

    SpecError for another layout, packed floats, or an invalid number of channels.
    """

    channels: int
    operand: MatmulOperand | None
    layout: str = Layout.NHWC
    others: str = "float32"

    def __post_init__(self) -> None:
        require_channels(self.channels)
        object.__setattr__(self, "layout", Layout.parse(self.layout, LAYOUTS, "known to glue"))
        if self.layout == Layout.PACKED and self.operand is None:
            raise SpecError(f"only codes can be packed, not {self.others.replace('float32', 'floats')}")

    @property
    def bits(self) -> int:
        """Bits of a code, 0 of floats."""
        return self.operand.bits if self.operand else 0

    @property
    def last(self) -> int:
        """The greatest code, 0 of floats."""
        return self.operand.codes[-1] if self.operand else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        if self.layout == Layout.PACKED:
            return np.dtype(np.uint64)
        return np.dtype(np.uint8 if self.operand else self.others)

    @property
    def elements(self) -> int:
        """Elements of a pixel."""
        return packed_words(self.bits, self.channels) if self.layout == Layout.PACKED else self.channels

    def check(self, x: Any) -> NDArray[Any]:
        """Return `x` as C reads it; raise SpecError unless it is (N, H, W, C) of this type. C checks the codes."""
        if isinstance(x, np.ma.MaskedArray):
            raise SpecError("activations are a masked array; fill its gaps first, with .filled()")
        if isinstance(x, Packed):
            x = self._words(x)
        if not isinstance(x, np.ndarray) or x.dtype != self.dtype or x.ndim != 4 or x.shape[-1] != self.elements:
            came = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise SpecError(f"want {self.dtype} activations (N, H, W, C) with C = {self.elements}, not {came}")
        return np.require(x, requirements=("C", "ALIGNED"))

    def _words(self, x: Packed) -> NDArray[np.uint64]:
        if self.layout != Layout.PACKED or self.operand is None:
            raise SpecError("want activations of layout NHWC, not Packed words: unpack them")
        return x.require(self.operand, self.channels)

    def wrap(self, out: NDArray[Any]) -> NDArray[Any]:
        """Return results as the caller gets them: packed words with their type."""
        if self.layout != Layout.PACKED or self.operand is None:
            return out
        return Packed(out, self.bits, self.operand.encoding, self.channels)

    def plain(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the codes or floats (N, H, W, C) of an array in this layout."""
        return unpack_words(x, self.bits, self.channels) if self.layout == Layout.PACKED else x

    def lay_out(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return codes or floats (N, H, W, C) in this layout."""
        return pack_words(x, self.bits) if self.layout == Layout.PACKED else np.ascontiguousarray(x)


def codes_of(channels: int, bits: int | Quantization, encoding: str, layout: str) -> Activations:
    """Return activations of `bits`-bit codes, or of a quantization, which has an encoding of its own."""
    if isinstance(bits, Quantization):
        if not is_one_of(encoding, (Encoding.UNSIGNED, bits.encoding)):
            raise SpecError(f"codes of {bits.operand} are given, and another encoding, {encoding!r}")
        return Activations(channels, bits.operand, layout)
    return Activations(channels, MatmulOperand(bits, Encoding.parse(encoding)), layout)


def first_given(given: T | None, usual: T) -> T:
    """Return `given`, or `usual` if it is None."""
    return usual if given is None else given


_RUN = "bs_glue_described_run"
_CODES = -3
"""`BS_CODES`: an input has a code beyond its last."""
_MAX_EXAMPLE = 1 << 22
"""The limit of numbers in a self-test; each number takes some bytes of text."""
_MAX_COMMAND_LETTERS = 400
"""The longest arguments that a command on one line has."""
Numbers = Mapping[str, Number]
Arrays = Mapping[str, NDArray[Any]]


class Glue(ABC):
    """A layer between convolutions, exact to the bit. Each operation is a class of its own.

    Args:
        inputs: The activations it reads.
        output: The activations it gives.
        numbers: Numbers of `struct bs_glue` that the operation has of its own.
        arrays: Arrays of it.
        isa: The instruction set it is compiled for, or "auto" for the widest this processor has.
        threads: Threads that run it, or a `Pool`, as of `Conv2d`.
    """

    arguments: Mapping[str, Any]
    """The constructor's arguments by name, with which another process constructs the same layer."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Keep the arguments; there are none where a copy or a pickle is filled afterwards."""
        layer = super().__new__(cls)
        bound = signature(cls).bind_partial(*arguments, **options).arguments
        further = bound.pop("options", {})
        layer.arguments = {**bound, **further}
        return layer

    def __init__(
        self,
        inputs: Sequence[Activations],
        output: Activations,
        numbers: Numbers,
        arrays: Arrays | None = None,
        *,
        isa: str = "auto",
        threads: int | Pool = 1,
    ) -> None:
        self.inputs, self.output, self.pool = tuple(inputs), output, pool_of(threads)
        self.isa = instruction_set(isa)
        self.constants = GlueConstants({**self._of_activations(), **numbers}, arrays or {})
        self._scratch, self._size = Scratch(), 0
        self._sized: tuple[int, ...] = ()
        self._description = np.zeros(0, np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        """Copy or pickle everything but memory to work in."""
        return {name: value for name, value in vars(self).items() if name != "_scratch"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _scratch=Scratch())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a layer of the same pool, with scratch memory of its own."""
        return copy(self)

    def __repr__(self) -> str:
        return f"<bitsynth {type(self).__name__} {self.output.channels} channels>"

    def __call__(self, *inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the results for `inputs`: codes in uint8 (N, H, W, C), packed words, or floats in float32.

        Raises:
            SpecError: An input does not fit, or has codes that its bits and encoding do not hold.
            ToolError: The layer cannot be compiled or run.
        """
        given = self._check_inputs(inputs)
        out = self._empty(given)
        if out.size:
            self._run(given, out)
        return self.output.wrap(out)

    def bind(self, *inputs: NDArray[Any], times: int = 1) -> tuple[Call, NDArray[Any]]:
        """Return a call that runs the layer `times` times on the same `inputs`, and the array of its results.

        The call gives 0, or a status of `bs_glue_run`. The layer's pool must stay open, and be left to the call.
        """
        given = self._check_inputs(inputs)
        out, runner = self._empty(given), library(self.isa)
        if not out.size:
            return lambda: 0, self.output.wrap(out)
        with self.pool.acquire(runner) as pool:
            arguments = self._arguments(given, out, pool, times)
        return runner.bind(_RUN, *arguments), self.output.wrap(out)

    def _empty(self, given: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return memory for the results."""
        batch, height, width = given[0].shape[:3]
        shape = (batch, *self.out_size(height, width), self.output.elements)
        return make_aligned(math.prod(shape), self.output.dtype).reshape(shape)

    def _run(self, given: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
        """Run once; one thread of Python at a time, which has the scratch memory."""
        runner = library(self.isa)
        with self._scratch.lock, self.pool.acquire(runner) as pool:
            status = runner.call(_RUN, *self._arguments(given, out, pool, 1), bits=32)
        if status:
            raise self._error_of(status)

    def _arguments(self, given: Sequence[NDArray[Any]], out: NDArray[Any], pool: int, times: int) -> tuple[Any, ...]:
        shape = batch, height, width = given[0].shape[:3]
        if (*shape, times) != self._sized:
            described = self._describe_call((batch, height, width, 0, times))
            size = library(self.isa).call("bs_glue_described_arena", described, self.pool.threads)
            if size < 0:
                raise SpecError(f"an input of {height} x {width} is more than {self!r} can take")
            self._sized, self._size = (*shape, times), size
            self._description = self._describe_call((batch, height, width, size, times))
        arena = self._scratch.room(self._size)
        return self._description, out, arena, pool, *given, *[None] * (INPUTS - len(given))

    @abstractmethod
    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        """Return the results for unpacked `codes`, or floats, (N, H, W, C), by numpy: C must give the same."""

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the output for an input of `height` by `width`; raise SpecError if empty."""
        return height, width

    def files(self, name: str) -> dict[str, str]:
        """Return the layer as plain C under `name`: texts by file name, with a self-test and CMakeLists.txt."""
        isa, example = self.isa, self._example()
        text = GlueText(name, isa, self.constants, example, programs(isa), requirements(isa), self._command(name))
        return text.files()

    def _command(self, name: str) -> str:
        """Return the command that writes the layer as C under `name`; "" if no short text makes the layer."""
        own = {key: value for key, value in self.arguments.items() if key not in ("isa", "threads")}
        given = ", ".join(f"{key}={value!r}" for key, value in own.items())
        if not all(map(_is_literal, own.values())) or len(given) > _MAX_COMMAND_LETTERS:
            return ""
        layer = f'"{type(self).__name__}({given})"'
        return f"{command('emit-glue', layer, {'isa': self.isa, 'name': name})} -o FOLDER"

    def emit(self, folder: str | Path, name: str) -> list[Path]:
        """Write the files of the layer under `name` into `folder`; their paths.

        SpecError, and none is written, if one would replace another's file.
        """
        return write_texts(Path(folder), self.files(name))

    def _check_inputs(self, inputs: Sequence[Any]) -> list[NDArray[Any]]:
        if len(inputs) != len(self.inputs):
            raise SpecError(f"{self!r} takes {len(self.inputs)} inputs, not {len(inputs)}")
        checked = [kind.check(x) for kind, x in zip(self.inputs, inputs, strict=True)]
        given = [checked[next(k for k, other in enumerate(inputs) if other is x)] for x in inputs]
        sizes = {x.shape[:3] for x in given}
        if len(sizes) > 1:
            raise SpecError(f"inputs differ in size: {', '.join(str(x.shape[:3]) for x in given)}")
        return given

    def _describe_call(self, call: tuple[int, ...]) -> NDArray[np.uint8]:
        description = self.constants.describe(call)
        room = make_aligned(description.size, np.uint8)
        room[:] = description
        return room

    def _error_of(self, status: int) -> Exception:
        if status != _CODES:
            return ToolError(f"{self!r} failed with status {status}")
        limits = "; ".join(f"codes of {x.operand} go to {x.last}" for x in self.inputs)
        return SpecError(f"{limits}; some are greater")

    def _of_activations(self) -> Numbers:
        """Return the numbers of inputs and output."""
        numbers: dict[str, Number] = {"inputs": len(self.inputs), "in_layout": self.inputs[0].layout}
        for i, kind in enumerate(self.inputs):
            numbers |= {f"channels[{i}]": kind.channels, f"bits[{i}]": kind.bits, f"last[{i}]": kind.last}
        out = self.output
        numbers |= {"out_channels": out.channels, "out_bits": out.bits, "out_last": out.last, "out_layout": out.layout}
        return numbers

    def _example(self) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Return inputs of a small image and their results, for the self-test."""
        height, width = self._example_size()
        out_height, out_width = self.out_size(height, width)
        inputs, outputs = sum(kind.channels for kind in self.inputs), self.output.channels
        if (count := 2 * max(height * width * inputs, out_height * out_width * outputs)) > _MAX_EXAMPLE:
            raise SpecError(f"{self!r}: its self-test would have {count:,} numbers; the most is {_MAX_EXAMPLE:,}")
        rng, plain = np.random.default_rng(0), []
        for kind in self.inputs:
            shape = (2, height, width, kind.channels)
            floats = rng.normal(scale=4, size=shape).astype(np.float32)
            plain.append(rng.integers(0, kind.last + 1, shape, np.uint8) if kind.operand else floats)
        want = self.output.lay_out(self.meaning(*plain))
        return [kind.lay_out(x) for kind, x in zip(self.inputs, plain, strict=True)], want

    def _example_size(self) -> tuple[int, int]:
        return 5, 6


def _is_literal(value: Any) -> bool:
    """Return whether `repr` writes a value as `bitsynth emit-glue` reads it: numbers, words, and sequences of them."""
    if isinstance(value, tuple | list):
        return all(map(_is_literal, value))
    if isinstance(value, Quantization):
        return type(value.encoding) is str
    return value is None or type(value) in (bool, int, float, Layout) or (type(value) is str and '"' not in value)
