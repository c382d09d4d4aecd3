"""Emitted kernels against numpy: natively with AVX2, and with NEON (emulated on other machines)."""

from itertools import product

import numpy as np
import pytest
from reference import CORE, ISAS, PATTERNS, WIDTHS, check, encodings, kernel, operand, periods

from bitsynth.errors import SpecError

QUICK = [(1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize("widths", QUICK, ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_core_product(isa, widths):
    k = kernel(isa, *widths)
    shape = k.entry.kernel
    for length in (1, shape.k_step - 1, shape.k_step, 2 * shape.k_step + 1, periods(k)[0] + 1):
        check(k, shape.rows + 1, length, shape.columns + 3, ("random", "max", "alternating"))


@pytest.mark.parametrize("isa", ISAS)
def test_all_ones_at_k_4608_in_a2w2(isa):
    """CGO 2020 sums in 8 bits, where this input gives -448 in place of 576."""
    k = kernel(isa, 2, 2)
    for act, wgt in product((0, 1, 3), (-3, -1, 1, 3)):
        a, w = np.full((5, 4608), act), np.full((4608, 9), wgt)
        assert (k.matmul(a, w) == 4608 * act * wgt).all()
    check(k, 2, 4608, 2)


@pytest.mark.parametrize("pair", encodings(2, 2)[::3], ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_encodings(isa, pair):
    k = kernel(isa, 2, 2, *pair)
    check(k, 3, 2 * k.entry.kernel.k_step + 1, 9)


@pytest.mark.slow
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_every_tail(isa, widths):
    k = kernel(isa, *widths)
    for length in range(1, 2 * k.entry.kernel.k_step + 2):
        check(k, 2, length, 3, ("random", "max"))


@pytest.mark.slow
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_long_k(isa, widths):
    """About each multiple of a flush period, and sampled up to 5000 and beyond one period."""
    k = kernel(isa, *widths)
    about = {n * p + d for p in periods(k) for n in range(1, 5000 // p + 1) for d in (-1, 0, 1)}
    beyond = {p + d for p in periods(k) for d in (-1, 0, 1)}
    sampled = np.random.default_rng(5).integers(1, 5001, 40).tolist()
    for length in sorted(about | beyond | {4608, 5000, *sampled}):
        check(k, 2, length, 2, ("max", "random") if length < 20000 else ("max",))
    check(k, 2, 4608, 2, PATTERNS)


@pytest.mark.slow
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_every_tile_edge(isa, widths):
    k = kernel(isa, *widths)
    rows, columns = k.entry.kernel.rows, k.entry.kernel.columns
    for m, n in product(range(1, 2 * rows + 2, max(1, rows // 2)), range(1, 2 * columns + 2)):
        check(k, m, k.entry.kernel.k_step + 3, n, ("random",))


def encoding_cases():
    widths = [(2, 2), (1, 1), (3, 3), (1, 2), (4, 1)]
    return [(*w, *pair) for w in widths for pair in encodings(*w) if pair != CORE]


@pytest.mark.slow
@pytest.mark.parametrize("case", encoding_cases(), ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_every_pair_of_encodings(isa, case):
    k = kernel(isa, *case)
    shape = k.entry.kernel
    for length in (1, shape.k_step + 1, 4608):
        check(k, shape.rows + 1, length, shape.columns + 1)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4"])
def test_any_integer_dtype(dtype):
    k = kernel("avx2", 2, 2, "unsigned", "unsigned")
    rng = np.random.default_rng(1)
    a, w = (operand(k.spec.act, shape, "random", rng) for shape in ((3, 40), (40, 5)))
    assert (k.matmul(a.astype(dtype), w.astype(dtype)) == a @ w).all()


def test_booleans_are_one_bit_codes():
    k = kernel("avx2", 1, 1, "unsigned", "unsigned")
    a, w = np.eye(3, 5, dtype=bool), np.ones((5, 2), bool)
    assert (k.matmul(a, w) == a.astype(int) @ w.astype(int)).all()


@pytest.mark.parametrize(
    "view",
    [
        np.asfortranarray,
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: memoryview(x) and x.view(),
    ],
    ids=["fortran", "rows reversed", "columns reversed", "strided", "broadcast", "view"],
)
def test_any_memory_layout(view):
    k = kernel("avx2", 2, 2)
    rng = np.random.default_rng(2)
    a, w = view(operand(k.spec.act, (7, 70), "random", rng)), view(operand(k.spec.wgt, (70, 11), "random", rng))
    before = a.copy(), w.copy()
    assert (k.matmul(a, w) == a @ w).all()
    assert (a == before[0]).all()
    assert (w == before[1]).all()


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0)])
def test_empty_dimensions(shape):
    m, length, n = shape
    got = kernel("avx2", 2, 2).matmul(np.zeros((m, length), int), np.ones((length, n), int))
    assert got.shape == (m, n)
    assert got.dtype == np.int32
    assert not got.any()


def test_k_beyond_the_proof():
    k = kernel("avx2", 4, 4)
    a = np.broadcast_to(np.zeros((1, 1), np.uint8), (1, k.k_max + 1))
    w = np.broadcast_to(np.ones((1, 1), np.int8), (k.k_max + 1, 1))
    with pytest.raises(SpecError, match=f"more than {k.k_max} may leave int32"):
        k.matmul(a, w)
    assert k.runner.call(f"{k.name}_matmul", 1, k.k_max + 1, 1, None, None, None, bits=32) == -1


@pytest.mark.parametrize(
    ("a", "w", "message"),
    [
        ([[4]], [[1]], r"a\[0, 0\] is 4; 2-bit unsigned holds 0 to 3"),
        ([[-1]], [[1]], r"a\[0, 0\] is -1; 2-bit unsigned holds 0 to 3"),
        ([[1, 0]], [[1], [0]], r"w\[1, 0\] is 0; 2-bit bipolar holds -3 to 3 in steps of 2"),
        ([[1]], [[5]], r"w\[0, 0\] is 5; 2-bit bipolar"),
        ([[1.0]], [[1]], "a must be an integer array, not float64"),
        ([[1]], [["x"]], "w must be an integer array"),
        ([[1, 2]], [[1]], r"want a \(M, K\) and w \(K, N\)"),
        ([1], [[1]], r"want a \(M, K\) and w \(K, N\)"),
        (np.array([[2**64 - 1]], np.uint64), [[1]], "is 18446744073709551615"),
        (np.array([[-(2**63)]]), [[1]], "is -9223372036854775808"),
    ],
)
def test_bad_operands(a, w, message):
    with pytest.raises(SpecError, match=message):
        kernel("avx2", 2, 2).matmul(np.asarray(a), np.asarray(w))


@pytest.mark.parametrize("isa", ISAS)
def test_c_functions_straight(isa):
    """Pack, run the microkernel on one tile with rows of C further apart, and leave the rest alone."""
    k = kernel(isa, 3, 3)
    shape, name = k.entry.kernel, k.name
    rng = np.random.default_rng(3)
    length = 2 * shape.k_step
    act = rng.integers(0, 8, (shape.rows, length), dtype=np.uint8)
    wgt = rng.integers(0, 8, (length, shape.columns), dtype=np.uint8)
    a = np.zeros(k.runner.call(f"{name}_act_bytes", shape.rows, length) // 8, np.uint64)
    w = np.zeros(k.runner.call(f"{name}_wgt_bytes", length, shape.columns) // 8, np.uint64)
    k.runner.call(f"{name}_pack_act", shape.rows, length, act, a)
    k.runner.call(f"{name}_pack_wgt", length, shape.columns, wgt, w)
    g = np.array(shape.g_table)[wgt].sum(axis=0).astype(np.int32)
    h = np.array(shape.h_table)[act].sum(axis=1).astype(np.int32)
    c = np.full((shape.rows, shape.columns + 5), -7, np.int32)
    k.runner.call(name, 2, a, w, g, h, c, shape.columns + 5)
    assert (c[:, : shape.columns] == act.astype(int) @ (2 * wgt.astype(int) - 7)).all()
    assert (c[:, shape.columns :] == -7).all()
