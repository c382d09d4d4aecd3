"""The C of elementwise programs: one function a program, over rows and whole units of columns.

    void NAME(const void *constants, const void *numbers, size_t rows, size_t columns,
              const void *from, size_t from_apart, const int32_t *row,
              const void *other, size_t other_apart, void *to, size_t to_apart);

`columns` are whole units; rows lie `..._apart` bytes from each other. `constants` are what `ElementwiseProgram.pack`
makes, from the first unit of the call on; `numbers` what all elements share; `row` has one value for each row; `other`
is the second input of elements. What a program does not read may be NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bitsynth.emit.render import array, block, indent_lines, lay_out
from bitsynth.emit.statements import Scope, constant_arrays, load_constants
from bitsynth.isa import architecture
from bitsynth.isa.load import Isa, load
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

PARAMETERS = (
    "const void *constants, const void *numbers, size_t rows, size_t columns, const void *from, size_t from_apart, "
    "const int32_t *row, const void *other, size_t other_apart, void *to, size_t to_apart"
)


def opening(spec: ElementwiseSpec) -> list[str]:
    """Return the first statements of a function of `spec`: unused parameters, and pointers to constants."""
    per = [x.per for x in spec.inputs]
    constants, second = "channel" in per, per.count("element") > 1
    read = {"constants": constants, "numbers": "all" in per or "table" in per, "row": "row" in per}
    read |= {"other": second, "other_apart": second}
    dropped = [f"(void){name};" for name, is_read in read.items() if not is_read]
    return [*dropped, *(["const uint8_t *constant = constants;"] if constants else [])]


def source(programs: Sequence[ElementwiseProgram]) -> str:
    """Return a C file with an external function for each of `programs`, all of one instruction set."""
    isa = load(programs[0].isa)
    scope = Scope(isa, {form for program in programs for form in program.written_forms})
    functions = [function(p, scope, p.name) for p in programs]
    head = [f"#include <{isa.table.header}>", "#include <stddef.h>", "#include <stdint.h>", "#include <string.h>", ""]
    declared = [f"void {p.name}({PARAMETERS});" for p in programs]
    return lay_out("\n".join([*head, *sorted(scope.macros.values()), *declared, *functions, ""]))


def function(program: ElementwiseProgram, scope: Scope, name: str, *, static: bool = False) -> str:
    """Return the C function of a program; `scope` gathers the macros that its file needs."""
    arrays = [array(text, lanes) for text, lanes in constant_arrays(program.constants, name)]
    head = f"{'static ' if static else ''}void {name}({PARAMETERS})"
    body = _Text(program, load(program.isa), name).body(scope.inner())
    return "\n".join([*arrays, head, "{", *indent_lines(body), "}"])


class _Text:
    """The statements of one program."""

    def __init__(self, program: ElementwiseProgram, isa: Isa, name: str) -> None:
        self.program, self.isa, self.name = program, isa, name
        self.first, *self.others = (x for x in program.spec.inputs if x.per == "element")
        self.over = program.spec.inputs[-1]
        channel_registers = sum(program.registers(x)[1] * x.values for x in program.spec.inputs if x.per == "channel")
        folds = architecture.find_architecture(isa.table.arch).memory_operands
        self.late = 2 * channel_registers > 3 * isa.table.registers and not folds and not program.loop
        """What elements and channels have is loaded where a row reads it first: most of it does not stay in registers.

        Of constants a little beyond the registers compilers keep enough for the next row.
        """

    def body(self, scope: Scope) -> list[str]:
        """Yield the statements of the function: constants and numbers, then units of columns."""
        lines = load_constants(scope, self.isa, self.program.constants, self.name)
        for shared in ("all", "table"):
            lines += self._loads(shared, "(const uint8_t *)numbers", scope)
        head = f"for (size_t column = 0; column < columns; column += {self.program.unit})"
        return [*lines, *opening(self.program.spec), *block(head, self._unit(scope.inner()))]

    def _unit(self, scope: Scope) -> list[str]:
        """Yield the statements of one unit of columns: its constants, then every row."""
        lines = [] if self.late else list(self._loads("channel", "constant", scope))
        if self.program.loop:
            lines.append(f"const uint8_t *const values = constant + {self.program.offset(self.over.name)};")
        advanced = [f"constant += {self.program.constant_bytes};"] if self.program.constant_bytes else []
        lines += [] if self.late else advanced
        lines.append(f"const uint8_t *in = {_column('(const uint8_t *)from', self.first.lane.bits)};")
        for x in self.others:
            lines.append(f"const uint8_t *more = {_column('(const uint8_t *)other', x.lane.bits)};")
        lines.append(f"uint8_t *out = {_column('(uint8_t *)to', self.program.spec.out_bits)};")
        lines += block("for (size_t i = 0; i < rows; ++i)", self._row(scope.inner()))
        return lines + (advanced if self.late else [])

    def _row(self, scope: Scope) -> list[str]:
        """Yield the statements of one row of a unit."""
        lines: list[str] = []
        if not self.late:
            lines += self._elements(scope)
        lines += self._loads("row", "(const uint8_t *)(row + i)", scope)
        if self.program.loop:
            lines += self._iterations(self.program.loop, scope)
        lines += self._steps(scope)
        size = self.isa[self.program.store].out.total_bits // 8
        for n, name in enumerate(self.program.results):
            lines.append(scope.store(self.program.store, name, f"out + {n * size}" if n else "out"))
        lines += ["in += from_apart;", *(["more += other_apart;"] if self.others else []), "out += to_apart;"]
        return lines

    def _steps(self, scope: Scope) -> list[str]:
        """Return the steps; no compiler fuses a product of floats with what is added to it."""
        lanes = {step.op: self.isa[step.op].lane for step in self.program.steps}
        adds = any("fadd(" in text for text in lanes.values())
        lines, late = list[str](), self._late_loads(scope)
        if self.late:
            scope.macros["ANEW"] = '#define ANEW(p) __asm__ volatile("" : "+r"(p))'
            lines.append("ANEW(constant);")
        for step in self.program.by_elements if self.late else self.program.steps:
            lines += [late.pop(a) for a in step.args if a in late]
            lines += scope.steps([step])
            if adds and "fmul" in lanes[step.op]:
                constraint = architecture.find_architecture(self.isa.table.arch).vector_constraint
                scope.macros["ROUNDED"] = f'#define ROUNDED(x) __asm__("" : "+{constraint}"(x))'
                lines.append(f"ROUNDED({step.dst});")
        return lines

    def _iterations(self, loop: ElementLoop, scope: Scope) -> list[str]:
        """Return the loop over the values of the last input."""
        kind = self.isa.word
        counts = [Value(f"x0_{n}") for n in range(len(loop.next))]
        lines = [scope.declare(name, kind, scope.view(loop.start, kind)) for name in counts]
        size = self.program.unit * self.over.lane.bits // 8
        inside = scope.inner()
        body = list(self._value(self.over, names(self.program, self.over)[0], "value", 0, inside))
        body += inside.steps(loop.steps)
        body += [f"{name} = {inside.view(new, kind)};" for name, new in zip(counts, loop.next, strict=True)]
        lines.append("const uint8_t *value = values;")
        return [*lines, *block(f"for (int left = {self.over.count}; left > 0; --left, value += {size})", body)]

    def _late_loads(self, scope: Scope) -> dict[Value, str]:
        """Return the loads that come where they are read first, by the names of their registers."""
        if not self.late:
            return {}
        inputs = [*(x for x in self.program.spec.inputs if x.per == "channel"), self.first, *self.others]
        loaded = [name for x in inputs for value in names(self.program, x) for name in value]
        return dict(zip(loaded, [*self._loads("channel", "constant", scope), *self._elements(scope)], strict=True))

    def _elements(self, scope: Scope) -> Iterator[str]:
        """Yield the registers of inputs that elements have."""
        for x, base in zip([self.first, *self.others], ["in", "more"], strict=False):
            yield from self._registers(x, base, 0, scope)

    def _loads(self, per: str, base: str, scope: Scope) -> Iterator[str]:
        """Yield the registers of inputs that go by `per`."""
        for x in self.program.spec.inputs:
            if x.per == per and not (self.program.loop and x == self.over):
                yield from self._registers(x, base, 0 if per == "row" else self.program.offset(x.name), scope)

    def _registers(self, input_: ElementInput, base: str, start: int, scope: Scope) -> Iterator[str]:
        size = self.program.unit * input_.lane.bits // 8
        for k, value in enumerate(names(self.program, input_)):
            yield from self._value(input_, value, base, start + k * size, scope)

    def _value(
        self, input_: ElementInput, registers: Sequence[Value], base: str, start: int, scope: Scope
    ) -> Iterator[str]:
        """Yield the statements that load one value of an input."""
        op = self.program.loads[self.program.spec.inputs.index(input_)]
        size = self.isa[op].operands[0].type.total_bits // 8
        for n, name in enumerate(registers):
            place = start + n * size
            yield scope.load(op, name, f"{base} + {place}" if place else base)


def _column(base: str, bits: int) -> str:
    """Return the address of a column of elements of `bits` bits."""
    if bits % 8:
        return f"{base} + column / 8 * {bits}"
    return f"{base} + column * {bits // 8}" if bits > 8 else f"{base} + column"
