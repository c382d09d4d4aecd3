"""Finds the shortest straight-line programs on one lane, by counterexample-guided synthesis (CEGIS).

One-hot selectors choose each instruction and its operands; a fresh solver checks each
set of examples, extremes first. UNSAT on some examples is UNSAT for all inputs, so the
first length that has a program is the least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.types import VecType
from bitsynth.solver.budget import Budget, Model
from bitsynth.solver.z3 import z3

Goal = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class ProgramLine:
    """`op` with immediate `imm` on values: 0.. are inputs, then results of earlier instructions."""

    op: str
    imm: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Component:
    """An instruction of the menu, narrowed to one lane."""

    instr: Instr
    imm: int

    @property
    def arity(self) -> int:
        """The number of operands."""
        return len(self.instr.operands)

    def __call__(self, args: Sequence[Any]) -> Any:
        """Return the one output lane, a Z3 term, for the first `arity` of `args`."""
        return self.instr(SymbolicDomain(), [[a] for a in args[: self.arity]], self.imm)[0]


def one_lane(instr: Instr) -> Instr:
    """Return the lanewise instruction on vectors of a single lane."""

    def narrow(kind: VecType) -> VecType:
        return VecType(kind.sign, kind.bits, 1)

    operands = tuple(replace(o, type=narrow(o.type)) for o in instr.operands)
    sizes = {k: 1 if k.endswith("_lanes") else v for k, v in instr.names.items()}
    return replace(instr, operands=operands, out=narrow(instr.out), names=sizes)


def components(instrs: Sequence[Instr], imms: Sequence[int]) -> list[Component]:
    """Return the instructions as components; one that takes an immediate, once for each of `imms` it allows."""
    return [Component(one_lane(i), n) for i in instrs for n in ((m for m in imms if m in i.imms) if i.imm else (0,))]


def shortest(
    what: str, inputs: int, width: int, menu: Sequence[Component], goal: Goal, most: int, budget: Budget
) -> tuple[tuple[ProgramLine, ...], tuple[str, ...]]:
    """Return the shortest program for `goal` and the claims that shorter ones do not exist.

    Programs have up to `most` instructions from `menu`, on `inputs` values of `width` bits. NoKernel if none does it,
    Undecided if the budget is spent.
    """
    names = [z3.BitVec(f"in{k}", width) for k in range(inputs)]
    full = (1 << width) - 1
    examples = [[full] * inputs, [0] * inputs, [full if k else 0 for k in range(inputs)], [0x5A, 0x36][:inputs]]
    claims: list[str] = []
    for length in range(1, most + 1):
        program = _of_length(f"{what}: {length} instructions", length, names, menu, goal, examples, budget)
        if program is not None:
            return program, tuple(claims)
        claims.append(f"{what}: {length} instructions: unsat")
    raise NoKernel(f"{what}: no program of up to {most} instructions")


def _of_length(
    what: str,
    length: int,
    names: Sequence[Any],
    menu: Sequence[Component],
    goal: Goal,
    examples: list[list[int]],
    budget: Budget,
) -> tuple[ProgramLine, ...] | None:
    sketch = _Sketch(length, len(names), menu)
    while True:
        system = list(sketch.wellformed)
        # A program that is right on all examples.
        for k, example in enumerate(examples):
            values = [z3.BitVecVal(v, names[0].size()) for v in example]
            system += sketch.runs(k, values, z3.simplify(goal(values)))
        model = budget.check(what, system)
        if model is None:
            return None
        program = sketch.decode(model)
        # An input on which it is wrong becomes an example.
        wrong = budget.check(f"{what}, check", [run(program, menu, names) != goal(names)])
        if wrong is None:
            return program
        examples.append([wrong.read_unsigned(n) for n in names])


def run(program: Sequence[ProgramLine], menu: Sequence[Component], inputs: Sequence[Any]) -> Any:
    """Return the last value of `program` on `inputs`."""
    components = {(c.instr.name, c.imm): c for c in menu}
    values = list(inputs)
    for line in program:
        values.append(components[line.op, line.imm]([values[a] for a in line.args]))
    return values[-1]


class _Sketch:
    """The selectors of a program of `length` instructions."""

    def __init__(self, length: int, inputs: int, menu: Sequence[Component]) -> None:
        self.length, self.inputs, self.menu = length, inputs, menu
        self.op = [[z3.Bool(f"op{i}_{k}") for k in range(len(menu))] for i in range(length)]
        self.args = [[[z3.Bool(f"arg{i}_{s}_{n}") for n in range(inputs + i)] for s in range(2)] for i in range(length)]
        self.wellformed = [c for i in range(length) for c in self._line(i)]

    def _line(self, i: int) -> list[Any]:
        """Return the constraints of instruction `i`: one form, one value for each operand, nothing unused."""
        out = [z3.PbEq([(x, 1) for x in pick], 1) for pick in (self.op[i], *self.args[i])]
        for chosen, component in zip(self.op[i], self.menu, strict=True):
            if component.arity == 1:
                out.append(z3.Implies(chosen, self.args[i][1][0]))
            elif _commutes(component):
                out += [
                    z3.Not(z3.And(chosen, x, y))
                    for m, x in enumerate(self.args[i][0])
                    for n, y in enumerate(self.args[i][1])
                    if n < m
                ]
        if i < self.length - 1:
            here = self.inputs + i
            used = [self.args[j][s][here] for j in range(i + 1, self.length) for s in range(2)]
            out.append(z3.Or(used))
        return out

    def runs(self, tag: int, inputs: Sequence[Any], want: Any) -> list[Any]:
        """Return constraints that the program maps `inputs` to `want`."""
        out: list[Any] = []
        values = list(inputs)
        width = want.size()
        for i in range(self.length):
            operands = [z3.BitVec(f"v{tag}_{i}_{s}", width) for s in range(2)]
            for s, operand in enumerate(operands):
                out += [z3.Implies(c, operand == v) for c, v in zip(self.args[i][s], values, strict=True)]
            result = z3.BitVec(f"r{tag}_{i}", width)
            out += [z3.Implies(c, result == m(operands)) for c, m in zip(self.op[i], self.menu, strict=True)]
            values.append(result)
        return [*out, values[-1] == want]

    def decode(self, model: Model) -> tuple[ProgramLine, ...]:
        """Return the program that the model chose."""

        def choose(pick: Sequence[Any]) -> int:
            return next(k for k, x in enumerate(pick) if model.true(x))

        lines = []
        for i in range(self.length):
            component = self.menu[choose(self.op[i])]
            args = tuple(choose(pick) for pick in self.args[i][: component.arity])
            lines.append(ProgramLine(component.instr.name, component.imm, args))
        return tuple(lines)


@cache
def _commutes(component: Component) -> bool:
    """Return whether swapping the operands changes nothing, on every pair of bytes."""
    x, y = (g.ravel().astype(np.uint64) for g in np.meshgrid(np.arange(256), np.arange(256)))
    one, other = (component.instr(ConcreteDomain(), [[p], [q]], component.imm)[0] for p, q in ((x, y), (y, x)))
    return bool(np.array_equal(one, other))
