"""What the packers of a kernel are declared to compute: the bytes of packed operands, and terms, as functions of codes.

Bytes follow the layout that the kernel's proof reads (`kernel/inputs.py`), not the C templates:

    bit q * width + j of byte b of an input    table j of the code at its position q of byte b; 0 behind the last code
    byte e of a table                          the sum of the values of the codes that the bits of e choose
    a row's term                               the sum of a number for each code, and of products of neighbours

The codes of a step may be in any order, if that is the same in rows and columns: it is `emit/packing.py` that chooses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bitsynth.emit.correction_terms import has_row_terms, row_affines, row_terms
from bitsynth.emit.packing import CODES, packing, packs_words, takes_tables
from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.inputs import Input, Planes
from bitsynth.kernel.packing import number
from bitsynth.kernel.program import Kernel
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.functions import CallBuffer, DeclaredCall, DeclaredNumber, FunctionVerdict, prove_functions
from bitsynth.objects.polynomials import BitPolynomial, bit, of_table, product_of, total
from bitsynth.objects.prove import features_of
from bitsynth.spec.matmul import affine

_WORD_CODES, _WORD = 64, 8
"""The codes of a word, one bit of each, and the bytes of a word."""
_SUM, _TERM = 8, 4
"""Bytes of a sum in a packed operand, and of a row's term."""
_ROOM = 64
"""Bytes behind the last row that may be read, in some calls."""

_LARGEST = (1 << 63) - 1
"""The most bytes of an object."""
_NO_SIZE, _REFUSED = (1 << 64) - 1, (1 << 32) - 1
"""Results for sizes that no object has: of functions that return sizes, and of functions that pack."""
_HUGE = (
    (_NO_SIZE, 1),
    (1, _NO_SIZE),
    (_NO_SIZE, _NO_SIZE),
    (_NO_SIZE, 0),
    (0, _NO_SIZE),
    (1 << 32, 1 << 31),
    (1 << 31, 1 << 32),
    (1 << 33, 1 << 33),
    (3, 1 << 62),
    (1 << 62, 3),
    (1 << 63, 2),
    (2, 1 << 63),
)
"""Vectors and codes of each. Most are more than an object holds, and some products overflow 64 bits."""

CodeBits = Sequence[BitPolynomial]
"""The bits of a code, the lowest first."""
CodeAt = Callable[[int, int], CodeBits | None]
"""The code of a row, or column, at a position of K; None behind the last one, and of what pads the operand."""


class _Placed(NamedTuple):
    """A number of a packed operand: its first byte, its bytes, and its value."""

    first: int
    size: int
    value: BitPolynomial


@cache
def _of_code(table: tuple[int, ...], bits: tuple[tuple[object, int], ...]) -> BitPolynomial:
    return of_table(table, [bit(x) for x in bits])


def _function(table: Sequence[int], code: CodeBits) -> BitPolynomial:
    """Return table[code]."""
    names = tuple(next(iter(next(iter(x)))) for x in code)
    return _of_code(tuple(table), names)


def _codes(size: int, bits: int) -> CallBuffer:
    """Return a buffer of codes of `bits` bits; its name says how many, as a name has one kind of bytes."""
    return CallBuffer(f"codes of {bits} bits", size, code_bits=bits)


def codes_in_memory(buffer: CallBuffer, place: Callable[[int, int], int]) -> CodeAt:
    """Return codes that lie in memory, a byte each."""
    return lambda v, k: [bit(((buffer.name, place(v, k)), j)) for j in range(buffer.code_bits)]


def codes_in_words(buffer: str, bits: int, apart: int) -> CodeAt:
    """Return codes of rows of packed words, `apart` words from each other: bit 8 b + q of a word is code 8 q + b."""

    def code(row: int, k: int) -> CodeBits:
        block, c = divmod(k, _WORD_CODES)
        first = (row * apart + block * bits) * _WORD + c % 8
        return [bit(((buffer, first + _WORD * j), c // 8)) for j in range(bits)]

    return code


def limit(code: CodeAt, count: int, k: int) -> CodeAt:
    """Return codes of `count` vectors of `k` codes; behind them there are none."""
    return lambda v, i: code(v, i) if v < count and i < k else None


def prove_packers(
    path: Path, kernel: MatmulKernel, *, name: str = "", say: Callable[[str], object] = lambda text: None
) -> list[FunctionVerdict]:
    """Return what is shown of the packers of a kernel in the object at `path`, for listed sizes.

    Their names begin with `name`, by default the kernel's. Refuted and SpecError are as for `prove_functions`.
    """
    isa, features = load(kernel.spec.isa), features_of(kernel.entry.kernel)
    return prove_functions(path, isa, PackerDeclarations(kernel, name).calls(), features, say=say)


class PackerDeclarations:
    """The declared calls of the packers of a kernel, whose names begin with `name`, by default its own."""

    def __init__(self, kernel: MatmulKernel, name: str = "") -> None:
        self._spec, self._name = kernel.spec, name or kernel.name
        self._kernel: Kernel = kernel.entry.kernel
        self._order = packing(self._kernel).order
        if sorted(self._order) != list(range(self._kernel.k_step)):
            raise SpecError(f"{self._name}: the codes of a step are packed in an order that leaves some out")
        if self._kernel.cross_terms and self._order != tuple(range(self._kernel.k_step)):
            raise SpecError(
                f"{self._name}: products of neighbours are of codes in order, but a step is packed in another"
            )

    def calls(self) -> Iterator[DeclaredCall]:
        """Yield calls of each packer, with sizes about the ends of steps, tiles and words."""
        yield from self._sizes_of_operands()
        yield from self._rows("pack_rows")
        if packs_words(self._kernel):
            yield from self._rows("pack_words")
        if self._kernel.together > 1:
            yield from self._pairs()
        for operand in ("act", "wgt"):
            yield from self._operands(operand)

    @property
    def _long(self) -> int:
        """The codes of a row of several steps and words, and some more."""
        return 3 * max(self._kernel.k_step, _WORD_CODES) + 5

    def _lengths(self) -> list[int]:
        """Return numbers of codes: none, one, about the ends of steps, and of 16 and 64 codes."""
        step = self._kernel.k_step
        ends = {step, _WORD_CODES}
        return sorted({0, 1, 17, self._long} | {n + k for n in ends for k in (-1, 0, 1)})

    # Rows.

    def _rows(self, function: str) -> Iterator[DeclaredCall]:
        """Yield calls of the packer of rows from codes, or from words."""
        declare = self._row_call if function == "pack_rows" else self._words_call
        lengths = self._lengths()
        rows = packing(self._kernel).rows
        in_parts = function == "pack_words" and rows not in {"words", "bytes"} and not takes_tables(self._kernel)
        long = [CODES + self._kernel.k_step + 1] if in_parts else []  # Rows are unpacked CODES codes at a time.
        for k in (*lengths, *long):
            yield declare(1, k, 0, 0)
        some = [k for k in lengths if k <= _WORD_CODES + 1][1::2]
        yield declare(0, some[-1], 0, 0)
        for n, k in enumerate(some):
            yield declare(3, k, n % 3, _ROOM * (n % 2))

    def _row_call(self, count: int, k: int, gap: int, room: int) -> DeclaredCall:
        apart = k + gap
        readable = (apart * (count - 1) + k if count else 0) + room
        read = _codes(readable, self._kernel.row_bits)
        codes = codes_in_memory(read, lambda row, at: row * apart + at)
        return self._pack_rows("pack_rows", count, k, (count, k, read.name, apart, readable), read, codes, gap)

    def _words_call(self, count: int, k: int, gap: int, room: int) -> DeclaredCall:
        bits = self._kernel.row_bits
        words = -(-k // _WORD_CODES) * bits
        apart = words + gap
        size = _WORD * (apart * (count - 1) + words) if count else 0
        read = CallBuffer("words", size, aligned=_WORD)
        codes = codes_in_words("words", bits, apart)
        return self._pack_rows("pack_words", count, k, (count, k, "words", apart), read, codes, gap)

    def _pack_rows(
        self,
        function: str,
        count: int,
        k: int,
        arguments: tuple[int | str, ...],
        read: CallBuffer,
        codes: CodeAt,
        gap: int,
    ) -> DeclaredCall:
        """Return the call of a packer of rows, whose packed rows have `gap` bytes between them."""
        kernel, codes = self._kernel, limit(codes, count, k)
        steps = -(-k // kernel.k_step)
        apart, slack = steps * kernel.row_bytes + gap, load(kernel.isa).word.lanes
        numbers = [
            DeclaredNumber("packed", row * apart + x.first, x.size, x.value)
            for row in range(count)
            for x in self._row(steps, partial(codes, row))
        ]
        terms, scale = row_terms(kernel, self._spec), row_affines(kernel, self._spec)
        affines = [scale * code for code in range(1 << kernel.row_bits)]
        has_terms, has_affines = has_row_terms(kernel, self._spec), scale != 0
        for name, table, cross, has in (
            ("terms", terms, kernel.cross_terms, has_terms),
            ("affines", affines, 0, has_affines),
        ):
            for row in range(count if has else 0):
                value = _sum(table, partial(codes, row), k, cross)
                numbers.append(DeclaredNumber(name, _TERM * row, _TERM, value))
        buffers = (
            read,
            CallBuffer("packed", count * apart + slack, written=True),
            CallBuffer("terms", _TERM * count * has_terms, aligned=_TERM, written=True),
            CallBuffer("affines", _TERM * count * has_affines, aligned=_TERM, written=True),
        )
        sizes = f"{count} rows of {k} codes"
        given = (*arguments, "packed", apart, "terms", "affines")
        return DeclaredCall(f"{self._name}_{function}", sizes, given, buffers, tuple(numbers))

    def _pairs(self) -> Iterator[DeclaredCall]:
        """Yield calls of the function that merges rows, for rows of one step and of several registers."""
        whole, lanes = self._kernel.row_bytes, load(self._kernel.isa).word.lanes
        for count, ahead, size in (
            (0, 1, whole),
            (0, 2, whole),
            (1, 1, whole),
            (2, 1, whole),
            (3, 1, -(-4 * lanes // whole) * whole),
            (5, 2, whole),
        ):
            yield self._pair_call(count, ahead, size)

    def _pair_call(self, count: int, ahead: int, size: int) -> DeclaredCall:
        """Return the call that merges each row with the row that is `ahead` rows behind it, if there is one."""
        half, apart = 8 // self._kernel.together, size + _WORD
        rows = CallBuffer("halves", count * apart, written=True, code_bits=half, is_read=True)
        numbers = []
        for row, at in product(range(count), range(size)):
            members = [row + ahead * n for n in range(self._kernel.together)]
            value = total(
                (bit(((rows.name, member * apart + at), j)), 1 << half * n + j)
                for n, member in enumerate(members)
                if member < count
                for j in range(half)
            )
            numbers.append(DeclaredNumber(rows.name, row * apart + at, 1, value))
        sizes = f"{count} rows of {size} bytes, partners {ahead} ahead"
        given = (count, ahead, size, rows.name, apart)
        return DeclaredCall(f"{self._name}_pair_rows", sizes, given, (rows,), tuple(numbers))

    def _row(self, steps: int, code: Callable[[int], CodeBits | None]) -> Iterator[_Placed]:
        """Yield the numbers of a packed row."""
        kernel = self._kernel
        inputs = [x for side in dict.fromkeys(p.rows for p in kernel.passes) for x in side]
        before = 0
        for each in inputs:
            size = kernel.input_bytes(each)
            for step in range(steps):
                outer = kernel.bit_axis == "outer"
                first = steps * before + step * size if outer else step * kernel.row_bytes + before
                yield from self._input(each, size, first, step, code)
            before += size

    def _input(
        self, of: Input, size: int, first: int, step: int, code: Callable[[int], CodeBits | None]
    ) -> Iterator[_Placed]:
        """Yield the numbers of one input of a step."""
        kernel = self._kernel

        def at(position: int) -> CodeBits | None:
            return code(step * kernel.k_step + self._order[position])

        if isinstance(of, Planes):
            each, width = kernel.code_bytes, len(of.tables)
            table = [number(of.tables, x) for x in range(1 << self._bits_of(code))]
            for b in range(size // each):
                in_byte = [(at(position), q * width) for q, position in enumerate(of.positions(b))]
                value = total((_function(table, x), 1 << shift) for x, shift in in_byte if x is not None)
                yield _Placed(first + b * each, each, value)
            return
        chosen = [at(of.first + n) for n in range(of.bits)]
        for entry in range(of.entries):
            value = total(
                (_function(of.values, x), 1) for n, x in enumerate(chosen) if x is not None and entry >> n & 1
            )
            yield _Placed(first + entry, 1, value)

    def _bits_of(self, code: Callable[[int], CodeBits | None]) -> int:
        first = code(0)
        return len(first) if first is not None else 0

    # Whole operands.

    def _sizes_of_operands(self) -> Iterator[DeclaredCall]:
        """Yield calls of the functions that return the bytes of packed operands."""
        for operand, (first, second) in (("act", ("m", "k")), ("wgt", ("k", "n"))):
            few = [(vectors, k) for vectors in (0, 1, 7, 1000) for k in (0, 1, 129)]
            for vectors, k in (*few, *self._about_the_largest(operand), *_HUGE):
                bytes_of = self._operand_bytes(operand, vectors, k)[1]
                pair = (vectors, k) if operand == "act" else (k, vectors)
                sizes = f"{first} {pair[0]}, {second} {pair[1]}"
                result = bytes_of if bytes_of <= _LARGEST else _NO_SIZE
                yield DeclaredCall(f"{self._name}_{operand}_bytes", sizes, pair, result=(result, _WORD))

    def _about_the_largest(self, operand: str) -> Iterator[tuple[int, int]]:
        """Yield vectors and codes of the largest operands that an object holds, and one vector more."""
        for k in (0, 1, 129):

            def bytes_of(vectors: int, k: int = k) -> int:
                return self._operand_bytes(operand, vectors, k)[1]

            most = bisect_right(range(_LARGEST), _LARGEST, key=bytes_of) - 1
            yield from ((most, k), (most + 1, k))

    def _is_row(self, operand: str) -> bool:
        return (operand == "act") != self._kernel.swapped

    def _operand_bytes(self, operand: str, vectors: int, k: int) -> tuple[int, int]:
        """Return the bytes of a packed operand's codes, and of all of the operand: its vectors have sums after them."""
        kernel = self._kernel
        unit, each = (kernel.rows, kernel.row_bytes) if self._is_row(operand) else (kernel.columns, kernel.column_bytes)
        padded = -(-vectors // unit) * unit
        inputs = -(-padded * -(-k // kernel.k_step) * each // _WORD) * _WORD
        sums = 1 if affine(self._spec).is_identity else 2
        return inputs, inputs + padded * _SUM * sums

    def _operands(self, operand: str) -> Iterator[DeclaredCall]:
        """Yield calls of the packer of a whole operand."""
        kernel, step = self._kernel, self._kernel.k_step
        unit = kernel.rows if self._is_row(operand) else kernel.columns
        for vectors, k in (
            (0, 3),
            (1, 0),
            (1, 1),
            (2, step - 1),
            (unit, step),
            (unit + 1, step + 1),
            (1, 2 * step + 1),
            (2, _WORD_CODES + 1),
            (1, self._long),
        ):
            yield self._operand_call(operand, vectors, k)
        for vectors, k in (*self._about_the_largest(operand), *_HUGE):
            if vectors * k > _LARGEST or self._operand_bytes(operand, vectors, k)[1] > _LARGEST:
                yield self._impossible_call(operand, vectors, k)

    def _impossible_call(self, operand: str, vectors: int, k: int) -> DeclaredCall:
        """Return the call for an operand whose codes or bytes no object holds: it is refused and touches no memory."""
        pair = (vectors, k) if operand == "act" else (k, vectors)
        sizes = f"{pair[0]} x {pair[1]} codes"
        return DeclaredCall(f"{self._name}_pack_{operand}", sizes, (*pair, 0, 0), result=(_REFUSED, 4))

    def _operand_call(self, operand: str, vectors: int, k: int) -> DeclaredCall:
        kernel, of_rows = self._kernel, self._is_row(operand)
        unit, bits = (kernel.rows, kernel.row_bits) if of_rows else (kernel.columns, kernel.column_bits)
        padded, steps = -(-vectors // unit) * unit, -(-k // kernel.k_step)
        place = (lambda v, i: v * k + i) if operand == "act" else (lambda v, i: i * vectors + v)
        read = _codes(vectors * k, bits)
        codes = limit(codes_in_memory(read, place), vectors, k)
        placed = list(self._rows_of(padded, steps, codes) if of_rows else self._columns(padded, steps, codes))
        inputs, size = self._operand_bytes(operand, vectors, k)
        correction = affine(self._spec)
        affines = correction.act_terms if operand == "act" else correction.wgt_terms
        tables = [(kernel.row_terms if of_rows else kernel.column_terms, kernel.cross_terms)]
        tables += [] if correction.is_identity else [(affines, 0)]
        for n, (table, cross) in enumerate(tables):
            for v in range(padded):
                value = _sum(table, partial(codes, v), k, cross)
                placed.append(_Placed(inputs + _SUM * (n * padded + v), _SUM, value))
        pair = (vectors, k) if operand == "act" else (k, vectors)
        buffers = (
            read,
            CallBuffer("packed", size, aligned=_WORD, written=True),
        )
        sizes = f"{pair[0]} x {pair[1]} codes"
        numbers = tuple(DeclaredNumber("packed", *x) for x in placed)
        given = (*pair, read.name, "packed")
        return DeclaredCall(f"{self._name}_pack_{operand}", sizes, given, buffers, numbers, result=(0, 4))

    def _rows_of(self, count: int, steps: int, codes: CodeAt) -> Iterator[_Placed]:
        """Yield the numbers of packed rows; rows of a group share the bytes of the first one."""
        size, together = steps * self._kernel.row_bytes, self._kernel.together
        for row in range(count):
            members = [list(self._row(steps, partial(codes, row + n))) for n in range(together) if row + n < count]
            for same in zip(*members, strict=True):
                value = total((x.value, 1 << 8 // together * n) for n, x in enumerate(same))
                yield _Placed(row * size + same[0].first, same[0].size, value)

    def _columns(self, count: int, steps: int, codes: CodeAt) -> Iterator[_Placed]:
        """Yield the numbers of packed columns: of each tile, of each side that passes read, of each step."""
        kernel = self._kernel
        slot, columns = kernel.slot_bytes, kernel.columns
        first = 0
        for tile in range(0, count, columns):
            for inputs in dict.fromkeys(p.columns for p in kernel.passes):
                for step in range(steps):
                    for i, each in enumerate(inputs):
                        place = i * steps + step if kernel.bit_axis == "outer" else step * len(inputs) + i
                        for s, column in enumerate(kernel.slots):
                            at = first + (place * columns + s) * slot
                            yield from self._input(each, slot, at, step, partial(codes, tile + column))
                first += steps * columns * slot * len(inputs)


def _sum(table: Sequence[int], code: Callable[[int], CodeBits | None], k: int, cross: int) -> BitPolynomial:
    """Return the sum of table[code] over a vector's codes, and `cross` times the products of neighbours."""
    codes = [x for x in map(code, range(k)) if x is not None]
    numbers = range(len(table))
    products = [
        (product_of(_function(numbers, a), _function(numbers, b)), cross)
        for a, b in zip(codes[::2], codes[1::2], strict=False)
        if cross
    ]
    return total([*((_function(table, x), 1) for x in codes), *products])
