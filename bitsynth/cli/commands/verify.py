"""`bitsynth verify`: check the certificate of a network or of a kernel again."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitsynth.cli import output
from bitsynth.cli.commands.verify_network import is_network, verify_network
from bitsynth.cli.options.kernels import NoMinimality, NoZ3, Rlimit, Variant, Verified
from bitsynth.cli.options.networks import OfModel, Strict
from bitsynth.cli.options.output import Json
from bitsynth.cli.report import ReportLine, print_lines, verdict_facts
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import PREFIX
from bitsynth.kernel.names import KernelName
from bitsynth.progress import Progress
from bitsynth.proof.elementwise import checker
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.store.matmul import MATMUL

if TYPE_CHECKING:
    from bitsynth.solver.budget import Budget

_ON_RECORD = "on record, not solved again"


def verify(
    name: Verified,
    no_z3: NoZ3 = False,
    no_minimality: NoMinimality = False,
    rlimit: Rlimit = None,
    variant: Variant = None,
    model: OfModel = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Check the certificate of a network or of a kernel again.

    A network is a folder that `bitsynth compile` wrote, or the path of a certificate in it. Checked are the claims on
    every step for the whole range of its accumulators, the plan of memory, every file, and the certificates of its
    kernels. Steps without a claim are named; with --strict the first of them is an error. With --model that ONNX file
    is compiled again and must give the same certificate, so that nothing is left out.

    Of a kernel the composition, the instruction lemmas and the claims of minimality are checked.
    """
    if is_network(name):
        verify_network(name, model, strict=strict, z3=not no_z3, rlimit=rlimit, as_json=as_json)
        return
    if model or strict:
        raise SpecError(f"--{'model' if model else 'strict'} is for compiled networks; {name} is a kernel")
    z3, solve = not no_z3, not (no_z3 or no_minimality)
    with output.progress("verify") as say:
        say("composition")
        start = time.perf_counter()
        found = _stored(name, variant)
        checked = found.check()
        spent = time.perf_counter() - start
        lines = [ReportLine(label, tuple(cells), None if n else spent) for n, (label, *cells) in enumerate(checked)]
        lines.append(
            _discharge(found, rlimit, say) if z3 else ReportLine("machine", (found.lemmas, found.undischarged))
        )
        lines.append(_solve(found, rlimit, say) if solve else ReportLine("claims", (found.claims, _ON_RECORD)))
    if as_json:
        output.write_json({**verdict_facts(found.name, lines, discharged=z3, solved_again=solve), **found.facts()})
        return
    verdict = f"for every input{found.scope}" + ("" if z3 else f"; {found.left_out}")
    print_lines(*lines, ReportLine("proved" if z3 else "checked", (verdict,), free=True))


def _discharge(found: _Stored, rlimit: int | None, say: Progress) -> ReportLine:
    """Have Z3 prove the statements that the certificate rests on."""
    say("starting the solver")
    start = time.perf_counter()
    from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget

    say(f"proving {found.lemmas}")
    queries = found.discharge(Budget(rlimit or DEFAULT_RLIMIT))
    verdict = f"{found.discharged} by Z3, {output.count(queries, 'query')}"
    return ReportLine("machine", (found.lemmas, verdict), time.perf_counter() - start)


def _solve(found: _Stored, rlimit: int | None, say: Progress) -> ReportLine:
    """Solve the claims of cost again."""
    start = time.perf_counter()
    cells = found.solve(rlimit, say)
    return ReportLine("claims", cells, time.perf_counter() - start)


def _stored(name: str, variant: str | None) -> _Stored:
    """Load the stored artifact of this name; SpecError if there is none."""
    if name.startswith(PREFIX):
        return _Depthwise(name)
    if path := ELEMENTWISE.named(name):
        return _Program(path)
    return _Kernel(name, variant)


class _Stored(ABC):
    """A stored artifact whose certificate is checked again.

    `lemmas` counts the statements that Z3 proves, `claims` the claims of cost. `scope` follows "for every input" in the
    verdict, and `left_out` replaces the statements of Z3 if they were not proved again.
    """

    name: str
    lemmas: str
    claims = "1 claim"
    scope = ""
    discharged = "discharged"
    undischarged = "on record"
    left_out = "the instruction lemmas were not discharged again"

    @abstractmethod
    def check(self) -> list[tuple[str, str, str]]:
        """Check the program without Z3; return label, subject and verdict of each line of the report."""

    @abstractmethod
    def discharge(self, budget: Budget) -> int:
        """Prove the statements that the certificate rests on; return how many queries that took."""

    @abstractmethod
    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        """Search again for something cheaper; return what was compared and the verdict. Refuted if it is found."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the statements and claims, for JSON."""


class _Kernel(_Stored):
    """A matmul kernel, whose composition is checked as it is loaded."""

    undischarged = "on record, not discharged"

    def __init__(self, name: str, variant: str | None) -> None:
        self.name, self._spec, self._found = name, KernelName.parse(name).spec, MATMUL.load_named(name, variant)
        self._claimed = (self._found.base or self._found).entry
        bound = f"bound {self._claimed.cost.lower_bound:g} ops"
        self.lemmas = output.count(len(self._found.proved.obligations), "instruction lemma")
        self.claims = f"{output.count(len(self._claimed.certificate.minimality), 'claim')}, {bound}"
        self.scope = f", K up to {self._spec.k_max:,}"

    def check(self) -> list[tuple[str, str, str]]:
        kinds = (lemma.partition(": ")[0] for lemma in self._found.proved.lemmas)
        classes = Counter("passes" if kind.startswith("pass ") else kind for kind in kinds)
        return [(kind, output.count(n, "lemma"), "checked") for kind, n in classes.items()]

    def discharge(self, budget: Budget) -> int:
        from bitsynth.proof import discharge

        return discharge.discharge(load(self._found.entry.kernel.isa), self._found.proved.obligations, budget)

    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        from bitsynth.synth import synthesize

        budget = {} if rlimit is None else {"rlimit": rlimit}
        again = synthesize.solved_again(self._claimed, progress=say, **budget)
        same = "same kernel" if again.entry.kernel == self._claimed.kernel else "another kernel of the same cost"
        return self.claims, f"solved again, {same}"

    def facts(self) -> dict[str, Any]:
        certificate, claimed = self._found.entry.certificate, self._claimed
        return {
            "k_max": self._spec.k_max,
            "lower_bound": claimed.cost.lower_bound,
            "minimal": claimed.cost.minimal or None,
            "lemmas": list(certificate.lemmas),
            "instructions": list(certificate.instructions),
            "minimality": list(claimed.certificate.minimality),
        }


class _Depthwise(_Stored):
    """A depthwise kernel, whose composition is checked as it is loaded."""

    def __init__(self, name: str) -> None:
        proved = DEPTHWISE.load_named(name)
        assert proved is not None
        self._proved = proved
        self.name = self._proved.program.name
        self.lemmas = output.count(len(self._proved.obligations), "instruction lemma")

    def check(self) -> list[tuple[str, str, str]]:
        return [(lemma.partition(":")[0], "1 lemma", "checked") for lemma in self._proved.lemmas]

    def discharge(self, budget: Budget) -> int:
        from bitsynth.proof import discharge

        return discharge.discharge(load(self._proved.program.isa), self._proved.obligations, budget)

    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        from bitsynth.schedule.depthwise import cheapest, method_of, ops

        program, isa = self._proved.program, load(self._proved.program.isa)
        found = cheapest(isa, program.act_bits, program.w_bits, method_of(program))
        if ops(isa, found) < ops(isa, program):
            raise Refuted(f"{program.name} is not the cheapest: one takes {ops(isa, found):g} instructions per 128 MAC")
        return self.claims, "solved again"

    def facts(self) -> dict[str, Any]:
        return {
            "lemmas": list(self._proved.lemmas),
            "instructions": list(self._proved.statements),
            "minimality": [DEPTHWISE.record_of(self._proved).minimality],
        }


class _Program(_Stored):
    """An elementwise program, which is run on concrete elements and proved as a whole."""

    discharged = "proved"
    left_out = "the results were not proved again"

    def __init__(self, path: Path) -> None:
        self._proved = ELEMENTWISE.load(path)
        self.name = self._proved.program.name
        self.lemmas = output.count(self._proved.program.unit, "result")

    def check(self) -> list[tuple[str, str, str]]:
        elements = checker.check(self._proved.program, checker.VERIFIED)
        return [("concrete", f"{elements:,} elements", "checked")]

    def discharge(self, budget: Budget) -> int:
        from bitsynth.proof.elementwise.discharge import discharge

        return discharge(self._proved.program, budget)

    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        from bitsynth.schedule.element_cost import price
        from bitsynth.synth.elementwise import alternatives

        program = self._proved.program
        found = list(alternatives(program.isa, program.spec))
        if any(price(other) < price(program) for other in found):
            raise Refuted(f"{program.name} is not the cheapest of its sketch; delete its file, and that one is found")
        return output.count(len(found), "alternative"), "none is cheaper"

    def facts(self) -> dict[str, Any]:
        return {"lemmas": [self._proved.statements[0]], "instructions": list(self._proved.statements[1:])}
