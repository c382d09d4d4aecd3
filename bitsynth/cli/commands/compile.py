"""`bitsynth compile`: a network of an ONNX file as a C library."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.files import require_writable
from bitsynth.cli.options.instruction_sets import ForCpus, IsaOrAuto
from bitsynth.cli.options.measuring import Threads
from bitsynth.cli.options.networks import (
    Batch,
    InputBits,
    InputEncoding,
    InputScale,
    ModelArgument,
    NetworkName,
    Reference,
    WeightsFile,
)
from bitsynth.cli.options.output import Folder, Json
from bitsynth.cli.parse import input_codes
from bitsynth.cli.reports.network_cells import by_whom, called, shape_of, slow_products
from bitsynth.files import write_texts
from bitsynth.printable import shown
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.network.report import NetworkReport

_ADVICE = "choose another folder with -o"


def compile_network(
    model: ModelArgument,
    to: Folder,
    name: NetworkName = "",
    isa: IsaOrAuto = "auto",
    cpu: ForCpus = "",
    threads: Threads = 1,
    batch: Batch = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    weights_file: WeightsFile = False,
    as_json: Json = False,
) -> None:
    """Write a quantized ONNX file as a C library.

    It is C11 that builds with any compiler and needs nothing else: header, steps, weights, kernels and runtime, a
    self-test against the reference, an example and CMakeLists.txt. Build and test it with
    `cmake -B build && cmake --build build && ctest --test-dir build`. No compiler is needed here, and nothing in the
    file is executed.

    With several processors, as in `--cpu a76,a72,a53`, the library holds a network for each, in a folder of its own,
    and chooses when it runs.
    """
    from bitsynth.emit.layer import require_name
    from bitsynth.graph.read.file import named
    from bitsynth.network import processors
    from bitsynth.network.compiling import compile

    codes = input_codes(input_bits, input_scale, input_encoding)
    library, cpus = name or _name(model), cpu.split(",")
    require_name(library)
    with named(model), output.progress("compile") as say:
        options: dict[str, Any] = {"batch": batch, "reference": reference, "codes": codes}
        options |= {"isa": isa, "threads": threads, "progress": say}
        several = len(cpus) > 1
        nets = processors.networks(model, cpus, **options) if several else {cpu: compile(model, cpu=cpu, **options)}
        say("writing C")
        write = partial(processors.files, made=nets) if several else nets[cpu].files
        files = write(library, weights_file=weights_file)
        reports = {each: net.report() for each, net in nets.items()}
    require_writable(to, _ADVICE)
    paths = write_texts(to, files)
    if as_json:
        facts = {each: found.as_json() for each, found in reports.items()}
        said = {"processors": facts} if several else facts[cpu]
        output.write_json({**said, "library": library, "files": [str(p) for p in paths]})
        return
    for found in reports.values():
        output.write(_heading(found), "", _fitting(found), "", *_ends(found))
    output.write(f"wrote {output.count(len(paths), 'file')} in {to}: {library}.h, {library}.c and others")


def _fitting(found: NetworkReport) -> Table:
    return output.fitting(lambda gap: _table(found, gap), lambda gap: _table(found, gap, brief=True))


def _name(model: Path) -> str:
    """A name in C from that of the file."""
    words = re.sub(r"\W", "_", model.stem, flags=re.ASCII)
    return words if words[:1].isalpha() else f"network_{words}"


def _heading(found: NetworkReport) -> Text:
    threads = output.count(found.threads, "thread")
    on = f"{found.isa}, {found.cpu}" if found.cpu else found.isa
    said = f"   {output.count(len(found.steps), 'step')} on {on}, {threads}, reference {found.reference}"
    return Text.assemble((shown(found.name), "bold"), said)


def _table(found: NetworkReport, gap: int, *, brief: bool = False) -> Table:
    """A row a step; a brief table leaves out how results lie, multiply-accumulates and cycles."""
    right = ("weights", "bytes") if brief else ("MAC", "cycles", "weights", "bytes")
    columns = ("by", "shape") if brief else ("by", "shape", "as")
    table = output.table("step", *columns, *right, right=right, whole=columns[1:], gap=gap)
    for step in found.steps:
        lies = [] if brief else [step.memory]
        work = [] if brief else [_count(step.macs), _count(step.cycles)]
        size = _count(step.weight_bytes), f"{step.out_bytes:,}"
        table.add_row(called(step), by_whom(step), shape_of(step), *lies, *work, *size)
    return table


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _ends(found: NetworkReport) -> list[str]:
    """Totals."""
    macs, cycles = (sum(getattr(s, k) for s in found.steps) for k in ("macs", "cycles"))
    by = {kind: sum(s.kind == kind for s in found.steps) for kind in ("layer", "glue", "plain")}
    return [
        f"{by['layer']} by layers, {by['glue']} by glue, {by['plain']} by plain C; "
        f"{macs:,} MAC in layers, expected in {cycles:,} cycles",
        *slow_products(found.products),
        f"weights {found.weight_bytes:,} bytes; arena {found.arena_bytes:,} bytes, "
        f"{found.arena_bound:,} by any plan at least",
    ]
