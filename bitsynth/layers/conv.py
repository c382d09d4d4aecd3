"""Convolutions and dense layers on numpy arrays, exact to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.emit.layer import LayerText
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import write_texts
from bitsynth.isa.load import load, run_by
from bitsynth.layers import fork_safety
from bitsynth.layers.bind import scheduled_kernel
from bitsynth.layers.constants import LAYOUTS, Constants, constants
from bitsynth.layers.epilogue import Epilogue, Scale
from bitsynth.layers.geometry import Geometry, Pair, edges, pair
from bitsynth.layers.library import library
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import schedule_for
from bitsynth.layers.words import packed_words
from bitsynth.run.memory import aligned
from bitsynth.run.runner import Runner
from bitsynth.spec.matmul import Encoding, MatmulSpec, Operand, affine, plain_array

Array = NDArray[Any]
Call = Callable[[], int]
LayerT = TypeVar("LayerT", bound="Conv2d")
PARTS = ("run", "pack")
TYPICAL_IMAGE = (28, 28)
"""Height and width a default schedule is chosen for where none are given."""


class Conv2d:
    """A convolution of low-bit activations and weights (CGO 2020, section 3).

    It gives int32 sums, or what `epilogue` makes of them.

    `weight` (OC, IC / groups, KH, KW) holds operand values, as activations do. `layout` says how
    activations lie in memory, `out_layout` how results do: "NHWC", "NCHW" or "packed", words of
    64 channels (`packed_words`). `isa` is an instruction set, or "auto" for the best this
    processor has; `image`, (height, width), is what the schedule is chosen for: a tuned one where one is known
    for these threads too, else the default. A `schedule` of your own has an instruction set that the processors of
    `isa` run; with "auto" it may have any.

    `threads` is how many run it: the one that calls, alone unless more are asked for. Of a number above 1 all layers
    in the process share one pool, which stays; a `Pool` is shared by the layers it is given to, and can be closed.

    A layer keeps copies of what it is given. Copied or pickled, it is made anew of the same; one of a `Pool` is copied
    with that, and cannot be pickled.

    Attributes: `schedule`, `origin` (where that is from, in words), `source` (C text of kernel and runtime), `spec`,
    `geometry`, `kernel`, `weight`.
    Raises SpecError for what does not fit together, ToolError where it cannot be compiled or run.
    """

    def __init__(
        self,
        weight: ArrayLike,
        act_bits: int,
        w_bits: int,
        *,
        stride: Pair = 1,
        padding: Any = 0,
        dilation: Pair = 1,
        groups: int = 1,
        act_encoding: str = "unsigned",
        weight_encoding: str = "bipolar",
        layout: str = "NHWC",
        out_layout: str | None = None,
        isa: str = "auto",
        threads: int | Pool = 1,
        epilogue: Epilogue | None = None,
        image: tuple[int, int] | None = None,
        schedule: LayerSchedule | None = None,
    ) -> None:
        values = plain_array(weight, "weight")
        self.act, self.wgt = (
            Operand(act_bits, Encoding.parse(act_encoding)),
            Operand(w_bits, Encoding.parse(weight_encoding)),
        )
        self.geometry = _geometry(values, stride, padding, dilation, groups)
        self.layout, self.out_layout = _layouts(layout, out_layout or layout, epilogue)
        self.epilogue, self.pool = epilogue, pool_of(threads)
        size = pair("image", image, 1) if image else _typical(self.geometry)
        _check_schedule(schedule, isa)
        self._asked = {"isa": isa, "image": image, "schedule": schedule}
        self.schedule, self.origin = (
            (schedule, "as given")
            if schedule
            else schedule_for(self.act, self.wgt, self.geometry, size, isa, self.pool.threads)
        )
        self.kernel = scheduled_kernel(self.schedule, self.act, self.wgt)
        self._check_depth()
        self._codes = self.wgt.encode(values, "weight")
        self._constants = self._with_epilogue(
            constants(self.kernel.entry.kernel, self.spec, self.geometry, self._codes, self.schedule.gather)
        )
        self._numbers, self._bytes = self._constants.blob()
        self._arena, self._lock = np.zeros(0, np.uint8), Lock()
        self._runner: Runner | None = None
        fork_safety.register(self)

    def after_fork(self) -> None:
        """As if it did not run: the thread that ran it is not in a forked process."""
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the layer was made of: another process, or machine, makes it anew, its pool of threads included.

        Raises TypeError for a layer of a `Pool`, whose threads are this process's.
        """
        return _remade, (type(self), self.weight, self._options())

    def __copy__(self) -> Self:
        """A layer of the same pool."""
        return _remade(type(self), self.weight, self._options())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def _options(self) -> dict[str, Any]:
        g = self.geometry
        window = {"stride": g.stride, "padding": g.padding, "dilation": g.dilation, "groups": g.groups}
        operands = {
            "act_bits": self.act.bits,
            "w_bits": self.wgt.bits,
            "act_encoding": self.act.encoding.value,
            "weight_encoding": self.wgt.encoding.value,
        }
        made = {"layout": self.layout, "out_layout": self.out_layout, "epilogue": self.epilogue, "threads": self.pool}
        return {**operands, **window, **made, **self._asked}

    def __repr__(self) -> str:
        return f"<bitsynth {type(self).__name__} {self.geometry}, {self.kernel.name}>"

    @property
    def weight(self) -> Array:
        """The operand values (OC, IC / groups, KH, KW): a copy, not to be written, as that would change nothing."""
        values = self.wgt.decode(self._codes)
        values.flags.writeable = False
        return values

    @property
    def spec(self) -> MatmulSpec:
        return self.kernel.spec

    @property
    def k_max(self) -> int:
        """The greatest sum of products, IC / groups * KH * KW, that no value of can leave int32."""
        return self.spec.k_max >> affine(self.spec).shift

    @property
    def runner(self) -> Runner:
        """What runs its machine code.

        Without a lock: `cached_property` has one for all layers, held while one compiles; a fork would keep it.
        """
        if self._runner is None:
            self._runner = library(self.kernel)
        return self._runner

    def _check_depth(self) -> None:
        if self.geometry.depth > self.k_max:
            raise SpecError(
                f"sums of {self.geometry.depth} products may leave int32; "
                f"{self.spec.act} x {self.spec.wgt} takes {self.k_max}"
            )

    def _with_epilogue(self, made: Constants) -> Constants:
        numbers, arrays = self.epilogue.constants(self.geometry.out_channels) if self.epilogue else ({}, {})
        layouts = {"in_layout": LAYOUTS.index(self.layout), "out_layout": LAYOUTS.index(self.out_layout)}
        return Constants({**made.numbers, **self.schedule.numbers(), **layouts, **numbers}, {**made.arrays, **arrays})

    def __call__(self, x: ArrayLike) -> Array:
        """The layer of values `x`, (N, H, W, C) or (N, C, H, W) of any integer type; of words where it is packed."""
        if self.layout == "packed":
            return self.run(plain_array(x, "x"))
        return self._run(self.act.encode(x, "x"))

    def run(self, codes: Array) -> Array:
        """The layer of codes: uint8 in the layer's layout, or uint64 words where that is packed."""
        self._check_codes(codes)
        return self._run(codes)

    def _check_codes(self, codes: Array) -> None:
        """SpecError for what is no code of the encoding."""
        if isinstance(codes, np.ma.MaskedArray):
            raise SpecError("codes are a masked array; fill its gaps first, with .filled()")
        if codes.dtype != self._in_type:
            raise SpecError(f"want {self._in_type} codes, not {codes.dtype}")
        last = self.act.codes[-1]
        if self.layout != "packed":
            bad = codes.size and codes.max() > last
        else:
            bad = self.act.encoding is Encoding.TERNARY and (codes[..., ::2] & codes[..., 1::2]).any()
        if bad:
            raise SpecError(f"codes of {self.act} go to {last}; some are greater")

    def _run(self, codes: Array) -> Array:
        batch, height, width = self._shape(codes)
        out = np.empty(self._out_shape(batch, height, width), self._out_type)
        if out.size:
            self._call(np.require(codes, requirements=("C", "ALIGNED")), out, 1)
        return out

    def _call(self, codes: Array, out: Array, calls: int) -> None:
        """Run `calls` times from C; one thread of Python at a time, which has the scratch memory."""
        with self._lock, self.pool.acquire(self.runner) as pool:
            arguments = self._arguments(codes, out, pool, calls)
            self._check(self.runner.call(f"{self.kernel.name}_layer_run", *arguments, bits=32))

    def bound(self, codes: Array, *, part: str = "run", times: int = 1) -> tuple[Call, Array]:
        """A call that runs the layer on `codes` `times` times, nothing left to look up, and where its result goes.

        With `part="pack"` it packs the activations alone. The layer's pool must stay open, and be left to the call.
        """
        if part not in PARTS:
            raise SpecError(f"a layer's parts are {' and '.join(PARTS)}, not {part!r}")
        if type(times) is not int or times < 1:
            raise SpecError(f"times must be a whole number of at least 1, not {times!r}")
        self._check_codes(codes)
        shape = self._out_shape(*self._shape(codes))
        out = aligned(math.prod(shape), self._out_type).reshape(shape)
        if not out.size:
            return lambda: 0, out
        with self.pool.acquire(self.runner) as pool:
            arguments = self._arguments(np.require(codes, requirements=("C", "ALIGNED")), out, pool, times)
        call = self.runner.bind(f"{self.kernel.name}_layer_{part}", *arguments)
        return call, out

    def _arguments(self, codes: Array, out: Array, pool: int, calls: int) -> tuple[Any, ...]:
        numbers, constants = self.described(codes)
        _, height, width = numbers[-3:]
        size = self.runner.call(f"{self.kernel.name}_layer_arena", numbers, constants, self.pool.threads)
        if size < 0:
            raise SpecError(f"an input of {height} x {width} takes more scratch memory than {self.spec.isa} can have")
        if self._arena.size < size:
            self._arena = aligned(size, np.uint8)
        return numbers, constants, codes, out, self._arena, self._arena.size, pool, calls

    def _check(self, status: int) -> None:
        if status:
            raise ToolError(f"{self!r} failed with status {status}")

    def described(self, codes: Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """What C that runs any layer (`emit.layer.call_source`) is told of this one: numbers, constants' bytes."""
        numbers = self._numbers.copy()
        numbers[-3:] = self._shape(codes.reshape((1,) * (4 - codes.ndim) + codes.shape))
        return numbers, self._bytes

    @property
    def _in_type(self) -> np.dtype[Any]:
        return np.dtype(np.uint64 if self.layout == "packed" else np.uint8)

    @property
    def _in_elements(self) -> int:
        """Elements of a pixel of the input."""
        channels = self.geometry.in_channels
        return packed_words(self.act.bits, channels) if self.layout == "packed" else channels

    @property
    def _out_type(self) -> Any:
        if self.out_layout == "packed":
            return np.uint64
        return np.int32 if self.epilogue is None else np.float32 if isinstance(self.epilogue, Scale) else np.uint8

    def _shape(self, codes: Array) -> tuple[int, int, int]:
        """Batch, height and width of an input; SpecError where it is none of this layer."""
        channels, at = self._in_elements, 1 if self.layout == "NCHW" else 3
        if codes.ndim != 4 or codes.shape[at] != channels:
            letters = "N, C, H, W" if at == 1 else "N, H, W, C"
            raise SpecError(f"want activations ({letters}) with C = {channels}, not {codes.shape}")
        batch, height, width = (n for k, n in enumerate(codes.shape) if k != at)
        return batch, height, width

    def _out_shape(self, batch: int, height: int, width: int) -> tuple[int, ...]:
        rows, columns = self.geometry.output(height, width)
        channels = self.geometry.out_channels
        if self.out_layout == "packed":
            channels = packed_words(int(self._constants.numbers["out_bits"]), channels)
        return (batch, channels, rows, columns) if self.out_layout == "NCHW" else (batch, rows, columns, channels)

    @property
    def source(self) -> str:
        """The kernel's C text."""
        return self.kernel.source

    def files(self, name: str) -> dict[str, str]:
        """The layer as plain C under `name`: texts by file name, with self-test, example and CMakeLists.txt."""
        made = self._constants
        return LayerText(name, self.kernel.sealed.proved, self.spec, made.numbers, made.arrays, self._codes).files()

    def emit(self, folder: str | Path, name: str) -> list[Path]:
        """Write `files` into `folder`; their paths. SpecError, and none is written, if one would replace another's."""
        return write_texts(Path(folder), self.files(name))

    def explain(self) -> str:
        """What is run and why, in words."""
        cost = self.kernel.cost
        cycles = ", ".join(f"{cpu} {c:g}" for cpu, c in cost.cycles.items())
        return "\n".join(
            (
                f"{type(self).__name__} {self.geometry}, {self.spec.act} x {self.spec.wgt}",
                f"schedule  {self.schedule} ({self.origin})",
                f"kernel    {self.kernel.name}: {cost.ops_per_128_mac:g} ops per 128 MAC; cycles {cycles}",
                f"weights   {self._constants.arrays['weights'].nbytes:,} bytes packed",
            )
        )


class Dense(Conv2d):
    """A dense layer: `weight` (out features, in features), activations (N, in features).

    Options are those of `Conv2d` that do not concern a window.
    """

    def __init__(self, weight: ArrayLike, act_bits: int, w_bits: int, **options: Any) -> None:
        values = plain_array(weight, "weight")
        if values.ndim != 2:
            raise SpecError(f"want a weight (out features, in features), not {values.shape}")
        if unfit := sorted({"stride", "padding", "dilation", "groups"} & set(options)):
            raise SpecError(f"a dense layer has no {', '.join(unfit)}")
        if "NCHW" in (options.get("layout"), options.get("out_layout")):
            raise SpecError("a dense layer's activations are (N, features): layouts are NHWC and packed")
        super().__init__(values[:, :, None, None], act_bits, w_bits, **{"image": (1, 64), **options})

    def _run(self, codes: Array) -> Array:
        self._check_features(codes)
        if not len(codes):
            return np.empty((0, self._out_shape(1, 1, 1)[-1]), self._out_type)
        made: Array = super()._run(codes[None, None])[0, 0]
        return made

    def bound(self, codes: Array, *, part: str = "run", times: int = 1) -> tuple[Call, Array]:
        self._check_features(codes)
        call, out = super().bound(codes[None, None], part=part, times=times)
        return call, out[0, 0]

    def _check_features(self, codes: Array) -> None:
        if codes.ndim != 2 or codes.shape[1] != self._in_elements:
            raise SpecError(f"want activations (N, {self._in_elements}), not {codes.shape}")


def _remade(kind: type[LayerT], weight: Array, options: dict[str, Any]) -> LayerT:
    layer = kind.__new__(kind)
    Conv2d.__init__(layer, weight, **options)
    return layer


def _check_schedule(schedule: Any, isa: str) -> None:
    """SpecError for what is not a schedule, or is one of an instruction set that the processors of `isa` do not run."""
    if not isinstance(schedule, LayerSchedule | None):
        raise SpecError(f"a schedule is a LayerSchedule, not {schedule!r}")
    if schedule and isa != "auto" and schedule.isa not in (known := run_by(load(isa))):
        raise SpecError(f"isa is {isa}, the schedule's {schedule.isa}; want a schedule of {' or '.join(known)}")


def _geometry(weight: Array, stride: Any, padding: Any, dilation: Any, groups: Any) -> Geometry:
    if weight.ndim != 4:
        raise SpecError(f"want a weight (OC, IC / groups, KH, KW), not {weight.shape}")
    if type(groups) is not int or groups < 1:
        raise SpecError(f"groups must be a whole number of at least 1, not {groups!r}")
    out_channels, in_channels, high, wide = weight.shape
    return Geometry(
        in_channels * groups,
        out_channels,
        groups,
        (high, wide),
        pair("stride", stride, 1),
        edges(padding),
        pair("dilation", dilation, 1),
    )


def _typical(geometry: Geometry) -> tuple[int, int]:
    """An image as they come, with room for the window."""
    (top, left, bottom, right), reach = geometry.padding, geometry.reach
    return max(TYPICAL_IMAGE[0], reach[0] - top - bottom), max(TYPICAL_IMAGE[1], reach[1] - left - right)


def _layouts(layout: str, out_layout: str, epilogue: Epilogue | None) -> tuple[str, str]:
    for value in (layout, out_layout):
        if value not in LAYOUTS:
            raise SpecError(f"unknown layout {value!r}; known: {', '.join(LAYOUTS)}")
    if epilogue is not None and not isinstance(epilogue, Epilogue):
        raise SpecError(f"an epilogue is Scale, Requantize or Thresholds, not {epilogue!r}")
    if out_layout == "packed" and (epilogue is None or isinstance(epilogue, Scale)):
        raise SpecError("only codes can be packed: give Thresholds or Requantize, or another out_layout")
    return layout, out_layout
