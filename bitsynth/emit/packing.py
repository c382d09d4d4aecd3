"""The packing of a kernel's operands: chosen once, and compared with the packing that was proved.

The proof reads codes by their position in a step and holds for any order of codes that is the same for rows and
columns. What writes bytes for a kernel, in C or in numpy, takes that order and the way rows are packed from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import product
from typing import Any, Literal

import numpy as np

from bitsynth.emit.statements import Scope, constant_arrays, load_constants
from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa, load
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Build, Input, Planes, Table
from bitsynth.kernel.packing import Codes, bit_tables, pack
from bitsynth.kernel.program import ORDERS, Kernel

WORD_BYTES = 8
"""Codes that are packed at once, one in each byte of a word."""

ROWS, STEPS = 8, 3
"""Rows of mixed codes that `check` compares, and steps of each."""

WORD_CODES = 64
"""Codes that have one bit each in a packed word."""

CODES = 1152
"""Codes that are unpacked from words at a time: whole words, and whole steps of every kernel that ships."""

MAX_COMPARED_CODES = 1 << 14
"""The most rows with one nonzero code that `check` compares; beyond, only the last code is tried."""

Polynomial = tuple[tuple[int, ...], ...]
"""A boolean function of a code's bits in algebraic normal form: an exclusive or of products of bits, () being 1."""


@dataclass(frozen=True)
class Packing:
    """The order of codes, and how rows of codes that lie side by side are packed.

    `order[p]` is the code of a step that lies at position p. `words`: planes of a step, of eight codes at a time, for
    kernels whose rows are packed so; "tables" and "bytes" take the codes one after the other, "wide" with zeros
    behind each, "steps" as columns are.
    """

    rows: Literal["words", "tables", "bytes", "wide", "steps"]
    order: tuple[int, ...]
    words: tuple[Polynomial, ...] = ()

    @property
    def is_of_codes(self) -> bool:
        """Whether a packed row is its codes one after the other, each a number of its own."""
        return self.rows in ("bytes", "wide")

    @property
    def in_order(self) -> bool:
        """Whether codes lie at their own positions."""
        return self.order == tuple(range(len(self.order)))


@lru_cache(maxsize=256)
def packing(kernel: Kernel) -> Packing:
    """Return the fastest packing for the rows of `kernel`; raise Refuted if it differs from the proved packing."""
    inputs = _row_inputs(kernel)
    chosen = _as_words(kernel, inputs) or _as_tables(kernel, inputs) or _as_bytes(kernel, inputs)
    chosen = chosen or Packing("steps", tuple(range(kernel.k_step)))
    check(kernel, chosen)
    if kernel.cross_terms and (chosen.rows != "bytes" or not chosen.in_order):
        raise Refuted(
            f"products of neighbours are of codes in order, a byte each, but rows are packed as {chosen.rows}"
        )
    return chosen


def _row_inputs(kernel: Kernel) -> list[Input]:
    """Return the inputs of a row in memory order; passes share equal inputs."""
    return [x for side in dict.fromkeys(p.rows for p in kernel.passes) for x in side]


def _as_words(kernel: Kernel, inputs: Sequence[Input]) -> Packing | None:
    """Return the packing as words, if bits of consecutive positions share a byte; neighbours are a word apart.

    Eight codes go to their places by one shift. A step has a word for every 8 bytes of a column, one after the other.
    """
    each, size = kernel.k_step // kernel.slot_bytes, codes_of_word(kernel)
    planes = [x for x in inputs if isinstance(x, Planes) and len(x.tables) == 1]
    fits = all((x.first, x.stride, x.per_byte) == (0, each, each) for x in planes) and len(planes) == len(inputs)
    word_slots = kernel.slot_bytes > WORD_BYTES
    if not fits or size not in ((WORD_CODES,) if word_slots else (32, WORD_CODES)) or kernel.slot_bytes % WORD_BYTES:
        return None
    order = tuple(p - p % size + p % each * WORD_BYTES + p % size // each for p in range(kernel.k_step))
    return Packing("words", order, tuple(_polynomial(x.tables[0], kernel.row_bits) for x in planes))


def _as_tables(kernel: Kernel, inputs: Sequence[Input]) -> Packing | None:
    """Return the packing as tables, if every code goes into one table, as it is."""
    tables = [x for x in inputs if isinstance(x, Table)]
    if len(tables) != len(inputs) or not kernel.build or not kernel.build.in_order:
        return None
    firsts = [t.first for t in tables] == list(range(0, kernel.k_step, tables[0].bits))
    plain = all(t.values == tuple(range(1 << kernel.row_bits)) for t in tables)
    return Packing("tables", tuple(range(kernel.k_step))) if firsts and plain else None


def _as_bytes(kernel: Kernel, inputs: Sequence[Input]) -> Packing | None:
    """Return the packing as bytes in the order of codes, or of wider numbers, if each is a code."""
    codes = bit_tables(kernel.row_bits)
    planes = [x for x in inputs if isinstance(x, Planes) and x.per_byte == 1 and x.tables == codes]
    places = [p for x in planes for b in range(kernel.input_bytes(x) // kernel.code_bytes) for p in x.positions(b)]
    together = kernel.bit_axis == "inner" or len(inputs) == 1
    if len(planes) != len(inputs) or sorted(places) != list(range(kernel.k_step)) or not together:
        return None
    return Packing("bytes" if kernel.code_bytes == 1 else "wide", tuple(map(places.index, range(kernel.k_step))))


def _polynomial(table: int, bits: int) -> Polynomial:
    """Return the boolean function `table` of codes of `bits` bits as a polynomial."""
    size = 1 << bits
    terms = [table >> code & 1 for code in range(size)]
    for bit in range(bits):
        for code in range(size):
            if code >> bit & 1:
                terms[code] ^= terms[code ^ 1 << bit]
    return tuple(tuple(j for j in range(bits) if code >> j & 1) for code in range(size) if terms[code])


def codes_of_word(kernel: Kernel) -> int:
    """Return the codes whose bits 8 bytes of a plane hold, in kernels whose rows are packed as words."""
    return kernel.k_step * WORD_BYTES // kernel.slot_bytes


def word_text(polynomial: Polynomial, kernel: Kernel) -> str:
    """Return the C of a word of a plane, over the words b0, b1, ... of the codes' bits."""
    ones_of_byte = (1 << kernel.k_step // kernel.slot_bytes) - 1
    full = f"UINT64_C({sum(ones_of_byte << 8 * b for b in range(WORD_BYTES))})"
    products = [" & ".join(f"b{j}" for j in bits) or full for bits in polynomial]
    return " ^ ".join(f"({x})" if "&" in x else x for x in products) or "0"


def packs_words(kernel: Kernel) -> bool:
    """Return whether rows can be packed from packed words too: CODES are whole steps whose bytes lie together."""
    rows = packing(kernel).rows
    together = kernel.bit_axis == "inner" and (WORD_CODES if rows == "bytes" else CODES) % kernel.k_step == 0
    return rows == "words" or together


def ones(kernel: Kernel, chosen: Packing, terms: Sequence[int]) -> list[tuple[int, Polynomial]]:
    """Return words with counts: set bits of the words times the counts add up to the `terms` of a row's packed codes.

    Words of bits and of planes suffice for every kernel that ships; products of bits do for all terms.
    """
    bits = kernel.row_bits
    words = list(dict.fromkeys([*(((bit,),) for bit in range(bits)), *chosen.words]))
    columns = np.array([[_value(word, code) for code in range(1 << bits)] for word in words], np.float64)
    taken: list[int] = []
    for k in range(len(words)):
        if np.linalg.matrix_rank(columns[[*taken, k]]) > len(taken):
            taken.append(k)
    times = np.rint(np.linalg.lstsq(columns[taken].T, np.array(terms, np.float64), rcond=None)[0]).astype(np.int64)
    if (times @ columns[taken].astype(np.int64) == terms).all():
        return [(int(n), words[k]) for n, k in zip(times, taken, strict=True) if n]
    return _products(terms, bits)


def _value(word: Polynomial, code: int) -> int:
    """Return the bit of the word for a code."""
    return sum(all(code >> bit & 1 for bit in term) for term in word) % 2


def _products(terms: Sequence[int], bits: int) -> list[tuple[int, Polynomial]]:
    """Return products of bits and factors whose sum is `terms` (Moebius inversion)."""
    times = list(terms)
    for bit in range(bits):
        for code in range(1 << bits):
            if code >> bit & 1:
                times[code] -= times[code ^ 1 << bit]
    return [(n, (tuple(j for j in range(bits) if code >> j & 1),)) for code, n in enumerate(times) if n]


def check(kernel: Kernel, layout: Packing) -> None:
    """Raise Refuted if rows are packed otherwise than was proved: rows with one nonzero code, and mixed rows."""
    last, size = (1 << kernel.row_bits) - 1, kernel.k_step
    chosen = range(1, last + 1) if last * size <= MAX_COMPARED_CODES else [last]
    every = np.kron(np.array(chosen, np.uint8)[:, None], np.eye(size, dtype=np.uint8))
    mixed = _mix(ROWS, STEPS * size, last)
    for codes in (every, mixed):
        got, want = pack_rows(kernel, layout, codes), bind_rows(kernel, layout.order, codes)
        wrong = (got != want).any(axis=1) if got.shape == want.shape else np.ones(len(codes), bool)
        if wrong.any():
            raise Refuted(
                f"rows of a kernel of {size} positions a step would be packed as {layout.rows}, but not as was proved: "
                f"{wrong.sum()} of {len(wrong)} differ, the first one of codes {codes[wrong.argmax()].tolist()}"
            )


def _mix(rows: int, length: int, last: int) -> Codes:
    """Return mixed codes (rows, length) up to `last`: a Weyl sequence, as importing numpy.random takes 7 ms."""
    places = np.arange(rows * length, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (places >> np.uint64(40) & np.uint64(last)).astype(np.uint8).reshape(rows, length)


def bind_rows(kernel: Kernel, order: Sequence[int], codes: Codes) -> Codes:
    """Return the bytes (R, bytes) of rows of codes (R, steps x k_step) as the proof binds the inputs."""
    steps = codes.reshape(len(codes), -1, kernel.k_step)[..., list(order)]
    return _lay_out(kernel, [_input(kernel, x, steps) for x in _row_inputs(kernel)])


def pack_rows(kernel: Kernel, chosen: Packing, codes: Codes) -> Codes:
    """Return the bytes (R, bytes) that the C function NAME_pack_row writes for codes (R, steps x k_step)."""
    steps = codes.reshape(len(codes), -1, kernel.k_step)
    if chosen.rows == "words":
        return _lay_out(kernel, list(_words(chosen.words, steps, kernel)))
    if chosen.rows == "tables":
        bits = next(x.bits for x in _row_inputs(kernel) if isinstance(x, Table))
        return _sums(codes.reshape(len(codes), -1, bits)).reshape(len(codes), -1)
    if chosen.rows == "bytes":
        return codes
    if chosen.rows == "wide":
        return codes.astype(f"<u{kernel.code_bytes}").view(np.uint8)
    plain = steps[..., list(chosen.order)]
    return _lay_out(kernel, [_input(kernel, x, steps if isinstance(x, Table) else plain) for x in _row_inputs(kernel)])


def _lay_out(kernel: Kernel, inputs: Sequence[Codes]) -> Codes:
    """Return inputs (R, steps, bytes) as rows (R, bytes): step by step, or all steps of one input before the next."""
    together = inputs if kernel.bit_axis == "inner" else [x.reshape(len(x), 1, -1) for x in inputs]
    return np.concatenate(together, axis=2).reshape(len(inputs[0]), -1)


def _input(kernel: Kernel, x: Input, steps: Codes) -> Codes:
    """Return the bytes (R, steps, bytes) of one input for codes by position (R, steps, k_step)."""
    if isinstance(x, Planes):
        return pack(x, steps, kernel.row_bits, kernel.input_bytes(x), kernel.code_bytes)
    return _sums(np.array(x.values, np.uint8)[steps[..., x.first : x.first + x.bits]])


def _sums(values: Codes) -> Codes:
    """Return all partial sums (..., entries) of values (..., bits)."""
    chosen = np.arange(1 << values.shape[-1])[:, None] >> np.arange(values.shape[-1]) & 1
    return (values @ chosen.T.astype(np.uint8)).astype(np.uint8)


def _words(words: Sequence[Polynomial], steps: Codes, kernel: Kernel) -> Iterator[Codes]:
    """Return bytes (R, steps, slot bytes) of each plane: bit q of byte b of a word belongs to its code 8 q + b."""
    each = kernel.k_step // kernel.slot_bytes
    eights = steps.reshape(*steps.shape[:2], -1, each, WORD_BYTES)
    shifts = np.arange(each, dtype=np.uint8)[:, None]
    planes = [((eights >> np.uint8(j) & 1) << shifts).sum(axis=3, dtype=np.uint8) for j in range(kernel.row_bits)]
    bits, full = [x.reshape(*steps.shape[:2], -1) for x in planes], np.uint8((1 << each) - 1)
    for polynomial in words:
        products = (reduce(np.bitwise_and, [bits[j] for j in term], np.full_like(bits[0], full)) for term in polynomial)
        yield reduce(np.bitwise_xor, products, np.zeros_like(bits[0]))


STAGED = Value.of(Role.STAGED, 0)

_AT_ONCE = 4
"""Tables whose instructions are interleaved on an in-order processor: as many as a latency has cycles."""

_TAKEN_CODES, _TAKEN_BITS = 4, 4
"""Codes of a table that is copied from a table of all codes, and the most bits of each: entries are bytes."""


def takes_tables(kernel: Kernel) -> bool:
    """Return whether rows packed from words copy their tables from precomputed tables of all 2-bit codes.

    That is for instruction sets whose tables fill a register; others compute several tables at a time.
    """
    rows = packing(kernel)
    if rows.rows != "tables" or kernel.row_bits > _TAKEN_BITS:
        return False
    bits = next(x.bits for p in kernel.passes for x in p.rows if isinstance(x, Table))
    return bits == _TAKEN_CODES and load(kernel.isa).word.lanes == 1 << bits


def tables(isa: Isa, kernel: Kernel, build: Build, macros: dict[str, str]) -> dict[str, Any]:
    """Return constants and statements that build tables of staged values, one and `at_once` at a time."""
    bits = next(x.bits for p in kernel.passes for x in p.rows if isinstance(x, Table))
    codes, padded = build.tables * bits, -1 in build.stage
    waits = kernel.order not in ORDERS and not padded and packing(kernel).rows == "tables"
    return {
        "constants": constant_arrays(build.constants, "lanes"),
        "lines": _one(Scope(isa, kernel.forms, macros=macros), isa, build),
        "several": list(_several(Scope(isa, kernel.forms, macros=macros), isa, build, codes)) if waits else [],
        "at_once": _AT_ONCE,
        "tables": build.tables,
        "codes": codes,
        "stage": ["SIZE_MAX" if n < 0 or n >= bits else str(n) for n in build.stage],
        "padded": padded,
    }


def _one(scope: Scope, isa: Isa, build: Build) -> list[str]:
    lines = load_constants(scope, isa, build.constants, "lanes")
    lines += [scope.load(build.load, STAGED, "stage"), *scope.steps(build.steps)]
    return [*lines, scope.store(build.store, build.table, "to")]


def _several(scope: Scope, isa: Isa, build: Build, codes: int) -> Iterator[str]:
    """Interleave the statements of several runs: statement k of each run before statement k + 1 of any."""
    yield from load_constants(scope, isa, build.constants, "lanes")
    runs = [partial(_of_run, run) for run in range(_AT_ONCE)]
    for run, named in enumerate(runs):
        yield scope.load(build.load, named(STAGED), scope.address(f"codes + {run * codes}"))
        yield from scope.hold(named(STAGED))
    for step, named in product(build.steps, runs):
        yield scope.step(step, named)
        yield from scope.hold(named(step.dst))
    for run, named in enumerate(runs):
        yield scope.store(build.store, named(build.table), f"to + {run} * TABLES * ENTRIES")


def _of_run(run: int, value: Value) -> str:
    """Return the C name of a value of run `run`; constants keep their names."""
    return value.of_row(run)
