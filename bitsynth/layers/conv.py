"""Convolutions on numpy arrays, exact to the bit: the four steps of a layer in one object."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, TypeVar

from numpy.typing import ArrayLike, NDArray

from bitsynth.files import write_texts
from bitsynth.layers.epilogue import Epilogue
from bitsynth.layers.geometry import Geometry, Pair, geometry_of
from bitsynth.layers.layer import Call, Layer, compile
from bitsynth.layers.packed import Description, PackedLayer, pack
from bitsynth.layers.plan import LayerPlan, plan
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import MatmulKernel
from bitsynth.run.runner import Runner
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, plain_array

LayerT = TypeVar("LayerT", bound="Conv2d")


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

    A layer keeps copies of what it is given. Copied or pickled, it keeps its plan, unless another machine cannot run
    that; one of a `Pool` is copied with that, and cannot be pickled.

    Attributes: `packed` and its `plan` (`LayerSpec`, `plan`, `pack` and `compile` make them one by one), `compiled`.
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
        values, pool = plain_array(weight, "weight"), pool_of(threads)
        act = MatmulOperand(act_bits, Encoding.parse(act_encoding))
        wgt = MatmulOperand(w_bits, Encoding.parse(weight_encoding))
        geometry = geometry_of(values.shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
        spec = LayerSpec(act, wgt, geometry, layout, out_layout or "", image)
        planned = plan(spec, isa=isa, threads=pool.threads, schedule=schedule)
        self._set(pack(planned, values, epilogue), pool)

    def _set(self, packed: PackedLayer, pool: Pool) -> None:
        self.packed, self.pool = packed, pool
        self._compiled: Layer | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what was decided and packed: another process, or machine, compiles it, its pool of threads included.

        Raises TypeError for a layer of a `Pool`, whose threads are this process's.
        """
        return _derived, (type(self), self.packed, self.pool)

    def __copy__(self) -> Self:
        """A layer of the same plan, weights and pool, with scratch memory of its own."""
        return _derived(type(self), self.packed, self.pool)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<bitsynth {type(self).__name__} {self.geometry}, {self.kernel.name}>"

    @property
    def plan(self) -> LayerPlan:
        """What was decided: kernel and schedule."""
        return self.packed.plan

    @property
    def kernel(self) -> MatmulKernel:
        """The kernel, in the form that the schedule wants."""
        return self.plan.kernel

    @property
    def schedule(self) -> LayerSchedule:
        """How the layer is run."""
        return self.plan.schedule

    @property
    def origin(self) -> str:
        """Where the schedule is from, in words."""
        return self.plan.origin

    @property
    def geometry(self) -> Geometry:
        """Channels and window."""
        return self.plan.spec.geometry

    @property
    def layout(self) -> str:
        """How activations lie in memory."""
        return self.plan.spec.layout

    @property
    def out_layout(self) -> str:
        """How results lie in memory."""
        return self.plan.spec.out_layout

    @property
    def act(self) -> MatmulOperand:
        """Bits and encoding of activations."""
        return self.plan.spec.act

    @property
    def wgt(self) -> MatmulOperand:
        """Bits and encoding of weights."""
        return self.plan.spec.wgt

    @property
    def epilogue(self) -> Epilogue | None:
        """What becomes of sums."""
        return self.packed.epilogue

    @property
    def weight(self) -> NDArray[Any]:
        """The operand values (OC, IC / groups, KH, KW): a copy, not to be written, as that would change nothing."""
        return self.packed.weight

    @property
    def spec(self) -> MatmulSpec:
        """What the kernel multiplies, under the layer's encodings."""
        return self.kernel.spec

    @property
    def k_max(self) -> int:
        """The greatest sum of products, IC / groups * KH * KW, that no value of can leave int32."""
        return self.plan.k_max

    @property
    def source(self) -> str:
        """The kernel's C text."""
        return self.kernel.source

    @property
    def compiled(self) -> Layer:
        """What runs the layer, compiled when first asked for.

        Without a lock: `cached_property` has one for all layers, held while one compiles; a fork would keep it.
        """
        if self._compiled is None:
            self._compiled = compile(self.packed, self.pool)
        return self._compiled

    @property
    def runner(self) -> Runner:
        """What runs its machine code."""
        return self.compiled.runner

    def __call__(self, x: ArrayLike) -> NDArray[Any]:
        """The layer of values `x`, (N, H, W, C) or (N, C, H, W) of any integer type; of words where it is packed."""
        if self.layout == "packed":
            return self.run(plain_array(x, "x"))
        return self._run(self.act.encode(x, "x"))

    def run(self, codes: NDArray[Any]) -> NDArray[Any]:
        """The layer of codes: uint8 in the layer's layout, or uint64 words where that is packed."""
        self.plan.spec.check_codes(codes)
        return self._run(codes)

    def _run(self, codes: NDArray[Any]) -> NDArray[Any]:
        return self.compiled.run_checked(codes)

    def bound(self, codes: NDArray[Any], *, part: str = "run", times: int = 1) -> tuple[Call, NDArray[Any]]:
        """A call that runs the layer on `codes` `times` times, nothing left to look up, and where its result goes.

        With `part="pack"` it packs the activations alone. The layer's pool must stay open, and be left to the call.
        """
        return self.compiled.bound(codes, part=part, times=times)

    def described(self, codes: NDArray[Any]) -> Description:
        """What C that runs any layer (`layer_call.c.j2`) is told of this one: numbers, constants' bytes."""
        return self.packed.described(*self.plan.spec.shape(codes.reshape((1,) * (4 - codes.ndim) + codes.shape)))

    def files(self, name: str) -> dict[str, str]:
        """The layer as plain C under `name`: texts by file name, with self-test, example and CMakeLists.txt."""
        return self.packed.files(name)

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
                f"weights   {self.packed.constants.arrays['weights'].nbytes:,} bytes packed",
            )
        )


def _derived(kind: type[LayerT], packed: PackedLayer, pool: Pool) -> LayerT:
    """A layer of what another one packed; SpecError where the pool was closed."""
    layer = kind.__new__(kind)
    layer._set(packed, pool_of(pool))
    return layer
