"""`bitsynth compile`: write a network of an ONNX file as a C library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options.instruction_sets import ForCpus, IsaOrAuto
from bitsynth.cli.options.measuring import Threads
from bitsynth.cli.options.networks import (
    Batch,
    FixedInputs,
    InputBits,
    InputEncoding,
    InputScale,
    InputShapes,
    ModelArgument,
    NetworkName,
    Reference,
    WeightsFile,
    warn_of_fixed_batch,
)
from bitsynth.cli.options.output import Folder, Json
from bitsynth.cli.output import require_writable
from bitsynth.cli.parse import input_codes, read_options
from bitsynth.cli.reports.network_cells import by_whom, plain_reasons, shape_of, slow_products, step_name
from bitsynth.cli.reports.weight_names import weight_names
from bitsynth.files import reserve_folder, write_texts
from bitsynth.printable import show
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.network.report import NetworkReport

_ADVICE = "choose another folder with -o"
_WIDE = ("by", "shape", "as", "MAC", "cycles", "weights", "bytes")
_BRIEF = ("by", "shape", "weights", "bytes")
_NARROW = ("by", "shape", "bytes")
"""Columns behind a step's name."""
_NUMBERS = ("MAC", "cycles", "weights", "bytes")
MAX_NAME = 64
"""Letters of a library's name."""


def compile_network(
    model: ModelArgument,
    to: Folder,
    name: NetworkName = "",
    isa: IsaOrAuto = "auto",
    cpu: ForCpus = "",
    threads: Threads = 1,
    batch: Batch = None,
    shape: InputShapes = None,
    fix: FixedInputs = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    weights_file: WeightsFile = False,
    as_json: Json = False,
) -> None:
    """Write a quantized network as a C library.

    It is C11 that builds with any compiler and needs nothing else: header, steps, weights, kernels and runtime, a
    self-test against the reference, an example and CMakeLists.txt. Build and test it with
    `cmake -B build && cmake --build build && ctest --test-dir build`. No compiler is needed here, and nothing in the
    file is executed.

    With several processors, as in `--cpu a76,a72,a53`, the library holds a network for each, in a folder of its own,
    and chooses when it runs.
    """
    from bitsynth.emit.c_names import require_name
    from bitsynth.graph.read.file import name_in_errors
    from bitsynth.network import processors
    from bitsynth.network.compiling import compile

    codes = input_codes(input_bits, input_scale, input_encoding)
    library, cpus = name or _name(model), cpu.split(",")
    require_name(library)
    with reserve_folder(to, _ADVICE), name_in_errors(model), output.progress("compile") as say:
        options = read_options(batch, reference, codes, shape, fix)
        for_processors = len(cpus) > 1
        if for_processors:
            nets = processors.networks(model, cpus, isa=isa, threads=threads, progress=say, **options)
        else:
            nets = {cpu: compile(model, isa=isa, cpu=cpu, threads=threads, progress=say, **options)}
        say("writing C")
        write = partial(processors.files, nets=nets) if for_processors else nets[cpu].files
        files = write(library, weights_file=weights_file)
        warn_of_fixed_batch(next(iter(nets.values())).graph, batch)
        reports = {each: net.report() for each, net in nets.items()}
        require_writable(to, _ADVICE)
        paths = write_texts(to, files)
    if as_json:
        facts = {each: report.as_json() for each, report in reports.items()}
        content = {"processors": facts} if for_processors else facts[cpu]
        output.write_json({**content, "library": library, "files": [str(p) for p in paths]})
        return
    weights = weight_names(model, next(iter(nets.values())).graph)
    for report in reports.values():
        output.write(_heading(report), "", _table(report, weights), "", *_ends(report))
    output.write(f"wrote {output.count(len(paths), 'file')} in {to}: {library}.h, {library}.c and others")


def _name(model: Path) -> str:
    """Return a name in C for the file: `network_float` for float.onnx, because float.h is a C header."""
    from bitsynth.emit.c_names import can_name

    words = re.sub(r"\W", "_", model.stem, flags=re.ASCII)[:MAX_NAME]
    return words if can_name(words) else f"network_{words}"[:MAX_NAME]


def _heading(report: NetworkReport) -> Text:
    threads = output.count(report.threads, "thread")
    on = f"{report.isa}, {report.cpu}" if report.cpu else report.isa
    summary = f"   {output.count(len(report.steps), 'step')} on {on}, {threads}, reference {report.reference}"
    return Text.assemble((show(report.name), "bold"), summary)


def _table(report: NetworkReport, weights: Mapping[str, str]) -> Table:
    """Return a table with a row for each step, as wide as the terminal."""
    forms = (_WIDE, False), (_BRIEF, False), (_BRIEF, True), (_NARROW, True)
    return output.fit_named_table(*(partial(_steps, report, weights, *form) for form in forms))


def _steps(
    report: NetworkReport, weights: Mapping[str, str], columns: Sequence[str], brief: bool, gap: int, room: int
) -> Table:
    """Return a table with these columns behind names of at most `room` columns; if `brief`, `by` is short."""
    right = [column for column in columns if column in _NUMBERS]
    table = output.table("step", *columns, right=right, whole=columns[1:], gap=gap)
    for step in report.steps:
        cells = {
            "by": by_whom(step, brief=brief),
            "shape": shape_of(step),
            "as": step.memory,
            "MAC": _count(step.macs),
            "cycles": _count(step.cycles),
            "weights": _count(step.weight_bytes),
            "bytes": f"{step.out_bytes:,}",
        }
        table.add_row(step_name(step, weights, room), *(cells[column] for column in columns))
    return table


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _ends(report: NetworkReport) -> list[str]:
    """Return the lines below the table: totals of steps, work and memory."""
    macs, cycles = (sum(getattr(s, k) for s in report.steps) for k in ("macs", "cycles"))
    by = {kind: sum(s.kind == kind for s in report.steps) for kind in ("layer", "glue", "plain")}
    work = f"; {macs:,} MAC in layers, expected in {cycles:,} cycles" if cycles else ""
    return [
        *plain_reasons(report),
        f"{by['layer']} by layers, {by['glue']} by glue, {by['plain']} by plain C{work}",
        *slow_products(report.products),
        f"weights {report.weight_bytes:,} bytes; arena {report.arena_bytes:,} bytes, no plan needs less than "
        f"{report.arena_bound:,}",
    ]
