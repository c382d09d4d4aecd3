"""`bitsynth verify` of a compiled network: its certificate, and the certificates of the kernels in it."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.report import ReportLine, print_lines
from bitsynth.errors import Refuted, SpecError
from bitsynth.printable import one_line, show
from bitsynth.progress import Progress

if TYPE_CHECKING:
    from bitsynth.network.certificate.kernels import KernelRecord
    from bitsynth.network.certificate.rebuild import Library
    from bitsynth.network.certificate.records import CertificateRecord, StepRecord

_ENDS = ".certificate.json"


def is_network(name: str) -> bool:
    """Return whether a name stands for a folder or a certificate, and not for a kernel."""
    return name.endswith(_ENDS) or "/" in name or os.path.isdir(name)


def verify_network(name: str, model: Path | None, *, strict: bool, z3: bool, rlimit: int | None, as_json: bool) -> None:
    """Check the certificate at a path or in a folder; of a library for several processors the certificate of each.

    With `z3` the instruction lemmas of kernels are proved again. With a `model` the certificates must be of this ONNX
    file. If `strict`, a step without a claim raises Refuted.
    """
    whole, paths = find_certificates(Path(name))
    with output.progress("verify") as say:
        checked = [check_claims(path, say, strict=strict) for path in paths]
        further = _find_further_files(whole, checked)
        objects = _compare_record(whole, checked, strict=strict)
        comparisons: list[list[ReportLine]] = [[] for _ in paths]
        if model:
            comparisons = _compare_with_model(whole, paths, [each.certificate for each in checked], model, say)
        for each, more in zip(checked, comparisons, strict=True):
            kernels = [_check_kernel(record, z3, rlimit, say) for record in each.certificate.kernels]
            each.library, line = compare_c(each, say)
            each.lines += [line, *more, *kernels]
        if paths != [whole]:
            require_around(whole, checked)
    if as_json:
        facts = [
            {
                **_facts(each, z3),
                "verified": _Summary.of(each, model).as_json(),
                "further_files": further,
                "objects": objects.facts if objects else None,
            }
            for each in checked
        ]
        output.write_json({"networks": facts} if len(facts) > 1 else facts[0])
        return
    for each in checked:
        heading = [ReportLine("network", (each.path.name.removesuffix(_ENDS),), free=True)] if len(paths) > 1 else []
        others = [ReportLine("further", (_few_names(further), "not of this library: not looked at"))] if further else []
        end = ReportLine("proved" if z3 else "checked", (_verdict(each.certificate, z3),), free=True)
        machine_code = [objects.line] if objects and each is checked[-1] else []
        print_lines(*heading, *each.lines, *machine_code, *others, end)
        output.write(Text(str(_Summary.of(each, model))))


@dataclass
class CheckedCertificate:
    """A certificate whose claims hold: its path, report lines on each check, and the library that it describes."""

    path: Path
    certificate: CertificateRecord
    lines: list[ReportLine]
    library: Library | None = None


def check_claims(path: Path, say: Progress, *, strict: bool) -> CheckedCertificate:
    """Return a certificate whose claims hold; Refuted if they do not, or, if `strict`, if a step has none."""
    from bitsynth.network.certificate import read

    say("files, memory, chains")
    start = time.perf_counter()
    certificate = read.check_certificate(path)
    if strict and (left := [(_step_name(step), step.unclaimed) for step in certificate.steps if not step.claims]):
        raise Refuted(f"{path}: nothing is claimed of {left[0][0]}: {one_line(left[0][1])}")
    if strict and (unproved := certificate.unproved_aliases):
        raise Refuted(f"{path}: nothing is claimed of {show(unproved[0][0])}: {one_line(unproved[0][1])}")
    return CheckedCertificate(path, certificate, _claim_lines(certificate, time.perf_counter() - start))


def _find_further_files(whole: Path, checked: list[CheckedCertificate]) -> list[str]:
    """Return the files in the folder of the certificate `whole` that are of no certificate checked."""
    from bitsynth.network.certificate.objects import list_files
    from bitsynth.network.certificate.processors import files_of
    from bitsynth.network.certificate.read import further_files

    folder = whole.parent
    listed = {str((each.path.parent / name).relative_to(folder)) for each in checked for name in each.certificate.files}
    return further_files(folder, listed | set(files_of(whole)) | list_files(whole))


@dataclass(frozen=True)
class _ComparedRecord:
    """The record of machine code next to a certificate, compared with the library that it names."""

    line: ReportLine
    facts: dict[str, Any]


def _compare_record(whole: Path, checked: list[CheckedCertificate], *, strict: bool) -> _ComparedRecord | None:
    """Compare the record of machine code with the library that it names; None if there is no record.

    If it is of another library, `strict` raises Refuted.
    """
    from bitsynth.network.certificate.objects import read_record, record_path, why_unfit

    path = record_path(whole)
    record = read_record(path)
    if record is None:
        return None
    why = why_unfit(record, path, {each.path.name: each.certificate.digest for each in checked})
    if why and strict:
        raise Refuted(f"{path}: {why}; prove the library again with --objects")
    kernels = output.count(len(record.kernels), "kernel")
    layers = output.count(len(record.layers), "layer")
    verdict = f"{len(record.proved)} of {kernels} proved, {len(record.proved_for_all_sizes)} for all sizes"
    verdict += f"; {len(record.proved_layers)} of {layers}"
    text = f"{why}: prove it with --objects" if why else f"as it was proved: {verdict}; not proved again"
    line = ReportLine("objects", (f"{path.name if why else show(record.library)}: {text}",), free=True)
    facts = {"record": path.name, "library": record.library, "digest": record.digest, "unfit": why}
    counts = {"kernels": len(record.kernels), "proved": len(record.proved)}
    counts |= {"layers": len(record.layers), "proved_layers": len(record.proved_layers)}
    return _ComparedRecord(line, {**facts, **counts})


def compare_c(each: CheckedCertificate, say: Progress) -> tuple[Library, ReportLine]:
    """Compare the files with the library that a certificate describes; return that library and a line of the report."""
    from bitsynth.network.certificate.read import render_library

    say("C")
    start = time.perf_counter()
    library = render_library(each.certificate, each.path)
    verdict = "as rendered anew from claims and kernels"
    if library.plain:
        verdict += f"; text of {output.count(library.plain, 'step')} of plain C as it says"
    what = output.count(len(library.files), "file")
    return library, ReportLine("C", (what, verdict), time.perf_counter() - start)


def require_around(whole: Path, checked: list[CheckedCertificate]) -> None:
    """Raise Refuted unless the C that chooses between several processors is the C rendered from their libraries."""
    from bitsynth.network.certificate import processors

    processors.require_around(whole, {each.certificate.cpu: each.library.text for each in checked if each.library})


@dataclass(frozen=True)
class _Summary:
    """Counts of checked things and the digests of the files, for scripts that compare them."""

    steps: int
    steps_proved: int
    steps_of_plain_c: int
    kernels: int
    files: int
    certificate: str
    digest: str
    model: str = ""
    model_digest: str = ""

    @classmethod
    def of(cls, each: CheckedCertificate, model: Path | None) -> _Summary:
        """Return the counts and digests of a certificate, and of the model that it was compared with."""
        certificate = each.certificate
        return cls(
            steps=len(certificate.steps),
            steps_proved=len(certificate.proved),
            steps_of_plain_c=each.library.plain if each.library else 0,
            kernels=len(certificate.kernels),
            files=len(certificate.files),
            certificate=each.path.name,
            digest=certificate.digest,
            model=model.name if model else "",
            model_digest=hashlib.sha256(model.read_bytes()).hexdigest() if model else "",
        )

    def as_json(self) -> dict[str, Any]:
        """Return the counts and digests by name, without the model's if there is no model."""
        return {name: value for name, value in asdict(self).items() if value != ""}

    def __str__(self) -> str:
        """Return the last line of the report."""
        kernels, files = output.count(self.kernels, "kernel"), output.count(self.files, "file")
        proved = f"{self.steps_proved} of {output.count(self.steps, 'step')}"
        of = f"of {self.certificate} with digest {self.digest}"
        if self.model:
            of += f", of {self.model} with digest {self.model_digest}"
        return f"verified  {proved}, {kernels}, {files}, {of}"


def _few_names(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    most = 4
    return ", ".join(names[:most]) + (f" and {len(names) - most} others" if len(names) > most else "")


def find_certificates(path: Path) -> tuple[Path, list[Path]]:
    """Return the certificate at a path or in a folder, and those to check: itself, or one for each processor.

    SpecError if a folder has none, or several.
    """
    from bitsynth.network.certificate.processors import certificates_of

    places = sorted(path.glob(f"*{_ENDS}")) if os.path.isdir(path) else [path]
    if len(places) != 1:
        which = ", ".join(p.name for p in places) or "none"
        raise SpecError(f"want one certificate in {path}, NAME{_ENDS}, not {which}; give its path")
    return places[0], certificates_of(places[0])


def _claim_lines(certificate: CertificateRecord, spent: float) -> list[ReportLine]:
    """Return report lines on what the checker checked, and on steps without a claim."""
    memory = f"{output.count(len(certificate.buffers), 'buffer')} in {certificate.arena.bytes:,} bytes"
    left = [step for step in certificate.steps if not step.claims]
    return [
        ReportLine("files", (output.count(len(certificate.files), "file"), "as they were written"), spent),
        ReportLine("memory", (memory, f"none overlap; no plan takes less than {certificate.arena.bound:,}")),
        ReportLine(
            "chains", (output.count(len(certificate.proved), "step"), "equal to the network for all accumulators")
        ),
        *(ReportLine("others", (_step_name(step), f"nothing claimed: {step.unclaimed}")) for step in left),
        *(ReportLine("others", (name, f"nothing claimed: {why}")) for name, why in certificate.unproved_aliases),
        *_quantizer_lines(certificate),
    ]


def _quantizer_lines(certificate: CertificateRecord) -> list[ReportLine]:
    """Return lines on the error against the float network, which the file's quantizer claims."""
    claims = certificate.quantizer
    if not claims:
        return []
    bounds = claims.proved.errors
    return [
        ReportLine(
            "quantizer",
            (
                f"error of {name} at most {bounds[name]:.4g}" if name in bounds else f"no bound of the error of {name}",
                f"claimed by the file, not checked here; {worst:.4g} was measured",
            ),
        )
        for name, worst in claims.measured.errors.items()
    ]


def _step_name(step: StepRecord) -> str:
    """Return the last node of a step, and how many there are before it."""
    before = len(step.nodes) - 1
    name = show(step.nodes[-1][0]) if step.nodes else f"conversion of {show(step.inputs[0])}"
    return f"{name} (+{before})" if before > 0 else name


def _compare_with_model(
    whole: Path, paths: list[Path], certificates: list[CertificateRecord], model: Path, say: Progress
) -> list[list[ReportLine]]:
    """Return report lines on each certificate compared with the ONNX file, compiled again."""
    from bitsynth.network.verify_model import require_choice, require_of

    nets, lines = [], []
    for own, path in zip(certificates, paths, strict=True):
        start = time.perf_counter()
        nets.append(require_of(own, path, model, say))
        verdict = "gives the same chains, ranges, weights and C"
        lines.append([ReportLine("model", (model.name, verdict), time.perf_counter() - start)])
    if paths != [whole]:
        require_choice(whole, certificates, nets, model)
        lines[-1].append(ReportLine("choice", (whole.name, "is that among these networks")))
    return lines


def _check_kernel(record: KernelRecord, z3: bool, rlimit: int | None, say: Progress) -> ReportLine:
    """Return a report line on a kernel of the library, certificate by the digest of its certificate."""
    say(record.name)
    start = time.perf_counter()
    proved = record.load()
    verdict = f"checked, {output.count(len(proved.statements), 'lemma')} on record"
    if z3:
        from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget

        queries = proved.discharge(Budget(rlimit or DEFAULT_RLIMIT))
        verdict = f"discharged by Z3, {output.count(queries, 'query')}"
    return ReportLine("kernel", (record.name, verdict), time.perf_counter() - start)


def _verdict(certificate: CertificateRecord, z3: bool) -> str:
    verdict = f"{len(certificate.proved)} of {output.count(len(certificate.steps), 'step')}, for every input"
    return verdict + ("" if z3 else "; instruction lemmas were not discharged again")


def _facts(each: CheckedCertificate, z3: bool) -> dict[str, Any]:
    """Return the facts of a checked certificate, for JSON."""
    certificate = each.certificate
    return {
        "name": certificate.network,
        "reference": certificate.reference,
        "isa": certificate.isa,
        "cpu": certificate.cpu,
        "proved": z3,
        "instructions_discharged": z3,
        "checks": [
            {"name": x.label, "what": x.cells[0], "verdict": x.cells[1], "seconds": round(x.seconds or 0.0, 4)}
            for x in each.lines
        ],
        "steps": [
            {
                "kind": s.kind,
                "nodes": [n for n, _ in s.nodes],
                "by": [claim.by for claim in s.claims],
                "why": s.unclaimed,
            }
            for s in certificate.steps
        ],
        "steps_proved": len(certificate.proved),
        "arena_bytes": certificate.arena.bytes,
        "arena_bound": certificate.arena.bound,
    }
