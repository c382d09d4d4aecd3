"""The runtime's changes of layout by themselves: transposes of small matrices, words of pixels and back."""

from functools import cache

import numpy as np
import pytest

from bitsynth import toolchain
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.isa.load import load
from bitsynth.layers.packed_codes import pack_words
from bitsynth.run.runner import runner_for

CALLED = """
#include "bs_call.h"

void transpose(size_t bytes, size_t rows, size_t columns, size_t from_apart, size_t to_apart, const uint8_t *from,
    uint8_t *to)
{
    bs_transpose((struct bs_matrix){bytes, rows, columns, from_apart, to_apart}, from, to);
}
"""
PARTS = {"bs_transpose.c", "bs_words.c"}


@cache
def runner(isa):
    files = {n: text for n, text in runtime_files(threads=False).items() if n.endswith(".h") or n in PARTS}
    return runner_for(load(isa), toolchain.compile_for(load(isa), {**files, "called.c": CALLED}, flags=("-O3",)))


def check_transpose(isa, size, rows, columns, apart):
    """Rows, and rows of the transpose, lie `apart` bytes further from each other than they must."""
    rng = np.random.default_rng((size, rows, columns))
    given = rng.integers(0, 256, (rows, columns * size + apart), np.uint8)
    got = np.zeros((columns, rows * size + apart), np.uint8)
    want = got.copy()
    elements = given[:, : columns * size].reshape(rows, columns, size)
    want[:, : rows * size] = elements.transpose(1, 0, 2).reshape(columns, rows * size)
    runner(isa).call("transpose", size, rows, columns, given.shape[1], got.shape[1], given, got)
    assert (got == want).all(), (size, rows, columns, apart)


def check_words(isa, bits, channels, pixels, apart):
    """Codes of pixels lie `apart` bytes further from each other; no byte behind the last is read or written."""
    rng = np.random.default_rng((bits, channels, pixels))
    codes = rng.integers(0, 1 << bits, (pixels, channels + apart), np.uint8)
    there = codes.reshape(-1)[: codes.size - apart].copy()
    want = pack_words(codes[:, :channels], bits).reshape(pixels, -1)
    words = np.zeros_like(want)
    runner(isa).call("bs_pack_each", bits, channels, pixels, there, channels + apart, words)
    assert (words == want).all(), (bits, channels, pixels, apart)
    others = np.ones((pixels, -(-channels // 64) * 64), np.uint8)
    others[:, :channels] = 0
    result = np.full(codes.size, 255, np.uint8)
    given = words | pack_words(others * ((1 << bits) - 1), bits).reshape(pixels, -1)
    runner(isa).call("bs_unpack_each", bits, channels, pixels, given, result, channels + apart)
    assert (result.reshape(codes.shape)[:, :channels] == codes[:, :channels]).all(), (bits, channels, pixels, apart)
    assert (result[codes.size - apart :] == 255).all(), (bits, channels, pixels, apart)


def test_transposes_of_blocks_and_others():
    for size in (1, 2, 4):
        for rows in (1, 3, 7, 8, 15, 16, 17, 40):
            for columns in (1, 5, 8, 12, 16, 23, 33):
                check_transpose("avx2", size, rows, columns, apart=rows % 3)


def test_words_of_any_channels_and_pixels():
    rng = np.random.default_rng(0)
    for channels in range(1, 131):
        for apart in (0, 64 - channels % 64 if channels < 40 else 3):
            check_words("avx2", int(rng.integers(1, 9)), channels, int(rng.integers(1, 10)), apart)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx512", "neon", "armv7_neon"])
def test_on_every_set(isa):
    for rows, columns in ((2, 3), (8, 9), (15, 40), (16, 16), (31, 18), (32, 16), (45, 35)):
        check_transpose(isa, 1, rows, columns, apart=5)
    for channels in (8, 16, 20, 32, 48, 63, 64, 96):
        check_words(isa, 2 + channels % 3, channels, 5, apart=channels % 5)
