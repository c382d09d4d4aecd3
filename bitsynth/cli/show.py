"""`bitsynth show`: a kernel's program, instruction by instruction."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bitsynth import cache
from bitsynth.api import MatmulKernel
from bitsynth.cache import Entry
from bitsynth.cli import output
from bitsynth.cli.options import Json, Name, Variant, locate
from bitsynth.cli.planes import lane_text, plane_text
from bitsynth.cli.report import price_text
from bitsynth.isa.load import Isa, load
from bitsynth.names import KernelName
from bitsynth.program import Kernel, Pass, Step

_C = Annotated[bool, typer.Option("--c", help="Print the C source instead.")]


def show(name: Name, c: _C = False, variant: Variant = None, as_json: Json = False) -> None:
    """Show a cached kernel: planes, program, lane meanings, cost, or its C."""
    parsed = KernelName.parse(name)
    entry = cache.load_entry(locate(name, variant))
    if c:
        sys.stdout.write(MatmulKernel(entry, parsed.spec).source)
    elif as_json:
        output.write_json(_facts(name, parsed, entry))
    else:
        output.write(*_page(name, parsed, entry))


def _page(name: str, parsed: KernelName, entry: Entry) -> list[RenderableType]:
    kernel, isa = entry.kernel, load(entry.kernel.isa)
    parts: list[RenderableType] = [Text(name, "bold"), parsed.describe(), "", *_cost(entry), *_layout(kernel)]
    for k, loop in enumerate(kernel.passes):
        parts += _pass_page(isa, kernel, loop, f"pass {k}" if len(kernel.passes) > 1 else "")
    return [*parts, "", _heading("instructions"), _legend(isa, kernel)]


def _heading(text: str) -> Text:
    return Text(text, "bold")


def _cost(entry: Entry) -> list[str]:
    price, certificate = entry.cost, entry.certificate
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in price.cycles.items())
    minimal = "minimal" if price.minimal else "best found"
    lemmas = len(certificate.lemmas) + len(certificate.instructions)
    return [
        f"cost      {price_text(entry)}, {price.loads_per_128_mac:.2f} loads",
        f"cycles    {cycles} per 128 MAC",
        f"bound     steady loop, {price.lower_bound:g} ops or more: {minimal} in the {certificate.sketch} sketch",
        f"proof     {lemmas} lemmas, K up to {certificate.k_max:,}",
    ]


def _layout(kernel: Kernel) -> list[str]:
    def tables(values: Sequence[int]) -> str:
        return " ".join(map(str, values)) if any(values) else "0"

    out = [
        f"columns   {' '.join(map(str, kernel.slots))}, in order of their 64-bit slots",
        f"tile      starts at g + h: g {tables(kernel.g_table)} by wgt code, h {tables(kernel.h_table)} by act code",
    ]
    for k in kernel.constants:
        same = f"{k.lanes[0]} in every lane" if len(set(k.lanes)) == 1 else " ".join(map(str, k.lanes))
        out.append(f"constant  {k.name} {k.type}: {same}")
    return out


def _pass_page(isa: Isa, kernel: Kernel, loop: Pass, title: str) -> list[RenderableType]:
    where = f"{title}, " if title else ""
    accs = ", ".join(f"{a.name} {a.type} becomes {a.next}" for a in loop.accs)
    slots = isa.table.vector_bits // 64
    return [
        "",
        _heading(f"{where}planes"),
        *(f"  a{i}  {plane_text(t, kernel.act_bits)}" for i, t in enumerate(loop.act_planes)),
        *(
            f"  {_registers(i, len(kernel.slots) // slots)}  {plane_text(t, kernel.w_bits)}"
            for i, t in enumerate(loop.wgt_planes)
        ),
        "",
        _heading(f"{where}step: {kernel.k_step} positions of K, {output.count(len(loop.step), 'instruction')} a row"),
        *([] if not loop.step else [_program(isa, loop.step_program)]),
        f"  {accs}",
        "",
        _heading(f"{where}flush: every {loop.flush_every:,} steps, {output.count(len(loop.flush), 'instruction')}"),
        _program(isa, loop.flush_program),
        f"  the tile becomes {', '.join(loop.tile)}",
    ]


def _registers(plane: int, groups: int) -> str:
    return f"w0_{plane}" if groups == 1 else f"w0_{plane}..w{groups - 1}_{plane}"


def _program(isa: Isa, program: Sequence[Step]) -> Table:
    cpus = list(isa.table.cpu)
    table = output.table("  instruction", "lane i", *cpus, right=cpus)
    for step in program:
        instr = isa[step.op]
        costs = (f"{1 / instr.cost[cpu].per_cycle:.3g}" for cpu in cpus)
        table.add_row(f"  {step}", lane_text(instr, step), *costs)
    return table


def _legend(isa: Isa, kernel: Kernel) -> Table:
    """Each form the programs use, once: what it does and what it costs."""
    used = {s.op for p in kernel.passes for s in (*p.step_program, *p.flush_program)}
    cpus = list(isa.table.cpu)
    table = output.table("  form", "result", "does", *cpus, right=cpus)
    for name in sorted(used):
        instr = isa[name]
        costs = (f"{1 / instr.cost[cpu].per_cycle:.3g} ({instr.cost[cpu].latency:g})" for cpu in cpus)
        table.add_row(f"  {name}", str(instr.out), instr.doc, *costs)
    table.caption = "  cpu columns: cycles of throughput (latency)"
    table.caption_justify = "left"
    return table


def _facts(name: str, parsed: KernelName, entry: Entry) -> dict[str, Any]:
    isa = load(entry.kernel.isa)
    facts: dict[str, Any] = msgspec.to_builtins(entry)
    kernel = facts["kernel"]
    for loop, texts in zip(entry.kernel.passes, kernel["passes"], strict=True):
        texts["step"] = [_step_facts(isa, s) for s in loop.step_program]
        texts["flush"] = [_step_facts(isa, s) for s in loop.flush_program]
        texts["act_planes"] = [_plane_facts(t, entry.kernel.act_bits) for t in loop.act_planes]
        texts["wgt_planes"] = [_plane_facts(t, entry.kernel.w_bits) for t in loop.wgt_planes]
    encodings = {"act_encoding": parsed.spec.act.encoding.value, "weight_encoding": parsed.spec.wgt.encoding.value}
    return {**facts, "name": name, "description": parsed.describe(), **encodings, "k_max": parsed.spec.k_max}


def _plane_facts(table: int, bits: int) -> dict[str, Any]:
    return {"text": plane_text(table, bits), "codes": [c for c in range(1 << bits) if table >> c & 1]}


def _step_facts(isa: Isa, step: Step) -> dict[str, Any]:
    instr = isa[step.op]
    cycles = {cpu: round(1 / cost.per_cycle, 4) for cpu, cost in instr.cost.items()}
    return {"text": str(step), "lane": lane_text(instr, step), "does": instr.doc, "cycles": cycles}
