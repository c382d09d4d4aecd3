"""Discharge the instruction lemmas with Z3.

For each use the instruction is run twice on the same unknowns: in the linear domain,
which says what the checker believed, and symbolically, which is what the machine does.
They must agree, modulo 2**width, for every value the operands may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import z3

from bitsynth.errors import Refuted
from bitsynth.isa.domains.forms import Field, Inexact, Payload, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.isa.load import Isa
from bitsynth.sketches.solver import Budget
from bitsynth.uses import Lane, Operands, Use


def discharge(isa: Isa, uses: Iterable[Use], budget: Budget) -> int:
    """Prove every use; the number of solver calls. Refuted or Undecided otherwise."""
    before = budget.asked
    for use in sorted(uses, key=lambda u: u.statement):
        _prove(isa, use, budget)
    return budget.asked - before


def _prove(isa: Isa, use: Use, budget: Budget) -> None:
    instr = isa[use.op]
    tables = 1 << len(use.operands)
    believed = _believed(isa, use, LinearDomain(tables))
    unknowns = {
        (k, n): z3.BitVec(f"x{k}_{n}", instr.operands[k].type.bits)
        for k, lanes in enumerate(use.operands)
        for n in range(len(lanes))
    }
    machine = instr(
        SymbolicDomain(), [[unknowns[k, n] for n in range(len(x))] for k, x in enumerate(use.operands)], use.imm
    )
    proved: set[Any] = set()
    for n, (got, want) in enumerate(zip(machine, believed, strict=True)):
        term = _term(want, use.operands, unknowns, instr.out.bits)
        claim = _canonical(z3.simplify(got - term), unknowns, use.operands)
        if claim in proved:
            continue
        proved.add(claim)
        model = budget.check(use.statement, [*_ranges(use.operands, unknowns), got != term])
        if model is not None:
            raise Refuted(f"{use.statement}: lane {n} is not what the linear domain says: {model.values}")


def _believed(isa: Isa, use: Use, domain: LinearDomain) -> list[Payload]:
    args = [[_payload(k, n, x, domain) for n, x in enumerate(lanes)] for k, lanes in enumerate(use.operands)]
    try:
        return isa[use.op](domain, args, use.imm)
    except Inexact as why:
        raise Refuted(f"{use.statement}: {why}") from None


def _payload(k: int, n: int, lane: Lane, domain: LinearDomain) -> Payload:
    """Operand k as a free boolean function of its own, lane n as column n."""
    if lane.kind == "const":
        return lane.low
    if lane.kind == "sum":
        return variable(("x", k, n), lane.low, lane.high)
    table = sum(1 << row for row in range(domain.rows) if row >> k & 1)
    return Field(table, n, 0, lane.high & ~lane.low, lane.low)


def _ranges(operands: Operands, unknowns: dict[tuple[int, int], Any]) -> list[Any]:
    out = []
    for k, lanes in enumerate(operands):
        for n, lane in enumerate(lanes):
            x = unknowns[k, n]
            if lane.kind == "const":
                out.append(x == lane.low)
            elif lane.kind == "bits":
                out += [x & ~lane.high == 0, x & lane.low == lane.low]
            else:
                out += _within(x, lane.low, lane.high)
    return out


def _within(x: Any, low: int, high: int) -> list[Any]:
    """The lane holds a number of [low, high], modulo its width."""
    size = 1 << x.size()
    if high - low >= size - 1:
        return []
    return [z3.ULE(x - z3.BitVecVal(low, x.size()), z3.BitVecVal(high - low, x.size()))]


def _term(want: Payload, operands: Operands, unknowns: dict[tuple[int, int], Any], width: int) -> Any:
    """The linear domain's belief as a bit-vector of the output's width."""
    if isinstance(want, int):
        return z3.BitVecVal(want, width)
    if isinstance(want, Field):
        bits = [_bit(want, n, operands, unknowns) for n in range(width)]
        return z3.Concat(*reversed(bits))
    total = z3.BitVecVal(want.const, width)
    for key, by in want.atoms.items():
        for coef, mask in by.items():
            for position in range(mask.bit_length()):
                if mask >> position & 1:
                    total = total + coef * _atom(key, position, operands, unknowns, width)
    return total


def _bit(want: Field, n: int, operands: Operands, unknowns: dict[tuple[int, int], Any]) -> Any:
    if not want.mask >> n & 1:
        return z3.BitVecVal(want.ones >> n & 1, 1)
    return _function(want.tt, want.column, want.position + n, operands, unknowns)


def _function(tt: int, column: Any, position: int, operands: Operands, unknowns: dict[tuple[int, int], Any]) -> Any:
    """The boolean function `tt` of the operands' bits at one place, as one bit."""
    free = [k for k, lanes in enumerate(operands) if lanes[column].kind == "bits"]
    out = z3.BitVecVal(0, 1)
    for row in range(1 << len(operands)):
        if tt >> row & 1 and all(k in free or not row >> k & 1 for k in range(len(operands))):
            bits = [z3.Extract(position, position, unknowns[k, column]) for k in free]
            same = [b if row >> k & 1 else ~b for k, b in zip(free, bits, strict=True)]
            term = same[0]
            for b in same[1:]:
                term = term & b
            out = out | term
    return out


def _atom(key: Any, position: int, operands: Operands, unknowns: dict[tuple[int, int], Any], width: int) -> Any:
    if key[0] == "x":
        return _resize(unknowns[key[1], key[2]], operands[key[1]][key[2]].low < 0, width)
    return z3.ZeroExt(width - 1, _function(key[0], key[1], position, operands, unknowns))


def _resize(x: Any, signed: bool, width: int) -> Any:
    have = x.size()
    if have >= width:
        return z3.Extract(width - 1, 0, x)
    return z3.SignExt(width - have, x) if signed else z3.ZeroExt(width - have, x)


def _canonical(claim: Any, unknowns: dict[tuple[int, int], Any], operands: Operands) -> tuple[str, Sequence[Lane]]:
    """The claim with its unknowns renamed in order of first use, and their shapes."""
    text = str(claim.sexpr())
    order = sorted((text.index(f"x{k}_{n}"), (k, n)) for k, n in _mentioned(text, unknowns))
    renamed = {f"x{k}_{n}": f"y{i}" for i, (_, (k, n)) in enumerate(order)}
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    return " ".join(renamed.get(w, w) for w in words), tuple(operands[k][n] for _, (k, n) in order)


def _mentioned(text: str, unknowns: dict[tuple[int, int], Any]) -> list[tuple[int, int]]:
    words = set(text.replace("(", " ").replace(")", " ").split())
    return [key for key in unknowns if f"x{key[0]}_{key[1]}" in words]
