"""Render a verified kernel as C11: header, source, what it needs of a processor, and self-test.

The text depends on the kernel and its name alone, so it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jinja2

from bitsynth.emit.packing import packing, row_affines, slope, word_text
from bitsynth.emit.programs import chain_text, initial_tile
from bitsynth.emit.sides import blocks
from bitsynth.emit.statements import Scope
from bitsynth.files import marked
from bitsynth.isa import architecture
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant
from bitsynth.isa.types import VecType
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Build, Kernel
from bitsynth.kernel.wellformed import constant_load, needs
from bitsynth.proof.proved import Proved
from bitsynth.spec.matmul import MatmulSpec, affine

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)


_SUMMED, _SUM_BYTES = 64, 8
"""Codes whose sum C makes at once, and bytes of what it keeps of each vector's."""


@cache
def _template(name: str) -> jinja2.Template:
    return _ENVIRONMENT.get_template(name)


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of one of the templates."""
    return _template(template).render(values)


class CSource:
    """The files of a proved kernel under the encodings of `spec`, each rendered when first asked for."""

    def __init__(self, proved: Proved, spec: MatmulSpec) -> None:
        kernel = proved.kernel
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


def _values(isa: Isa, kernel: Kernel, spec: MatmulSpec, name: str) -> dict[str, Any]:
    correction = affine(spec)
    scope = Scope(isa)
    affine_terms = correction.act_terms, correction.wgt_terms
    rows = blocks(kernel, [p.rows for p in kernel.passes], kernel.row_bits)
    columns = blocks(kernel, [p.columns for p in kernel.passes], kernel.column_bits)
    chosen = packing(kernel)
    return {
        "name": name,
        "guard": name.upper() + "_H",
        "isa": isa.table,
        "kernel": kernel,
        "spec": spec,
        "affine": correction,
        "row_affine": affine_terms[kernel.swapped],
        "column_affine": affine_terms[not kernel.swapped],
        "constants": _arrays(kernel.constants),
        "load_constants": _load_constants(scope, isa, kernel.constants),
        "register_bytes": isa.word.lanes,
        "uses_zero": kernel.has_row_terms or not all(n.first for p in kernel.passes for n in p.loops),
        "init": initial_tile(isa, kernel),
        "row_blocks": list(rows.values()),
        "column_blocks": list(columns.values()),
        "chains": [
            chain_text(isa, kernel, [(loop, rows[loop.rows], columns[loop.columns]) for loop in chain], scope.types)
            for chain in kernel.chains
        ],
        "build": _build(isa, kernel.build) if kernel.build else None,
        "packing": chosen,
        "words": [word_text(x, kernel.k_step) for x in chosen.words],
        "row_scale": slope(kernel.row_terms),
        "affine_scale": row_affines(kernel, spec),
        "term_bytes": 8 if correction.is_identity else 16,
        "selftest": _selftest(kernel),
        "act": spec.act,
        "wgt": spec.wgt,
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


def _arrays(constants: Sequence[Constant]) -> list[tuple[str, str, int, list[str]]]:
    """Name, C type, bytes of a lane and lanes of each constant."""
    kinds = [(c, VecType.parse(c.type)) for c in constants]
    return [(c.name, f"{kind:c}", kind.bits // 8, [_literal(x) for x in c.lanes]) for c, kind in kinds]


def _literal(x: int) -> str:
    """`x` in C; compilers warn of plain numbers too large for every signed type."""
    return f"UINT64_C({x})" if x >= 1 << 63 else str(x)


def _load_constants(scope: Scope, isa: Isa, constants: Sequence[Constant], prefix: str = "constant") -> list[str]:
    """Constants are kept in memory order and loaded as what they are used at."""
    kinds = [(c.name, VecType.parse(c.type)) for c in constants]
    return [scope.load(constant_load(isa, kind).name, name, f"{prefix}_{name}") for name, kind in kinds]


def _build(isa: Isa, build: Build) -> dict[str, Any]:
    """Constants and statements that make a table of staged values."""
    scope = Scope(isa)
    lines = _load_constants(scope, isa, build.constants, "lanes")
    loads = list(lines)
    made = [scope.load(build.load, "x0", "stage"), *scope.steps(build.steps)]
    made.append(scope.store(build.store, build.table, "to"))
    return {
        "constants": _arrays(build.constants),
        "loads": loads,
        "lines": made,
        "tables": build.tables,
        "stage": build.stage,
    }
