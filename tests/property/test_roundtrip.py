"""What is written can be read back: packed planes, names, programs, cache files, operand codes."""

import itertools
import json
from functools import cache as memoize

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitsynth import api, cache, paths
from bitsynth.cache import Entry
from bitsynth.errors import SpecError
from bitsynth.names import KernelName
from bitsynth.program import WORD_BYTES, Step
from bitsynth.spec import Encoding, MatmulSpec, Operand, affine

OPERANDS = [Operand(b, e) for b in range(1, 9) for e in Encoding if b == 2 or e is not Encoding.TERNARY]
IDENTIFIER = st.from_regex(r"[a-z]{1,3}[0-9]{1,4}(_[0-9]{1,2})?", fullmatch=True)


@memoize
def kernel(isa, act_bits, w_bits):
    return api.get_kernel(isa, act_bits, w_bits)


def unpacked(words, planes, bits, per_byte):
    """Codes from (positions / step, planes, bytes): the code whose planes those bits are."""
    cells = np.unpackbits(words[..., None], axis=-1, count=per_byte, bitorder="little")
    seen = np.moveaxis(cells, 1, -1).reshape(-1, len(planes))
    codes = {tuple(t >> c & 1 for t in planes): c for c in range(1 << bits)}
    return np.array([codes[tuple(row)] for row in seen.tolist()], np.uint8)


def distinguishes(planes, bits):
    return len({tuple(t >> c & 1 for t in planes) for c in range(1 << bits)}) == 1 << bits


def passes_of(k):
    return enumerate(k.entry.kernel.passes)


@pytest.mark.parametrize("isa", ["avx2", "neon"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_packed_activations_unpack(isa, data):
    """(row tile, pass, step, row, plane, byte), then 64-bit row terms."""
    k = kernel(isa, *data.draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (4, 2)])))
    shape = k.entry.kernel
    m, length = data.draw(st.integers(1, 2 * shape.rows + 1)), data.draw(st.integers(1, 3 * shape.k_step))
    seed = data.draw(st.integers(0, 2**32 - 1))
    codes = np.random.default_rng(seed).integers(0, 1 << shape.act_bits, (m, length), dtype=np.uint8)
    packed = pack(k, "act", codes)
    tiles, steps = -(-m // shape.rows), -(-length // shape.k_step)
    want = np.zeros((tiles * shape.rows, steps * shape.k_step), np.uint8)
    want[:m, :length] = codes
    at = 0
    for tile, (_, loop) in itertools.product(range(tiles), passes_of(k)):
        size = (steps, shape.rows, len(loop.act_planes), WORD_BYTES)
        block = packed[at : at + np.prod(size)].reshape(size)
        at += block.size
        if distinguishes(loop.act_planes, shape.act_bits):
            for row in range(shape.rows):
                got = unpacked(block[:, row], loop.act_planes, shape.act_bits, shape.bits_per_byte)
                assert (got == want[tile * shape.rows + row]).all()
    terms = packed[at:].view(np.int64)
    assert (terms[:m] == np.array(shape.h_table)[codes].sum(axis=1)).all()
    assert not terms[m:].any()


@pytest.mark.parametrize("isa", ["avx2", "neon"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_packed_weights_unpack(isa, data):
    """(column tile, pass, step, plane, slot, byte), then 64-bit column terms."""
    k = kernel(isa, *data.draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (2, 4)])))
    shape = k.entry.kernel
    n, length = data.draw(st.integers(1, 2 * shape.columns + 1)), data.draw(st.integers(1, 3 * shape.k_step))
    seed = data.draw(st.integers(0, 2**32 - 1))
    codes = np.random.default_rng(seed).integers(0, 1 << shape.w_bits, (length, n), dtype=np.uint8)
    packed = pack(k, "wgt", codes)
    tiles, steps = -(-n // shape.columns), -(-length // shape.k_step)
    want = np.zeros((steps * shape.k_step, tiles * shape.columns), np.uint8)
    want[:length, :n] = codes
    at = 0
    for tile, (_, loop) in itertools.product(range(tiles), passes_of(k)):
        size = (steps, len(loop.wgt_planes), shape.columns, WORD_BYTES)
        block = packed[at : at + np.prod(size)].reshape(size)
        at += block.size
        if distinguishes(loop.wgt_planes, shape.w_bits):
            for slot, column in enumerate(shape.slots):
                got = unpacked(block[:, :, slot], loop.wgt_planes, shape.w_bits, shape.bits_per_byte)
                assert (got == want[:, tile * shape.columns + column]).all()
    terms = packed[at:].view(np.int64)
    assert (terms[:n] == np.array(shape.g_table)[codes].sum(axis=0)).all()
    assert not terms[n:].any()


def pack(k, side, codes):
    """The bytes of a packed operand, from a buffer that was full of ones."""
    size = k.runner.call(f"{k.name}_{side}_bytes", *codes.shape)
    assert size % 8 == 0
    words = np.full(size // 8, -1, np.int64)
    k.runner.call(f"{k.name}_pack_{side}", *codes.shape, codes, words)
    return words.view(np.uint8)


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_some_pass_tells_all_codes_apart(isa):
    """So that unpacking is tested at all."""
    for widths in ((1, 1), (2, 2), (3, 3)):
        shape = kernel(isa, *widths).entry.kernel
        assert any(distinguishes(p.act_planes, shape.act_bits) for p in shape.passes)
        assert any(distinguishes(p.wgt_planes, shape.w_bits) for p in shape.passes)


sizes = st.integers(1, 999)


@given(
    act=st.sampled_from(OPERANDS),
    wgt=st.sampled_from(OPERANDS),
    isa=st.from_regex(r"[a-z][a-z0-9]{0,8}(_[a-z0-9]{1,5})?", fullmatch=True),
    tile=st.tuples(sizes, sizes, sizes),
)
def test_names(act, wgt, isa, tile):
    name = KernelName(MatmulSpec(isa, act, wgt), *tile)
    assert KernelName.parse(str(name)) == name
    assert str(KernelName.parse(str(name))) == str(name)
    assert str(act) in name.describe()


@given(st.text(max_size=60))
def test_anything_else_is_no_name(text):
    try:
        name = KernelName.parse(text)
    except SpecError:
        return
    assert str(name) == text


@given(
    dst=IDENTIFIER,
    op=st.from_regex(r"[a-z][a-z0-9_]{0,12}\.[us](8|16|32|64)x(2|4|8|16|32)", fullmatch=True),
    args=st.lists(IDENTIFIER, max_size=4).map(tuple),
    imm=st.integers(0, 255),
)
def test_program_text(dst, op, args, imm):
    step = Step(dst, op, args, imm)
    assert Step.parse(str(step)) == step
    assert str(Step.parse(str(step))) == str(step)


@given(st.text(alphabet="at0_ =.#\n-x", max_size=30))
def test_any_line_is_a_step_or_refused(line):
    try:
        step = Step.parse(line)
    except SpecError:
        return
    assert Step.parse(str(step)) == step
    assert not set(line) & {"\n", "-"}


@pytest.mark.parametrize("tile", ["04x8x64", "4x8x0", "4x8", "4x8x64x1", "9" * 5000 + "x8x64", "٤x8x64", "4x8x64\n"])
def test_sizes_in_names_are_plain_numbers(tile):
    with pytest.raises(SpecError, match="is no kernel name"):
        KernelName.parse(f"bs_mm_a2u_w1b_s32_neon_{tile}")


def test_shipped_programs_are_text_that_round_trips():
    for path in sorted(paths.shipped_kernels().glob("*/*.json")):
        for loop in cache.read_entry(path).kernel.passes:
            lines = (*loop.step, *loop.flush)
            assert tuple(str(Step.parse(line)) for line in lines) == lines


def test_cache_files_round_trip():
    for path in sorted(paths.shipped_kernels().glob("*/*.json")):
        entry = cache.read_entry(path)
        assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry
        assert entry.sealed() == entry
        assert msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n" == path.read_bytes()


def test_a_stored_kernel_is_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    path = next(paths.shipped_kernels().glob("neon/*a2u_w1b*.json"))
    stored = cache.store(cache.read_entry(path))
    assert stored.read_bytes() == path.read_bytes()
    assert cache.load_entry(stored) == cache.read_entry(path)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_edit_of_a_cache_file_is_noticed(data, tmp_path_factory):
    """A changed value anywhere breaks the seal; what is not JSON of a kernel is refused."""
    path = next(paths.shipped_kernels().glob("avx2/*a1u_w1b*.json"))
    tree = json.loads(path.read_bytes())
    node, places = tree, []
    while isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        places.append((node, data.draw(st.sampled_from(keys))))
        node = node[places[-1][1]]
    parent, key = places[-1]
    before = parent[key]
    parent[key] = data.draw(st.one_of(st.integers(-5, 300), st.text(max_size=5), st.none(), st.booleans()))
    if before == parent[key]:
        return
    edited = tmp_path_factory.mktemp("edited") / path.name
    edited.write_text(json.dumps(tree))
    with pytest.raises(SpecError, match=r"not a kernel of this version|edited or damaged|has format"):
        cache.read_entry(edited)


@pytest.mark.parametrize("operand", OPERANDS, ids=str)
def test_encode_inverts_value(operand):
    codes = np.array(operand.codes)
    values = operand.scale * codes + operand.offset
    assert values.tolist() == [operand.value(c) for c in operand.codes]
    assert (operand.encode(values, "a") == codes).all()
    assert max(abs(values)) == operand.max_abs


@pytest.mark.parametrize("operand", OPERANDS, ids=str)
def test_encode_takes_nothing_else(operand):
    values = {operand.value(c) for c in operand.codes}
    for wrong in set(range(-300, 300)) - values:
        with pytest.raises(SpecError, match="holds"):
            operand.encode(np.array([wrong]), "a")


@given(data=st.data(), operand=st.sampled_from(OPERANDS))
def test_encode_of_arrays(data, operand):
    codes = data.draw(st.lists(st.sampled_from(list(operand.codes)), max_size=20))
    kinds = ["i8", "i4", "i2"] + ([] if operand.offset else ["u1", "u8"])
    values = np.array([operand.value(c) for c in codes], dtype=data.draw(st.sampled_from(kinds)))
    assert operand.encode(values, "a").tolist() == codes


@pytest.mark.parametrize("act", OPERANDS, ids=str)
def test_affine_identity(act):
    """2**shift * value(a) * value(w) == factor * core(a, w) + terms, for every pair of codes and widths."""
    for wgt in OPERANDS:
        spec = MatmulSpec("neon", act, wgt)
        core, fix = spec.core, affine(spec)
        a, w = np.array(act.codes)[:, None], np.array(wgt.codes)
        value = (act.scale * a + act.offset) * (wgt.scale * w + wgt.offset) << fix.shift
        product = fix.factor * a * (core.wgt.scale * w + core.wgt.offset)
        terms = np.array(fix.act_terms)[a] + np.array(fix.wgt_terms)[w]
        assert (value == product + terms).all(), (act, wgt)
        assert fix.is_identity == (spec == core)
        biggest = spec.k_max * max(abs(value).max() >> fix.shift, act.codes[-1] * core.wgt.max_abs)
        assert biggest < 2**31
