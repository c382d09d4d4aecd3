"""Depthwise kernels in a step's run: what a call reads and computes, and the comparison of its sums.

A sum is, by the kernel's proof, a number of its channel, plus products of activations, one of each tap's bytes, with
weights. A call writes down which bytes these are, and the weights that it read, so that sums can be compared with the
convolution's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bitsynth.isa.domains.terms import TermPayload, atoms_of
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.network.machine_code.calls import ACTIVATIONS, FIRST_KNOWN, StepCall, SumsCall, WrongCall, require_apart
from bitsynth.network.machine_code.convolution import IntegerArray, Pixel
from bitsynth.network.machine_code.linear import INT32_BYTES, Bytes, NamedBytes
from bitsynth.network.machine_code.results import Element, ResultCheck, SumOrigin
from bitsynth.objects.depthwise import DepthwiseFunction, DepthwiseRun, DepthwiseSizes
from bitsynth.objects.memory import NotShown
from bitsynth.objects.operands import WORD
from bitsynth.objects.values import Byte, Content, Contents

NO_CODE = -1
"""The number of a byte that is no code of the activations, and not known."""
_READ_AT_ONCE = 64
"""Bytes of a line whose names are restored together."""


@dataclass(frozen=True, eq=False)
class DepthwiseCall:
    """A call of a depthwise kernel.

    Attributes:
        weights: The weights (taps, columns) of all units; columns are in the order of the sums.
        start: The numbers (columns,) from which sums start.
        codes: The numbers of the bytes that each tap reads, as `number_codes` has them, or NO_CODE (taps, bytes).
        channels: The channel (columns,) of each sum of a pixel's units.
        where: The address of the instruction that called it.
    """

    kernel: DepthwiseFunction
    sizes: DepthwiseSizes
    weights: IntegerArray
    start: IntegerArray
    codes: IntegerArray
    channels: IntegerArray
    where: int

    @property
    def width(self) -> int:
        """Sums of a pixel."""
        return len(self.start)

    def codes_of(self, pixel: int, columns: IntegerArray) -> IntegerArray:
        """Return the numbers of the codes (taps, columns) of some sums of a pixel."""
        return self.codes[:, pixel * self.sizes.apart + self.channels[columns]]


def add_depthwise(call: StepCall, name: str, kernel: DepthwiseFunction) -> None:
    """Give a depthwise kernel its meaning in a run."""
    call.processor.stubs[call.code.function(name)] = lambda: _multiply(call, kernel)


def _multiply(call: StepCall, kernel: DepthwiseFunction) -> None:
    """Compute sums: read activations, weights and numbers of channels; write sums, each with a name."""
    memory, program = call.processor.memory, kernel.program
    pixels, units, steps, pointers, apart, weights, start, sums, ldc = map(call.number, range(9))
    memory.require_within(pixels, units, steps)
    width, taps = units * program.unit, steps * program.taps
    call.require_multiple(pointers, WORD, "the taps' addresses")
    call.require_multiple(start, INT32_BYTES, "numbers of channels")
    call.require_multiple(sums, INT32_BYTES, "sums")
    if pixels > 1 and ldc < width:
        raise WrongCall(f"pixels of {width} sums are {ldc} from each other")
    addresses = [
        int.from_bytes(call.read_known(pointers + WORD * k, WORD, "addresses of taps"), "little") for k in range(taps)
    ]
    size = (pixels - 1) * apart + width if pixels and units else 0
    read = [(pointers, WORD * taps), *((address, size) for address in addresses)]
    require_apart([(sums + INT32_BYTES * p * ldc, INT32_BYTES * width) for p in range(pixels)], read)
    stored = np.frombuffer(call.read_known(weights, units * steps * program.step_bytes, "weights"), np.int8)
    numbers = np.frombuffer(call.read_known(start, INT32_BYTES * width, "numbers of channels"), "<i4")
    channels = (np.arange(units)[:, None] * program.unit + np.array(kernel.order)).reshape(-1)
    of_taps = _weights_of_taps(kernel, stored.astype(np.int64), units, steps)
    if of_taps.size and not program.wgt[0] <= of_taps.min() <= of_taps.max() <= program.wgt[1]:
        raise WrongCall(f"weights are not all between {program.wgt[0]} and {program.wgt[1]}")
    codes = [_number_bytes(call, memory.bytes_at(address, size)) for address in addresses]
    for p in range(pixels):
        of_call = NamedBytes("sums", len(call.kernel_calls))
        first, count = INT32_BYTES * p * width, INT32_BYTES * width
        memory.set_bytes(sums + INT32_BYTES * p * ldc, of_call.bytes(first, count))
    kernel_call = DepthwiseCall(
        kernel,
        DepthwiseSizes(pixels, units, steps, apart, ldc),
        of_taps[:, channels],
        numbers.astype(np.int64),
        np.stack(codes) if codes else np.zeros((0, size), np.int64),
        channels,
        memory.at,
    )
    call.kernel_calls.append(kernel_call)


def _weights_of_taps(kernel: DepthwiseFunction, stored: IntegerArray, units: int, steps: int) -> IntegerArray:
    """Return the weights (taps, channels of all units) that packed bytes hold."""
    program = kernel.program
    places = np.array(program.weights).reshape(-1)
    of_steps = np.empty((units, steps, len(places)), np.int64)
    of_steps[..., places] = stored.reshape(units, steps, len(places))
    by_tap = of_steps.reshape(units, steps, program.taps, program.unit).transpose(1, 2, 0, 3)
    return by_tap.reshape(steps * program.taps, units * program.unit)


def _number_bytes(call: StepCall, data: Bytes) -> IntegerArray:
    """Return the numbers of bytes, NO_CODE for bytes that are neither codes of the activations nor known."""
    out = np.full(len(data), NO_CODE, np.int64)
    for first in range(0, len(data), _READ_AT_ONCE):
        part = data[first : first + _READ_AT_ONCE]
        written = [k for k, byte in enumerate(part) if byte is not None]
        for k, byte in zip(written, call.values.restore_names([part[k] for k in written]), strict=True):
            if isinstance(byte, int):
                out[first + k] = FIRST_KNOWN - byte
            elif byte is not None and byte[0] == ACTIVATIONS:
                out[first + k] = byte[1]
    return out


class DepthwiseResultCheck(ResultCheck):
    """The comparison of the results of a run with a layer on a depthwise kernel, which has all channels in a row."""

    def places_of_constants(self, channel: int, width: int) -> list[tuple[int, int]]:
        """Return the units of `width` columns that have a channel's constants, and its place in each of them."""
        count = self.convolution.spec.geometry.out_channels
        return [divmod(pixel * count + channel, width) for pixel in range(max(1, self.epilogue.joined))]

    def compare_row(
        self, kernel_call: SumsCall, row: int, pixel: Pixel, sums: Sequence[tuple[SumOrigin, Element]]
    ) -> None:
        """Compare sums of one pixel of a call with the convolution at a pixel."""
        assert isinstance(kernel_call, DepthwiseCall)
        if not keeps_channels_apart(kernel_call.kernel):
            raise NotShown("it is not shown that a channel's sum depends on its own bytes alone")
        columns = np.array([origin.column for origin, _ in sums])
        codes, weights = kernel_call.codes_of(row, columns), kernel_call.weights[:, columns]
        most = kernel_call.kernel.program.act[1]
        wrong = (codes == NO_CODE) | (codes < FIRST_KNOWN - most)
        if wrong.any():
            tap, k = np.argwhere(wrong)[0]
            raise self.wrong(sums[k][1], f"tap {tap} reads what is no code", kernel_call.where)
        known = np.where(codes <= FIRST_KNOWN, FIRST_KNOWN - codes, 0)
        added = kernel_call.start[columns] + (known * weights).sum(axis=0) + [origin.added for origin, _ in sums]
        channels = np.array([element.channel for _, element in sums])
        wanted_codes, wanted_factors, wanted = self.convolution.sums_of_channels(pixel, channels)
        products, wanted_products = _add_equal(codes, weights), _add_equal(wanted_codes, wanted_factors)
        if not np.array_equal(products, wanted_products):
            k, why = self._different(products, wanted_products)
            raise self.wrong(sums[k][1], why, kernel_call.where)
        if len(unequal := np.flatnonzero(added != wanted)):
            k = unequal[0]
            why = f"the number {wanted[k]} is wanted besides products, {added[k]} was found"
            raise self.wrong(sums[k][1], why, kernel_call.where)

    def _different(self, products: IntegerArray, wanted: IntegerArray) -> tuple[int, str]:
        """Return the first column whose products differ, and how."""
        of_found, of_wanted = ({(column, code): n for column, code, n in x.tolist()} for x in (products, wanted))
        differing = (key for key in sorted({*of_found, *of_wanted}) if of_found.get(key) != of_wanted.get(key))
        column, code = key = next(differing)
        times, others = of_wanted.get(key, 0), of_found.get(key, 0)
        return column, f"{self.convolution.activation(code)} times {times} is wanted, times {others} was found"


def _add_equal(codes: IntegerArray, factors: IntegerArray) -> IntegerArray:
    """Return the products (number, 3) of each column: the column, the code, and its factor, which is not 0.

    Codes and factors are (terms, columns); known codes are left out.
    """
    terms, columns = np.nonzero(codes >= 0)
    of_code, of_factor = codes[terms, columns], factors[terms, columns]
    keys, places = np.unique(np.stack([columns, of_code], axis=1), axis=0, return_inverse=True)
    summed = np.zeros(len(keys), np.int64)
    np.add.at(summed, places.reshape(-1), of_factor)
    products: IntegerArray = np.column_stack([keys, summed])[summed != 0]
    return products


@lru_cache(maxsize=64)
def keeps_channels_apart(kernel: DepthwiseFunction) -> bool:
    """Return whether it is shown that a channel's sum depends on its own activations, weights and number alone.

    The runtime lets units have bytes behind a pixel's channels that are no codes; a proof of a kernel speaks of codes.
    Here a step and a flush of the proved program run on unknown bytes, which shows it for both, so by induction for all
    steps.
    """
    run = DepthwiseRun(kernel.program, kernel.order, Contents())
    program, values = kernel.program, run.values
    kinds = {acc.name: VecType.parse(acc.type) for acc in program.accs}
    accs = {name: values.memory(("acc", str(name)), 0, kind.total_bits // 8) for name, kind in kinds.items()}
    inputs = {Value.of(Role.ROW, j): values.memory(("tap", j), 0, program.unit) for j in range(program.taps)}
    weights = range(len(program.weights))
    inputs |= {Value.of(Role.COLUMN, j): values.memory(("w", j), 0, program.unit) for j in weights}
    of_lanes: dict[tuple[str, int], int] = {}
    for name, content in run.after_step(accs, inputs).items():
        size = kinds[name].bits // 8
        for lane, atoms in enumerate(_atoms_of_lanes(values, content, size)):
            channels = {_channel_of(kernel, atom) for atom in atoms if atom[0][0] != "acc"}
            own = {(("acc", str(name)), lane * size + k) for k in range(size)}
            if len(channels) != 1 or not {atom for atom in atoms if atom[0][0] == "acc"} <= own:
                return False
            of_lanes[str(name), lane] = channels.pop()
    tile = [values.memory(("sum", r), 0, run.isa.tile.total_bits // 8) for r in range(len(run.flush.tile))]
    lanes, sizes = run.isa.tile.lanes, {str(name): kind.bits // 8 for name, kind in kinds.items()}
    for r, content in enumerate(run.after_flush(accs, tile)):
        for lane, atoms in enumerate(_atoms_of_lanes(values, content, INT32_BYTES)):
            own_sum: set[Any] = {(("sum", r), lane * INT32_BYTES + k) for k in range(INT32_BYTES)}
            others = {of_lanes[name, byte // sizes[name]] for (kind, name), byte in atoms if kind == "acc"}
            if others != {kernel.order[r * lanes + lane]} or not {x for x in atoms if x[0][0] == "sum"} <= own_sum:
                return False
    return True


def _channel_of(kernel: DepthwiseFunction, atom: tuple[tuple[str, int], int]) -> int:
    """Return the channel that a byte of activations or weights belongs to."""
    (kind, number), byte = atom
    return byte if kind == "tap" else kernel.program.weights[number][byte] % kernel.program.unit


def _atoms_of_lanes(values: Contents, content: Content, size: int) -> Iterator[set[Any]]:
    """Yield the names of the unknown bytes that each lane of `size` bytes depends on."""

    def name_unknown(of: Byte) -> TermPayload:
        return values.domain.atom(of, 8)

    operations = values.operations_of(content, content)
    assert operations is not None, "a step has few instructions"
    (terms,) = values.evaluate([content], operations, name_unknown)
    for first in range(0, len(terms), size):
        yield {atom for term in terms[first : first + size] for atom in atoms_of(term)}
