"""Kernels compiled once, inputs that break kernels, and the integer product they must equal."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from support.solved_kernels import proved_entry

ISAS = ("avx2", "neon")
WIDTHS = [(a, w) for a in (1, 2, 3, 4) for w in (1, 2, 3, 4)]
CORE = ("unsigned", "bipolar")
PATTERNS = ("random", "zeros", "ones", "max", "min", "alternating")


@cache
def kernel(isa: str, act_bits: int, w_bits: int, act: str = "unsigned", wgt: str = "bipolar") -> MatmulKernel:
    """The shipped kernel."""
    return get_kernel(isa, act_bits, w_bits, act, wgt)


@cache
def of_method(
    isa: str, method: str, act_bits: int, w_bits: int, act: str = "unsigned", wgt: str = "bipolar"
) -> MatmulKernel:
    """The kernel of one method, compiled once."""
    spec = MatmulSpec(isa, MatmulOperand(act_bits, Encoding(act)), MatmulOperand(w_bits, Encoding(wgt)))
    return MatmulKernel(proved_entry(isa, method, act_bits, w_bits), spec)


def encodings(act_bits: int, w_bits: int) -> list[tuple[str, str]]:
    """Every pair of encodings these widths have."""

    def of(bits: int) -> list[str]:
        return [e.value for e in Encoding if bits in e.widths]

    return [(a, w) for a in of(act_bits) for w in of(w_bits)]


def operand(what: MatmulOperand, shape: tuple[int, ...], pattern: str, rng: Generator) -> NDArray[Any]:
    """Operand values: codes 0, 1 or the greatest everywhere, alternating, or random."""
    last = what.codes[-1]
    patterns: dict[str, Callable[[], NDArray[Any]]] = {
        "random": lambda: rng.integers(0, last + 1, shape),
        "zeros": lambda: np.zeros(shape, int),
        "ones": lambda: np.ones(shape, int),
        "max": lambda: np.full(shape, last),
        "min": lambda: np.zeros(shape, int),
        "alternating": lambda: np.indices(shape).sum(axis=0) % 2 * last,
    }
    values: NDArray[Any] = what.scale * patterns[pattern]() + what.offset
    if pattern == "zeros" and what.encoding in (Encoding.SIGNED, Encoding.TERNARY):
        values = np.zeros(shape, int)
    return values


def check(k: MatmulKernel, m: int, length: int, n: int, patterns: Sequence[str] = PATTERNS, seed: int = 0) -> None:
    """Every pattern on one side meets itself and random values on the other."""
    rng = np.random.default_rng([seed, m, length, n])
    for pattern in patterns:
        for other in dict.fromkeys((pattern, "random")):
            a = operand(k.spec.act, (m, length), pattern, rng)
            w = operand(k.spec.wgt, (length, n), other, rng)
            got = k.matmul(a, w)
            want = a.astype(np.int64) @ w.astype(np.int64)
            assert got.dtype == np.int32
            assert got.shape == want.shape
            wrong = np.argwhere(got != want)
            assert not len(wrong), (
                f"{k.name} {pattern} x {other}, M={m} K={length} N={n}: at {wrong[0]} "
                f"{got[tuple(wrong[0])]}, want {want[tuple(wrong[0])]}"
            )


def periods(k: MatmulKernel, most: int = 1 << 16) -> list[int]:
    """Periods of every loop in positions of K, up to a length that can be tried."""
    loops = [list(accumulate((n.trip_count for n in p.loops), mul)) for p in k.entry.kernel.passes]
    return sorted({k.entry.kernel.k_step * x for periods_ in loops for x in periods_ if x <= most})
