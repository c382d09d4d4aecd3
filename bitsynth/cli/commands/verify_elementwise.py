"""`bitsynth verify` of an elementwise program: run on concrete inputs, proved by Z3, its alternatives priced anew."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitsynth.cli import output
from bitsynth.cli.report import ReportLine, print_lines, verdict_facts
from bitsynth.errors import Refuted
from bitsynth.progress import Progress
from bitsynth.proof.elementwise import checker
from bitsynth.store.elementwise import load_program

if TYPE_CHECKING:
    from bitsynth.proof.elementwise.proved import ProvedProgram


def verify_elementwise(path: Path, *, z3: bool, solve: bool, rlimit: int | None, as_json: bool) -> None:
    """Check the program in `path` again; with `z3` have it proved again, to `solve` its claim of cost."""
    with output.progress("verify") as say:
        proved = load_program(path)
        lines = [_composition(proved)]
        lines.append(_machine(proved, rlimit, say) if z3 else ReportLine("machine", (_results(proved), "on record")))
        lines.append(_claim(proved) if solve else ReportLine("claims", ("1 claim", "on record, not solved again")))
    if as_json:
        output.write_json(_facts(proved, lines, discharged=z3, solved_again=solve))
        return
    verdict = "for every input" + ("" if z3 else "; the results were not proved again")
    print_lines(*lines, ReportLine("proved" if z3 else "checked", (verdict,), free=True))


def _results(proved: ProvedProgram) -> str:
    return output.count(proved.program.unit, "result")


def _composition(proved: ProvedProgram) -> ReportLine:
    start = time.perf_counter()
    elements = checker.check(proved.program, checker.VERIFIED)
    return ReportLine("concrete", (f"{elements:,} elements", "checked"), time.perf_counter() - start)


def _machine(proved: ProvedProgram, rlimit: int | None, say: Progress) -> ReportLine:
    start = time.perf_counter()
    from bitsynth.proof.elementwise.discharge import discharge
    from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget

    say(f"proving {_results(proved)}")
    asked = discharge(proved.program, Budget(rlimit or DEFAULT_RLIMIT))
    spent = time.perf_counter() - start
    return ReportLine("machine", (_results(proved), f"proved by Z3, {output.count(asked, 'query')}"), spent)


def _claim(proved: ProvedProgram) -> ReportLine:
    """The sketch's alternatives again: none may be cheaper."""
    start = time.perf_counter()
    from bitsynth.schedule.element_cost import price
    from bitsynth.synth.elementwise import alternatives

    program = proved.program
    found = list(alternatives(program.isa, program.spec))
    if any(price(other) < price(program) for other in found):
        raise Refuted(f"{program.name} is not the cheapest of its sketch; delete its file, and that one is found")
    told = output.count(len(found), "alternative")
    return ReportLine("claims", (told, "none is cheaper"), time.perf_counter() - start)


def _facts(proved: ProvedProgram, lines: list[ReportLine], *, discharged: bool, solved_again: bool) -> dict[str, Any]:
    return {
        **verdict_facts(proved.program.name, lines, discharged=discharged, solved_again=solved_again),
        "lemmas": [proved.statements[0]],
        "instructions": list(proved.statements[1:]),
    }
