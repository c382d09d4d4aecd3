"""The runtime's transpose of small matrices, of every number of rows and columns about a block."""

from functools import cache

import numpy as np
import pytest

from bitsynth import toolchain
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.isa.load import load
from bitsynth.run.runner import runner_for

CALLED = """
#include "bs_call.h"

void transpose(size_t bytes, size_t rows, size_t columns, size_t from_apart, size_t to_apart, const uint8_t *from,
    uint8_t *to)
{
    bs_transpose((struct bs_matrix){bytes, rows, columns, from_apart, to_apart}, from, to);
}
"""


@cache
def runner(isa):
    files = {n: text for n, text in runtime_files(threads=False).items() if n.endswith(".h") or n == "bs_transpose.c"}
    return runner_for(load(isa), toolchain.compile_for(load(isa), {**files, "called.c": CALLED}, flags=("-O3",)))


def check(isa, size, rows, columns, apart):
    """Rows, and those of the transpose, lie `apart` bytes further from each other than they must."""
    rng = np.random.default_rng((size, rows, columns))
    given = rng.integers(0, 256, (rows, columns * size + apart), np.uint8)
    got = np.zeros((columns, rows * size + apart), np.uint8)
    want = got.copy()
    elements = given[:, : columns * size].reshape(rows, columns, size)
    want[:, : rows * size] = elements.transpose(1, 0, 2).reshape(columns, rows * size)
    runner(isa).call("transpose", size, rows, columns, given.shape[1], got.shape[1], given, got)
    assert (got == want).all(), (size, rows, columns, apart)


def test_rows_and_columns_of_blocks_and_others():
    for size in (1, 2, 4):
        for rows in (1, 3, 7, 8, 15, 16, 17, 40):
            for columns in (1, 5, 8, 12, 16, 23, 33):
                check("avx2", size, rows, columns, apart=rows % 3)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx512", "neon", "armv7_neon"])
def test_on_every_set(isa):
    for rows, columns in ((2, 3), (8, 9), (15, 40), (16, 16), (31, 18)):
        check(isa, 1, rows, columns, apart=5)
