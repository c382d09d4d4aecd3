"""`bitsynth verify` of a depthwise kernel: composition, instruction lemmas, and the sketch solved anew."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bitsynth.cli import output
from bitsynth.cli.report import ReportLine, print_lines, verdict_facts
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.progress import Progress
from bitsynth.store.depthwise import entry_of, load_proved, named

if TYPE_CHECKING:
    from bitsynth.proof.depthwise import ProvedDepthwise


def verify_depthwise(name: str, *, z3: bool, solve: bool, rlimit: int | None, as_json: bool) -> None:
    """Check the stored kernel `name` again; with `z3` its instruction lemmas too, to `solve` its claim of cost."""
    with output.progress("verify") as say:
        start = time.perf_counter()
        proved = load_proved(named(name))
        spent = time.perf_counter() - start
        lines = [_line(lemma, None if n else spent) for n, lemma in enumerate(proved.lemmas)]
        lines.append(_machine(proved, rlimit, say) if z3 else ReportLine("machine", (_count(proved), "on record")))
        lines.append(_claim(proved) if solve else ReportLine("claims", ("1 claim", "on record, not solved again")))
    if as_json:
        output.write_json(_facts(proved, lines, discharged=z3, solved_again=solve))
        return
    verdict = "for every input" + ("" if z3 else "; the instruction lemmas were not discharged again")
    print_lines(*lines, ReportLine("proved" if z3 else "checked", (verdict,), free=True))


def _line(lemma: str, seconds: float | None) -> ReportLine:
    return ReportLine(lemma.partition(":")[0], ("1 lemma", "checked"), seconds)


def _count(proved: ProvedDepthwise) -> str:
    return output.count(len(proved.obligations), "instruction lemma")


def _machine(proved: ProvedDepthwise, rlimit: int | None, say: Progress) -> ReportLine:
    start = time.perf_counter()
    from bitsynth.proof import discharge
    from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget

    say(f"discharging {_count(proved)}")
    asked = discharge.discharge(load(proved.program.isa), proved.obligations, Budget(rlimit or DEFAULT_RLIMIT))
    spent = time.perf_counter() - start
    return ReportLine("machine", (_count(proved), f"discharged by Z3, {output.count(asked, 'query')}"), spent)


def _claim(proved: ProvedDepthwise) -> ReportLine:
    """The sketch enumerated again: nothing in it may be cheaper."""
    start = time.perf_counter()
    from bitsynth.schedule.depthwise import cheapest, method_of, ops

    program = proved.program
    isa = load(program.isa)
    found = cheapest(isa, program.act_bits, program.w_bits, method_of(program))
    if ops(isa, found) < ops(isa, program):
        raise Refuted(f"{program.name} is not the cheapest: one takes {ops(isa, found):g} instructions per 128 MAC")
    return ReportLine("claims", ("1 claim", "solved again"), time.perf_counter() - start)


def _facts(proved: ProvedDepthwise, lines: list[ReportLine], *, discharged: bool, solved_again: bool) -> dict[str, Any]:
    return {
        **verdict_facts(proved.program.name, lines, discharged=discharged, solved_again=solved_again),
        "lemmas": list(proved.lemmas),
        "instructions": list(proved.statements),
        "minimality": [entry_of(proved).minimality],
    }
