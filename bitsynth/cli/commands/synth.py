"""`bitsynth synth`: find, prove and write the cheapest kernel for two bit-widths."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.machines import set_and_processor
from bitsynth.cli.options.instruction_sets import Cpu, IsaOrAuto
from bitsynth.cli.options.kernels import (
    ActBits,
    ActEncoding,
    Channels,
    CostModel,
    Fresh,
    KStep,
    Method,
    Rlimit,
    Sketch,
    WBits,
    WeightEncoding,
)
from bitsynth.cli.options.output import Json, OptionalFolder
from bitsynth.cli.output import require_writable
from bitsynth.cli.report import ON_RECORD, ReportLine, claim_line, kernel_line, print_lines
from bitsynth.files import ADVICE, write_texts
from bitsynth.isa.load import load
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule.cost import figure
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import PREDICTED, KernelOptions, model_of
from bitsynth.store.entry import Entry, ProvedEntry
from bitsynth.store.matmul import MATMUL


@dataclass(frozen=True)
class _Answer:
    """A kernel, and the report lines on how it was found."""

    proved_entry: ProvedEntry
    lines: tuple[ReportLine, ...]
    seconds: float
    cached: bool

    @property
    def entry(self) -> Entry:
        """Return the entry as it is stored."""
        return self.proved_entry.entry


def synth(
    isa: IsaOrAuto,
    act_bits: ActBits,
    w_bits: WBits,
    act_encoding: ActEncoding = Encoding.UNSIGNED,
    weight_encoding: WeightEncoding = Encoding.BIPOLAR,
    method: Method = None,
    cpu: Cpu = "",
    channels: Channels = 0,
    k_step: KStep = 0,
    sketch: Sketch = "exact",
    model: CostModel = "",
    rlimit: Rlimit = None,
    fresh: Fresh = False,
    to: OptionalFolder = None,
    as_json: Json = False,
) -> None:
    """Find and prove the cheapest kernel for two bit-widths.

    The kernel is proved for every input, written as C and kept in the cache. If the cache has it already, its
    certificate is checked again instead. With --isa auto it is the cached kernel for this processor, if there is one,
    else the one of fewest operations.
    """
    isa, own = set_and_processor(isa, cpu)
    spec = MatmulSpec(isa, MatmulOperand(act_bits, act_encoding), MatmulOperand(w_bits, weight_encoding))
    options = _options(isa, method, sketch, model_of(load(isa), cpu, model), channels, k_step)
    if own and not (cpu or model) and MATMUL.find_for(spec, replace(options, model=own)):
        cpu, options = own, replace(options, model=own)
    folder = to or paths.user_kernels() / isa / options.variant
    answer = None if fresh else _from_cache(spec, options)
    if answer is None:
        require_writable(folder, ADVICE if to is None else "choose another folder with -o")
        answer = _solve(spec, options, rlimit)
    kernel = MatmulKernel(answer.proved_entry, spec).on(cpu)
    audit = {} if to is None else kernel.audit_files  # the cache has the kernel's own file
    files = write_texts(folder, {**kernel.files, **audit}, ours=to is None)
    if as_json:
        output.write_json(_facts(answer, spec, files))
        return
    wrote = f"{files[0].with_suffix('.c')}, .h, _features.c, _selftest.c{', _check.py, .kernel.json' if audit else ''}"
    cached = "was cached" if answer.cached else "cached"
    print_lines(*answer.lines, kernel_line(kernel.entry, spec), ReportLine("wrote", (wrote, cached), free=True))


def _options(isa: str, method: str | None, sketch: str, model: str, channels: int, k_step: int) -> KernelOptions:
    """Return the options of the wanted kernel; SpecError if they do not go together."""
    options = KernelOptions(method, sketch, model, channels, k_step)
    options.isa(isa)
    return options


def _from_cache(spec: MatmulSpec, options: KernelOptions) -> _Answer | None:
    """Load the cached kernel and check its certificate again; None if there is none."""
    start = time.perf_counter()
    path = MATMUL.find_for(spec, options)
    if path is None:
        return None
    proved_entry = MATMUL.load(path)
    seconds = time.perf_counter() - start
    certificate = proved_entry.entry.certificate
    proof = f"{len(certificate.lemmas)} lemmas checked, {len(certificate.instructions)} on record"
    lines = (
        ReportLine("proof", (proof, f"K up to {spec.k_max:,}"), seconds),
        *_runners_up(proved_entry.entry),
        claim_line(proved_entry.entry.cost),
        ReportLine("", (ON_RECORD,), free=True),
    )
    return _Answer(proved_entry, lines, seconds, cached=True)


def _runners_up(entry: Entry) -> list[ReportLine]:
    """Return lines with the costs of the other methods, or why they have no kernel."""
    unit = {"ops": "ops per 128 MAC", "length": "instructions"}.get(entry.model, f"cycles on {entry.model}")
    priced = [f"{x.method} {x.cost:.2f} {unit}" for x in entry.runners_up if x.cost is not None]
    lacking = [x.method for x in entry.runners_up if x.cost is None]
    out = [ReportLine("method", (entry.method, f"next: {', '.join(priced)}" if priced else ""), free=True)]
    own = round(figure(load(entry.kernel.isa), entry.kernel, entry.model), 4)
    lower = {x.method for x in entry.runners_up if x.cost is not None and x.cost < own}
    if slower := [method for method in PREDICTED if method in lower]:
        text = f"more cycles are predicted for {' and '.join(slower)}, with loads and flushes"
        out.append(ReportLine("", (text,), free=True))
    if lower - {*PREDICTED}:
        out.append(
            ReportLine(
                "",
                ("costs within a tenth are equal; of equal methods the one that reads fewer bytes is taken",),
                free=True,
            )
        )
    if lacking:
        out.append(ReportLine("", (f"no kernel by {', '.join(lacking)}",), free=True))
    return out


def _solve(spec: MatmulSpec, options: KernelOptions, rlimit: int | None) -> _Answer:
    """Synthesize, prove and cache a kernel; if a step fails, nothing is kept."""
    require_writable(paths.user_kernels() / spec.isa)
    title = f"{spec.isa} A{spec.act.bits}W{spec.wgt.bits}, {options.sketch} sketch"
    with output.progress(title) as say:
        say("starting the solver")
        from bitsynth.synth import synthesize as line

        budget = {} if rlimit is None else {"rlimit": rlimit}
        synthesis = line.synthesize(spec, options, progress=say, **budget)
    MATMUL.store(synthesis.proved_entry)
    lines = tuple(ReportLine(s.name, (s.found, s.verdict), s.seconds) for s in synthesis.stages)
    return _Answer(synthesis.proved_entry, (*lines, *_runners_up(synthesis.entry)), synthesis.seconds, cached=False)


def _facts(answer: _Answer, spec: MatmulSpec, files: list[Path]) -> dict[str, Any]:
    entry, price = answer.entry, answer.entry.cost
    return {
        "name": files[0].stem,
        "isa": spec.isa,
        "act_bits": spec.act.bits,
        "w_bits": spec.wgt.bits,
        "act_encoding": spec.act.encoding.value,
        "weight_encoding": spec.wgt.encoding.value,
        "method": entry.method,
        "sketch": entry.certificate.sketch,
        "cost_model": entry.model,
        "ops_per_128_mac": price.ops_per_128_mac,
        "loads_per_128_mac": price.loads_per_128_mac,
        "cycles": price.cycles,
        "instructions": price.instructions,
        "lower_bound": price.lower_bound,
        "minimal": price.minimal or None,
        "proved": True,
        "instructions_discharged": answer.proved_entry.proved.how == "discharged",
        "claims": "on record" if answer.cached else "solved",
        "cached": answer.cached,
        "seconds": round(answer.seconds, 4),
        "k_max": spec.k_max,
        "runners_up": [
            {"method": x.method, "cost": x.cost, "why": None if answer.cached else x.why} for x in entry.runners_up
        ],
        "stages": [
            {"name": x.label, "found": x.cells[0], "verdict": x.cells[1], "seconds": round(x.seconds or 0.0, 4)}
            for x in answer.lines
            if not x.free
        ],
        "files": [str(path) for path in files],
    }
