"""Latency and throughput of every form of an x86 set, in core cycles of this processor.

    python benchmarks/instruction_costs.py [--isa avx512] [--toml CPU] [--rounds N] [form ...]

A core cycle is one step of a chain of dependent additions, timed next to every
measurement; figures are medians over interleaved rounds. Latency is the longest from
any register operand; a load's latency starts and ends in registers, less half of a round trip of `vmovq`; from vectors
to masks, or back, it is half of a round trip. A form that overwrites an operand is timed on chains of its own, which
need no copies. The last columns are instructions a cycle when the form alternates with one that shuffles, shifts or
multiplies: they show which ports the two forms share.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import report

from bitsynth import toolchain
from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.run.runner import runner_for

OPS = 32
LOOPS = 400
CHAINS = 12
NARROWEST = 128
"""Bits of the narrowest vectors."""
CLASSES = {"shuffle": ("shuffle_epi8", 8), "shift": ("srl", 16), "multiply": ("mullo", 16)}
HEAD = """\
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#define HIDE(v) __asm__ volatile("" : "+v"(v))
#define USE(v) __asm__ volatile("" : : "v"(v))
static uint8_t room[4096] __attribute__((aligned(64)));
"""
CALIBRATE = '__asm__ volatile(".rept 32\\n\\tadd %1, %0\\n\\t.endr" : "+r"(n) : "r"(one));'
TO_MASK = "_mm512_test_epi{bits}_mask(c, c)"
FROM_MASK = "_mm512_maskz_mov_epi{bits}(m, c)"
FROM_WORD = "_mm256_castsi128_si256(_mm_cvtsi32_si128((int)m))"
ROUND_TRIP = "HIDE(x); { int64_t g = _mm_cvtsi128_si64(x); x = _mm_cvtsi64_si128(g); }"


@dataclass(frozen=True)
class Figures:
    """Cycles of latency, instructions a cycle alone, and next to each of `CLASSES`."""

    latency: float
    per_cycle: float
    mixed: tuple[float, ...]


def immediates(instr: Instr) -> Sequence[int]:
    return instr.try_imm or [instr.imms[len(instr.imms) // 2]]


def co_issued(isa: Isa) -> dict[str, Instr]:
    """The form that stands for each of `CLASSES`."""
    return {c: isa[f"{name}.u{bits}x{isa.table.vector_bits // bits}"] for c, (name, bits) in CLASSES.items()}


def view(x: str, bits: int, to: int) -> str:
    """A register, or its low part, as one of another size: no instruction."""
    return x if bits == to else f"_mm{max(bits, to)}_castsi{bits}_si{to}({x})"


def in_vectors(kind: VecType) -> bool:
    """Whether values of the type are in vector registers, not in masks or general ones."""
    return kind.total_bits >= NARROWEST


def other_class(isa: Isa) -> str:
    """The registers of values that are not in vector registers, as inline assembly spells them."""
    return "k" if any("mmask" in kind for kind in isa.table.ctype.values()) else "r"


def others(isa: Isa) -> dict[str, str]:
    """Variables of values that are not in vector registers, and their C types."""
    kinds = {VecType.parse(kind): c for kind, c in isa.table.ctype.items()}
    return {f"k{kind.total_bits}": c for kind, c in kinds.items() if not in_vectors(kind)}


def operand(isa: Isa, given: Operand, chain: str) -> str:
    """The C text of an operand, if it is in a register the variable `chain` or one that is named by its type."""
    if given.memory:
        return "p"
    return view(chain, isa.table.vector_bits, given.type.total_bits) if in_vectors(given.type) else chain


def expression(isa: Isa, instr: Instr, imm: int, k: int = -1, chain: str = "c") -> str:
    """The C text on opaque operands, operand `k` being `chain`."""
    names = [
        operand(isa, o, chain if j == k else f"o{j}" if in_vectors(o.type) else f"k{o.type.total_bits}")
        for j, o in enumerate(instr.operands)
    ]
    return instr.render(names, imm, "(room + 64 * (at++ % 32))")


def is_trip(instr: Instr, k: int) -> bool:
    """Whether the form takes operand `k` from, or brings it to, other registers than vectors."""
    return not instr.operands[k].memory and not (in_vectors(instr.operands[k].type) and in_vectors(instr.out))


def latency(isa: Isa, instr: Instr, imm: int, k: int) -> str:
    bits = isa.table.vector_bits
    if is_trip(instr, k):
        step = trip(isa, instr, imm, k)
    elif instr.operands[k].memory:
        value = expression(isa, instr, imm)
        width = instr.out.total_bits
        step = f"{{ __m{width}i v = {value}; HIDE(v); p += _mm_cvtsi128_si64({view('v', width, 128)}); }}"
    else:
        result = view(f"({expression(isa, instr, imm, k)})", instr.out.total_bits, bits)
        step = f"c = {result}; HIDE(c);"
    return step * OPS


def trip(isa: Isa, instr: Instr, imm: int, k: int) -> str:
    """A step of a chain from vectors to a mask or word and back, or from mask to mask."""
    given, out = instr.operands[k].type, instr.out
    kind = isa.table.ctype[str(out if in_vectors(given) else given)]
    hide = f'__asm__ volatile("" : "+{other_class(isa)}"(m));'
    if not in_vectors(given) and not in_vectors(out):
        chain = f"k{out.total_bits}"
        return f"{{ {kind} m = ({kind}){chain}; {hide} {chain} = {expression(isa, instr, imm, k, 'm')}; }}"
    if in_vectors(given):
        there = expression(isa, instr, imm, k)
        back = FROM_WORD if other_class(isa) == "r" else FROM_MASK.format(bits=given.bits)
    else:
        there, back = TO_MASK.format(bits=out.bits), expression(isa, instr, imm, k, "m")
    return f"{{ {kind} m = {there}; {hide} c = {back}; HIDE(c); }}"


def throughput(isa: Isa, *instrs: tuple[Instr, int]) -> str:
    return "".join(_once(isa, *instrs[n % len(instrs)], n // len(instrs)) for n in range(OPS))


def _once(isa: Isa, instr: Instr, imm: int, n: int) -> str:
    masks = {f"k{o.type.total_bits}" for o in instr.operands if not (o.memory or in_vectors(o.type))}
    also = "".join(f', "+{other_class(isa)}"({x})' for x in sorted(masks))
    hide = f'HIDE(o0); HIDE(o1); HIDE(o2); __asm__ volatile("" : "+r"(p){also});'
    if instr.tied:
        k = [o.name for o in instr.operands].index(instr.tied[0])
        result = expression(isa, instr, imm, k, f"chains[{n % CHAINS}]")
        return f"{hide} chains[{n % CHAINS}] = {result}; HIDE(chains[{n % CHAINS}]);"
    if instr.store:
        return f'{hide} {expression(isa, instr, imm)}; __asm__ volatile("" : : : "memory");'
    if not in_vectors(instr.out):
        use = f'__asm__ volatile("" : : "{other_class(isa)}"(y));'
        return f"{hide} {{ {isa.table.ctype[str(instr.out)]} y = {expression(isa, instr, imm)}; {use} }}"
    return f"{hide} {{ __m{instr.out.total_bits}i y = {expression(isa, instr, imm)}; USE(y); }}"


def function(isa: Isa, name: str, body: str) -> str:
    bits = isa.table.vector_bits
    return f"""
int64_t {name}(int64_t loops);
int64_t {name}(int64_t loops) {{
    const uint8_t *p = room + 2048;
    __m{bits}i o0 = _mm{bits}_setzero_si{bits}(), o1 = o0, o2 = o0, c = o0, chains[{CHAINS}] = {{o0}};
    __m128i x = _mm_setzero_si128();
    {"".join(f"{kind} {name} = 0;" for name, kind in others(isa).items())}
    int64_t n = 0, one = 1;
    unsigned at = 0;
    HIDE(o0); HIDE(o1); HIDE(o2); HIDE(c); HIDE(x);
    {"".join(f'__asm__ volatile("" : "+{other_class(isa)}"({name}));' for name in others(isa))}
    __asm__ volatile("" : "+r"(p), "+r"(one));
    uint64_t start = __rdtsc();
    for (int64_t r = 0; r < loops; r++) {{ {body} }}
    uint64_t end = __rdtsc();
    USE(c); USE(x);
    {"".join(f'__asm__ volatile("" : : "{other_class(isa)}"({name}));' for name in others(isa))}
    {"".join(f"USE(chains[{k}]);" for k in range(CHAINS))}
    __asm__ volatile("" : : "r"(n), "r"(p), "r"(at) : "memory");
    return (int64_t)(end - start);
}}
"""


def jobs(isa: Isa, forms: Sequence[Instr]) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Keyed by form, figure and variant."""
    yield ("", "cycle", ""), CALIBRATE
    yield ("", "vmovq", ""), ROUND_TRIP * OPS
    for instr in forms:
        for imm in immediates(instr):
            yield (instr.name, "per_cycle", str(imm)), throughput(isa, (instr, imm))
            for k in range(0 if instr.store else len(instr.operands)):
                both = is_trip(instr, k) and any(in_vectors(x) for x in (instr.out, instr.operands[k].type))
                yield (instr.name, "trip" if both else "latency", f"{imm} {k}"), latency(isa, instr, imm, k)
        for name, other in co_issued(isa).items():
            mix = throughput(isa, (instr, immediates(instr)[0]), (other, immediates(other)[0]))
            yield (instr.name, "mix", name), mix


def measure(isa: Isa, forms: Sequence[Instr], rounds: int) -> dict[tuple[str, str, str], float]:
    """Cycles an instruction, for every job: medians of the rounds."""
    named = dict(enumerate(jobs(isa, forms)))
    source = HEAD + "".join(function(isa, f"f{k}", body) for k, (_, body) in named.items())
    needs = isa.requirements(instr.name for instr in forms)
    runner = runner_for(isa, toolchain.compile_for(isa, {"costs.c": source}, needs=needs), needs=needs)
    ticks: dict[int, list[float]] = {k: [] for k in named}
    for _ in range(rounds):
        for k in named:
            cycle = runner.call("f0", LOOPS)
            ticks[k].append(runner.call(f"f{k}", LOOPS) / cycle)
    return {key: statistics.median(ticks[k]) for k, (key, _) in named.items()}


def figures(instr: Instr, cost: dict[tuple[str, str, str], float]) -> Figures:
    mine = {(what, variant): v for (form, what, variant), v in cost.items() if form == instr.name}
    chains = [v / (2 if what == "trip" else 1) for (what, _), v in mine.items() if what in ("latency", "trip")]
    chain = max(chains, default=0.0)
    if instr.reads_memory:
        chain -= cost["", "vmovq", ""] / 2 + 1
    slowest = max(v for (what, _), v in mine.items() if what == "per_cycle")
    return Figures(chain, 1 / slowest, tuple(1 / mine["mix", c] for c in CLASSES))


def table(rows: dict[str, Figures]) -> None:
    print(f"{'form':24}", *(f"{title:>10}" for title in ("latency", "per cycle", *CLASSES)))
    for name, f in rows.items():
        print(f"{name:24}", *(f"{x:10.2f}" for x in (f.latency, f.per_cycle, *f.mixed)))


def toml(isa: Isa, cpu: str, rows: dict[str, Figures]) -> None:
    """One line a table: the slowest of its forms, rounded as the files have it."""
    tables: dict[str, list[Figures]] = {}
    for name, f in rows.items():
        tables.setdefault(f"{isa[name].feature or 'base'}: {name.rpartition('.')[0]}", []).append(f)
    for name, mine in tables.items():
        lat, per = round(max(f.latency for f in mine)), round(min(f.per_cycle for f in mine) * 2) / 2
        print(f"{name}: {cpu} = {{ lat = {lat}, per_cycle = {per} }}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", help="forms to measure; all if none are named")
    parser.add_argument("--isa", default="avx2")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--toml", metavar="CPU", help="print what goes into isa_specs for this processor")
    given = parser.parse_args()
    isa = load(given.isa)
    wanted = {*given.forms, *(i.name for i in co_issued(isa).values())} if given.forms else set(isa.instrs)
    forms = [i for n, i in isa.instrs.items() if n in wanted]
    cost = measure(isa, forms, given.rounds)
    rows = {i.name: figures(i, cost) for i in forms}
    toml(isa, given.toml, rows) if given.toml else table(rows)
    return 0


if __name__ == "__main__":
    report.run(main)
