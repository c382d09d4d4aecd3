"""How elementwise programs are proved: each is run on chosen elements, and Z3 proves every result.

A program that computes what a proved one does and then only moves results, as the orders of its inputs require, needs
no solver: the results are unknown lanes that must end in the right places."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from bitsynth.errors import Refuted
from bitsynth.isa.domains.forms import Inexact, as_form
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import to_json
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram, check_shape
from bitsynth.proof.accumulation import any_value
from bitsynth.proof.elementwise import checker
from bitsynth.proof.obligations import Obligation
from bitsynth.proof.proved import Lemmas, ProofRules

if TYPE_CHECKING:
    from bitsynth.solver.budget import Budget


def check_moves(base: ElementwiseProgram, program: ElementwiseProgram) -> None:
    """Raise Refuted unless results of `program` equal the results of `base` for the elements that its orders say."""
    check_shape(program)
    common = len(base.steps)
    if program.steps[:common] != base.steps or program.constants[: len(base.constants)] != base.constants:
        raise Refuted(f"{program.name}: it does not begin as {base.name} does")
    if base.spec.out == "words":
        raise Refuted(f"{program.name}: bits of words are not moved one by one")
    try:
        came = _channels(load(base.isa), base, program)
    except Inexact as why:
        raise Refuted(f"{program.name}: a result is not one of {base.name}: {why}") from None
    if sorted(came) != list(range(base.unit)):
        raise Refuted(f"{program.name}: a result of {base.name} is missing")
    if program != _relabel(base, program, came):
        raise Refuted(f"{program.name}: the orders are not the orders of the inputs of {base.name}")


def _channels(isa: Isa, base: ElementwiseProgram, program: ElementwiseProgram) -> list[int]:
    """Return the channel of `base` whose result each channel of `program` has; Inexact if it is none."""
    stored = isa[base.store].out
    kind = VecType("u", base.spec.out_bits, stored.total_bits // base.spec.out_bits)
    trace = Trace(isa, LinearDomain(1))
    trace.bind_constants(program.constants)
    for n, name in enumerate(base.results):
        lanes = (any_value(n * kind.lanes + i, kind) for i in range(kind.lanes))
        trace.bind(name, Register(kind, tuple(lanes)))
    for step in program.steps[len(base.steps) :]:
        trace.run(step)
    return [c for name in program.results for c in _find_known(trace.registers[name].view_as(trace.domain, kind))]


def _find_known(register: Register) -> Iterator[int]:
    """Yield the result that each lane is."""
    for lane in register.lanes:
        form = as_form(lane)
        match list(form.atoms.items()):
            case [(int(channel), factors)] if form.const == 0 and factors == {1: 1}:
                yield channel
            case _:
                raise Inexact("a lane is not one result alone")


def _relabel(base: ElementwiseProgram, program: ElementwiseProgram, came: list[int]) -> ElementwiseProgram:
    """Return `base` with the steps of `program`, whose channel n has the result of its channel came[n]."""
    place = {channel: n for n, channel in enumerate(came)}
    loop = base.loop and msgspec.structs.replace(base.loop, order=tuple(place[c] for c in base.loop.order))
    return msgspec.structs.replace(
        base,
        orders=tuple(tuple(place[c] for c in order) for order in base.orders),
        constants=program.constants,
        steps=program.steps,
        results=program.results,
        loop=loop,
        moves=True,
    )


_NO_LEMMAS: Lemmas = ((), frozenset())
"""A program is proved as a whole, not by lemmas."""


class ElementwiseRules(ProofRules[ElementwiseProgram]):
    """The rules of elementwise programs."""

    differ = "the statements differ"

    def examine(self, artifact: ElementwiseProgram, *, thorough: bool) -> Lemmas:
        """Run the program on chosen elements, more of them if `thorough`."""
        checker.check(artifact, checker.VERIFIED if thorough else checker.LOADED)
        return _NO_LEMMAS

    def discharge(self, artifact: ElementwiseProgram, obligations: frozenset[Obligation], budget: Budget) -> int:
        """Have Z3 prove every result of a unit."""
        from bitsynth.proof.elementwise.discharge import discharge

        return discharge(artifact, budget)

    def statements(self, artifact: ElementwiseProgram, obligations: frozenset[Obligation]) -> tuple[str, ...]:
        """Return what the program computes, given what the instructions do."""
        return statements(artifact)

    def derive(self, base: ElementwiseProgram, proved: Lemmas, artifact: ElementwiseProgram) -> Lemmas:
        """Show that the program does what its base does and then moves results; Refuted or SpecError if it does not.

        Shown here, for every value that results may have: the orders of its inputs say where each result goes.
        """
        check_moves(base, artifact)
        checker.check(artifact)
        return _NO_LEMMAS


def statements(program: ElementwiseProgram) -> tuple[str, ...]:
    """Return the statements of a proof: what the program computes, and the meanings of its instructions.

    The first names the program by the SHA-256 of its JSON text, so that a record of another program does not serve it:
    unlike a matmul kernel, whose lemmas are shown again wherever it is loaded, it rests on Z3 as a whole.
    """
    spec, isa = program.spec, load(program.isa)
    digest = hashlib.sha256(to_json(program)).hexdigest()
    names = ", ".join(f"{x.name}: {x.type}{f'[{x.count}]' if x.count else ''}" for x in spec.inputs)
    given = "".join(f" with {text}" for text in spec.assumes)
    computes = f"program {digest}: for every {names}{given}: {spec.meaning}"
    return (computes, *(f"{op} is {isa[op].meaning}" for op in program.forms))
