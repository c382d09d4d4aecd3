"""Weights and epilogue of a layer, packed for the kernel of its plan; its C text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.emit.command import command
from bitsynth.emit.layer import LayerText
from bitsynth.emit.layer_program import LayerPrograms
from bitsynth.emit.runtime_abi import SHAPE, Number
from bitsynth.emit.self_test import SelfTestEpilogue, SelfTestLayer
from bitsynth.errors import SpecError
from bitsynth.layers import depthwise
from bitsynth.layers.column_packing import (
    ColumnPacking,
    constants_without_weights,
    extreme_codes,
    plan_column_packing,
)
from bitsynth.layers.constants import Constants, Form, Offset, constants
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.epilogues import (
    Epilogue,
    Requantize,
    Scale,
    Thresholds,
    check_encoding,
    check_epilogue,
)
from bitsynth.layers.epilogues.accumulators import values_as_accumulators
from bitsynth.layers.epilogues.checks import broadcast_to_channels
from bitsynth.layers.epilogues.finishing import Finishing, choose_finishing
from bitsynth.layers.epilogues.residual import residual_operand
from bitsynth.layers.packed_codes import Packed, packed_words
from bitsynth.layers.planning import GIVEN, LayerPlan
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import MatmulKernel
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import whole_array

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_FILES = (type(None), Scale, Requantize, Thresholds)
"""Kinds of epilogues that a file of weights for `bitsynth emit-layer` can hold."""
Description = tuple[NDArray[np.int64], NDArray[np.uint8]]
"""Numbers of a layer and its input's shape (`runtime_abi.described`), and the bytes of its constants."""


@dataclass(frozen=True, eq=False)
class PackedLayer:
    """A planned layer with its weights, codes (OC, IC / groups, KH, KW), and the epilogue of its sums.

    `codes` is None if weights are given at each call, as the second factor of a product of two edges is: a dense layer
    whose `column_packing` says how C packs them. `bias`, integers, one a channel or one for all, is part of the sums.
    Arrays are not to be written: they are read-only. SpecError if weights, bias or epilogue do not fit the plan.
    """

    plan: LayerPlan
    codes: NDArray[np.uint8] | None
    epilogue: Epilogue | None = None
    bias: ArrayLike = 0
    column_packing: ColumnPacking | None = field(init=False, repr=False)
    programs: LayerPrograms = field(init=False, repr=False)
    constants: Constants = field(init=False, repr=False)
    _description: Description = field(init=False, repr=False)

    def __post_init__(self) -> None:
        spec, kernel = self.plan.spec, self.plan.kernel
        if self.codes is not None:
            object.__setattr__(self, "codes", _check_codes(self.codes, spec))
        check_epilogue(self.epilogue, spec.out_layout)
        check_encoding(self.epilogue, spec.out_encoding)
        channels = spec.geometry.out_channels
        added = broadcast_to_channels("bias", whole_array(self.bias, "bias"), channels, np.int32)
        object.__setattr__(self, "bias", bias := added.astype(np.int64))
        computed = self._compute_codes()
        given = self.codes is None
        if given and (isinstance(kernel, DepthwiseKernel) or not _is_dense(self.plan)):
            raise SpecError("a layer whose weights are given at each call is a dense layer on a kernel of tiles")
        finish = choose_finishing(kernel, self.plan.computed, computed, bias, self.epilogue, weights_are_given=given)
        whole = self._constants(finish, computed, bias)
        object.__setattr__(self, "column_packing", self._column_packing(finish, bias) if given else None)
        object.__setattr__(self, "programs", finish.programs)
        object.__setattr__(self, "constants", whole)
        object.__setattr__(self, "_description", whole.blob())
        arrays = [bias, *self._description, *whole.arrays.values(), *(() if self.codes is None else (self.codes,))]
        for array in arrays:
            array.flags.writeable = False

    def _constants(self, finish: Finishing, codes: NDArray[np.uint8], bias: NDArray[np.int64]) -> Constants:
        """Return numbers and arrays of the C runtime, columns in the order of `finish`; `codes` are the kernel's."""
        spec, kernel, schedule = self.plan.computed, self.plan.kernel, self.plan.schedule
        geometry = spec.geometry
        order = slice(None) if isinstance(kernel, DepthwiseKernel) else finish.order(geometry)
        offset = Offset(bias[order], spec.zero_point)
        if isinstance(kernel, DepthwiseKernel):
            groups, of_kernel = 1, depthwise.constants(kernel, spec, codes, finish.programs, offset, finish.joined)
        else:
            groups, form = geometry.groups, Form(schedule.gather, finish.unit, finish.folds)
            layer = kernel.entry.kernel, self.plan.product, geometry
            if self.codes is None:
                of_kernel = constants_without_weights(*layer, offset, form)
            else:
                of_kernel = constants(*layer, codes[order], offset, form)
        arrays = finish.program_arrays(replace(geometry, groups=groups))
        if isinstance(kernel, MatmulKernel) and not finish.residual:
            arrays |= finish.tail(geometry)
        numbers = {**of_kernel.numbers, **schedule.numbers(), **self._interface(), "out_bits": finish.bits}
        numbers["joined_pixels"] = finish.joined
        return Constants(MappingProxyType(numbers), MappingProxyType({**of_kernel.arrays, **arrays}))

    def _column_packing(self, finish: Finishing, bias: NDArray[np.int64]) -> ColumnPacking:
        """Return how C packs the columns of weights that are given at each call, in the order of `finish`."""
        spec, kernel = self.plan.computed, self.plan.kernel
        assert isinstance(kernel, MatmulKernel)
        form = Form(self.plan.schedule.gather, finish.unit, finish.folds)
        own, offset = self.plan.spec.wgt, Offset(bias, spec.zero_point)
        layer = kernel.entry.kernel, self.plan.product, own, spec.geometry
        return plan_column_packing(*layer, offset, form, finish.order(spec.geometry))

    def _interface(self) -> dict[str, Number]:
        """Return the numbers on the layouts of activations and results."""
        spec = self.plan.spec
        return {"act_bits": spec.act.bits, "in_layout": spec.layout, "out_layout": spec.out_layout}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plan, codes and epilogue: packing is fast, and another version may pack otherwise."""
        return PackedLayer, (self.plan, self.codes, self.epilogue, self.bias)

    def _compute_codes(self) -> NDArray[np.uint8]:
        """Return the weights' codes as the kernel sees them: the value of each code of the layer is encoded once.

        If weights are given at each call, return the weights that bound all sums.
        """
        spec, computed = self.plan.spec.wgt, self.plan.computed.wgt
        if self.codes is None:
            return extreme_codes(computed, self.plan.spec.geometry.weight_shape)
        if computed == spec:
            return self.codes
        code_of = computed.encode(spec.decode(np.array(spec.codes, np.uint8)), "weight")
        return code_of[self.codes]

    @property
    def computed_codes(self) -> NDArray[np.uint8] | None:
        """The weights' codes as the kernel has them, which may hold wider ones; None if they are given at each call."""
        return None if self.codes is None else self._compute_codes()

    @property
    def weight(self) -> NDArray[Any]:
        """The operand values (OC, IC / groups, KH, KW): a copy, not to be written, as that would change nothing.

        SpecError if weights are given at each call.
        """
        if self.codes is None:
            raise SpecError("weights are given at each call")
        values = self.plan.spec.wgt.decode(self.codes)
        values.flags.writeable = False
        return values

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of the output's elements: sums int32, floats, codes uint8, or words of codes uint64."""
        if self.plan.spec.out_layout == Layout.PACKED:
            return np.dtype(np.uint64)
        if self.epilogue is None:
            return np.dtype(np.int32)
        return self.epilogue.out_type

    def out_shape(self, batch: int, height: int, width: int) -> tuple[int, ...]:
        """Return the output's shape for such an input; raise SpecError if the window has no room."""
        spec, channels = self.plan.spec, self.plan.spec.geometry.out_channels
        rows, columns = spec.geometry.output(height, width)
        if spec.out_layout == Layout.PACKED:
            channels = packed_words(int(self.constants.numbers["out_bits"]), channels)
        return (batch, channels, rows, columns) if spec.out_layout == Layout.NCHW else (batch, rows, columns, channels)

    def tensor_shape(self, batch: int, height: int, width: int) -> tuple[int, ...]:
        """Return the shape (N, H, W, C) of a residual, and of kept sums, for such an input."""
        geometry = self.plan.spec.geometry
        return (batch, *geometry.output(height, width), geometry.out_channels)

    def wrap(self, out: NDArray[Any]) -> NDArray[Any]:
        """Return results as the caller gets them: packed words with their type."""
        spec = self.plan.spec
        if spec.out_layout != Layout.PACKED:
            return out
        return Packed(
            out, int(self.constants.numbers["out_bits"]), spec.out_encoding or None, spec.geometry.out_channels
        )

    def residual_operand(self, given: Any, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """Return the residual `given` to a call as C reads it; raise SpecError if it is missing or does not fit."""
        return residual_operand(self.epilogue.residual if self.epilogue else None, given, shape)

    def room_for_sums(self, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """Return an array for the sums that are stored in addition to results; None if none are."""
        return None if self.kept_type is None else np.empty(shape, self.kept_type)

    @property
    def kept_type(self) -> np.dtype[Any] | None:
        """The type of the sums that are stored in addition to results; None if none are."""
        return self.epilogue.kept_type if self.epilogue else None

    def results(self, out: NDArray[Any], sums: NDArray[Any] | None) -> Any:
        """Return the results of a call, with the kept sums if there are any."""
        return self.wrap(out) if sums is None else (self.wrap(out), sums)

    def describe(self, batch: int, height: int, width: int) -> Description:
        """Return the numbers that describe the layer and its input to C that runs any layer (`layer_call.c.j2`)."""
        numbers = self._description[0].copy()
        numbers[-len(SHAPE) :] = batch, height, width
        return numbers, self._description[1]

    def files(self, name: str) -> dict[str, str]:
        """Return the layer as plain C under `name`: texts by file name, with self-test, example and CMakeLists.txt."""
        return self.text(name).files()

    def text(self, name: str) -> LayerText:
        """Return the C of the layer under `name`, as a value of `emit`."""
        if self.codes is None:
            raise SpecError("a layer whose weights are given at each call is part of a network")
        kernel, constants_of_c = self.plan.kernel, self.constants
        bias = np.asarray(self.bias)
        values = values_as_accumulators(self.plan.spec, self.codes, bias)
        epilogue = self.epilogue.self_test(values) if self.epilogue else SelfTestEpilogue()
        tested = SelfTestLayer(self.codes, bias, self.plan.spec.zero_point, epilogue)
        c = kernel.source_for(self.programs.reader)
        operands = self.plan.spec.product(kernel.spec.isa)
        numbers, cpu = constants_of_c.numbers, self.plan.cpu
        return LayerText(
            name, c, operands, numbers, constants_of_c.arrays, tested, self.programs, cpu, self.command(name)
        )

    def command(self, name: str, cpus: Sequence[str] = ()) -> str:
        """Return the command that writes this layer as C under `name`, for its processor or for several `cpus`.

        It is empty if only Python makes the layer: a schedule was given, or the file of weights holds no such epilogue.
        """
        spec, window = self.plan.spec, self.plan.spec.geometry
        if self.plan.origin == GIVEN or np.any(self.bias) or type(self.epilogue) not in _OF_FILES:
            return ""
        options = {
            "act-bits": spec.act.bits,
            "w-bits": spec.wgt.bits,
            "act-encoding": spec.act.encoding.value,
            "weight-encoding": spec.wgt.encoding.value,
            "zero-point": spec.zero_point,
            "weight-zero-point": spec.wgt.zero,
            "isa": self.plan.kernel.spec.isa if self.plan.isa == "auto" else self.plan.isa,
            "cpu": cpus or self.plan.cpu,
            "stride": _shortest(window.stride, 1),
            "padding": _shortest(window.padding, 0),
            "dilation": _shortest(window.dilation, 1),
            "groups": window.groups if window.groups > 1 else None,
            "layout": spec.layout if spec.layout != Layout.NHWC else None,
            "out-layout": spec.out_layout if spec.out_layout != spec.layout else None,
            "image": spec.image,
            "name": name,
        }
        return f"{command('emit-layer', 'WEIGHTS.npz', options)} -o FOLDER"


def _is_dense(plan: LayerPlan) -> bool:
    """Return whether a layer reads each pixel by itself, where it lies, and all of its channels."""
    geometry = plan.spec.geometry
    is_one_pixel = geometry.kernel == (1, 1) and geometry.stride == (1, 1) and not any(geometry.padding)
    return is_one_pixel and geometry.groups == 1 and plan.schedule.gather == "direct"


def _check_codes(codes: NDArray[np.uint8], spec: LayerSpec) -> NDArray[np.uint8]:
    """Return a copy of weights' codes; SpecError if they do not fit."""
    if codes.shape != spec.geometry.weight_shape:
        raise SpecError(f"want a weight of {spec.geometry.weight_shape}, not {codes.shape}")
    last = spec.wgt.codes[-1]
    if codes.dtype != np.uint8 or (codes.size and codes.max() > last):
        raise SpecError(f"want uint8 codes of {spec.wgt}, at most {last}; `pack` takes the values themselves")
    return codes.copy()


def _shortest(numbers: tuple[int, ...], usual: int) -> tuple[int, ...] | None:
    """Return what an option says of `numbers`: None if all have their usual value, one number if all are equal."""
    if len({*numbers}) > 1:
        return numbers
    return numbers[:1] if numbers[0] != usual else None


def pack(plan: LayerPlan, weight: ArrayLike, epilogue: Epilogue | None = None, bias: ArrayLike = 0) -> PackedLayer:
    """Pack `weight`, operand values (OC, IC / groups, KH, KW), for the plan; the values are copied.

    Results are int32 sums, the integers `bias` added, or what `epilogue` makes of them. Nothing is compiled. SpecError
    for values that the encoding does not hold, and for shapes, a bias or an epilogue that do not fit.
    """
    return PackedLayer(plan, plan.spec.wgt.encode(whole_array(weight, "weight"), "weight"), epilogue, bias)
