"""Sizes that 32-bit code cannot hold: each is told, refused, and nothing is written."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import bitsynth
from bitsynth import toolchain
from bitsynth.emit.layer_program import NO_PROGRAMS, LayerPrograms, program_source
from bitsynth.emit.runtime_abi import ARRAYS, NUMBERS
from bitsynth.emit.runtime_files import call_source, kernel_header, runtime_files
from bitsynth.errors import SpecError, ToolError
from bitsynth.host.features import arch
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import PlainProgram
from bitsynth.layers.epilogues.thresholds import thresholds_spec
from bitsynth.run.runner import runner_for

ISA, OTHER = "armv7_neon", {"x86_64": "avx2", "aarch64": "neon"}[arch()]
MOST = (1 << 31) - 1
"""Bytes an object has at most there."""
QUIET: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}
SIZE = st.integers(0, 31).flatmap(lambda bits: st.integers(1 << bits, (2 << bits) - 1))
KERNELS = [
    bitsynth.get_kernel(ISA, 2, 1),
    bitsynth.get_kernel(ISA, 1, 1, "bipolar", "signed"),
    bitsynth.get_kernel(ISA, 4, 3, method="multiply", channels=64),
]


@pytest.fixture(params=KERNELS, ids=lambda k: k.name)
def kernel(request, skip_isa):
    try:
        assert request.param.runner
    except ToolError as why:
        skip_isa(ISA, str(why))
    return request.param


def ceiling(x, unit):
    return -(-x // unit)


def packed_bytes(kernel, of_rows, count, k):
    """Inputs of whole tiles in whole words, then one or two sums of each vector."""
    shape = kernel.entry.kernel
    unit, size = (shape.rows, shape.row_bytes) if of_rows else (shape.columns, shape.column_bytes)
    vectors, sums = ceiling(count, unit) * unit, 1 if kernel.spec == kernel.spec.core else 2
    return ceiling(vectors * ceiling(k, shape.k_step) * size, 8) * 8 + 8 * sums * vectors


def test_sizes_of_operands_never_wrap(kernel):
    call, name, swapped = kernel.runner.call, kernel.name, kernel.entry.kernel.swapped

    @settings(max_examples=30, **QUIET)
    @given(m=SIZE, k=SIZE, n=SIZE)
    @example(m=3072, k=349_526, n=1)
    @example(m=1, k=349_526, n=3072)
    @example(m=(1 << 32) - 1, k=(1 << 32) - 1, n=(1 << 32) - 1)
    def each(m, k, n):
        act, wgt = packed_bytes(kernel, not swapped, m, k), packed_bytes(kernel, swapped, n, k)
        assert call(f"{name}_act_bytes", m, k) == (act if act <= MOST else -1)
        assert call(f"{name}_wgt_bytes", k, n) == (wgt if wgt <= MOST else -1)
        codes, out = np.zeros(8, np.uint8), np.full(8, 77, np.uint8)
        if max(act, m * k) > MOST:
            assert call(f"{name}_pack_act", m, k, codes, out, bits=32) == -1
        if max(wgt, k * n) > MOST:
            assert call(f"{name}_pack_wgt", k, n, codes, out, bits=32) == -1
        if k > kernel.k_max or max(act, wgt, 4 * m * n) > MOST:
            assert call(f"{name}_matmul", m, k, n, codes, codes.copy(), out, bits=32) == -1
        assert (out == 77).all()

    each()


def test_products_are_refused_in_python(kernel):
    with pytest.raises(SpecError, match="holds an operand of 1048576 x 349526; split it"):
        kernel._buffer(f"{kernel.name}_act_bytes", 1 << 20, 349_526)


STUBS = """#include "{name}.h"
void {name}(size_t tiles, size_t segments, size_t steps, const uint8_t *const *a, const uint8_t *w, const int32_t *g,
    const int32_t *h, int32_t *c, size_t ldc)
{{ (void)tiles, (void)segments, (void)steps, (void)a, (void)w, (void)g, (void)h, (void)c, (void)ldc; }}
void {name}_pack_rows(size_t count, size_t k, const uint8_t *codes, size_t apart, size_t readable, uint8_t *packed,
    size_t packed_apart, int32_t *terms, int32_t *affines)
{{ (void)count, (void)k, (void)codes, (void)apart, (void)readable, (void)packed, (void)packed_apart;
(void)terms, (void)affines; }}
void {name}_pack_words(size_t count, size_t k, const uint64_t *words, size_t apart, uint8_t *packed,
    size_t packed_apart, int32_t *terms, int32_t *affines)
{{ (void)count, (void)k, (void)words, (void)apart, (void)packed, (void)packed_apart, (void)terms, (void)affines; }}
"""


@pytest.fixture(scope="module")
def runtimes(skip_isa):
    """A kernel, and by epilogue the layers' runtime where words have 32 bits, and where they have 64."""
    kernel = KERNELS[0]
    for isa in (ISA, OTHER):
        if not toolchain.compilers(load(isa)):
            skip_isa(isa, f"no compiler for {isa}")

    def runtime(isa, programs):
        sources = {
            f"{kernel.name}.h": kernel.header,
            **kernel_header(kernel.entry.kernel, kernel.spec),
            **call_source(kernel.name, programs.by_field),
            **program_source(kernel.name, programs),
            **runtime_files(threads=False),
            "stubs.c": STUBS.format(name=kernel.name),
        }
        return runner_for(load(isa), toolchain.compile_for(load(isa), sources))

    return kernel, {name: [runtime(isa, each) for isa in (ISA, OTHER)] for name, each in PROGRAMS.items()}


PROGRAMS = {
    "none": NO_PROGRAMS,
    "codes": LayerPrograms(PlainProgram.of(thresholds_spec(3, words=False), 16, 64)),
    "words": LayerPrograms(PlainProgram.of(thresholds_spec(3, words=True), 16, 64)),
}
"""Epilogues by what they write; words lie packed."""


def layers():
    """Numbers of a layer and its input: any sizes but one or two are small."""
    small = {name: 1 for name, _ in NUMBERS} | {"pad_code": 0, "factor": 1, "shift": 0}
    small |= {f"pad_{side}": 0 for side in ("top", "left", "bottom", "right")}
    small |= {"block_rows": 0, "band_rows": 0, "columns_first": 0, "batch": 1, "height": 4, "width": 4}
    large = ["groups", "in_channels", "out_channels", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h"]
    large += ["dilation_w", "pad_top", "pad_left", "pad_bottom", "pad_right", "block_rows", "band_rows"]
    large += ["batch", "height", "width", "threads"]
    kinds = {x: st.integers(0, 2) for x in ("in_layout", "conv_algorithm")} | {"out_layout": st.integers(0, 1)}
    return st.builds(
        lambda some, kinds: {**small, "threads": 1, "out_bits": 2, **kinds, **some},
        st.dictionaries(st.sampled_from(large), SIZE, min_size=1, max_size=4),
        st.fixed_dictionaries(kinds),
    )


def elements(n, kernel):
    """Bytes of the input and of the weights."""
    channels = n["groups"] * n["in_channels"]
    pixel = ceiling(channels, 64) * 8 * n["act_bits"] if n["in_layout"] == 2 else channels
    shape = kernel.entry.kernel
    tiles = n["groups"] * ceiling(n["out_channels"], shape.columns) * shape.columns * shape.column_bytes
    steps = n["kernel_h"] * n["kernel_w"] * ceiling(n["in_channels"], shape.k_step)
    return n["batch"] * n["height"] * n["width"] * pixel, tiles * steps


@pytest.mark.slow
@settings(max_examples=75, **QUIET)
@given(n=layers(), epilogue=st.sampled_from([*PROGRAMS]))
def test_sizes_of_layers_never_wrap(runtimes, n, epilogue):
    """Arenas of words of 4 and 8 bytes differ by less than half, or there is none for 4."""
    kernel, (narrow, wide) = runtimes[0], runtimes[1][epilogue]
    if epilogue == "words":
        n["out_layout"] = 2
    shape = [n[x] for x in ("batch", "height", "width")]
    numbers = np.array([*(n[x] for x, _ in NUMBERS), *[-1] * len(ARRAYS), *shape], np.int64)
    constants, name = np.zeros(8, np.uint8), kernel.name
    small, large = (r.call(f"{name}_layer_arena", numbers, constants, n["threads"]) for r in (narrow, wide))
    inside = max(elements(n, kernel)) <= MOST
    if small > 0:
        assert inside
        assert large // 2 <= small <= large
    elif small == 0:
        assert large == 0
    else:
        assert small == -1
        assert not inside or large > MOST or large == -1 or max(output_bytes(n), n["threads"] ** 2) > MOST
        out = np.full(8, 77, np.uint8)
        given = numbers, constants, constants.copy(), None, out, None, np.full(8, 77, np.uint8)
        if n["threads"] == 1:
            assert narrow.call(f"{name}_layer_run", *given, MOST, None, 1, bits=32) == -2
        assert (out == 77).all()


def output_bytes(n):
    """Of the greatest output there may be: a pixel of it for each of the padded input."""
    high = n["height"] + n["pad_top"] + n["pad_bottom"]
    wide = n["width"] + n["pad_left"] + n["pad_right"]
    return n["batch"] * high * wide * 16 * ceiling(n["groups"] * n["out_channels"], 64) * 64
