"""`bitsynth show`: show a kernel's program instruction by instruction."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options.kernels import KernelArgument, Variant
from bitsynth.cli.options.output import CSourceOption, Json
from bitsynth.cli.report import ON_RECORD, claim_line, price_text
from bitsynth.cli.reports.program_page import constant_text, heading, legend, program, runs_text, step_facts, steps_page
from bitsynth.emit.depthwise import DepthwiseSource
from bitsynth.emit.elementwise import source as elementwise_source
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.kernel.depthwise import PREFIX, DepthwiseProgram
from bitsynth.kernel.describe import flush_title, input_text, loop_title, plane_text, step_title
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names
from bitsynth.kernel.inputs import Build, Planes
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel, Loop, Pass
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule import predicted
from bitsynth.schedule.cost import AMORTISED_K
from bitsynth.spec.elementwise import ElementInput
from bitsynth.store.depthwise import DEPTHWISE, DepthwiseEntry
from bitsynth.store.elementwise import ELEMENTWISE, ProgramEntry
from bitsynth.store.entry import Entry
from bitsynth.store.matmul import MATMUL


def show(name: KernelArgument, c: CSourceOption = False, variant: Variant = None, as_json: Json = False) -> None:
    """Show a cached kernel: its program and cost, or its C.

    The page has the kernel's inputs, its programs with the meaning of each instruction, its cost and its claims.
    """
    if name.startswith(PREFIX):
        show_depthwise(name, c=c, as_json=as_json)
        return
    if path := ELEMENTWISE.named(name):
        show_elementwise(path, c=c, as_json=as_json)
        return
    parsed = KernelName.parse(name)
    found = MATMUL.load_named(name, variant)
    entry = found.entry
    if c and as_json:
        output.write_json({"name": name, "source": MatmulKernel(found, parsed.spec).source})
    elif c:
        sys.stdout.write(MatmulKernel(found, parsed.spec).source)
    elif as_json:
        output.write_json(_facts(name, parsed, entry))
    else:
        output.write(*_page(name, parsed, entry))


def _page(name: str, parsed: KernelName, entry: Entry) -> list[RenderableType]:
    kernel, isa = entry.kernel, load(entry.kernel.isa)
    parts: list[RenderableType] = [Text(name, "bold"), parsed.describe(), "", *_cost(entry), *_layout(kernel)]
    if kernel.build:
        parts += _build_page(isa, kernel.build)
    for k, loop in enumerate(kernel.passes):
        parts += _pass_page(isa, kernel, loop, f"pass {k}, " if len(kernel.passes) > 1 else "")
    if kernel.scalar_pass:
        parts += _pass_page(isa, kernel, kernel.scalar_pass, "last row, in a processor's order, ")
    return [*parts, "", heading("instructions"), legend(isa, _programs(kernel))]


def _cost(entry: Entry) -> list[str]:
    price, certificate = entry.cost, entry.certificate
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in price.cycles.items())
    lemmas = len(certificate.lemmas) + len(certificate.instructions)
    how = "" if entry.asked else ", the cheapest of all methods (costs within a tenth are equal)"
    return [
        f"cost      {price_text(entry)}, {price.loads_per_128_mac:.2f} loads",
        *_predicted(entry),
        f"cycles    {cycles} per 128 MAC" if cycles else "cycles    no processor of the tables has all instructions",
        f"method    {entry.method}{how}",
        f"claims    {', '.join(claim_line(price).cells)}",
        f"          {ON_RECORD}",
        f"proof     {lemmas} lemmas, K up to {certificate.k_max:,}",
    ]


def _predicted(entry: Entry) -> list[str]:
    """Return the cycles that a scoreboard model predicts, with loads, flushes and spills."""
    isa = load(entry.kernel.isa)
    able = [cpu for cpu in entry.cost.cycles if isa.table.cpu[cpu].issue is not None]
    cycles = [f"{cpu} {predicted.cycles_per_128_mac(isa, entry.kernel, cpu):.2f}" for cpu in able]
    call = f"K = {AMORTISED_K}, tiles a call: {predicted.tiles_of_call(entry.kernel)}"
    return [f"predicted {', '.join(cycles)} cycles per 128 MAC, {call}"] if cycles else []


def _sides(kernel: Kernel) -> tuple[str, str]:
    """Return the operands whose vectors are rows and columns."""
    return ("wgt", "act") if kernel.swapped else ("act", "wgt")


def _layout(kernel: Kernel) -> list[str]:
    def terms(values: Sequence[int], side: str) -> str:
        return f"{' '.join(map(str, values))} by {side} code" if any(values) else "0"

    of_rows, of_columns = _sides(kernel)
    slots = kernel.slots
    together = f", {kernel.together} to a program, side by side in bytes" if kernel.together > 1 else ""
    order = f"0 to {len(slots) - 1}" if slots == tuple(range(len(slots))) else " ".join(map(str, slots))
    out = [
        f"rows      {kernel.rows} of {of_rows}{together}, {output.count(kernel.columns, 'column')} of {of_columns}",
        f"columns   {order}, in order of their {8 * kernel.slot_bytes}-bit slots",
        f"tile      starts at row + column: {terms(kernel.row_terms, of_rows)} + "
        f"{terms(kernel.column_terms, of_columns)}",
    ]
    if kernel.cross_terms:
        out.append(f"          and {kernel.cross_terms} times the products of neighbours, of either side")
    return out + [constant_text(k) for k in kernel.constants]


def _build_page(isa: Isa, build: Build) -> list[RenderableType]:
    stage = " ".join("-" if n < 0 else str(n) for n in build.stage)
    return [
        "",
        heading(f"table of a row: built in {output.count(len(build.program), 'instruction')} as the row is packed"),
        f"  x0 holds the values of codes {stage}, over and over; {output.count(build.tables, 'table')} at a time",
        *(f"  {constant_text(k)}" for k in build.constants),
        program(isa, build.steps),
        f"  the table is {build.table}",
    ]


def _pass_page(isa: Isa, kernel: Kernel, loop: Pass, where: str) -> list[RenderableType]:
    registers = kernel.columns * kernel.slot_bytes * 8 // isa.table.vector_bits
    wide = kernel.code_bytes
    inputs = [(f"a{i}", input_text(x, kernel.row_bits, kernel.input_bytes(x), wide)) for i, x in enumerate(loop.rows)]
    inputs += [
        (_registers(i, registers), input_text(x, kernel.column_bits, kernel.slot_bytes, wide))
        for i, x in enumerate(loop.columns)
    ]
    width = max(len(name) for name, _ in inputs)
    of_rows, of_columns = _sides(kernel)
    out: list[RenderableType] = [
        "",
        heading(f"{where}inputs: a of {of_rows}, w of {of_columns}"),
        *(f"  {name:{width}}  {text}" for name, text in inputs),
    ]
    out += steps_page(isa, where + step_title(kernel), loop.step.steps, _becoming(loop.step))
    if loop.step.first:
        title = f"{where}first run of the step"
        starts = ", ".join(f"{a.name} {a.type} starts as {a.start}" for a in loop.step.accs)
        out += steps_page(isa, title, loop.step.first_steps, starts)
    for level, outer in enumerate(loop.loops[1:], 1):
        out += steps_page(isa, where + loop_title(loop, level), outer.steps, _becoming(outer))
    into = "the next pass starts from" if loop.carries else "the tile becomes"
    return out + steps_page(isa, where + flush_title(loop), loop.flush_steps, f"{into} {', '.join(loop.tile)}")


def _becoming(loop: Loop) -> str:
    return ", ".join(f"{a.name} {a.type} becomes {a.next}" for a in loop.accs)


def _registers(given: int, count: int) -> str:
    return f"w0_{given}" if count == 1 else f"w0_{given}..w{count - 1}_{given}"


def _programs(kernel: Kernel) -> list[Step]:
    """Return the steps of every program."""
    build = kernel.build.steps if kernel.build else ()
    return [*build, *(s for p in kernel.every_pass for x in p.programs for s in x)]


def _facts(name: str, parsed: KernelName, entry: Entry) -> dict[str, Any]:
    isa = load(entry.kernel.isa)
    facts: dict[str, Any] = msgspec.to_builtins(entry)
    kernel, facts_of = entry.kernel, facts["kernel"]
    # Programs, step by step.
    if kernel.build:
        facts_of["build"]["program"] = [step_facts(isa, s) for s in kernel.build.steps]
    of_passes = [*facts_of["passes"], *([facts_of["beside"]] if kernel.scalar_pass else [])]
    for loop, texts in zip(kernel.every_pass, of_passes, strict=True):
        for nested, of_nested in zip(loop.loops, texts["loops"], strict=True):
            of_nested["program"] = [step_facts(isa, s) for s in nested.steps]
            of_nested["first"] = [step_facts(isa, s) for s in nested.first_steps]
        texts["flush"] = [step_facts(isa, s) for s in loop.flush_steps]
        texts["flush_every"] = loop.flush_every
        # Inputs, in words.
        for side, given, bits in (
            ("rows", loop.rows, kernel.row_bits),
            ("columns", loop.columns, kernel.column_bits),
        ):
            for x, of_input in zip(given, texts[side], strict=True):
                of_input["text"] = input_text(x, bits, kernel.input_bytes(x), kernel.code_bytes)
                if isinstance(x, Planes):
                    of_input["tables"] = [_plane_facts(t, bits) for t in x.tables]
    # The name, in parts.
    encodings = {"act_encoding": parsed.spec.act.encoding.value, "weight_encoding": parsed.spec.wgt.encoding.value}
    return {**facts, "name": name, "description": parsed.describe(), **encodings, "k_max": parsed.spec.k_max}


def _plane_facts(table: int, bits: int) -> dict[str, Any]:
    return {"text": plane_text(table, bits), "codes": [c for c in range(1 << bits) if table >> c & 1]}


def show_depthwise(name: str, *, c: bool, as_json: bool) -> None:
    """Show the stored kernel `name`: its page, or its `c`, or the facts."""
    proved = DEPTHWISE.load_named(name)
    assert proved is not None
    entry = DEPTHWISE.record_of(proved)
    if c and as_json:
        output.write_json({"name": name, "source": DepthwiseSource(proved).source})
    elif c:
        sys.stdout.write(DepthwiseSource(proved).source)
    elif as_json:
        output.write_json(_depthwise_facts(entry))
    else:
        output.write(*_depthwise_page(entry))


def _depthwise_description(program: DepthwiseProgram) -> str:
    return (
        f"depthwise, activations up to {program.act_bits} and weights up to {program.w_bits} bits to int32 sums, "
        f"{program.isa}: {program.unit} channels, {output.count(program.taps, 'tap')} a step"
    )


def _depthwise_page(entry: DepthwiseEntry) -> list[RenderableType]:
    program, isa = entry.program, load(entry.program.isa)
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in entry.cost.cycles.items())
    becoming = ", ".join(f"{a.name} {a.type} becomes {a.next}" for a in program.accs)
    parts: list[RenderableType] = [
        Text(entry.name, "bold"),
        _depthwise_description(program),
        "",
        f"cost      {entry.cost.ops_per_128_mac:.2f} ops per 128 MAC of a 3 x 3 window",
        f"cycles    {cycles} per 128 MAC",
        f"claims    {entry.minimality}",
        f"proof     {len(entry.lemmas) + len(entry.instructions)} lemmas, any number of steps",
        f"operands  activations {_range_text(program.act)}, weights {_range_text(program.wgt)}",
        f"pixels    {program.pixels} at once",
        *steps_page(isa, "step", program.steps, becoming, "pixel"),
    ]
    for flush in program.flushes:
        parts += ["", f"sums of channels {runs_text(flush.order)}", *map(constant_text, flush.constants)]
        title = f"flush after at most {output.count(program.flush_every, 'step')}"
        parts += steps_page(isa, title, flush.steps, f"sums become {', '.join(flush.tile)}", "pixel")[1:]
    every = [*program.steps, *(s for flush in program.flushes for s in flush.steps)]
    return [*parts, "", heading("instructions"), legend(isa, every)]


def _range_text(ends: tuple[int, int]) -> str:
    return f"{ends[0]} to {ends[1]}"


def _depthwise_facts(entry: DepthwiseEntry) -> dict[str, Any]:
    isa, facts = load(entry.program.isa), msgspec.to_builtins(entry)
    facts["program"]["program"] = [step_facts(isa, s) for s in entry.program.steps]
    for flush, of_flush in zip(entry.program.flushes, facts["program"]["flushes"], strict=True):
        of_flush["program"] = [step_facts(isa, s) for s in flush.steps]
    return {**facts, "description": _depthwise_description(entry.program)}


def show_elementwise(path: Path, *, c: bool, as_json: bool) -> None:
    """Show the program stored in `path`: its page, or its `c`, or the facts."""
    program, entry = ELEMENTWISE.load(path).program, ELEMENTWISE.read(path)
    if c and as_json:
        output.write_json({"name": entry.name, "source": elementwise_source([program])})
    elif c:
        sys.stdout.write(elementwise_source([program]))
    elif as_json:
        output.write_json(_elementwise_facts(entry))
    else:
        output.write(*_elementwise_page(entry))


def _elementwise_description(program: ElementwiseProgram) -> str:
    out = program.spec.out
    results = f"words of {output.count(program.spec.planes, 'plane')}" if out == "words" else out
    return f"elementwise, {results}, {program.isa}: {program.unit} channels a unit"


def _elementwise_page(entry: ProgramEntry) -> list[RenderableType]:
    program, isa = entry.program, load(entry.program.isa)
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in entry.cycles.items())
    parts: list[RenderableType] = [
        Text(entry.name, "bold"),
        _elementwise_description(program),
        "",
        f"meaning   {program.spec.meaning}",
        *(f"given     {text}" for text in program.spec.assumes),
        f"cycles    {cycles} a unit" if cycles else "cycles    no processor of the tables has all instructions",
        f"proof     {output.count(len(entry.statements), 'statement')}, of every value of the inputs",
        "",
        heading("inputs"),
        *(_elementwise_input(program, x, order) for x, order in zip(program.spec.inputs, program.orders, strict=True)),
        *map(constant_text, program.constants),
    ]
    if program.loop:
        parts += _loop_page(program, program.loop)
    results = f"results are {', '.join(program.results)}"
    parts += steps_page(isa, "last" if program.loop else "program", program.steps, results, "unit")
    return [*parts, "", heading("instructions"), legend(isa, [*program.steps, *_loop_steps(program)])]


def _elementwise_input(program: ElementwiseProgram, one: ElementInput, order: tuple[int, ...]) -> str:
    registers = names(program, one)
    span = registers[0][0] if registers[0][0] == registers[-1][-1] else f"{registers[0][0]}..{registers[-1][-1]}"
    kind = f"{one.type}[{one.count}]" if one.count else one.type
    channels = f", channels {runs_text(order)}" if order else ""
    return f"  {one.name} {kind} of {'each ' if one.per != 'all' else ''}{one.per}: {span}{channels}"


def _loop_page(program: ElementwiseProgram, loop: ElementLoop) -> list[RenderableType]:
    over = program.spec.inputs[-1]
    becoming = f"x0 starts as {loop.start} and becomes {', '.join(loop.next)}, of channels {runs_text(loop.order)}"
    return steps_page(load(program.isa), "loop", _loop_steps(program), becoming, f"value of {over.name}")


def _loop_steps(program: ElementwiseProgram) -> list[Step]:
    return [Step.parse(line) for line in program.loop.program] if program.loop else []


def _elementwise_facts(entry: ProgramEntry) -> dict[str, Any]:
    isa, facts = load(entry.program.isa), msgspec.to_builtins(entry)
    facts["program"]["program"] = [step_facts(isa, s) for s in entry.program.steps]
    if entry.program.loop:
        facts["program"]["loop"]["program"] = [step_facts(isa, s) for s in _loop_steps(entry.program)]
    return {**facts, "description": _elementwise_description(entry.program)}
