"""Elementwise specs as plain C: to the bit what their meaning gives, at ties, ends of ranges and odd floats too."""

import itertools
import os
import zlib

import msgspec
import numpy as np
import pytest

from bitsynth import toolchain
from bitsynth.emit import plain
from bitsynth.emit.runtime_files import network_files, runtime_files
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import PlainProgram
from bitsynth.layers.epilogues.floats import gated_spec, rescale_spec, scale_spec
from bitsynth.layers.epilogues.requantize import requantize_any_spec, requantize_spec
from bitsynth.layers.epilogues.thresholds import thresholds_spec
from bitsynth.processes import tool
from bitsynth.run.runner import runner_for
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec
from bitsynth.spec.glue import average, greatest, lookup, lookup_channels, lookup_sums, pairs
from bitsynth.spec.rescaling import CodeForm, ValueTerms
from bitsynth.spec.residual import add_to_sums, round_to_codes, scale_sums

pytestmark = pytest.mark.toolchains

CODES = (CodeForm("u8"), CodeForm("s8"), CodeForm("s16"), CodeForm("s16", moved=True), CodeForm("u8", planes=3))
SUMS = (ValueTerms(), ValueTerms(row=True, column=True))
TYPES = ("u8", "s8", "s16", "s32", "u32")
INSTRUCTION_SETS = ("avx2", "avx512", "neon", "armv7_neon")
COMPILERS = [
    (isa, c)
    for isa in INSTRUCTION_SETS
    for c in toolchain.compilers(load(isa))
    if c.family == "gcc" or (c.family == "clang" and isa != "avx512")
]
FUSING = {"avx2": ("-mfma",), "avx512": ("-mfma",), "neon": (), "armv7_neon": ("-mfpu=neon-vfpv4",)}
"""What gives instruction sets fused instructions."""


def odd(name, meaning, out="u32", *types):
    """A spec of elements x and y, so that every function of the language is emitted."""
    return ElementwiseSpec(
        name, tuple(ElementInput(n, t) for n, t in zip("xy", types or ("s32", "s32"), strict=False)), meaning, out
    )


FUNCTIONS = {
    "between": ("ite(eq(x, 0), sext(trunc(y, 9), 32), absdiff(x, y))", "u32"),
    "clamps": ("zext(sclamp(x, 12), 16) + zext(uclamp(y, 9), 16)", "u16"),
    "counts": ("zext(popcount(x), 64) * 3 - zext(y, 64)", "u64"),
    "shifts": ("lsl(x, y & 63) ^ lsr(x, y & 63) ^ asr(x, y & 63) ^ (x << 5) ^ (x >> 3) ^ asr(x, 7)", "u32"),
    "small": ("lsl(trunc(x, 16), trunc(y, 16) & 31) * lsr(trunc(x, 16), trunc(y, 16) & 31)", "u16"),
    "bytes": ("asr(trunc(x, 8), trunc(y, 8) & 15) - trunc(y, 8) * trunc(x, 8)", "u8"),
    "odd_width": ("zext(asr(trunc(x, 20), trunc(y, 20) & 31) - ~trunc(y, 20), 32)", "u32"),
    "extremes": ("fmin(float_of(x), float_of(y)) ^ fmax(float_of(x), float_of(y))", "u32"),
    "zeros": ("flushed(fmul(x & 0xbfffffff, (x & 0) + 0x00800000)) ^ y", "u32"),
    "halves": ("nearest(fmul(float_of(x), (x & 0) + 0x3f000000)) + y", "u32"),
    "fused": ("fadd(fmul(float_of(x), float_of(y)), (x & 0) + 0xdf000000)", "u32"),
    "twice": (
        "fadd(fmul(fadd(fmul(float_of(x), float_of(y)), float_of(x)), (x & 0) + 0x3f7fffff), float_of(y))",
        "u32",
    ),
    "quotients": ("udiv(x, y) ^ zext(udiv(trunc(y, 9), trunc(x, 9)), 32)", "u32"),
    "doubles": ("dnearest(dmin(dmax(dmul(double_of(x), double_of(y)), 0), 0x41d0000000000000))", "u32"),
    "less": (
        "dnearest(dmul(dabs(dsub(double_of(x), double_of(y))), 0x3fc0000000000000)) + int_of(double_of(y))",
        "u32",
    ),
    "clipped": (
        "trunc(dadd(double_of_float(fclip(x, 0xc2fe0000, 0x42fe0000)), 0x4338000000000000), 32)"
        " + zext(bit(fle(x, y)), 32)",
        "u32",
    ),
    "shares": (
        "dnearest(ddiv(double_of(x), 0x4008000000000000)) + dnearest(ddiv(0x4024000000000000, double_of(y | 1)))",
        "u32",
    ),
    "many": ("sum(zext(bit(ult(x, y + 9)), 32) for k in range(40))", "u32"),
}
MORE = [odd(name, *rest) for name, rest in FUNCTIONS.items()]
MORE += [
    odd(f"other_{a}_{b}", "sext(x, 64) - zext(y, 64)", "u64", a, b) for a, b in zip(TYPES, TYPES[::-1], strict=True)
]
THRESHOLDS = [
    thresholds_spec(levels, words=words, row=row, flip=flip)
    for levels in (3, 16)
    for words, row, flip in ((False, False, False), (True, True, True))
]
CHOICES = list(itertools.product((False, True), repeat=3))
SPECS = [
    *THRESHOLDS,
    thresholds_spec(255, words=True),
    thresholds_spec(7, words=False, narrow=True),
    ElementwiseSpec("affine", SUMS[1].inputs, "asr(s + r + c, 1)", "s32"),
    greatest(),
    lookup(16),
    lookup(256),
    lookup_channels(),
    lookup_channels(floats=True),
    lookup_sums(1 << 14),
    pairs(8),
    average(),
    *(
        rescale_spec(x, codes, bias=bias)
        for x, codes, bias in zip(SUMS * 3, CODES, (False, False, True, True) * 2, strict=False)
    ),
    *(gated_spec(x, codes) for x, codes in zip(SUMS, CODES[1:], strict=False)),
    *(scale_spec(x, bias=bias) for x, bias in zip(SUMS, (True, False), strict=True)),
    *(requantize_spec(x, row=r, wide=w, even=e) for x, (r, w, e) in zip(CODES * 2, CHOICES, strict=False)),
    *(requantize_any_spec(codes, even=even) for codes, even in zip(CODES, (True, False) * 3, strict=False)),
    *(add_to_sums(element, factor=factor) for element, factor in zip(TYPES, (True, False) * 3, strict=False)),
    *map(scale_sums, ("u8", "s32", "f32")),
    *map(round_to_codes, CODES[:2]),
    *MORE,
]
FEW = [
    average(),
    thresholds_spec(16, words=True),
    requantize_any_spec(CODES[3], even=True),
    rescale_spec(SUMS[1], CODES[1], bias=True),
]
ROWS, UNITS = 5, 2
CALL = """
void run_{0}(const uint64_t *n, const void *constants, const void *shared, const void *from, const int32_t *row,
             const void *other, void *to);
void run_{0}(const uint64_t *n, const void *constants, const void *shared, const void *from, const int32_t *row,
             const void *other, void *to)
{{
    {0}(constants, shared, (size_t)n[0], (size_t)n[1], from, (size_t)n[2], row, other, (size_t)n[3], to, (size_t)n[4]);
}}
"""


def plain_program(spec):
    return PlainProgram.of(spec, 32, 24)


def sources(specs):
    """A file with every spec, and what it includes."""
    text = f'#include "{plain.HEADER}"\n'
    for spec in specs:
        text += plain.function(plain_program(spec), spec.name) + CALL.format(spec.name)
    needed = ("bs_words.c", "bs_word.h", "bs_layer.h", "bs_pool.h", "bs_call.h", "bs_plain.h", "bs_exact.h")
    return {"plain.c": text, **{name: runtime_files(threads=False)[name] for name in needed}}


EDGES = {
    32: [0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 1 << 24, (1 << 24) + 1, 255, 256, 0xFFFFFF00],
    64: [0, 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 1 << 32],
}
FLOATS = np.array(
    [0, -0.0, 1e-45, -1e-45, 1e-38, 0.5, -0.5, 0.25, 1.5, 2**-24, 3e38, -3e38, 1, 2.0**31, 2.0**23], np.float32
)


def drawn(rng, one, shape):
    """Numbers of an input, int64: any, small ones and ends."""
    w = one.lane.bits
    if one.name in "mbfevga" and one.type == "u32":
        some = np.ldexp(rng.normal(size=shape), rng.integers(-40, 9, shape)).astype(np.float32)
        return (
            np.where(rng.integers(0, 3, shape) == 0, rng.choice(FLOATS, shape), some).view(np.uint32).astype(np.int64)
        )
    every = rng.integers(-(1 << 63), (1 << 63) - 1, shape, endpoint=True) >> (64 - w)
    small, middle = rng.integers(-9, 9, shape), rng.integers(-9000, 9000, shape)
    ends = rng.choice(np.array(EDGES.get(w, [0, 1, 1 << (w - 1), (1 << w) - 1]), np.uint64), shape).astype(np.int64)
    return fitting(one, np.choose(rng.integers(0, 4, shape), [every, small, middle, ends]))


def fitting(one, numbers):
    """Numbers brought into the type of an input."""
    low = numbers.astype(np.uint64) & np.uint64((1 << one.lane.bits) - 1)
    sign = np.uint64(1 << (one.lane.bits - 1) if one.type[0] == "s" else 0)
    return ((low ^ sign) - sign).astype(np.int64)


def inputs(rng, program, rows, channels):
    """Payloads (values, rows or 1, channels or 1) by input; most are what the spec assumes."""
    spec = program.spec
    sizes = {"element": (rows, channels), "row": (rows, 1), "channel": (1, channels), "all": (1, 1), "table": (1, 1)}
    out = {x.name: drawn(rng, x, (x.values, *sizes[x.per])) for x in spec.inputs}
    if spec.name.startswith("thresholds"):
        out["t"] = np.sort(out["t"], axis=0).clip(None, 32766 if "s16" in spec.name else None)
        out["m"] = -(out.get("m", 0) & 1)
    if "n" in out:
        out["n"] %= 63 if "_any" in spec.name else 31
    if "z" in out and "moved" not in spec.name:
        out["z"] %= 256
    if "_any" in spec.name:
        out["g"] %= (1 << 61) + 1
    if "l" in out:
        out["l"], out["h"] = np.minimum(out["l"], out["h"]), np.maximum(out["l"], out["h"])
    if spec.name == "lookup16":
        out["x"] %= 16
    if spec.name == "scaled_mean":
        most = {"s": 1 << 9, "f": 9, "k": 99, "d": 64, "w": 2, "e": 2}
        out |= {name: out[name] % end + (name == "d") for name, end in most.items()}
        out["k"] -= 50
    return {x.name: out[x.name].astype(np.uint64) & np.uint64((1 << x.lane.bits) - 1) for x in spec.inputs}


def stored(one, values):
    return np.ascontiguousarray(values.astype(f"u{one.lane.bits // 8}"))


def wrong(runner, spec, seed=0):
    """How many elements C has otherwise than the spec."""
    program, rng = plain_program(spec), np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    channels = program.unit * UNITS
    given = inputs(rng, program, ROWS, channels)
    with np.errstate(all="ignore"):
        taken = {name: list(np.broadcast_to(v, (len(v), ROWS, channels))) for name, v in given.items()}
        fine = np.ones((ROWS, channels), bool)
        for holds in spec.bits(spec.assumes, ConcreteDomain(), taken):
            fine &= np.broadcast_to(holds, fine.shape) == 1
        want = np.broadcast_to(spec.value(ConcreteDomain(), taken), fine.shape)
    assert fine.any(), spec.name
    got = called(runner, program, given, channels)
    return int(((got != want) & fine).sum())


def called(runner, program, given, channels):
    """The results of the C function (rows, channels)."""
    spec, by = program.spec, {x.name: x for x in program.spec.inputs}
    elements = [stored(x, given[x.name][0]) for x in spec.inputs if x.per == "element"]
    row = next((stored(x, given[x.name]) for x in spec.inputs if x.per == "row"), np.zeros(1, np.uint32))
    constants = program.pack(channels, {n: stored(by[n], v)[:, 0] for n, v in given.items() if by[n].per == "channel"})
    shared = [
        np.zeros(0, np.uint8),
        *(stored(x, given[x.name]).reshape(-1).view(np.uint8) for x in spec.inputs if x.per in ("all", "table")),
    ]
    bits = spec.out_bits
    to = np.zeros((ROWS, channels // 8 * spec.planes if spec.planes else channels * bits // 8), np.uint8)
    from_, other = elements[0], elements[1] if len(elements) > 1 else None
    sizes = np.array(
        [ROWS, channels, from_.strides[0], other.strides[0] if other is not None else 0, to.strides[0]], np.uint64
    )
    numbers = np.concatenate(shared)
    numbers = numbers if numbers.size else np.zeros(1, np.uint8)
    constants = constants if constants.size else np.zeros(1, np.uint8)
    runner.call(f"run_{spec.name}", sizes, constants, numbers, from_, row, other, to)
    if not spec.planes:
        return to.view(f"u{bits // 8}").astype(np.uint64)
    words = to.view(np.uint64).reshape(ROWS, -1, spec.planes, 1)
    at = np.arange(64)
    ones = words >> (at % 8 * 8 + at // 8).astype(np.uint64) & np.uint64(1)
    return (ones << np.arange(spec.planes, dtype=np.uint64)[:, None]).sum(axis=2).reshape(ROWS, channels)


def compiled(isa, specs, compiler=None, flags=("-O3", "-std=gnu11", "-ffp-contract=fast"), **changed):
    """A runner of the C of `specs`, compiled so that a product and a sum are fused where they may be."""
    flags = (*flags, *FUSING[isa])
    library = toolchain.compile_for(load(isa), sources(specs) | changed, compiler=compiler, flags=flags)
    return runner_for(load(isa), library)


def test_some_specs():
    runner = compiled("avx2", FEW)
    assert [spec.name for spec in FEW if any(wrong(runner, spec, seed) for seed in range(9))] == []


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "compiler"), COMPILERS, ids=lambda x: getattr(x, "name", x))
def test_every_spec(isa, compiler, skip_isa):
    try:
        runner = compiled(isa, SPECS, compiler)
    except ToolError as why:
        skip_isa(isa, str(why))
    assert [spec.name for spec in SPECS if any(wrong(runner, spec, seed) for seed in range(3))] == []


@pytest.mark.slow
def test_nothing_is_undefined():
    """What C leaves undefined would trap."""
    gcc = next((c for c in toolchain.compilers(load("avx2")) if c.family == "gcc"), None)
    if gcc is None:
        pytest.skip("no gcc")
    strict = ("-Wpedantic", "-Wconversion", "-Wshadow", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    runner = compiled("avx2", SPECS, gcc, flags=("-O1", *strict))
    assert [spec.name for spec in SPECS if wrong(runner, spec)] == []


CLIPPED = """
void clip(size_t count, const float *restrict from, uint8_t *restrict to);
void clip(size_t count, const float *restrict from, uint8_t *restrict to)
{
    for (size_t i = 0; i < count; ++i)
        to[i] = (uint8_t)bs_whole32(bs_flt(0x3f800000, bs_bits(from[i])) ? 1 : (double)from[i]);
}
"""


@pytest.mark.parametrize("headers", [("bs_plain.h", "bs_real.h"), ("bs_real.h", "bs_plain.h")], ids=" ".join)
def test_functions_of_all_headers_are_inlined(headers, tmp_path):
    """GCC inlines no function that was compiled by other rules of floats, and vectorizes no loop that calls it."""
    compiler = toolchain.compilers(isa := load("avx2"))[0]
    for name, text in (runtime_files(threads=False) | network_files()).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "clip.c").write_text("".join(f'#include "{name}"\n' for name in headers) + CLIPPED)
    flags = compiler.flags([*isa.requirements().cc_flags, "-std=c11", "-O3", "-S", "-o", "clip.s", "clip.c"])
    tool.run([*compiler.command, *flags], tmp_path, {**os.environ, **compiler.environment})
    assembly = (tmp_path / "clip.s").read_text()
    assert [name for name in ("bs_flt", "bs_bits", "bs_whole32") if name in assembly] == []


NAMED = {spec.name: spec for spec in MORE}
MUTANTS = [
    ("between", " == ", " != "),
    ("between", "& 511", "& 255"),
    ("clamps", "? 2047", "? 2046"),
    ("counts", "bs_popcount", "bs_nearest"),
    ("shifts", ": 31)", ": 30)"),
    ("shifts", "<< (v", ">> (v"),
    ("shifts", ">> 3", ">> 4"),
    ("small", "v4 < 16", "v4 < 8"),
    ("small", "(uint16_t)v0", "(uint8_t)v0"),
    ("bytes", "(int8_t)", "(uint8_t)"),
    ("odd_width", "262144", "131072"),
    ("many", "k < 40", "k < 39"),
    ("quotients", ": UINT32_C(4294967295)", ": UINT32_C(4294967294)"),
    ("quotients", " / ", " % "),
    ("other_s8_s32", "(int8_t)", "(uint8_t)"),
    ("halves", "bs_nearest", "bs_rounded_up"),
    ("extremes", "bs_float_of", "(uint32_t)"),
    ("fused", "bs_fadd", "bs_fmul"),
    ("doubles", " * ", " + "),
    ("doubles", "? 0.0", "? 1.0"),
    ("less", " - ", " + "),
]
ROUNDED_UP = "static inline uint32_t bs_rounded_up(uint32_t x) { return bs_nearest(bs_fadd(x, 0x3a000000)); }\n"


@pytest.mark.slow
def test_mutants_are_noticed():
    """One expression of C is another."""
    by_name = {f"mutant{n}": (NAMED[name], old, new) for n, (name, old, new) in enumerate(MUTANTS)}
    specs = [msgspec.structs.replace(spec, name=name) for name, (spec, _, _) in by_name.items()]
    parts = sources(specs)["plain.c"].split("static inline void ")
    for n, (_, old, new) in enumerate(by_name.values()):
        assert old in parts[n + 1], (n, parts[n + 1])
        parts[n + 1] = parts[n + 1].replace(old, new, 1)
    text = parts[0] + ROUNDED_UP + "static inline void ".join(["", *parts[1:]])
    runner = compiled("avx2", specs, **{"plain.c": text})
    assert [by_name[s.name] for s in specs if not any(wrong(runner, s, seed) for seed in range(3))] == []


def test_what_c_cannot_say_is_refused():
    third = ElementwiseSpec("third", tuple(ElementInput(n, "s32") for n in "xyz"), "x + y + z", "s32")
    cut = odd("cut", "fmul_flushed(x, y)")
    for spec, why in ((third, "one input of elements besides the first"), (cut, "not toward zero")):
        with pytest.raises(SpecError, match=why):
            plain.function(plain_program(spec), spec.name)
