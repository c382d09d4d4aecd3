"""Kernels with 8 bits on a side: all ship, and are right at the ends of what operands hold."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from support.case_selection import pairs, quick

import bitsynth
from bitsynth.emit.packing import pack_rows, packing
from bitsynth.errors import BitsynthError, Refuted, SpecError
from bitsynth.host.placement import runs_natively
from bitsynth.isa import load
from bitsynth.kernel import interpreter
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.packing import bit_tables, byte_tables, number
from bitsynth.kernel.program import Kernel
from bitsynth.proof.checker import check
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.store.matmul import MATMUL

EDGES = ((8, 1), (8, 2), (8, 4), (8, 8), (4, 8), (2, 8))
WIDE = {"avx2", "avxvnni", "avx512", "avx512_amx"}
"""Sets with instructions that sum products of 16-bit lanes."""
NATIVE = [name for name in load.names() if runs_natively(load.load(name).table)]
ENCODINGS = [e.value for e in Encoding if {2, 4, 8} <= set(e.widths)]


@pytest.mark.parametrize("isa", [name for name in load.names() if not load.load(name).table.matrices])
@pytest.mark.parametrize(("act_bits", "w_bits"), EDGES, ids=lambda x: f"{x}")
@pytest.mark.parametrize("variant", ["", "multiply-c64", "dot-c64"])
def test_every_instruction_set_has_them(isa, act_bits, w_bits, variant):
    dots = isa not in ("avx2", "neon", "armv7_neon")
    found = MATMUL.find(MatmulSpec.plain(isa, act_bits, w_bits), variant)
    assert (found is not None) == (dots or variant != "dot-c64")


def test_weights_of_8_bits_are_signed_bytes():
    found = bitsynth.get_kernel("avx512", 8, 8, weight_encoding="signed", method="dot", channels=64)
    kernel = found.entry.kernel
    assert {x.signed for p in kernel.passes for x in p.columns} == {True}
    assert not kernel.has_row_terms
    assert str(kernel.core.wgt) == "8-bit signed"
    assert found.name == "bs_mm_a8u_w8s_s32_avx512_6x64x4"


def test_codes_of_8_bits_are_cut_where_sums_are_narrow():
    kernel = bitsynth.get_kernel("neon", 8, 8).entry.kernel
    cuts = [x.tables for p in kernel.passes for x in p.rows if isinstance(x, Planes)]
    assert cuts == [bit_tables(8)[:4], bit_tables(8)[4:]]


@pytest.mark.parametrize("isa", sorted({*load.names()} - WIDE))
def test_layers_cut_weights_and_no_activations(isa):
    """A call packs activations, and C that cuts their codes has no vectors on x86."""
    kernel = bitsynth.get_kernel(isa, 8, 8, weight_encoding="signed", method="multiply", channels=64).entry.kernel
    assert not kernel.swapped
    assert not kernel.has_digits
    assert [x.tables for p in kernel.passes for x in p.columns] == [bit_tables(8)[:4], bit_tables(8)[4:]]


@pytest.mark.parametrize("isa", sorted(WIDE))
def test_codes_of_8_bits_are_16_where_products_of_those_are_summed(isa):
    kernel = bitsynth.get_kernel(isa, 8, 8, weight_encoding="signed", method="multiply", channels=64).entry.kernel
    assert (kernel.code_bytes, kernel.method, len(kernel.passes)) == (2, "multiply", 1)
    assert not kernel.has_row_terms
    assert packing(kernel).rows == "wide"
    assert {len(x.tables) for x in kernel.passes[0].columns} == {16}
    codes = np.array([[0, 255, 128, 1]], np.uint8)
    assert pack_rows(kernel, packing(kernel), codes).tolist() == [[0, 0, 255, 0, 128, 0, 1, 0]]


def test_wide_codes_fill_their_lanes():
    kernel = bitsynth.get_kernel("avx2", 8, 8).entry.kernel
    for wrong in ({"code_bytes": 3}, {"code_bytes": 4}, {"code_bytes": 1}):
        with pytest.raises(BitsynthError):
            check(msgspec.structs.replace(kernel, **wrong))


def test_bytes_of_weights_are_twos_complement():
    tables = byte_tables(range(-128, 128))
    assert [np.uint8(number(tables, code)).astype(np.int8) for code in range(256)] == list(range(-128, 128))
    assert Planes(tables, 0, 1, 1, signed=True).zero == 128
    assert Planes(byte_tables(range(-2, 2)), 0, 1, 1, signed=True).zero == 2


def extremes(operand: MatmulOperand, shape: tuple[int, int], rng: np.random.Generator) -> list[np.ndarray]:
    """Codes all 0, all the greatest, and a mix of these two and others."""
    last = operand.codes[-1]
    mixed = rng.choice([0, last, last // 2, last // 2 + 1], shape)
    return [np.zeros(shape, np.uint8), np.full(shape, last, np.uint8), mixed.astype(np.uint8)]


@pytest.mark.parametrize("isa", load.names())
@pytest.mark.parametrize("widths", quick([(8, 8)], of=EDGES), ids=str)
def test_sums_at_the_ends_of_the_operands(isa, widths):
    kernel, rng = bitsynth.get_kernel(isa, *widths).entry.kernel, np.random.default_rng(1)
    depth = 81
    for acts in extremes(kernel.core.act, (2, depth), rng):
        for weights in extremes(kernel.core.wgt, (depth, 3), rng):
            rows, columns = (weights.T, acts.T) if kernel.swapped else (acts, weights)
            got = interpreter.product(kernel, np.ascontiguousarray(rows), np.ascontiguousarray(columns))
            np.testing.assert_array_equal(got, interpreter.compute_wanted_sums(kernel, rows, columns))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isa", "acts", "weights"),
    [(isa, *pair) for k, isa in enumerate(NATIVE) for pair in pairs(ENCODINGS, ENCODINGS, k)],
)
def test_products_of_every_encoding(isa, acts, weights, skip_lesser):
    skip_lesser(isa)
    kernel, rng = bitsynth.get_kernel(isa, 8, 8, acts, weights), np.random.default_rng(2)
    act, wgt = kernel.spec.act, kernel.spec.wgt
    for a in extremes(act, (3, 147), rng):
        for w in extremes(wgt, (147, 5), rng):
            left, right = act.decode(a).astype(np.int64), wgt.decode(w).astype(np.int64)
            np.testing.assert_array_equal(kernel.matmul(left, right), left @ right)


def with_columns(kernel: Kernel, **changes: Any) -> Kernel:
    """The kernel with other columns of its only pass."""
    (only,) = kernel.passes
    columns = tuple(msgspec.structs.replace(x, **changes) for x in only.columns)
    return msgspec.structs.replace(kernel, passes=(msgspec.structs.replace(only, columns=columns),))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"signed": False}, SpecError, "lacks planes that are 0 on the code that pads"),
        ({"tables": bit_tables(8)}, Refuted, "zero padding would count|gives"),
        ({"tables": bit_tables(8), "signed": False}, Refuted, "cannot be shown exact"),
        ({"tables": byte_tables(range(-127, 129))}, Refuted, "gives"),
        ({"tables": byte_tables([1] * 256)}, SpecError, "lacks"),
        ({"tables": byte_tables(range(-128, 128))[:7]}, SpecError, "lacks signed bytes that are whole"),
    ],
)
def test_other_bytes_of_weights_are_refused(changes, error, message):
    kernel = bitsynth.get_kernel("avxvnni", 2, 8, method="dot", channels=64).entry.kernel
    with pytest.raises(error, match=message):
        check(with_columns(kernel, **changes))
