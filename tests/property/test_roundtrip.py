"""What is written can be read back: packed inputs, names, programs, cache files, operand codes."""

import json
from functools import cache as memoize

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.solved_kernels import RUNNABLE, name, proved_entry, spec_of

from bitsynth import paths
from bitsynth.emit.packing import packing
from bitsynth.errors import SpecError
from bitsynth.isa.step import Step, from_json, to_json
from bitsynth.isa.value import Value
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.packing import multiply_neighbours
from bitsynth.kernel.program import BIT_AXES
from bitsynth.matmul import MatmulKernel
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, affine
from bitsynth.store.entry import Entry
from bitsynth.store.matmul import MATMUL

OPERANDS = [MatmulOperand(b, e) for b in range(1, 9) for e in Encoding if b in e.widths]
IDENTIFIER = st.from_regex(r"[a-z]{1,3}[0-9]{1,4}(_[0-9]{1,2})?", fullmatch=True)
APART = [c for c in RUNNABLE if c[1] == "popcount" and max(c[2:]) > 1]
"""Those whose planes of bits may lie apart."""
LAYOUTS = [(c, axis) for axis, configs in zip(BIT_AXES, (RUNNABLE, APART), strict=True) for c in configs]
SHIPPED = sorted(paths.shipped_kernels().rglob("bs_mm_*.json"))


@memoize
def compiled(config, bit_axis):
    isa, _, act_bits, w_bits = config
    return MatmulKernel(proved_entry(*config), spec_of(isa, act_bits, w_bits)).with_bit_axis(bit_axis)


def input_bytes(given, codes, size):
    """What a row's or a column's input holds for the codes of one step."""
    if isinstance(given, Planes):
        width = len(given.tables)
        return [
            sum(
                (table >> codes[p] & 1) << (q * width + j)
                for q, p in enumerate(given.positions(b))
                for j, table in enumerate(given.tables)
            )
            for b in range(size)
        ]
    values = [given.values[c] for c in codes[given.first : given.first + given.bits]]
    return [sum(v for n, v in enumerate(values) if e >> n & 1) for e in range(given.entries)]


def by_step(codes, count, shape):
    """Codes of `count` vectors, padded with zeros to whole steps: (count, steps, k_step), in the order of positions."""
    vectors, length = codes.shape
    out = np.zeros((count, -(-length // shape.k_step) * shape.k_step), int)
    out[:vectors, :length] = codes
    order = list(packing(shape).order)
    assert sorted(order) == list(range(shape.k_step))
    return out.reshape(count, -1, shape.k_step)[..., order].tolist()


def steps_of(inputs, steps, shape):
    """(input, step) in the order they lie in: by step, or by input where the bit axis is the outer one."""
    if shape.bit_axis == "outer":
        return [(x, step) for x in inputs for step in range(steps)]
    return [(x, step) for step in range(steps) for x in inputs]


def packed_rows(shape, codes):
    """By row, then step and input, of all that passes share; a row of pairs has the next one in its high halves."""
    count = -(-len(codes) // shape.rows) * shape.rows
    steps = by_step(codes, count, shape)
    inputs = [x for inputs in dict.fromkeys(p.rows for p in shape.passes) for x in inputs]
    rows = [
        [
            byte
            for x, step in steps_of(inputs, len(steps[row]), shape)
            for byte in input_bytes(x, steps[row][step], shape.slot_bytes)
        ]
        for row in range(count)
    ]
    none = [0] * len(rows[0])
    partners = [*rows[1:], none] if shape.together > 1 else [none] * count
    both = (zip(row, other, strict=True) for row, other in zip(rows, partners, strict=True))
    return [byte | partner << 4 for row in both for byte, partner in row]


def packed_columns(shape, codes):
    """By column tile and inputs that passes share, then step and input, slot."""
    count = -(-len(codes) // shape.columns) * shape.columns
    steps = by_step(codes, count, shape)
    return [
        byte
        for tile in range(0, count, shape.columns)
        for inputs in dict.fromkeys(p.columns for p in shape.passes)
        for x, step in steps_of(inputs, len(steps[0]), shape)
        for column in shape.slots
        for byte in input_bytes(x, steps[tile + column][step], shape.slot_bytes)
    ]


@pytest.mark.parametrize("side", ["rows", "columns"])
@pytest.mark.parametrize(("config", "bit_axis"), LAYOUTS, ids=lambda x: x if isinstance(x, str) else name(x))
@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_packed_operands_are_read_back(config, bit_axis, side, data):
    """Every byte as the layout says, then the 64-bit sums of each vector's terms."""
    k = compiled(config, bit_axis)
    shape = k.entry.kernel
    unit, bits, terms = {
        "rows": (shape.rows, shape.row_bits, shape.row_terms),
        "columns": (shape.columns, shape.column_bits, shape.column_terms),
    }[side]
    count, length = data.draw(st.integers(1, unit + 1)), data.draw(st.integers(1, 2 * shape.k_step + 1))
    seed = data.draw(st.integers(0, 2**32 - 1))
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (count, length), dtype=np.uint8)
    is_act = (side == "rows") != shape.swapped
    packed = pack(k, "act", codes) if is_act else pack(k, "wgt", np.ascontiguousarray(codes.T))
    want = (packed_rows if side == "rows" else packed_columns)(shape, codes)
    assert packed[: len(want)].tolist() == want
    sums = packed[-(-len(want) // 8) * 8 :].view(np.int64)
    assert (sums[:count] == np.array(terms)[codes].sum(axis=1) + shape.cross_terms * multiply_neighbours(codes)).all()
    assert not sums[count:].any()


def pack(k, side, codes):
    """The bytes of a packed operand, from a buffer that was full of ones."""
    size = k.runner.call(f"{k.name}_{side}_bytes", *codes.shape)
    assert size % 8 == 0
    words = np.full(size // 8, -1, np.int64)
    k.runner.call(f"{k.name}_pack_{side}", *codes.shape, codes, words)
    return words.view(np.uint8)


sizes = st.integers(1, 999)


@given(
    act=st.sampled_from(OPERANDS),
    wgt=st.sampled_from(OPERANDS),
    isa=st.from_regex(r"[a-z][a-z0-9]{0,8}(_[a-z0-9]{1,5})?", fullmatch=True),
    tile=st.tuples(sizes, sizes, sizes),
    form=st.tuples(st.integers(0, 16), st.sampled_from(BIT_AXES)),
)
def test_names_are_parsed_back(act, wgt, isa, tile, form):
    name = KernelName(MatmulSpec(isa, act, wgt), *tile, *form)
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
def test_program_text_is_parsed_back(dst, op, args, imm):
    step = Step(Value(dst), op, tuple(map(Value, args)), imm)
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
    for path in SHIPPED:
        kernel = MATMUL.read(path).kernel
        build = kernel.build.steps if kernel.build else ()
        loops = [loop for p in kernel.passes for loop in p.loops]
        lines = [*build, *(x for p in kernel.passes for x in p.flush), *(x for n in loops for x in n.steps + n.first)]
        assert [Step.parse(str(step)) for step in lines] == lines


def test_cache_files_round_trip():
    for path in SHIPPED:
        found = MATMUL.read(path)
        assert from_json(to_json(found), Entry) == found
        assert found.expected_digest == found.digest
        assert msgspec.json.format(to_json(found), indent=1) + b"\n" == path.read_bytes()


@pytest.mark.parametrize("config", RUNNABLE, ids=name)
def test_entries_of_every_method_round_trip(config, tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    entry = proved_entry(*config)
    stored = MATMUL.store(entry)
    assert stored.parent.name == config[1]
    assert MATMUL.load(stored).entry == entry.entry


def test_a_stored_kernel_is_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    path = next(paths.shipped_kernels().glob("neon/*a2u_w1b*.json"))
    stored = MATMUL.store(MATMUL.load(path))
    assert stored.read_bytes() == path.read_bytes()
    assert MATMUL.load(stored).entry == MATMUL.read(path)


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
        MATMUL.read(edited)


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
def test_the_affine_identity_of_encodings_holds(act):
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
