"""`bitsynth verify`: a stored certificate, checked again from the program up."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from bitsynth.cli import output
from bitsynth.cli.commands.verify_depthwise import verify_depthwise
from bitsynth.cli.commands.verify_elementwise import verify_elementwise
from bitsynth.cli.commands.verify_network import is_network, verify_network
from bitsynth.cli.locate import located
from bitsynth.cli.options.kernels import NoMinimality, NoZ3, Rlimit, Variant, Verified
from bitsynth.cli.options.networks import OfModel, Strict
from bitsynth.cli.options.output import Json
from bitsynth.cli.report import ReportLine, print_lines, verdict_facts
from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import PREFIX
from bitsynth.kernel.names import KernelName
from bitsynth.progress import Progress
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.store import elementwise
from bitsynth.store.entry import Entry, ProvedEntry


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
    """Check a certificate again: of a kernel composition, instructions and claims; of a compiled network all of it.

    A network is a folder that `bitsynth compile` wrote, or the path of a certificate in it: the chains of all layers on
    their whole ranges, the plan of memory, every file, and the certificates of the kernels it is made of. With --model
    that ONNX file is compiled anew and must give the same certificate: of this network, and with nothing left out.
    Steps of which nothing is claimed are named; with --strict the first is an error.
    """
    if is_network(name):
        verify_network(name, model, strict=strict, z3=not no_z3, rlimit=rlimit, as_json=as_json)
        return
    if model or strict:
        raise SpecError(f"--{'model' if model else 'strict'} is for compiled networks; {name} is a kernel")
    if name.startswith(PREFIX):
        solve = not (no_z3 or no_minimality)
        verify_depthwise(name, z3=not no_z3, solve=solve, rlimit=rlimit, as_json=as_json)
        return
    if program := elementwise.named(name):
        solve = not (no_z3 or no_minimality)
        verify_elementwise(program, z3=not no_z3, solve=solve, rlimit=rlimit, as_json=as_json)
        return
    spec = KernelName.parse(name).spec
    solve_again = not (no_z3 or no_minimality)
    with output.progress("verify") as say:
        say("composition")
        lines, found = _composition(name, variant)
        lines.append(_on_record(found) if no_z3 else _discharged(found, rlimit, say))
        solved = (found.base or found).entry
        lines.append(_solved_again(solved, rlimit, say) if solve_again else _claims_on_record(solved))
    verdict = f"for every input, K up to {spec.k_max:,}"
    if no_z3:
        verdict += "; the instruction lemmas were not discharged again"
    if as_json:
        output.write_json(_facts(name, spec, found, lines, discharged=not no_z3, solved_again=solve_again))
        return
    print_lines(*lines, ReportLine("checked" if no_z3 else "proved", (verdict,), free=True))


def _composition(name: str, variant: str | None) -> tuple[list[ReportLine], ProvedEntry]:
    """The checker's lemmas by class."""
    start = time.perf_counter()
    found = located(name, variant)
    spent = time.perf_counter() - start
    classes: dict[str, list[str]] = defaultdict(list)
    for lemma in found.proved.lemmas:
        kind, _, statement = lemma.partition(": ")
        classes["passes" if kind.startswith("pass ") else kind].append(statement)
    lines = [
        ReportLine(kind, (output.count(len(said), "lemma"), "checked"), None if n else spent)
        for n, (kind, said) in enumerate(classes.items())
    ]
    return lines, found


def _on_record(found: ProvedEntry) -> ReportLine:
    lemmas = output.count(len(found.proved.obligations), "instruction lemma")
    return ReportLine("machine", (lemmas, "on record, not discharged"))


def _discharged(found: ProvedEntry, rlimit: int | None, say: Progress) -> ReportLine:
    lemmas = output.count(len(found.proved.obligations), "instruction lemma")
    say("starting the solver")
    start = time.perf_counter()
    from bitsynth.proof import discharge
    from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget

    say(f"discharging {lemmas}")
    asked = discharge.discharge(
        load(found.entry.kernel.isa), found.proved.obligations, Budget(rlimit or DEFAULT_RLIMIT)
    )
    return ReportLine(
        "machine", (lemmas, f"discharged by Z3, {output.count(asked, 'query')}"), time.perf_counter() - start
    )


def _claims(entry: Entry) -> str:
    return f"{output.count(len(entry.certificate.minimality), 'claim')}, bound {entry.cost.lower_bound:g} ops"


def _claims_on_record(entry: Entry) -> ReportLine:
    return ReportLine("claims", (_claims(entry), "on record, not solved again"))


def _solved_again(entry: Entry, rlimit: int | None, say: Progress) -> ReportLine:
    """The sketches solved from scratch, which must give what the file claims."""
    start = time.perf_counter()
    from bitsynth.synth import synthesize

    budget = {} if rlimit is None else {"rlimit": rlimit}
    found = synthesize.solved_again(entry, progress=say, **budget)
    same = "same kernel" if found.entry.kernel == entry.kernel else "another kernel of the same cost"
    return ReportLine("claims", (_claims(entry), f"solved again, {same}"), time.perf_counter() - start)


def _facts(
    name: str, spec: MatmulSpec, found: ProvedEntry, lines: list[ReportLine], *, discharged: bool, solved_again: bool
) -> dict[str, Any]:
    certificate, claimed = found.entry.certificate, (found.base or found).entry
    return {
        **verdict_facts(name, lines, discharged=discharged, solved_again=solved_again),
        "k_max": spec.k_max,
        "lower_bound": claimed.cost.lower_bound,
        "minimal": claimed.cost.minimal or None,
        "lemmas": list(certificate.lemmas),
        "instructions": list(certificate.instructions),
        "minimality": list(claimed.certificate.minimality),
    }
