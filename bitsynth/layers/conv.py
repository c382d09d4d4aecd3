"""Convolutions on numpy arrays, exact to the bit: the four steps of a layer in one object."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, TypeVar

from numpy.typing import ArrayLike, NDArray

from bitsynth.files import write_texts
from bitsynth.layers.epilogues import Epilogue, gives_codes
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.geometry import Pair, geometry_of
from bitsynth.layers.layer import Call, Layer, Results, compile
from bitsynth.layers.packed import Description, PackedLayer
from bitsynth.layers.packed_codes import Packed
from bitsynth.layers.planning import plan
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.weight_zeros import encode_weights, weights_of
from bitsynth.progress import Progress
from bitsynth.run.runner import Runner
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand, is_one_of, plain_array, whole_array

LayerT = TypeVar("LayerT", bound="Conv2d")


class Conv2d:
    """A convolution of low-bit activations and weights (CGO 2020, section 3), exact to the bit.

    It gives int32 sums, or the results of `epilogue`. A layer keeps copies of its arguments. A copied or pickled layer
    keeps its plan, unless another machine cannot run it. A layer with a `Pool` shares the pool with its copies, and
    cannot be pickled.

    Args:
        weight: Operand values (OC, IC / groups, KH, KW), of any integer dtype, or floats that are whole.
        act_bits: Bits of activations, 1 to 8.
        w_bits: Bits of weights, 1 to 8.
        stride: Pixels between windows, one number or (height, width).
        padding: Zeros around the image: one number, (height, width) or (top, left, bottom, right); "same" for an output
            as large as the input, with stride 1.
        dilation: Pixels between taps, one number or (height, width).
        groups: Groups of channels, each convolved by itself.
        act_encoding: The values of activations: "unsigned", "signed", "bipolar", "ternary" or "narrow".
        weight_encoding: The values that the codes of weights stand for.
        zero_point: The value of activations that stands for 0: products are of (activation - zero point) and weight.
            Padding has it.
        weight_zero_point: The value of weights that stands for 0, of unsigned ones: products are of (weight - this).
        bias: Integers that are added to the sums, one a channel, or one for all.
        layout: Activations in memory: "NHWC", "NCHW" or "packed", words of 64 channels (`packed_words`).
        out_layout: The layout of results; if None as `layout`, but "NHWC" if that is "packed" and results are no codes.
            Results of layout "packed" are `Packed`.
        out_encoding: The values that packed results stand for; only a layer of this `act_encoding` takes
            them. None for any.
        isa: An instruction set, or "auto" for the best this processor has.
        cpu: The processor of the set that the layer is to be fast on, such as "a72"; "" for this one, or if it is not
            known, or does not run the set, the first that the set names.
        threads: Threads that run it: the one that calls, alone unless more are asked for. Of a number above 1 all
            layers in the process share one pool, which stays; a `Pool` is shared by the layers it is given to, and
            can be closed.
        epilogue: `Scale`, `Requantize`, `Rescale` or `Thresholds` of the int32 sums, or None.
        image: (height, width) that the schedule is chosen for.
        solve: Whether to find, prove and cache a kernel if none is cached for these widths, which may take minutes;
            stderr tells how far it is, or the `Progress` that is given instead.
        schedule: A schedule of your own, of an instruction set that the processors of `isa` run, with "auto" of any.
            If None, a tuned one if one is known for these sizes and threads, else the default.

    Attributes:
        packed: Weights and epilogue, packed for the plan; `LayerSpec`, `plan`, `pack` and `compile` make a layer step
            by step.
        plan: The decisions on the layer.
        schedule: The schedule that runs it.
        origin: Where the schedule is from, in words.
        kernel: The kernel, in the form that the schedule wants.
        k_max: The most products in a sum, IC / groups * KH * KW, for which no sum can leave int32.
        geometry: Channels and window.
        act: Bits and encoding of activations.
        wgt: Bits and encoding of weights.
        layout: Activations in memory.
        out_layout: Results in memory.
        epilogue: The epilogue of the sums, or None.
        pool: The threads that run it.

    Raises:
        SpecError: The arguments do not fit together.
        NoKernel: No kernel is cached for these widths, or found.
    """

    _flat: FlatImage | None = None
    """The image whose elements are the features of a dense layer."""

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
        zero_point: int = 0,
        weight_zero_point: int = 0,
        bias: ArrayLike = 0,
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        out_encoding: str | None = None,
        isa: str = "auto",
        cpu: str = "",
        threads: int | Pool = 1,
        epilogue: Epilogue | None = None,
        image: tuple[int, int] | None = None,
        schedule: LayerSchedule | None = None,
        solve: bool | Progress = False,
    ) -> None:
        values, pool = whole_array(weight, "weight"), pool_of(threads)
        act = MatmulOperand(act_bits, Encoding.parse(act_encoding))
        wgt = weights_of(w_bits, weight_encoding, weight_zero_point)
        geometry = geometry_of(values.shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
        lies = out_layout
        if lies is None:
            lies = Layout.NHWC if is_one_of(layout, (Layout.PACKED,)) and not gives_codes(epilogue) else layout
        means = "" if out_encoding is None else out_encoding
        spec = LayerSpec(act, wgt, geometry, layout, lies, image, means, zero_point, self._flat)
        planned = plan(spec, isa=isa, cpu=cpu, threads=pool.threads, schedule=schedule, solve=solve)
        codes = encode_weights(values, wgt, weight_zero_point)
        self._set(PackedLayer(planned, codes, epilogue, bias), pool)

    def _set(self, packed: PackedLayer, pool: Pool) -> None:
        self.packed, self.plan, self.epilogue, self.pool = packed, packed.plan, packed.epilogue, pool
        self.kernel, self.schedule, self.origin = self.plan.kernel, self.plan.schedule, self.plan.origin
        self.k_max, wanted = self.plan.k_max, self.plan.spec
        self.act, self.wgt, self.geometry = wanted.act, wanted.wgt, wanted.geometry
        self.layout, self.out_layout = wanted.layout, wanted.out_layout
        self._compiled: Layer | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plan and the packed weights: another process, or machine, compiles it, its pool of threads too.

        TypeError for a layer of a `Pool`, whose threads are this process's.
        """
        return _derive, (type(self), self.packed, self.pool)

    def __copy__(self) -> Self:
        """Return a layer of the same plan, weights and pool, with scratch memory of its own."""
        return _derive(type(self), self.packed, self.pool)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<bitsynth {type(self).__name__} {self.geometry}, {self.kernel.name}>"

    @property
    def weight(self) -> NDArray[Any]:
        """The operand values (OC, IC / groups, KH, KW) less their zero point: a copy, whose writing changes nothing."""
        return self.packed.weight

    @property
    def source(self) -> str:
        """The kernel's C text."""
        return self.kernel.source

    def compile(self) -> Self:
        """Compile the layer, which its first call would do; the layer itself. `compile_all` compiles several at once.

        ToolError if it cannot be compiled.
        """
        self._compiled = self.compiled
        return self

    @property
    def compiled(self) -> Layer:
        """The compiled layer, made when first asked for.

        Without a lock: `cached_property` has one for all layers, held while one compiles; a fork would keep it.
        """
        if self._compiled is None:
            self._compiled = compile(self.packed, self.pool)
        return self._compiled

    @property
    def runner(self) -> Runner:
        """The runner of its machine code."""
        return self.compiled.runner

    def __call__(self, x: ArrayLike, *, residual: NDArray[Any] | None = None) -> Results:
        """Return the results for values `x`, (N, H, W, C) or (N, C, H, W) of any integer type, or for packed words.

        Args:
            x: The values, or the words.
            residual: What the epilogue's `Residual` adds, if it has one: an array (N, H, W, C) of its type and of the
                results' pixels and channels, whatever their layout. If that keeps the sum, results are a tuple:
                results, and sums (N, H, W, C).

        Raises:
            SpecError: `x` does not fit the layer, or the encoding does not hold a value; or the residual does not fit.
            ToolError: The layer cannot be compiled or run.
        """
        if isinstance(x, Packed) or self.layout == Layout.PACKED:
            return self.run(x if isinstance(x, Packed) else plain_array(x, "x"), residual=residual)
        return self._run(self.compiled.codes(plain_array(x, "x")), residual)

    def run(self, codes: NDArray[Any], *, residual: NDArray[Any] | None = None) -> Results:
        """Return the results for `codes`: uint8 in the layer's layout, or packed words; `residual` as of a call."""
        self.plan.spec.check_codes(codes)
        return self._run(codes, residual)

    def _run(self, codes: NDArray[Any], residual: NDArray[Any] | None) -> Results:
        return self.compiled.run_checked(codes, residual)

    def bind(
        self, codes: NDArray[Any], *, residual: NDArray[Any] | None = None, part: str = "run", times: int = 1
    ) -> tuple[Call, Results]:
        """Return a call that runs the layer on the same arrays, nothing left to look up, and the array of its results.

        The layer's pool must stay open, and be left to the call.

        Args:
            codes: Codes as `run` takes them; they are read at each call.
            residual: The tensor that the epilogue adds; it is left out to pack alone.
            part: "run" for the whole layer, "pack" to pack the activations alone.
            times: Runs a call.
        """
        return self.compiled.bind(codes, residual=residual, part=part, times=times)

    def describe(self, codes: NDArray[Any]) -> Description:
        """Return the numbers and constants that describe this layer and `codes` to generic C (`layer_call.c.j2`)."""
        self.plan.spec.check_codes(codes)
        return self.packed.describe(*self.plan.spec.shape(codes))

    def files(self, name: str) -> dict[str, str]:
        """Return the layer as plain C under `name`: texts by file name, with self-test, example and CMakeLists.txt."""
        return self.packed.files(name)

    def emit(self, folder: str | Path, name: str) -> list[Path]:
        """Write the files of the layer under `name` into `folder`; their paths.

        SpecError, and none is written, if one would replace another's file.
        """
        return write_texts(Path(folder), self.files(name))

    def explain(self) -> str:
        """Return the kernel and the schedule in words, and why they were taken."""
        cost = self.kernel.cost
        cycles = ", ".join(f"{cpu} {c:g}" for cpu, c in cost.cycles.items())
        chosen = f"{self.origin}, for {self.plan.cpu}" if self.plan.cpu else self.origin
        return "\n".join(
            (
                f"{type(self).__name__} {self.geometry}, {self.act} x {self.wgt}",
                f"schedule  {self.schedule} ({chosen})",
                f"kernel    {self.kernel.name}: {cost.ops_per_128_mac:g} ops per 128 MAC; cycles {cycles}",
                f"weights   {self.packed.constants.arrays['weights'].nbytes:,} bytes packed",
            )
        )


def _derive(kind: type[LayerT], packed: PackedLayer, pool: Pool) -> LayerT:
    """Return a layer of what another one packed; raise SpecError if the pool was closed."""
    layer = kind.__new__(kind)
    layer._set(packed, pool_of(pool))
    return layer
