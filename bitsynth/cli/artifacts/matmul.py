"""Matmul kernels on the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.artifacts.artifact import (
    KERNELS,
    ListRow,
    NamedArtifact,
    constant_text,
    heading,
    legend,
    program,
    step_facts,
    steps_page,
)
from bitsynth.cli.report import ON_RECORD, claim_line, price_text
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step, to_builtins
from bitsynth.kernel.describe import flush_title, input_text, loop_title, plane_text, step_title
from bitsynth.kernel.inputs import Build, Planes
from bitsynth.kernel.matrices import matrix_grid
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel, Loop, Pass
from bitsynth.progress import Progress
from bitsynth.proof.proved import Proved
from bitsynth.proof.recheck import recheck
from bitsynth.schedule.cost import AMORTISED_K
from bitsynth.spec.options import scope
from bitsynth.store.entry import Entry, ProvedEntry
from bitsynth.store.matmul import MATMUL


class MatmulArtifact(NamedArtifact[Entry, ProvedEntry]):
    """A matmul kernel, whose composition is checked as it is loaded."""

    kind = MATMUL
    table = KERNELS
    undischarged = "on record, not discharged"

    def __init__(self, name: str, proved: ProvedEntry) -> None:
        super().__init__(name, proved)
        self._parsed = KernelName.parse(name)
        self._claimed = (proved.base or proved).entry
        bound = f"bound {self._claimed.cost.lower_bound:g} ops"
        self.statement_count = output.count(len(proved.proved.obligations), "instruction lemma")
        self.claims = f"{output.count(len(self._claimed.certificate.minimality), 'claim')}, {bound}"
        self.scope = f", K up to {self._parsed.spec.k_max:,}"

    @classmethod
    def row(cls, record: Entry) -> ListRow:
        """Return the row of a kernel."""
        kernel, cost = record.kernel, record.cost
        minimal = scope(load(kernel.isa), kernel.method, record.options) if cost.minimal else None
        numbers = f"{cost.ops_per_128_mac:.2f}", f"{cost.lower_bound:.3g}"
        facts = {
            "isa": kernel.isa,
            "act_bits": kernel.act_bits,
            "w_bits": kernel.w_bits,
            "method": kernel.method,
            "ops_per_128_mac": cost.ops_per_128_mac,
            "lower_bound": cost.lower_bound,
            "minimal": minimal,
            "cycles": dict(cost.cycles),
            "k_max": record.certificate.k_max,
        }
        before = (kernel.method, *numbers, "yes" if minimal else "no")
        return ListRow(kernel.method, before, cost.cycles, (_round(record.certificate.k_max),), facts)

    @property
    def source(self) -> str:
        """The C source under the encodings of the name."""
        from bitsynth.matmul import MatmulKernel

        return MatmulKernel(self.proved, self._parsed.spec).source

    def page(self) -> list[RenderableType]:
        """Return inputs, programs with the meaning of each instruction, cost and claims."""
        return _page(self.name, self._parsed, self.proved.entry)

    def facts(self) -> dict[str, Any]:
        """Return the entry, with programs step by step and inputs in words."""
        return _facts(self.name, self._parsed, self.proved.entry)

    def check(self) -> list[tuple[str, str, str]]:
        """Return the lemmas by class, which were checked as the kernel was loaded."""
        kinds = (lemma.partition(": ")[0] for lemma in self.proved.proved.lemmas)
        classes = Counter("passes" if kind.startswith("pass ") else kind for kind in kinds)
        return [*((kind, output.count(n, "lemma"), "checked") for kind, n in classes.items()), self._check_again()]

    def _check_again(self) -> tuple[str, str, str]:
        """Return what the second checker says of the kernel; Refuted if it disagrees with the proof."""
        claims, why_not = recheck(self.name, to_builtins(self.proved.entry), self._parsed.spec)
        if why_not:
            return "recheck", "no claims", why_not
        return "recheck", output.count(len(claims), "claim"), "checked by the second checker"

    @property
    def proof(self) -> Proved[Any]:
        """The proof of the kernel."""
        return self.proved.proved

    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        """Solve the bound and the kernel again."""
        from bitsynth.synth import synthesize

        budget = {} if rlimit is None else {"rlimit": rlimit}
        again = synthesize.solve_again(self._claimed, progress=say, **budget)
        same = "same kernel" if again.entry.kernel == self._claimed.kernel else "another kernel of the same cost"
        return self.claims, f"solved again, {same}"

    def statements(self) -> dict[str, Any]:
        """Return lemmas, instruction lemmas and claims."""
        certificate, claimed = self.proved.entry.certificate, self._claimed
        return {
            "k_max": self._parsed.spec.k_max,
            "lower_bound": claimed.cost.lower_bound,
            "minimal": claimed.cost.minimal or None,
            "lemmas": list(certificate.lemmas),
            "instructions": list(certificate.instructions),
            "minimality": list(claimed.certificate.minimality),
        }


def _round(n: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


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
        *_describe_prediction(entry),
        f"cycles    {cycles} per 128 MAC" if cycles else "cycles    no processor of the tables has all instructions",
        f"method    {entry.method}{how}",
        f"claims    {', '.join(claim_line(price).cells)}",
        f"          {ON_RECORD}",
        f"proof     {lemmas} lemmas, K up to {certificate.k_max:,}",
    ]


def _describe_prediction(entry: Entry) -> list[str]:
    """Return the cycles that a scoreboard model predicts, with loads, flushes and spills."""
    from bitsynth.schedule import predicted

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
    if kernel.in_matrices:
        grid = matrix_grid(kernel)
        out.append(f"registers {grid.taken} of matrices; {output.count(grid.products, 'product')} of matrices a step")
    if kernel.cross_terms:
        out.append(f"          and {kernel.cross_terms} times the products of neighbours, of either side")
    return out + [constant_text(k) for k in kernel.constants]


def _build_page(isa: Isa, build: Build) -> list[RenderableType]:
    stage = " ".join("-" if n < 0 else str(n) for n in build.stage)
    return [
        "",
        heading(f"table of a row: built in {output.count(len(build.steps), 'instruction')} as the row is packed"),
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
        out += steps_page(isa, title, loop.step.first, starts)
    for level, outer in enumerate(loop.loops[1:], 1):
        out += steps_page(isa, where + loop_title(loop, level), outer.steps, _becoming(outer))
    into = "the next pass starts from" if loop.carries else "the tile becomes"
    return out + steps_page(isa, where + flush_title(loop), loop.flush, f"{into} {', '.join(loop.tile)}")


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
    facts: dict[str, Any] = to_builtins(entry)
    kernel, facts_of = entry.kernel, facts["kernel"]
    # Programs, step by step.
    if kernel.build:
        facts_of["build"]["program"] = [step_facts(isa, s) for s in kernel.build.steps]
    of_passes = [*facts_of["passes"], *([facts_of["beside"]] if kernel.scalar_pass else [])]
    for loop, texts in zip(kernel.every_pass, of_passes, strict=True):
        for nested, of_nested in zip(loop.loops, texts["loops"], strict=True):
            of_nested["program"] = [step_facts(isa, s) for s in nested.steps]
            of_nested["first"] = [step_facts(isa, s) for s in nested.first]
        texts["flush"] = [step_facts(isa, s) for s in loop.flush]
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
