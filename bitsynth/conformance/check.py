"""The differential test: compares every declared instruction with the machine's, and records the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.errors import SpecError
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.tested import record
from bitsynth.progress import Progress, silent

if TYPE_CHECKING:
    from bitsynth.conformance.harness import Capture, Failure
    from bitsynth.conformance.inputs import Coverage
    from bitsynth.toolchain.compiler import Compiler


@dataclass(frozen=True)
class FormResult:
    """The result of one form: its immediates and inputs, the least coverage of them, and the first failure."""

    form: str
    digest: str
    cases: int = 0
    inputs: int = 0
    coverage: Coverage | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class CheckReport:
    """The results of a run of the differential test; `by` names the compiler and the machine."""

    isa: str
    by: str
    results: tuple[FormResult, ...]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of all forms."""
        return tuple(r.failure for r in self.results if r.failure)

    @property
    def passed(self) -> bool:
        """Whether no form failed."""
        return not self.failures


def check_isa(
    isa: Isa,
    progress: Progress = silent,
    *,
    forms: Sequence[str] | None = None,
    compiler: Compiler | None = None,
) -> CheckReport:
    """Compare every form of `isa`, or those named, with the instruction itself.

    ToolError if there is no compiler or no machine for `isa`.
    """
    from bitsynth.conformance.harness import captures

    instrs = [isa[name] for name in forms] if forms is not None else list(isa.instrs.values())
    by, captured = captures(isa, instrs, compiler)
    results = {i.name: FormResult(i.name, i.digest) for i in instrs}
    total = sum(len(i.imms) for i in instrs)
    for done, ((form, _), batches) in enumerate(groupby(captured, lambda c: (c.form, c.imm)), 1):
        results[form] = _with_case(results[form], isa[form], batches)
        progress(f"{done:,} of {total:,} cases", done, total)
    return CheckReport(isa.name, by, tuple(results.values()))


def _with_case(result: FormResult, instr: Instr, batches: Iterable[Capture]) -> FormResult:
    """Return `result` with one more immediate, whose batches are looked at until one fails."""
    from bitsynth.conformance.harness import differs

    inputs, coverage, failure = result.inputs, result.coverage, result.failure
    for batch in batches:
        failure = failure or differs(instr, batch)
        inputs += batch.records
        coverage = batch.coverage if coverage is None else max(coverage, batch.coverage)
    return replace(result, cases=result.cases + 1, inputs=inputs, coverage=coverage, failure=failure)


def bless(isa: Isa, *reports: CheckReport) -> Path:
    """Record that every form of `isa` passed in each of `reports`, and return the path of the record."""
    if not reports:
        raise SpecError(f"no report says that {isa.name} is as declared")
    for report in reports:
        _require_complete(isa, report)
    digests = {name: instr.digest for name, instr in sorted(isa.instrs.items())}
    return record(isa.name, "; ".join(r.by for r in reports), digests)


def _require_complete(isa: Isa, report: CheckReport) -> None:
    if report.isa != isa.name:
        raise SpecError(f"a report on {report.isa} says nothing about {isa.name}")
    if report.failures:
        raise SpecError(f"{isa.name} is not as declared: {report.failures[0]}")
    tested = {r.form: r.digest for r in report.results}
    if missing := [n for n, i in isa.instrs.items() if tested.get(n) != i.digest]:
        raise SpecError(f"the report does not cover {isa.name} as it is now: {', '.join(missing[:5])}")
