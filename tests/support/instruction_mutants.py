"""Wrong meanings, made from the declared ones by the mistakes a person makes."""

import dataclasses
import re
from collections.abc import Callable, Iterator

from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.isa.instr import Instr

SWAP = {"a[": "b[", "b[": "a[", "t[": "x[", "x[": "t[", "a,": "b,", "b)": "a)"}

RULES: dict[str, Callable[[str], str]] = {
    "wrong sign": lambda t: re.sub(r"\b([zs])ext", lambda m: "sext" if m[1] == "z" else "zext", t),
    "one sign wrong": lambda t: re.sub(r"zext|sext", lambda m: "sext" if m[0] == "zext" else "zext", t, count=1),
    "swapped operands": lambda t: re.sub(r"\b(a\[|b\[|a,|b\))", lambda m: SWAP[m[0]], t),
    "accumulator left out": lambda t: re.sub(r"acc\[i\] [-+] ", "", t),
    "subtraction for addition": lambda t: t.replace("] + ", "] - ").replace(") + ", ") - "),
    "addition for subtraction": lambda t: t.replace("] - ", "] + "),
    "next lane": lambda t: t.replace("[i]", "[i - 1]"),
    "neighbour lane": lambda t: t.replace("[2*i]", "[2*i + 1]", 1),
    "even lane twice": lambda t: t.replace("2*i + 1", "2*i"),
    "low half": lambda t: t.replace("[i + W_lanes]", "[i]"),
    "high half": lambda t: t.replace("(a[i], W_bits)", "(a[i + W_lanes], W_bits)"),
    "lanes in order": lambda t: re.sub(r"concat\(a, b\)\[.*?\](?=$|,| <<)", "concat(a, b)[i]", t),
    "lane after": lambda t: re.sub(r"concat\(a, b\)\[(.*)\]", r"concat(a, b)[(\1 + 1) % (2 * T_lanes)]", t),
    "shift the other way": lambda t: re.sub(r"(\w\[i\]) (<<|>>)", lambda m: m[1] + (">>", "<<")[m[2] == ">>"], t),
    "shift by one more": lambda t: re.sub(r"(\w\[i\] (?:<<|>>)) n", r"\1 (n + 1)", t),
    "rounded shift": lambda t: re.sub(r"^a\[i\] >> n$", "(a[i] + 1) >> n", t),
    "no saturation": lambda t: re.sub(r"[su]clamp\(", "trunc(", t),
    "saturation with the other sign": lambda t: re.sub(
        r"([su])clamp", lambda m: "uclamp" if m[1] == "s" else "sclamp", t
    ),
    "saturation to 7 bits": lambda t: re.sub(r"([su]clamp\(.*), [NW]_bits\)", r"zext(\1, 7), out_bits)", t),
    "or for and": lambda t: t.replace("] & ", "] | "),
    "and for or": lambda t: t.replace("] | ", "] & ").replace(") | ", ") & "),
    "or for xor": lambda t: t.replace("^", "|"),
    "not left out": lambda t: t.replace("~", ""),
    "bits not counted": lambda t: t.replace("popcount(", "("),
    "signed comparison": lambda t: t.replace("ult", "slt"),
    "out of range keeps the index": lambda t: re.sub(r", 0\)$", ", x[i])", t),
    "table of half the size": lambda t: t.replace("& 15", "& 7").replace("x[i] & 7)", "x[i] & 3)"),
    "bound one lower": lambda t: t.replace("ult(x[i], 128)", "ult(x[i], 127)").replace(", 16)", ", 15)"),
    "bound one higher": lambda t: t.replace("ult(x[i], 128)", "ult(x[i], 129)").replace(", 16)", ", 17)"),
    "difference not absolute": lambda t: re.sub(r"absdiff\((.*?\]), (.*?\])\)", r"(\1 - \2)", t),
    "seven of eight": lambda t: t.replace("range(8)", "range(7)").replace("range(T_lanes)", "range(T_lanes - 1)"),
    "sum for product": lambda t: t.replace(" * zext(b", " + zext(b").replace("a[i] * b[i]", "a[i] + b[i]"),
    "across the halves": lambda t: re.sub(r"i // (16|4|H) \* \1 \+ ", "", t),
    "bit kept that clears": lambda t: re.sub(r" << 8 \* \(n.*$", "", t),
    "selector not masked": lambda t: t.replace("n >> i & 1", "n >> i & 0"),
    "selector one bit up": lambda t: t.replace("n >> 2 * ", "n >> 1 + 2 * "),
    "memory from the next lane": lambda t: re.sub(r"p\[(.*)\]", r"p[(\1 + 1) % 8]", t),
    "half as wide": lambda t: f"zext(trunc({t}, out_bits // 2), out_bits)",
    "one too much": lambda t: f"trunc({t}, out_bits) + 1",
}

COMMUTATIVE = (
    "and", "eor", "orr", "xor", "or", "add", "mul", "mla", "mullo", "mullo32", "mul_epu32", "madd", "sad_epu8",
    "mls", "uaddl", "uaddl2", "umlal", "umlal2", "smlal", "smlal2", "umlsl", "umlsl2", "smlsl", "smlsl2",
    "dpwssd", "udot", "sdot", "adds",
    "mul_ps", "add_ps", "mul_epi32", "adds_signed", "fmul", "fadd", "fmin", "fmax", "smull", "smull2", "sqadd",
    "max", "min", "umax", "umin", "smax", "smin", "max_signed", "min_signed", "testbits", "kxor", "eor_x", "add_x",
)  # fmt: skip

WORDS = ("eor_x", "and_x", "add_x", "add_lsl_x", "add_lsr_x")

EQUIVALENT = {
    **{(table, "swapped operands"): "the operation is commutative" for table in COMMUTATIVE},
    **{(table, "half as wide"): "a byte has 8 bits at most, which takes 4 bits" for table in ("cnt", "popcnt")},
    **{(table, "next lane"): "there is one lane" for table in ("kxor", "store_mask", *WORDS)},
    ("sad_epu8", "half as wide"): "8 differences of bytes are 2040 at most, which takes 11 bits",
    **{(table, "half as wide"): "the upper half is 0" for table in ("uxtl", "uxtl2", "cvtepu", "cvtepu8_epi32")},
}

VALUES = [
    ("avx2", "add.u16x16", "eq(a[i], 0x1234)"),
    ("avx2", "sub.u16x16", "eq(b[i], 0xbeef)"),
    ("avx2", "mullo.s16x16", "eq(a[i] + b[i], 0x5555)"),
    ("avx2", "madd.s16x16", "eq(b[2*i + 1], 0x0c0d)"),
    ("avx2", "srl.u32x8", "eq(a[i], 0x80000001)"),
    ("avx2", "add.u32x8", "eq(a[i], 0x00ffffff)"),
    ("avx2", "add.u32x8", "eq(b[i], 0x00c30000)"),
    ("avx2", "sub.u32x8", "eq(zext(a[i], 64) << 32 | zext(b[i], 64), 0x80000000fffffffe)"),
    ("avx2", "mullo32.u32x8", "eq(zext(a[i], 64) << 32 | zext(b[i], 64), 0x0000ffff00010001)"),
    ("avx2", "add.u64x4", "eq(a[i], 0xffff3cffffffffff)"),
    ("avx2", "sll.u64x4", "eq(a[i], 0x0000000a00000000)"),
    ("avx2", "permutevar8x32.u32x8", "eq(t[5], 0x7fffffff)"),
    ("neon", "mla.u8x16", "eq(zext(a[i], 16) << 8 | zext(b[i], 16), 0x7f81)"),
    ("neon", "uadalp.u16x8", "eq(a[2*i], 0x6789)"),
    ("neon", "cnt.u8x16", "eq(a[i], 0xa5)"),
]
"""Sets, forms, and a value of theirs at which alone the meaning is wrong."""

OUTSIDE = [
    ("avx2", "add.u32x8", "eq(a[i], 0x12345678)"),
    ("avx2", "add.u16x16", "eq(zext(a[i], 32) << 16 | zext(b[i], 32), 0x12345678)"),
]


def wrong_at(instr: Instr, where: str) -> Instr:
    """`instr` with all bits of a lane inverted where the condition holds."""
    return dataclasses.replace(instr, lane=f"ite({where}, ~({instr.lane}), {instr.lane})")


def mutants(instr: Instr) -> Iterator[tuple[str, Instr]]:
    """(name of the rule, mutated form) for every rule that changes the lane's text."""
    lane = instr.lane
    for name, rule in RULES.items():
        text = rule(lane)
        if text != lane:
            mutant = dataclasses.replace(instr, lane=text.replace("out_bits", str(instr.out.bits)))
            if _parses(mutant):
                yield name, mutant


def _parses(instr: Instr) -> bool:
    try:
        return bool(instr.tree)
    except SpecError:
        return False


def representatives(isa_name: str) -> list[Instr]:
    """The first and the last form of every table."""
    isa = load.load(isa_name)
    tables: dict[str, list[Instr]] = {}
    for name, instr in isa.instrs.items():
        tables.setdefault(name.rpartition(".")[0], []).append(instr)
    return [f for forms in tables.values() for f in dict.fromkeys((forms[0], forms[-1]))]
