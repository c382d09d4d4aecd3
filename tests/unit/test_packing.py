"""What is rendered is what was proved: one packing a kernel, compared with the proof's before any C is written."""

from itertools import product

import numpy as np
import pytest
from support.case_selection import quick
from support.programs import change
from support.programs import lines as texts
from support.solved_kernels import REPRESENTATIVE, kernel, name, on_record, spec_of

from bitsynth import toolchain
from bitsynth.emit import correction_terms, packing
from bitsynth.emit.kernel import CSource
from bitsynth.emit.runtime_files import call_source, kernel_header, runtime_files
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.program import BIT_AXES
from bitsynth.layers.constants import Form, Offset, constants
from bitsynth.layers.geometry import Geometry
from bitsynth.proof import checker
from bitsynth.run.runner import runner_for
from bitsynth.schedule.flush import with_flush_period
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, affine

FORMS = [(c, axis) for c in REPRESENTATIVE for axis in BIT_AXES]


def formed(config, axis):
    found = kernel(*config)
    return change(found, bit_axis=axis if axis in found.bit_axes else "inner")


def with_a_cancelled_input():
    """AVX2 A1W1 popcount with one more input of columns, of other positions, exclusive-ored with itself."""
    found = kernel("avx2", "popcount", 1, 1)
    (loop,) = found.passes
    more = [f"t90{g} = xor.u8x32 w{g}_1 w{g}_1" for g in range(2)]
    more += [f"t91{g} = add.u8x32 acc{g} t90{g}" for g in range(2)]
    lines = (line.replace(" acc0 ", " t910 ").replace(" acc1 ", " t911 ") for line in texts(loop.step.steps))
    accs = tuple(change(acc, start="") for acc in loop.step.accs)
    step = change(loop.step, program=(*more, *lines), first=(), accs=accs)
    columns = (*loop.columns, Planes((2,), 0, 1, 1))
    return change(found, passes=(change(loop, columns=columns, loops=(step,)),))


def dense(kernel, spec, weight, codes):
    """The dense layer of codes `weight` (OC, IC) and `codes` (N, IC) around any kernel, through the C runtime."""
    none = Offset(np.zeros(len(weight), np.int64))
    geometry = Geometry(weight.shape[1], weight.shape[0], 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    numbers, data = constants(kernel, spec, geometry, weight[..., None, None], none, Form("direct")).blob()
    numbers[-3:] = 1, 1, len(codes)
    c, isa = CSource(on_record(kernel), spec), load(kernel.isa)
    shared = runtime_files(threads=runs_natively(isa.table))
    files = {**c.files, **kernel_header(kernel, spec), **call_source(c.name), **shared}
    library = toolchain.compile_for(isa, files, needs=c.needs, flags=("-DBITSYNTH_NO_MAIN",), cached=shared)
    runner = runner_for(isa, library)
    assert runner.call(f"{c.name}_selftest", bits=32) == 0
    arena = np.zeros(runner.call(f"{c.name}_layer_arena", numbers, data, 1), np.uint8)
    out = np.zeros((len(codes), len(weight)), np.int32)
    arguments = numbers, data, codes, None, out, None, arena, arena.size, None, 1
    assert runner.call(f"{c.name}_layer_run", *arguments, bits=32) == 0
    return out


def check_dense(kernel, spec, seed=0):
    """Random and greatest codes, and a K that ends no step."""
    rng = np.random.default_rng(seed)
    a, w = (np.array([x.value(c) for c in x.codes]) for x in (spec.act, spec.wgt))
    codes, weight = rng.integers(0, len(a), (7, 203), np.uint8), rng.integers(0, len(w), (9, 203), np.uint8)
    codes[0], weight[0] = len(a) - 1, len(w) - 1
    assert (dense(kernel, spec, weight, codes) == a[codes] @ w[weight].T).all()


@pytest.mark.parametrize("config", [("avx2", "lookup", 2, 1), ("avx2", "popcount", 2, 1)])
def test_terms_of_encodings_join_those_of_rows(config):
    """If no K takes them out of int32; nothing is added twice, nothing left out."""
    found, joined = kernel(*config), set()
    wide = change(found, row_terms=tuple(x << 20 for x in found.row_terms))
    for act, wgt in product(Encoding, Encoding):
        if config[2] not in act.widths or config[3] not in wgt.widths:
            continue
        spec = MatmulSpec(config[0], MatmulOperand(config[2], act), MatmulOperand(config[3], wgt))
        own, rest = correction_terms.row_terms(found, spec), correction_terms.row_affines(found, spec)
        want = np.add(found.row_terms, affine(spec).act_terms)
        assert (own + rest * np.arange(len(own)) == want).all()
        joined.add(own != found.row_terms)
        if found.has_row_terms:
            assert correction_terms.row_terms(wide, spec) == wide.row_terms
    assert joined == {False, True}


FLUSHED = [("avx2", "popcount", 2, 1), ("avx2", "lookup", 2, 1), ("avx2", "popcount", 1, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("config", FLUSHED[:2], ids=name)
def test_values_are_shifted_by_the_last_flush_alone(config):
    """Sums go to memory after every step; signed weights want half of them, with their rows' terms."""
    isa, _, act_bits, w_bits = config
    found = kernel(*config)
    often = change(found, passes=tuple(with_flush_period(p, 1) for p in found.passes))
    spec = MatmulSpec(isa, MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.SIGNED))
    assert correction_terms.makes_values(often, spec)
    check_dense(often, spec)


@pytest.mark.parametrize("config", quick(FLUSHED[:1], of=FLUSHED), ids=name)
@pytest.mark.parametrize("w_encoding", quick([], of=[Encoding.BIPOLAR, Encoding.SIGNED]))
def test_what_flushes_add_is_doubled_once(config, w_encoding):
    """Sums go to memory after every step, and start from their terms once."""
    isa, _, act_bits, w_bits = config
    found = kernel(*config)
    often = change(found, passes=tuple(with_flush_period(p, 1) for p in found.passes))
    spec = MatmulSpec(isa, MatmulOperand(act_bits, Encoding.BIPOLAR), MatmulOperand(w_bits, w_encoding))
    assert 1 << correction_terms.doublings(often, spec) == affine(spec).factor
    check_dense(often, spec)


IN_ORDER = [("neon", "popcount", 1, 1), ("neon", "lookup", 2, 1), ("neon", "pairs", 2, 1), ("neon", "multiply", 2, 2)]


@pytest.mark.parametrize("config", quick([], of=IN_ORDER), ids=name)
def test_flushes_in_order_are_doubled_too(config):
    """Also the terms of rows, which lookups have."""
    isa, _, act_bits, w_bits = config
    found = change(kernel(*config), order="a53")
    spec = MatmulSpec(isa, MatmulOperand(act_bits, Encoding.BIPOLAR), MatmulOperand(w_bits, Encoding.BIPOLAR))
    assert correction_terms.makes_values(found, spec)
    assert correction_terms.doublings(found, spec) == 1
    check_dense(found, spec)


def test_a_proved_kernel_whose_layer_was_wrong():
    """Rows were packed as words, weights in the order of codes: 4 where -4 is right."""
    odd, spec = with_a_cancelled_input(), spec_of("avx2", 1, 1)
    checker.check(odd)
    check_dense(odd, spec)


WIDE = [("avx2", method, bits, 1) for bits in range(5, 9) for method in ("popcount", "lookup", "multiply")]


@pytest.mark.parametrize("config", quick([("avx2", "multiply", 6, 1)], of=WIDE[1::2]), ids=name)
@pytest.mark.parametrize("encoding", quick([Encoding.UNSIGNED], of=[Encoding.UNSIGNED, Encoding.SIGNED]))
def test_layers_of_5_to_8_bits(config, encoding):
    """Their sums of codes no longer fit bytes: with more than 64 of them, and the greatest."""
    isa, _, act_bits, w_bits = config
    check_dense(
        kernel(*config), MatmulSpec(isa, MatmulOperand(act_bits, encoding), MatmulOperand(w_bits, Encoding.BIPOLAR))
    )


@pytest.mark.parametrize(("config", "axis"), FORMS, ids=lambda x: x if isinstance(x, str) else name(x))
def test_rows_are_packed_as_was_proved(config, axis):
    found = formed(config, axis)
    result = packing.packing(found)
    assert sorted(result.order) == list(range(found.k_step))
    packing.check(found, result)
