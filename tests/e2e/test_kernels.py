"""Emitted kernels against numpy: natively with AVX2, and with NEON (emulated on other machines)."""

from functools import cache
from itertools import product

import msgspec
import numpy as np
import pytest
from support import kernel_checks
from support.case_selection import HERE, pairs, quick
from support.kernel_checks import CORE, ISAS, PATTERNS, check, encodings, kernel, operand, periods
from support.solved_kernels import RUNNABLE, name

import bitsynth
from bitsynth import matmul
from bitsynth.errors import SpecError
from bitsynth.kernel.packing import multiply_neighbours
from bitsynth.schedule.flush import with_trip_count

TILES = """#include "NAME.h"

void some_tiles(size_t tiles, size_t segments, size_t steps, const uint8_t *a, const uint8_t *w, const int32_t *g,
    const int32_t *h, int32_t *c, size_t ldc);
void some_tiles(size_t tiles, size_t segments, size_t steps, const uint8_t *a, const uint8_t *w, const int32_t *g,
    const int32_t *h, int32_t *c, size_t ldc)
{
    const uint8_t *rows[288];
    for (size_t row = 0; row < NAME_rows; ++row)
        for (size_t i = 0; i < segments; ++i)
            rows[i * NAME_rows + row] = a + (row * segments + i) * steps * NAME_row_bytes;
    NAME(tiles, segments, steps, steps > 0 ? rows : NULL, w, g, h, c, ldc);
}
"""
"""Points rows to the segments of what lies one behind the other."""
BITS = (1, 2, 3, 4)
EACH_METHOD = [
    ("avx2", "popcount", 2, 1),
    ("avx2", "lookup", 2, 2),
    ("neon", "pairs", 2, 1),
    ("neon", "multiply", 2, 2),
    ("armv7_neon", "lookup", 1, 2),
    ("neon", "fip", 3, 3),
]
"""Each method with one set, and each set with a method."""
OF_TWO_BITS = [c for c in RUNNABLE if c[0] == HERE and c[2:] == (2, 2)] or [c for c in RUNNABLE if c[2:] == (2, 2)]
EACH_ONCE = encodings(2, 2)[4:-1:4]
"""Pairs that have each encoding once on either side."""

IN_TURN = [(isa, widths) for k, isa in enumerate(ISAS) for widths in pairs(BITS, BITS, k) + pairs(BITS, BITS, k + 2)]
"""Half of all pairs of widths with each set, the other half with the other: each width twice on both sides."""


@cache
def of_method(*config):
    """The kernel of one method, compiled once, together with a function that runs tiles."""
    k = kernel_checks.of_method(*config)
    k.runner = k.compile({"some_tiles.c": TILES.replace("NAME", k.name)})
    return k


@pytest.mark.parametrize("widths", quick([(4, 4)], of=[(1, 1), (3, 3), (4, 4)]), ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_core_products_are_exact(isa, widths):
    k = kernel(isa, *widths)
    shape = k.entry.kernel
    for length in sorted({1, max(1, shape.k_step - 1), shape.k_step, 2 * shape.k_step + 1, *periods(k, 2000)[:1]}):
        check(k, shape.rows + 1, length, shape.columns + 3, ("random", "max", "alternating"))


@pytest.mark.smoke
@pytest.mark.parametrize("config", quick(EACH_METHOD, of=RUNNABLE), ids=name)
def test_core_product_of_every_method(config):
    """Tails on every side, the ends of the inner loops."""
    k = of_method(*config)
    shape = k.entry.kernel
    m, n = (shape.columns, shape.rows) if shape.swapped else (shape.rows, shape.columns)
    for length in sorted({1, max(1, shape.k_step - 1), shape.k_step, 2 * shape.k_step + 1}):
        check(k, m + 1, length, n + 3, ("random", "max", "alternating"))
    for period in periods(k, 2000):
        for length in (period - 1, period, period + 1):
            check(k, 1, max(1, length), 2, ("max",))
    for rows, columns in ((1, 1), (m - 1, n), (m, n + 1), (2 * m + 1, 2 * n - 1)):
        check(k, max(1, rows), shape.k_step + 1, max(1, columns), ("random",))


@pytest.mark.parametrize("config", RUNNABLE, ids=name)
def test_extremes_at_k_4608(config):
    """CGO 2020 sums in 8 bits, where all ones give -448 in place of 576."""
    k = of_method(*config)
    _, _, act_bits, w_bits = config
    for act, wgt in product((0, 1, (1 << act_bits) - 1), (1 - (1 << w_bits), -1, 1, (1 << w_bits) - 1)):
        a, w = np.full((3, 4608), act), np.full((4608, 5), wgt)
        assert (k.matmul(a, w) == 4608 * act * wgt).all()


@pytest.mark.parametrize(
    ("config", "pair"), [(OF_TWO_BITS[i % len(OF_TWO_BITS)], p) for i, p in enumerate(EACH_ONCE)], ids=str
)
def test_encodings_of_every_method(config, pair):
    """Each with one method: what an encoding adds is the same for all."""
    k = of_method(*config, *pair)
    check(k, 3, 2 * k.entry.kernel.k_step + 1, 9, ("random", "min", "max"))


@pytest.mark.slow
@pytest.mark.parametrize("config", RUNNABLE[::2], ids=name)
def test_encodings_of_both_sides_of_every_method(config):
    """Each encoding once on either side; pairs differ from method to method."""
    acts, weights = (list(dict.fromkeys(side)) for side in zip(*encodings(*config[2:]), strict=True))
    for pair in pairs(acts, weights, RUNNABLE.index(config)):
        k = of_method(*config, *pair)
        shape = k.entry.kernel
        for length in (1, shape.k_step + 1, 4608):
            check(k, shape.rows + 1, length, shape.columns + 1)


@pytest.mark.slow
@pytest.mark.parametrize("config", RUNNABLE, ids=name)
def test_long_k_of_every_method(config):
    """Where the outer loops are full."""
    k = of_method(*config)
    for length in sorted({p + d for p in periods(k) for d in (-1, 0, 1) if p + d > 0}):
        check(k, 2, length, 2, ("max",))


@pytest.mark.parametrize("isa", quick(["avx2"], of=ISAS))
def test_all_ones_at_k_4608_in_a2w2(isa):
    """CGO 2020 sums in 8 bits, where this input gives -448 in place of 576."""
    k = kernel(isa, 2, 2)
    for act, wgt in product((0, 1, 3), (-3, -1, 1, 3)):
        a, w = np.full((5, 4608), act), np.full((4608, 9), wgt)
        assert (k.matmul(a, w) == 4608 * act * wgt).all()
    check(k, 2, 4608, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "widths"), IN_TURN, ids=str)
def test_every_tail_is_exact(isa, widths):
    k = kernel(isa, *widths)
    for length in range(1, 2 * k.entry.kernel.k_step + 2):
        check(k, 2, length, 3, ("random", "max"))


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "widths"), IN_TURN, ids=str)
def test_a_long_k_is_exact(isa, widths):
    """About each multiple of a flush period, and sampled up to 5000 and beyond one period."""
    k = kernel(isa, *widths)
    about = {n * p + d for p in periods(k) for n in (*range(1, min(6, 5000 // p + 1)), 5000 // p) for d in (-1, 0, 1)}
    beyond = {p + d for p in periods(k) for d in (-1, 0, 1)}
    sampled = np.random.default_rng(5).integers(1, 5001, 20).tolist()
    for length in sorted(x for x in about | beyond | {4608, 5000, *sampled} if x > 0):
        check(k, 2, length, 2, ("max", "random") if length < 20000 else ("max",))
    check(k, 2, 4608, 2, PATTERNS)


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "widths"), IN_TURN, ids=str)
def test_every_tile_edge(isa, widths):
    k = kernel(isa, *widths)
    shape = k.entry.kernel
    rows, columns = ([1, *range(size - 1, size + 2), 2 * size + 1] for size in (shape.rows, shape.columns))
    for r, c in product(sorted({x for x in rows if x}), sorted({*columns, 2, 5, shape.columns // 2})):
        m, n = (c, r) if shape.swapped else (r, c)
        check(k, m, shape.k_step + 3, n, ("random",))


def encoding_cases():
    widths = [(2, 2), (1, 1), (1, 2), (4, 1)]
    return [(*w, *pair) for w in widths for pair in encodings(*w) if pair != CORE]


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "case"), pairs(ISAS, encoding_cases()), ids=str)
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
def test_empty_dimensions_give_empty_products(shape):
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
        ([[1, 2], [3]], [[1]], r"^a is not an array: rows of different lengths$"),
        ([[1]], [[1], [1, 1]], r"^w is not an array: rows of different lengths$"),
        (np.array([[2**64 - 1]], np.uint64), [[1]], "is 18446744073709551615"),
        (np.array([[-(2**63)]]), [[1]], "is -9223372036854775808"),
    ],
)
def test_bad_operands_are_refused(a, w, message):
    with pytest.raises(SpecError, match=message):
        kernel("avx2", 2, 2).matmul(a, w)


def check_tiles(k, steps, cuts):
    """Pack, run the microkernel on two tiles whose rows are cut into segments, and leave the rest alone.

    Rows of C lie further apart.
    """
    shape, stem, rng = k.entry.kernel, k.name, np.random.default_rng(3)
    length = steps * shape.k_step
    rows = rng.integers(0, 1 << shape.row_bits, (shape.rows, length), dtype=np.uint8)
    columns = rng.integers(0, 1 << shape.column_bits, (2 * shape.columns, length), dtype=np.uint8)
    act, wgt = (columns, rows) if shape.swapped else (rows, columns)
    wgt = np.ascontiguousarray(wgt.T)
    sizes = (len(act), length), (length, wgt.shape[1])
    a = np.zeros(k.runner.call(f"{stem}_act_bytes", *sizes[0]) // 8, np.uint64)
    w = np.zeros(k.runner.call(f"{stem}_wgt_bytes", *sizes[1]) // 8, np.uint64)
    k.runner.call(f"{stem}_pack_act", *sizes[0], act, a)
    k.runner.call(f"{stem}_pack_wgt", *sizes[1], wgt, w)
    g = (np.array(shape.column_terms)[columns].sum(axis=1) + shape.cross_terms * multiply_neighbours(columns)).astype(
        np.int32
    )
    h = (np.array(shape.row_terms)[rows].sum(axis=1) + shape.cross_terms * multiply_neighbours(rows)).astype(np.int32)
    of_rows, of_columns = (w, a) if shape.swapped else (a, w)
    want = act.astype(int) @ (2 * wgt.astype(int) - (1 << shape.w_bits) + 1)
    for segments in cuts:
        c = np.full((shape.rows, len(columns) + 5), -7, np.int32)
        k.runner.call("some_tiles", 2, segments, steps // segments, of_rows, of_columns, g, h, c, len(columns) + 5)
        assert (c[:, : len(columns)] == (want.T if shape.swapped else want)).all()
        assert (c[:, len(columns) :] == -7).all()


@pytest.mark.parametrize("config", RUNNABLE, ids=name)
def test_c_functions_straight(config):
    check_tiles(of_method(*config), 2, (1, 2))


CROSSING = [("popcount", 1, 128), ("popcount", 1, 0), ("popcount", 2, 0), ("pairs", 1, 0), ("", 1, 0)]
"""Method, bits of activations and positions of K a step of kernels for the Cortex-A53 whose loops go over segments.

Without a method its own, which adds bytes: its first turn has fewer lines.
"""


@pytest.mark.parametrize("flushes", quick([5], of=[0, 5]))
@pytest.mark.parametrize("config", quick(CROSSING[:1], of=CROSSING), ids=str)
def test_loops_go_on_from_segment_to_segment(config, flushes):
    """Segments of one step to all twelve, and sums that are flushed within them or where one ends."""
    method, act_bits, k_step = config
    options = {"method": method, "channels": 64, "k_step": k_step} if method else {"cpu": "a53"}
    k = bitsynth.get_kernel("neon", act_bits, 1, **options).with_order("a53")
    k = k.with_flushes(flushes) if flushes else k
    assert "__builtin_expect(steps_here == 0, 0)" in k.source
    k.runner = k.compile({"some_tiles.c": TILES.replace("NAME", k.name)})
    for steps, segments in ((12, (1, 2, 3, 4, 6, 12)), (1, (1,)), (2, (1, 2))):
        check_tiles(k, steps, segments)


@pytest.mark.parametrize("config", RUNNABLE[:4], ids=name)
def test_no_step_at_all(config):
    """Tiles are where they start."""
    k = of_method(*config)
    shape = k.entry.kernel
    g, h = np.arange(3 * shape.columns, dtype=np.int32), 100 * np.arange(shape.rows, dtype=np.int32)
    c = np.full((shape.rows, 3 * shape.columns), -7, np.int32)
    k.runner.call("some_tiles", 3, 1, 0, None, None, g, h, c, 3 * shape.columns)
    assert (c == g + (h[:, None] if shape.has_row_terms else 0)).all()


@pytest.mark.parametrize("times", quick([3], of=[1, 3]))
def test_planes_that_share_sums_flush_together(times):
    """However long each could go on by itself."""
    k = of_method("avx2", "lookup", 2, 2)
    high, low = k.entry.kernel.passes
    for passes in ((with_trip_count(high, 1, times), low), (high, with_trip_count(low, 1, times))):
        uneven = msgspec.structs.replace(k.entry.kernel, passes=passes)
        shorter = matmul.MatmulKernel(k.proved_entry.form(uneven), k.spec)
        for length in (1, 83, 84, 85, 84 * times + 5, 2000):
            check(shorter, 4, length, 70, ("random", "max"))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("method", "widths", "encoding"),
    [
        ("popcount", (2, 2), "unsigned"),
        ("lookup", (2, 1), "unsigned"),
        ("lookup", (3, 3), "signed"),
        ("multiply", (4, 4), "signed"),
        ("multiply", (8, 8), "signed"),
    ],
    ids=str,
)
def test_in_the_order_of_an_in_order_processor(method, widths, encoding, rows):
    """Folds with sums in memory, several flushes, and sums that are shifted when they are stored for the last time."""
    weights = "bipolar" if encoding == "unsigned" else "signed"
    found = bitsynth.get_kernel("neon", widths[0], widths[1], encoding, weights, method=method, channels=64)
    k = found.with_rows(rows).with_order("a53")
    for each in (k, k.with_flushes(40)):
        for length in (1, each.entry.kernel.k_step * 7 + 1, 700):
            check(each, rows + 1, length, each.entry.kernel.columns + 3, ("random", "max"))
