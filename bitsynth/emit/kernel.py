"""The C11 of a proved kernel: header, source, the question for processor features, and self-test.

The text depends on the kernel and its name alone, so it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitsynth.emit.about import about, value_text
from bitsynth.emit.constants import constant_arrays, load_constants
from bitsynth.emit.flushes import Flushes
from bitsynth.emit.inputs import blocks, spread
from bitsynth.emit.lines import indented
from bitsynth.emit.microkernel import microkernel
from bitsynth.emit.packing import CODES, codes_of_word, ones, packing, packs_words, word_text
from bitsynth.emit.programs import Programs
from bitsynth.emit.render import render
from bitsynth.emit.runtime_files import kernel_header
from bitsynth.emit.statements import Scope
from bitsynth.emit.tables import tables, takes_tables
from bitsynth.emit.terms import doublings, has_row_terms, makes_values, row_affines, row_terms, slope
from bitsynth.files import marked
from bitsynth.isa import architecture
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.kernel.forms_used import needs
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.proof.multiples import proved_multiple
from bitsynth.proof.proved import Proved
from bitsynth.spec.matmul import MatmulSpec, affine

_SUMMED, _SUM_BYTES = 64, 8
"""Codes whose sum C makes at once, and bytes of what it keeps of each vector's."""
_ADDED_BITS = 6
"""The most bits of codes of which four add up in a byte."""
_SHIFTED_BYTES = 16
"""Bytes of the registers, Arm's, whose bytes shift by themselves."""


class CSource:
    """The files of a proved kernel under the encodings of `spec`, each rendered when first asked for."""

    def __init__(self, proved: Proved, spec: MatmulSpec) -> None:
        kernel = proved.kernel
        self._of = kernel, spec
        self.name = str(KernelName.of(kernel, spec))
        isa = load(kernel.isa)
        self.needs = needs(isa, kernel)
        self._values = {
            **_values(isa, kernel, spec, self.name),
            "needs": self.needs,
            "features": [(f, isa.table.probes[f]) for f in self.needs.host],
            "probe": architecture.named(isa.table.arch).probe_text(),
        }

    def _render(self, template: str) -> str:
        return render(template, self._values)

    @cached_property
    def header(self) -> str:
        """The C header."""
        return self._render("kernel.h.j2")

    @cached_property
    def source(self) -> str:
        """The C source of microkernel, packers and driver."""
        return self._render("kernel.c.j2")

    @cached_property
    def features(self) -> str:
        """The C source that asks the processor for the features it needs."""
        return self._render("kernel_features.c.j2")

    @cached_property
    def selftest(self) -> str:
        """The C source of the self-test."""
        return self._render("kernel_selftest.c.j2")

    @property
    def layer_header(self) -> dict[str, str]:
        """The header that says what `bs_layer` needs of the kernel."""
        return kernel_header(*self._of)

    @property
    def files(self) -> dict[str, str]:
        """File names and texts, marked as ours."""
        return marked(
            {
                f"{self.name}.h": self.header,
                f"{self.name}.c": self.source,
                f"{self.name}_features.c": self.features,
                f"{self.name}_selftest.c": self.selftest,
            }
        )


@dataclass(frozen=True)
class _Sum:
    """The sums `name` of rows' codes, in `place` of the two that there may be: of table[code] for each code."""

    kernel: Kernel
    name: str
    place: int
    table: Sequence[int]

    @property
    def scale(self) -> int | None:
        """The number that each code is multiplied by, None if there is none."""
        return slope(self.table)

    @property
    def of_codes(self) -> bool:
        """Whether what words add is the scaled sum of their codes: so many bits that four codes add up in a byte."""
        return self.scale is not None and self.kernel.row_bits <= _ADDED_BITS and expands_bytes(self.kernel)

    @property
    def ones(self) -> str:
        """The C of what a step of a row adds that is packed from words, by their set bits."""
        made = ones(self.kernel, packing(self.kernel), self.table)
        return " + ".join(f"{n} * ones({word_text(word, self.kernel)})" for n, word in made) or "0"


def expands_bytes(kernel: Kernel) -> bool:
    """Whether codes are made of words in registers of 16 bytes, whose bytes shift by themselves on every such set."""
    fits = packing(kernel).rows != "words" and load(kernel.isa).word.lanes == _SHIFTED_BYTES
    return fits and not takes_tables(kernel)


def _values(isa: Isa, kernel: Kernel, spec: MatmulSpec, name: str) -> dict[str, Any]:
    chosen = packing(kernel)
    return {
        "name": name,
        "guard": name.upper() + "_H",
        "about": about(name, kernel, spec),
        "isa": isa.table,
        "kernel": kernel,
        "spec": spec,
        "packing": chosen,
        "has_pack_words": packs_words(kernel),
        "expands_bytes": expands_bytes(kernel),
        "takes_tables": takes_tables(kernel),
        "codes_at_a_time": CODES,
        "codes_of_word": codes_of_word(kernel),
        "words": [word_text(x, kernel) for x in chosen.words],
        "selftest": _selftest(kernel),
        "act": spec.act,
        "wgt": spec.wgt,
        "act_value": value_text(spec.act),
        "wgt_value": value_text(spec.wgt),
        **_terms(kernel, spec),
        **_code(isa, kernel, spec),
    }


def _terms(kernel: Kernel, spec: MatmulSpec) -> dict[str, Any]:
    """The terms that the encodings add, and the functions that sum up codes of rows."""
    correction, affine_scale = affine(spec), row_affines(kernel, spec)
    affine_terms = correction.act_terms, correction.wgt_terms
    terms = row_terms(kernel, spec)
    sums = [_Sum(kernel, "terms", 0, terms)] if has_row_terms(kernel, spec) else []
    if affine_scale:
        sums.append(_Sum(kernel, "affines", 1, correction.act_terms))
    return {
        "affine": correction,
        "row_affine": affine_terms[kernel.swapped],
        "column_affine": affine_terms[not kernel.swapped],
        "affine_scale": affine_scale,
        "has_row_terms": has_row_terms(kernel, spec),
        "makes_values": makes_values(kernel, spec),
        "term_bytes": 8 if correction.is_identity else 16,
        "sums": sums,
        "slope": slope,
        "counts_ones": any(x.ones != "0" and not x.of_codes for x in sums),
        "code_sums": packing(kernel).rows != "words" and any(x.scale is not None for x in sums),
    }


def _ties(isa: Isa, kernel: Kernel) -> bool:
    """Whether held values are tied for clang: for a last row's own program, and where products are added in place.

    Such steps take up to a fourth less by clang 14 on the Cortex-A53 (fip 2 % more), others up to 2 % more.
    """
    steps = (isa[s.op] for loop in kernel.passes for s in loop.step.steps if s.args)
    return kernel.active_scalar_pass is not None or any(
        len(form.tied) == 1 and len(form.operands) == 3 for form in steps
    )


def _code(isa: Isa, kernel: Kernel, spec: MatmulSpec) -> dict[str, Any]:
    """The parts that are written in instructions, the macros they need, and the packing of inputs."""
    accs = {VecType.parse(acc.type).bits for p in kernel.passes for acc in p.step.accs}
    scope = Scope(isa, adds_to_tile=accs == {isa.tile.bits}, ties=_ties(isa, kernel))
    rows = blocks(kernel, [p.rows for p in kernel.passes], kernel.row_bits)
    columns = blocks(kernel, [p.columns for p in kernel.passes], kernel.column_bits)
    shift = affine(spec).shift * makes_values(kernel, spec)
    times = doublings(kernel, spec)
    doubled = proved_multiple(kernel, times)
    flushes = Flushes(isa, doubled, has_row_terms(kernel, spec), shift, times)
    programs = Programs(isa, doubled, flushes)
    start = flushes.without_steps(scope)
    constants = load_constants(scope, isa, doubled.constants, "constant")
    body = microkernel(programs, rows, columns, scope)
    build = tables(isa, kernel, kernel.build, scope.macros) if kernel.build else None
    return {
        "constants": constant_arrays(doubled.constants, "constant"),
        "register_bytes": isa.word.lanes,
        "spread": spread(kernel),
        "uses_zero": programs.uses_zero,
        "row_blocks": list(rows.values()),
        "column_blocks": list(columns.values()),
        "start": indented(start),
        "load_constants": indented(constants),
        "body": indented(body, 2),
        "build": build,
        "macros": sorted(scope.macros.values(), key=lambda text: ("PIN(" in text, text)),
    }


def _selftest(kernel: Kernel) -> dict[str, int]:
    """Depth of the self-test's product, steps of that, rows of whole tiles, 64-bit words of either packed operand."""
    k = 2 * max(kernel.k_step, _SUMMED) + 5
    steps = -(-k // kernel.k_step)
    act, wgt = kernel.rows + 1, kernel.columns + 3
    rows, columns = (wgt, act) if kernel.swapped else (act, wgt)
    sides = (rows, kernel.rows, kernel.row_bytes), (columns, kernel.columns, kernel.column_bytes)
    padded = [-(-count // unit) * unit for count, unit, _ in sides]
    words = [n * (steps * size + 2 * _SUM_BYTES) // 8 + 1 for n, (_, _, size) in zip(padded, sides, strict=True)]
    return {"k": k, "steps": steps, "padded": padded[0], "words": max(words)}
