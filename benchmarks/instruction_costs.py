"""Latency and throughput of every AVX2 form, in core cycles of this processor.

    python benchmarks/instruction_costs.py [--toml] [--rounds N] [form ...]

A core cycle is one step of a chain of dependent additions, timed next to every
measurement; figures are medians over interleaved rounds. Latency is the longest from
any register operand; a load's starts and ends in registers, half of a round trip of
`vmovq` taken off. The last columns are instructions a cycle when the form alternates
with one that shuffles, shifts or multiplies: what the two of them share shows there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitsynth import build
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa, load

ISA = "avx2"
OPS = 32
LOOPS = 400
CLASSES = {"shuffle": "shuffle_epi8.u8x32", "shift": "srl.u16x16", "multiply": "mullo.u16x16"}
HEAD = """\
#include <immintrin.h>
#include <stdint.h>
#define HIDE(v) __asm__ volatile("" : "+x"(v))
#define USE(v) __asm__ volatile("" : : "x"(v))
static uint8_t room[4096] __attribute__((aligned(64)));
"""
CALIBRATE = '__asm__ volatile(".rept 32\\n\\tadd %1, %0\\n\\t.endr" : "+r"(n) : "r"(one));'
ROUND_TRIP = "HIDE(x); { int64_t g = _mm_cvtsi128_si64(x); x = _mm_cvtsi64_si128(g); }"


@dataclass(frozen=True)
class Figures:
    """Cycles of latency, instructions a cycle alone, and next to each of `CLASSES`."""

    latency: float
    per_cycle: float
    mixed: tuple[float, ...]


def immediates(instr: Instr) -> Sequence[int]:
    return instr.try_imm or [instr.imms[len(instr.imms) // 2]]


def expression(instr: Instr, imm: int, chained: str = "", k: int = -1) -> str:
    """The C text on opaque operands, operand `k` being `chained`."""
    names = ["p" if o.memory else f"o{j}" for j, o in enumerate(instr.operands)]
    if k >= 0:
        names[k] = chained
    return instr.render(names, imm, "(room + 64 * (at++ % 32))")


def latency(instr: Instr, imm: int, k: int) -> str:
    if instr.operands[k].memory:
        step = (
            f"{{ __m256i v = {expression(instr, imm)}; HIDE(v); p += _mm_cvtsi128_si64(_mm256_castsi256_si128(v)); }}"
        )
        return step * OPS
    narrow = instr.out.total_bits < 256
    result = expression(instr, imm, "c", k)
    step = f"c = {'_mm256_castsi128_si256' if narrow else ''}({result}); HIDE(c);"
    return step * OPS


def throughput(*instrs: tuple[Instr, int]) -> str:
    return "".join(_once(*instrs[n % len(instrs)]) for n in range(OPS))


def _once(instr: Instr, imm: int) -> str:
    hide = 'HIDE(o0); HIDE(o1); HIDE(o2); __asm__ volatile("" : "+r"(p));'
    if instr.store:
        return f'{hide} {expression(instr, imm)}; __asm__ volatile("" : : : "memory");'
    return f"{hide} {{ __m{instr.out.total_bits}i y = {expression(instr, imm)}; USE(y); }}"


def function(name: str, body: str) -> str:
    return f"""
int64_t {name}(int64_t loops);
int64_t {name}(int64_t loops) {{
    const uint8_t *p = room + 2048;
    __m256i o0 = _mm256_setzero_si256(), o1 = o0, o2 = o0, c = o0;
    __m128i x = _mm_setzero_si128();
    int64_t n = 0, one = 1;
    unsigned at = 0;
    HIDE(o0); HIDE(o1); HIDE(o2); HIDE(c); HIDE(x);
    __asm__ volatile("" : "+r"(p), "+r"(one));
    uint64_t start = __rdtsc();
    for (int64_t r = 0; r < loops; r++) {{ {body} }}
    uint64_t end = __rdtsc();
    USE(c); USE(x);
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
            yield (instr.name, "per_cycle", str(imm)), throughput((instr, imm))
            for k in range(0 if instr.store else len(instr.operands)):
                yield (instr.name, "latency", f"{imm} {k}"), latency(instr, imm, k)
        for name, other in CLASSES.items():
            rival = isa[other]
            mix = throughput((instr, immediates(instr)[0]), (rival, immediates(rival)[0]))
            yield (instr.name, "mix", name), mix


def measure(isa: Isa, forms: Sequence[Instr], rounds: int) -> dict[tuple[str, str, str], float]:
    """Cycles an instruction, for every job: medians of the rounds."""
    named = dict(enumerate(jobs(isa, forms)))
    source = HEAD + "".join(function(f"f{k}", body) for k, (_, body) in named.items())
    runner = build.runner(isa, build.compile_for(isa, {"costs.c": source}))
    ticks: dict[int, list[float]] = {k: [] for k in named}
    for _ in range(rounds):
        for k in named:
            cycle = runner.call("f0", LOOPS)
            ticks[k].append(runner.call(f"f{k}", LOOPS) / cycle)
    return {key: statistics.median(ticks[k]) for k, (key, _) in named.items()}


def figures(instr: Instr, cost: dict[tuple[str, str, str], float]) -> Figures:
    mine = {(what, variant): v for (form, what, variant), v in cost.items() if form == instr.name}
    chain = max((v for (what, _), v in mine.items() if what == "latency"), default=0.0)
    if instr.reads_memory:
        chain -= cost["", "vmovq", ""] / 2 + 1
    slowest = max(v for (what, _), v in mine.items() if what == "per_cycle")
    return Figures(chain, 1 / slowest, tuple(1 / mine["mix", c] for c in CLASSES))


def table(rows: dict[str, Figures]) -> None:
    print(f"{'form':24}", *(f"{title:>10}" for title in ("latency", "per cycle", *CLASSES)))
    for name, f in rows.items():
        print(f"{name:24}", *(f"{x:10.2f}" for x in (f.latency, f.per_cycle, *f.mixed)))


def toml(rows: dict[str, Figures]) -> None:
    """One line a table: the slowest of its forms, rounded as the files have it."""
    for name in dict.fromkeys(n.rpartition(".")[0] for n in rows):
        mine = [f for n, f in rows.items() if n.rpartition(".")[0] == name]
        lat, per = round(max(f.latency for f in mine)), round(min(f.per_cycle for f in mine) * 2) / 2
        print(f"{name}: zen5 = {{ lat = {lat}, per_cycle = {per} }}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", help="forms to measure; all if none are named")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--toml", action="store_true", help="print what goes into isa_specs")
    given = parser.parse_args()
    isa = load(ISA)
    wanted = set(given.forms) | set(CLASSES.values()) if given.forms else set(isa.instrs)
    forms = [i for n, i in isa.instrs.items() if n in wanted]
    cost = measure(isa, forms, given.rounds)
    rows = {i.name: figures(i, cost) for i in forms}
    (toml if given.toml else table)(rows)


if __name__ == "__main__":
    main()
