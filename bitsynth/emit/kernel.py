"""C11 of a proved kernel: header, source, a function that asks for processor features, and self-test.

The text depends on the kernel and its name alone, so it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitsynth.emit.correction_terms import doublings, has_row_terms, makes_values, row_affines, row_terms, slope
from bitsynth.emit.flushes import Flushes
from bitsynth.emit.kernel_inputs import SideText, blocks, has_spread_codes
from bitsynth.emit.microkernel import microkernel
from bitsynth.emit.packing import CODES, codes_of_word, ones, packing, packs_words, tables, takes_tables, word_text
from bitsynth.emit.programs import Programs
from bitsynth.emit.render import indent_lines, render
from bitsynth.emit.runtime_files import kernel_header
from bitsynth.emit.statements import Scope, constant_arrays, load_constants
from bitsynth.files import mark
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.kernel.describe import input_text
from bitsynth.kernel.inputs import Input
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel, period
from bitsynth.kernel.straight_line import needs
from bitsynth.proof.multiples import prove_multiple, require_shift
from bitsynth.proof.proved import Proved
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec, affine

_MAX_LISTED_INPUTS = 8
"""The most inputs of a step that the comment spells out; of more, the first two and the last."""
_MAX_LISTED_COLUMNS = 16
"""The most columns whose order the comment spells out."""
_METHODS = {
    "popcount": "by counting bits",
    "lookup": "by looking sums up in tables",
    "pairs": "by looking sums of two rows up at once",
    "multiply": "by multiplying 8-bit lanes",
    "fip": "by multiplying sums of two 8-bit lanes",
    "dot": "by dot products of 8-bit lanes",
    "matrix": "by products of matrices of bytes",
}


def describe_kernel(name: str, kernel: Kernel, spec: MatmulSpec, command: str = "") -> str:
    """Return the text of the comment; `command` is the one that finds the kernel's program, "" to leave it out."""
    of_rows, of_columns = ("weights", "activations") if kernel.swapped else ("activations", "weights")
    rows, columns = (
        f"{kernel.rows} row{'s' * (kernel.rows > 1)} of {of_rows}",
        f"{kernel.columns} columns of {of_columns}",
    )
    lines = [
        f"{name}: exact int32 products of {spec.act} activations and {spec.wgt} weights, {_METHODS[kernel.method]}.",
        "",
        f"  computes  c (m x n) = activations (m x k) times weights (k x n), for k up to {spec.k_max:,}",
        f"  tile      {rows} x {columns}; a step is {kernel.k_step} positions of k",
        f"  row       {_bytes(kernel.row_bytes)} a step: {_inputs(kernel, 'a')}",
        f"  column    {_bytes(kernel.column_bytes)} a step: {_inputs(kernel, 'w')}",
        f"  columns   lie next to each other, {_order(kernel.slots)}, {_bytes(kernel.slot_bytes)} each",
    ]
    if kernel.bit_axis == "outer":
        lines.append("  planes    all steps of a plane lie before those of the next")
    if command:
        lines.append(f"  command   {command}")
    return "\n".join([*lines, "", "From a kernel whose proof was checked."])


def _order(slots: Sequence[int]) -> str:
    if list(slots) == sorted(slots):
        return "in order"
    return (
        f"in the order {' '.join(map(str, slots))}"
        if len(slots) <= _MAX_LISTED_COLUMNS
        else "in the order of `slots` in the source"
    )


def value_text(operand: MatmulOperand) -> str:
    """Return the C expression of a code's value."""
    scaled = "code" if operand.scale == 1 else f"{operand.scale} * code"
    return f"{scaled} {'+' if operand.offset > 0 else '-'} {abs(operand.offset)}" if operand.offset else scaled


def _bytes(count: int) -> str:
    return f"{count} byte{'s' * (count > 1)}"


def _inputs(kernel: Kernel, letter: str) -> str:
    """Return in words the inputs of rows ("a") or columns ("w"); inputs that passes share are named once."""
    of_rows = letter == "a"
    bits = kernel.row_bits if of_rows else kernel.column_bits
    sides: list[Sequence[Input]] = [p.rows if of_rows else p.columns for p in kernel.passes]
    shared = [x for side in dict.fromkeys(map(tuple, sides)) for x in side]
    texts = [input_text(x, bits, kernel.input_bytes(x), kernel.code_bytes) for x in shared]
    return "; ".join(texts if len(texts) <= _MAX_LISTED_INPUTS else [*texts[:2], "..", texts[-1]])


_MAX_REPEATED_BYTES = 1 << 21
"""The most bytes of a column tile that a self-test repeats to reach the second flush."""
_SEGMENTS = 16
"""Segments of a self-test are a multiple of this: sums of half as many are even, and two tiles of them fit."""
_SUMMED, _SUM_BYTES = 64, 8
"""Codes that C sums at once, and bytes of the sum that is kept of each vector."""
_ADDED_BITS = 6
"""The most bits of a code such that the sum of four codes fits a byte."""
_SHIFTED_BYTES = 16
"""Bytes of a register of an instruction set that shifts bytes by themselves: Arm's."""


class CSource:
    """The C files of a proved kernel under the encodings of `spec`, each rendered when it is first read."""

    field = "kernel"

    def __init__(self, proved: Proved[Kernel], spec: MatmulSpec) -> None:
        kernel = proved.artifact
        self._of = kernel, spec
        self.name = str(KernelName.of(kernel, spec))
        isa = load(kernel.isa)
        self.needs = needs(kernel)
        self._values = {
            **_values(isa, proved, spec, self.name),
            "needs": self.needs,
            "features": [(f, isa.table.probes[f]) for f in self.needs.host],
            "probe": isa.probe_text(self.needs.host),
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
        """The header with the `struct bs_kernel` of this kernel."""
        return kernel_header(*self._of)

    @property
    def files(self) -> dict[str, str]:
        """File names and texts, each text with the mark of a generated file."""
        return self.files_by("")

    def files_by(self, command: str) -> dict[str, str]:
        """Return the same files, with the command that finds the kernel's program in the header."""
        kernel, spec = self._of
        values = {**self._values, "about": describe_kernel(self.name, kernel, spec, command)}
        return mark(
            {
                f"{self.name}.h": render("kernel.h.j2", values) if command else self.header,
                f"{self.name}.c": self.source,
                f"{self.name}_features.c": self.features,
                f"{self.name}_selftest.c": self.selftest,
            }
        )


@dataclass(frozen=True)
class _Sum:
    """The sum of table[code] over a row's codes: "terms" (`place` 0) or "affines" (`place` 1)."""

    kernel: Kernel
    name: str
    place: int
    table: Sequence[int]

    @property
    def scale(self) -> int | None:
        """The factor of each code if the table is linear, else None."""
        return slope(self.table)

    @property
    def of_codes(self) -> bool:
        """Whether words add the scaled sum of their codes: codes have so few bits that four of them fit in a byte."""
        return self.scale is not None and self.kernel.row_bits <= _ADDED_BITS and expands_bytes(self.kernel)

    @property
    def ones(self) -> str:
        """The C of the number that a step of a row packed from words adds: a weighted count of set bits."""
        weighted_words = ones(self.kernel, packing(self.kernel), self.table)
        return " + ".join(f"{n} * ones({word_text(word, self.kernel)})" for n, word in weighted_words) or "0"


def expands_bytes(kernel: Kernel) -> bool:
    """Return whether words are unpacked to codes in 16-byte registers; every such set shifts bytes by themselves."""
    fits = packing(kernel).rows != "words" and load(kernel.isa).word.lanes == _SHIFTED_BYTES
    return fits and not takes_tables(kernel)


def _values(isa: Isa, proved: Proved[Kernel], spec: MatmulSpec, name: str) -> dict[str, Any]:
    kernel = proved.artifact
    chosen = packing(kernel)
    return {
        "name": name,
        "guard": name.upper() + "_H",
        "about": describe_kernel(name, kernel, spec),
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
        "act": spec.act,
        "wgt": spec.wgt,
        "act_value": value_text(spec.act),
        "wgt_value": value_text(spec.wgt),
        **_terms(kernel, spec),
        **_code(isa, proved, spec),
    }


def _terms(kernel: Kernel, spec: MatmulSpec) -> dict[str, Any]:
    """Return the template's values on terms and affines of rows and columns."""
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
    """Return whether held values are tied for clang: for a last row's own program, and for products added in place.

    With clang 14 on the Cortex-A53 such steps take up to a fourth less time (fip 2 % more), others up to 2 % more.
    """
    steps = (isa[s.op] for loop in kernel.passes for s in loop.step.steps if s.args)
    return kernel.active_scalar_pass is not None or any(
        len(form.tied) == 1 and len(form.operands) == 3 for form in steps
    )


def _pinning(isa: Isa, kernel: Kernel) -> str:
    """Return the set's statement that keeps values of this kind of kernel in their registers; "" for its usual one."""
    if kernel.together > 1:
        return isa.table.pin_pairs
    accs = {VecType.parse(acc.type).bits for p in kernel.passes for acc in p.step.accs}
    return isa.table.pin_tile if accs == {isa.tile.bits} else ""


def _code(isa: Isa, proved: Proved[Kernel], spec: MatmulSpec) -> dict[str, Any]:
    """Return the template's values that are C of instructions, their macros, and the packing of inputs."""
    kernel = proved.artifact
    scope = Scope(isa, {*kernel.forms}, pinning=_pinning(isa, kernel), ties=_ties(isa, kernel))
    rows = blocks(kernel, [p.rows for p in kernel.passes], kernel.row_bits)
    columns = blocks(kernel, [p.columns for p in kernel.passes], kernel.column_bits)
    shift = affine(spec).shift * makes_values(kernel, spec)
    times = doublings(kernel, spec)
    require_shift(proved, shift)
    doubled = prove_multiple(proved, times)
    flushes = Flushes(isa, doubled, has_row_terms(kernel, spec), shift, times)
    programs = Programs(isa, doubled, flushes)
    start = flushes.without_steps(scope)
    constants = load_constants(scope, isa, doubled.constants, "constant")
    body = microkernel(programs, rows, columns, scope)
    build = tables(isa, kernel, kernel.build, scope.macros) if kernel.build else None
    of_matrices = programs.matrices
    return {
        "constants": constant_arrays(doubled.constants, "constant"),
        "matrices": {
            "permission": isa.matrices.permission.strip(),
            "array": of_matrices.declare_configuration(),
            "begin": indent_lines(of_matrices.configure()),
            "end": indent_lines(of_matrices.release()),
        }
        if of_matrices
        else None,
        "register_bytes": isa.word.lanes,
        "spread": has_spread_codes(kernel),
        "uses_zero": programs.uses_zero,
        "row_blocks": list(rows.values()),
        "column_blocks": list(columns.values()),
        "selftest": _selftest(kernel, spec, list(columns.values())),
        "start": indent_lines(start),
        "load_constants": indent_lines(constants),
        "body": indent_lines(body, 2),
        "build": build,
        "macros": sorted(scope.macros.values(), key=lambda text: ("PIN(" in text, text)),
    }


def _selftest(kernel: Kernel, spec: MatmulSpec, column_blocks: Sequence[SideText]) -> dict[str, Any]:
    """Return the sizes of the self-test.

    k: positions of a product that takes several steps. longest: positions of the longest product, which is packed in
    several parts. words: 64-bit words of a packed operand. chunks: bytes of one step of a column tile that lie next to
    other steps' bytes. segments: how often `k` is repeated, so that the last steps come after the second flush if the
    kernel `flushes`.
    """
    k = 2 * max(kernel.k_step, _SUMMED) + 5
    longest = CODES + k if packs_words(kernel) else k
    steps, longest_steps = (-(-x // kernel.k_step) for x in (k, longest))
    vectors, others = 2 * kernel.rows + 1, kernel.columns + 3
    sides = (vectors, kernel.rows, kernel.row_bytes), (others, kernel.columns, kernel.column_bytes)
    words = [-(-n // unit) * unit * (longest_steps * size + 2 * _SUM_BYTES) // 8 + 1 for n, unit, size in sides]
    behind = 2 * max(map(period, kernel.chains)) // steps + 1
    flushes = (
        behind * steps * kernel.columns * kernel.column_bytes <= _MAX_REPEATED_BYTES
        and 2 * behind * steps * kernel.k_step <= spec.k_max
    )
    segments = -(-(behind if flushes else 1) // _SEGMENTS) * _SEGMENTS
    sizes = [kernel.slot_bytes if kernel.bit_axis == "outer" else block.bytes for block in column_blocks]
    chunks = [size for size, block in zip(sizes, column_blocks, strict=True) for _ in range(block.bytes // size)]
    return {
        "k": k,
        "steps": steps,
        "longest": longest,
        "longest_steps": longest_steps,
        "vectors": vectors,
        "others": others,
        "words": max(words),
        "flushes": flushes,
        "segments": segments,
        "chunks": [f"COLUMNS * {size}" for size in chunks],
        "shift": affine(spec).shift * makes_values(kernel, spec),
        "factor": 2 ** doublings(kernel, spec),
    }
