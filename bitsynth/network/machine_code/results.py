"""Follows each result of a step's run back to an accumulator, through the epilogue's programs, and compares that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.kernel.elementwise.program import ElementwiseProgram, EpilogueProgram
from bitsynth.network.machine_code.calls import KernelCall, ProgramCall, StepCall, SumsCall, WrongCall
from bitsynth.network.machine_code.convolution import Convolution, KernelConvolution, Pixel
from bitsynth.network.machine_code.linear import INT32_BYTES, Bytes, NamedBytes, parse_name
from bitsynth.network.machine_code.sums import CallSums, RowSums
from bitsynth.objects.memory import NotShown
from bitsynth.spec.layout import Layout

RESIDUAL = NamedBytes("in", 1)
"""The second input of a layer that adds it to its results."""


@dataclass(frozen=True)
class Element:
    """An element of the output: its pixel, and its channel among all."""

    pixel: Pixel
    channel: int

    def __str__(self) -> str:
        image = f"image {self.pixel.image}, " if self.pixel.image else ""
        return f"output {image}row {self.pixel.y}, column {self.pixel.x}, channel {self.channel}"


@dataclass(frozen=True, eq=False)
class FinishingPrograms:
    """The programs of a layer by field, their names in the library, and the arrays of constants that they read."""

    programs: Mapping[str, EpilogueProgram]
    names: Mapping[str, str]
    arrays: Mapping[str, NDArray[Any]]
    joined: int

    def constants(self, field: str) -> bytes:
        """Return the constants of all units of a program."""
        return self._array("unit_constants" if field == "program" else "residual_constants")

    def get_shared(self, field: str) -> bytes:
        """Return the constants of a program that all units share."""
        return self._array("shared_constants" if field == "program" else "residual_shared")

    def _array(self, name: str) -> bytes:
        return self.arrays[name].tobytes() if name in self.arrays else b""


@dataclass(frozen=True)
class OutputTensor:
    """A tensor that a layer writes.

    Attributes:
        start: Its address.
        size: The bytes of an element.
        layout: The order of elements.
        programs: The fields of the programs that make its elements of accumulators, the last one first.
    """

    start: int
    size: int
    layout: str
    programs: tuple[str, ...]

    def address(self, number: int) -> int:
        """Return the address of an element by its number in memory order."""
        return self.start + number * self.size


@dataclass(frozen=True)
class SumOrigin:
    """An accumulator that an element comes from: its call, row and column, and what was added to it."""

    call: int
    row: int
    column: int
    added: int


@dataclass
class ResultCheck(ABC):
    """The comparison of the results of a run with the layer."""

    call: StepCall
    convolution: Convolution
    epilogue: FinishingPrograms
    outputs: Sequence[OutputTensor]

    @abstractmethod
    def compare_row(
        self, kernel_call: SumsCall, row: int, pixel: Pixel, sums: Sequence[tuple[SumOrigin, Element]]
    ) -> None:
        """Compare accumulators of one row of a call, from which elements come, with the convolution at a pixel."""

    @abstractmethod
    def places_of_constants(self, channel: int, width: int) -> list[tuple[int, int]]:
        """Return the units of `width` columns that have a channel's constants, and its place in each of them."""

    def __post_init__(self) -> None:
        self._values = self.call.values
        self._lanes = {field: _lanes_of_channels(program) for field, program in self.epilogue.programs.items()}

    def run(self) -> int:
        """Compare all results; return how many there are. WrongCall names the first that is not right."""
        rows: dict[tuple[int, int, Pixel], list[tuple[SumOrigin, Element]]] = {}
        count = 0
        for tensor, element in product(self.outputs, self._elements()):
            count += 1
            address = tensor.address(self._number_of(element, tensor.layout))
            try:
                origin = self._sum_of(tensor, element, address)
            except NotShown as why:
                raise self.wrong(element, why, self._find_store(address)) from None
            rows.setdefault((origin.call, origin.row, element.pixel), []).append((origin, element))
        for (number, row, pixel), sums in rows.items():
            self.compare_row(self.call.kernel_calls[number], row, pixel, sums)
        return count

    def _elements(self) -> Iterator[Element]:
        """Yield all elements of the output."""
        g, (batch, *_) = self.convolution.spec.geometry, self.convolution.image
        high, wide = self.convolution.output
        for image in range(batch):
            for y in range(high):
                for x in range(wide):
                    pixel = Pixel(image, y, x)
                    yield from (Element(pixel, channel) for channel in range(g.out_channels))

    def _number_of(self, element: Element, layout: str = Layout.NHWC) -> int:
        """Return the number of an element in memory order, with channels last if the layout is not another."""
        (high, wide), p = self.convolution.output, element.pixel
        channels = self.convolution.spec.geometry.out_channels
        if layout == Layout.NCHW:
            return ((p.image * channels + element.channel) * high + p.y) * wide + p.x
        return ((p.image * high + p.y) * wide + p.x) * channels + element.channel

    def _find_store(self, address: int) -> int:
        """Return the address of the instruction that stored to memory last; 0 if none did."""
        return self.call.processor.memory.stored_at.get(address, 0)

    def wrong(self, element: Element, why: str | NotShown, where: int) -> NotShown:
        """Return an error about an element, of the kind of `why` if that is one, with the instruction at `where`."""
        kind = type(why) if isinstance(why, NotShown) else WrongCall
        at = self.call.processor.text_at(where) if where else "no instruction stores it"
        return kind(f"{at}: {element}: {why}")

    def _sum_of(self, tensor: OutputTensor, element: Element, address: int) -> SumOrigin:
        """Return the accumulator that an element comes from, through the programs of the layer."""
        data = self.call.processor.memory.bytes_at(address, tensor.size)
        for field in tensor.programs:
            data = self._before(field, element, data)
        added, factors = self._values.of(data)
        if len(factors) != 1:
            raise NotShown("it is no accumulator")
        (((name, first), times),) = factors.items()
        if not isinstance(name, NamedBytes) or name.kind != "sums" or times != 1:
            raise NotShown("it is no accumulator")
        row, column = divmod(first // INT32_BYTES, self.call.kernel_calls[name.number].width)
        return SumOrigin(name.number, row, column, added)

    def _before(self, field: str, element: Element, data: Bytes) -> Bytes:
        """Return the accumulator, or a later value of it, from which a program computed the bytes `data` of an
        element."""
        name = self.epilogue.names[field]
        data = self._values.restore_names(data)
        result = parse_name(data[0], "results")
        if data[0] is None:
            raise WrongCall("it is not written")
        if result is None:
            raise WrongCall(f"it is no result of {name}")
        number, start = result
        size, call = len(data), self.call.program_calls[number]
        if data != NamedBytes("results", number).bytes(start, size) or start % size or call.name != name:
            raise WrongCall(f"it is no result of {name}")
        row, result_column = divmod(start // size, call.columns)
        unit, lane = divmod(result_column, call.program.unit)
        self._require_constants(field, call, element, unit, lane)
        column = unit * call.program.unit + self._lanes[field][lane]
        if call.of_rows:
            raise NotShown("a program that reads a number of each row is not known")
        if size_of := call.program.other_bytes:
            of_element = self._number_of(element) * size_of
            other = call.others[row][column * size_of : (column + 1) * size_of]
            if other != RESIDUAL.bytes(of_element, size_of):
                raise WrongCall(f"{name} adds another element of the residual to it")
        return call.sums[row][column * INT32_BYTES : (column + 1) * INT32_BYTES]

    def _require_constants(self, field: str, call: ProgramCall, element: Element, unit: int, lane: int) -> None:
        """Raise WrongCall unless the constants of a unit belong to the element's channel."""
        size, constants = call.program.constant_bytes, self.epilogue.constants(field)
        of_call = call.constants[unit * size : (unit + 1) * size]
        places = self.places_of_constants(element.channel, call.program.unit)
        if not any(place == lane and constants[k * size : (k + 1) * size] == of_call for k, place in places):
            raise WrongCall(f"{call.name} has the constants of another channel")
        if call.shared != self.epilogue.get_shared(field):
            raise WrongCall(f"{call.name} has other shared constants")


class MatmulResultCheck(ResultCheck):
    """The comparison of the results of a run with a layer on a matmul kernel, which has a group's channels in a row."""

    def __init__(
        self,
        call: StepCall,
        convolution: KernelConvolution,
        epilogue: FinishingPrograms,
        outputs: Sequence[OutputTensor],
    ) -> None:
        super().__init__(call, convolution, epilogue, outputs)
        self._sums = CallSums(convolution, call)

    def places_of_constants(self, channel: int, width: int) -> list[tuple[int, int]]:
        """Return the units of `width` columns that have a channel's constants, and its place in each of them."""
        g = self.convolution.spec.geometry
        inside, pixels = g.out_channels // g.groups, max(1, self.epilogue.joined)
        group, of_group = divmod(channel, inside)
        first = group * -(-inside * pixels // width)
        columns = [divmod(pixel * inside + of_group, width) for pixel in range(pixels)]
        return [(first + unit, lane) for unit, lane in columns]

    def compare_row(
        self, kernel_call: SumsCall, row: int, pixel: Pixel, sums: Sequence[tuple[SumOrigin, Element]]
    ) -> None:
        """Compare the accumulators of one row of a call with the convolution at a pixel."""
        assert isinstance(kernel_call, KernelCall)
        g = self.convolution.spec.geometry
        inside = g.out_channels // g.groups
        first = sums[0][1]
        try:
            sums_of_row = self._sums.of_row(kernel_call, row)
        except NotShown as why:
            raise self.wrong(first, why, kernel_call.where) from None
        for group in sorted({element.channel // inside for _, element in sums}):
            of_group = [(s, e) for s, e in sums if e.channel // inside == group]
            columns = [s.column for s, _ in of_group]
            codes, factors, added = self.convolution.sums(pixel, [e.channel for _, e in of_group])
            more = np.array([s.added for s, _ in of_group], np.int64) << self.convolution.shift
            same = _have_same_products(sums_of_row.codes, sums_of_row.factors[:, columns], codes, factors)
            same = same and np.array_equal(sums_of_row.added[columns] + more, added)
            if not same or sums_of_row.meet_pads[columns].any():
                raise self._difference(
                    kernel_call, sums_of_row, columns, [e for _, e in of_group], codes, factors, added - more
                )

    def _difference(
        self,
        kernel_call: KernelCall,
        sums_of_row: RowSums,
        columns: list[int],
        elements: list[Element],
        codes: NDArray[np.int64],
        factors: NDArray[np.int64],
        added: NDArray[np.int64],
    ) -> NotShown:
        """Return what is wrong with the first accumulator that is not the convolution's."""
        every = np.union1d(sums_of_row.codes, codes)
        of_found, wanted = (np.zeros((len(every), len(columns)), np.int64) for _ in range(2))
        of_found[np.searchsorted(every, sums_of_row.codes)] = sums_of_row.factors[:, columns]
        wanted[np.searchsorted(every, codes)] = factors
        if len(wrong := np.argwhere((of_found != wanted).T)):
            k, code = wrong[0]
            activation = self.convolution.activation(int(every[code]))
            why = f"{activation} times {wanted[code, k]} is wanted, times {of_found[code, k]} was found"
        else:
            meets = sums_of_row.meet_pads[columns]
            k = int(np.argmax((sums_of_row.added[columns] != added) | meets))
            have = "what fills a row" if meets[k] else str(sums_of_row.added[columns[k]])
            why = f"the number {added[k]} is wanted besides products, {have} was found"
        return self.wrong(elements[k], why, kernel_call.where)


def _have_same_products(
    codes: NDArray[np.int64], factors: NDArray[np.int64], others: NDArray[np.int64], of_others: NDArray[np.int64]
) -> bool:
    """Return whether two sums have the same factors of the same codes; factors are 0 of codes that they do not have."""
    if np.array_equal(codes, others):
        return np.array_equal(factors, of_others)
    some, more = factors.any(axis=1), of_others.any(axis=1)
    return np.array_equal(codes[some], others[more]) and np.array_equal(factors[some], of_others[more])


def _lanes_of_channels(program: EpilogueProgram) -> list[int]:
    """Return the lane that each channel of a unit has among the accumulators that a program reads."""
    if not isinstance(program, ElementwiseProgram):
        return list(range(program.unit))
    return [int(x) for x in np.argsort(program.order)]
