"""The table sketch: a row's table of partial sums, built from its codes.

Codes are staged in STAGE_BYTES bytes and repeated over a register. A round adds to the
register a lookup into itself, so that it at most doubles how many codes an entry sums; fewer
rounds than that takes cannot do. The solver picks each round's indices: first with codes
staged at any place, then with a lookup before that arranges them. That lookup takes codes as
they come, each table of the register its own, if it has an index that gives zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, Payload, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import STAGE_BYTES, Build
from bitsynth.sketches.lanes.terms import ProductTerm
from bitsynth.solver.budget import Budget, Model
from bitsynth.solver.smt import System, both, constant, either, equal


@dataclass(frozen=True)
class LookupRounds:
    """Indices of each lookup, one an entry. `claims` are UNSAT below.

    If codes are `arranged` the first lookup stands alone, and what it takes is numbered as
    the codes are, -1 for zero.
    """

    bits: int
    stage: tuple[int, ...]
    arranged: bool
    lookups: tuple[tuple[int, ...], ...]
    claims: tuple[str, ...]


def build(isa: Isa, term: ProductTerm, load: str, store: str, rounds: LookupRounds) -> Build:
    """Return the program that makes the tables `term` looks up in, with the `rounds` that were solved."""
    constants: ConstantPool = {}
    trace = Trace(isa, LinearDomain(1), constants=constants)
    blank = Register(isa.word, (0,) * isa.word.lanes)
    table = trace.bind(Value.of(Role.STAGED, 0), blank)
    zero = _index_of_zero(isa, term) if rounds.arranged else None
    tables = min(isa.word.lanes >> rounds.bits, STAGE_BYTES // rounds.bits) if zero is not None else 1
    stage = _in_order(rounds.bits if zero is None else STAGE_BYTES) if rounds.arranged else rounds.stage
    for k, sources in enumerate(rounds.lookups):
        lanes = [(b >> rounds.bits, sources[b % len(sources)]) for b in range(isa.word.lanes)]
        if k == 0 and rounds.arranged:
            none = rounds.bits if zero is None else zero
            lanes = [(t, none if n < 0 else n + t % tables * rounds.bits) for t, n in lanes]
        index = trace.constant(isa.word, [n for _, n in lanes])
        more = trace.bind(_blind(trace, term.op, term.arguments(table, index, None)), blank)
        alone = k == 0 and rounds.arranged
        table = more if alone else trace.bind(_blind(trace, term.add or "", (table, more)), blank)
    return Build(tables, load, stage, tuple(constants.values()), tuple(trace.steps), table, store)


def _in_order(codes: int) -> tuple[int, ...]:
    """Return the stage that takes codes as they come."""
    return tuple(p if p < codes else -1 for p in range(STAGE_BYTES))


def _index_of_zero(isa: Isa, term: ProductTerm) -> int | None:
    """Return the greatest index if a lookup gives 0 for it with any table; else None."""
    greatest = (1 << isa.word.bits) - 1
    args: dict[int, list[Payload]] = {
        term.row: [variable(n, 0, greatest) for n in range(isa.word.lanes)],
        term.column: [greatest] * isa.word.lanes,
    }
    try:
        lanes = isa[term.op](LinearDomain(1), [args[k] for k in range(len(args))])
    except Inexact:
        return None
    return greatest if all(lane == 0 for lane in lanes) else None


def _blind(trace: Trace, op: str, args: tuple[Value, ...]) -> Value:
    """Record a step without running it: only the checker needs its result."""
    step = Step(trace.fresh(), op, args)
    trace.steps.append(step)
    return step.dst


_solved_rounds: dict[int, LookupRounds] = {}


def solve(bits: int, budget: Budget) -> LookupRounds:
    """Return the rounds of a table of 2**bits entries, solved once a process."""
    if bits not in _solved_rounds:
        _solved_rounds[bits] = _fewest(bits, budget)
    return _solved_rounds[bits]


def forget() -> None:
    """Drop solved rounds, so that the next synthesis is cold."""
    _solved_rounds.clear()


def _fewest(bits: int, budget: Budget) -> LookupRounds:
    if rounds := _solve(bits, False, budget):
        return rounds
    claim = f"table of {1 << bits} sums in {rounds_needed(bits)} rounds, staged codes not arranged first: none"
    if rounds := _solve(bits, True, budget):
        return replace(rounds, claims=(claim,))
    raise NoKernel(f"no table of {1 << bits} sums in {rounds_needed(bits)} rounds")


def rounds_needed(bits: int) -> int:
    """Return the least number of rounds: one at most doubles the codes an entry sums, from one."""
    return (bits - 1).bit_length()


def _solve(bits: int, arranged: bool, budget: Budget) -> LookupRounds | None:
    """Return rounds over sets of codes as bit-vectors: each entry's set after a round is two disjoint ones of before.

    If codes can be arranged first, entries of few codes may as well be done early.
    """
    entries, count = 1 << bits, rounds_needed(bits)
    system = System()
    stage = [system.vector(f"s{p}", bits) for p in range(STAGE_BYTES)]
    singles = [0, *(1 << n for n in range(bits))]
    system.add(either(*(equal(s, constant(c, bits)) for c in singles)) for s in stage)
    before = [stage[e % STAGE_BYTES] for e in range(entries)]
    sources = before[:STAGE_BYTES]
    if arranged:
        before = sources = [
            constant(e, bits) if e.bit_count() <= 1 else system.vector(f"p_{e}", bits) for e in range(entries)
        ]
        system.add(either(*(equal(x, s) for s in stage)) for x in before)
    system.add(_subset(x, e, bits) for e, x in enumerate(before))
    for k in range(count):
        last = k == count - 1
        done = [last or (arranged and e.bit_count() <= 2 << k) for e in range(entries)]
        after = [constant(e, bits) if done[e] else system.vector(f"y{k}_{e}", bits) for e in range(entries)]
        system.add(either(*(_union(y, x, s, bits) for s in sources)) for y, x in zip(after, before, strict=True))
        before = sources = after
        if not last:
            system.add(_subset(y, e, bits) for e, y in enumerate(after))
    model = budget.ask(f"table of {entries} sums in {count} rounds", system.text)
    return _read(model, bits, arranged) if model else None


def _union(after: str, left: str, right: str, bits: int) -> str:
    disjoint = equal(f"(bvand {left} {right})", constant(0, bits))
    return both(equal(after, f"(bvor {left} {right})"), disjoint)


def _subset(x: str, entry: int, bits: int) -> str:
    """Return the term that set `x` lies within the lane's entry: implied by the others, but it saves search."""
    return equal(f"(bvand {x} {constant(~entry, bits)})", constant(0, bits))


def _read(model: Model, bits: int, arranged: bool) -> LookupRounds:
    entries, count = 1 << bits, rounds_needed(bits)
    staged = [model.read_unsigned(f"s{p}") for p in range(STAGE_BYTES)]
    before = [staged[e % STAGE_BYTES] for e in range(entries)]
    lookups = []
    if arranged:
        after = [e if e.bit_count() <= 1 else model.read_unsigned(f"p_{e}") for e in range(entries)]
        lookups.append(tuple(x.bit_length() - 1 for x in after))
        before = after
    for k in range(count):
        done = [k == count - 1 or (arranged and e.bit_count() <= 2 << k) for e in range(entries)]
        after = [e if done[e] else model.read_unsigned(f"y{k}_{e}") for e in range(entries)]
        lookups.append(tuple(before.index(y ^ x) for x, y in zip(before, after, strict=True)))
        before = after
    return LookupRounds(bits, tuple(s.bit_length() - 1 for s in staged), arranged, tuple(lookups), ())
