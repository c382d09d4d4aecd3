"""`bitsynth verify`: a stored certificate, checked again from the program up."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bitsynth import cache
from bitsynth.cache import Entry
from bitsynth.cli import output
from bitsynth.cli.encodings import check_encoding
from bitsynth.cli.options import Json, Name, Variant, locate
from bitsynth.cli.report import Line, print_lines
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.names import KernelName
from bitsynth.spec import MatmulSpec
from bitsynth.uses import Use

_NoZ3 = Annotated[bool, typer.Option("--no-z3", help="Leave the instruction lemmas to the stored certificate.")]
_Minimality = Annotated[bool, typer.Option("--minimality", help="Solve the sketch again and compare the claims.")]


def verify(
    name: Name,
    no_z3: _NoZ3 = False,
    minimality: _Minimality = False,
    variant: Variant = None,
    as_json: Json = False,
) -> None:
    """Check a cached kernel's certificate again: composition, instructions, encoding, minimality."""
    spec = KernelName.parse(name).spec
    path = locate(name, variant)
    with output.progress("verify") as say:
        say("composition")
        lines, entry, uses = _composition(path, spec)
        lines.append(_instructions(entry, uses, no_z3, say))
        lines.append(_minimality_line(entry, spec, minimality, say))
    verdict = f"for every input, K up to {spec.k_max:,}"
    if no_z3:
        verdict += "; the instruction lemmas were not discharged again"
    if as_json:
        output.write_json(_facts(name, spec, entry, lines, no_z3=no_z3, minimality=minimality))
        return
    print_lines(*lines, Line("proved", (verdict,), free=True))


def _composition(path: Path, spec: MatmulSpec) -> tuple[list[Line], Entry, set[Use]]:
    """The checker's lemmas by class, and the instruction uses they rest on."""
    start = time.perf_counter()
    entry = cache.load_entry(path)
    lemmas, uses = cache.examine(entry.kernel)
    spent = time.perf_counter() - start
    classes: dict[str, list[str]] = defaultdict(list)
    for lemma in lemmas:
        kind, _, statement = lemma.partition(": ")
        classes["passes" if kind.startswith("pass ") else kind].append(statement)
    lines = [
        Line(kind, (output.count(len(found), "lemma"), "checked"), None if n else spent)
        for n, (kind, found) in enumerate(classes.items())
    ]
    start = time.perf_counter()
    pairs = check_encoding(spec)
    lines.append(Line("encoding", (f"{pairs:,} code pairs", "checked"), time.perf_counter() - start))
    return lines, entry, uses


def _instructions(entry: Entry, uses: set[Use], no_z3: bool, say: Callable[[str], None]) -> Line:
    found = output.count(len(uses), "instruction lemma")
    if no_z3:
        return Line("machine", (found, "as stored, not discharged"))
    say("starting the solver")
    start = time.perf_counter()
    from bitsynth import prove
    from bitsynth.sketches.solver import Budget

    say(f"discharging {found}")
    asked = prove.discharge(load(entry.kernel.isa), uses, Budget())
    return Line("machine", (found, f"discharged by Z3, {output.count(asked, 'query')}"), time.perf_counter() - start)


def _minimality_line(entry: Entry, spec: MatmulSpec, again: bool, say: Callable[[str], None]) -> Line:
    claims = output.count(len(entry.certificate.minimality), "claim")
    if not again:
        return Line("minimal", (f"{claims}, bound {entry.cost.lower_bound:g} ops", "as stored, not solved again"))
    start = time.perf_counter()
    from bitsynth import synth
    from bitsynth.sketches import compute

    compute.forget()
    found = synth.synthesize(spec, entry.choice, progress=say).entry
    if (found.certificate.minimality, found.cost.lower_bound) != (entry.certificate.minimality, entry.cost.lower_bound):
        raise Refuted(f"{entry.name}: solved again, the sketch gives other claims of minimality than the certificate")
    same = "same kernel" if found == entry else "another kernel of the same cost"
    return Line(
        "minimal",
        (f"{claims}, bound {entry.cost.lower_bound:g} ops", f"solved again, {same}"),
        time.perf_counter() - start,
    )


def _facts(
    name: str, spec: MatmulSpec, entry: Entry, lines: list[Line], *, no_z3: bool, minimality: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "proved": not no_z3,
        "composition_checked": True,
        "instructions_discharged": not no_z3,
        "minimality_solved_again": minimality,
        "k_max": spec.k_max,
        "lower_bound": entry.cost.lower_bound,
        "minimal": entry.cost.minimal,
        "checks": [
            {"name": x.label, "what": x.cells[0], "verdict": x.cells[1], "seconds": round(x.seconds or 0.0, 4)}
            for x in lines
        ],
        "lemmas": list(entry.certificate.lemmas),
        "instructions": list(entry.certificate.instructions),
        "minimality": list(entry.certificate.minimality),
    }
